//! Scan: running reductions, where each element of a row is joined with all in front of it.
//!
//! Short rows are done by one invocation each. Other rows are done by a workgroup each, whose invocations have runs of neighbours: each reduces its run, a
//! scan of these totals through workgroup memory says what is in front of each run, and each goes over its run again with that. Which of the two is decided
//! by the row's length alone, and both have a fixed order.
//!
//! ```text
//! invocation 0     x0  x1  x2     x0 + x1 + x2   ┐          0             goes over x0  x1  x2
//! invocation 1     x3  x4  x5     x3 + x4 + x5   ├ scan ──▶ total of 0    goes over x3  x4  x5
//! invocation 2     x6  x7         x6 + x7        ┘          totals of 0–1 goes over x6  x7
//! ```
//!
//! Rows of more than some thousand elements come in parts: see `schedule/long_rows.rs`.

use rlx_ir::{Extent, Node, Op};

use super::cx::Cx;
use super::reduce::{Combine, SHORT_ROW, WORKGROUP};
use super::{Launch, Scheduled, StepDesc, reject};
use crate::build::Builder;
use crate::ir::{Inst, Shared, Value, Var};

/// A running reduction as its kernels see it.
struct Running<'a> {
    anchor: &'a Node,
    combine: Combine,
    axis: usize,
    exclusive: bool,
    reverse: bool,
}

/// Makes the kernel of [`Op::Cumulative`].
///
/// # Errors
/// An element type without arithmetic, or an epilogue of other dimensions.
pub fn schedule(step: &StepDesc, anchor: &Node) -> Scheduled<Vec<Launch>> {
    let Op::Cumulative { op, axis, exclusive, reverse } = anchor.op else {
        return reject("not a running reduction");
    };
    let combine = Combine::new(op, anchor.shape.dtype())?;
    let running = Running { anchor, combine, axis, exclusive, reverse };
    let mut cx = Cx::new("running", WORKGROUP, step);
    let space = cx.result_space()?;
    let length = anchor.shape.dim(axis).extent().as_const();
    if length.is_none_or(|n| n > SHORT_ROW) {
        return running.by_workgroup(cx, &space).map(|launch| vec![launch]);
    }
    let groups = cx.for_rows(&space, axis, |cx, row, size| {
        let identity = combine.identity(&mut cx.b);
        let total = cx.b.var(identity);
        let zero = cx.b.int(0);
        running.over(cx, row, size, (zero, size), total)
    })?;
    Ok(vec![cx.finish(groups)])
}

impl Running<'_> {
    /// The index of element number `i` in the order of the reduction.
    fn index(&self, cx: &mut Cx<'_>, row: &[Value], size: Value, i: Value) -> Vec<Value> {
        let mut index = row.to_vec();
        index[self.axis] = i;
        if self.reverse {
            let one = cx.b.int(1);
            let last = cx.b.sub(size, one);
            index[self.axis] = cx.b.sub(last, i);
        }
        index
    }

    /// Stores the results of elements `from` to before `to`, in front of which is `total`.
    fn over(
        &self,
        cx: &mut Cx<'_>,
        row: &[Value],
        size: Value,
        (from, to): (Value, Value),
        total: Var,
    ) -> Scheduled<()> {
        let one = cx.b.int(1);
        cx.for_step((from, to, 1), |cx, i| {
            let index = self.index(cx, row, size, i);
            let v = cx.element(self.anchor.inputs[0], &index)?;
            let before = cx.b.get(total);
            self.combine.accumulate(&mut cx.b, total, v);
            let after = cx.b.get(total);
            let v = self.combine.finish(&mut cx.b, if self.exclusive { before } else { after }, one);
            cx.bind(self.anchor.id, &index, v);
            cx.store_results(&index)
        })
    }

    fn by_workgroup(&self, mut cx: Cx<'_>, space: &[Extent]) -> Scheduled<Launch> {
        let dims = cx.sizes("dim", space);
        let (mut others, size) = (dims.clone(), dims[self.axis]);
        others[self.axis] = cx.b.int(1);
        let rows = cx.product(&others);
        let parts = cx.b.shared(self.combine.ty, WORKGROUP);
        let (group, lane) = (cx.b.inst(Inst::GroupId), cx.b.inst(Inst::LocalId));
        let inside = cx.b.lt(group, rows);
        cx.if_then(inside, |cx| {
            let row = cx.unflatten(group, &others);
            let (all, most) = (cx.b.int(WORKGROUP as i32), cx.b.int(WORKGROUP as i32 - 1));
            let rounded = cx.b.add(size, most);
            let run = cx.b.div(rounded, all);
            let from = cx.b.mul(lane, run);
            let to = cx.b.add(from, run);
            let to = cx.b.min(to, size);
            let identity = self.combine.identity(&mut cx.b);
            let total = cx.b.var(identity);
            cx.for_step((from, to, 1), |cx, i| {
                let index = self.index(cx, &row, size, i);
                let v = cx.element(self.anchor.inputs[0], &index)?;
                self.combine.accumulate(&mut cx.b, total, v);
                Ok(())
            })?;
            let own = cx.b.get(total);
            let before = in_front(&mut cx.b, self.combine, parts, (lane, WORKGROUP), own);
            cx.b.set(total, before);
            self.over(cx, &row, size, (from, to), total)
        })?;
        let kept = (0..space.len()).filter(|&i| i != self.axis);
        Ok(cx.finish(kept.fold(Extent::Const(1), |n, i| n * space[i])))
    }
}

/// What the totals of the invocations in front of this one are together; it is number `lane` of so many.
pub(super) fn in_front(
    b: &mut Builder,
    combine: Combine,
    parts: Shared,
    (lane, lanes): (Value, u32),
    own: Value,
) -> Value {
    b.store_shared(parts, lane, own);
    b.barrier();
    let joined = b.var(own);
    let mut away = 1;
    // After each round, an invocation has the totals of twice as many up to its own.
    while away < lanes as i32 {
        let distance = b.int(away);
        let has = b.ge(lane, distance);
        b.if_then(has, |b| {
            let from = b.sub(lane, distance);
            let (other, now) = (b.load_shared(parts, from), b.get(joined));
            let both = combine.join(b, other, now);
            b.set(joined, both);
        });
        b.barrier();
        let now = b.get(joined);
        b.store_shared(parts, lane, now);
        b.barrier();
        away *= 2;
    }
    let (zero, one) = (b.int(0), b.int(1));
    let identity = combine.identity(b);
    let before = b.var(identity);
    let has = b.gt(lane, zero);
    b.if_then(has, |b| {
        let from = b.sub(lane, one);
        let v = b.load_shared(parts, from);
        b.set(before, v);
    });
    b.get(before)
}
