//! Order: where the extreme elements along an axis are.
//!
//! NaN is more extreme than any number for `ArgReduce`, and greater than any number for `TopK`. Equal elements
//! keep the order of their positions, so results are one and the same however they are found.

use std::cmp::Ordering;

use rlx_ir::op::ArgOp;
use rlx_ir::{DType, Error, ErrorKind, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::lines::{Line, Lines};
use super::scalar::{Number, is_number, number};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};

/// The smallest room for candidates of `TopK`, so that small `k` seldom select.
const CANDIDATES: usize = 64;

/// Numbers and truth values have an order.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let dtype = node.inputs.first().map_or(DType::C64, |&id| graph.shape(id).dtype());
    if is_number(dtype) {
        Claim::Native
    } else {
        Claim::No(format!("there is no kernel that orders {dtype}"))
    }
}

/// The kernel of an order.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let dtype = cx.step.inputs[0].dtype;
    match cx.node().op {
        Op::ArgReduce { op, axis, last, .. } => Ok(Box::new(ArgReduce { op, axis, last, dtype, plan: None })),
        Op::TopK { axis, largest, .. } => Ok(Box::new(TopK { axis, largest, dtype, plan: None })),
        ref op => Err(no_kernel(op, "it orders nothing")),
    }
}

#[derive(Debug, Clone, Copy)]
struct ArgReduce {
    op: ArgOp,
    axis: usize,
    last: bool,
    dtype: DType,
    plan: Option<ArgPlan>,
}

#[derive(Debug, Clone, Copy)]
struct ArgPlan {
    lines: Lines,
    out: crate::program::layout::At,
    worth: bool,
}

impl StepKernel for ArgReduce {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, out) = (&cx.inputs[0], &cx.outputs[0]);
        let lines = Lines::new(x, self.axis)?;
        if lines.count != out.layout.elements() {
            return Err(mismatch(format!("the places in {:?} are {:?}", x.dims(), out.dims())));
        }
        if lines.size == 0 && lines.count > 0 {
            return Err(mismatch(format!("axis {} has no elements, so none is extreme", self.axis)));
        }
        let nanos = x.layout.elements() as f64;
        self.plan = Some(ArgPlan { lines, out: out.at, worth: nanos > WORTH_NANOS });
        Ok(Needs::time(nanos))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        // SAFETY: the caller's promise; the type is that of the input.
        unsafe { number!(self.dtype, T => self.find::<T>(cx, plan)) };
        Ok(())
    }
}

impl ArgReduce {
    unsafe fn find<T: Number>(&self, cx: &mut RunCx<'_, '_>, plan: &ArgPlan) {
        let (x, out, lines) = (cx.shared::<T>(plan.lines.at), cx.shared::<i64>(plan.out), plan.lines);
        let wanted = if self.op == ArgOp::Max { Ordering::Greater } else { Ordering::Less };
        let last = self.last;
        cx.parallel(plan.worth, lines.count, &|range, _| {
            for i in range {
                let line = Line { first: x.get().wrapping_offset(lines.start(i)), step: lines.step };
                // SAFETY: the caller's promise; a line is not empty.
                unsafe { *out.get().add(i) = extreme(&line, lines.size, wanted, last) as i64 };
            }
        });
    }
}

/// Where the most extreme element of a line is.
#[inline(always)]
unsafe fn extreme<T: Number>(line: &Line<T>, size: usize, wanted: Ordering, last: bool) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        let (mut best, mut at) = (line.get(0), 0);
        for i in 1..size {
            let x = line.get(i);
            let better = match (x.is_nan(), best.is_nan()) {
                (false, false) => {
                    let order = x.order(best);
                    order == wanted || (last && order == Ordering::Equal)
                }
                (true, true) => last,
                (nan, _) => nan,
            };
            if better {
                (best, at) = (x, i);
            }
        }
        at
    }
}

#[derive(Debug, Clone, Copy)]
struct TopK {
    axis: usize,
    largest: bool,
    dtype: DType,
    plan: Option<TopPlan>,
}

/// A bound `TopK`.
#[derive(Debug, Clone, Copy)]
struct TopPlan {
    x: Lines,
    values: Lines,
    places: Lines,
    /// How many candidates a thread keeps.
    room: usize,
    worth: bool,
}

/// An element by its rank, the first one wanted the smallest, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u64,
    at: usize,
}

impl StepKernel for TopK {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let [values, places] = cx.outputs else {
            return Err(Error::new(ErrorKind::Internal, "TopK has two results"));
        };
        let x = Lines::new(&cx.inputs[0], self.axis)?;
        let (values, places) = (Lines::new(values, self.axis)?, Lines::new(places, self.axis)?);
        let k = values.size;
        if k > x.size {
            return Err(mismatch(format!(
                "the {k} first of axis {}, which has {} elements",
                self.axis, x.size
            )));
        }
        if [values.count, places.count] != [x.count; 2] || places.size != k {
            return Err(mismatch("the results of TopK differ from its input in other dimensions"));
        }
        let room = (2 * k).max(CANDIDATES).min(x.size);
        let bytes = room.checked_mul(size_of::<Candidate>());
        let bytes = bytes.ok_or_else(|| mismatch(format!("{room} candidates do not fit")))?;
        let nanos = (x.count * x.size) as f64 * 1.5 + (x.count * k) as f64 * 20.0;
        self.plan = Some(TopPlan { x, values, places, room, worth: nanos > WORTH_NANOS });
        Ok(Needs { thread_scratch: bytes, shared_scratch: 0, nanos })
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        if plan.values.size > 0 {
            // SAFETY: the caller's promise; the type is that of the input.
            unsafe { number!(self.dtype, T => self.find::<T>(cx, plan)) };
        }
        Ok(())
    }
}

impl TopK {
    unsafe fn find<T: Number>(&self, cx: &mut RunCx<'_, '_>, plan: &TopPlan) {
        let p = *plan;
        let x = cx.shared::<T>(p.x.at);
        let (values, places) = (cx.shared::<T>(p.values.at), cx.shared::<i64>(p.places.at));
        let largest = self.largest;
        cx.parallel(p.worth, p.x.count, &|range, scratch| {
            for i in range {
                let line = Line { first: x.get().wrapping_offset(p.x.start(i)), step: p.x.step };
                let value =
                    Line { first: values.get().wrapping_offset(p.values.start(i)), step: p.values.step };
                let place =
                    Line { first: places.get().wrapping_offset(p.places.start(i)), step: p.places.step };
                // SAFETY: the caller's promise; scratch has room for the candidates, lines are disjoint.
                unsafe {
                    let first = first_of(&line, p.x.size, p.values.size, scratch.cast(), p.room, largest);
                    for (i, c) in first.iter().enumerate() {
                        value.set(i, line.get(c.at));
                        place.set(i, c.at as i64);
                    }
                }
            }
        });
    }
}

/// The first `k` ≥ 1 elements of a line in order. Candidates gather in `room` > `k` places (or all that there
/// are); when these are full, the first `k` stay, and what comes behind the last of them is passed over.
///
/// # Safety
/// The line must have `size` elements, `room` of them must fit at `scratch`, and `k ≤ room`.
unsafe fn first_of<'a, T: Number>(
    line: &Line<T>,
    size: usize,
    k: usize,
    scratch: *mut Candidate,
    room: usize,
    largest: bool,
) -> &'a [Candidate] {
    let flip = if largest { u64::MAX } else { 0 };
    // SAFETY: the caller's promise; `len` candidates were written.
    unsafe {
        let (mut len, mut last): (usize, Option<Candidate>) = (0, None);
        for at in 0..size {
            let candidate = Candidate { rank: line.get(at).rank() ^ flip, at };
            if last.is_some_and(|last| last < candidate) {
                continue;
            }
            scratch.add(len).write(candidate);
            len += 1;
            if len == room && at + 1 < size {
                last = Some(select(std::slice::from_raw_parts_mut(scratch, len), k));
                len = k;
            }
        }
        sorted(std::slice::from_raw_parts_mut(scratch, len), k)
    }
}

/// Brings the first `k` ≥ 1 to the front, in any order; gives the last of them.
fn select(all: &mut [Candidate], k: usize) -> Candidate {
    *all.select_nth_unstable(k - 1).1
}

/// The first `k` ≥ 1 in order.
fn sorted(all: &mut [Candidate], k: usize) -> &[Candidate] {
    if all.len() > k {
        select(all, k);
    }
    let first = &mut all[..k];
    first.sort_unstable();
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_pass_through_little_room_in_order() {
        let mut values: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 500) as f32).collect();
        values[700] = f32::NAN;
        let line = Line { first: values.as_mut_ptr(), step: 1 };
        for (largest, k) in [(true, 1), (true, 40), (false, 7), (false, 999), (true, 1000)] {
            let room = (2 * k).clamp(CANDIDATES, 1000);
            let mut scratch = vec![Candidate { rank: 0, at: 0 }; room];
            // SAFETY: the line has 1000 elements, and there is room.
            let got = unsafe { first_of(&line, 1000, k, scratch.as_mut_ptr(), room, largest) };
            let mut want: Vec<usize> = (0..1000).collect();
            want.sort_by(|&a, &b| {
                let order = Number::order(values[a], values[b]);
                if largest { order.reverse() } else { order }
            });
            assert_eq!(got.iter().map(|c| c.at).collect::<Vec<_>>(), want[..k], "{largest} {k}");
        }
    }
}
