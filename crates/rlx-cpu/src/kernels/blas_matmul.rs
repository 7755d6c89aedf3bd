//! f32 matmuls computed by a BLAS, where this build chose one.
//!
//! A matmul is split into blocks of rows and columns by its shape alone, and each block is one call on one thread, so
//! the bits do not depend on the number of threads. Views that a BLAS cannot read in place go through the packed
//! kernel.

use rlx_ir::{Error, ErrorKind, Result};

use super::matmul::{MatMul, Shape};
use super::{BindCx, Needs, RunCx, Shared, StepKernel};
use crate::blas::{Blas, Matrix};

/// Rows and columns of a block.
const BLOCK: [usize; 2] = [128, 1024];

/// A matmul on a BLAS.
#[derive(Debug, Clone)]
pub(super) struct BlasMatMul {
    blas: &'static Blas,
    /// The operands, and the way for odd views.
    own: MatMul,
}

impl BlasMatMul {
    /// The kernel, if this build has a BLAS.
    pub(super) fn try_new(own: MatMul) -> Result<Result<BlasMatMul, MatMul>> {
        let blas = Blas::chosen().map_err(|e| Error::new(ErrorKind::DeviceUnavailable, e.to_string()))?;
        Ok(match blas {
            Some(blas) => Ok(BlasMatMul { blas, own }),
            None => Err(own),
        })
    }
}

/// The operands of one batch and the place of its result, as element offsets.
fn operands(cx: &RunCx<'_, '_>, s: &Shape, batch: usize) -> (Matrix, Matrix, *mut f32) {
    let [c_at, a_at, b_at] = s.batch_at(batch);
    let matrix = |ptr: *mut f32, at, strides| Matrix { ptr: ptr.wrapping_offset(at).cast_const(), strides };
    let a = matrix(cx.ptr::<f32>(s.a), a_at, s.a_strides);
    let b = matrix(cx.ptr::<f32>(s.b), b_at, s.b_strides);
    (a, b, cx.ptr::<f32>(s.c).wrapping_offset(c_at))
}

/// The part of a matrix from this row and column on.
fn part(m: Matrix, row: usize, column: usize) -> Matrix {
    let offset = row as isize * m.strides[0] + column as isize * m.strides[1];
    Matrix { ptr: m.ptr.wrapping_offset(offset), ..m }
}

impl StepKernel for BlasMatMul {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        self.own.bind(cx)
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let s = *self.own.shape();
        let extents = [s.m, s.k, s.n];
        let (a, b, _) = operands(cx, &s, 0);
        if s.packed || !Blas::takes(a, b, extents, s.c_stride) {
            // SAFETY: the caller's promise.
            return unsafe { self.own.run(cx) };
        }
        let blocks = [s.m.div_ceil(BLOCK[0]), s.n.div_ceil(BLOCK[1])];
        for batch in 0..s.batches() {
            let (a, b, c) = operands(cx, &s, batch);
            let (a, b, c) = (Shared::new(a.ptr.cast_mut()), Shared::new(b.ptr.cast_mut()), Shared::new(c));
            cx.parallel(s.worth, blocks[0] * blocks[1], &|range, _| {
                for block in range {
                    let (row, column) = (block / blocks[1] * BLOCK[0], block % blocks[1] * BLOCK[1]);
                    let (m, n) = (BLOCK[0].min(s.m - row), BLOCK[1].min(s.n - column));
                    let a = part(Matrix { ptr: a.get().cast_const(), strides: s.a_strides }, row, 0);
                    let b = part(Matrix { ptr: b.get().cast_const(), strides: s.b_strides }, 0, column);
                    // SAFETY: the caller's promise; blocks are within the operands and are disjoint in C.
                    unsafe {
                        let c = c.get().add(row * s.c_stride + column);
                        self.blas.multiply(a, b, [m, s.k, n], c, s.c_stride);
                    }
                }
            });
        }
        Ok(())
    }
}
