//! Runs: elements of a body that are computed together, being neighbours along a dimension of a node, and where they are in what the node reads.
//!
//! ```text
//! Add(Gather(table [30522, 384], list [128]), bias [384]), four neighbours at (5, 8 ..)
//!
//!     table: neighbours at (list[5], 8 ..)     list: one for all of them, at (5)     bias: neighbours at (8 ..)
//! ```
//!
//! A run begins at a multiple of how many elements it has, and all of them are there. Where that holds of what an operand is asked for as well, the operand
//! is asked for a run; otherwise each element is computed by itself. So the index of a run is computed once, and inputs in which neighbours are side by side
//! are read by one access.

use std::ops::Range;

use rlx_ir::lir::Operand;
use rlx_ir::op::PadMode;
use rlx_ir::{Extent, Graph, Node, NodeId, Op};

use super::StepDesc;
use crate::ir::{Value, WIDTHS, WideAccess};

/// So many neighbours along a dimension, or one element.
#[derive(Debug, Clone)]
pub(super) struct Run {
    /// The index of the first.
    pub first: Vec<Value>,
    pub axis: usize,
    pub width: usize,
}

impl Run {
    pub fn one(index: &[Value]) -> Run {
        Run { first: index.to_vec(), axis: 0, width: 1 }
    }

    /// So many from `first` on, along the last dimension.
    pub fn along_last(first: Vec<Value>, width: usize) -> Run {
        let axis = first.len().saturating_sub(1);
        Run { first, axis, width }
    }
}

/// What a run is of an operand of the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Along {
    /// Neighbours that are accessed together.
    Together,
    /// One element.
    Same,
    Apart,
}

impl Along {
    /// Of so many neighbours along a dimension of a space in which the operand has these strides.
    pub fn of(
        step: &StepDesc,
        operand: &Operand,
        strides: &[Extent],
        (axis, width): (usize, usize),
    ) -> Along {
        let others = strides.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, stride)| stride);
        let begins = std::iter::once(&operand.view.offset).chain(others).all(|&at| is_whole(at, width));
        match strides.get(axis) {
            None | Some(Extent::Const(0)) => Along::Same,
            Some(Extent::Const(1)) if begins && WideAccess::is_known(step.stored(operand.dtype)) => {
                Along::Together
            }
            _ => Along::Apart,
        }
    }

    /// Whether an input of which a run is so, with this stride along it, leaves a GPU's invocation a run: it is read together, or one element of it for all.
    /// Elements that no language reads together are read one by one where they are side by side.
    pub fn is_worth_reading(self, step: &StepDesc, operand: &Operand, stride: Option<&Extent>) -> bool {
        let odd = !WideAccess::is_known(step.stored(operand.dtype));
        self != Along::Apart || odd && stride == Some(&Extent::Const(1))
    }
}

/// Whether a number is a multiple of another one, whatever is open of it.
pub(super) fn is_whole(number: Extent, of: usize) -> bool {
    number.modulo(of as i64) == Extent::Const(0)
}

/// The most neighbours first: as many as are so many bytes of the shortest elements of a step, and fewer.
pub(super) fn widths(step: &StepDesc, bytes: usize) -> impl Iterator<Item = usize> {
    let halves = step.inputs.iter().chain(&step.outputs).any(|o| o.dtype.bits() == 16);
    let most = bytes / if halves { 2 } else { 4 };
    WIDTHS.into_iter().rev().filter(move |width| *width <= most)
}

/// Where the elements of an operand are that a run of a node's results needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// A run along this dimension.
    Run(usize),
    /// One element, for all of them.
    One,
    /// Elements that are anywhere.
    Apart,
}

impl Needs {
    /// Of operand number `i` of a node, for so many neighbours along a dimension of its results.
    pub fn of(graph: &Graph, node: &Node, i: usize, (axis, width): (usize, usize)) -> Needs {
        let dim = |id: NodeId, axis: usize| graph.shape(id).dim(axis).extent();
        let rank = |id: NodeId| graph.shape(id).rank();
        let source = node.inputs[i];
        let own = |holds: bool| if holds { Needs::Run(axis) } else { Needs::Apart };
        match &node.op {
            op if op.is_elementwise() => broadcast(graph, node.id, source, axis),
            Op::Expand { .. } => broadcast(graph, node.id, source, axis),
            Op::Reshape { .. } => reshaped(graph, node.id, source, (axis, width)),
            Op::Transpose { perm } => Needs::Run(perm[axis]),
            Op::Slice { starts, steps, .. } => own(steps[axis] == 1 && is_whole(starts[axis], width)),
            Op::Tile { .. } if dim(source, axis) == Extent::Const(1) => Needs::One,
            Op::Tile { .. } => own(is_whole(dim(source, axis), width)),
            Op::Pad { .. } if i > 0 => Needs::One,
            Op::Pad { before, mode: PadMode::Constant, .. } => {
                own(is_whole(before[axis], width) && is_whole(dim(source, axis), width))
            }
            Op::Pad { before, .. } => {
                own(before[axis] == Extent::Const(0) && dim(source, axis) == dim(node.id, axis))
            }
            Op::Concat { axis: joined } => {
                own(*joined != axis || node.inputs.iter().all(|&part| is_whole(dim(part, axis), width)))
            }
            Op::Trilu { .. } => Needs::Run(axis),
            Op::Gather { axis: of } => match axis.checked_sub(*of) {
                None if i == 0 => Needs::Run(axis),
                Some(behind) if behind >= rank(node.inputs[1]) && i == 0 => {
                    Needs::Run(axis + 1 - rank(node.inputs[1]))
                }
                Some(listed) if listed < rank(node.inputs[1]) => Needs::Apart,
                _ => Needs::One,
            },
            Op::GatherNd { batch_dims } => {
                let dims = graph.shape(node.inputs[1]).dims();
                let count = dims.last().and_then(|d| d.as_static());
                match (axis.checked_sub(dims.len().saturating_sub(1)), count) {
                    (Some(within), Some(count)) if i == 0 => Needs::Run(batch_dims + count + within),
                    (Some(_), Some(_)) => Needs::One,
                    _ => Needs::Apart,
                }
            }
            _ => Needs::Apart,
        }
    }
}

/// What neighbours need of an operand that broadcasts to a node.
fn broadcast(graph: &Graph, to: NodeId, from: NodeId, axis: usize) -> Needs {
    let (to, from) = (graph.shape(to), graph.shape(from));
    let Some(own) = axis.checked_sub(to.rank() - from.rank()) else { return Needs::One };
    match from.dim(own).extent().broadcast_factor(to.dim(axis).extent()) {
        Extent::Const(0) => Needs::One,
        Extent::Const(_) => Needs::Run(own),
        _ => Needs::Apart,
    }
}

/// What neighbours need of an operand that is reshaped: those in the last of dimensions that are split or joined are neighbours in the last dimension before,
/// if both have whole runs.
fn reshaped(graph: &Graph, to: NodeId, from: NodeId, (axis, width): (usize, usize)) -> Needs {
    let extents = |id: NodeId| -> Vec<Extent> { graph.shape(id).dims().iter().map(|d| d.extent()).collect() };
    let (to, from) = (extents(to), extents(from));
    let group = dim_groups(&to, &from).into_iter().find(|(of_to, _)| of_to.contains(&axis));
    let Some((of_to, of_from)) = group else { return Needs::Apart };
    if (of_to.len(), of_from.len()) == (1, 1) {
        return Needs::Run(of_from.start);
    }
    let is_one = |d: &Extent| *d == Extent::Const(1);
    let is_last = is_whole(to[axis], width) && to[axis + 1..of_to.end].iter().all(is_one);
    let last = of_from.rev().find(|&axis| !is_one(&from[axis]));
    match last.filter(|&axis| is_last && is_whole(from[axis], width)) {
        Some(axis) => Needs::Run(axis),
        None => Needs::Apart,
    }
}

/// The dimensions of two shapes of as many elements, in groups that have as many in both, each as short as can be.
pub(super) fn dim_groups(to: &[Extent], from: &[Extent]) -> Vec<(Range<usize>, Range<usize>)> {
    let before = |dims: &[Extent]| -> Vec<Extent> {
        let next = |n: &mut Extent, &d: &Extent| {
            *n = *n * d;
            Some(*n)
        };
        dims.iter().scan(Extent::Const(1), next).collect()
    };
    let (of_to, of_from) = (before(to), before(from));
    let (mut groups, mut start) = (Vec::new(), (0, 0));
    for (i, n) in of_to.iter().enumerate() {
        let end = match of_from[start.1..].iter().position(|m| m == n) {
            _ if i + 1 == to.len() => from.len(),
            Some(j) => start.1 + j + 1,
            None => continue,
        };
        groups.push((start.0..i + 1, start.1..end));
        start = (i + 1, end);
    }
    if start != (to.len(), from.len()) {
        groups.push((start.0..to.len(), start.1..from.len()));
    }
    groups
}
