//! The types of attributes: which activation, which comparison, and so on.

use std::collections::BTreeMap;

use crate::dim::{Dim, DimBinding, Extent};
use crate::error::Result;
use crate::graph::Graph;
use crate::ops::attr::{Attr, named_variants};
use crate::text::{Lexer, TextWriter};

named_variants! {
    /// Functions of two elements.
    BinaryOp, "binary op" {
        /// Sum.
        Add,
        /// Difference.
        Sub,
        /// Product.
        Mul,
        /// Quotient; integers truncate towards zero, and division by zero gives 0.
        Div,
        /// The greater; NaN if either is NaN.
        Max,
        /// The lesser; NaN if either is NaN.
        Min,
        /// Power.
        Pow,
        /// Remainder with the sign of the divisor (Python's `%`); by zero gives 0 for integers.
        Mod,
        /// Remainder with the sign of the dividend (C's `fmod`, `%`); by zero gives 0 for integers.
        Rem,
        /// Logical and of bools.
        And,
        /// Logical or of bools.
        Or,
        /// Logical exclusive or of bools.
        Xor,
        /// Bitwise and of integers.
        BitAnd,
        /// Bitwise or of integers.
        BitOr,
        /// Bitwise exclusive or of integers.
        BitXor,
        /// Shift left of unsigned integers; by the width or more gives 0.
        Shl,
        /// Shift right of unsigned integers; by the width or more gives 0.
        Shr,
        /// The angle of the point (second, first).
        Atan2,
    }
}

named_variants! {
    /// Comparisons; with NaN all are false but `Ne`.
    CmpOp, "comparison" {
        /// Equal.
        Eq,
        /// Not equal.
        Ne,
        /// Less.
        Lt,
        /// Less or equal.
        Le,
        /// Greater.
        Gt,
        /// Greater or equal.
        Ge,
    }
}

named_variants! {
    /// How a reduction combines elements. Of no elements: 0, NaN (integers: 0), the type's smallest value,
    /// its largest value, 1; the smallest and largest float are the infinities.
    ReduceOp, "reduction" {
        /// The sum.
        Sum,
        /// The mean; integers truncate.
        Mean,
        /// The largest; NaN if any is NaN.
        Max,
        /// The smallest; NaN if any is NaN.
        Min,
        /// The product.
        Prod,
    }
}

named_variants! {
    /// Questions about one float.
    Predicate, "predicate" {
        /// Whether it is not a number.
        IsNan,
        /// Whether it is infinite.
        IsInf,
        /// Whether it is positive infinity.
        IsPosInf,
        /// Whether it is negative infinity.
        IsNegInf,
    }
}

named_variants! {
    /// What is in the border a pad adds.
    PadMode, "pad mode" {
        /// The scalar input; 0 without one.
        Constant,
        /// The nearest element.
        Edge,
        /// The tensor mirrored, its outermost element not repeated.
        Reflect,
        /// The tensor repeated.
        Wrap,
    }
}

named_variants! {
    /// How a scatter joins an update with what is there.
    ScatterOp, "scatter reduction" {
        /// The update replaces it; of several updates of one element the last wins.
        Set,
        /// The sum.
        Add,
        /// The product.
        Mul,
        /// The greater; NaN if either is NaN.
        Max,
        /// The lesser; NaN if either is NaN.
        Min,
    }
}

named_variants! {
    /// Which element's place an arg-reduction gives.
    ArgOp, "arg-reduction" {
        /// The largest.
        Max,
        /// The smallest.
        Min,
    }
}

named_variants! {
    /// What an attention may look at.
    MaskKind, "mask kind" {
        /// Everything.
        None,
        /// Keys up to the query's own position, aligned at the ends.
        Causal,
        /// What the mask input allows: added to the scores when it is a float, allowed where true when
        /// it is a bool.
        Custom,
    }
}

named_variants! {
    /// What an attention gives a query whose every score is −∞, as a mask that forbids everything makes them.
    Unseen, "unseen" {
        /// 0.
        Zero,
        /// NaN, which is what the softmax of such scores is.
        Nan,
        /// 0, and so for every query whose weights are no numbers: `Where(IsNaN(p), 0, p)` on the weights.
        Guard,
    }
}

named_variants! {
    /// Where the channels of an image-like tensor are.
    DataFormat, "data format" {
        /// `[N, C, spatial…]`.
        ChannelsFirst,
        /// `[N, spatial…, C]`.
        ChannelsLast,
    }
}

named_variants! {
    /// How pooling combines the elements of a window.
    PoolKind, "pooling" {
        /// The largest; NaN if any is NaN.
        Max,
        /// The mean.
        Average,
    }
}

named_variants! {
    /// How a value between elements is computed.
    SampleMode, "mode of sampling" {
        /// The nearest element; of two the even one.
        Nearest,
        /// Linear between the two neighbours along each dimension.
        Linear,
        /// Keys' cubic convolution of the four neighbours along each dimension, with the coefficient −0.75.
        Cubic,
    }
}

named_variants! {
    /// What is outside of an image that is sampled.
    Outside, "kind of outside" {
        /// 0.
        Zeros,
        /// The nearest element.
        Border,
        /// The image mirrored at the centres of its outermost elements.
        ReflectCentres,
        /// The image mirrored at its outer edges, half an element further out.
        ReflectEdges,
    }
}

named_variants! {
    /// What a recurrent layer computes at each step; see [`crate::ops::nn::recurrent`].
    RecurrentCell, "recurrent cell" {
        /// One function of input and state.
        Rnn,
        /// Gated: the state is reset before its product with the weights of the candidate.
        Gru,
        /// Gated: what is reset is that product.
        GruLinear,
        /// Gated, with a cell beside the state.
        Lstm,
    }
}

impl RecurrentCell {
    /// How many gates the input has parts for.
    pub const fn gates(self) -> usize {
        match self {
            RecurrentCell::Rnn => 1,
            RecurrentCell::Gru | RecurrentCell::GruLinear => 3,
            RecurrentCell::Lstm => 4,
        }
    }

    /// How many gates the recurrent weights have columns for.
    pub const fn gates_of_state(self) -> usize {
        match self {
            RecurrentCell::Gru => 2,
            _ => self.gates(),
        }
    }

    /// How many functions it is given: that of the gates, then those of candidate and cell.
    pub const fn functions(self) -> usize {
        match self {
            RecurrentCell::Rnn => 1,
            RecurrentCell::Gru | RecurrentCell::GruLinear => 2,
            RecurrentCell::Lstm => 3,
        }
    }
}

/// A function of a recurrent layer's gates.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum GateFunction {
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `max(x, 0)`.
    Relu,
    /// `ln(1 + eˣ)`.
    Softplus,
    /// `x` where it is not negative, else `alpha·x`.
    LeakyRelu {
        /// The slope below zero.
        alpha: f32,
    },
    /// `max(0, min(1, alpha·x + beta))`.
    HardSigmoid {
        /// The slope.
        alpha: f32,
        /// The value at zero.
        beta: f32,
    },
}

impl Attr for GateFunction {
    fn same(&self, other: &Self) -> bool {
        use GateFunction::{HardSigmoid, LeakyRelu};
        match (self, other) {
            (LeakyRelu { alpha: a }, LeakyRelu { alpha: b }) => a.same(b),
            (HardSigmoid { alpha: a, beta: x }, HardSigmoid { alpha: b, beta: y }) => a.same(b) && x.same(y),
            (a, b) => a == b,
        }
    }

    fn write(&self, w: &mut TextWriter) {
        match self {
            GateFunction::Sigmoid => w.push("Sigmoid"),
            GateFunction::Tanh => w.push("Tanh"),
            GateFunction::Relu => w.push("Relu"),
            GateFunction::Softplus => w.push("Softplus"),
            GateFunction::LeakyRelu { alpha } => w.push(&format!("LeakyRelu({alpha:?})")),
            GateFunction::HardSigmoid { alpha, beta } => w.push(&format!("HardSigmoid({alpha:?}, {beta:?})")),
        }
    }

    fn parse(lexer: &mut Lexer<'_>) -> Result<Self> {
        let name = lexer.word()?;
        let numbers: Vec<f32> = if lexer.at("(") { lexer.list("(", ")", f32::parse)? } else { Vec::new() };
        match (name.as_str(), &numbers[..]) {
            ("Sigmoid", []) => Ok(GateFunction::Sigmoid),
            ("Tanh", []) => Ok(GateFunction::Tanh),
            ("Relu", []) => Ok(GateFunction::Relu),
            ("Softplus", []) => Ok(GateFunction::Softplus),
            ("LeakyRelu", &[alpha]) => Ok(GateFunction::LeakyRelu { alpha }),
            ("HardSigmoid", &[alpha, beta]) => Ok(GateFunction::HardSigmoid { alpha, beta }),
            _ => Err(lexer.error(&format!("\"{name}\" with {} numbers is no gate function", numbers.len()))),
        }
    }
}

/// A graph inside an op, isolated from the graph around it: its inputs are the op's inputs in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Body {
    /// What the body computes.
    pub graph: Graph,
}

impl Attr for Body {
    fn write(&self, w: &mut TextWriter) {
        w.nested(&self.graph);
    }

    fn parse(lexer: &mut Lexer<'_>) -> Result<Self> {
        Ok(Body { graph: lexer.nested_graph()? })
    }

    fn bind(&self, binding: &DimBinding) -> Self {
        Body { graph: self.graph.bind(binding) }
    }

    fn each_extent(&self, found: &mut dyn FnMut(Extent)) {
        // What nodes of the body count is its own affair.
        let own: Vec<u32> = self.graph.nodes().iter().filter_map(|n| n.op.data_symbol()).collect();
        let mut outer = |e: Extent| {
            if own.is_empty() || !e.symbols().iter().any(|s| own.contains(s)) {
                found(e);
            }
        };
        // Neighbours mostly have the same dimensions.
        let mut before: &[Dim] = &[];
        for node in self.graph.nodes() {
            node.op.each_extent(&mut outer);
            for shape in node.results().iter().filter(|shape| shape.dims() != before) {
                shape.dims().iter().for_each(|d| outer(d.extent()));
            }
            before = node.shape.dims();
        }
    }

    fn each_symbol(&self, found: &mut dyn FnMut(u32)) {
        if self.graph.nodes().iter().any(|n| n.op.data_symbol().is_some()) {
            self.each_extent(&mut |e| e.each_symbol(found));
            return;
        }
        self.graph.nodes().iter().for_each(|node| node.each_symbol(found));
    }
}

/// The attributes of a custom op.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CustomAttrs(pub BTreeMap<String, CustomAttr>);

/// One attribute of a custom op.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum CustomAttr {
    /// An integer.
    Int(i64),
    /// A number.
    Float(f64),
    /// A text.
    Text(String),
    /// Integers.
    Ints(Vec<i64>),
    /// Numbers.
    Floats(Vec<f64>),
}

impl Attr for CustomAttr {
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (CustomAttr::Float(a), CustomAttr::Float(b)) => a.same(b),
            (CustomAttr::Floats(a), CustomAttr::Floats(b)) => a.same(b),
            (a, b) => a == b,
        }
    }

    fn write(&self, w: &mut TextWriter) {
        match self {
            CustomAttr::Int(v) => (w.push("int "), v.write(w)).1,
            CustomAttr::Float(v) => (w.push("float "), v.write(w)).1,
            CustomAttr::Text(v) => (w.push("text "), v.write(w)).1,
            CustomAttr::Ints(v) => (w.push("ints "), v.write(w)).1,
            CustomAttr::Floats(v) => (w.push("floats "), v.write(w)).1,
        }
    }

    fn parse(lexer: &mut Lexer<'_>) -> Result<Self> {
        Ok(match lexer.word()?.as_str() {
            "int" => CustomAttr::Int(Attr::parse(lexer)?),
            "float" => CustomAttr::Float(Attr::parse(lexer)?),
            "text" => CustomAttr::Text(Attr::parse(lexer)?),
            "ints" => CustomAttr::Ints(Attr::parse(lexer)?),
            "floats" => CustomAttr::Floats(Attr::parse(lexer)?),
            other => return Err(lexer.error(&format!("\"{other}\" is no attribute type"))),
        })
    }
}

impl Attr for CustomAttrs {
    fn same(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|(a, b)| a.0 == b.0 && a.1.same(b.1))
    }

    fn write(&self, w: &mut TextWriter) {
        let pairs: Vec<&String> = self.0.keys().collect();
        w.push("[");
        for (i, key) in pairs.iter().enumerate() {
            w.push(if i > 0 { ", " } else { "" });
            String::write(key, w);
            w.push(": ");
            self.0[*key].write(w);
        }
        w.push("]");
    }

    fn parse(lexer: &mut Lexer<'_>) -> Result<Self> {
        let pairs = lexer.list("[", "]", |lexer| {
            let key = lexer.string()?;
            lexer.expect(":")?;
            Ok((key, CustomAttr::parse(lexer)?))
        })?;
        Ok(CustomAttrs(pairs.into_iter().collect()))
    }
}
