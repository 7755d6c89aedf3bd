//! Scatters of many updates: a workgroup for each update looks for all that go to the same place.
//!
//! Its invocations look through runs of neighbouring updates, so what they find is a list in order. If the workgroup's own update is the first of the list, it
//! applies all of them, in their order, and otherwise another workgroup does. So a result has the bits that applying one update after the other
//! gives, while only updates of one place wait for each other.
//!
//! ```text
//! places of updates     3  5  3  4  3        update 0: 0, 2, 4, the first is its own ──▶ x[3] + u[0] + u[2] + u[4]
//!                                            update 2: 0, 2, 4, another's            ──▶ nothing
//! ```
//!
//! A launch looks through [`MOST`] updates: more come in several, one after the other.

use rlx_ir::op::ReduceOp;
use rlx_ir::{DType, Extent};

use super::cx::{Arg, Cx};
use super::reduce::{Combine, WORKGROUP};
use super::scan::in_front;
use super::scatter::Join;
use super::{Launch, Scheduled, StepDesc, elementwise};
use crate::ir::{Inst, Shared, Ty, Value};

/// The most updates among which a launch looks: their list takes half of the workgroup memory that every device has.
const MOST: i64 = 2048;

/// Of so few, one invocation applies one after the other.
const FEW: i64 = 32;

/// The most updates of all groups together: beyond it, groups are invocations enough.
const MOST_UPDATES: i64 = 1 << 16;

/// Updates in groups, of which those of one group may meet in a place.
pub(super) trait Updates {
    /// The dimensions that number the groups.
    fn groups(&self) -> &[Extent];

    /// The dimensions that number the updates of a group.
    fn rows(&self) -> &[Extent];

    /// The dimensions of an update.
    fn slice(&self) -> &[Extent];

    /// The place that an update of a group goes to, and whether there is one.
    fn place(&self, cx: &mut Cx<'_>, group: &[Value], row: &[Value]) -> Scheduled<(Vec<Value>, Value)>;

    /// The index of an element of that place.
    fn to(&self, group: &[Value], place: &[Value], at: &[Value]) -> Vec<Value>;

    /// The index of an element of the update.
    fn from(&self, group: &[Value], row: &[Value], at: &[Value]) -> Vec<Value>;
}

fn product(dims: &[Extent]) -> Extent {
    dims.iter().fold(Extent::Const(1), |n, &d| n * d)
}

/// The launches by a workgroup for each update; none where there are too few updates of a group, too many of all, or nobody knows how many.
pub(super) fn schedule(
    name: &str,
    step: &StepDesc,
    join: &Join,
    updates: &impl Updates,
) -> Scheduled<Option<Vec<Launch>>> {
    let (groups, count) = (product(updates.groups()), product(updates.rows()));
    let (Some(count), Some(groups)) = (count.as_const(), groups.as_const()) else {
        return Ok(None);
    };
    if count <= FEW || count.saturating_mul(groups) > MOST_UPDATES {
        return Ok(None);
    }
    let starts = (0..count).step_by(MOST as usize);
    let launches = starts.map(|start| launch(name, step, join, updates, (start, MOST.min(count - start))));
    launches.collect::<Scheduled<Vec<Launch>>>().map(Some)
}

/// The workgroup's own update, and those of its group that go to the same place.
struct Met<'u, U> {
    updates: &'u U,
    group: Vec<Value>,
    place: Vec<Value>,
    /// The sizes of the dimensions that number updates.
    rows: Vec<Value>,
    list: Shared,
    count: Value,
}

fn launch<U: Updates>(
    name: &str,
    step: &StepDesc,
    join: &Join,
    updates: &U,
    (start, count): (i64, i64),
) -> Scheduled<Launch> {
    let mut cx = Cx::new(name, WORKGROUP, step);
    let (dims, rows) = (cx.sizes("group", updates.groups()), cx.sizes("row", updates.rows()));
    let (start, len) = (cx.size("start", Extent::Const(start)), cx.size("count", Extent::Const(count)));
    let (groups, slice) = (cx.product(&dims), cx.sizes("slice", updates.slice()));
    let all = cx.b.mul(groups, len);
    let (workgroup, lane) = (cx.b.inst(Inst::GroupId), cx.b.inst(Inst::LocalId));
    let inside = cx.b.lt(workgroup, all);
    cx.if_then(inside, |cx| {
        let (group, own) = cx.b.div_rem(workgroup, len);
        let group = cx.unflatten(group, &dims);
        let own = cx.b.add(start, own);
        let met = Met::found(cx, updates, (group, rows, own), (start, len), lane)?;
        let (zero, none) = (cx.b.int(0), cx.b.int(-1));
        let any = cx.b.gt(met.count, zero);
        let first = cx.value_if(any, none, |cx| Ok(cx.b.load_shared(met.list, zero)))?;
        let applies = cx.b.eq(first, own);
        cx.if_then(applies, |cx| {
            let elements = cx.product(&slice);
            cx.for_step((lane, elements, WORKGROUP as i32), |cx, i| {
                let at = cx.unflatten(i, &slice);
                met.apply(cx, join, &at)
            })
        })
    })?;
    Ok(cx.finish(product(updates.groups()) * count))
}

/// The neighbouring updates that an invocation looks through, of `len` from the first on.
fn run_of(cx: &mut Cx<'_>, lane: Value, (start, len): (Value, Value)) -> (Value, Value) {
    let (lanes, most) = (cx.b.int(WORKGROUP as i32), cx.b.int(WORKGROUP as i32 - 1));
    let rounded = cx.b.add(len, most);
    // Odd, so that invocations whose updates all meet list them in different banks.
    let (run, one) = (cx.b.div(rounded, lanes), cx.b.int(1));
    let run = cx.b.or(run, one);
    let (before, end) = (cx.b.mul(lane, run), cx.b.add(start, len));
    let from = cx.b.add(start, before);
    let to = cx.b.add(from, run);
    (from, cx.b.min(to, end))
}

impl<'u, U: Updates> Met<'u, U> {
    /// Looks through `len` updates from the first on.
    fn found(
        cx: &mut Cx<'_>,
        updates: &'u U,
        (group, rows, own): (Vec<Value>, Vec<Value>, Value),
        (start, len): (Value, Value),
        lane: Value,
    ) -> Scheduled<Self> {
        let parts = cx.b.shared(Ty::I32, WORKGROUP);
        let (list, counts) = (cx.b.shared(Ty::I32, MOST as u32), cx.b.shared(Ty::I32, 1));
        let own = cx.unflatten(own, &rows);
        let (place, is_there) = updates.place(cx, &group, &own)?;
        let (zero, one) = (cx.b.int(0), cx.b.int(1));
        let (from, to) = run_of(cx, lane, (start, len));
        let is_met = |cx: &mut Cx<'_>, other: Value| {
            let row = cx.unflatten(other, &rows);
            let (goes_to, mut met) = updates.place(cx, &group, &row)?;
            for (&x, &y) in goes_to.iter().zip(&place) {
                let same = cx.b.eq(x, y);
                met = cx.b.and(met, same);
            }
            Ok(cx.b.and(met, is_there))
        };
        let count = cx.b.var(zero);
        cx.for_step((from, to, 1), |cx, other| {
            let met = is_met(cx, other)?;
            let (now, more) = (cx.b.get(count), cx.b.convert(Ty::I32, met));
            let next = cx.b.add(now, more);
            cx.b.set(count, next);
            Ok(())
        })?;
        let own_count = cx.b.get(count);
        let sum = Combine::new(ReduceOp::Sum, DType::I32)?;
        let before = in_front(&mut cx.b, sum, parts, (lane, WORKGROUP), own_count);
        let next = cx.b.var(before);
        cx.for_step((from, to, 1), |cx, other| {
            let met = is_met(cx, other)?;
            cx.if_then(met, |cx| {
                let at = cx.b.get(next);
                cx.b.store_shared(list, at, other);
                let behind = cx.b.add(at, one);
                cx.b.set(next, behind);
                Ok(())
            })
        })?;
        let most = cx.b.int(WORKGROUP as i32 - 1);
        let is_last = cx.b.eq(lane, most);
        cx.if_then(is_last, |cx| {
            let all = cx.b.get(next);
            cx.b.store_shared(counts, zero, all);
            Ok(())
        })?;
        cx.b.barrier();
        let count = cx.b.load_shared(counts, zero);
        Ok(Met { updates, group, place, rows, list, count })
    }

    /// An element of update number `i` of the list.
    fn update(&self, cx: &mut Cx<'_>, join: &Join, i: Value, at: &[Value]) -> Scheduled<Value> {
        let number = cx.b.load_shared(self.list, i);
        let row = cx.unflatten(number, &self.rows);
        let from = self.updates.from(&self.group, &row, at);
        cx.element(join.inputs[2], &from)
    }

    /// Applies what was found to an element of the place.
    fn apply(&self, cx: &mut Cx<'_>, join: &Join, at: &[Value]) -> Scheduled<()> {
        let to = self.updates.to(&self.group, &self.place, at);
        let Some(combine) = join.combine else {
            let one = cx.b.int(1);
            let last = cx.b.sub(self.count, one);
            let v = self.update(cx, join, last, at)?;
            cx.store(Arg::Output(0), &to, v);
            return Ok(());
        };
        let now = cx.load(Arg::Output(0), &to);
        let joined = cx.b.var(now);
        cx.for_each(self.count, |cx, i| {
            let v = self.update(cx, join, i, at)?;
            let now = cx.b.get(joined);
            let v = combine.join(&mut cx.b, now, v);
            let v = elementwise::narrowed(&mut cx.b, v, combine.dtype);
            cx.b.set(joined, v);
            Ok(())
        })?;
        let v = cx.b.get(joined);
        cx.store(Arg::Output(0), &to, v);
        Ok(())
    }
}
