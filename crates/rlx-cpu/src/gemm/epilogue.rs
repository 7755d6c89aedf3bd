//! What is done to each element of the product before it is written.

use super::PANEL;
use super::element::Packed;
use super::kernel::{lanes_of, store_tile};
use crate::math::{self, Unary};
use crate::simd::{LANES, Simd};

/// `act(α·x + bias ⊕ operand)`, or `act(α·x + bias) ⊕ operand`, rounded to the result's type after each of them.
#[derive(Debug, Clone, Copy)]
pub struct Epilogue<T = f32> {
    /// A factor; 1 costs nothing.
    pub alpha: f32,
    /// Added after the factor.
    pub bias: Bias<T>,
    /// Another matrix of C's shape, added or multiplied.
    pub combine: Option<Combine<T>>,
    /// The activation.
    pub activation: Option<Unary>,
}

/// A vector added to each row or column.
#[derive(Debug, Clone, Copy)]
pub enum Bias<T = f32> {
    /// None.
    None,
    /// One value per column of C.
    PerColumn(*const T),
    /// One value per row of C.
    PerRow(*const T),
}

/// A matrix combined with the result: a residual, or a gate.
#[derive(Debug, Clone, Copy)]
pub struct Combine<T = f32> {
    /// Its first element.
    pub ptr: *const T,
    /// Elements from one row to the next; 0 repeats one row.
    pub row_stride: usize,
    /// How.
    pub op: BinaryOp,
    /// After the activation rather than before.
    pub after: bool,
}

/// How two matrices are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinaryOp {
    /// x + y.
    Add,
    /// x · y.
    Mul,
}

impl<T> Epilogue<T> {
    /// The product as it is.
    pub const NONE: Self = Epilogue { alpha: 1.0, bias: Bias::None, combine: None, activation: None };

    /// With one bias per column.
    pub const fn bias(ptr: *const T) -> Self {
        Epilogue { bias: Bias::PerColumn(ptr), ..Self::NONE }
    }

    /// With an activation.
    pub const fn with(self, activation: Unary) -> Self
    where
        T: Copy,
    {
        Epilogue { activation: Some(activation), ..self }
    }
}

/// Applies the epilogue to a tile at (row, col) and writes it; `width` columns are left from `col` on.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn finish<S: Simd, O: Packed, const R: usize, const V: usize>(
    s: S,
    e: &Epilogue<O>,
    acc: &mut [[S::F; V]; R],
    c: *mut O,
    stride: usize,
    row: usize,
    col: usize,
    width: usize,
) {
    // SAFETY: the caller promises operands in bounds for the tile.
    unsafe {
        linear(s, e, acc, row, col, width);
        let before = e.combine.filter(|x| !x.after);
        if let Some(x) = before {
            combine(s, &x, acc, row, col, width);
        }
        let out = c.add(row * stride + col);
        // Cheap enough to be done in registers, once per tile size; NaN stays.
        if let Some((lo, hi)) = e.activation.and_then(bounds) {
            for x in acc.as_flattened_mut() {
                *x = math::clip(s, *x, lo, hi);
            }
        }
        store_tile(s, acc, out, stride, width);
        let activation = e.activation.filter(|&a| bounds(a).is_none());
        match (activation, e.combine.filter(|x| x.after)) {
            (None, None) => {}
            (activation, after) => {
                let (rows, width) = (R, width.min(V * LANES));
                // Done through memory, and as a call, so that one copy of each function serves every tile size.
                s.enter(SecondPass { activation, after, out, stride, rows, width, row, col });
            }
        }
    }
}

/// The least and the greatest result of an activation that does nothing else.
#[inline(always)]
pub(crate) fn bounds(activation: Unary) -> Option<(f32, f32)> {
    match activation {
        Unary::Relu => Some((0.0, f32::INFINITY)),
        Unary::Clip { lo, hi } => Some((lo, hi)),
        _ => None,
    }
}

#[inline(always)]
unsafe fn linear<S: Simd, O: Packed, const R: usize, const V: usize>(
    s: S,
    e: &Epilogue<O>,
    acc: &mut [[S::F; V]; R],
    row: usize,
    col: usize,
    width: usize,
) {
    if e.alpha != 1.0 {
        let alpha = s.splat(e.alpha);
        for x in acc.as_flattened_mut() {
            *x = s.mul(O::round(s, *x), alpha);
        }
    }
    match e.bias {
        Bias::None => {}
        Bias::PerColumn(p) => {
            for v in 0..V {
                // SAFETY: the caller promises a bias for each column.
                let b = unsafe { O::load(s, p.wrapping_add(col + v * LANES), lanes_of(v, width)) };
                for x in acc.iter_mut() {
                    x[v] = s.add(O::round(s, x[v]), b);
                }
            }
        }
        Bias::PerRow(p) => {
            for (r, xs) in acc.iter_mut().enumerate() {
                // SAFETY: the caller promises a bias for each row.
                let b = s.splat(unsafe { *p.add(row + r) }.widen());
                for x in xs {
                    *x = s.add(O::round(s, *x), b);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn combine<S: Simd, O: Packed, const R: usize, const V: usize>(
    s: S,
    with: &Combine<O>,
    acc: &mut [[S::F; V]; R],
    row: usize,
    col: usize,
    width: usize,
) {
    for (r, xs) in acc.iter_mut().enumerate() {
        for (v, x) in xs.iter_mut().enumerate() {
            // SAFETY: the caller promises an operand of C's extents.
            unsafe {
                let p = with.ptr.wrapping_add((row + r) * with.row_stride + col + v * LANES);
                let y = O::load(s, p, lanes_of(v, width));
                *x = binary(s, with.op, O::round(s, *x), y);
            }
        }
    }
}

#[inline(always)]
pub(super) fn binary<S: Simd>(s: S, op: BinaryOp, x: S::F, y: S::F) -> S::F {
    match op {
        BinaryOp::Add => s.add(x, y),
        BinaryOp::Mul => s.mul(x, y),
    }
}

/// Activation and late operand over a tile that was just written and is still in the first-level cache.
pub(super) struct SecondPass<O> {
    pub(super) activation: Option<Unary>,
    pub(super) after: Option<Combine<O>>,
    pub(super) out: *mut O,
    pub(super) stride: usize,
    pub(super) rows: usize,
    pub(super) width: usize,
    pub(super) row: usize,
    pub(super) col: usize,
}

impl<O: Packed> crate::isa::Kernel for SecondPass<O> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // What is not f32 is widened here.
        let mut wide = [0.0f32; PANEL];
        // SAFETY: the tile was written by the caller just now, and the operand has C's extents; a tile is at most
        // a panel wide.
        unsafe {
            for r in 0..self.rows {
                let line = self.out.add(r * self.stride);
                let values = if const { O::GROUP == 1 } { line.cast::<f32>() } else { wide.as_mut_ptr() };
                let mut j = if const { O::GROUP != 1 } { 0 } else { self.width };
                while j < self.width {
                    let n = LANES.min(self.width - j);
                    s.store_upto(values.add(j), n, O::load(s, line.add(j), n));
                    j += n;
                }
                if let Some(op) = self.activation {
                    math::apply_within(s, op, values, values, self.width);
                }
                j = 0;
                while j < self.width {
                    let n = LANES.min(self.width - j);
                    if let Some(with) = self.after {
                        let from = with.ptr.add((self.row + r) * with.row_stride + self.col + j);
                        let x = O::round(s, s.load_upto(values.add(j), n));
                        O::store(s, line.add(j), n, binary(s, with.op, x, O::load(s, from, n)));
                    } else if const { O::GROUP != 1 } {
                        O::store(s, line.add(j), n, s.load_upto(values.add(j), n));
                    }
                    j += n;
                }
            }
        }
    }
}
