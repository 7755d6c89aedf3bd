//! The first elements along an axis in order, and where they are.
//!
//! NaN is greater than any number. Equal elements keep the order of their positions, so results are one and the same however
//! they are found. Elements are compared in vectors, as integers in the order of the elements ([`Ordered`]): where few of many are
//! wanted, a first pass over the line finds a bound that at least as many elements reach ([`Bound`]); what reaches it, or is better
//! than the last of the elements kept so far, becomes a candidate. A line whose elements are apart is first gathered.

use rlx_ir::{DType, Error, ErrorKind, Op, Result};

use super::elementwise::sized;
use super::lines::{Line, Lines};
pub(crate) use super::order::claim;
use super::order::{Key, Ordered};
use super::scalar::number;
use super::transpose::{Band, ONE_GROUP, transpose};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::isa::{Isa, Kernel};
use crate::simd::Simd;

/// The smallest room for candidates, so that small `k` seldom select.
const CANDIDATES: usize = 64;

/// Elements that are compared at once.
const CHUNK: usize = 32;

/// Into how many groups the elements of a line are dealt to find a bound, and how many first elements that serves: well below the
/// number of groups, so that few elements in the same groups as others are missed.
const GROUPS: [(usize, usize); 2] = [(FEW, 10), (MANY, 96)];
const FEW: usize = 16;
const MANY: usize = 128;

/// Elements of a group from which on a bound is worth a pass of its own.
const OF_GROUP: usize = 8;

/// Lines that are gathered together, where they are neighbours in memory.
const TOGETHER: usize = 16;

/// Elements between gathered lines, which would be in the same places of the cache if their sizes are powers of two.
const APART: usize = 16;

/// Lines are not gathered together where they are more bytes than this.
const GATHERED: usize = 1 << 20;

/// The kernel of the first elements in order.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let dtype = cx.step.inputs[0].dtype;
    match cx.node().op {
        Op::TopK { axis, largest, .. } => Ok(Box::new(TopK { axis, largest, dtype, plan: None })),
        ref op => Err(no_kernel(op, "it orders nothing")),
    }
}

#[derive(Debug, Clone, Copy)]
struct TopK {
    axis: usize,
    largest: bool,
    dtype: DType,
    plan: Option<Plan>,
}

/// A bound `TopK`.
#[derive(Debug, Clone, Copy)]
struct Plan {
    x: Lines,
    values: Lines,
    places: Lines,
    /// How many candidates a thread keeps, and their bytes.
    room: usize,
    room_bytes: usize,
    /// How many lines are gathered together; 0 if they are contiguous.
    gathered: usize,
    worth: bool,
}

impl StepKernel for TopK {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let [values, places] = cx.outputs else {
            return Err(Error::new(ErrorKind::Internal, "TopK has two results"));
        };
        let x = Lines::new(&cx.inputs[0], self.axis)?;
        let word = values.dtype.size_bytes();
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
        let room = room(k, x.size);
        let gathered = match (x.step, x.line_step()) {
            (1, _) => 0,
            (_, 1) => (GATHERED / (x.size * word).max(1)).clamp(1, TOGETHER).min(x.row()).max(1),
            _ => 1,
        };
        let bytes = |n: usize, size: usize| n.checked_mul(size)?.checked_next_multiple_of(64);
        let sizes = number!(self.dtype, T => bytes(room, candidate_bytes::<T>()))
            .zip(x.size.checked_add(APART).and_then(|n| bytes(n.checked_mul(gathered)?, word)));
        let sizes = sizes.and_then(|(room, lines)| Some((room, room.checked_add(lines)?)));
        let (room_bytes, scratch) = sizes.ok_or_else(|| mismatch(format!("{room} candidates do not fit")))?;
        let nanos = (x.count * x.size) as f64 * 0.4 + (x.count * k) as f64 * 20.0;
        let worth = nanos > WORTH_NANOS;
        self.plan = Some(Plan { x, values, places, room, room_bytes, gathered, worth });
        Ok(Needs { thread_scratch: scratch, shared_scratch: 0, nanos })
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        if plan.values.size > 0 {
            // SAFETY: the caller's promise; the type is that of the input.
            unsafe { number!(self.dtype, T => self.find::<T>(cx, plan))? };
        }
        Ok(())
    }
}

/// Room for the candidates of `k` elements in a line of `size`, and for those of one chunk more.
fn room(k: usize, size: usize) -> usize {
    (2 * k).max(CANDIDATES).min(size) + CHUNK
}

fn candidate_bytes<T: Ordered>() -> usize {
    size_of::<<T::Key as Key>::Candidate>()
}

impl TopK {
    /// Finds the first elements of all lines, a task at a time.
    ///
    /// # Safety
    /// As [`StepKernel::run`]; `T` must be the type of the operand.
    unsafe fn find<T: Ordered>(&self, cx: &mut RunCx<'_, '_>, plan: &Plan) -> Result<()> {
        let p = *plan;
        if p.x.size > T::Key::LONGEST {
            return Err(mismatch(format!("a line of {} elements is too long to be ordered", p.x.size)));
        }
        let (x, isa) = (cx.shared::<T>(p.x.at), cx.isa);
        let (values, places) = (cx.shared::<T>(p.values.at), cx.shared::<i64>(p.places.at));
        let best = Best { isa, k: p.values.size, room: p.room, largest: self.largest };
        let (row, together) = (p.x.row(), p.gathered.max(1));
        let line_step = p.x.size + APART;
        let blocks = row.div_ceil(together).max(1);
        cx.parallel(p.worth, p.x.count.checked_div(row).unwrap_or(0) * blocks, &|range, scratch| {
            let lines = scratch.wrapping_add(p.room_bytes).cast::<T>();
            for unit in range {
                let start = unit % blocks * together;
                let (from, n) = (unit / blocks * row + start, together.min(row - start));
                let first = x.get().wrapping_offset(p.x.start(from)).cast_const();
                // SAFETY: the caller's promise; scratch has room for the lines and the candidates, lines are disjoint.
                unsafe {
                    if p.gathered > 0 {
                        sized!(size_of::<T>(), U => transpose(isa, Band {
                            from: first.cast::<U>(),
                            from_column: p.x.step,
                            group: ONE_GROUP,
                            to: lines.cast::<U>(),
                            to_row: line_step as isize,
                            height: n,
                            width: p.x.size,
                        }));
                    }
                    for i in 0..n {
                        let line = if p.gathered > 0 { lines.add(i * line_step).cast_const() } else { first };
                        let line = std::slice::from_raw_parts(line, p.x.size);
                        let (value, place) = (p.values.start(from + i), p.places.start(from + i));
                        let value = Line { first: values.get().wrapping_offset(value), step: p.values.step };
                        let place = Line { first: places.get().wrapping_offset(place), step: p.places.step };
                        for (i, &c) in best.of(line, scratch.cast()).iter().enumerate() {
                            let at = T::Key::place(c);
                            value.set(i, line[at]);
                            place.set(i, at as i64);
                        }
                    }
                }
            }
        });
        Ok(())
    }
}

/// What is wanted of a line.
#[derive(Debug, Clone, Copy)]
struct Best {
    isa: Isa,
    k: usize,
    room: usize,
    largest: bool,
}

impl Best {
    /// The first `k` ≥ 1 elements of a line in order. Candidates gather in `room` places; when there is no room for another chunk,
    /// the first `k` stay, and what does not come before the last of them is passed over.
    ///
    /// # Safety
    /// [`room`] candidates must fit at `scratch`, and `k` be at most the line's length.
    unsafe fn of<'a, T: Ordered>(
        &self,
        line: &[T],
        scratch: *mut <T::Key as Key>::Candidate,
    ) -> &'a [<T::Key as Key>::Candidate] {
        // The element that is wanted first has the smallest key.
        let turn = if self.largest { T::Key::ALL } else { T::Key::NONE };
        let groups = GROUPS.iter().find(|&&(_, most)| self.k <= most).map(|&(groups, _)| groups);
        let groups = groups.filter(|groups| line.len() >= groups * OF_GROUP);
        let mut limit = match groups {
            Some(FEW) => Limit::Reached(self.isa.run(Bound::<T, FEW> { line, turn, k: self.k })),
            Some(_) => Limit::Reached(self.isa.run(Bound::<T, MANY> { line, turn, k: self.k })),
            None => Limit::Reached(T::Key::LAST),
        };
        let (mut at, mut len) = (0, 0);
        // SAFETY: the caller's promise; `len` candidates were written.
        unsafe {
            loop {
                (at, len) = self.isa.run(Candidates { line, turn, limit, scratch, room: self.room, at, len });
                if at == line.len() {
                    break;
                }
                let all = std::slice::from_raw_parts_mut(scratch, len);
                limit = Limit::Passed(T::Key::key_of(*all.select_nth_unstable(self.k - 1).1));
                len = self.k;
            }
            let all = std::slice::from_raw_parts_mut(scratch, len);
            if len > 2 * self.k {
                all.select_nth_unstable(self.k - 1);
                all[..self.k].sort_unstable();
            } else {
                all.sort_unstable();
            }
            &all[..self.k]
        }
    }
}

/// What an element must have to be a candidate.
#[derive(Debug, Clone, Copy)]
enum Limit<K> {
    /// This key or a smaller one: it is the last of elements anywhere in the line.
    Reached(K),
    /// A smaller key: an equal one comes behind elements that were found before.
    Passed(K),
}

/// A key that at least `k` elements of a line reach: of the smallest keys of `GROUPS` groups, the one number `k`.
struct Bound<'a, T: Ordered, const GROUPS: usize> {
    line: &'a [T],
    turn: T::Key,
    k: usize,
}

impl<T: Ordered, const GROUPS: usize> Kernel for Bound<'_, T, GROUPS> {
    type Output = T::Key;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> T::Key {
        let mut first = [T::Key::LAST; GROUPS];
        for chunk in self.line.as_chunks::<GROUPS>().0 {
            for (first, &x) in first.iter_mut().zip(chunk) {
                let key = x.key() ^ self.turn;
                *first = if key < *first { key } else { *first };
            }
        }
        *first.select_nth_unstable(self.k - 1).1
    }
}

/// Adds elements that keep to a limit to `len` candidates at `scratch`, from element `at` on, while there is room for a chunk: where
/// that ends, and how many candidates there are then.
struct Candidates<'a, T: Ordered> {
    line: &'a [T],
    turn: T::Key,
    limit: Limit<T::Key>,
    scratch: *mut <T::Key as Key>::Candidate,
    room: usize,
    at: usize,
    len: usize,
}

impl<T: Ordered> Kernel for Candidates<'_, T> {
    type Output = (usize, usize);

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> (usize, usize) {
        match self.limit {
            Limit::Reached(limit) => self.find::<true>(limit),
            Limit::Passed(limit) => self.find::<false>(limit),
        }
    }
}

impl<T: Ordered> Candidates<'_, T> {
    #[inline(always)]
    fn keeps<const EQUAL: bool>(&self, x: T, limit: T::Key) -> bool {
        let key = x.key() ^ self.turn;
        if EQUAL { key <= limit } else { key < limit }
    }

    #[inline(always)]
    fn find<const EQUAL: bool>(self, limit: T::Key) -> (usize, usize) {
        let (mut at, mut len) = (self.at, self.len);
        while at < self.line.len() && len + CHUNK <= self.room {
            let rest = &self.line[at..];
            let chunk = match rest.first_chunk::<CHUNK>() {
                Some(chunk) => {
                    let mut any = false;
                    for &x in chunk {
                        any |= self.keeps::<EQUAL>(x, limit);
                    }
                    if !any {
                        at += CHUNK;
                        continue;
                    }
                    chunk
                }
                None => rest,
            };
            for &x in chunk {
                // SAFETY: there is room for a chunk. Every element is written, and the next one over it if it is no candidate:
                // nothing depends on which ones are.
                unsafe { self.scratch.add(len).write((x.key() ^ self.turn).candidate(at)) };
                len += usize::from(self.keeps::<EQUAL>(x, limit));
                at += 1;
            }
        }
        (at, len)
    }
}

#[cfg(test)]
mod tests {
    use super::super::scalar::Number;
    use super::*;

    fn check<T: Ordered>(values: &[T]) {
        let size = values.len();
        for (largest, k) in [(true, 1), (true, 40), (false, 7), (false, size - 1), (true, size)] {
            let room = room(k, size);
            for isa in Isa::available() {
                let mut scratch = vec![T::Key::NONE.candidate(0); room];
                let best = Best { isa, k, room, largest };
                // SAFETY: there is room.
                let got = unsafe { best.of(values, scratch.as_mut_ptr()) };
                let mut want: Vec<usize> = (0..size).collect();
                want.sort_by(|&a, &b| {
                    let order = Number::order(values[a], values[b]);
                    if largest { order.reverse() } else { order }
                });
                let got: Vec<usize> = got.iter().map(|&c| T::Key::place(c)).collect();
                assert_eq!(got, want[..k], "{isa} {largest} {k}");
            }
        }
    }

    #[test]
    fn candidates_pass_through_little_room_in_order() {
        let mut values: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 500) as f32 - 200.0).collect();
        values[700] = f32::NAN;
        check(&values);
        check(&values.iter().map(|&x| x as i64).collect::<Vec<_>>());
        check(&values.iter().map(|&x| x as i8).collect::<Vec<_>>());
        check(&values.iter().map(|&x| half::f16::from_f32(x)).collect::<Vec<_>>());
    }
}
