//! The space of a body of elementwise ops alone, which is smaller than that of its results: neighbouring dimensions that every operand runs through without a
//! gap become one, so that most kernels are of rank 1 and one kernel serves tensors of any rank.
//!
//! ```text
//! x [8, 4, 65, 32] + y [8, 4, 65, 32], both dense           ──▶  [66560]
//! x [8, 4, 64, 32] into a part of [8, 4, 65, 32]            ──▶  [32, 2048], a row of the result being 2080 elements long
//! ```

use rlx_ir::{Extent, Node, Op};

use super::StepDesc;
use super::cx::{Arg, Cx};
use super::run::{Along, is_whole, widths};

/// The space of a body of elementwise ops alone: what can be merged of its dimensions and of every operand's strides is merged.
pub(super) struct Collapsed {
    pub dims: Vec<Extent>,
    /// Of every operand, inputs first.
    strides: Vec<(Arg, Vec<Extent>)>,
}

impl Collapsed {
    /// The space of a step; none where its body moves elements, or its results have other dimensions.
    pub fn of(step: &StepDesc) -> Option<Collapsed> {
        let is_element = |n: &Node| n.op.is_elementwise() || matches!(n.op, Op::Input { .. });
        let space = &step.outputs.first()?.view.dims;
        if !step.graph.nodes().iter().all(is_element) || step.outputs.iter().any(|o| o.view.dims != *space) {
            return None;
        }
        let inputs = (0..step.inputs.len()).map(Arg::Input);
        let args: Vec<Arg> = inputs.chain((0..step.outputs.len()).map(Arg::Output)).collect();
        let strides: Vec<Vec<Extent>> = args.iter().map(|&arg| broadcast_strides(step, arg, space)).collect();
        let (mut dims, mut merged): (Vec<Extent>, Vec<Vec<Extent>>) =
            (Vec::new(), vec![Vec::new(); args.len()]);
        for (axis, &d) in space.iter().enumerate() {
            if d == Extent::Const(1) {
                continue;
            }
            let joins = !dims.is_empty()
                && (0..args.len())
                    .all(|k| merged[k].last().is_some_and(|&outer| outer == strides[k][axis] * d));
            for (k, own) in merged.iter_mut().enumerate() {
                if joins {
                    own.pop();
                }
                own.push(strides[k][axis]);
            }
            if let (true, Some(last)) = (joins, dims.last_mut()) {
                *last = *last * d;
            } else {
                dims.push(d);
            }
        }
        Some(Collapsed { dims, strides: args.into_iter().zip(merged).collect() })
    }

    /// Reaches the operands through the space.
    pub fn place(&self, cx: &mut Cx<'_>) {
        for (arg, strides) in &self.strides {
            cx.place_by(*arg, strides);
        }
    }

    /// How many neighbours along the last dimension an invocation may have, so that results are written together, and so are inputs read of which it has more
    /// than one element, if a language can: as many as are so many bytes of the shortest elements. None where it may have no neighbours.
    pub fn together(&self, step: &StepDesc, bytes: usize) -> Option<usize> {
        let axis = self.dims.len().checked_sub(1)?;
        let fits = |&width: &usize| {
            let of = |(arg, strides): &(Arg, Vec<Extent>)| {
                let along = Along::of(step, step.operand(*arg), strides, (axis, width));
                match arg {
                    Arg::Input(_) => along.is_worth_reading(step, step.operand(*arg), strides.last()),
                    Arg::Output(_) => along == Along::Together,
                }
            };
            is_whole(self.dims[axis], width) && self.strides.iter().all(of)
        };
        widths(step, bytes).find(fits)
    }
}

/// The strides of an operand over the result's dimensions: 0 where it is repeated.
fn broadcast_strides(step: &StepDesc, arg: Arg, space: &[Extent]) -> Vec<Extent> {
    let view = &step.operand(arg).view;
    let skip = space.len() - view.dims.len();
    let stride = |(i, &to): (usize, &Extent)| match i.checked_sub(skip) {
        Some(j) => view.strides[j] * view.dims[j].broadcast_factor(to),
        None => Extent::Const(0),
    };
    space.iter().enumerate().map(stride).collect()
}
