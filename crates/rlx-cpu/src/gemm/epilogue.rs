//! What is done to each element of the product before it is written.

use super::kernel::{lanes_of, store_tile};
use crate::math::{self, Unary};
use crate::simd::{LANES, Simd};

/// `act(α·x + bias ⊕ operand)`, or `act(α·x + bias) ⊕ operand`.
#[derive(Debug, Clone, Copy)]
pub struct Epilogue {
    /// A factor; 1 costs nothing.
    pub alpha: f32,
    /// Added after the factor.
    pub bias: Bias,
    /// Another matrix of C's shape, added or multiplied.
    pub combine: Option<Combine>,
    /// The activation.
    pub activation: Option<Unary>,
}

/// A vector added to each row or column.
#[derive(Debug, Clone, Copy)]
pub enum Bias {
    /// None.
    None,
    /// One value per column of C.
    PerColumn(*const f32),
    /// One value per row of C.
    PerRow(*const f32),
}

/// A matrix combined with the result: a residual, or a gate.
#[derive(Debug, Clone, Copy)]
pub struct Combine {
    /// Its first element.
    pub ptr: *const f32,
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

impl Epilogue {
    /// The product as it is.
    pub const NONE: Epilogue = Epilogue { alpha: 1.0, bias: Bias::None, combine: None, activation: None };

    /// With one bias per column.
    pub const fn bias(ptr: *const f32) -> Epilogue {
        Epilogue { bias: Bias::PerColumn(ptr), ..Self::NONE }
    }

    /// With an activation.
    pub const fn with(self, activation: Unary) -> Epilogue {
        Epilogue { activation: Some(activation), ..self }
    }
}

/// Applies the epilogue to a tile at (row, col) and writes it; `width` columns are left from `col` on.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn finish<S: Simd, const R: usize, const V: usize>(
    s: S,
    e: &Epilogue,
    acc: &mut [[S::F; V]; R],
    c: *mut f32,
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
        // Cheap enough to be done in registers, once per tile size.
        if e.activation == Some(Unary::Relu) {
            for x in acc.as_flattened_mut() {
                *x = s.max_raw(s.zero(), *x);
            }
        }
        match (e.activation, e.combine.filter(|x| x.after)) {
            (None | Some(Unary::Relu), None) => store_tile(s, acc, out, stride, width),
            (activation, after) => {
                let activation = activation.filter(|a| *a != Unary::Relu);
                store_tile(s, acc, out, stride, width);
                second_pass(s, activation, after, out, stride, (R, width.min(V * LANES)), (row, col));
            }
        }
    }
}

#[inline(always)]
unsafe fn linear<S: Simd, const R: usize, const V: usize>(
    s: S,
    e: &Epilogue,
    acc: &mut [[S::F; V]; R],
    row: usize,
    col: usize,
    width: usize,
) {
    if e.alpha != 1.0 {
        let alpha = s.splat(e.alpha);
        for x in acc.as_flattened_mut() {
            *x = s.mul(*x, alpha);
        }
    }
    match e.bias {
        Bias::None => {}
        Bias::PerColumn(p) => {
            for v in 0..V {
                // SAFETY: the caller promises a bias for each column.
                let b = unsafe { s.load_upto(p.add(col + v * LANES), lanes_of(v, width)) };
                for x in acc.iter_mut() {
                    x[v] = s.add(x[v], b);
                }
            }
        }
        Bias::PerRow(p) => {
            for (r, xs) in acc.iter_mut().enumerate() {
                // SAFETY: the caller promises a bias for each row.
                let b = s.splat(unsafe { *p.add(row + r) });
                for x in xs {
                    *x = s.add(*x, b);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn combine<S: Simd, const R: usize, const V: usize>(
    s: S,
    with: &Combine,
    acc: &mut [[S::F; V]; R],
    row: usize,
    col: usize,
    width: usize,
) {
    for (r, xs) in acc.iter_mut().enumerate() {
        for (v, x) in xs.iter_mut().enumerate() {
            // SAFETY: the caller promises an operand of C's extents.
            unsafe {
                let p = with.ptr.add((row + r) * with.row_stride + col + v * LANES);
                let y = s.load_upto(p, lanes_of(v, width));
                *x = binary(s, with.op, *x, y);
            }
        }
    }
}

#[inline(always)]
fn binary<S: Simd>(s: S, op: BinaryOp, x: S::F, y: S::F) -> S::F {
    match op {
        BinaryOp::Add => s.add(x, y),
        BinaryOp::Mul => s.mul(x, y),
    }
}

/// Activation and late operand over a tile that was just written and is still in the first-level cache.
///
/// Done through memory, and as a call, so that one copy of each function serves every tile size.
#[inline(always)]
fn second_pass<S: Simd>(
    s: S,
    activation: Option<Unary>,
    after: Option<Combine>,
    out: *mut f32,
    stride: usize,
    (rows, width): (usize, usize),
    (row, col): (usize, usize),
) {
    s.enter(SecondPass { activation, after, out, stride, rows, width, row, col });
}

struct SecondPass {
    activation: Option<Unary>,
    after: Option<Combine>,
    out: *mut f32,
    stride: usize,
    rows: usize,
    width: usize,
    row: usize,
    col: usize,
}

impl crate::isa::Kernel for SecondPass {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the tile was written by the caller just now, and the operand has C's extents.
        unsafe {
            for r in 0..self.rows {
                let line = self.out.add(r * self.stride);
                if let Some(op) = self.activation {
                    math::apply_within(s, op, line, line, self.width);
                }
                let Some(with) = self.after else { continue };
                let mut j = 0;
                while j < self.width {
                    let n = LANES.min(self.width - j);
                    let y = s.load_upto(with.ptr.add((self.row + r) * with.row_stride + self.col + j), n);
                    let x = s.load_upto(line.add(j), n);
                    s.store_upto(line.add(j), n, binary(s, with.op, x, y));
                    j += n;
                }
            }
        }
    }
}
