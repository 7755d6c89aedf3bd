//! What becomes of exact sums of bytes before they are written: floats, and bytes again.
//!
//! `q(act(float(sum + offset) · scale + bias ⊕ operand))`, and other bytes added to those, `q(float(bytes) + float(others))`;
//! each step rounded as the op that it stands for, while the sums of a
//! tile are in the first-level cache: a quantised net then reads and writes bytes only.

use std::ops::Range;

use super::epilogue::{Bias, Epilogue, SecondPass, binary, bounds};
use super::integer::ByteGemm;
use super::kernel::lanes_of;
use super::{PANEL, Packed};
use crate::math::{self, Dequantiser, Quantiser, SplatDequantiser, SplatQuantiser};
use crate::simd::{LANES, Simd};

/// One number for each column (`step` 1), or one for all (`step` 0).
#[derive(Debug, Clone, Copy)]
pub struct PerColumn<T> {
    /// The first.
    pub ptr: *const T,
    /// 1 or 0.
    pub step: usize,
}

impl<T> PerColumn<T> {
    /// Those from `column` on.
    pub fn from(self, column: usize) -> PerColumn<T> {
        PerColumn { ptr: self.ptr.wrapping_add(column * self.step), ..self }
    }
}

impl PerColumn<f32> {
    /// Those of the `lanes` columns from `column` on.
    ///
    /// # Safety
    /// There must be a number for each column.
    #[inline(always)]
    pub(crate) unsafe fn load<S: Simd>(&self, s: S, column: usize, lanes: usize) -> S::F {
        // SAFETY: the caller's promise.
        unsafe {
            match self.step {
                0 => s.splat(*self.ptr),
                _ => s.load_upto(self.ptr.wrapping_add(column), lanes),
            }
        }
    }
}

impl PerColumn<i32> {
    /// As that of f32.
    ///
    /// # Safety
    /// There must be a number for each column.
    #[inline(always)]
    pub(crate) unsafe fn load<S: Simd>(&self, s: S, column: usize, lanes: usize) -> S::I {
        let words = PerColumn { ptr: self.ptr.cast::<f32>(), step: self.step };
        // SAFETY: the caller's promise; only bits are moved.
        s.bits(unsafe { words.load(s, column, lanes) })
    }
}

/// What is done to the exact sums; the formula is the module's.
#[derive(Debug, Clone, Copy)]
pub struct ByteEpilogue {
    /// Added to the sums.
    pub offset: Option<PerColumn<i32>>,
    /// What the sums are multiplied by as floats.
    pub scale: PerColumn<f32>,
    /// What follows on floats; its factor is 1 and its bias, if any, one for each column.
    pub floats: Epilogue<f32>,
    /// How the result becomes bytes. Then bounds are the only activation, and an operand comes before them.
    pub quantiser: Option<Quantiser>,
    /// What is done to those bytes before they are written.
    pub residual: Option<Residual>,
}

/// Other bytes of the result's rows, which are added to its bytes, both as floats; the sums become bytes again.
#[derive(Debug, Clone, Copy)]
pub struct Residual {
    /// What the result's own bytes stand for.
    pub own: Dequantiser,
    /// What the others stand for.
    pub other: Dequantiser,
    /// The first of the others.
    pub ptr: *const u8,
    /// Bytes from one row of them to the next.
    pub row_stride: usize,
    /// How the sums become bytes.
    pub quantiser: Quantiser,
}

impl Residual {
    /// Its numbers in registers, for a loop.
    #[inline(always)]
    fn splat<S: Simd>(&self, s: S) -> SplatResidual<'_, S> {
        let (own, other) = (self.own.splat(s), self.other.splat(s));
        SplatResidual { of: self, own, other, quantiser: self.quantiser.splat(s) }
    }
}

/// A [`Residual`] whose numbers are in registers.
struct SplatResidual<'a, S: Simd> {
    of: &'a Residual,
    own: SplatDequantiser<S>,
    other: SplatDequantiser<S>,
    quantiser: SplatQuantiser<S>,
}

impl<S: Simd> SplatResidual<'_, S> {
    /// The bytes of `lanes` columns of a row whose own bytes are `bytes`; the others are from the `at`-th on.
    ///
    /// # Safety
    /// `lanes` bytes must be readable from the `at`-th after the residual's `ptr` on.
    #[inline(always)]
    unsafe fn add(&self, s: S, bytes: S::I, at: usize, lanes: usize) -> S::I {
        let from = self.of.ptr.wrapping_add(at);
        // SAFETY: the caller promises `lanes` readable bytes from `from` on, and no more are loaded.
        let others = unsafe {
            if self.of.other.signed {
                s.load_bytes::<true>(from, lanes)
            } else {
                s.load_bytes::<false>(from, lanes)
            }
        };
        self.quantiser.vector(s, s.add(self.own.vector(s, bytes), self.other.vector(s, others)))
    }
}

// SAFETY: plain addresses; anyone who reads through them was promised that it may.
unsafe impl Send for ByteEpilogue {}
// SAFETY: as above.
unsafe impl Sync for ByteEpilogue {}

impl ByteEpilogue {
    /// The operands of the columns from `column` on.
    pub fn from(self, column: usize) -> ByteEpilogue {
        let mut floats = self.floats;
        if let Bias::PerColumn(p) = &mut floats.bias {
            *p = p.wrapping_add(column);
        }
        if let Some(combine) = &mut floats.combine {
            combine.ptr = combine.ptr.wrapping_add(column);
        }
        let residual = self.residual.map(|r| Residual { ptr: r.ptr.wrapping_add(column), ..r });
        ByteEpilogue {
            offset: self.offset.map(|o| o.from(column)),
            scale: self.scale.from(column),
            floats,
            residual,
            ..self
        }
    }

    /// The operands of the rows from `row` on.
    pub fn from_row(self, row: usize) -> ByteEpilogue {
        let mut floats = self.floats;
        if let Some(combine) = &mut floats.combine {
            combine.ptr = combine.ptr.wrapping_add(row * combine.row_stride);
        }
        let residual = self.residual.map(|r| Residual { ptr: r.ptr.wrapping_add(row * r.row_stride), ..r });
        ByteEpilogue { floats, residual, ..self }
    }
}

/// The sums of some rows of a panel, as they were multiplied.
pub(super) struct Sums<'a> {
    /// Rows of [`PANEL`].
    pub(super) at: *const i32,
    pub(super) rows: Range<usize>,
    /// The panel's first column.
    pub(super) column: usize,
    /// The sums over the panel's columns.
    pub(super) columns: *const f32,
    pub(super) g: &'a ByteGemm,
}

/// Puts the zero points in, applies the epilogue and writes the rows.
///
/// # Safety
/// As [`ByteGemm::run`].
#[inline(always)]
pub(super) unsafe fn finish<S: Simd>(s: S, sums: &Sums<'_>) {
    let g = sums.g;
    let width = PANEL.min(g.n - sums.column);
    let mut rows = None;
    for v in 0..width.div_ceil(LANES) {
        let (at, lanes) = (sums.column + v * LANES, lanes_of(v, width));
        // SAFETY: the caller's promise: zero points, sums and operands for each column.
        unsafe {
            let zero = g.b_zero.load(s, at, lanes);
            if s.mask_bits(s.eq_i(zero, s.splat_i(0))) != u16::MAX && rows.is_none() {
                rows = Some(g.row_sums(s, &sums.rows));
            }
            // k·za·zb − za·Σb
            let column = s.bits(s.load(sums.columns.wrapping_add(v * LANES)));
            let both = s.sub_i(s.mul_i(zero, s.splat_i(g.terms as i32)), column);
            let both = s.mul_i(both, s.splat_i(g.a_zero + if g.signed { 128 } else { 0 }));
            let line = sums.at.wrapping_add(v * LANES);
            let exact = Exact { line, both, zero, rows };
            match &g.epilogue {
                None => {
                    for (r, row) in sums.rows.clone().enumerate() {
                        let to = g.c.wrapping_add(row * g.c_stride + at);
                        s.store_upto(to.cast(), lanes, s.from_bits(exact.row(s, r)));
                    }
                }
                Some(e) => requantise(s, e, sums, exact, at, lanes),
            }
        }
    }
    let Some(e) = g.epilogue.as_ref().filter(|e| e.quantiser.is_none()) else { return };
    let activation = e.floats.activation.filter(|&a| bounds(a).is_none());
    let after = e.floats.combine.filter(|x| x.after);
    if activation.is_some() || after.is_some() {
        let (row, col, stride) = (sums.rows.start, sums.column, g.c_stride);
        let out = g.c.cast::<f32>().wrapping_add(row * stride + col);
        s.enter(SecondPass { activation, after, out, stride, rows: sums.rows.len(), width, row, col });
    }
}

/// Sums of one vector of columns, and what their zero points add to them.
struct Exact<S: Simd> {
    line: *const i32,
    both: S::I,
    zero: S::I,
    /// The sums of the rows, where they matter.
    rows: Option<[i32; 8]>,
}

impl<S: Simd> Exact<S> {
    /// The products of row `r`.
    #[inline(always)]
    unsafe fn row(&self, s: S, r: usize) -> S::I {
        // SAFETY: the caller promises the row.
        let sum = s.bits(unsafe { s.load(self.line.wrapping_add(r * PANEL).cast()) });
        let y = s.add_i(sum, self.both);
        match self.rows {
            Some(rows) => s.sub_i(y, s.mul_i(self.zero, s.splat_i(rows[r]))),
            None => y,
        }
    }
}

/// An epilogue's numbers for one vector of columns.
pub(crate) struct Column<S: Simd> {
    scale: S::F,
    /// What the sums want added.
    pub(crate) offset: Option<S::I>,
    bias: Option<S::F>,
    clip: Option<(f32, f32)>,
}

impl<S: Simd> Column<S> {
    /// Those of the `lanes` columns from `at` on.
    ///
    /// # Safety
    /// The epilogue's operands must be there for these columns.
    #[inline(always)]
    pub(crate) unsafe fn load(s: S, e: &ByteEpilogue, at: usize, lanes: usize) -> Column<S> {
        let mut offset = None;
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(o) = e.offset {
                offset = Some(o.load(s, at, lanes));
            }
            let bias = match e.floats.bias {
                Bias::PerColumn(p) => Some(s.load_upto(p.wrapping_add(at), lanes)),
                _ => None,
            };
            let scale = e.scale.load(s, at, lanes);
            Column { scale, offset, bias, clip: e.floats.activation.and_then(bounds) }
        }
    }

    /// Exact sums, with their offset, as floats with scale and bias.
    #[inline(always)]
    pub(crate) fn scaled(&self, s: S, sums: S::F) -> S::F {
        let x = s.mul(sums, self.scale);
        match self.bias {
            Some(bias) => s.add(x, bias),
            None => x,
        }
    }

    /// Floats within the activation's bounds.
    #[inline(always)]
    pub(crate) fn bounded(&self, s: S, x: S::F) -> S::F {
        match self.clip {
            Some((lo, hi)) => math::clip(s, x, lo, hi),
            None => x,
        }
    }
}

/// What makes bytes of one vector of columns of exact sums, where weights are around 0 and no operand comes in between: all numbers are in
/// registers, and nothing is asked for each row.
struct ToBytes<S: Simd> {
    /// Added to the sums.
    both: S::I,
    scale: S::F,
    bias: S::F,
    quantiser: SplatQuantiser<S>,
}

impl<S: Simd> ToBytes<S> {
    /// Writes the bytes of each row, of the `lanes` columns from `at` on, after `then`.
    ///
    /// # Safety
    /// A vector of sums must be readable at `line` and every [`PANEL`] after it, one for each of the rows, and in each row of the result `lanes`
    /// bytes must be writable from column `at` on.
    #[inline(always)]
    unsafe fn rows(
        &self,
        s: S,
        sums: &Sums<'_>,
        line: *const i32,
        (at, lanes): (usize, usize),
        then: impl Fn(S::I, usize) -> S::I,
    ) {
        let stride = sums.g.c_stride;
        let mut from = line.cast::<f32>();
        let mut to = sums.g.c.cast::<u8>().wrapping_add(sums.rows.start * stride + at);
        for row in sums.rows.clone() {
            // SAFETY: `from` is this row's vector of sums and `to` its place in the result: the caller promises that one can be read and
            // `lanes` bytes be written.
            unsafe {
                let sum = s.add_i(s.bits(s.load(from)), self.both);
                let x = s.add(s.mul(s.from_int(sum), self.scale), self.bias);
                s.store_bytes(to, lanes, then(self.quantiser.vector(s, x), row));
            }
            (from, to) = (from.wrapping_add(PANEL), to.wrapping_add(stride));
        }
    }
}

/// The epilogue on one vector of columns of each row.
///
/// # Safety
/// The sums of each row, the epilogue's operands for the `lanes` columns from `at` on, and the result there must be as [`ByteGemm::run`] wants.
#[inline(always)]
unsafe fn requantise<S: Simd>(
    s: S,
    e: &ByteEpilogue,
    sums: &Sums<'_>,
    mut exact: Exact<S>,
    at: usize,
    lanes: usize,
) {
    let g = sums.g;
    // SAFETY: the caller's promise.
    unsafe {
        let column = Column::load(s, e, at, lanes);
        if let Some(offset) = column.offset {
            exact.both = s.add_i(exact.both, offset);
        }
        let before = e.floats.combine.filter(|x| !x.after);
        if let (Some(q), None, None, None) = (&e.quantiser, before, exact.rows, column.clip) {
            // Without a bias it is 0: of −0 that makes 0, whose byte is the same.
            let bias = column.bias.unwrap_or(s.zero());
            let to_bytes = ToBytes { both: exact.both, scale: column.scale, bias, quantiser: q.splat(s) };
            let line = exact.line;
            return match (e.residual.as_ref().map(|residual| residual.splat(s)), lanes == LANES) {
                (None, true) => to_bytes.rows(s, sums, line, (at, LANES), |bytes, _| bytes),
                (None, false) => to_bytes.rows(s, sums, line, (at, lanes), |bytes, _| bytes),
                (Some(residual), true) => to_bytes.rows(s, sums, line, (at, LANES), |bytes, row| {
                    residual.add(s, bytes, row * residual.of.row_stride + at, LANES)
                }),
                (Some(residual), false) => to_bytes.rows(s, sums, line, (at, lanes), |bytes, row| {
                    residual.add(s, bytes, row * residual.of.row_stride + at, lanes)
                }),
            };
        }
        for (r, row) in sums.rows.clone().enumerate() {
            let mut x = column.scaled(s, s.from_int(exact.row(s, r)));
            if let Some(with) = &before {
                let y = f32::load(s, with.ptr.wrapping_add(row * with.row_stride + at), lanes);
                x = binary(s, with.op, x, y);
            }
            let x = column.bounded(s, x);
            let to = row * g.c_stride + at;
            match &e.quantiser {
                Some(q) => {
                    let mut bytes = q.vector(s, x);
                    if let Some(residual) = &e.residual {
                        bytes = residual.splat(s).add(s, bytes, row * residual.row_stride + at, lanes);
                    }
                    s.store_bytes(g.c.cast::<u8>().wrapping_add(to), lanes, bytes);
                }
                None => s.store_upto(g.c.cast::<f32>().wrapping_add(to), lanes, x),
            }
        }
    }
}
