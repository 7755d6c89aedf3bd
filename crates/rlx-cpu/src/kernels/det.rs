//! Determinants: Gaussian elimination in f64, one matrix for each task.

use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::scalar::{Real, float, is_float};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::layout::At;

/// Floats.
pub(crate) fn claim(node: &Node, _: &Graph) -> Claim {
    let dtype = node.shape.dtype();
    if is_float(dtype) {
        Claim::Native
    } else {
        Claim::No(format!("there is no kernel for matrices of {dtype}"))
    }
}

/// The kernel.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    match cx.node().op {
        Op::Det => Ok(Box::new(Det { dtype: cx.step.inputs[0].dtype, plan: None })),
        ref op => Err(no_kernel(op, "it is no determinant")),
    }
}

#[derive(Debug, Clone, Copy)]
struct Det {
    dtype: DType,
    plan: Option<Plan>,
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    x: At,
    out: At,
    matrices: usize,
    n: usize,
    worth: bool,
}

impl StepKernel for Det {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, out) = (&cx.inputs[0], &cx.outputs[0]);
        let &[.., rows, n] = x.dims() else { return Err(mismatch("determinants of no matrices")) };
        let matrices = out.layout.elements();
        if rows != n || matrices.checked_mul(n * n) != Some(x.layout.elements()) || !x.layout.is_dense() {
            return Err(mismatch(format!("determinants {:?} of {:?}", out.dims(), x.dims())));
        }
        let scratch = n.checked_mul(n).and_then(|e| e.checked_mul(8));
        let scratch = scratch.ok_or_else(|| mismatch(format!("a matrix of {n} rows is too large")))?;
        let nanos = (x.layout.elements() * (n + 1)) as f64 * 0.3;
        self.plan = Some(Plan { x: x.at, out: out.at, matrices, n, worth: nanos > WORTH_NANOS });
        Ok(Needs { thread_scratch: scratch, shared_scratch: 0, nanos })
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = self.plan else { return Err(unbound()) };
        float!(self.dtype, T => {
            let (x, out, n) = (cx.shared::<T>(plan.x), cx.shared::<T>(plan.out), plan.n);
            cx.parallel(plan.worth, plan.matrices, &|range, scratch| {
                for i in range {
                    // SAFETY: the caller's promise; scratch has room for one matrix, and each task has its own.
                    unsafe {
                        let matrix = std::slice::from_raw_parts_mut(scratch.cast::<f64>(), n * n);
                        let from = x.get().add(i * n * n);
                        for (at, to) in matrix.iter_mut().enumerate() {
                            *to = (*from.add(at)).to_f64();
                        }
                        *out.get().add(i) = T::from_f64(determinant(matrix, n));
                    }
                }
            });
        });
        Ok(())
    }
}

/// Eliminates column by column, the largest element on top; the determinant is the product of these.
fn determinant(m: &mut [f64], n: usize) -> f64 {
    let mut product = 1.0;
    for k in 0..n {
        let mut pivot = k;
        for row in k + 1..n {
            if m[row * n + k].abs() > m[pivot * n + k].abs() {
                pivot = row;
            }
        }
        let (above, below) = m.split_at_mut((k + 1) * n);
        if pivot != k {
            above[k * n..].swap_with_slice(&mut below[(pivot - k - 1) * n..(pivot - k) * n]);
            product = -product;
        }
        let top = &above[k * n + k..];
        product *= top[0];
        if top[0] == 0.0 {
            return if product.is_nan() { product } else { 0.0 };
        }
        for row in below.chunks_exact_mut(n) {
            let factor = row[k] / top[0];
            row[k..].iter_mut().zip(top).for_each(|(x, &t)| *x -= factor * t);
        }
    }
    product
}
