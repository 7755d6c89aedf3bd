//! Counting along one axis.

use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::scalar::{Number, is_number, wrapping};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, no_kernel, unbound};
use crate::layout::Bound;

/// Numbers can be counted in.
pub(crate) fn claim(node: &Node, _: &Graph) -> Claim {
    let dtype = node.shape.dtype();
    if is_number(dtype) && dtype != DType::Bool {
        return Claim::Native;
    }
    Claim::No(format!("there is no counting in {dtype}"))
}

/// The kernel of a count.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    match cx.node().op {
        Op::Iota { axis, .. } => Ok(Box::new(Iota { axis, out: None, worth: false })),
        ref op => Err(no_kernel(op, "it is no Iota")),
    }
}

#[derive(Debug, Clone, Copy)]
struct Iota {
    axis: usize,
    /// Dense.
    out: Option<Bound>,
    worth: bool,
}

impl StepKernel for Iota {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        self.out = Some(cx.outputs[0]);
        let nanos = cx.outputs[0].layout.elements() as f64 * 0.5;
        self.worth = nanos > WORTH_NANOS;
        Ok(Needs::time(nanos))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(out) = self.out else { return Err(unbound()) };
        // SAFETY: the caller's promise; the type is that of the result.
        unsafe { wrapping!(out.dtype, T => self.count::<T>(cx, &out)) };
        Ok(())
    }
}

impl Iota {
    unsafe fn count<T: Number>(&self, cx: &mut RunCx<'_, '_>, out: &Bound) {
        let (dims, to) = (out.dims(), cx.shared::<T>(out.at));
        let size = dims[self.axis];
        let inner: usize = dims[self.axis + 1..].iter().product();
        let outer: usize = dims[..self.axis].iter().product();
        if inner == 0 {
            return;
        }
        cx.parallel(self.worth, outer * size, &|range, _| {
            for row in range {
                let value = T::from_count(row % size);
                // SAFETY: the caller's promise; rows are disjoint.
                unsafe { std::slice::from_raw_parts_mut(to.get().add(row * inner), inner) }.fill(value);
            }
        });
    }
}
