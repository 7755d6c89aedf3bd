//! Operands of attention by their heads, whichever way a shape has them.

use rlx_ir::Result;

use crate::kernels::mismatch;
use crate::layout::{At, Bound};

/// One operand seen as `[batch, heads, seq, size]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    pub(super) at: At,
    pub(super) dims: [usize; 4],
    pub(super) strides: [isize; 4],
}

impl Heads {
    /// Of `heads` heads, or heads of `size` elements, where the shape does not say.
    pub(super) fn of(b: &Bound, heads: Option<usize>, size: Option<usize>) -> Result<Heads> {
        let (d, s) = (b.layout.dims(), b.layout.strides());
        if let (&[d0, d1, d2, d3], &[s0, s1, s2, s3]) = (d, s) {
            return Ok(Heads { at: b.at, dims: [d0, d1, d2, d3], strides: [s0, s1, s2, s3] });
        }
        let shape_mismatch = || mismatch(format!("attention over {d:?}"));
        let (&[d0, d1, d2], &[s0, s1, s2]) = (d, s) else { return Err(shape_mismatch()) };
        let size = match (heads, size) {
            (_, Some(size)) => size,
            (Some(heads), None) => d2.checked_div(heads).ok_or_else(shape_mismatch)?,
            (None, None) => return Err(shape_mismatch()),
        };
        let heads = d2.checked_div(size).unwrap_or(0);
        Ok(Heads { at: b.at, dims: [d0, heads, d1, size], strides: [s0, size as isize * s2, s1, s2] })
    }

    /// Where head `h` of item `b` begins.
    pub(super) fn head(&self, b: usize, h: usize) -> isize {
        b as isize * self.strides[0] + h as isize * self.strides[1]
    }
}
