//! Padding: a border around a tensor.
//!
//! Trailing dimensions without a border are one unit that is moved as bytes; the innermost dimension that has
//! one makes the rows: border, elements, border.

use std::ops::Range;

use rlx_backend::extents::Ex;
use rlx_ir::op::PadMode;
use rlx_ir::{Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::elementwise::sized;
use super::gather::copy_bytes;
use super::{BindCx, CompileCx, Needs, RunCx, Shared, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::isa::Kernel;
use crate::layout::{At, MAX_RANK};
use crate::simd::Simd;

/// Elements of whole bytes are moved, whatever they are.
pub(crate) fn claim(node: &Node, _: &Graph) -> Claim {
    match node.op {
        Op::Pad { mode: PadMode::Constant | PadMode::Edge | PadMode::Wrap | PadMode::Reflect, .. } => {
            Claim::Native
        }
        ref op => Claim::No(format!("there is no kernel for the border of {op:?}")),
    }
}

/// The kernel of a border.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let Op::Pad { before, mode, .. } = cx.node().op.clone() else {
        return Err(no_kernel(&cx.node().op, "it is no Pad"));
    };
    let before = before.into_iter().map(|e| cx.extent(e)).collect();
    Ok(Box::new(Pad { mode, before, plan: None }))
}

#[derive(Debug, Clone)]
struct Pad {
    mode: PadMode,
    before: Vec<Ex>,
    plan: Option<Plan>,
}

/// One dimension.
#[derive(Debug, Clone, Copy, Default)]
struct Axis {
    before: usize,
    size: usize,
    /// Of the result.
    grown: usize,
    /// From one element to the next of `x`, in units.
    stride: usize,
}

/// A bound border; both tensors are dense.
#[derive(Debug, Clone, Copy)]
struct Plan {
    x: At,
    value: Option<At>,
    out: At,
    /// The dimensions before the innermost one that has a border.
    outer: [Axis; MAX_RANK],
    rank: usize,
    /// The innermost dimension that has a border.
    row: Axis,
    rows: usize,
    /// What is moved: this many elements of this many bytes.
    unit: usize,
    word: usize,
    worth: bool,
}

/// The position within `size` elements that `place` maps to, which may be outside; `None` is the border of
/// constant mode.
#[inline(always)]
fn source(mode: PadMode, place: isize, size: usize) -> Option<usize> {
    let n = size as isize;
    if place >= 0 && place < n {
        return Some(place as usize);
    }
    match mode {
        PadMode::Constant => None,
        _ if n <= 1 => Some(0),
        PadMode::Edge => Some(if place < 0 { 0 } else { size - 1 }),
        PadMode::Wrap => Some(place.rem_euclid(n) as usize),
        // Reflection, the last of the claimed modes.
        _ => {
            // Most borders are narrower than what they reflect, and need no division.
            let once = if place < 0 { -place } else { 2 * n - 2 - place };
            if once >= 0 && once < n {
                return Some(once as usize);
            }
            // A zigzag whose period leaves out both ends once.
            let phase = place.rem_euclid(2 * n - 2);
            Some(if phase < n { phase } else { 2 * n - 2 - phase } as usize)
        }
    }
}

impl StepKernel for Pad {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, out) = (cx.inputs[0], cx.outputs[0]);
        let rank = x.layout.rank();
        if self.before.len() != rank || out.layout.rank() != rank {
            return Err(mismatch(format!("a border around {:?} makes {:?}", x.dims(), out.dims())));
        }
        let mut axes = [Axis::default(); MAX_RANK];
        for (i, axis) in axes[..rank].iter_mut().enumerate() {
            let (before, size, grown) = (cx.values.get(self.before[i]), x.dims()[i], out.dims()[i]);
            let fits =
                usize::try_from(before).ok().filter(|b| b.checked_add(size).is_some_and(|n| n <= grown));
            let Some(before) = fits else {
                let message = format!(
                    "a border of {before} before axis {i} of {size} makes {grown}: it is negative, or that behind"
                );
                return Err(mismatch(message));
            };
            if size == 0 && grown > 0 && self.mode != PadMode::Constant {
                return Err(mismatch(format!("axis {i} has nothing to repeat in its border")));
            }
            *axis = Axis { before, size, grown, stride: 0 };
        }
        let padded = (0..rank).rev().find(|&i| axes[i].size != axes[i].grown);
        let split = padded.unwrap_or(0);
        let unit: usize = axes[(split + 1).min(rank)..rank].iter().map(|a| a.size).product();
        let mut stride = 1;
        for axis in axes[..(split + 1).min(rank)].iter_mut().rev() {
            axis.stride = stride;
            stride *= axis.size;
        }
        let row = if rank == 0 { Axis { before: 0, size: 1, grown: 1, stride: 1 } } else { axes[split] };
        let nanos = out.layout.elements() as f64 * 0.3;
        self.plan = Some(Plan {
            x: x.at,
            value: cx.inputs.get(1).map(|v| v.at),
            out: out.at,
            outer: axes,
            rank: split,
            row,
            rows: axes[..split].iter().map(|a| a.grown).product(),
            unit,
            word: x.dtype.size_bytes(),
            worth: nanos > WORTH_NANOS,
        });
        Ok(Needs::time(nanos))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        let mode = self.mode;
        // Nothing is written; and a row of nothing has no place.
        if plan.unit == 0 || plan.row.grown == 0 {
            return Ok(());
        }
        let value: Shared<u8> = match plan.value {
            Some(at) => cx.shared(at),
            None => Shared::new((&raw const ZERO).cast_mut().cast()),
        };
        let (from, to) = (cx.shared::<u8>(plan.x), cx.shared::<u8>(plan.out));
        let isa = cx.isa;
        cx.parallel(plan.worth, plan.rows, &|range, _| {
            // The caller's promise; rows are disjoint.
            isa.run(Rows { plan, mode, range, from: from.get(), value: value.get(), to: to.get() });
        });
        Ok(())
    }
}

/// Rows of a result: all that there are in `range`.
struct Rows<'a> {
    plan: &'a Plan,
    mode: PadMode,
    range: Range<usize>,
    from: *const u8,
    value: *const u8,
    to: *mut u8,
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Rows { plan, mode, range, from, value, to } = self;
        let bytes = plan.unit * plan.word;
        // Rows along one dimension follow each other without a division.
        let (lines, outer) = match plan.outer[..plan.rank].split_last() {
            Some((&lines, outer)) => (lines, outer),
            None => (Axis { before: 0, size: 1, grown: 1, stride: 0 }, &[][..]),
        };
        let mut row = range.start;
        while row < range.end {
            let first = row % lines.grown;
            let above = outer_place(mode, outer, row / lines.grown);
            let count = (lines.grown - first).min(range.end - row);
            for line in first..first + count {
                let own = source(mode, line as isize - lines.before as isize, lines.size);
                let to = to.wrapping_add(row * plan.row.grown * bytes);
                // SAFETY: who runs the kernel was promised the operands; places are within both tensors.
                unsafe {
                    match (above, own) {
                        (Some(above), Some(own)) => {
                            let from = from.wrapping_add((above + own * lines.stride) * bytes);
                            plan.row(mode, from, value, to);
                        }
                        _ => plan.border(value, to, plan.row.grown),
                    }
                }
                row += 1;
            }
        }
    }
}

/// The unit at which block `block` of the dimensions before the rows' own begins in `x`; `None` within the border.
fn outer_place(mode: PadMode, outer: &[Axis], mut block: usize) -> Option<usize> {
    let mut place = 0;
    for axis in outer.iter().rev() {
        let at = (block % axis.grown) as isize - axis.before as isize;
        place += source(mode, at, axis.size)? * axis.stride;
        block /= axis.grown;
    }
    Some(place)
}

/// The border's value where none is given: 0 of any type.
static ZERO: u64 = 0;

impl Plan {
    /// A row: border, elements, border.
    ///
    /// # Safety
    /// The row must be readable in `x` and writable in the result, the value readable for one element.
    #[inline(always)]
    unsafe fn row(&self, mode: PadMode, from: *const u8, value: *const u8, to: *mut u8) {
        let Axis { before, size, grown, .. } = self.row;
        let bytes = self.unit * self.word;
        // SAFETY: the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to.wrapping_add(before * bytes), size * bytes);
            let behind = before + size;
            if mode == PadMode::Constant {
                self.border(value, to, before);
                self.border(value, to.wrapping_add(behind * bytes), grown - behind);
                return;
            }
            for i in (0..before).chain(behind..grown) {
                if let Some(place) = source(mode, i as isize - before as isize, size) {
                    let from = from.wrapping_add(place * bytes);
                    copy_bytes(from, to.wrapping_add(i * bytes), bytes);
                }
            }
        }
    }

    /// Fills `units` units with the border's value.
    ///
    /// # Safety
    /// The value must be readable for one element, and the units writable.
    #[inline(always)]
    unsafe fn border(&self, value: *const u8, to: *mut u8, units: usize) {
        // SAFETY: the caller's promise; the value is one element.
        unsafe {
            sized!(self.word, T => {
                std::slice::from_raw_parts_mut(to.cast::<T>(), units * self.unit).fill(*value.cast::<T>());
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_outside_stand_for_those_inside() {
        let all = |mode, size| (-4..7).map(|i| source(mode, i, size).unwrap()).collect::<Vec<_>>();
        assert_eq!(all(PadMode::Edge, 3), [0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2]);
        assert_eq!(all(PadMode::Wrap, 3), [2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(all(PadMode::Reflect, 3), [0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2]);
        assert_eq!(all(PadMode::Reflect, 1), [0; 11]);
        assert_eq!(source(PadMode::Constant, -1, 3), None);
    }
}
