//! Invocations that compute several neighbours along the last dimension of a map: the place of the first one is found once, so that indices are divided by
//! dimensions once for all of them.
//!
//! ```text
//! x [4, 64] + y [64], into a part of [4, 80]
//!
//! four neighbours together                          up to eight in turn
//!
//! row, at = i / 16, i % 16 * 4                      row, at = i / 8, i % 8 * 8
//! a, b, c, d = x[64 row + at ..]                    for j in at .. at + min(64 - at, 8)
//! e, f, g, h = y[at ..]                                 z[80 row + j] = x[64 row + j] + y[j]
//! z[80 row + at ..] = a + e, b + f, c + g, d + h
//! ```
//!
//! *Together* each access has all neighbours, so all of them must be there, and side by side in what they are read from, where movement and gathers may have
//! left them so ([`Run`]). For GPUs, of which invocations beside each other should access what is beside each other, it is the only choice. *In turn* is for
//! processors that run kernels: they access each element of an invocation by itself, wherever it is, and have no instruction that divides several integers.

use rlx_ir::lir::Operand;
use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::{Extent, NodeId, Op};

use super::collapsed::Collapsed;
use super::cx::Cx;
use super::map::Each;
use super::run::{Along, Needs, Run, is_whole, widths};
use super::{Scheduled, StepDesc, reject};
use crate::ir::{Value, WIDTHS};

/// Bytes that a processor accesses together for an invocation.
const BYTES: usize = 32;

/// How many neighbours an invocation computes in turn.
const IN_TURN: i32 = 8;

/// Rows of fewer elements are not worth a loop.
const WORTH_A_LOOP: i64 = 4;

/// The most nodes of a body that is written once for each neighbour.
const MOST_REPEATED: usize = 12;

/// The neighbours that an invocation of a processor that runs kernels may have; the first is taken unmeasured.
pub(super) fn of_processors(step: &StepDesc, collapsed: Option<&Collapsed>) -> Vec<Each> {
    let dims = collapsed.map(|space| &space.dims[..]).or(step.outputs.first().map(|o| &o.view.dims[..]));
    let together = match collapsed {
        _ if !is_short(step) => None,
        Some(space) => space.together(step, BYTES),
        None => widths(step, BYTES).find(|&width| reads_together(step, width)),
    };
    let in_turn = dims.and_then(count_in_turn);
    together.map(Each::Together).into_iter().chain(in_turn.map(Each::InTurn)).collect()
}

/// How many neighbours an invocation may compute in turn, in a space of these dimensions; none where nothing is divided, or rows are short.
fn count_in_turn(dims: &[Extent]) -> Option<i32> {
    let several = dims.iter().filter(|&&d| d != Extent::Const(1)).count() > 1;
    let is_long = dims.last()?.as_const().is_none_or(|d| d >= WORTH_A_LOOP);
    (several && is_long).then_some(IN_TURN)
}

/// Whether an element is of 32 bits, as all languages access several of, and takes few instructions. Lists of what is picked may have others: one element of
/// them is read for all neighbours.
fn is_short(step: &StepDesc) -> bool {
    let nodes = step.graph.nodes();
    let is_list = |id: NodeId| nodes.iter().any(|node| is_pick(&node.op) && node.inputs[1] == id);
    let data = step.graph.inputs().zip(&step.inputs).filter(|(node, _)| !is_list(node.id));
    let mut operands = data.map(|(_, operand)| operand).chain(&step.outputs);
    operands.all(|o| o.dtype.bits() == 32)
        && nodes.len() <= MOST_REPEATED
        && nodes.iter().all(|node| takes_few_instructions(&node.op))
}

/// Whether an op picks from a table what a list says.
fn is_pick(op: &Op) -> bool {
    matches!(op, Op::Gather { .. } | Op::GatherNd { .. })
}

fn takes_few_instructions(op: &Op) -> bool {
    use Activation as A;
    use BinaryOp as B;
    match op {
        Op::Input { .. } | Op::Cast { .. } | Op::Compare(_) | Op::Where => true,
        Op::Reshape { .. } | Op::Transpose { .. } | Op::Expand { .. } | Op::Slice { .. } => true,
        op if is_pick(op) => true,
        Op::Binary(op) => matches!(op, B::Add | B::Sub | B::Mul | B::Div | B::Max | B::Min),
        Op::Activation(op) => matches!(op, A::Relu | A::Neg | A::Abs),
        _ => false,
    }
}

/// How many groups of up to `size` neighbours along the last dimension there are in each.
fn grouped(dims: &[Extent], size: i64) -> Vec<Extent> {
    let mut counts = dims.to_vec();
    if let Some(last) = counts.last_mut() {
        *last = last.ceil_div(size);
    }
    counts
}

/// Runs `f` in one invocation for each group of up to `size` neighbours, with the index of its first one. Gives how many invocations there are.
fn for_groups(
    cx: &mut Cx<'_>,
    dims: &[Extent],
    size: i32,
    f: impl FnOnce(&mut Cx<'_>, Vec<Value>) -> Scheduled<()>,
) -> Scheduled<Extent> {
    let counts = grouped(dims, i64::from(size));
    let sizes = cx.sizes("group", &counts);
    let n = cx.product(&sizes);
    let i = cx.b.global_id();
    let inside = cx.b.lt(i, n);
    cx.if_then(inside, |cx| {
        let mut first = cx.unflatten(i, &sizes);
        if let Some(last) = first.last_mut() {
            let times = cx.b.int(size);
            *last = cx.b.mul(*last, times);
        }
        f(cx, first)
    })?;
    Ok(counts.iter().fold(Extent::Const(1), |n, &d| n * d))
}

/// Each invocation has up to `most` neighbours along the last dimension, and computes one after the other. Gives how many invocations there are.
pub(super) fn in_turn(cx: &mut Cx<'_>, dims: &[Extent], most: i32) -> Scheduled<Extent> {
    let Some(&last) = dims.last() else { return reject("neighbours of a single element") };
    let size = cx.size("row", last);
    for_groups(cx, dims, most, |cx, mut index| {
        let axis = index.len() - 1;
        let (from, most) = (index[axis], cx.b.int(most));
        let left = cx.b.sub(size, from);
        let count = cx.b.min(left, most);
        let to = cx.b.add(from, count);
        cx.for_step((from, to, 1), |cx, at| {
            index[axis] = at;
            cx.store_results(&index)
        })
    })
}

/// Each invocation has neighbours along the last dimension, of which all or none are there. Gives how many invocations there are.
pub(super) fn together(cx: &mut Cx<'_>, dims: &[Extent], width: usize) -> Scheduled<Extent> {
    for_groups(cx, dims, width as i32, |cx, first| cx.store_run(&Run::along_last(first, width)))
}

/// How many neighbours, of so many bytes, an invocation of a GPU may compute together of a body that moves elements: those of which all that is read is side
/// by side, or all of a short last dimension, as channels of an image that has few. What is read of the latter may be elsewhere, but their places are found
/// once, and their neighbours' elements are beside them.
pub(super) fn of_moved(step: &StepDesc, bytes: usize) -> Option<usize> {
    widths(step, bytes).find(|&width| reads_together(step, width)).or_else(|| of_short_rows(step, bytes))
}

fn of_short_rows(step: &StepDesc, bytes: usize) -> Option<usize> {
    let last = step.outputs.first()?.view.dims.last()?.as_const()?;
    let bits = step.outputs.iter().map(|o| o.dtype.bits()).max()?;
    let width = WIDTHS.into_iter().find(|&width| width as i64 == last)?;
    let fits = width * bits <= 8 * bytes && step.outputs.iter().all(|o| is_together(step, o, width));
    fits.then_some(width)
}

/// Whether so many neighbours along the last dimension of an operand, from a multiple of that on, are accessed together.
pub(super) fn is_together(step: &StepDesc, operand: &Operand, width: usize) -> bool {
    let Some(axis) = operand.view.dims.len().checked_sub(1) else { return false };
    let along = Along::of(step, operand, &operand.view.strides, (axis, width));
    along == Along::Together && is_whole(operand.view.dims[axis], width)
}

/// Whether so many neighbours along the last dimension of a body's results are written together, and so is read what they need.
fn reads_together(step: &StepDesc, width: usize) -> bool {
    let (graph, mut runs) = (&step.graph, vec![Vec::new(); step.graph.nodes().len()]);
    for (&id, operand) in graph.outputs.iter().zip(&step.outputs) {
        if !is_together(step, operand, width) {
            return false;
        }
        runs[id.index()].push(operand.view.dims.len() - 1);
    }
    let inputs: Vec<NodeId> = graph.inputs().map(|node| node.id).collect();
    for node in graph.nodes().iter().rev() {
        let axes = std::mem::take(&mut runs[node.id.index()]);
        if let Some(number) = inputs.iter().position(|&id| id == node.id) {
            let operand = &step.inputs[number];
            let strides = &operand.view.strides;
            let is_worth = |&axis: &usize| {
                let along = Along::of(step, operand, strides, (axis, width));
                along.is_worth_reading(step, operand, strides.get(axis))
            };
            if !axes.iter().all(is_worth) {
                return false;
            }
        }
        for (axis, i) in axes.iter().flat_map(|&axis| (0..node.inputs.len()).map(move |i| (axis, i))) {
            let of_operand = &mut runs[node.inputs[i].index()];
            match Needs::of(graph, node, i, (axis, width)) {
                Needs::Run(axis) if !of_operand.contains(&axis) => of_operand.push(axis),
                Needs::Run(_) | Needs::One => {}
                Needs::Apart => return false,
            }
        }
    }
    true
}
