//! Steps that can be done in several ways with the same bits: products on the packed kernel, which can be cut up
//! differently (see [`Cut`]).

use rlx_backend::tuning::Site;
use rlx_ir::lir::{LirModule, Step, StepKind};
use rlx_ir::{Graph, Node, Op};

use super::Threads;
use crate::gemm::Cut;
use crate::isa::Isa;
use crate::kernels::conv::is_fast;
use crate::kernels::matmul::{by_blas, is_packed};
use crate::kernels::region::anchor_of;

/// Products of fewer multiply-adds than this take less time than measuring tells apart.
const WORTH_MEASURING: usize = 100_000;

/// The site of a step, if its product can be cut in several ways.
pub(crate) fn site(lir: &LirModule, step: &Step, isa: Isa, threads: &Threads) -> Option<Site> {
    let StepKind::Op(op) = &step.kind else { return None };
    let node = lir.graph.node(step.node);
    let (anchor, graph) = match op {
        Op::Region { body } => (anchor_of(&body.graph)?, &body.graph),
        _ => (node, &lir.graph),
    };
    if !is_cut(anchor, graph) || is_small(anchor, graph) {
        return None;
    }
    let ways = Cut::ways(isa).into_iter().map(|(name, _)| name).collect();
    Site::of(lir, step, &format!("{isa}, {} threads", threads.pool().threads()), ways)
}

/// The cut of way number `way` of every site.
pub(crate) fn cut(isa: Isa, way: usize) -> Cut {
    Cut::ways(isa).get(way).map_or(Cut::DEFAULT, |&(_, cut)| cut)
}

/// Whether the kernel of this op asks a [`Cut`] how to work.
fn is_cut(anchor: &Node, graph: &Graph) -> bool {
    match &anchor.op {
        Op::MatMul => is_packed(anchor.shape.dtype()) && !by_blas(anchor),
        Op::Conv { .. } => is_fast(&anchor.op, graph.shape(anchor.inputs[0])),
        _ => false,
    }
}

/// Whether it is known to be a small product: one of open dimensions may be large.
fn is_small(anchor: &Node, graph: &Graph) -> bool {
    let weights = anchor.inputs.get(1).and_then(|&id| graph.shape(id).num_elements());
    let results = anchor.shape.num_elements();
    let columns = anchor.shape.dims().last().and_then(|d| d.as_static());
    match (weights, results, columns) {
        (Some(w), Some(r), Some(n)) if n > 0 => (w / n).saturating_mul(r) < WORTH_MEASURING,
        _ => false,
    }
}
