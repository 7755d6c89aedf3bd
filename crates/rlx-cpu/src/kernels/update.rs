//! A tensor with a range of one axis replaced. Written in place, only the update moves.

use rlx_ir::{Error, ErrorKind, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::indices::Indices;
use super::scatter::carry_over;
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::journal::Journal;
use crate::layout::Bound;

/// Whole bytes are moved, whatever they are.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let starts = node.inputs.get(2).map(|&id| graph.shape(id).dtype());
    match starts {
        Some(rlx_ir::DType::I32 | rlx_ir::DType::I64) => Claim::Native,
        _ => Claim::No("starts are i32 or i64".into()),
    }
}

/// The kernel of an [`Op::UpdateSlice`].
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let op = &cx.node().op;
    let &Op::UpdateSlice { axis } = op else { return Err(no_kernel(op, "it is no UpdateSlice")) };
    Ok(Box::new(UpdateSlice { axis, plan: None }))
}

#[derive(Debug, Clone, Copy)]
struct UpdateSlice {
    axis: usize,
    plan: Option<Plan>,
}

/// The operands, all dense: `before` blocks of `size` rows of `row` bytes, of which `len` are replaced.
#[derive(Debug, Clone, Copy)]
struct Plan {
    x: Bound,
    update: Bound,
    starts: Bound,
    out: Bound,
    before: usize,
    size: usize,
    len: usize,
    row: usize,
    worth: bool,
}

impl StepKernel for UpdateSlice {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, update, starts, out) = (cx.inputs[0], cx.inputs[1], cx.inputs[2], cx.outputs[0]);
        let (dims, axis) = (x.dims(), self.axis);
        let (size, len) = (dims[axis], update.dims()[axis]);
        let others = |d: &[usize]| d[..axis].iter().chain(&d[axis + 1..]).copied().collect::<Vec<_>>();
        let count = starts.layout.elements();
        let each = starts.layout.rank() == 1 && axis > 0 && count == dims[0];
        if out.dims() != dims || others(dims) != others(update.dims()) || len > size || (!each && count != 1)
        {
            let (update, starts) = (update.dims(), starts.dims());
            return Err(mismatch(format!("an update {update:?} of {dims:?} at {starts:?}")));
        }
        let before = dims[..axis].iter().product::<usize>();
        let row = dims[axis + 1..].iter().product::<usize>() * x.dtype.size_bytes();
        let moved = if x.at == out.at { 0 } else { x.layout.elements() * x.dtype.size_bytes() };
        let nanos = (moved + before * len * row) as f64 * 0.1;
        self.plan = Some(Plan { x, update, starts, out, before, size, len, row, worth: nanos > WORTH_NANOS });
        Ok(Needs::time(nanos))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        // SAFETY: the caller's promise.
        unsafe {
            plan.check(cx)?;
            carry_over(cx, &plan.x, &plan.out, plan.worth);
            let (from, to) = (cx.shared::<u8>(plan.update.at), cx.shared::<u8>(plan.out.at));
            let starts = Indices::new(cx.ptr(plan.starts.at), plan.starts.dtype);
            cx.parallel(plan.worth, plan.before, &|blocks, _| {
                for block in blocks {
                    let Some(at) = plan.at(&starts, block) else { continue };
                    let bytes = plan.len * plan.row;
                    let from = from.get().wrapping_add(block * bytes);
                    std::ptr::copy_nonoverlapping(from.cast_const(), to.get().wrapping_add(at), bytes);
                }
            });
        }
        Ok(())
    }

    unsafe fn journal(&self, cx: &RunCx<'_, '_>, journal: &mut Journal) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        // SAFETY: the caller's promise.
        unsafe {
            plan.check(cx)?;
            let starts = Indices::new(cx.ptr(plan.starts.at), plan.starts.dtype);
            for block in 0..plan.before {
                if let Some(at) = plan.at(&starts, block) {
                    journal.save(cx.ptr::<u8>(plan.out.at).wrapping_add(at), plan.len * plan.row)?;
                }
            }
        }
        Ok(())
    }
}

impl Plan {
    /// The byte where the update of a block begins; `None` where it would leave the block.
    ///
    /// # Safety
    /// The starts must be there.
    unsafe fn at(&self, starts: &Indices, block: usize) -> Option<usize> {
        let count = self.starts.layout.elements().max(1);
        let per_start = (self.before / count).max(1);
        // SAFETY: the caller's promise; there are `before` blocks.
        let place = unsafe { starts.place(block / per_start, self.size) };
        let place = place.filter(|place| place + self.len <= self.size)?;
        Some((block * self.size + place) * self.row)
    }

    /// Whether all updates stay within `x`. Where nothing is replaced, starts are not looked at.
    ///
    /// # Safety
    /// The starts must be there.
    unsafe fn check(&self, cx: &RunCx<'_, '_>) -> Result<()> {
        if self.before * self.len * self.row == 0 {
            return Ok(());
        }
        let starts = Indices::new(cx.ptr(self.starts.at), self.starts.dtype);
        let count = self.starts.layout.elements();
        for i in 0..count {
            // SAFETY: the caller's promise.
            unsafe {
                if self.at(&starts, i * (self.before / count)).is_none() {
                    return Err(outside(self.len, starts.raw(i), self.size));
                }
            }
        }
        Ok(())
    }
}

#[cold]
fn outside(len: usize, start: i64, size: usize) -> Error {
    Error::new(ErrorKind::Value, format!("an update of {len} at {start} is outside a dimension of {size}"))
}
