//! What becomes of exact sums of bytes before they are written: floats, and bytes again.
//!
//! `q(act(float(sum + offset) · scale + bias ⊕ operand))`, and other bytes added to those, `q(float(bytes) + float(others))`;
//! each step rounded as the op that it stands for, while the sums of a
//! tile are in the first-level cache: a quantised net then reads and writes bytes only. Most bytes are made in fixed point, which gives the
//! same ([`FixedLinear`]).

use std::ops::Range;

use super::epilogue::{Behind, Bias, Epilogue, SecondPass, binary};
use super::integer::ByteGemm;
use super::kernel::lanes_of;
use super::{PANEL, Packed};
use crate::math::{self, Dequantiser, FixedLinear, FixedSum, Quantiser, bounds, bytes_of};
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
    /// The others of `lanes` columns of a row, from the `at`-th on.
    ///
    /// # Safety
    /// `lanes` bytes must be readable from the `at`-th after `ptr` on.
    #[inline(always)]
    unsafe fn others<S: Simd>(&self, s: S, at: usize, lanes: usize) -> S::I {
        let from = self.ptr.wrapping_add(at);
        // SAFETY: the caller promises `lanes` readable bytes from `from` on, and no more are loaded.
        unsafe {
            if self.other.signed {
                s.load_bytes::<true>(from, lanes)
            } else {
                s.load_bytes::<false>(from, lanes)
            }
        }
    }

    /// The same in fixed point.
    #[inline(always)]
    fn fixed<S: Simd>(&self, s: S) -> Option<FixedSum<S>> {
        FixedSum::new(s, &self.quantiser, &self.own, &self.other)
    }

    /// The bytes of columns whose own bytes are `bytes`.
    #[inline(always)]
    fn add<S: Simd>(&self, s: S, bytes: S::I, others: S::I) -> S::I {
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
    pub fn skip(self, row: usize) -> ByteEpilogue {
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
    pub(super) g: &'a ByteGemm,
}

/// What the tiles of a panel have in common.
pub(super) struct PanelColumns<S: Simd> {
    column: usize,
    width: usize,
    vectors: [Vector<S>; PANEL / LANES],
    residual: Option<FixedSum<S>>,
}

/// What one vector of columns has in common for all rows.
#[derive(Clone, Copy)]
struct Vector<S: Simd> {
    /// Added to the sums.
    both: S::I,
    /// The zero points of the weights, and whether they take the sums of the rows.
    zero: S::I,
    uneven: bool,
    /// How sums become bytes, if they do and no operand comes in between.
    fixed: Option<FixedLinear<S>>,
}

impl<S: Simd> PanelColumns<S> {
    /// Those from `column` on, whose sums are `sums`.
    ///
    /// # Safety
    /// As [`ByteGemm::run`].
    #[inline(always)]
    pub(super) unsafe fn of(s: S, g: &ByteGemm, column: usize, sums: *const f32) -> PanelColumns<S> {
        let width = PANEL.min(g.n - column);
        let none = Vector { both: s.splat_i(0), zero: s.splat_i(0), uneven: false, fixed: None };
        let mut vectors = [none; PANEL / LANES];
        for v in 0..width.div_ceil(LANES) {
            let (at, lanes) = (column + v * LANES, lanes_of(v, width));
            // SAFETY: the caller's promise: zero points, sums and operands for each column.
            unsafe {
                let zero = g.b_zero.load(s, at, lanes);
                // k·za·zb − za·Σb
                let column = s.bits(s.load(sums.wrapping_add(v * LANES)));
                let both = s.sub_i(s.mul_i(zero, s.splat_i(g.terms as i32)), column);
                let mut both = s.mul_i(both, s.splat_i(g.a_zero + if g.signed { 128 } else { 0 }));
                let mut fixed = None;
                if let Some(e) = &g.epilogue {
                    let column = Column::load(s, e, at, lanes);
                    if let Some(offset) = column.offset {
                        both = s.add_i(both, offset);
                    }
                    fixed = column.fixed(s, e);
                }
                let uneven = s.mask_bits(s.eq_i(zero, s.splat_i(0))) != u16::MAX;
                vectors[v] = Vector { both, zero, uneven, fixed };
            }
        }
        let residual = g.epilogue.and_then(|e| e.residual).and_then(|r| r.fixed(s));
        PanelColumns { column, width, vectors, residual }
    }

    /// Puts the zero points in, applies the epilogue and writes the rows.
    ///
    /// # Safety
    /// As [`ByteGemm::run`].
    #[inline(always)]
    pub(super) unsafe fn finish(&self, s: S, sums: &Sums<'_>) {
        let g = sums.g;
        let mut rows = None;
        for v in 0..self.width.div_ceil(LANES) {
            let (at, lanes) = (self.column + v * LANES, lanes_of(v, self.width));
            let Vector { both, zero, uneven, fixed } = self.vectors[v];
            // SAFETY: the caller's promise: sums and operands for each column.
            unsafe {
                if uneven && rows.is_none() {
                    rows = Some(g.row_sums(s, &sums.rows));
                }
                let line = sums.at.wrapping_add(v * LANES);
                let exact = Exact { line, both, zero, rows: rows.filter(|_| uneven) };
                let place = Place { sums, at, lanes };
                match (&g.epilogue, fixed) {
                    (None, _) => {
                        for (r, row) in sums.rows.clone().enumerate() {
                            let to = g.c.wrapping_add(row * g.c_stride + at);
                            s.store_upto(to.cast(), lanes, s.from_bits(exact.row(s, r)));
                        }
                    }
                    (Some(e), None) => requantise(s, e, place, exact),
                    (Some(e), Some(fixed)) => match (&e.residual, self.residual) {
                        (None, _) => quick::<S, false>(s, e, place, exact, fixed, None),
                        (Some(_), Some(sum)) => quick::<S, true>(s, e, place, exact, fixed, Some(sum)),
                        (Some(_), None) => requantise(s, e, place, exact),
                    },
                }
            }
        }
        let Some(e) = g.epilogue.as_ref().filter(|e| e.quantiser.is_none()) else { return };
        let (row, col, stride) = (sums.rows.start, self.column, g.c_stride);
        let out = g.c.cast::<f32>().wrapping_add(row * stride + col);
        let (rows, width) = (sums.rows.len(), self.width);
        let behind = Behind::of(&e.floats);
        let pass =
            SecondPass { behind, values: out, values_stride: stride, out, stride, rows, width, row, col };
        // SAFETY: the tile was just written; the caller's promise for the operand.
        unsafe { pass.enter(s) };
    }
}

/// Sums of one vector of columns, and what their zero points and the offset add to them.
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

/// Where the sums of one vector of columns go.
#[derive(Clone, Copy)]
struct Place<'a> {
    sums: &'a Sums<'a>,
    /// The first of the columns, and how many there are.
    at: usize,
    lanes: usize,
}

/// An epilogue's numbers for one vector of columns.
#[derive(Clone, Copy)]
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

    /// How exact sums become bytes in fixed point, if they become bytes with nothing in between.
    #[inline(always)]
    pub(crate) fn fixed(&self, s: S, e: &ByteEpilogue) -> Option<FixedLinear<S>> {
        let q = e.quantiser.as_ref()?;
        let direct = e.floats.combine.is_none() && self.clip.is_none();
        if !direct {
            return None;
        }
        // Without a bias it is 0: of −0 that makes 0, whose byte is the same.
        FixedLinear::new(s, q, self.scale, self.bias.unwrap_or(s.zero()))
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

/// The bytes of exact sums of a row, whose columns from `at` on are `column`, by every step that they stand for.
///
/// # Safety
/// The epilogue's operands must be there for these columns.
#[inline(always)]
unsafe fn bytes_by_floats<S: Simd>(
    s: S,
    (e, q): (&ByteEpilogue, &Quantiser),
    column: &Column<S>,
    sum: S::I,
    (row, at, lanes): (usize, usize, usize),
) -> S::I {
    // SAFETY: the caller's promise.
    unsafe {
        let bytes = q.vector(s, floats(s, e, column, sum, (row, at, lanes)));
        match &e.residual {
            Some(r) => r.add(s, bytes, r.others(s, row * r.row_stride + at, lanes)),
            None => bytes,
        }
    }
}

/// The same before they become bytes.
///
/// # Safety
/// As [`bytes_by_floats`].
#[inline(always)]
unsafe fn floats<S: Simd>(
    s: S,
    e: &ByteEpilogue,
    column: &Column<S>,
    sum: S::I,
    (row, at, lanes): (usize, usize, usize),
) -> S::F {
    let mut x = column.scaled(s, s.from_int(sum));
    if let Some(with) = e.floats.combine.filter(|x| !x.after) {
        // SAFETY: the caller's promise.
        let y = unsafe { f32::load(s, with.ptr.wrapping_add(row * with.row_stride + at), lanes) };
        x = binary(s, with.op, x, y);
    }
    column.bounded(s, x)
}

/// The epilogue on one vector of columns of each row, in fixed point but for vectors in doubt; `SUM`: with a residual, by `sum`.
///
/// # Safety
/// As [`requantise`].
#[inline(always)]
unsafe fn quick<S: Simd, const SUM: bool>(
    s: S,
    e: &ByteEpilogue,
    place: Place<'_>,
    exact: Exact<S>,
    fixed: FixedLinear<S>,
    sum: Option<FixedSum<S>>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        // Whole vectors without masks.
        if place.lanes == LANES {
            quick_rows::<S, SUM>(s, e, Place { lanes: LANES, ..place }, exact, fixed, sum);
        } else {
            quick_rows::<S, SUM>(s, e, place, exact, fixed, sum);
        }
    }
}

/// The rows of [`quick`].
///
/// # Safety
/// As [`requantise`].
#[inline(always)]
unsafe fn quick_rows<S: Simd, const SUM: bool>(
    s: S,
    e: &ByteEpilogue,
    Place { sums, at, lanes }: Place<'_>,
    exact: Exact<S>,
    fixed: FixedLinear<S>,
    sum: Option<FixedSum<S>>,
) {
    let stride = sums.g.c_stride;
    let mut to = sums.g.c.cast::<u8>().wrapping_add(sums.rows.start * stride + at);
    for (r, row) in sums.rows.clone().enumerate() {
        // SAFETY: the caller's promise: this row's sums can be read and `lanes` of its bytes be written.
        unsafe {
            let n = exact.row(s, r);
            let (mut number, mut doubt) = fixed.vector(s, s.from_int(n));
            if let (true, Some(with), Some(sum)) = (SUM, &e.residual, &sum) {
                let others = with.others(s, row * with.row_stride + at, lanes);
                let (last, doubtful) = sum.vector(s, number, others);
                (number, doubt) = (last, s.mask_or(doubt, doubtful));
            }
            let mut bytes = bytes_of(s, number);
            if let (true, Some(q)) = (s.mask_bits(doubt) != 0, &e.quantiser) {
                let column = Column::load(s, e, at, lanes);
                bytes = bytes_by_floats(s, (e, q), &column, n, (row, at, lanes));
            }
            s.store_bytes(to, lanes, bytes);
        }
        to = to.wrapping_add(stride);
    }
}

/// The epilogue on one vector of columns of each row.
///
/// # Safety
/// The sums of each row, the epilogue's operands for the columns of `place`, and the result there must be as [`ByteGemm::run`] wants.
#[inline(always)]
unsafe fn requantise<S: Simd>(s: S, e: &ByteEpilogue, Place { sums, at, lanes }: Place<'_>, exact: Exact<S>) {
    let g = sums.g;
    // SAFETY: the caller's promise.
    unsafe {
        let column = Column::load(s, e, at, lanes);
        for (r, row) in sums.rows.clone().enumerate() {
            let (sum, to) = (exact.row(s, r), row * g.c_stride + at);
            match &e.quantiser {
                Some(q) => {
                    let bytes = bytes_by_floats(s, (e, q), &column, sum, (row, at, lanes));
                    s.store_bytes(g.c.cast::<u8>().wrapping_add(to), lanes, bytes);
                }
                None => {
                    let x = floats(s, e, &column, sum, (row, at, lanes));
                    s.store_upto(g.c.cast::<f32>().wrapping_add(to), lanes, x);
                }
            }
        }
    }
}
