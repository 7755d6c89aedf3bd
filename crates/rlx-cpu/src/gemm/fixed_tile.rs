//! Bytes of a tile's sums: in fixed point while they are in registers, and by every step where that does not decide.

use super::PANEL;
use super::integer::ByteGemm;
use super::requantise::{ByteEpilogue, Column, Residual, bytes_by_floats, floats};
use crate::math::{FixedLinear, FixedSum, bytes_of, store_bytes_of};
use crate::simd::{Kernel, LANES, Simd};

/// The sums of one vector of columns, and where what they become goes.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) g: &'a ByteGemm,
    /// The sums of the first row, and [`PANEL`] further on those of the next.
    pub(super) line: *const i32,
    /// The first row, and how many there are.
    pub(super) row: usize,
    pub(super) rows: usize,
    /// The first of the columns, and how many there are.
    pub(super) at: usize,
    pub(super) lanes: usize,
}

impl Place<'_> {
    /// The sums of row `r`.
    ///
    /// # Safety
    /// There must be sums of this row.
    #[inline(always)]
    pub(super) unsafe fn row<S: Simd>(&self, s: S, r: usize) -> S::I {
        // SAFETY: the caller promises the row.
        s.bits(unsafe { s.load(self.line.wrapping_add(r * PANEL).cast()) })
    }

    /// The epilogue by every step that it stands for.
    ///
    /// # Safety
    /// The sums of each row, the epilogue's operands for the columns, and the result there must be as [`ByteGemm::run`] wants.
    #[inline(always)]
    pub(super) unsafe fn requantise<S: Simd>(&self, s: S, e: &ByteEpilogue) {
        let Place { g, at, lanes, .. } = *self;
        // SAFETY: the caller's promise.
        unsafe {
            let column = Column::load(s, e, at, lanes);
            for r in 0..self.rows {
                let row = self.row + r;
                let (sum, to) = (self.row(s, r), row * g.c_stride + at);
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
}

/// Rows whose bytes fixed point does not decide: a call, since there are few.
struct Doubted<'a>(Place<'a>);

impl Kernel for Doubted<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Some(e) = &self.0.g.epilogue else { return };
        // SAFETY: `FixedTile`, which alone makes it, was promised these rows and columns.
        unsafe { self.0.requantise(s, e) }
    }
}

/// Writes the bytes of a tile's sums in fixed point, one vector of columns of two rows or of one row at a time. Where
/// `PanelColumns::bytes` says so, the sums are still in registers.
pub(super) struct FixedTile<'a> {
    pub(super) g: &'a ByteGemm,
    pub(super) fixed: &'a [FixedLinear],
    pub(super) others: Option<(&'a Residual, &'a FixedSum)>,
    /// Where sums that fixed point does not decide are put: rows of [`PANEL`].
    pub(super) sums: *mut i32,
    /// The first row and column.
    pub(super) row: usize,
    pub(super) column: usize,
}

impl<'a> FixedTile<'a> {
    /// The tile from vector `v` of columns on.
    pub(super) fn from(self, v: usize) -> FixedTile<'a> {
        let (sums, column) = (self.sums.wrapping_add(v * LANES), self.column + v * LANES);
        FixedTile { fixed: &self.fixed[v..], sums, column, ..self }
    }

    /// Rows `r` and `r + 1` of vector `v`, which is a whole one.
    ///
    /// # Safety
    /// As [`ByteGemm::run`], for these rows and columns.
    #[inline(always)]
    pub(super) unsafe fn pair<S: Simd>(&self, s: S, (r, v): (usize, usize), [a, b]: [S::I; 2]) {
        // SAFETY: the caller's promise; sums have room for the tile.
        unsafe {
            let (first, doubt) = self.number(s, (r, v), a, LANES);
            let (second, doubtful) = self.number(s, (r + 1, v), b, LANES);
            if s.mask_bits(s.mask_or(doubt, doubtful)) == 0 {
                let to = self.to(r, v);
                store_bytes_of(s, [to, to.wrapping_add(self.g.c_stride)], [first, second]);
            } else {
                s.store(self.line(r, v), s.from_bits(a));
                s.store(self.line(r + 1, v), s.from_bits(b));
                s.enter(Doubted(self.place(r, v, 2, LANES)));
            }
        }
    }

    /// `lanes` columns of row `r` of vector `v`.
    ///
    /// # Safety
    /// As [`pair`](FixedTile::pair).
    #[inline(always)]
    pub(super) unsafe fn one<S: Simd>(&self, s: S, (r, v): (usize, usize), a: S::I, lanes: usize) {
        // SAFETY: the caller's promise; sums have room for the tile.
        unsafe {
            let (number, doubt) = self.number(s, (r, v), a, lanes);
            if s.mask_bits(doubt) == 0 {
                s.store_bytes(self.to(r, v), lanes, bytes_of(s, number));
            } else {
                s.store(self.line(r, v), s.from_bits(a));
                s.enter(Doubted(self.place(r, v, 1, lanes)));
            }
        }
    }

    /// The fixed-point numbers of sums, and those in doubt.
    ///
    /// # Safety
    /// As [`pair`](FixedTile::pair).
    #[inline(always)]
    unsafe fn number<S: Simd>(&self, s: S, (r, v): (usize, usize), sum: S::I, lanes: usize) -> (S::I, S::M) {
        let (number, doubt) = self.fixed[v].vector(s, s.from_int(sum));
        let Some((with, add)) = self.others else { return (number, doubt) };
        let at = (self.row + r) * with.row_stride + self.column + v * LANES;
        // SAFETY: the caller's promise.
        let (last, doubtful) = add.vector(s, number, unsafe { with.others(s, at, lanes) });
        (last, s.mask_or(doubt, doubtful))
    }

    #[inline(always)]
    fn to(&self, r: usize, v: usize) -> *mut u8 {
        self.g.c.cast::<u8>().wrapping_add((self.row + r) * self.g.c_stride + self.column + v * LANES)
    }

    #[inline(always)]
    fn line(&self, r: usize, v: usize) -> *mut f32 {
        self.sums.wrapping_add(r * PANEL + v * LANES).cast()
    }

    #[inline(always)]
    fn place(&self, r: usize, v: usize, rows: usize, lanes: usize) -> Place<'_> {
        let line = self.line(r, v).cast::<i32>().cast_const();
        Place { g: self.g, line, row: self.row + r, rows, at: self.column + v * LANES, lanes }
    }
}
