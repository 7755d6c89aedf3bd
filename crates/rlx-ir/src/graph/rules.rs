//! Shape rules that only the values of symbols decide.
//!
//! Where dimensions are expressions, a shape rule accepts what may fit: a matmul of `[a, 8]` and `[8, 4]` that is
//! declared as `[b, 4]` is right where `a = b`. Kernels rely on such relations, so a run must not begin before they
//! hold. [`open_rules`] collects the nodes whose rule is not proved for all values, and [`rule_holds`] evaluates the rule
//! of one of them on numbers. No op has a list of relations: both ask [`crate::ops::def::OpDef`].
//!
//! ```
//! use rlx_ir::graph::{open_rules, rule_holds};
//! use rlx_ir::{DType, Dim, Graph, Op, Shape, sym};
//! let dims = |d: &[Dim]| Shape::from_dims(d, DType::F32);
//! let (a, b) = (Dim::Dynamic(sym::named("a")), Dim::Dynamic(sym::named("b")));
//! let mut g = Graph::new("g");
//! let x = g.input("x", dims(&[a, Dim::Static(8)]));
//! let w = g.param("w", dims(&[Dim::Static(8), Dim::Static(4)]));
//! let y = g.add_node(Op::MatMul, vec![x, w], dims(&[b, Dim::Static(4)]));
//! g.set_outputs(vec![y]);
//!
//! let open = open_rules(&[&g]);
//! let node = open.node(open.outputs[0]);
//! let sizes = |a: i64, b: i64| move |s: u32| Some(if s == sym::named("a") { a } else { b });
//! assert!(rule_holds(&open, node, &sizes(2, 2)).is_ok());
//! assert!(rule_holds(&open, node, &sizes(2, 5)).is_err());
//! ```

use std::borrow::Cow;

use super::{Graph, Node, NodeId, ShapeRefs};
use crate::dim::{Dim, DimBinding, SymRange, scoped};
use crate::error::{Error, ErrorKind, Result};
use crate::maps::HashMap;
use crate::ops::{Op, OpKind};
use crate::oracle::live_nodes;
use crate::shape::{Shape, Shapes};
use crate::verify::check_declared;

/// The values of symbols; `None` for a symbol without one.
pub type SymbolValues<'a> = &'a dyn Fn(u32) -> Option<i64>;

/// The nodes of `graphs` whose shape rule, or whose declared shape, holds for some values of the symbols only: a graph
/// whose outputs they are, each over inputs of its own with the shapes of its operands.
///
/// The nodes are those that the outputs depend on, and those in the bodies of fused regions; bodies of control flow are
/// checked when they are compiled. A rule that occurs several times is there once. The graphs are verified ones.
pub fn open_rules(graphs: &[&Graph]) -> Graph {
    let mut found = OpenRules { rules: Graph::new("shape rules"), known: HashMap::default() };
    for graph in graphs {
        *found.rules.origins_mut() = graph.origins().clone();
        graph.symbol_ranges().iter().for_each(|(&s, &range)| found.rules.set_symbol_range(s, range));
        found.graph(graph, &|s| graph.symbol_range(s));
    }
    found.rules
}

impl Graph {
    /// Calls `found` with each symbol that the shapes of the node's operands, its attributes and its results mention,
    /// perhaps more than once: those that its rule depends on.
    pub fn symbols_of_rule(&self, node: &Node, found: &mut dyn FnMut(u32)) {
        node.inputs.iter().for_each(|&id| self.node(id).each_symbol(found));
        node.each_symbol(found);
    }
}

/// Whether the rule of `node`, which is one of `graph`, accepts its operands and gives what it declares.
///
/// # Errors
/// [`ErrorKind::Dimension`] naming the shapes and the rule; a symbol without a value.
pub fn rule_holds(graph: &Graph, node: &Node, value: SymbolValues<'_>) -> Result<()> {
    let located = |e: Error| {
        let name = match &node.name {
            Some(name) => format!("{} {name:?}", node.op.kind()),
            None => node.op.kind().to_string(),
        };
        let e = e.with_node(name);
        match graph.origins().label(node.origin) {
            Some(origin) => e.with_origin(origin),
            None => e,
        }
    };
    scoped(|| evaluate(graph, node, value)).map_err(located)
}

/// Whether some values of the symbols may keep the rule of `node`, as [`crate::verify()`] checks it of a graph's nodes: `true`
/// where the rule gives just what the node declares.
///
/// # Errors
/// An operand that is not there, what the rule reports, [`ErrorKind::Shape`] for declared shapes that it never gives.
pub fn rule_may_hold(graph: &Graph, node: &Node) -> Result<bool> {
    node.inputs.iter().try_for_each(|&id| graph.check_id(id))?;
    let inferred = graph.infer(&node.op, &node.inputs, node.results())?;
    if inferred.len() != node.results().len() {
        return Err(Error::new(ErrorKind::InvalidGraph, "a shape rule with another number of results"));
    }
    if *inferred == *node.results() {
        return Ok(true);
    }
    let range = |s| graph.symbol_range(s);
    let mut results = node.results().iter().zip(&inferred);
    results.try_for_each(|(declared, inferred)| check_declared(declared, inferred, &range))?;
    holds_where_forced(graph, node, &inferred, &range)?;
    Ok(false)
}

/// Checks the rule once more with the values that declared dimensions force on symbols: where `x` of 75 elements is reshaped
/// to `[25, n, 3]` and declared as `[25, 2, 3]`, each dimension may be right, but not all of them.
fn holds_where_forced(
    graph: &Graph,
    node: &Node,
    inferred: &[Shape],
    range: &dyn Fn(u32) -> SymRange,
) -> Result<()> {
    let mut forced = DimBinding::new();
    let results = node.results().iter().zip(inferred);
    for (&declared, &inferred) in results.flat_map(|(d, i)| d.dims().iter().zip(i.dims())) {
        let ((Dim::Static(n), Dim::Dynamic(s)) | (Dim::Dynamic(s), Dim::Static(n))) = (declared, inferred)
        else {
            continue;
        };
        if let Some(other) = forced.get(s).filter(|&other| other != n) {
            let name = crate::dim::sym::name(s);
            let message = format!("declared dimensions make {name} both {other} and {n}");
            return Err(Error::new(ErrorKind::Shape, message));
        }
        forced.set(s, n);
    }
    // What a run counts is bound by the node itself, and a `Result` has no rule but to be as its node declares.
    if forced.is_empty() || node.op.data_symbol().is_some() || matches!(node.op, Op::Result { .. }) {
        return Ok(());
    }
    let inputs: Vec<Shape> = node.inputs.iter().map(|&id| graph.shape(id).bind(&forced)).collect();
    let declared: Vec<Shape> = node.results().iter().map(|s| s.bind(&forced)).collect();
    let inferred = infer(&node.op.bind(&forced), &inputs.iter().collect::<Vec<_>>(), &declared)?;
    let mut results = declared.iter().zip(&inferred);
    results.try_for_each(|(declared, inferred)| check_declared(declared, inferred, range))
}

fn evaluate(graph: &Graph, node: &Node, value: SymbolValues<'_>) -> Result<()> {
    let numbers = |shapes: &mut dyn Iterator<Item = &Shape>| -> Result<Vec<Shape>> {
        shapes.map(|s| with_values(s, value)).collect()
    };
    let inputs = numbers(&mut node.inputs.iter().map(|&id| graph.shape(id)))?;
    let declared = numbers(&mut node.results().iter())?;
    let op = bound_op(&node.op, value)?;
    let given: Vec<&Shape> = inputs.iter().collect();
    let hint = "dimensions that the model declares equal differ";
    let inferred = infer(&op, &given, &declared)
        .map_err(|e| Error::new(ErrorKind::Dimension, e.message().to_string()).with_hint(hint))?;
    if *inferred == *declared {
        return Ok(());
    }
    let list = |shapes: &[Shape]| shapes.iter().map(Shape::to_string).collect::<Vec<_>>().join(", ");
    let message = format!("it gives {} where its declared shape is {}", list(&inferred), list(&declared));
    Err(Error::new(ErrorKind::Dimension, message).with_hint(hint))
}

/// The rule of an op; a `Result` is what its only operand is.
fn infer(op: &Op, inputs: &[&Shape], declared: &[Shape]) -> Result<Shapes> {
    match op {
        Op::Result { .. } => Ok(inputs.iter().map(|&s| s.clone()).collect()),
        op => crate::ops::def::infer(op, inputs, declared),
    }
}

fn with_values(shape: &Shape, value: SymbolValues<'_>) -> Result<Shape> {
    let number = |d: &Dim| {
        let n = d.eval(value).ok_or_else(|| no_value(&d.to_string()))?;
        // i64::MAX is what saturated arithmetic gives.
        let size = usize::try_from(n).ok().filter(|_| n < i64::MAX);
        size.map(Dim::Static)
            .ok_or_else(|| Error::new(ErrorKind::Dimension, format!("dimension {d} of {shape} would be {n}")))
    };
    Ok(shape.with_dims(shape.dims().iter().map(number).collect::<Result<_>>()?))
}

fn no_value(what: &str) -> Error {
    Error::new(ErrorKind::Dimension, format!("{what} has no value"))
}

/// The op with the values of the symbols in its attributes.
fn bound_op(op: &Op, value: SymbolValues<'_>) -> Result<Op> {
    let (mut binding, mut open) = (DimBinding::new(), None);
    op.each_symbol(&mut |symbol| match value(symbol).and_then(|n| usize::try_from(n).ok()) {
        Some(n) => _ = binding.set(symbol, n),
        None => _ = open.get_or_insert(symbol),
    });
    if let Some(symbol) = open {
        return Err(no_value(&crate::dim::sym::name(symbol)));
    }
    Ok(if binding.is_empty() { op.clone() } else { op.bind(&binding) })
}

/// What tells a rule from others but for the op's attributes.
type Signature = (OpKind, Vec<Shape>, Vec<Shape>);

struct OpenRules {
    rules: Graph,
    known: HashMap<Signature, Vec<NodeId>>,
}

impl OpenRules {
    fn graph(&mut self, graph: &Graph, range: &dyn Fn(u32) -> SymRange) {
        let Ok(live) = live_nodes(graph, &graph.outputs) else { return };
        for node in graph.nodes().iter().filter(|n| live[n.id.index()]) {
            if let Op::Region { body } = &node.op {
                self.graph(&body.graph, range);
            }
            self.node(graph, node, range);
        }
    }

    fn node(&mut self, graph: &Graph, node: &Node, range: &dyn Fn(u32) -> SymRange) {
        // Inputs and parameters are what they are declared.
        if matches!(node.op, Op::Input { .. } | Op::Param { .. }) {
            return;
        }
        let mut inputs: ShapeRefs<'_> = node.inputs.iter().map(|&id| graph.shape(id)).collect();
        let mut op = Cow::Borrowed(&node.op);
        if let (Op::Result { index }, Some(&of)) = (&node.op, node.inputs.first()) {
            // Over an operand that is the result itself.
            inputs.clear();
            inputs.extend(graph.node(of).results().get(*index));
            op = Cow::Owned(Op::Result { index: 0 });
        }
        let fixed = inputs.iter().copied().chain(node.results()).all(Shape::is_static);
        if fixed && !node.op.is_symbolic() {
            return;
        }
        let gives_declared =
            infer(&op, &inputs, node.results()).is_ok_and(|inferred| *inferred == *node.results());
        if gives_declared && op.def().holds_for_all(&op, &inputs, range) {
            return;
        }
        let inputs: Vec<Shape> = inputs.into_iter().cloned().collect();
        let known = self.known.entry((op.kind(), inputs.clone(), node.results().to_vec())).or_default();
        if known.iter().any(|&id| self.rules.node(id).op == *op) {
            return;
        }
        let ids = inputs.into_iter().map(|shape| {
            let name = self.rules.len().to_string();
            self.rules.input(name, shape)
        });
        let ids = ids.collect();
        let id = self.rules.push_node(Node { op: op.into_owned(), inputs: ids, ..node.clone() });
        known.push(id);
        self.rules.outputs.push(id);
    }
}
