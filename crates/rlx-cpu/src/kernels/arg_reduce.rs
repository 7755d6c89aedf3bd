//! Where the extreme elements along an axis are.
//!
//! NaN is more extreme than any number. Elements are compared as integers in their order ([`Ordered`]), many lines side by
//! side: lines that are neighbours in memory, or the pieces of one contiguous line. Of a contiguous line of f32 the extreme element is found first, and
//! then where it is. Of equal elements the first (or last) one
//! is taken whatever was compared first, so results are one and the same however they are found.

use rlx_ir::op::ArgOp;
use rlx_ir::{DType, Op, Result};

use super::lines::{Line, Lines};
pub(crate) use super::order::claim;
use super::order::{Key, Ordered};
use super::scalar::number;
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::isa::{Isa, Kernel};
use crate::layout::At;
use crate::rows::{self, Reduction, Rows};
use crate::simd::{LANES, Simd};

/// The most lines that are compared side by side.
const BLOCK: usize = 256;

/// Pieces of one line that are compared side by side.
const PIECES: usize = 64;

/// Fewer neighbours than this are compared line by line.
const FEW: usize = 8;

/// The kernel of places of extremes.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let dtype = cx.step.inputs[0].dtype;
    match cx.node().op {
        Op::ArgReduce { op, axis, last, .. } => {
            Ok(Box::new(ArgReduce { axis, how: How { smallest: op == ArgOp::Min, last }, dtype, plan: None }))
        }
        ref op => Err(no_kernel(op, "it finds no extremes")),
    }
}

/// Which elements are wanted.
#[derive(Debug, Clone, Copy)]
struct How {
    smallest: bool,
    /// Of equal ones the last, not the first.
    last: bool,
}

#[derive(Debug, Clone, Copy)]
struct ArgReduce {
    axis: usize,
    how: How,
    dtype: DType,
    plan: Option<Plan>,
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    lines: Lines,
    /// Dense.
    out: At,
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
        let nanos = x.layout.elements() as f64 * 0.3;
        self.plan = Some(Plan { lines, out: out.at, worth: nanos > WORTH_NANOS });
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
    /// Finds the places in all lines, a task at a time.
    ///
    /// # Safety
    /// As [`StepKernel::run`]; `T` must be the type of the operand.
    unsafe fn find<T: Ordered>(&self, cx: &mut RunCx<'_, '_>, plan: &Plan) {
        let (x, out, lines) = (cx.shared::<T>(plan.lines.at), cx.shared::<i64>(plan.out), plan.lines);
        let (how, isa, row) = (self.how, cx.isa, lines.row());
        let countable = u32::try_from(lines.size).is_ok();
        let neighbours = countable && row >= FEW && lines.line_step() == 1;
        let rows = lines.count.checked_div(row).unwrap_or(0);
        let block = if neighbours { cx.share(plan.worth, rows, row, BLOCK, LANES) } else { 1 };
        let blocks = row.div_ceil(block).max(1);
        cx.parallel(plan.worth, rows * blocks, &|range, _| {
            for unit in range {
                let start = unit % blocks * block;
                let line = unit / blocks * row + start;
                let first = x.get().wrapping_offset(lines.start(line)).cast_const();
                // SAFETY: the caller's promise; a line is not empty, each result is written once.
                unsafe {
                    let out = out.get().add(line);
                    if neighbours {
                        let n = block.min(row - start);
                        let mut found = Found::<T::Key, BLOCK>::new();
                        find_columns(isa, how, (first, lines.step, lines.size, n), &mut found);
                        for (i, &at) in found.at[..n].iter().enumerate() {
                            *out.add(i) = i64::from(at);
                        }
                    } else if self.dtype == DType::F32 && lines.step == 1 {
                        *out = of_floats(isa, how, first.cast(), lines.size) as i64;
                    } else if countable && lines.step == 1 && lines.size >= 2 * PIECES {
                        *out = in_pieces(isa, how, first, lines.size) as i64;
                    } else {
                        let line = Line { first: first.cast_mut(), step: lines.step };
                        *out = one_by_one(how, &line, 0..lines.size, None).1 as i64;
                    }
                }
            }
        });
    }
}

/// The key by which elements are compared, the wanted one the greatest.
#[inline(always)]
fn wanted<T: Ordered>(x: T, turn: T::Key) -> T::Key {
    let key = x.key();
    if T::NAN == Some(key) { key } else { key ^ turn }
}

fn turn<K: Key>(how: How) -> K {
    if how.smallest { K::ALL } else { K::NONE }
}

/// The most extreme of the elements `range` of a line and `best`, which is before them.
///
/// # Safety
/// The line must have these elements; without `best` there must be one.
unsafe fn one_by_one<T: Ordered>(
    how: How,
    line: &Line<T>,
    range: std::ops::Range<usize>,
    best: Option<(T::Key, usize)>,
) -> (T::Key, usize) {
    let (start, turn) = (range.start, turn::<T::Key>(how));
    // SAFETY: the caller's promise.
    unsafe {
        let mut best = best.unwrap_or_else(|| (wanted(line.get(start), turn), start));
        for i in range {
            let key = wanted(line.get(i), turn);
            if key > best.0 || (how.last && key == best.0) {
                best = (key, i);
            }
        }
        best
    }
}

/// What was found in each of `N` lines.
struct Found<K, const N: usize> {
    best: [K; N],
    at: [u32; N],
}

impl<K: Key, const N: usize> Found<K, N> {
    fn new() -> Self {
        Found { best: [K::NONE; N], at: [0; N] }
    }
}

struct Columns<'a, T: Ordered, const N: usize> {
    how: How,
    first: *const T,
    step: isize,
    size: usize,
    width: usize,
    found: &'a mut Found<T::Key, N>,
}

/// Compares `width ≤ N` lines that are neighbours: `(first, step, size, width)`.
///
/// # Safety
/// The lines must have these elements, and at least one each.
unsafe fn find_columns<T: Ordered, const N: usize>(
    isa: Isa,
    how: How,
    (first, step, size, width): (*const T, isize, usize, usize),
    found: &mut Found<T::Key, N>,
) {
    isa.run(Columns { how, first, step, size, width, found });
}

impl<T: Ordered, const N: usize> Kernel for Columns<'_, T, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (turn, last) = (turn::<T::Key>(self.how), self.how.last);
        let n = self.width.min(N);
        let (best, at) = (&mut self.found.best[..n], &mut self.found.at[..n]);
        for i in 0..self.size {
            let line = self.first.wrapping_offset(i as isize * self.step);
            // SAFETY: `find_columns` was promised the elements.
            let line = unsafe { std::slice::from_raw_parts(line, n) };
            for ((best, at), &x) in best.iter_mut().zip(at.iter_mut()).zip(line) {
                let key = wanted(x, turn);
                let better = (i == 0) | (key > *best) | (last & (key == *best));
                *best = if better { key } else { *best };
                *at = if better { i as u32 } else { *at };
            }
        }
    }
}

/// Where the most extreme element of a contiguous line is: every 64th element is one piece.
///
/// # Safety
/// The line must have `size ≥ 64` elements.
unsafe fn in_pieces<T: Ordered>(isa: Isa, how: How, first: *const T, size: usize) -> usize {
    let mut found = Found::<T::Key, PIECES>::new();
    let whole = size / PIECES * PIECES;
    let line = Line { first: first.cast_mut(), step: 1 };
    // SAFETY: the caller's promise.
    unsafe {
        find_columns(isa, how, (first, PIECES as isize, size / PIECES, PIECES), &mut found);
        let mut best: Option<(T::Key, usize)> = None;
        for (piece, (&key, &at)) in found.best.iter().zip(&found.at).enumerate() {
            let at = at as usize * PIECES + piece;
            let better = best.is_none_or(|(other, place)| {
                key > other || (key == other && if how.last { at > place } else { at < place })
            });
            if better {
                best = Some((key, at));
            }
        }
        one_by_one(how, &line, whole..size, best).1
    }
}

/// Where the most extreme element of a contiguous line of f32 is.
///
/// # Safety
/// The line must have `size ≥ 1` elements.
unsafe fn of_floats(isa: Isa, how: How, first: *const f32, size: usize) -> usize {
    let (mut extreme, line) = (0.0, Rows { x: first, step: 0, rows: 1, columns: size });
    let which = if how.smallest { Reduction::Min } else { Reduction::Max };
    // SAFETY: the caller's promise.
    unsafe { rows::reduce_rows(isa, which, line, &raw mut extreme, 1) };
    isa.run(Search { first, size, extreme, last: how.last })
}

/// The place of the first (or last) element of a line that is `extreme`, which one is; of the first NaN, if that is none.
struct Search {
    first: *const f32,
    size: usize,
    extreme: f32,
    last: bool,
}

/// Vectors that are looked at together.
const TOGETHER: usize = 4;

impl Kernel for Search {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> usize {
        const BLOCK: usize = TOGETHER * LANES;
        let mut at = if self.last { self.size } else { 0 };
        // Blocks without the element, from the end that it is nearest to.
        loop {
            let left = if self.last { at } else { self.size - at };
            if left < BLOCK {
                break;
            }
            let from = if self.last { at - BLOCK } else { at };
            let mut any = self.matches(s, from, LANES);
            for v in 1..TOGETHER {
                any |= self.matches(s, from + v * LANES, LANES);
            }
            if any != 0 {
                break;
            }
            at = if self.last { from } else { at + BLOCK };
        }
        while if self.last { at > 0 } else { at < self.size } {
            let lanes = if self.last { at } else { self.size - at }.min(LANES);
            let from = if self.last { at - lanes } else { at };
            let found = self.matches(s, from, lanes);
            if found != 0 {
                let lane = if self.last { found.ilog2() } else { found.trailing_zeros() };
                return from + lane as usize;
            }
            at = if self.last { from } else { at + lanes };
        }
        0
    }
}

impl Search {
    /// A bit for each of `lanes` elements from the `at`-th on that is the one.
    #[inline(always)]
    fn matches<S: Simd>(&self, s: S, at: usize, lanes: usize) -> u16 {
        // SAFETY: who searches promised the line, and at + lanes ≤ size.
        let x = unsafe { s.load_upto(self.first.wrapping_add(at), lanes) };
        let same = if self.extreme.is_nan() { s.is_nan(x) } else { s.eq(x, s.splat(self.extreme)) };
        s.mask_bits(same) & (u16::MAX >> (LANES - lanes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    /// What is found in pieces is what comparing one by one finds, on every instruction set.
    fn check<T: Ordered>(line: &mut [T]) {
        for how in [(false, false), (false, true), (true, false), (true, true)] {
            let how = How { smallest: how.0, last: how.1 };
            for size in [128, 129, 200, 1000] {
                let all = Line { first: line.as_mut_ptr(), step: 1 };
                // SAFETY: the line has 1000 elements.
                let want = unsafe { one_by_one(how, &all, 0..size, None) }.1;
                for isa in Isa::available() {
                    // SAFETY: as above.
                    let found = unsafe { in_pieces(isa, how, line.as_ptr(), size) };
                    assert_eq!(found, want, "{isa} {how:?} {size}");
                }
            }
        }
    }

    #[test]
    fn floats_are_found_as_one_by_one() {
        let mut rng = crate::testing::Rng::new(12);
        for round in 0..3000 {
            let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0];
            let mut line: Vec<f32> = (0..1 + rng.below(300))
                .map(|_| match rng.below(1 + round % 100) {
                    0 => odd[rng.below(odd.len())],
                    n => (n % 7) as f32 - 3.0,
                })
                .collect();
            let all = Line { first: line.as_mut_ptr(), step: 1 };
            for (smallest, last) in [(false, false), (false, true), (true, false), (true, true)] {
                let how = How { smallest, last };
                // SAFETY: the line has so many elements, and one at least.
                let want = unsafe { one_by_one(how, &all, 0..line.len(), None) }.1;
                for isa in Isa::available() {
                    // SAFETY: as above.
                    let found = unsafe { of_floats(isa, how, line.as_ptr(), line.len()) };
                    assert_eq!(found, want, "{isa} {how:?} {line:?}");
                }
            }
        }
    }

    #[test]
    fn pieces_find_the_first_and_the_last() {
        let value = |i: usize| ((i * 7919) % 100) as f32;
        let mut floats: Vec<f32> = (0..1000).map(value).collect();
        check(&mut floats);
        (floats[150], floats[700]) = (f32::NAN, f32::NAN);
        check(&mut floats);
        check(&mut (0..1000).map(|i| bf16::from_f32(value(i))).collect::<Vec<_>>());
        check(&mut (0..1000).map(|i| value(i) as u8).collect::<Vec<_>>());
        check(&mut (0..1000).map(|i| value(i) as i64 - 50).collect::<Vec<_>>());
    }
}
