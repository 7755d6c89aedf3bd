//! Index: elements at positions that are data.
//!
//! Gathers compute one element of their result at a time (`Cx::indexed`), so they are in map kernels like
//! movement does: a gather asks its table for the element the index means.
//!
//! An index out of range reports a fault with its axis and value, and the run fails: what its kernels read instead is never seen.

use rlx_ir::op::ArgOp;
use rlx_ir::{Extent, Node, NodeId, Op};

use super::cx::{Arg, Cx};
use super::{Launch, Scheduled, StepDesc, elementwise, reject};
use crate::build::Builder;
use crate::ir::{Const, Inst, Shared, Ty, Value, Var};

/// Whether an op computes each result element from elements whose places are data, or by a search of its own.
pub(super) fn is_indexed(op: &Op) -> bool {
    matches!(
        op,
        Op::Gather { .. }
            | Op::GatherElements { .. }
            | Op::GatherNd { .. }
            | Op::Iota { .. }
            | Op::Trilu { .. }
            | Op::ArgReduce { .. }
    )
}

/// The place that `raw` means among `size`, negative ones counted from the end, and whether there is one, of the first of `len` elements (one without it) that
/// must all be there; a fault is reported when there is none.
pub(super) fn place_in(
    b: &mut Builder,
    raw: Value,
    (size, len): (Value, Option<Value>),
    axis: usize,
) -> (Value, Value) {
    let ty = b.ty(raw);
    let (wide, zero) = (b.convert(ty, size), b.constant(Const::int(ty, 0)));
    let from_end = b.add(raw, wide);
    let negative = b.lt(raw, zero);
    let place = b.select(negative, from_end, raw);
    let low = b.ge(place, zero);
    let high = match len {
        None => b.lt(place, wide),
        Some(len) => {
            let last = b.sub(size, len);
            let last = b.convert(ty, last);
            b.le(place, last)
        }
    };
    let inside = b.and(low, high);
    let outside = b.not(inside);
    b.if_then(outside, |b| {
        let mut near = raw;
        if ty == Ty::I64 {
            // The nearest that the record holds.
            let [least, most] = [i32::MIN, i32::MAX].map(|v| b.constant(Const::int(ty, v.into())));
            let (below, above) = (b.lt(raw, least), b.lt(most, raw));
            near = b.select(below, least, near);
            near = b.select(above, most, near);
        }
        let reported = b.convert(Ty::I32, near);
        b.fail(axis as u32, reported);
    });
    (b.convert(Ty::I32, place), inside)
}

impl Cx<'_> {
    /// The element of an indexed op at `index`.
    pub(super) fn indexed(&mut self, node: &Node, index: &[Value]) -> Scheduled<Value> {
        match &node.op {
            Op::Gather { axis } => {
                let taken = self.graph().shape(node.inputs[1]).rank();
                let own = index[*axis..*axis + taken].to_vec();
                let (place, inside) = self.resolved(node.inputs[1], &own, node.inputs[0], *axis)?;
                let mut from = index[..*axis].to_vec();
                from.push(place);
                from.extend_from_slice(&index[*axis + taken..]);
                self.guarded(node, node.inputs[0], &from, inside)
            }
            Op::GatherElements { axis } => {
                let (place, inside) = self.resolved(node.inputs[1], index, node.inputs[0], *axis)?;
                let mut from = index.to_vec();
                from[*axis] = place;
                self.guarded(node, node.inputs[0], &from, inside)
            }
            Op::GatherNd { batch_dims } => self.gathered_slice(node, *batch_dims, index),
            Op::Iota { axis, dtype, .. } => {
                if !elementwise::computes(*dtype) {
                    return reject(format!("Iota of {dtype}"));
                }
                let v = self.b.convert(Ty::of(*dtype), index[*axis]);
                Ok(elementwise::narrowed(&mut self.b, v, *dtype))
            }
            Op::Trilu { upper, k } => self.triangle(node, *upper, *k, index),
            Op::ArgReduce { op, axis, keep_dim, last } => {
                let mut row = index.to_vec();
                if !keep_dim {
                    let zero = self.b.int(0);
                    row.insert(*axis, zero);
                }
                let size = self.axis_size(node.inputs[0], *axis);
                let order = Order { largest: *op == ArgOp::Max, nan_wins: true, last: *last };
                let all = (self.b.int(0), size, 1);
                let (_, place) = self.extreme(node.inputs[0], &row, *axis, all, order, None)?;
                let place = self.b.get(place);
                Ok(self.b.convert(Ty::I64, place))
            }
            op => reject(format!("{} is not indexed", op.kind())),
        }
    }

    pub(super) fn axis_size(&mut self, node: NodeId, axis: usize) -> Value {
        let d = self.graph().shape(node).dim(axis).extent();
        self.size(&format!("axis{axis}"), d)
    }

    /// The element number that `indices` at `at` means along `axis` of `table`, and whether there is one; a
    /// fault is reported when there is none. It is looked up in front of the loops that `at` does not depend on: once for a row, or a page, that
    /// such a loop goes along. Where the table is known to have elements, there is always one to read.
    pub(super) fn resolved(
        &mut self,
        indices: NodeId,
        at: &[Value],
        table: NodeId,
        axis: usize,
    ) -> Scheduled<(Value, Value)> {
        let some = self.graph().shape(table).dim(axis).as_static().is_some_and(|size| size > 0);
        self.in_front(at, |cx, at| {
            let (place, inside) = cx.start(indices, at, table, None, axis)?;
            if !some {
                return Ok((place, inside));
            }
            // In a run that has failed, any element will do.
            let first = cx.b.int(0);
            Ok((cx.b.select(inside, place, first), cx.b.constant(Const::bool(true))))
        })
    }

    /// As [`Cx::resolved`], of the first of `len` elements (one without it) that must all be there.
    pub(super) fn start(
        &mut self,
        indices: NodeId,
        at: &[Value],
        table: NodeId,
        len: Option<Value>,
        axis: usize,
    ) -> Scheduled<(Value, Value)> {
        let raw = self.element(indices, at)?;
        let size = self.axis_size(table, axis);
        Ok(place_in(&mut self.b, raw, (size, len), axis))
    }

    /// The element of `source` where `inside` holds; 0 (of a run that has failed) elsewhere.
    fn guarded(&mut self, node: &Node, source: NodeId, index: &[Value], inside: Value) -> Scheduled<Value> {
        if self.b.as_const(inside).is_some_and(|c| c.bits != 0) {
            return self.element(source, index);
        }
        let zero = self.b.constant(Const { ty: Ty::of(node.shape.dtype()), bits: 0 });
        self.value_if(inside, zero, |cx| cx.element(source, index))
    }

    /// How many dimensions a row of `indices` addresses.
    pub(super) fn row_length(&self, indices: NodeId) -> Scheduled<usize> {
        let length = self.graph().shape(indices).dims().last().and_then(|d| d.as_static());
        length.ok_or_else(|| super::Unscheduled("rows of indices of unknown length".into()))
    }

    fn gathered_slice(&mut self, node: &Node, batch: usize, index: &[Value]) -> Scheduled<Value> {
        let (table, indices) = (node.inputs[0], node.inputs[1]);
        let count = self.row_length(indices)?;
        let lead = self.graph().shape(indices).rank() - 1;
        let mut from = index[..batch].to_vec();
        let mut inside = self.b.constant(Const::bool(true));
        for c in 0..count {
            let mut at = index[..lead].to_vec();
            at.push(self.b.int(c as i32));
            let (place, ok) = self.resolved(indices, &at, table, batch + c)?;
            from.push(place);
            inside = self.b.and(inside, ok);
        }
        from.extend_from_slice(&index[lead..]);
        self.guarded(node, table, &from, inside)
    }

    fn triangle(&mut self, node: &Node, upper: bool, k: Extent, index: &[Value]) -> Scheduled<Value> {
        let v = self.element(node.inputs[0], index)?;
        let zero = self.b.constant(Const { ty: self.b.ty(v), bits: 0 });
        // Diagonals far beyond the matrix are all the same; the bound keeps the difference in range.
        let limit = Extent::Const(1 << 30);
        let k = self.extent("k", k.max(-limit).min(limit));
        let [.., row, column] = index else { return reject("a triangle of no matrix") };
        let above = self.b.sub(*column, *row);
        let stays = if upper { self.b.ge(above, k) } else { self.b.le(above, k) };
        Ok(self.b.select(stays, v, zero))
    }
}

/// Which of two elements is wanted first.
#[derive(Debug, Clone, Copy)]
struct Order {
    largest: bool,
    /// Whether NaN comes before all numbers; else it is the largest of them.
    nan_wins: bool,
    /// Whether the last of equal elements counts.
    last: bool,
}

impl Order {
    /// Whether `x` comes before `y`, ties left aside; and whether they tie.
    fn before(self, b: &mut Builder, x: Value, y: Value) -> (Value, Value) {
        let (x, y) = match b.ty(x) {
            Ty::Bool => (b.convert(Ty::U32, x), b.convert(Ty::U32, y)),
            _ => (x, y),
        };
        let (first, tied) = (if self.largest { b.gt(x, y) } else { b.lt(x, y) }, b.eq(x, y));
        if !b.ty(x).is_float() {
            return (first, tied);
        }
        let (x_nan, y_nan) = (elementwise::is_nan(b, x), elementwise::is_nan(b, y));
        let both = b.and(x_nan, y_nan);
        let wins = if self.nan_wins || self.largest { x_nan } else { y_nan };
        let one_nan = b.xor(x_nan, y_nan);
        let first = b.select(one_nan, wins, first);
        (first, b.or(tied, both))
    }
}

impl Cx<'_> {
    /// The first element in `order` along `axis` of the row, of those at places `from`, `from + step`, … below `to` and behind `after` (an
    /// element and its place); variables with the element and its place, which is −1 where there is none.
    fn extreme(
        &mut self,
        source: NodeId,
        row: &[Value],
        axis: usize,
        (from, to, step): (Value, Value, i32),
        order: Order,
        after: Option<(Value, Value)>,
    ) -> Scheduled<(Var, Var)> {
        let ty = Ty::of(self.dtype(source));
        if !elementwise::computes(self.dtype(source)) {
            return reject(format!("an order of {}", self.dtype(source)));
        }
        let zero = self.b.constant(Const { ty, bits: 0 });
        let none = self.b.int(-1);
        let (best, place) = (self.b.var(zero), self.b.var(none));
        self.for_step((from, to, step), |cx, i| {
            let mut at = row.to_vec();
            at[axis] = i;
            let v = cx.element(source, &at)?;
            let (old, old_place) = (cx.b.get(best), cx.b.get(place));
            let (first, tied) = order.before(&mut cx.b, v, old);
            let mut better = if order.last { cx.b.or(first, tied) } else { first };
            let (zero, yes) = (cx.b.int(0), cx.b.constant(Const::bool(true)));
            let start = cx.b.lt(old_place, zero);
            better = cx.b.select(start, yes, better);
            if let Some((value, place)) = after {
                // Behind the last one taken: later in order or, tied, further along.
                let (later, tied) = order.before(&mut cx.b, value, v);
                let further = cx.b.gt(i, place);
                let further = cx.b.and(tied, further);
                let behind = cx.b.or(later, further);
                let start = cx.b.lt(place, zero);
                let behind = cx.b.or(behind, start);
                better = cx.b.and(better, behind);
            }
            cx.b.if_then(better, |b| {
                b.set(best, v);
                b.set(place, i);
            });
            Ok(())
        })?;
        Ok((best, place))
    }
}

/// Invocations of a workgroup.
const WORKGROUP: u32 = 64;

/// Rows of at most this many elements are done by one invocation.
const SHORT_ROW: i64 = 32;

/// A [`Op::TopK`] as its kernels see it.
struct Top {
    x: NodeId,
    axis: usize,
    order: Order,
    /// How many elements are taken of how many.
    wanted: Value,
    size: Value,
    /// For each output of the step, whether it has the elements' places.
    places: Vec<bool>,
}

/// Makes the kernel of [`Op::TopK`]: it takes the first, the next, and so on; of a short row by one invocation, of others by a workgroup.
///
/// # Errors
/// An element type without an order.
pub fn top_k(step: &StepDesc, anchor: &Node) -> Scheduled<Vec<Launch>> {
    let Op::TopK { k, axis, largest, .. } = anchor.op else { return reject("not a TopK") };
    let mut cx = Cx::new("topk", WORKGROUP, step);
    let x = anchor.inputs[0];
    let space: Vec<Extent> = anchor.shape.dims().iter().map(|d| d.extent()).collect();
    let is_places = |&id: &NodeId| matches!(step.graph.node(id).op, Op::Result { index: 1 });
    let top = Top {
        x,
        axis,
        order: Order { largest, nan_wins: false, last: false },
        wanted: cx.size("k", k.extent()),
        size: cx.axis_size(x, axis),
        places: step.graph.outputs.iter().map(is_places).collect(),
    };
    let length = step.graph.shape(x).dim(axis).extent();
    if length.as_const().is_some_and(|n| n <= SHORT_ROW) {
        let groups = cx.for_rows(&space, axis, |cx, row, _| top.by_invocation(cx, row))?;
        return Ok(vec![cx.finish(groups)]);
    }
    top.by_workgroup(cx, &space).map(|launch| vec![launch])
}

impl Top {
    /// Stores element number `p` of the row's results.
    fn store(&self, cx: &mut Cx<'_>, row: &[Value], p: Value, (best, place): (Value, Value)) {
        let mut index = row.to_vec();
        index[self.axis] = p;
        let wide = cx.b.convert(Ty::I64, place);
        for (slot, &places) in self.places.iter().enumerate() {
            cx.store(Arg::Output(slot), &index, if places { wide } else { best });
        }
    }

    /// Nothing taken yet: an element and its place.
    fn nothing(&self, cx: &mut Cx<'_>) -> (Var, Var) {
        let zero = cx.b.constant(Const { ty: Ty::of(cx.dtype(self.x)), bits: 0 });
        let none = cx.b.int(-1);
        (cx.b.var(zero), cx.b.var(none))
    }

    fn by_invocation(&self, cx: &mut Cx<'_>, row: &[Value]) -> Scheduled<()> {
        let (taken, taken_at) = self.nothing(cx);
        cx.for_each(self.wanted, |cx, p| {
            let (after, all) = ((cx.b.get(taken), cx.b.get(taken_at)), (cx.b.int(0), self.size, 1));
            let (best, place) = cx.extreme(self.x, row, self.axis, all, self.order, Some(after))?;
            let (best, place) = (cx.b.get(best), cx.b.get(place));
            cx.b.set(taken, best);
            cx.b.set(taken_at, place);
            self.store(cx, row, p, (best, place));
            Ok(())
        })
    }

    /// Each invocation knows the first of its own elements, which are as far apart as there are invocations. The first of these is
    /// found by a tree and taken, and only the one whose it was looks through its own again.
    fn by_workgroup(&self, mut cx: Cx<'_>, space: &[Extent]) -> Scheduled<Launch> {
        let ty = Ty::of(cx.dtype(self.x));
        if !elementwise::computes(cx.dtype(self.x)) {
            return reject(format!("an order of {}", cx.dtype(self.x)));
        }
        let mut others = cx.sizes("dim", space);
        others[self.axis] = cx.b.int(1);
        let rows = cx.product(&others);
        let heads = Heads { values: cx.b.shared(ty, WORKGROUP), places: cx.b.shared(Ty::I32, WORKGROUP) };
        let (group, lane) = (cx.b.inst(Inst::GroupId), cx.b.inst(Inst::LocalId));
        let inside = cx.b.lt(group, rows);
        cx.if_then(inside, |cx| {
            let row = cx.unflatten(group, &others);
            let ((taken, taken_at), (own, own_at)) = (self.nothing(cx), self.nothing(cx));
            let yes = cx.b.constant(Const::bool(true));
            let looks = cx.b.var(yes);
            cx.for_each(self.wanted, |cx, p| {
                let again = cx.b.get(looks);
                cx.if_then(again, |cx| {
                    let after = (cx.b.get(taken), cx.b.get(taken_at));
                    let mine = (lane, self.size, WORKGROUP as i32);
                    let (best, place) = cx.extreme(self.x, &row, self.axis, mine, self.order, Some(after))?;
                    let (best, place) = (cx.b.get(best), cx.b.get(place));
                    cx.b.set(own, best);
                    cx.b.set(own_at, place);
                    Ok(())
                })?;
                let mine = (cx.b.get(own), cx.b.get(own_at));
                let (best, place) = heads.first(&mut cx.b, self.order, lane, mine);
                cx.b.set(taken, best);
                cx.b.set(taken_at, place);
                let mask = cx.b.int(WORKGROUP as i32 - 1);
                let owner = cx.b.and(place, mask);
                let owns = cx.b.eq(owner, lane);
                cx.b.set(looks, owns);
                let zero = cx.b.int(0);
                let writes = cx.b.eq(lane, zero);
                cx.if_then(writes, |cx| {
                    self.store(cx, &row, p, (best, place));
                    Ok(())
                })
            })
        })?;
        let kept = (0..space.len()).filter(|&i| i != self.axis);
        Ok(cx.finish(kept.fold(Extent::Const(1), |n, i| n * space[i])))
    }
}

/// The first elements of all invocations of a workgroup, with their places.
#[derive(Clone, Copy)]
struct Heads {
    values: Shared,
    places: Shared,
}

impl Heads {
    /// The first of all: an element and its place, in every invocation. Of tied ones the first place counts.
    fn first(self, b: &mut Builder, order: Order, lane: Value, mine: (Value, Value)) -> (Value, Value) {
        b.store_shared(self.values, lane, mine.0);
        b.store_shared(self.places, lane, mine.1);
        b.barrier();
        let zero = b.int(0);
        let mut half = WORKGROUP as i32 / 2;
        while half > 0 {
            let width = b.int(half);
            let active = b.lt(lane, width);
            b.if_then(active, |b| {
                let other = b.add(lane, width);
                let (v, at) = (b.load_shared(self.values, lane), b.load_shared(self.places, lane));
                let (w, from) = (b.load_shared(self.values, other), b.load_shared(self.places, other));
                let (before, tied) = order.before(b, w, v);
                let nearer = b.lt(from, at);
                let nearer = b.and(tied, nearer);
                let wins = b.or(before, nearer);
                let alone = b.lt(at, zero);
                let wins = b.or(wins, alone);
                let there = b.ge(from, zero);
                let wins = b.and(wins, there);
                b.if_then(wins, |b| {
                    b.store_shared(self.values, lane, w);
                    b.store_shared(self.places, lane, from);
                });
            });
            b.barrier();
            half /= 2;
        }
        let found = (b.load_shared(self.values, zero), b.load_shared(self.places, zero));
        // Both are used again for the next element.
        b.barrier();
        found
    }
}
