//! Which ops a precision or a policy asks to run in a shorter type, and whether the device gains by it.

use rlx_ir::op::BinaryOp as B;
use rlx_ir::{DType, Graph, Node, Op, OpKind};

use crate::options::{CompileOptions, Precision, PrecisionPolicy};
use crate::passes::legalize::needs_no_kernel;
use crate::target::{Gain, Target};

/// What the options ask for.
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
    super::is_product(kind) && kind != OpKind::Attention
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
