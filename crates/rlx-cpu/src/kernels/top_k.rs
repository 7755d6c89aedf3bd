//! The first elements along an axis in order, and where they are.
//!
//! NaN is greater than any number. Equal elements keep the order of their positions, so results are one and the same however
//! they are found. A line is compared in vectors with the last of the elements kept so far, as integers in the order of the
//! elements ([`Ordered`]); what is better becomes a candidate. A line whose elements are apart is first gathered.

use rlx_ir::{DType, Error, ErrorKind, Op, Result};

use super::elementwise::sized;
use super::lines::{Line, Lines};
pub(crate) use super::order::claim;
use super::order::{Key, Ordered};
use super::scalar::number;
use super::transpose::{Band, transpose};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::isa::{Isa, Kernel};

/// The smallest room for candidates, so that small `k` seldom select.
const CANDIDATES: usize = 64;

/// Elements that are compared at once.
const CHUNK: usize = 64;

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
        let room = (2 * k).max(CANDIDATES).min(x.size);
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
        let best = Best { isa, size: p.x.size, k: p.values.size, room: p.room, largest: self.largest };
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
    size: usize,
    k: usize,
    room: usize,
    largest: bool,
}

impl Best {
    /// The first `k` ≥ 1 elements of a line in order. Candidates gather in `room` > `k` places (or all that there are); when
    /// these are full, the first `k` stay, and what does not come before the last of them is passed over.
    ///
    /// # Safety
    /// `room` candidates must fit at `scratch`, and `k ≤ room`.
    unsafe fn of<'a, T: Ordered>(
        &self,
        line: &[T],
        scratch: *mut <T::Key as Key>::Candidate,
    ) -> &'a [<T::Key as Key>::Candidate] {
        // The element that is wanted first has the smallest key.
        let turn = if self.largest { T::Key::ALL } else { T::Key::NONE };
        let mut len = 0;
        let mut last: Option<T::Key> = None;
        let mut at = 0;
        // SAFETY: the caller's promise; `len` candidates were written.
        unsafe {
            while at < self.size {
                let chunk = &line[at..(at + CHUNK).min(self.size)];
                if let Some(last) = last
                    && !self.isa.run(Any { chunk, turn, last })
                {
                    at += chunk.len();
                    continue;
                }
                for &x in chunk {
                    let key = x.key() ^ turn;
                    // An equal one comes behind it.
                    if last.is_none_or(|last| key < last) {
                        scratch.add(len).write(key.candidate(at));
                        len += 1;
                        if len == self.room && at + 1 < self.size {
                            let all = std::slice::from_raw_parts_mut(scratch, len);
                            last = Some(T::Key::key_of(*all.select_nth_unstable(self.k - 1).1));
                            len = self.k;
                        }
                    }
                    at += 1;
                }
            }
            let all = std::slice::from_raw_parts_mut(scratch, len);
            if len > self.k {
                all.select_nth_unstable(self.k - 1);
            }
            let first = &mut all[..self.k];
            first.sort_unstable();
            first
        }
    }
}

/// Whether any element of a chunk comes before `last`.
struct Any<'a, T: Ordered> {
    chunk: &'a [T],
    turn: T::Key,
    last: T::Key,
}

impl<T: Ordered> Kernel for Any<'_, T> {
    type Output = bool;

    #[inline(always)]
    fn run<S: crate::simd::Simd>(self, _: S) -> bool {
        let mut any = false;
        for &x in self.chunk {
            any |= x.key() ^ self.turn < self.last;
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::super::scalar::Number;
    use super::*;

    fn check<T: Ordered>(values: &[T]) {
        let size = values.len();
        for (largest, k) in [(true, 1), (true, 40), (false, 7), (false, size - 1), (true, size)] {
            let room = (2 * k).max(CANDIDATES).min(size);
            for isa in Isa::available() {
                let mut scratch = vec![T::Key::NONE.candidate(0); room];
                let best = Best { isa, size, k, room, largest };
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
