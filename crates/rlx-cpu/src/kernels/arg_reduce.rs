//! Where the extreme elements along an axis are.
//!
//! NaN is more extreme than any number. Elements are compared as integers in their order ([`Ordered`]), many lines side by
//! side: lines that are neighbours in memory, or the pieces of one contiguous line. Of equal elements the first (or last) one
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
use crate::simd::LANES;

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
    fn run<S: crate::simd::Simd>(self, _: S) {
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
