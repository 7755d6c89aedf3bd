//! Running sums, products, maxima and minima along an axis: one chain for each line, in order.

use std::marker::PhantomData;

use rlx_ir::op::ReduceOp;
use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::lines::Lines;
use super::scalar::{Number, is_number, number};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::isa::Kernel;
use crate::simd::Simd;

/// Lines that are neighbours in memory and joined side by side.
const BLOCK: usize = 256;

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
    worth: bool,
}

impl StepKernel for Cumulative {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, out) = (&cx.inputs[0], &cx.outputs[0]);
        if x.dims() != out.dims() {
            return Err(mismatch(format!("running results {:?} of {:?}", out.dims(), x.dims())));
        }
        let nanos = x.layout.elements() as f64 * 0.5;
        let [from, to] = Lines::pair(x, out, self.axis)?;
        self.plan = Some(Plan { from, to, worth: nanos > WORTH_NANOS });
        Ok(Needs::time(nanos))
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
struct Neighbours<T, J> {
    lines: Together<T>,
    exclusive: bool,
    join: PhantomData<J>,
}

impl<T: Number, J: Join<T>> Kernel for Neighbours<T, J> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let lines = self.lines;
        let mut all = [J::FIRST; BLOCK];
        let so_far = &mut all[..lines.width.min(BLOCK)];
        for i in 0..lines.size as isize {
            let (from, to) = (
                lines.from.wrapping_offset(i * lines.from_step),
                lines.to.wrapping_offset(i * lines.to_step),
            );
            // SAFETY: the caller of `run` promised the elements, of operands that are apart.
            let (from, to) = unsafe {
                (
                    std::slice::from_raw_parts(from, so_far.len()),
                    std::slice::from_raw_parts_mut(to, so_far.len()),
                )
            };
            if self.exclusive {
                for ((so_far, &x), out) in so_far.iter_mut().zip(from).zip(to) {
                    *out = T::narrow(*so_far);
                    *so_far = J::join(*so_far, x.widen());
                }
            } else {
                for ((so_far, &x), out) in so_far.iter_mut().zip(from).zip(to) {
                    *so_far = J::join(*so_far, x.widen());
                    *out = T::narrow(*so_far);
                }
            }
        }
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

    /// Lines that are neighbours in memory are joined in blocks, others a few at a time; in either case each line is one chain.
    ///
    /// # Safety
    /// As [`StepKernel::run`]; `T` must be the type of operand and result.
    unsafe fn join<T: Number, J: Join<T>>(&self, cx: &mut RunCx<'_, '_>, plan: &Plan) {
        let (x, out, p) = (cx.shared::<T>(plan.from.at), cx.shared::<T>(plan.to.at), *plan);
        let (from_line, to_line) = (p.from.line_step(), p.to.line_step());
        let neighbours = from_line == 1 && to_line == 1;
        let most = if neighbours { BLOCK } else { AT_ONCE };
        let (row, exclusive, reverse, isa) = (p.from.row(), self.exclusive, self.reverse, cx.isa);
        let blocks = row.div_ceil(most).max(1);
        let sign = if reverse { -1 } else { 1 };
        cx.parallel(p.worth, p.from.count.checked_div(row).unwrap_or(0) * blocks, &|range, _| {
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
                // SAFETY: the caller's promise; lines are disjoint.
                unsafe {
                    if neighbours {
                        isa.run(Neighbours::<T, J> { lines, exclusive, join: PhantomData });
                    } else if lines.width == AT_ONCE {
                        Together { width: AT_ONCE, ..lines }.run::<J>(exclusive);
                    } else {
                        lines.run::<J>(exclusive);
                    }
                }
            }
        });
    }
}
