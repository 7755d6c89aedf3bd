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

/// The most lines that are compared side by side: runs of memory long enough to be fetched ahead.
const BLOCK: usize = 1024;

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
            let mut found = Found::<T::Key, BLOCK>::new();
            for unit in range {
                let start = unit % blocks * block;
                let line = unit / blocks * row + start;
                let first = x.get().wrapping_offset(lines.start(line)).cast_const();
                // SAFETY: the caller's promise; a line is not empty, each result is written once.
                unsafe {
                    let out = out.get().add(line);
                    if neighbours {
                        let n = block.min(row - start);
                        find_neighbours(isa, how, self.dtype, (first, lines.step, lines.size, n), &mut found);
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

/// Elements of each line that are compared before what was found is written.
const ROWS: usize = 4;

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

/// As [`find_columns`], of `dtype`: f32 as they are, unless one of them is NaN.
///
/// # Safety
/// As [`find_columns`]; `T` must be the elements' type.
unsafe fn find_neighbours<T: Ordered, const N: usize>(
    isa: Isa,
    how: How,
    dtype: DType,
    (first, step, size, width): (*const T, isize, usize, usize),
    found: &mut Found<T::Key, N>,
) {
    if dtype == DType::F32 {
        let (best, at) = (found.best.as_mut_ptr().cast(), found.at.as_mut_ptr().cast());
        let How { smallest, last } = how;
        let (first, width) = (first.cast(), width.min(N));
        if isa.run(FloatColumns { smallest, last, first, step, size, width, best, at }) {
            return;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { find_columns(isa, how, (first, step, size, width), found) }
}

impl<T: Ordered, const N: usize> Kernel for Columns<'_, T, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        // SAFETY: `find_columns` was promised the elements.
        unsafe { if self.how.last { self.all::<true>() } else { self.all::<false>() } }
    }
}

impl<T: Ordered, const N: usize> Columns<'_, T, N> {
    /// Places are counted from the beginning of a piece of all lines, so that they fit the lanes of keys: what pieces found is then
    /// compared.
    ///
    /// # Safety
    /// As [`find_columns`].
    #[inline(always)]
    unsafe fn all<const LAST: bool>(self) {
        let n = self.width.min(N);
        let (mut keys, mut places) = ([T::Key::NONE; N], [T::Key::near(0); N]);
        let (keys, places) = (&mut keys[..n], &mut places[..n]);
        let (best, at) = (&mut self.found.best[..n], &mut self.found.at[..n]);
        let mut start = 0;
        while start < self.size {
            let size = T::Key::NEAR.min(self.size - start);
            let first = self.first.wrapping_offset(start as isize * self.step);
            // SAFETY: the caller's promise.
            unsafe { piece::<T, LAST>(turn(self.how), (first, self.step, size), keys, places) };
            for (((best, at), &key), &place) in best.iter_mut().zip(at.iter_mut()).zip(&*keys).zip(&*places) {
                if (start == 0) | beats::<_, LAST>(key, *best) {
                    (*best, *at) = (key, start as u32 + place.into() as u32);
                }
            }
            start += size;
        }
    }
}

/// Whether a key is to be taken instead of the best one before it.
#[inline(always)]
fn beats<K: Key, const LAST: bool>(key: K, best: K) -> bool {
    if LAST { key >= best } else { key > best }
}

/// Element `i` of `n` lines.
///
/// # Safety
/// The lines must have it, for as long as it is used.
#[inline(always)]
unsafe fn row<'a, T>(first: *const T, step: isize, i: usize, n: usize) -> &'a [T] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(first.wrapping_offset(i as isize * step), n) }
}

/// Compares the elements `(first, step, size)` of as many lines as there are keys, at most as many as have places.
///
/// # Safety
/// The lines must have these elements, and at least one each.
#[inline(always)]
unsafe fn piece<T: Ordered, const LAST: bool>(
    turn: T::Key,
    (first, step, size): (*const T, isize, usize),
    keys: &mut [T::Key],
    places: &mut [<T::Key as Key>::Near],
) {
    let n = keys.len();
    // SAFETY: the caller's promise.
    unsafe {
        for ((key, place), &x) in keys.iter_mut().zip(places.iter_mut()).zip(row(first, step, 0, n)) {
            (*key, *place) = (wanted(x, turn), T::Key::near(0));
        }
        let whole = (size - 1) / ROWS * ROWS + 1;
        for i in (1..whole).step_by(ROWS) {
            let mut rows = [row(first, step, i, n); ROWS];
            for (r, row_of) in rows.iter_mut().enumerate() {
                *row_of = row(first, step, i + r, n);
            }
            for (j, (key, place)) in keys.iter_mut().zip(places.iter_mut()).enumerate() {
                let (mut best, mut at) = (*key, *place);
                for (r, row) in rows.iter().enumerate() {
                    let key = wanted(*row.get_unchecked(j), turn);
                    let better = beats::<_, LAST>(key, best);
                    best = if better { key } else { best };
                    at = if better { T::Key::near(i + r) } else { at };
                }
                (*key, *place) = (best, at);
            }
        }
        for i in whole..size {
            for ((best, place), &x) in keys.iter_mut().zip(places.iter_mut()).zip(row(first, step, i, n)) {
                let key = wanted(x, turn);
                let better = beats::<_, LAST>(key, *best);
                *best = if better { key } else { *best };
                *place = if better { T::Key::near(i) } else { *place };
            }
        }
    }
}

/// Neighbouring lines of f32, and what was found in each: the bits of the element, and of its number.
struct FloatColumns {
    smallest: bool,
    /// Of equal elements the last.
    last: bool,
    first: *const f32,
    step: isize,
    size: usize,
    width: usize,
    best: *mut f32,
    at: *mut f32,
}

impl Kernel for FloatColumns {
    /// Whether there is no NaN among them, nor infinities of both signs; otherwise nothing was found.
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> bool {
        // SAFETY: who runs the kernel was promised the elements, and has room for what is found.
        unsafe { if self.last { self.all::<S, true>(s) } else { self.all::<S, false>(s) } }
    }
}

impl FloatColumns {
    /// # Safety
    /// The lines must have these elements, at least one each, and `best` and `at` room for one of each line.
    #[inline(always)]
    unsafe fn all<S: Simd, const LAST: bool>(&self, s: S) -> bool {
        let mut odd = s.lt(s.zero(), s.zero());
        let mut i = 0;
        while i < self.size {
            let whole = i > 0 && self.size - i >= ROWS;
            for j in (0..self.width).step_by(LANES) {
                // SAFETY: the caller's promise.
                let sum = unsafe {
                    if whole { self.join::<S, LAST, ROWS>(s, i, j) } else { self.join::<S, LAST, 1>(s, i, j) }
                };
                odd = s.mask_or(odd, s.is_nan(sum));
            }
            i += if whole { ROWS } else { 1 };
        }
        s.mask_bits(odd) == 0
    }

    /// Joins the elements from number `i` on of sixteen lines or fewer, from number `j` on, to what was found in them; the sum of these
    /// elements, NaN if one of them is.
    ///
    /// # Safety
    /// As [`FloatColumns::all`].
    #[inline(always)]
    unsafe fn join<S: Simd, const LAST: bool, const R: usize>(&self, s: S, i: usize, j: usize) -> S::F {
        let n = LANES.min(self.width - j);
        let (best_to, at_to) = (self.best.wrapping_add(j), self.at.wrapping_add(j));
        let first = self.first.wrapping_add(j).wrapping_offset(i as isize * self.step);
        // SAFETY: the caller's promise.
        unsafe {
            let mut sum = s.load_upto(first, n);
            let (mut best, mut at) = (sum, s.zero());
            if i > 0 {
                (best, at) = (s.load_upto(best_to, n), s.load_upto(at_to, n));
            }
            for r in 0..R {
                let x = s.load_upto(first.wrapping_offset(r as isize * self.step), n);
                let (low, high) = if self.smallest { (x, best) } else { (best, x) };
                let better = if LAST { s.le(low, high) } else { s.lt(low, high) };
                best = s.select(better, x, best);
                at = s.select(better, s.from_bits(s.splat_i((i + r) as i32)), at);
                sum = if r == 0 { sum } else { s.add(sum, x) };
            }
            s.store_upto(best_to, n, best);
            s.store_upto(at_to, n, at);
            sum
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

    /// What is found in neighbouring lines is what comparing one by one finds: lines longer than bytes count, and widths of no whole vector.
    fn check_neighbours<T: Ordered>(dtype: DType, element: impl Fn(usize) -> T) {
        for (size, width) in [(1, 9), (2, 16), (5, 33), (254, 8), (255, 17), (256, 8), (257, 40), (700, 70)] {
            let mut all: Vec<T> = (0..size * width).map(&element).collect();
            for (smallest, last) in [(false, false), (false, true), (true, false), (true, true)] {
                let how = How { smallest, last };
                let line = |first| Line { first, step: width as isize };
                // SAFETY: each line has so many elements.
                let of = |x: &mut T| unsafe { one_by_one(how, &line(x), 0..size, None) }.1 as u32;
                let want: Vec<u32> = all[..width].iter_mut().map(of).collect();
                for isa in Isa::available() {
                    let mut found = Found::<T::Key, BLOCK>::new();
                    // SAFETY: as above, and of f32 if `dtype` says so.
                    unsafe {
                        find_neighbours(
                            isa,
                            how,
                            dtype,
                            (all.as_ptr(), width as isize, size, width),
                            &mut found,
                        );
                    }
                    assert_eq!(found.at[..width], want, "{isa} {dtype} {how:?} {size} by {width}");
                }
            }
        }
    }

    #[test]
    fn neighbouring_lines_find_the_first_and_the_last() {
        // Few values, so that extremes are equal; runs of them, so that some are in later pieces alone.
        let value = |i: usize| (i * 7919 % 13 + i / 3001 % 2) as u8;
        check_neighbours(DType::U8, value);
        check_neighbours(DType::U8, |_| 200u8);
        check_neighbours(DType::I8, |i| value(i) as i8 - 6);
        check_neighbours(DType::BF16, |i| bf16::from_f32(f32::from(value(i)) - 6.0));
        check_neighbours(DType::I64, |i| i64::from(value(i)) - 6);
        check_neighbours(DType::F32, |i| f32::from(value(i)) - 6.0);
        check_neighbours(DType::F32, |i| if i % 2 == 0 { 0.0f32 } else { -0.0 });
        let infinite = [f32::INFINITY, f32::NEG_INFINITY, 1.0];
        check_neighbours(DType::F32, |i| infinite[usize::from(value(i)) % 3]);
        let odd = |i: usize| if i % 97 == 40 { f32::NAN } else { f32::from(value(i)) };
        check_neighbours(DType::F32, odd);
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
