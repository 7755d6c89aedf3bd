//! What becomes of exact sums of bytes before they are written: floats, and bytes again.
//!
//! `q(act(float(sum + offset) · scale + bias ⊕ operand))`, and other bytes added to those, `q(float(bytes) + float(others))`;
//! each step rounded as the op that it stands for, while the sums of a
//! tile are in the first-level cache: a quantised net then reads and writes bytes only. Most bytes are made in fixed point, which gives the
//! same ([`FixedLinear`]).

use std::ops::Range;

use super::Packed;
use super::epilogue::{Behind, Bias, Epilogue, SecondPass, binary};
use super::fixed_tile::{Doubts, FixedTile, Place};
use super::integer::ByteGemm;
use super::panels::{VECTORS, WIDEST, lanes_of, vector_at};
use super::prefetch::fetch_row;
use crate::math::{Dequantiser, FixedLinear, FixedSum, Light, Quantiser};
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
    pub(super) unsafe fn others<S: Simd>(&self, s: S, at: usize, lanes: usize) -> S::I {
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
    fn fixed<S: Simd>(&self, s: S) -> Option<FixedSum> {
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

    /// Starts moving the operands of a panel's columns, from `column` on, into the first-level cache.
    #[inline(always)]
    pub(super) fn fetch<S: Simd>(&self, s: S, column: usize) {
        let offset = self.offset.map(|o| o.from(column).ptr.cast());
        let bias = match self.floats.bias {
            Bias::PerColumn(p) => Some(p.wrapping_add(column)),
            _ => None,
        };
        for row in [Some(self.scale.from(column).ptr), offset, bias].into_iter().flatten() {
            fetch_row::<S, VECTORS>(s, row);
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

/// The sums of some rows of a tile, which began with [`TileColumns::starts`].
pub(super) struct Sums<'a> {
    /// Rows of [`WIDEST`].
    pub(super) at: *mut i32,
    pub(super) rows: Range<usize>,
    pub(super) g: &'a ByteGemm,
}

/// What the tiles of the same columns have in common.
pub(super) struct TileColumns {
    column: usize,
    width: usize,
    /// How far the next panel is behind that of the first column.
    far: usize,
    starts: Columns,
    /// The zero points of the weights, where one is not 0: then the sums of the rows matter.
    zeros: Option<Columns>,
    /// How sums become bytes, if all do and no operand comes in between.
    fixed: Option<[FixedLinear; WIDEST / LANES]>,
    /// How other bytes are added to those.
    residual: Option<FixedSum>,
}

/// A number for each column of a tile.
#[repr(align(64))]
struct Columns([i32; WIDEST]);

impl Columns {
    const ZERO: Columns = Columns([0; WIDEST]);

    #[inline(always)]
    fn set<S: Simd>(&mut self, s: S, v: usize, x: S::I) {
        let to = &mut self.0[v * LANES..(v + 1) * LANES];
        // SAFETY: the slice has so many numbers.
        unsafe { s.store(to.as_mut_ptr().cast(), s.from_bits(x)) }
    }

    #[inline(always)]
    fn vector<S: Simd>(&self, s: S, v: usize) -> S::I {
        let from = &self.0[v * LANES..(v + 1) * LANES];
        // SAFETY: the slice has so many numbers.
        s.bits(unsafe { s.load(from.as_ptr().cast()) })
    }
}

impl TileColumns {
    /// Those of a tile, whose sums are at `sums`, and `far` behind where they are of the next panel.
    ///
    /// # Safety
    /// As [`ByteGemm::run`]; there are no more than [`WIDEST`] columns.
    #[inline(always)]
    pub(super) unsafe fn of<S: Simd>(
        s: S,
        g: &ByteGemm,
        columns: Range<usize>,
        sums: *const f32,
        far: usize,
    ) -> TileColumns {
        let (column, width) = (columns.start, columns.len());
        let (mut starts, mut zeros) = (Columns::ZERO, Columns::ZERO);
        let mut fixed = [None; WIDEST / LANES];
        let mut uneven = false;
        for v in 0..width.div_ceil(LANES) {
            let (at, lanes) = (column + v * LANES, lanes_of(v, width));
            // SAFETY: the caller's promise: zero points, sums and operands for each column.
            unsafe {
                let zero = g.b_zero.load(s, at, lanes);
                // k·za·zb − za·Σb
                let column = s.bits(s.load(sums.wrapping_add(vector_at(v, far))));
                let both = s.sub_i(s.mul_i(zero, s.splat_i(g.terms as i32)), column);
                let mut both = s.mul_i(both, s.splat_i(g.a_zero + if g.signed { 128 } else { 0 }));
                if let Some(e) = &g.epilogue {
                    let column = Column::load(s, e, at, lanes);
                    if let Some(offset) = column.offset {
                        both = s.add_i(both, offset);
                    }
                    fixed[v] = column.fixed(s, e);
                }
                uneven |= s.mask_bits(s.eq_i(zero, s.splat_i(0))) != u16::MAX;
                zeros.set(s, v, zero);
                starts.set(s, v, both);
            }
        }
        let mut all = None;
        if let [Some(first), ..] = fixed {
            // The first columns stand for those that there are not.
            let mut each = [first; WIDEST / LANES];
            let mut whole = true;
            for v in 0..width.div_ceil(LANES) {
                match fixed[v] {
                    Some(of) => each[v] = of,
                    None => whole = false,
                }
            }
            all = whole.then_some(each);
        }
        let residual = g.epilogue.and_then(|e| e.residual).and_then(|r| r.fixed(s));
        TileColumns { column, width, far, starts, zeros: uneven.then_some(zeros), fixed: all, residual }
    }

    /// The first column.
    pub(super) fn first(&self) -> usize {
        self.column
    }

    /// How far the next panel is behind that of the first column.
    pub(super) fn far(&self) -> usize {
        self.far
    }

    /// How many vectors of columns there are.
    pub(super) fn vectors(&self) -> usize {
        self.width.div_ceil(LANES)
    }

    /// What the sums of the panel's columns begin with: all that does not depend on the row.
    pub(super) fn starts(&self) -> *const i32 {
        self.starts.0.as_ptr()
    }

    /// How the sums of rows from `row` on become bytes, where fixed point says it; those it does not decide are put at `sums`.
    fn fixed_tile<'a>(&'a self, g: &'a ByteGemm, sums: *mut i32, row: usize) -> Option<FixedTile<'a>> {
        let fixed = self.fixed.as_ref()?;
        let others = match g.epilogue.as_ref().and_then(|e| e.residual.as_ref()) {
            Some(with) => Some((with, self.residual.as_ref()?)),
            None => None,
        };
        Some(FixedTile { g, fixed, others, sums, row, column: self.column, width: self.width })
    }

    /// [`fixed_tile`](Self::fixed_tile) where that is all that follows on the sums, of whole vectors.
    #[inline(always)]
    pub(super) fn bytes<'a>(&'a self, g: &'a ByteGemm, sums: *mut i32, row: usize) -> Option<FixedTile<'a>> {
        let whole = self.zeros.is_none() && self.width.is_multiple_of(LANES);
        if whole { self.fixed_tile(g, sums, row) } else { None }
    }

    /// Puts the zero points in, applies the epilogue and writes the rows.
    ///
    /// # Safety
    /// As [`ByteGemm::run`].
    #[inline(always)]
    pub(super) unsafe fn finish<S: Simd>(&self, s: S, sums: &Sums<'_>) {
        let g = sums.g;
        let vectors = self.vectors();
        // SAFETY: the caller's promise: sums and operands for each column.
        unsafe {
            if let Some(zeros) = &self.zeros {
                subtract_rows(s, sums, zeros, vectors);
            }
            let tile = self.fixed_tile(g, sums.at, sums.rows.start);
            let mut doubts = Doubts::default();
            for v in 0..vectors {
                let (at, lanes) = (self.column + v * LANES, lanes_of(v, self.width));
                let line = sums.at.wrapping_add(v * LANES).cast_const();
                let rows = (1 << sums.rows.len()) - 1;
                let place = Place { g, line, row: sums.rows.start, rows, at, lanes };
                match (&g.epilogue, &tile) {
                    (None, _) => {
                        for (r, row) in sums.rows.clone().enumerate() {
                            let to = g.c.wrapping_add(row * g.c_stride + at);
                            s.store_upto(to.cast(), lanes, s.from_bits(place.row(s, r)));
                        }
                    }
                    (Some(_), Some(tile)) => {
                        for r in 0..sums.rows.len() {
                            tile.one(s, (r, v), place.row(s, r), lanes, &mut doubts);
                        }
                    }
                    (Some(e), None) => place.requantise(s, e),
                }
            }
            if let Some(tile) = &tile {
                tile.redo(s, doubts);
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

/// Takes the zero points of weights times the sums of the rows from the sums of a tile.
///
/// # Safety
/// As [`ByteGemm::run`].
#[inline(always)]
unsafe fn subtract_rows<S: Simd>(s: S, sums: &Sums<'_>, zeros: &Columns, vectors: usize) {
    // SAFETY: the caller's promise; a tile has sums of `rows` rows.
    unsafe {
        let of_rows = sums.g.row_sums(s, &sums.rows);
        for (r, sum) in of_rows.iter().enumerate().take(sums.rows.len()) {
            for v in 0..vectors {
                let at = sums.at.wrapping_add(r * WIDEST + v * LANES).cast::<f32>();
                let y = s.sub_i(s.bits(s.load(at)), s.mul_i(zeros.vector(s, v), s.splat_i(*sum)));
                s.store(at, s.from_bits(y));
            }
        }
    }
}

/// An epilogue's numbers for one vector of columns.
#[derive(Clone, Copy)]
pub(crate) struct Column<S: Simd> {
    scale: S::F,
    /// What the sums want added.
    pub(crate) offset: Option<S::I>,
    bias: Option<S::F>,
    light: Option<Light>,
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
            Column { scale, offset, bias, light: e.floats.activation.and_then(Light::of) }
        }
    }

    /// How exact sums become bytes in fixed point, if they become bytes with nothing in between.
    #[inline(always)]
    pub(crate) fn fixed(&self, s: S, e: &ByteEpilogue) -> Option<FixedLinear> {
        let q = e.quantiser.as_ref()?;
        let direct = e.floats.combine.is_none() && self.light.is_none();
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

    /// Floats with the activation, if it is a light one.
    #[inline(always)]
    pub(crate) fn activated(&self, s: S, mut x: S::F) -> S::F {
        if let Some(function) = self.light {
            function.apply::<S, f32>(s, std::slice::from_mut(&mut x));
        }
        x
    }
}

/// The bytes of exact sums of a row, whose columns from `at` on are `column`, by every step that they stand for.
///
/// # Safety
/// The epilogue's operands must be there for these columns.
#[inline(always)]
pub(super) unsafe fn bytes_by_floats<S: Simd>(
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
pub(super) unsafe fn floats<S: Simd>(
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
    column.activated(s, x)
}

#[cfg(test)]
#[path = "tests_requantise.rs"]
mod tests;
