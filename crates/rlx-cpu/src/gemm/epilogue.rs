//! What is done to each element of the matmul before it is written.

use super::PANEL;
use super::element::Packed;
use crate::math::{self, Light, Unary, bounds};
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
    /// The matmul as it is.
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

/// A tile's sums, one row of whole vectors behind the other.
pub(super) type Sums<const R: usize, const V: usize> = [[[f32; LANES]; V]; R];

/// Whether [`finish_in_registers`] takes this epilogue: what most matmuls end with.
#[inline(always)]
pub(super) fn is_light<O: Packed>(e: &Epilogue<O>) -> bool {
    let bias = matches!(e.bias, Bias::None | Bias::PerColumn(_));
    bias && e.alpha == 1.0 && const { O::GROUP == 1 }
}

/// Applies an epilogue that [`is_light`] to a tile of whole vectors and writes it: what is cheap is done in registers.
///
/// # Safety
/// The tile must be f32 and writable, with the epilogue's operands for it.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn finish_in_registers<S: Simd, O: Packed, const R: usize, const V: usize>(
    s: S,
    e: &Epilogue<O>,
    sums: &mut [[S::F; V]; R],
    c: *mut O,
    stride: usize,
    row: usize,
    col: usize,
) {
    let out = c.wrapping_add(row * stride + col);
    // SAFETY: the caller promises a tile of whole vectors, a bias for each column, and an operand of C's extents.
    unsafe {
        if let Bias::PerColumn(p) = e.bias {
            for v in 0..V {
                let bias = s.load(p.cast::<f32>().wrapping_add(col + v * LANES));
                for row in sums.iter_mut() {
                    row[v] = s.add(row[v], bias);
                }
            }
        }
        if let Some(with) = e.combine.filter(|with| !with.after) {
            for (r, line) in sums.iter_mut().enumerate() {
                let from = with.ptr.wrapping_add((row + r) * with.row_stride + col).cast::<f32>();
                for (v, x) in line.iter_mut().enumerate() {
                    *x = binary(s, with.op, *x, s.load(from.wrapping_add(v * LANES)));
                }
            }
        }
        if let Some((lo, hi)) = e.activation.and_then(bounds) {
            for x in sums.as_flattened_mut() {
                *x = math::clip(s, *x, lo, hi);
            }
        }
        for (r, line) in sums.iter().enumerate() {
            for (v, &x) in line.iter().enumerate() {
                s.store(out.wrapping_add(r * stride + v * LANES).cast(), x);
            }
        }
        second_pass(s, e, out, stride, R, V * LANES, row, col);
    }
}

/// What is done to a tile that was just written, where there is anything: as a call, so that one copy of each function
/// serves every size of tile.
///
/// # Safety
/// As [`SecondPass`]: the tile of `rows` by `width` at `out` must be writable, the operand of C's extents.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn second_pass<S: Simd, O: Packed>(
    s: S,
    e: &Epilogue<O>,
    out: *mut O,
    stride: usize,
    rows: usize,
    width: usize,
    row: usize,
    col: usize,
) {
    let activation = e.activation.filter(|&a| bounds(a).is_none());
    let after = e.combine.filter(|x| x.after);
    if activation.is_some() || after.is_some() {
        s.enter_plain(SecondPass { activation, after, out, stride, rows, width, row, col });
    }
}

/// Applies any epilogue to a tile's sums and writes them: a call of its own, row by row, so that one copy of this code
/// serves every size of tile.
pub(super) struct Finish<'a, O> {
    pub e: &'a Epilogue<O>,
    /// `rows · vecs` vectors.
    pub sums: *const f32,
    pub rows: usize,
    pub vecs: usize,
    pub c: *mut O,
    pub stride: usize,
    pub row: usize,
    pub col: usize,
    /// Columns that are left from `col` on.
    pub width: usize,
}

impl<O: Packed> crate::isa::Kernel for Finish<'_, O> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (e, limits) = (self.e, self.e.activation.and_then(bounds));
        let width = self.width.min(self.vecs * LANES);
        // SAFETY: the caller of `Gemm::run` promised operands in bounds for the tile; an operand may be the result itself,
        // of which each element is read before it is written.
        unsafe {
            for r in 0..self.rows {
                let row = self.row + r;
                let (line, out) =
                    (self.sums.add(r * self.vecs * LANES), self.c.add(row * self.stride + self.col));
                let mut j = 0;
                while j < width {
                    let (n, col) = (LANES.min(width - j), self.col + j);
                    let mut x = linear(s, e, s.load(line.add(j)), row, col, n);
                    if let Some(with) = e.combine.filter(|with| !with.after) {
                        let y = O::load(s, with.ptr.add(row * with.row_stride + col), n);
                        x = binary(s, with.op, O::round(s, x), y);
                    }
                    if let Some((lo, hi)) = limits {
                        x = math::clip(s, x, lo, hi);
                    }
                    O::store(s, out.add(j), n, x);
                    j += LANES;
                }
            }
            let out = self.c.add(self.row * self.stride + self.col);
            second_pass(s, e, out, self.stride, self.rows, width, self.row, self.col);
        }
    }
}

/// `α·x + bias` of `n` elements from (row, col) on.
///
/// # Safety
/// There must be a bias for each of them.
#[inline(always)]
unsafe fn linear<S: Simd, O: Packed>(
    s: S,
    e: &Epilogue<O>,
    x: S::F,
    row: usize,
    col: usize,
    n: usize,
) -> S::F {
    let x = if e.alpha != 1.0 { s.mul(O::round(s, x), s.splat(e.alpha)) } else { x };
    // SAFETY: the caller's promise.
    unsafe {
        match e.bias {
            Bias::None => x,
            Bias::PerColumn(p) => s.add(O::round(s, x), O::load(s, p.add(col), n)),
            Bias::PerRow(p) => s.add(O::round(s, x), s.splat((*p.add(row)).widen())),
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
        let light = self.activation.and_then(|f| Light::of(f, const { O::GROUP == 1 }));
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
                if let Some(function) = light {
                    // A row is short: a call would cost as much as its work.
                    for j in (0..self.width).step_by(LANES) {
                        let n = LANES.min(self.width - j);
                        let mut x = s.load_upto(values.add(j), n);
                        function.apply(s, std::slice::from_mut(&mut x));
                        s.store_upto(values.add(j), n, x);
                    }
                } else if let Some(op) = self.activation {
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
