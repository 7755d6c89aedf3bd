//! Which values keep every bit under any [`crate::Numerics`]: those that something rounds or compares.
//!
//! One bit more or less in a float is within rounding error, but not in what is made of it by a jump: rounded to an
//! integer it is one step, compared it is yes or no. So where a value is made of *exactly rounded* ops alone (`+ − · /`,
//! roots, minima, movement, casts: every device gives the oracle's bits) and goes, through such ops, into a *jump*
//! (`Quantize`, `Round`, a cast to integers, a comparison, the place of an extreme), no rule that changes a bit applies.
//! Behind sums of many terms and functions such as `exp` there is nothing to keep: devices differ within rounding error
//! there, and a value that close to the middle between two integers may go to either of them. The user's side of this
//! rule is in `docs/precision.md`, "Rounding to integers".

use rlx_ir::op::{Activation as A, BinaryOp as B, PoolKind, ReduceOp, SampleMode, ScatterOp};
use rlx_ir::{DType, Graph, Node, Op};

/// For each node, whether its bits must be the oracle's. `outputs_count`: whether what the graph gives may still go into
/// a jump, as what the body of a control-flow op gives may.
pub(crate) fn kept_to_the_bit(graph: &Graph, outputs_count: bool) -> Vec<bool> {
    let mut exact: Vec<bool> = Vec::with_capacity(graph.len());
    for node in graph.nodes() {
        exact.push(is_exactly_rounded(node, graph) && node.inputs.iter().all(|id| exact[id.index()]));
    }
    let mut decides = vec![false; graph.len()];
    if outputs_count {
        graph.outputs.iter().for_each(|id| decides[id.index()] = true);
    }
    for node in graph.nodes().iter().rev() {
        let through = decides[node.id.index()] && is_exactly_rounded(node, graph);
        if through || jumps(node, graph) {
            node.inputs.iter().for_each(|id| decides[id.index()] = true);
        }
    }
    exact.into_iter().zip(decides).map(|(exact, decides)| exact && decides).collect()
}

/// Whether a small change of an input may be a large one of a result.
fn jumps(node: &Node, graph: &Graph) -> bool {
    let of_float = || node.inputs.iter().any(|&id| graph.shape(id).dtype().is_float());
    match &node.op {
        Op::GridSample { mode, .. } => *mode == SampleMode::Nearest,
        Op::Quantize { .. } | Op::Compare(_) | Op::ArgReduce { .. } | Op::TopK { .. } => true,
        Op::NonZero { .. } | Op::NonMaxSuppression { .. } | Op::TreeEnsemble { .. } => true,
        Op::Activation(A::Round | A::Floor | A::Ceil | A::Trunc | A::Sign) => true,
        Op::Binary(B::Mod | B::Rem) | Op::DynamicMatMulBlocks => true,
        // The types of eight bits and fewer have steps as integers have.
        Op::Cast { to } => of_float() && (!to.is_float() || to.bits() <= 8),
        // What their bodies do is not looked into.
        Op::If { .. } | Op::Loop { .. } | Op::Region { .. } | Op::Custom { .. } => true,
        _ => false,
    }
}

/// Whether every device gives the oracle's bits for the same inputs.
fn is_exactly_rounded(node: &Node, graph: &Graph) -> bool {
    let whole = |dtype: DType| !dtype.is_float() && dtype != DType::C64;
    if node.inputs.iter().all(|&id| whole(graph.shape(id).dtype())) && whole(node.shape.dtype()) {
        return true;
    }
    match &node.op {
        Op::Activation(A::Relu | A::Sqrt | A::Neg | A::Abs | A::Recip) => true,
        Op::Activation(A::Round | A::Floor | A::Ceil | A::Trunc | A::Sign) => true,
        Op::Activation(_) => false,
        Op::Binary(f) => !matches!(f, B::Pow | B::Atan2),
        Op::Reduce { op, .. } | Op::Cumulative { op, .. } => matches!(op, ReduceOp::Max | ReduceOp::Min),
        Op::Pool { kind, .. } => *kind == PoolKind::Max,
        Op::GridSample { mode, .. } => *mode == SampleMode::Nearest,
        Op::ScatterElements { reduction, .. } | Op::ScatterNd { reduction } => {
            !matches!(reduction, ScatterOp::Add | ScatterOp::Mul)
        }
        Op::MatMul | Op::MatMulBlocks | Op::DynamicMatMulBlocks | Op::DotGeneral { .. } => false,
        Op::GroupedMatMul | Op::SquaredDistances | Op::TreeEnsemble { .. } | Op::Conv { .. } => false,
        Op::ConvTranspose { .. } | Op::Recurrent { .. } | Op::Attention { .. } | Op::Rope { .. } => false,
        Op::Softmax { .. } | Op::LogSoftmax { .. } | Op::LayerNorm { .. } | Op::RmsNorm { .. } => false,
        Op::GroupNorm { .. } | Op::BatchNorm { .. } => false,
        // Borders, movement, choices, quantisation; and what is not looked into counts as the best it can be.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use rlx_ir::{GraphExt, NodeId, Shape};

    use super::*;

    /// `x / 3`, which `f` uses; whether its bits are kept.
    fn quotient(outputs_count: bool, f: impl Fn(&mut Graph, NodeId) -> NodeId) -> bool {
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::new(&[2, 3], DType::F32));
        let three = g.try_scalar(3.0, DType::F32).unwrap();
        let y = g.try_div(x, three).unwrap();
        let out = f(&mut g, y);
        g.set_outputs(vec![out]);
        kept_to_the_bit(&g, outputs_count)[y.index()]
    }

    #[test]
    fn what_goes_into_a_jump_through_exact_ops_keeps_its_bits() {
        let round = |g: &mut Graph, y| g.try_act(A::Round, y).unwrap();
        let exp = |g: &mut Graph, y| g.try_act(A::Exp, y).unwrap();
        let largest = |g: &mut Graph, y| g.try_reduce(y, ReduceOp::Max, &[0], true).unwrap();
        assert!(quotient(false, round));
        assert!(quotient(false, |g, y| {
            let y = largest(g, y);
            round(g, y)
        }));
        assert!(quotient(false, |g, y| g.try_cast(y, DType::I32).unwrap()));
        // Behind a function that no device rounds exactly there is nothing to keep.
        assert!(!quotient(false, |g, y| {
            let y = exp(g, y);
            round(g, y)
        }));
        assert!(!quotient(false, largest));
        assert!(quotient(true, largest), "what a body gives may be rounded outside of it");
    }

    #[test]
    fn what_is_not_exact_itself_need_not_be_kept() {
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::new(&[2, 3], DType::F32));
        let e = g.try_act(A::Exp, x).unwrap();
        let y = g.try_add_(e, x).unwrap();
        let out = g.try_act(A::Floor, y).unwrap();
        g.set_outputs(vec![out]);
        assert_eq!(kept_to_the_bit(&g, false), [true, false, false, false]);
    }
}
