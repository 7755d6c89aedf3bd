//! Steps that have several variants with the same bits: matmuls on the packed kernel, which can be split
//! differently (see [`TileSizes`]).

use rlx_backend::tuning::TuningKey;
use rlx_ir::lir::{LirModule, Step, StepKind};
use rlx_ir::{Graph, Node, Op};

use super::threads::Threads;
use crate::gemm::TileSizes;
use crate::isa::Isa;
use crate::kernels::conv::is_fast;
use crate::kernels::matmul::{by_blas, is_packed};
use crate::kernels::region::anchor_of;

/// Matmuls of fewer multiply-adds than this take less time than measuring tells apart.
const WORTH_MEASURING: usize = 100_000;

/// The key of a step, if its matmul has several tilings.
pub(crate) fn tuning_key(lir: &LirModule, step: &Step, isa: Isa, threads: &Threads) -> Option<TuningKey> {
    let StepKind::Op(op) = &step.kind else { return None };
    let node = lir.graph.node(step.node);
    let (anchor, graph) = match op {
        Op::Region { body } => (anchor_of(&body.graph)?, &body.graph),
        _ => (node, &lir.graph),
    };
    if !is_tiled(anchor, graph) || is_small(anchor, graph) {
        return None;
    }
    let variants = TileSizes::variants(isa).into_iter().map(|(name, _)| name).collect();
    TuningKey::of(lir, step, &format!("{isa}, {} threads", threads.pool().threads()), variants)
}

/// The tile sizes of variant number `variant` of every key.
pub(crate) fn tile_sizes(isa: Isa, variant: usize) -> TileSizes {
    TileSizes::variants(isa).get(variant).map_or(TileSizes::DEFAULT, |&(_, tile_sizes)| tile_sizes)
}

/// Whether the kernel of this op asks a [`TileSizes`] how to work.
fn is_tiled(anchor: &Node, graph: &Graph) -> bool {
    match &anchor.op {
        Op::MatMul => is_packed(anchor.shape.dtype()) && !by_blas(anchor),
        Op::Conv { .. } => is_fast(&anchor.op, graph.shape(anchor.inputs[0])),
        _ => false,
    }
}

/// Whether it is known to be a small matmul: one of open dimensions may be large.
fn is_small(anchor: &Node, graph: &Graph) -> bool {
    let weights = anchor.inputs.get(1).and_then(|&id| graph.shape(id).num_elements());
    let results = anchor.shape.num_elements();
    let columns = anchor.shape.dims().last().and_then(|d| d.as_static());
    match (weights, results, columns) {
        (Some(w), Some(r), Some(n)) if n > 0 => (w / n).saturating_mul(r) < WORTH_MEASURING,
        _ => false,
    }
}
