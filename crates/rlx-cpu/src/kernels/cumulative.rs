//! Running sums, products, maxima and minima along an axis: one chain for each line, in order.
//!
//! Lines that are neighbours in memory are joined in vectors, as many at a time as their results so far stay in the first cache,
//! so that memory is read and written in long runs, and what follows is fetched meanwhile. Contiguous lines are transposed some elements at a time, which makes neighbours of them.

use std::marker::PhantomData;

use rlx_ir::op::ReduceOp;
use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::elementwise::sized;
use super::lines::Lines;
use super::scalar::{Number, is_number, number};
use super::transpose::{Band, ONE_GROUP, transpose};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};
use crate::stores::{LINE, Stores};

/// The most neighbouring lines that are joined side by side: runs of memory long enough to be fetched ahead, while the results
/// so far (eight bytes of each line) take a half of the first cache.
const BLOCK: usize = 2048;

/// Elements of each of the neighbouring lines that are joined in one pass over the results so far, where runs of memory are short.
const ROWS: usize = 8;

/// Bytes of long runs of memory. Within them one element of each line after the other is joined, which is one stream to read and one to
/// write. Where threads had shorter runs side by side, that took up to half as long again as [`ROWS`] at a time (1 MB, two threads).
const LONG: usize = 4096;

/// Elements of each contiguous line that are transposed at a time: two copies of those of [`LANES`] lines stay in the first cache.
const STAGED: usize = 64;

/// Other lines that are joined in turn, so that none waits for its last result.
const AT_ONCE: usize = 8;

/// Numbers and truth values can be joined.
pub(crate) fn claim(node: &Node, _: &Graph) -> Claim {
    let dtype = node.shape.dtype();
    if is_number(dtype) { Claim::Native } else { Claim::No(format!("{dtype} is not joined along an axis")) }
}

/// The kernel of running results.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let dtype = cx.step.inputs[0].dtype;
    match cx.node().op {
        Op::Cumulative {
            op: op @ (ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min),
            axis,
            exclusive,
            reverse,
        } => Ok(Box::new(Cumulative { op, axis, exclusive, reverse, dtype, plan: None })),
        ref op => Err(no_kernel(op, "it has no running results")),
    }
}

#[derive(Debug, Clone, Copy)]
struct Cumulative {
    op: ReduceOp,
    axis: usize,
    exclusive: bool,
    reverse: bool,
    dtype: DType,
    plan: Option<Plan>,
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    from: Lines,
    to: Lines,
    /// How lines that are neighbours are stored.
    stores: Stores,
    worth: bool,
}

/// How the lines of a step are joined.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    /// Lines that follow each other are neighbours in memory, and enough of them for vectors.
    Neighbours,
    /// Each line is contiguous, there are enough for vectors, and vectors transpose them.
    Contiguous,
    Other,
}

impl Plan {
    /// How lines with elements of `size` bytes are joined.
    fn form(&self, size: usize) -> Form {
        let both = |of: fn(&Lines) -> isize| of(&self.from) == 1 && of(&self.to) == 1;
        match self.from.row() {
            row if row > AT_ONCE && both(Lines::line_step) => Form::Neighbours,
            row if row >= AT_ONCE && size <= 4 && both(|lines| lines.step) => Form::Contiguous,
            _ => Form::Other,
        }
    }

    /// The scratch that a thread needs, for elements of `size` bytes and results so far of `wide`.
    fn scratch(&self, size: usize, wide: usize) -> usize {
        match self.form(size) {
            Form::Neighbours => BLOCK * wide,
            Form::Contiguous => LANES * (wide + 2 * STAGED * size),
            Form::Other => 0,
        }
    }
}

impl StepKernel for Cumulative {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, out) = (&cx.inputs[0], &cx.outputs[0]);
        if x.dims() != out.dims() {
            return Err(mismatch(format!("running results {:?} of {:?}", out.dims(), x.dims())));
        }
        let nanos = x.layout.elements() as f64 * 0.5;
        let [from, to] = Lines::pair(x, out, self.axis)?;
        let bytes = x.layout.elements() * self.dtype.size_bytes();
        // What is written over the operand is in the caches.
        let stores = if x.at == out.at { Stores::Cached } else { Stores::of_rows(bytes) };
        let plan = Plan { from, to, stores, worth: nanos > WORTH_NANOS };
        self.plan = Some(plan);
        let thread_scratch =
            number!(self.dtype, T => plan.scratch(size_of::<T>(), size_of::<<T as Number>::Wide>()));
        Ok(Needs { thread_scratch, ..Needs::time(nanos) })
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        // SAFETY: the caller's promise; the type is that of the input.
        unsafe { number!(self.dtype, T => self.run_as::<T>(cx, plan)) };
        Ok(())
    }
}

/// How two running results become one.
trait Join<T: Number> {
    /// The result of nothing.
    const FIRST: T::Wide;
    fn join(a: T::Wide, b: T::Wide) -> T::Wide;
}

macro_rules! joins {
    ($($name:ident: $first:ident, $join:ident;)*) => {$(
        struct $name;
        impl<T: Number> Join<T> for $name {
            const FIRST: T::Wide = T::$first;
            #[inline(always)]
            fn join(a: T::Wide, b: T::Wide) -> T::Wide {
                T::$join(a, b)
            }
        }
    )*};
}
joins! {
    Sum: ZERO, add;
    Product: ONE, mul;
    Largest: LOWEST, max;
    Smallest: HIGHEST, min;
}

/// `width` lines of `size` elements, at equal distances.
#[derive(Clone, Copy)]
struct Together<T> {
    from: *const T,
    to: *mut T,
    width: usize,
    /// From a line to the next one.
    from_line: isize,
    to_line: isize,
    size: usize,
    /// From an element of a line to the next one.
    from_step: isize,
    to_step: isize,
}

impl<T: Number> Together<T> {
    /// Whether lines that are neighbours begin at a line of memory, and the next element of each at another.
    fn has_whole_lines(&self) -> bool {
        let to_next = self.to_step.unsigned_abs() * size_of::<T>();
        self.to.align_offset(LINE) == 0 && to_next.is_multiple_of(LINE)
    }

    /// Elements `first` to `first + R` of lines that are neighbours; whole vectors of results are stored past the caches, if `PAST`.
    ///
    /// # Safety
    /// The elements must be there, readable, and not written meanwhile; there must be room for the results, which no one else uses meanwhile. If they are stored
    /// past the caches, [`Together::has_whole_lines`], and no one reads them before [`fence`](crate::stores::fence).
    #[inline(always)]
    unsafe fn join_rows<S: Simd, J: Join<T>, const R: usize, const EXCLUSIVE: bool, const PAST: bool>(
        &self,
        s: S,
        so_far: &mut [T::Wide],
        first: usize,
    ) {
        let whole = so_far.len() - so_far.len() % LANES;
        let (vectors, rest) = so_far.split_at_mut(whole);
        for (block, so_far) in vectors.chunks_exact_mut(LANES).enumerate() {
            if const { R == 1 } {
                // The next row of what is read and of what is written: without, 16 MB took 1.2 to 1.4 times as long.
                let (line, next) = (block * LANES, first as isize + 1);
                s.prefetch_l1(self.from.wrapping_add(line).wrapping_offset(next * self.from_step).cast());
                if !PAST {
                    let to = self.to.wrapping_add(line).wrapping_offset(next * self.to_step);
                    s.prefetch_l1(to.cast_const().cast());
                }
            }
            // SAFETY: the caller's promise; there are so many lines.
            unsafe { self.join_block::<S, J, R, LANES, EXCLUSIVE, PAST>(s, so_far, first, block * LANES) };
        }
        for (j, so_far) in rest.iter_mut().enumerate() {
            // SAFETY: as above.
            unsafe {
                let so_far = std::slice::from_mut(so_far);
                self.join_block::<S, J, R, 1, EXCLUSIVE, false>(s, so_far, first, whole + j);
            }
        }
    }

    /// [`join_rows`](Together::join_rows) of `N` lines from `line` on. What is read is read before anything is written: a
    /// processor that compares the low bits of addresses alone makes a row wait for a write to the row before, where rows are a multiple
    /// of 4 KiB apart.
    ///
    /// # Safety
    /// As [`Together::join_rows`]; there must be so many lines.
    #[inline(always)]
    unsafe fn join_block<
        S: Simd,
        J: Join<T>,
        const R: usize,
        const N: usize,
        const EXCLUSIVE: bool,
        const PAST: bool,
    >(
        &self,
        s: S,
        so_far: &mut [T::Wide],
        first: usize,
        line: usize,
    ) {
        let mut x = [[T::narrow(J::FIRST); N]; R];
        for (r, x) in x.iter_mut().enumerate() {
            let from = self.from.wrapping_offset((first + r) as isize * self.from_step).wrapping_add(line);
            // SAFETY: the caller's promise.
            *x = unsafe { from.cast::<[T; N]>().read() };
        }
        // A copy, which stays in registers: results are written between.
        let mut joined = [J::FIRST; N];
        joined.copy_from_slice(so_far);
        for (r, x) in x.iter_mut().enumerate() {
            for (x, so_far) in x.iter_mut().zip(&mut joined) {
                let next = J::join(*so_far, x.widen());
                *x = T::narrow(if EXCLUSIVE { *so_far } else { next });
                *so_far = next;
            }
            let to = self.to.wrapping_offset((first + r) as isize * self.to_step).wrapping_add(line);
            // SAFETY: the caller's promise.
            unsafe {
                if const { N * size_of::<T>() == LINE } && PAST {
                    s.store_non_temporal(to.cast(), s.load(x.as_ptr().cast()));
                } else {
                    to.cast::<[T; N]>().write(*x);
                }
            }
        }
        so_far.copy_from_slice(&joined);
    }

    /// The running results of [`AT_ONCE`] lines or fewer, element by element, so that no line waits for itself.
    ///
    /// # Safety
    /// The elements must be readable and writable, and the lines apart.
    #[inline(always)]
    unsafe fn run<J: Join<T>>(self, exclusive: bool) {
        let mut so_far = [J::FIRST; AT_ONCE];
        let (mut from, mut to) = (self.from, self.to);
        for _ in 0..self.size {
            for (j, so_far) in so_far.iter_mut().enumerate().take(self.width) {
                // SAFETY: the caller's promise.
                unsafe {
                    let x = *from.wrapping_offset(j as isize * self.from_line);
                    let next = J::join(*so_far, x.widen());
                    let out = if exclusive { *so_far } else { next };
                    *to.wrapping_offset(j as isize * self.to_line) = T::narrow(out);
                    *so_far = next;
                }
            }
            (from, to) = (from.wrapping_offset(self.from_step), to.wrapping_offset(self.to_step));
        }
    }
}

/// As [`Together::run`] of up to [`BLOCK`] lines that are neighbours, in vectors.
struct Neighbours<T: Number, J> {
    lines: Together<T>,
    exclusive: bool,
    /// Whether one element of each line is joined after the other, or [`ROWS`] in one pass.
    by_rows: bool,
    stores: Stores,
    /// The result of each line before these elements, and behind them afterwards.
    so_far: *mut T::Wide,
    join: PhantomData<J>,
}

impl<T: Number, J: Join<T>> Kernel for Neighbours<T, J> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let past = self.stores == Stores::NonTemporal && self.lines.has_whole_lines();
        // SAFETY: who runs this was promised the elements and the results; past the caches, they begin at lines of memory.
        unsafe {
            if const { LANES * size_of::<T>() == LINE } && past {
                self.all::<S, true>(s);
            } else {
                self.all::<S, false>(s);
            }
        }
    }
}

impl<T: Number, J: Join<T>> Neighbours<T, J> {
    /// Joins all elements.
    ///
    /// # Safety
    /// As [`Together::join_rows`], of operands that are apart; there must be a result so far of each line.
    #[inline(always)]
    unsafe fn all<S: Simd, const PAST: bool>(&self, s: S) {
        let lines = self.lines;
        // SAFETY: the caller's promise.
        let so_far = unsafe { std::slice::from_raw_parts_mut(self.so_far, lines.width) };
        let rows = if self.by_rows { 0 } else { lines.size - lines.size % ROWS };
        // SAFETY: the caller's promise.
        unsafe {
            for i in (0..rows).step_by(ROWS) {
                if self.exclusive {
                    lines.join_rows::<S, J, ROWS, true, PAST>(s, so_far, i);
                } else {
                    lines.join_rows::<S, J, ROWS, false, PAST>(s, so_far, i);
                }
            }
            for i in rows..lines.size {
                if self.exclusive {
                    lines.join_rows::<S, J, 1, true, PAST>(s, so_far, i);
                } else {
                    lines.join_rows::<S, J, 1, false, PAST>(s, so_far, i);
                }
            }
        }
    }
}

/// Up to [`BLOCK`] lines that are neighbours.
///
/// # Safety
/// As [`Together::run`]; `scratch` must have room for a result of each line.
unsafe fn neighbours<T: Number, J: Join<T>>(
    isa: Isa,
    lines: Together<T>,
    (exclusive, by_rows): (bool, bool),
    stores: Stores,
    scratch: *mut T::Wide,
) {
    // SAFETY: the caller's promise.
    unsafe { (0..lines.width).for_each(|j| scratch.add(j).write(J::FIRST)) };
    isa.run(Neighbours::<T, J> { lines, exclusive, by_rows, stores, so_far: scratch, join: PhantomData });
}

/// Up to [`LANES`] contiguous lines: [`STAGED`] elements of each are transposed into scratch, joined there, and transposed into
/// the result.
///
/// # Safety
/// As [`Together::run`]; `scratch` must have room for what [`Plan::scratch`] says.
unsafe fn contiguous<T: Number, J: Join<T>>(
    isa: Isa,
    lines: Together<T>,
    exclusive: bool,
    scratch: *mut T::Wide,
) {
    let taken = scratch.wrapping_add(LANES).cast::<T>();
    let joined = taken.wrapping_add(LANES * STAGED);
    // SAFETY: the caller's promise.
    unsafe { (0..lines.width).for_each(|j| scratch.add(j).write(J::FIRST)) };
    let mut done = 0;
    while done < lines.size {
        let size = STAGED.min(lines.size - done);
        let backwards = lines.from_step < 0;
        // The lowest of these elements in memory, and the first one in scratch.
        let lowest = if backwards { -((done + size - 1) as isize) } else { done as isize };
        let (first, step) =
            if backwards { ((size - 1) * LANES, -(LANES as isize)) } else { (0, LANES as isize) };
        let (from, to) = (taken.wrapping_add(first).cast_const(), joined.wrapping_add(first));
        let width = lines.width;
        let there =
            Together { from, to, width, from_line: 1, to_line: 1, size, from_step: step, to_step: step };
        let (source, result) = (lines.from.wrapping_offset(lowest), lines.to.wrapping_offset(lowest));
        let (row, group) = (LANES as isize, ONE_GROUP);
        sized!(size_of::<T>(), U => {
            let (from, to) = (source.cast::<U>(), taken.cast::<U>());
            let band = Band { from, from_column: lines.from_line, group, to, to_row: row, height: size, width };
            // SAFETY: the caller's promise; scratch has room for the elements.
            unsafe { transpose(isa, band) };
            let by_rows = false;
            let (stores, join) = (Stores::Cached, PhantomData);
            isa.run(Neighbours::<T, J> { lines: there, exclusive, by_rows, stores, so_far: scratch, join });
            let (from, to) = (joined.cast::<U>().cast_const(), result.cast::<U>());
            let (height, width) = (width, size);
            // SAFETY: as above.
            unsafe { transpose(isa, Band { from, from_column: row, group, to, to_row: lines.to_line, height, width }) };
        });
        done += size;
    }
}

impl Cumulative {
    unsafe fn run_as<T: Number>(&self, cx: &mut RunCx<'_, '_>, plan: &Plan) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.op {
                ReduceOp::Prod => self.join::<T, Product>(cx, plan),
                ReduceOp::Max => self.join::<T, Largest>(cx, plan),
                ReduceOp::Min => self.join::<T, Smallest>(cx, plan),
                _ => self.join::<T, Sum>(cx, plan),
            }
        }
    }

    /// Lines that are neighbours in memory are joined in blocks, others a few at a time; in any case each line is one chain.
    ///
    /// # Safety
    /// As [`StepKernel::run`]; `T` must be the type of operand and result.
    unsafe fn join<T: Number, J: Join<T>>(&self, cx: &mut RunCx<'_, '_>, plan: &Plan) {
        let (x, out, p) = (cx.shared::<T>(plan.from.at), cx.shared::<T>(plan.to.at), *plan);
        let (from_line, to_line) = (p.from.line_step(), p.to.line_step());
        let (row, exclusive, reverse, isa) = (p.from.row(), self.exclusive, self.reverse, cx.isa);
        let rows = p.from.count.checked_div(row).unwrap_or(0);
        let form = p.form(size_of::<T>());
        let most = match form {
            Form::Neighbours => cx.share(p.worth, rows, row, BLOCK, LANES),
            Form::Contiguous => LANES,
            Form::Other => AT_ONCE,
        };
        let by_rows = most * size_of::<T>() >= LONG || cx.threads(p.worth) == 1;
        let blocks = row.div_ceil(most).max(1);
        let sign = if reverse { -1 } else { 1 };
        cx.parallel_stores(p.worth, p.stores, rows * blocks, &|range, scratch| {
            for unit in range {
                let start = unit % blocks * most;
                let line = unit / blocks * row + start;
                let end = if reverse { p.from.size.saturating_sub(1) as isize } else { 0 };
                let lines = Together {
                    from: x.get().wrapping_offset(p.from.start(line) + end * p.from.step).cast_const(),
                    to: out.get().wrapping_offset(p.to.start(line) + end * p.to.step),
                    width: most.min(row - start),
                    from_line,
                    to_line,
                    size: p.from.size,
                    from_step: p.from.step * sign,
                    to_step: p.to.step * sign,
                };
                // SAFETY: the caller's promise; lines are disjoint, and there is as much scratch as the form needs.
                unsafe {
                    match form {
                        Form::Neighbours => {
                            neighbours::<T, J>(isa, lines, (exclusive, by_rows), p.stores, scratch.cast())
                        }
                        Form::Contiguous => contiguous::<T, J>(isa, lines, exclusive, scratch.cast()),
                        Form::Other if lines.width == AT_ONCE => {
                            Together { width: AT_ONCE, ..lines }.run::<J>(exclusive);
                        }
                        Form::Other => lines.run::<J>(exclusive),
                    }
                }
            }
        });
    }
}
