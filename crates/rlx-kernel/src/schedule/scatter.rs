//! Scatters and updated slices: a copy, and then the updates in their order, one launch each. In place, there is no copy.
//!
//! Updates that meet in one element are applied by one invocation, one after the other, so that the result does
//! not depend on the device. Who does so is looked for among some thousand updates (`schedule/scatter_many.rs`). Of few, of too many, and where nobody knows
//! how many they are, it is the invocation of those that may meet: for [`Op::ScatterElements`] all updates of a row along the axis, for
//! [`Op::ScatterNd`] the same element of every slice. Then the work is that of the elements and the updates added up, never multiplied.

use rlx_ir::op::{ReduceOp, ScatterOp};
use rlx_ir::{Dim, Extent, Node, NodeId, Op};

use super::cx::{Arg, Cx};
use super::map::{self, Spread};
use super::reduce::Combine;
use super::scatter_many::{self, Updates};
use super::{Launch, Scheduled, StepDesc, elementwise, reject};
use crate::ir::{Const, Value};

/// Invocations of a workgroup.
const WORKGROUP: u32 = 64;

/// How an update joins what is there.
pub(super) struct Join {
    /// `None`: it replaces it.
    pub combine: Option<Combine>,
    /// What is copied, the indices, the updates.
    pub inputs: [NodeId; 3],
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
            let join = Join::new(step, anchor, reduction)?;
            match ElementUpdates::of(step, axis, &join) {
                Some(all) => scatter_many::schedule("scatter.elements.many", step, &join, &all)?,
                None => None,
            }
            .map_or_else(|| Ok(vec![elements(step, axis, &join)?]), Ok)?
        }
        Op::ScatterNd { reduction } => {
            let join = Join::new(step, anchor, reduction)?;
            let all = SliceUpdates::of(step, &join)?;
            scatter_many::schedule("scatter.slices.many", step, &join, &all)?
                .map_or_else(|| Ok(vec![slices(step, &join, &all)?]), Ok)?
        }
        Op::UpdateSlice { axis } => vec![range(step, anchor, axis)?],
        ref op => return reject(format!("{} is no scatter", op.kind())),
    };
    if step.inputs[0].is_same_as(&step.outputs[0]) {
        return Ok(updates);
    }
    let copy = StepDesc::copy(vec![step.inputs[0].clone()], step.outputs.clone())?;
    let mut launches = map::schedule(&copy, Spread::default())?;
    launches.extend(updates);
    Ok(launches)
}

/// The updates of an [`Op::ScatterElements`] whose sizes are known: those of a row along the axis are a group.
struct ElementUpdates {
    axis: usize,
    inputs: [NodeId; 3],
    groups: Vec<Extent>,
    rows: [Extent; 1],
}

impl ElementUpdates {
    fn of(step: &StepDesc, axis: usize, join: &Join) -> Option<Self> {
        // Where sizes are known, the indices are within the result in all other dimensions.
        let is_known = |id: NodeId| step.graph.shape(id).static_dims().is_some();
        let [x, indices, _] = join.inputs;
        let dims = step.graph.shape(indices).dims();
        let mut groups: Vec<Extent> = dims.iter().map(|d| d.extent()).collect();
        let rows = [std::mem::replace(&mut groups[axis], Extent::Const(1))];
        (is_known(x) && is_known(indices)).then_some(ElementUpdates {
            axis,
            inputs: join.inputs,
            groups,
            rows,
        })
    }

    fn along(&self, group: &[Value], place: Value) -> Vec<Value> {
        let mut index = group.to_vec();
        index[self.axis] = place;
        index
    }
}

impl Updates for ElementUpdates {
    fn groups(&self) -> &[Extent] {
        &self.groups
    }

    fn rows(&self) -> &[Extent] {
        &self.rows
    }

    fn slice(&self) -> &[Extent] {
        &[]
    }

    fn place(&self, cx: &mut Cx<'_>, group: &[Value], row: &[Value]) -> Scheduled<(Vec<Value>, Value)> {
        let [x, indices, _] = self.inputs;
        let (place, inside) = cx.resolved(indices, &self.along(group, row[0]), x, self.axis)?;
        Ok((vec![place], inside))
    }

    fn to(&self, group: &[Value], place: &[Value], _: &[Value]) -> Vec<Value> {
        self.along(group, place[0])
    }

    fn from(&self, group: &[Value], row: &[Value], _: &[Value]) -> Vec<Value> {
        self.along(group, row[0])
    }
}

/// The updates of an [`Op::ScatterNd`], all of which may meet.
struct SliceUpdates {
    inputs: [NodeId; 3],
    /// How many dimensions an index addresses.
    count: usize,
    rows: Vec<Extent>,
    slice: Vec<Extent>,
}

impl SliceUpdates {
    fn of(step: &StepDesc, join: &Join) -> Scheduled<Self> {
        let [x, indices, _] = join.inputs;
        let (x, indices) = (step.graph.shape(x).dims(), step.graph.shape(indices).dims());
        let Some((last, rows)) = indices.split_last() else {
            return reject("indices without a dimension");
        };
        let Some(count) = last.as_static() else {
            return reject("rows of indices of unknown length");
        };
        let extents = |dims: &[Dim]| dims.iter().map(|d| d.extent()).collect();
        Ok(SliceUpdates { inputs: join.inputs, count, rows: extents(rows), slice: extents(&x[count..]) })
    }
}

impl Updates for SliceUpdates {
    fn groups(&self) -> &[Extent] {
        &[]
    }

    fn rows(&self) -> &[Extent] {
        &self.rows
    }

    fn slice(&self) -> &[Extent] {
        &self.slice
    }

    fn place(&self, cx: &mut Cx<'_>, _: &[Value], row: &[Value]) -> Scheduled<(Vec<Value>, Value)> {
        let [x, indices, _] = self.inputs;
        let (mut place, mut inside) = (Vec::new(), cx.b.constant(Const::bool(true)));
        for c in 0..self.count {
            let mut at = row.to_vec();
            at.push(cx.b.int(c as i32));
            let (along, ok) = cx.resolved(indices, &at, x, c)?;
            place.push(along);
            inside = cx.b.and(inside, ok);
        }
        Ok((place, inside))
    }

    fn to(&self, _: &[Value], place: &[Value], at: &[Value]) -> Vec<Value> {
        [place, at].concat()
    }

    fn from(&self, _: &[Value], row: &[Value], at: &[Value]) -> Vec<Value> {
        [row, at].concat()
    }
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
fn slices(step: &StepDesc, join: &Join, all: &SliceUpdates) -> Scheduled<Launch> {
    let [_, indices, updates] = join.inputs;
    let mut cx = Cx::new("scatter.slices", WORKGROUP, step);
    let lead = step.graph.shape(indices).rank() - 1;
    let rows: Vec<Value> = (0..lead).map(|i| cx.axis_size(indices, i)).collect();
    let dims = cx.sizes("dim", &all.slice);
    let n = cx.product(&dims);
    let i = cx.b.global_id();
    let inside = cx.b.lt(i, n);
    cx.if_then(inside, |cx| {
        let within = cx.unflatten(i, &dims);
        cx.for_space(&rows, &mut |cx, row| {
            let (place, valid) = all.place(cx, &[], row)?;
            cx.if_then(valid, |cx| {
                let update = cx.element(updates, &all.from(&[], row, &within))?;
                join.apply(cx, &all.to(&[], &place, &within), update);
                Ok(())
            })
        })
    })?;
    let elements = all.slice.iter().fold(Extent::Const(1), |n, &d| n * d);
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
