//! Running sums, products, maxima and minima along an axis: one chain for each line, in order.

use rlx_ir::op::ReduceOp;
use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::lines::{Line, Lines};
use super::scalar::{Number, is_number, number};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};

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
        let nanos = x.layout.elements() as f64 * 1.5;
        let (from, to) = (Lines::new(x, self.axis)?, Lines::new(out, self.axis)?);
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

impl Cumulative {
    unsafe fn run_as<T: Number>(&self, cx: &mut RunCx<'_, '_>, plan: &Plan) {
        // A function that is called: one loop for each type serves all of them.
        type Join<W> = fn(W, W) -> W;
        let (first, join): (T::Wide, Join<T::Wide>) = match self.op {
            ReduceOp::Prod => (T::ONE, T::mul),
            ReduceOp::Max => (T::LOWEST, T::max),
            ReduceOp::Min => (T::HIGHEST, T::min),
            _ => (T::ZERO, T::add),
        };
        let (x, out, p) = (cx.shared::<T>(plan.from.at), cx.shared::<T>(plan.to.at), *plan);
        let (exclusive, reverse) = (self.exclusive, self.reverse);
        cx.parallel(p.worth, p.from.count, &|range, _| {
            for i in range {
                let from = Line { first: x.get().wrapping_offset(p.from.start(i)), step: p.from.step };
                let to = Line { first: out.get().wrapping_offset(p.to.start(i)), step: p.to.step };
                let mut so_far = first;
                for i in 0..p.from.size {
                    let i = if reverse { p.from.size - 1 - i } else { i };
                    // SAFETY: the caller's promise; lines are disjoint.
                    unsafe {
                        let next = join(so_far, from.get(i).widen());
                        to.set(i, T::narrow(if exclusive { so_far } else { next }));
                        so_far = next;
                    }
                }
            }
        });
    }
}
