//! Where elements are not zero: counted first, in blocks, so that each block knows where its places go; then written. Neither depends on
//! how many threads there are.

use std::ops::Range;

use rlx_ir::{DType, Dim, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::scalar::{Number, is_number, wrapping};
use super::{
    BindCx, CompileCx, Needs, RunCx, Shared, StepKernel, WORTH_NANOS, check_count, mismatch, no_kernel,
    unbound,
};
use crate::layout::{At, Layout};

/// Numbers and truth values.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let dtype = node.inputs.first().map_or(DType::C64, |&id| graph.shape(id).dtype());
    if is_number(dtype) {
        Claim::Native
    } else {
        Claim::No(format!("there is no kernel that counts {dtype}"))
    }
}

/// The kernel.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    match cx.node().op {
        Op::NonZero { count } => Ok(Box::new(NonZero { count, dtype: cx.step.inputs[0].dtype, plan: None })),
        ref op => Err(no_kernel(op, "it finds no places")),
    }
}

#[derive(Debug, Clone, Copy)]
struct NonZero {
    count: Dim,
    dtype: DType,
    plan: Option<Plan>,
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    x: At,
    layout: Layout,
    out: At,
    worth: bool,
}

/// Elements that are counted together.
const BLOCK: usize = 1 << 12;

/// Elements of a line that are looked at before their places are written.
const CHUNK: usize = 1 << 8;

impl StepKernel for NonZero {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, out) = (&cx.inputs[0], &cx.outputs[0]);
        if out.dims().first() != Some(&x.layout.rank()) {
            return Err(mismatch(format!("the places in {:?} are {:?}", x.dims(), out.dims())));
        }
        let elements = x.layout.elements();
        let nanos = elements as f64;
        let worth = nanos > WORTH_NANOS;
        self.plan = Some(Plan { x: x.at, layout: x.layout, out: out.at, worth });
        Ok(Needs { shared_scratch: elements.div_ceil(BLOCK) * size_of::<usize>(), ..Needs::time(nanos) })
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        // A truth value is a byte.
        let dtype = if self.dtype == DType::Bool { DType::U8 } else { self.dtype };
        // SAFETY: the caller's promise; the type is that of the input.
        cx.found = Some(unsafe { wrapping!(dtype, T => find::<T>(cx, plan, self.count)) }?);
        Ok(())
    }
}

/// Writes the places, dense for as many as there are; gives their number.
///
/// # Safety
/// As [`StepKernel::run`]: the input is readable and the result writable where they were bound, and the shared scratch has a word for each
/// block. `T` is the input's type.
unsafe fn find<T: Number>(cx: &mut RunCx<'_, '_>, plan: &Plan, declared: Dim) -> Result<usize> {
    let elements = plan.layout.elements();
    let blocks = elements.div_ceil(BLOCK);
    let block = |i: usize| i * BLOCK..((i + 1) * BLOCK).min(elements);
    let (x, starts) = (cx.shared::<T>(plan.x), Shared::new(cx.shared_scratch.cast::<usize>()));
    // What is dense is counted as one line.
    let counted = if plan.layout.is_dense() { Layout::dense(&[elements]) } else { plan.layout };
    cx.parallel(plan.worth, blocks, &|range, _| {
        for i in range {
            let mut found = 0;
            // SAFETY: the caller's promise: lines are within the input, and each block has a word.
            unsafe {
                lines(&counted, block(i), |_, line| found += line.count(x.get()));
                starts.get().add(i).write(found);
            }
        }
    });
    // SAFETY: all words were written.
    let sums = unsafe { std::slice::from_raw_parts_mut(starts.get(), blocks) };
    let mut count = 0;
    for start in sums {
        (*start, count) = (count, count + *start);
    }
    check_count(count, declared)?;
    if plan.layout.rank() == 0 {
        return Ok(count);
    }
    let out = cx.shared::<i64>(plan.out);
    cx.parallel(plan.worth, blocks, &|range, _| {
        for i in range {
            // Those of a block begin behind those of the blocks before it.
            // SAFETY: there are `count` places, as many as are declared, or there is room for all elements where that is open.
            unsafe {
                let mut next = *starts.get().add(i);
                lines(&plan.layout, block(i), |number, line| {
                    next = line.write(x.get(), &plan.layout, number, out.get(), count, next);
                });
            }
        }
    });
    Ok(count)
}

/// Runs `f` for what of each line of the innermost dimension is within `range`, with the line's number.
fn lines(layout: &Layout, range: Range<usize>, mut f: impl FnMut(usize, Line)) {
    let innermost = layout.rank().checked_sub(1);
    let (size, step) = innermost.map_or((1, 1), |i| (layout.dims()[i], layout.strides()[i]));
    let mut at = range.start;
    while at < range.end {
        let (number, first) = (at / size, at % size);
        let n = (size - first).min(range.end - at);
        f(number, Line { at: layout.outer_at(number), step, places: first..first + n });
        at += n;
    }
}

/// Some neighbouring places of a line, which begins at `at` and whose elements are `step` apart.
struct Line {
    at: isize,
    step: isize,
    places: Range<usize>,
}

impl Line {
    /// Whether the element at a place is not zero.
    ///
    /// # Safety
    /// It must be readable.
    #[inline(always)]
    unsafe fn there<T: Number>(&self, x: *const T, place: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { *x.wrapping_offset(self.at + place as isize * self.step) != T::from_count(0) }
    }

    /// How many elements are not zero.
    ///
    /// # Safety
    /// All must be readable.
    unsafe fn count<T: Number>(&self, x: *const T) -> usize {
        if self.step != 1 {
            // SAFETY: the caller's promise.
            return self.places.clone().filter(|&i| unsafe { self.there(x, i) }).count();
        }
        let first = x.wrapping_offset(self.at + self.places.start as isize);
        // SAFETY: the caller's promise: elements one apart are a slice.
        let elements = unsafe { std::slice::from_raw_parts(first, self.places.len()) };
        let zero = T::from_count(0);
        // So few that a byte holds their number: bytes are counted in vectors.
        let few = |part: &[T]| part.iter().map(|&x| u8::from(x != zero)).sum::<u8>();
        elements.chunks(128).map(|part| usize::from(few(part))).sum()
    }

    /// Writes the places of elements that are not zero from number `next` of `count` places on; gives the number behind them.
    ///
    /// # Safety
    /// All elements must be readable, and the numbers of the places writable in every dimension.
    unsafe fn write<T: Number>(
        &self,
        x: *const T,
        layout: &Layout,
        number: usize,
        out: *mut i64,
        count: usize,
        mut next: usize,
    ) -> usize {
        let (from, last) = (next, layout.rank() - 1);
        let mut found = [0i64; CHUNK];
        for first in self.places.clone().step_by(CHUNK) {
            let mut n = 0;
            for place in first..self.places.end.min(first + CHUNK) {
                // Written in any case, and kept where it counts: no branch depends on the data.
                found[n % CHUNK] = place as i64;
                // SAFETY: the caller's promise.
                n += usize::from(unsafe { self.there(x, place) });
            }
            // SAFETY: the caller's promise; so many were counted.
            unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), out.add(last * count + next), n) };
            next += n;
        }
        let mut rest = number;
        for axis in (0..last).rev() {
            let size = layout.dims()[axis];
            // SAFETY: as above.
            unsafe { std::slice::from_raw_parts_mut(out.add(axis * count + from), next - from) }
                .fill((rest % size) as i64);
            rest /= size;
        }
        next
    }
}
