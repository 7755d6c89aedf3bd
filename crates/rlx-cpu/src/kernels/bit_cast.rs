//! The bits of elements as another type: a copy.

use rlx_ir::{Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::layout::At;

/// Bytes of a task.
const TASK: usize = 1 << 16;

/// Whole bytes, whatever they mean.
pub(crate) fn claim(_: &Node, _: &Graph) -> Claim {
    Claim::Native
}

/// The kernel.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    match cx.node().op {
        Op::BitCast { .. } => Ok(Box::new(BitCast { plan: None })),
        ref op => Err(no_kernel(op, "it keeps no bits")),
    }
}

#[derive(Debug, Clone, Copy)]
struct BitCast {
    plan: Option<Plan>,
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    x: At,
    out: At,
    bytes: usize,
    worth: bool,
}

impl StepKernel for BitCast {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, out) = (&cx.inputs[0], &cx.outputs[0]);
        let dense = x.layout.is_dense() && out.layout.is_dense();
        if x.dims() != out.dims() || x.dtype.size_bytes() != out.dtype.size_bytes() || !dense {
            return Err(mismatch(format!("the bits of {:?} as {:?}", x.dims(), out.dims())));
        }
        let bytes = x.layout.elements() * x.dtype.size_bytes();
        let nanos = bytes as f64 * 0.1;
        self.plan = Some(Plan { x: x.at, out: out.at, bytes, worth: nanos > WORTH_NANOS });
        Ok(Needs::time(nanos))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = self.plan else { return Err(unbound()) };
        let (x, out) = (cx.shared::<u8>(plan.x), cx.shared::<u8>(plan.out));
        cx.parallel(plan.worth, plan.bytes.div_ceil(TASK), &|range, _| {
            let (from, to) = (range.start * TASK, (range.end * TASK).min(plan.bytes));
            // SAFETY: the caller's promise; tasks copy apart from each other, and the result is apart from the operand.
            unsafe { std::ptr::copy_nonoverlapping(x.get().add(from), out.get().add(from), to - from) };
        });
        Ok(())
    }
}
