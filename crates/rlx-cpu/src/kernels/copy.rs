//! Copies between strided views: what movement ops leave behind when no view can express them.

use rlx_ir::Result;

use super::elementwise::gather_any;
use super::elementwise::sized;
use super::{BindCx, CloneKernel, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, unbound};
use crate::program::layout::{At, Layout, collapse};

/// The side of the squares a transposing copy moves: rows and columns stay in the first-level cache.
const SQUARE: usize = 16;

/// The kernel of a copy step.
pub(crate) fn compile(_: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    Ok(Box::new(Unbound))
}

/// A copy before it is bound: there may be very many, and all are alike.
struct Unbound;

impl CloneKernel for Unbound {
    fn boxed(&self) -> Box<dyn StepKernel> {
        Box::new(Copy::default())
    }
}

impl StepKernel for Unbound {
    fn bind(&mut self, _: &BindCx<'_>) -> Result<Needs> {
        Err(unbound())
    }

    unsafe fn run(&self, _: &mut RunCx<'_, '_>) -> Result<()> {
        Err(unbound())
    }
}

/// A bound copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy {
    from: At,
    to: At,
    source: Layout,
    target: Layout,
    size: usize,
    /// The dimension along which the source is contiguous, when that is not the innermost.
    across: Option<usize>,
    worth: bool,
}

impl Default for Copy {
    fn default() -> Self {
        Copy {
            from: At::NOWHERE,
            to: At::NOWHERE,
            source: Layout::SCALAR,
            target: Layout::SCALAR,
            size: 1,
            across: None,
            worth: false,
        }
    }
}

impl StepKernel for Copy {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (from, to) = (&cx.inputs[0], &cx.outputs[0]);
        if from.dims() != to.dims() {
            return Err(mismatch(format!("a copy of {:?} to {:?}", from.dims(), to.dims())));
        }
        let mut pair = [to.layout, from.layout];
        collapse(&mut pair);
        let mut elements = to.layout.elements();
        if to.dtype.is_packed() {
            // Dense: the bytes are copied, however many elements share one.
            elements = to.dtype.storage_bytes(elements).unwrap_or(usize::MAX);
            pair = [Layout::dense(&[elements]); 2];
        }
        (self.from, self.to, self.size) = (from.at, to.at, to.dtype.size_bytes());
        [self.target, self.source] = pair;
        if self.target.rank() == 0 {
            (self.target, self.source) = (Layout::dense(&[elements]), Layout::dense(&[elements]));
        }
        let rank = self.source.rank();
        let contiguous = |i: &usize| self.source.strides()[*i] == 1;
        self.across =
            (0..rank - 1).rev().find(contiguous).filter(|_| self.source.strides()[rank - 1].abs() > 1);
        let nanos = elements as f64 * if self.across.is_some() { 0.5 } else { 0.15 };
        self.worth = nanos > WORTH_NANOS;
        Ok(Needs::time(nanos))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            match self.across {
                Some(dim) => self.transpose(cx, dim),
                None => self.rows(cx),
            }
        }
        Ok(())
    }
}

impl Copy {
    /// Row by row.
    unsafe fn rows(&self, cx: &mut RunCx<'_, '_>) {
        let rank = self.target.rank();
        let inner = self.target.dims()[rank - 1];
        if inner == 0 {
            return;
        }
        let (from_step, to_step) = (self.source.strides()[rank - 1], self.target.strides()[rank - 1]);
        let (from, to, size) = (cx.shared::<u8>(self.from), cx.shared::<u8>(self.to), self.size);
        // One long row is split into pieces.
        let pieces = if rank == 1 { inner.div_ceil(4096) } else { 1 };
        let rows = self.target.range(0, rank - 1).elements();
        let (source, target) = (self.source, self.target);
        cx.parallel(self.worth, rows * pieces, &|range, _| {
            for unit in range {
                let (row, start) = (unit / pieces, unit % pieces * 4096);
                let n = if pieces == 1 { inner } else { 4096.min(inner - start) };
                let source = source.outer_at(row) + start as isize * from_step;
                let target = target.outer_at(row) + start as isize * to_step;
                // SAFETY: both views are within their buffers (checked when bound); rows are disjoint.
                unsafe {
                    gather_any(
                        from.get().wrapping_offset(source * size as isize),
                        from_step,
                        to.get().wrapping_offset(target * size as isize),
                        to_step,
                        size,
                        n,
                    );
                }
            }
        });
    }

    /// In squares: the source is contiguous along `dim`, the target along the innermost dimension.
    unsafe fn transpose(&self, cx: &mut RunCx<'_, '_>, dim: usize) {
        let rank = self.target.rank();
        let (height, width) = (self.target.dims()[dim], self.target.dims()[rank - 1]);
        let strides = |l: &Layout| (l.strides()[dim], l.strides()[rank - 1]);
        let ((_, from_column), (to_row, to_column)) = (strides(&self.source), strides(&self.target));
        let (mut outer_from, mut outer_to) = (Layout::SCALAR, Layout::SCALAR);
        for i in (0..rank - 1).filter(|&i| i != dim) {
            outer_from.push(self.source.dims()[i], self.source.strides()[i]);
            outer_to.push(self.target.dims()[i], self.target.strides()[i]);
        }
        let bands = height.div_ceil(SQUARE);
        let (from, to, size) = (cx.shared::<u8>(self.from), cx.shared::<u8>(self.to), self.size);
        cx.parallel(self.worth, outer_to.elements() * bands, &|range, _| {
            for unit in range {
                let (outer, y0) = (unit / bands, unit % bands * SQUARE);
                let (source, target) = (outer_from.at(outer), outer_to.at(outer));
                let y1 = (y0 + SQUARE).min(height);
                // SAFETY: both views are within their buffers (checked when bound); bands are disjoint.
                unsafe {
                    sized!(size, T => {
                        let from = from.get().cast::<T>().wrapping_offset(source);
                        let to = to.get().cast::<T>().wrapping_offset(target);
                        for x0 in (0..width).step_by(SQUARE) {
                            for x in x0..(x0 + SQUARE).min(width) {
                                let column = from.wrapping_offset(x as isize * from_column);
                                let place = to.wrapping_offset(x as isize * to_column);
                                for y in y0..y1 {
                                    *place.wrapping_offset(y as isize * to_row) = *column.add(y);
                                }
                            }
                        }
                    })
                }
            }
        });
    }
}
