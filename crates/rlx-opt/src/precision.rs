//! Which arithmetic a compiled graph really uses.
//!
//! A precision or policy is a wish: an op runs short only where the device has a kernel for that type, and the
//! others stay f32. [`analyze`] reads from the compiled graph what became of it, so that no one has to guess.
//!
//! ```
//! use rlx_ir::{DType, Graph, Shape};
//! use rlx_opt::{CompileOptions, Precision, precision};
//! let mut g = Graph::new("g");
//! let x = g.input("x", Shape::new(&[2, 4], DType::BF16));
//! let w = g.param("w", Shape::new(&[4, 3], DType::BF16));
//! let y = g.matmul(x, w, Shape::new(&[2, 3], DType::BF16));
//! g.set_outputs(vec![y]);
//! assert_eq!(precision::used(&g), Precision::BF16);
//! println!("{}", precision::analyze(&g, &CompileOptions::default(), None));
//! ```

use std::collections::BTreeMap;
use std::fmt;

use rlx_ir::op::BinaryOp as B;
use rlx_ir::{DType, Graph, Node, Op, OpKind, cost};

use crate::facts;
use crate::options::{CompileOptions, Precision, PrecisionPolicy};
use crate::passes::legalize::needs_no_kernel;
use crate::target::{Gain, Target};

/// How many nodes of a kind compute in an element type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindPrecision {
    /// The op.
    pub kind: OpKind,
    /// The element type of its results; sums are kept in f32 for those of 16 bits.
    pub dtype: DType,
    /// How many nodes.
    pub node_count: usize,
}

/// How many nodes of a kind a mixed policy leaves f32, since the device gains nothing by the shorter type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptLong {
    /// The op.
    pub kind: OpKind,
    /// How many nodes.
    pub node_count: usize,
    /// Why the device gains nothing ([`Gain::Nothing`]).
    pub reason: String,
}

/// What was asked for, and what is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrecisionReport {
    /// The policy, or the precision where there is none.
    pub requested: String,
    /// The type most of the arithmetic is done in: see [`used`].
    pub used: Precision,
    /// The instructions that matmuls of that type run on, where the device tells.
    pub products: Option<String>,
    /// One line for each kind and type of the ops that run at every call; casts are not counted.
    pub kinds: Vec<KindPrecision>,
    /// What a mixed policy leaves f32, and why.
    pub kept: Vec<KeptLong>,
}

impl fmt::Display for PrecisionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "precision: {} asked for, {} used", self.requested, self.used)?;
        if let Some(products) = &self.products {
            write!(f, " ({products})")?;
        }
        for k in &self.kinds {
            write!(f, "\n  {:<18} {:>6}  {}", k.kind.name(), k.node_count, k.dtype.name())?;
        }
        for k in &self.kept {
            write!(f, "\n  {:<18} {:>6}  kept f32: {}", k.kind.name(), k.node_count, k.reason)?;
        }
        Ok(())
    }
}

/// What `options` ask for, by name.
pub fn requested(options: &CompileOptions) -> String {
    match &options.policy {
        Some(policy) => policy.to_string(),
        None => options.precision.to_string(),
    }
}

/// Whether the device is asked for anything but f32.
pub fn is_short(options: &CompileOptions) -> bool {
    match &options.policy {
        Some(PrecisionPolicy::AlwaysF32) => false,
        Some(PrecisionPolicy::Custom(ops)) => ops.values().any(|&p| p != Precision::F32),
        Some(_) => true,
        None => options.precision != Precision::F32,
    }
}

/// Reads from a compiled graph what arithmetic it uses. `target`, where given, tells by what instructions, and what stays f32 since it would not
/// be faster.
pub fn analyze(graph: &Graph, options: &CompileOptions, target: Option<&dyn Target>) -> PrecisionReport {
    let policy = Policy::of(options);
    let mut counts: BTreeMap<(OpKind, DType), usize> = BTreeMap::new();
    let mut kept: BTreeMap<(OpKind, String), usize> = BTreeMap::new();
    each_op(graph, &mut |graph, node| {
        let (kind, dtype) = (node.op.kind(), node.shape.dtype());
        *counts.entry((kind, dtype)).or_default() += 1;
        let short = policy.dtype(&node.op).filter(|_| dtype == DType::F32);
        let gain = short.zip(target).map(|(short, target)| policy.gain(node, graph, short, target));
        if let Some(Gain::Nothing(reason)) = gain {
            *kept.entry((kind, reason)).or_default() += 1;
        }
    });
    let used = used(graph);
    let kinds =
        counts.into_iter().map(|((kind, dtype), node_count)| KindPrecision { kind, dtype, node_count });
    let kept = kept.into_iter().map(|((kind, reason), node_count)| KeptLong { kind, node_count, reason });
    PrecisionReport {
        requested: requested(options),
        used,
        products: target.and_then(|target| target.matmul_instructions(used.dtype())),
        kinds: kinds.collect(),
        kept: kept.collect(),
    }
}

/// The type that most of a graph's arithmetic is done in: of its sums of products (matmuls, convolutions,
/// attention) where it has any, of all its float ops otherwise. Nodes weigh by their FLOPs, and alike where
/// dimensions are open.
pub fn used(graph: &Graph) -> Precision {
    let all = [Precision::F32, Precision::F16, Precision::BF16];
    let (mut products, mut others) = ([0.0; 3], [0.0; 3]);
    each_op(graph, &mut |graph, node| {
        let Some(i) = all.iter().position(|p| p.dtype() == node.shape.dtype()) else { return };
        let weights = if is_product(node.op.kind()) { &mut products } else { &mut others };
        weights[i] += cost::node_cost(graph, node).flops.max(1.0);
    });
    let weights = if products.iter().any(|&w| w > 0.0) { products } else { others };
    // On a tie the first one, f32, wins.
    let most = (0..3).fold(0, |best, i| if weights[i] > weights[best] { i } else { best });
    all[most]
}

/// Whether ops of this kind are sums of products.
pub fn is_product(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::MatMul | OpKind::DotGeneral | OpKind::Conv | OpKind::ConvTranspose | OpKind::Attention
    )
}

/// Calls `f` for every float op that runs at each call, those inside regions too, with the graph it stands in.
fn each_op(graph: &Graph, f: &mut dyn FnMut(&Graph, &Node)) {
    let fixed = facts::fixed_nodes(graph);
    for node in graph.nodes().iter().filter(|n| !fixed[n.id.index()]) {
        match &node.op {
            op if !op.bodies().is_empty() => op.bodies().iter().for_each(|body| each_op(&body.graph, f)),
            Op::Cast { .. } | Op::Pack { .. } => {}
            op if needs_no_kernel(op) || !node.shape.dtype().is_float() => {}
            _ => f(graph, node),
        }
    }
}

/// Which ops a precision or a policy asks to run in a shorter type, and whether the device gains by it.
pub(crate) enum Policy<'o> {
    /// Everything in one type.
    All(DType),
    Named(&'o PrecisionPolicy),
}

impl<'o> Policy<'o> {
    pub(crate) fn of(options: &'o CompileOptions) -> Self {
        match (&options.policy, options.precision) {
            (Some(PrecisionPolicy::AlwaysF16), _) => Policy::All(DType::F16),
            (Some(policy), _) => Policy::Named(policy),
            (None, Precision::F32) => Policy::Named(&PrecisionPolicy::AlwaysF32),
            (None, precision) => Policy::All(precision.dtype()),
        }
    }

    /// Whether nothing is asked for but f32.
    pub(crate) fn is_long(&self) -> bool {
        matches!(self, Policy::Named(PrecisionPolicy::AlwaysF32))
    }

    /// The shorter type `op` is to run in, if it is.
    pub(crate) fn dtype(&self, op: &Op) -> Option<DType> {
        use PrecisionPolicy as P;
        match self {
            Policy::All(dtype) => Some(*dtype),
            Policy::Named(P::AlwaysF16) => Some(DType::F16),
            Policy::Named(P::AlwaysF32) => None,
            Policy::Named(P::AutoMixedConservative) => {
                (is_weighted_sum(op.kind()) || needs_no_kernel(op)).then_some(DType::F16)
            }
            Policy::Named(P::AutoMixed) => (!is_delicate(op)).then_some(DType::F16),
            Policy::Named(P::AutoMixedBf16) => (!is_delicate(op)).then_some(DType::BF16),
            Policy::Named(P::Custom(ops)) => match ops.get(&op.kind()) {
                Some(Precision::F32) | None => needs_no_kernel(op).then_some(DType::F16),
                Some(precision) => Some(precision.dtype()),
            },
        }
    }

    /// What the device gains by computing `node`, which is f32 in `graph`, in the type it is asked to run in. A precision, and a policy that
    /// names ops, is obeyed; the mixed policies leave to the device what does not make it faster.
    pub(crate) fn gain(&self, node: &Node, graph: &Graph, short: DType, target: &dyn Target) -> Gain {
        use PrecisionPolicy as P;
        match self {
            Policy::Named(P::AutoMixedConservative | P::AutoMixed | P::AutoMixedBf16) => {
                target.gain(node, graph, short)
            }
            _ => Gain::Time,
        }
    }
}

/// Attention is more than a matmul: it has a softmax inside.
fn is_weighted_sum(kind: OpKind) -> bool {
    is_product(kind) && kind != OpKind::Attention
}

/// Reductions, norms, softmax and exponentials lose too much in a short type.
fn is_delicate(op: &Op) -> bool {
    match op {
        Op::Reduce { .. } | Op::Cumulative { .. } | Op::Softmax { .. } | Op::LogSoftmax { .. } => true,
        Op::LayerNorm { .. } | Op::RmsNorm { .. } | Op::GroupNorm { .. } | Op::BatchNorm { .. } => true,
        Op::Binary(f) => matches!(f, B::Pow),
        Op::Activation(f) => f.is_delicate(),
        _ => false,
    }
}
