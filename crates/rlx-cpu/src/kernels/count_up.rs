//! Counting up to a number that is data, which binds a dimension.

use rlx_backend::extents::Ex;
use rlx_ir::{Dim, Error, ErrorKind, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, check_count, mismatch, no_kernel, unbound};
use crate::layout::At;

/// There is one form.
pub(crate) fn claim(_: &Node, _: &Graph) -> Claim {
    Claim::Native
}

/// The kernel.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    match cx.node().op {
        Op::CountUp { count, most } => {
            Ok(Box::new(CountUp { count, most: cx.extent(most.extent()), plan: None }))
        }
        ref op => Err(no_kernel(op, "it counts nothing")),
    }
}

#[derive(Debug, Clone, Copy)]
struct CountUp {
    count: Dim,
    most: Ex,
    plan: Option<Plan>,
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    number: At,
    out: At,
    most: i64,
}

impl StepKernel for CountUp {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (number, out) = (&cx.inputs[0], &cx.outputs[0]);
        if number.layout.elements() != 1 || out.layout.rank() != 1 {
            return Err(mismatch(format!("counting {:?} up to {:?}", out.dims(), number.dims())));
        }
        self.plan = Some(Plan { number: number.at, out: out.at, most: cx.values.get(self.most) });
        Ok(Needs::time(out.layout.elements() as f64 * 0.5))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        // SAFETY: the caller's promise.
        let number = unsafe { *cx.ptr::<i64>(plan.number) };
        if !(0..=plan.most).contains(&number) {
            let message = format!("{number} as a size, which is from 0 to {}", plan.most);
            return Err(Error::new(ErrorKind::Value, message));
        }
        check_count(number as usize, self.count)?;
        let out = cx.ptr::<i64>(plan.out);
        for i in 0..number {
            // SAFETY: there is room for as many as there can be, or for as many as are declared.
            unsafe { *out.add(i as usize) = i };
        }
        cx.found = Some(number as usize);
        Ok(())
    }
}
