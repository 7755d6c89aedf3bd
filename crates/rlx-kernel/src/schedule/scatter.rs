//! Scatters and updated slices: a copy, and then the updates in their order, one launch each. In place, there is no copy.
//!
//! Updates that may meet in one element are applied by one invocation, one after the other, so that the result does
//! not depend on the device: for [`Op::ScatterElements`] all updates of a row along the axis, for [`Op::ScatterNd`] the
//! same element of every slice. The work is that of the elements and the updates added up, never multiplied.

use rlx_ir::op::{ReduceOp, ScatterOp};
use rlx_ir::{Extent, Node, NodeId, Op};

use super::cx::{Arg, Cx};
use super::map::{self, Spread};
use super::reduce::Combine;
use super::{Launch, Scheduled, StepDesc, elementwise, reject};
use crate::ir::{Const, Value};

/// Invocations of a workgroup.
const WORKGROUP: u32 = 64;

/// How an update joins what is there.
struct Join {
    /// `None`: it replaces it.
    combine: Option<Combine>,
    /// What is copied, the indices, the updates.
    inputs: [NodeId; 3],
}

impl Join {
    fn new(step: &StepDesc, anchor: &Node, how: ScatterOp) -> Scheduled<Join> {
        let dtype = anchor.shape.dtype();
        let reduction = match how {
            ScatterOp::Add => Some(ReduceOp::Sum),
            ScatterOp::Mul => Some(ReduceOp::Prod),
            ScatterOp::Max => Some(ReduceOp::Max),
            ScatterOp::Min => Some(ReduceOp::Min),
            _ => None,
        };
        if how.joins_in_f32(dtype) {
            return reject(format!("updates of {dtype}, which are joined in f32"));
        }
        let combine = reduction.map(|op| Combine::new(op, dtype)).transpose()?;
        if combine.is_none() && !elementwise::computes(dtype) {
            return reject(format!("a scatter of {dtype}"));
        }
        let ids: Vec<NodeId> = step.graph.inputs().map(|n| n.id).collect();
        match (anchor.inputs[..].try_into(), ids == anchor.inputs) {
            (Ok(inputs), true) => Ok(Join { combine, inputs }),
            _ => reject("a scatter of computed values"),
        }
    }

    /// Applies one update to the element `to` of the result.
    fn apply(&self, cx: &mut Cx<'_>, to: &[Value], update: Value) {
        let result = Arg::Output(0);
        let value = match self.combine {
            None => update,
            Some(combine) => {
                let now = cx.load(result, to);
                let v = combine.join(&mut cx.b, now, update);
                elementwise::narrowed(&mut cx.b, v, combine.dtype)
            }
        };
        cx.store(result, to, value);
    }
}

/// Makes the kernels of a scatter, or of an [`Op::UpdateSlice`].
///
/// # Errors
/// An element type without arithmetic, rows of indices of unknown length, or operands that are computed.
pub fn schedule(step: &StepDesc, anchor: &Node) -> Scheduled<Vec<Launch>> {
    let updates = match anchor.op {
        Op::ScatterElements { axis, reduction } => {
            elements(step, axis, &Join::new(step, anchor, reduction)?)?
        }
        Op::ScatterNd { reduction } => slices(step, &Join::new(step, anchor, reduction)?)?,
        Op::UpdateSlice { axis } => range(step, anchor, axis)?,
        ref op => return reject(format!("{} is no scatter", op.kind())),
    };
    if step.inputs[0].is_same_as(&step.outputs[0]) {
        return Ok(vec![updates]);
    }
    let copy = StepDesc::copy(vec![step.inputs[0].clone()], step.outputs.clone())?;
    let mut launches = map::schedule(&copy, Spread::default())?;
    launches.push(updates);
    Ok(launches)
}

/// One invocation for each row of updates along the axis.
fn elements(step: &StepDesc, axis: usize, join: &Join) -> Scheduled<Launch> {
    let [x, indices, updates] = join.inputs;
    let mut cx = Cx::new("scatter.elements", WORKGROUP, step);
    let space: Vec<Extent> = step.graph.shape(indices).dims().iter().map(|d| d.extent()).collect();
    let groups = cx.for_rows(&space, axis, |cx, row, size| {
        // Updates stand at their own positions in all dimensions but the axis.
        let mut within = cx.b.constant(Const::bool(true));
        for (i, &at) in row.iter().enumerate().filter(|&(i, _)| i != axis) {
            let size = cx.axis_size(x, i);
            let ok = cx.b.lt(at, size);
            within = cx.b.and(within, ok);
        }
        cx.if_then(within, |cx| {
            cx.for_each(size, |cx, i| {
                let mut at = row.to_vec();
                at[axis] = i;
                let (place, inside) = cx.resolved(indices, &at, x, axis)?;
                cx.if_then(inside, |cx| {
                    let update = cx.element(updates, &at)?;
                    let mut to = at.clone();
                    to[axis] = place;
                    join.apply(cx, &to, update);
                    Ok(())
                })
            })
        })
    })?;
    Ok(cx.finish(groups))
}

/// One invocation for each element of a slice.
fn slices(step: &StepDesc, join: &Join) -> Scheduled<Launch> {
    let [x, indices, updates] = join.inputs;
    let mut cx = Cx::new("scatter.slices", WORKGROUP, step);
    let count = cx.row_length(indices)?;
    let lead = step.graph.shape(indices).rank() - 1;
    let rows: Vec<Value> = (0..lead).map(|i| cx.axis_size(indices, i)).collect();
    let slice: Vec<Extent> = step.graph.shape(x).dims()[count..].iter().map(|d| d.extent()).collect();
    let dims = cx.sizes("dim", &slice);
    let n = cx.product(&dims);
    let i = cx.b.global_id();
    let inside = cx.b.lt(i, n);
    cx.if_then(inside, |cx| {
        let within = cx.unflatten(i, &dims);
        cx.for_space(&rows, &mut |cx, row| {
            let (mut to, mut valid) = (Vec::new(), cx.b.constant(Const::bool(true)));
            for c in 0..count {
                let mut at = row.to_vec();
                at.push(cx.b.int(c as i32));
                let (place, ok) = cx.resolved(indices, &at, x, c)?;
                to.push(place);
                valid = cx.b.and(valid, ok);
            }
            to.extend_from_slice(&within);
            cx.if_then(valid, |cx| {
                let at = [row, &within[..]].concat();
                let update = cx.element(updates, &at)?;
                join.apply(cx, &to, update);
                Ok(())
            })
        })
    })?;
    let elements = slice.iter().fold(Extent::Const(1), |n, &d| n * d);
    Ok(cx.finish(elements.ceil_div(i64::from(WORKGROUP))))
}

/// One invocation for each element of an update that goes to a range of the axis.
fn range(step: &StepDesc, anchor: &Node, axis: usize) -> Scheduled<Launch> {
    let [update, starts, x] = [anchor.inputs[1], anchor.inputs[2], anchor.inputs[0]];
    if !elementwise::computes(anchor.shape.dtype()) {
        return reject(format!("an update of {}", anchor.shape.dtype()));
    }
    let ids: Vec<NodeId> = step.graph.inputs().map(|n| n.id).collect();
    if ids != anchor.inputs {
        return reject("an update of computed values");
    }
    let mut cx = Cx::new("update.slice", WORKGROUP, step);
    let space: Vec<Extent> = step.graph.shape(update).dims().iter().map(|d| d.extent()).collect();
    let each = step.graph.shape(starts).rank() == 1;
    let dims = cx.sizes("dim", &space);
    let n = cx.product(&dims);
    let i = cx.b.global_id();
    let inside = cx.b.lt(i, n);
    cx.if_then(inside, |cx| {
        let at = cx.unflatten(i, &dims);
        let start = if each { vec![at[0]] } else { Vec::new() };
        let (place, fits) = cx.start(starts, &start, x, Some(dims[axis]), axis)?;
        cx.if_then(fits, |cx| {
            let value = cx.element(update, &at)?;
            let mut to = at.clone();
            to[axis] = cx.b.add(place, at[axis]);
            cx.store(Arg::Output(0), &to, value);
            Ok(())
        })
    })?;
    let elements = space.iter().fold(Extent::Const(1), |n, &d| n * d);
    Ok(cx.finish(elements.ceil_div(i64::from(WORKGROUP))))
}
