//! Where elements are not zero: counted first, then written.

use rlx_ir::{DType, Dim, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::scalar::{Number, is_number, wrapping};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, check_count, mismatch, no_kernel, unbound};
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
}

impl StepKernel for NonZero {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, out) = (&cx.inputs[0], &cx.outputs[0]);
        if out.dims().first() != Some(&x.layout.rank()) {
            return Err(mismatch(format!("the places in {:?} are {:?}", x.dims(), out.dims())));
        }
        self.plan = Some(Plan { x: x.at, layout: x.layout, out: out.at });
        Ok(Needs::time(x.layout.elements() as f64 * 2.0))
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
/// As [`StepKernel::run`]: the input is readable and the result writable where they were bound. `T` is the input's type.
unsafe fn find<T: Number>(cx: &RunCx<'_, '_>, plan: &Plan, declared: Dim) -> Result<usize> {
    let (x, out, layout) = (cx.ptr::<T>(plan.x), cx.ptr::<i64>(plan.out), plan.layout);
    let zero = T::from_count(0);
    // SAFETY: the caller's promise.
    let there = |i: usize| unsafe { *x.wrapping_offset(layout.at(i)) != zero };
    let elements = layout.elements();
    let count = (0..elements).filter(|&i| there(i)).count();
    check_count(count, declared)?;
    for (next, i) in (0..elements).filter(|&i| there(i)).enumerate() {
        let mut rest = i;
        for axis in (0..layout.rank()).rev() {
            let size = layout.dims()[axis];
            // SAFETY: there are `count` places, as many as are declared, or there is room for all elements where that is open.
            unsafe { *out.add(axis * count + next) = (rest % size) as i64 };
            rest /= size;
        }
    }
    Ok(count)
}
