//! Top-k: the first elements of a row in an order, with their places.
//!
//! Which of three ways it is follows from the row's length and from how many are wanted, where these are known:
//!
//! - A few of a short row are taken one after the other by one invocation.
//! - Up to [`FEW`] are taken one after the other by a workgroup, whose invocations each know the first of their own elements.
//! - Otherwise a workgroup sorts a row, or [selects](super::sorting) those that are wanted and sorts them. If these are more than it sorts, each
//!   workgroup has some of the ranks.
//!
//! So a row takes no more than some hundred steps, however its elements are distributed. Rows of some thousand elements come in parts
//! (`schedule/long_rows.rs`), if these have many more than are wanted; others are gone over once for each digit.

use rlx_ir::{Extent, Node, NodeId, Op};

use super::cx::{Arg, Cx};
use super::order::Order;
use super::sorting::{self, LANES, Sorter, Source};
use super::{Launch, Scheduled, StepDesc, elementwise, reject};
use crate::build::Builder;
use crate::ir::{Const, Inst, Shared, Ty, Value, Var};

/// Invocations of a workgroup that takes one element after the other.
const WORKGROUP: u32 = 64;

/// Rows of at most this many elements are done by one invocation.
const SHORT_ROW: i64 = 32;

/// As many elements are taken one after the other.
const FEW: i64 = 8;

/// So often an invocation that takes one element after the other looks at an element.
const MOST_STEPS: i64 = 256;

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

/// Who takes the elements of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Invocation,
    Heads,
    Sorting,
}

impl By {
    /// For so many elements of a row of some length, where these are known.
    fn of(k: Option<i64>, length: Option<i64>) -> By {
        let own = length.map(|n| n.div_euclid(i64::from(WORKGROUP)) + 1);
        match (k, length) {
            (Some(k), Some(n)) if n <= SHORT_ROW && k * n <= MOST_STEPS => By::Invocation,
            (Some(k), _) if k <= FEW && own.is_none_or(|own| k * own <= MOST_STEPS) => By::Heads,
            _ => By::Sorting,
        }
    }
}

/// Makes the kernel of [`Op::TopK`].
///
/// # Errors
/// An element type without an order.
pub fn schedule(step: &StepDesc, anchor: &Node) -> Scheduled<Vec<Launch>> {
    let Op::TopK { k, axis, largest, .. } = anchor.op else { return reject("not a TopK") };
    let x = anchor.inputs[0];
    if !elementwise::computes(step.graph.shape(x).dtype()) {
        return reject(format!("an order of {}", step.graph.shape(x).dtype()));
    }
    let length = step.graph.shape(x).dim(axis).extent();
    let by = By::of(k.extent().as_const(), length.as_const());
    let (name, lanes) = if by == By::Sorting { ("topk.sorted", LANES) } else { ("topk", WORKGROUP) };
    let mut cx = Cx::new(name, lanes, step);
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
    let launch = match by {
        By::Invocation => {
            let groups = cx.for_rows(&space, axis, |cx, row, _| top.by_invocation(cx, row))?;
            cx.finish(groups)
        }
        By::Heads => top.by_workgroup(cx, &space)?,
        By::Sorting => top.by_sorting(cx, &space, (k.extent(), length.as_const()))?,
    };
    Ok(vec![launch])
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
        after: (Value, Value),
    ) -> Scheduled<(Var, Var)> {
        let ty = Ty::of(self.dtype(source));
        let zero = self.b.constant(Const { ty, bits: 0 });
        let none = self.b.int(-1);
        let (best, place) = (self.b.var(zero), self.b.var(none));
        self.for_step((from, to, step), |cx, i| {
            let mut at = row.to_vec();
            at[axis] = i;
            let v = cx.element(source, &at)?;
            let (old, old_place) = (cx.b.get(best), cx.b.get(place));
            let (first, _) = order.before(&mut cx.b, v, old);
            let (zero, yes) = (cx.b.int(0), cx.b.constant(Const::bool(true)));
            let start = cx.b.lt(old_place, zero);
            let better = cx.b.select(start, yes, first);
            // Behind the last one taken: later in order or, tied, further along.
            let (later, tied) = order.before(&mut cx.b, after.0, v);
            let further = cx.b.gt(i, after.1);
            let further = cx.b.and(tied, further);
            let behind = cx.b.or(later, further);
            let start = cx.b.lt(after.1, zero);
            let behind = cx.b.or(behind, start);
            let better = cx.b.and(better, behind);
            cx.b.if_then(better, |b| {
                b.set(best, v);
                b.set(place, i);
            });
            Ok(())
        })?;
        Ok((best, place))
    }
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
            let (best, place) = cx.extreme(self.x, row, self.axis, all, self.order, after)?;
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
                    let (best, place) = cx.extreme(self.x, &row, self.axis, mine, self.order, after)?;
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

    /// A workgroup for each row and as many ranks as it sorts.
    fn by_sorting(
        &self,
        mut cx: Cx<'_>,
        space: &[Extent],
        (k, length): (Extent, Option<i64>),
    ) -> Scheduled<Launch> {
        let is_whole = length.is_some_and(|n| n <= sorting::MOST);
        let len = sorting::length(if is_whole { length } else { k.as_const() });
        let chunks = k.ceil_div(i64::from(len));
        let mut others = cx.sizes("dim", space);
        others[self.axis] = cx.b.int(1);
        let (rows, count) = (cx.product(&others), cx.size("chunks", chunks));
        let all = cx.b.mul(rows, count);
        let ty = Ty::of(cx.dtype(self.x));
        let sorter = Sorter::new(&mut cx.b, ty, len);
        let group = cx.b.inst(Inst::GroupId);
        let inside = cx.b.lt(group, all);
        cx.if_then(inside, |cx| {
            let (row, chunk) = cx.b.div_rem(group, count);
            let row = cx.unflatten(row, &others);
            let most = cx.b.int(len as i32);
            let from = cx.b.mul(chunk, most);
            let to = cx.b.add(from, most);
            let to = cx.b.min(to, self.wanted);
            let key = &mut |cx: &mut Cx<'_>, place: Value| {
                let mut at = row.clone();
                at[self.axis] = place;
                let v = cx.element(self.x, &at)?;
                Ok(self.order.key(&mut cx.b, v))
            };
            if is_whole {
                sorter.fill(cx, self.size, key)?;
            } else {
                let source = Source::new(cx, &sorter, (self.size, length), key)?;
                let is_first = chunks.as_const() == Some(1);
                sorter.select(cx, &source, ((!is_first).then_some(from), to), key)?;
            }
            sorter.sort(&mut cx.b);
            let found = cx.b.sub(to, from);
            sorter.each(cx, |cx, i, place| {
                let is_found = cx.b.lt(i, found);
                cx.if_then(is_found, |cx| {
                    let mut at = row.clone();
                    at[self.axis] = place;
                    let v = cx.element(self.x, &at)?;
                    let p = cx.b.add(from, i);
                    self.store(cx, &row, p, (v, place));
                    Ok(())
                })
            })
        })?;
        let kept = (0..space.len()).filter(|&i| i != self.axis);
        Ok(cx.finish(kept.fold(chunks, |n, i| n * space[i])))
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
