//! Bytes of a tile's sums: in fixed point while they are in registers, and by every step where that does not decide.

use super::epilogue::each_row;
use super::integer::{ByteGemm, MOST_ROWS};
use super::panels::{WIDEST, lanes_of};
use super::requantise::{ByteEpilogue, Column, Residual, bytes_by_floats, floats};
use crate::math::{FixedLinear, FixedSum};
use crate::simd::{Kernel, LANES, Simd};

/// The sums of one vector of columns, and where what they become goes.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) g: &'a ByteGemm,
    /// The sums of the first row, and [`WIDEST`] further on those of the next.
    pub(super) line: *const i32,
    /// The first row, and a bit for each that is meant.
    pub(super) row: usize,
    pub(super) rows: u32,
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
        s.bits(unsafe { s.load(self.line.wrapping_add(r * WIDEST).cast()) })
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
            let mut rows = self.rows;
            while rows != 0 {
                let r = rows.trailing_zeros() as usize;
                rows &= rows - 1;
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

/// Writes the bytes of a tile's sums in fixed point, one vector of columns of two rows or of one row at a time. Where
/// `TileColumns::bytes` says so, the sums are still in registers.
///
/// What fixed point does not decide is written as well, and written again by [`redo`](FixedTile::redo) when the tile is done: a call before that
/// would move all sums that are still in registers to memory.
#[derive(Clone, Copy)]
pub(super) struct FixedTile<'a> {
    pub(super) g: &'a ByteGemm,
    pub(super) fixed: &'a [FixedLinear],
    pub(super) others: Option<(&'a Residual, &'a FixedSum)>,
    /// Where sums that fixed point does not decide are put: rows of [`WIDEST`].
    pub(super) sums: *mut i32,
    /// The first row and column, and how many columns there are.
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) width: usize,
}

/// Bytes that are added to a tile's: a copy, since for all the compiler knows the bytes that are written might be any memory.
#[derive(Clone, Copy)]
struct Added {
    /// Those of the first row and column.
    from: *const u8,
    /// From one row to the next.
    stride: usize,
    signed: bool,
    by: FixedSum,
}

impl Added {
    /// Those from row `r` and vector `v` on.
    #[inline(always)]
    fn at(self, r: usize, v: usize) -> Added {
        Added { from: self.from.wrapping_add(r * self.stride + v * LANES), ..self }
    }

    /// A whole vector of the row that begins at `from`.
    ///
    /// # Safety
    /// There must be sixteen bytes.
    #[inline(always)]
    unsafe fn load<S: Simd>(&self, s: S, from: *const u8) -> S::I {
        // SAFETY: the caller's promise.
        unsafe {
            if self.signed { s.load_bytes::<true>(from, LANES) } else { s.load_bytes::<false>(from, LANES) }
        }
    }
}

/// Writes the bytes of two vectors of sums; whether any is in doubt.
///
/// # Safety
/// As [`ByteGemm::run`], for these rows and columns.
#[inline(always)]
unsafe fn pair<S: Simd>(
    s: S,
    fixed: &FixedLinear,
    [a, b]: [S::I; 2],
    added: Option<Added>,
    to: [*mut u8; 2],
) -> bool {
    let numbers = [fixed.vector(s, s.from_int(a)), fixed.vector(s, s.from_int(b))];
    let doubtful = fixed.doubts(s, numbers);
    // SAFETY: the caller's promise.
    unsafe {
        let Some(added) = added else {
            fixed.store(s, to, numbers);
            return doubtful;
        };
        let others = [added.load(s, added.from), added.load(s, added.from.wrapping_add(added.stride))];
        let own = [fixed.bytes(s, numbers[0]), fixed.bytes(s, numbers[1])];
        let numbers = [added.by.vector(s, own[0], others[0]), added.by.vector(s, own[1], others[1])];
        added.by.store(s, to, numbers);
        doubtful | added.by.doubts(s, numbers)
    }
}

/// Rows of vectors of columns that fixed point does not decide: [`MOST_ROWS`] bits for each vector.
#[derive(Clone, Copy, Default)]
pub(super) struct Doubts(u32);

impl Doubts {
    const ROWS: u32 = (1 << MOST_ROWS) - 1;

    /// Adds some rows of vector `v`, from `r` on, if `doubtful`.
    #[inline(always)]
    pub(super) fn add(&mut self, (r, v): (usize, usize), rows: u32, doubtful: bool) {
        const { assert!(MOST_ROWS * WIDEST / LANES <= 32) }
        if doubtful {
            self.0 |= rows << (v * MOST_ROWS + r);
        }
    }
}

impl<'a> FixedTile<'a> {
    /// The tile from vector `v` of columns on.
    pub(super) fn from(self, v: usize) -> FixedTile<'a> {
        let skipped = v * LANES;
        let (sums, column, width) =
            (self.sums.wrapping_add(skipped), self.column + skipped, self.width - skipped);
        FixedTile { fixed: &self.fixed[v..], sums, column, width, ..self }
    }

    /// The tile of the same columns that begins at `row`.
    #[inline(always)]
    pub(super) fn at_row(&self, row: usize) -> FixedTile<'a> {
        FixedTile { row, ..*self }
    }

    /// A tile of whole vectors, whose sums are still in registers.
    ///
    /// # Safety
    /// As [`ByteGemm::run`], for the rows and columns of the tile.
    #[inline(always)]
    pub(super) unsafe fn write<S: Simd, const R: usize, const V: usize>(&self, s: S, sums: &[[S::I; V]; R]) {
        // SAFETY: the caller's promise.
        unsafe {
            // Two loops, none of which asks which it is.
            let doubts = match self.others {
                None => self.rows(s, sums, None),
                Some((with, by)) => {
                    let from = with.ptr.wrapping_add(self.row * with.row_stride + self.column);
                    let added = Added { from, stride: with.row_stride, signed: with.other.signed, by: *by };
                    self.rows(s, sums, Some(added))
                }
            };
            self.redo(s, doubts);
        }
    }

    /// [`write`](FixedTile::write), with what is `added`.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn rows<S: Simd, const R: usize, const V: usize>(
        &self,
        s: S,
        sums: &[[S::I; V]; R],
        added: Option<Added>,
    ) -> Doubts {
        let (to, stride, mut doubts) = (self.to(0, 0), self.g.c_stride, Doubts::default());
        // SAFETY: the caller's promise.
        unsafe {
            each_row!(V, v => {
                let fixed = self.fixed[v];
                each_row!(R, r => {
                    if const { r.is_multiple_of(2) && r + 1 < R } {
                        let next = const { if r + 1 < R { r + 1 } else { r } };
                        let both = [sums[r][v], sums[next][v]];
                        let to = to.wrapping_add(r * stride + v * LANES);
                        let added = added.map(|added| added.at(r, v));
                        if pair(s, &fixed, both, added, [to, to.wrapping_add(stride)]) {
                            s.store(self.line(r, v), s.from_bits(both[0]));
                            s.store(self.line(next, v), s.from_bits(both[1]));
                            doubts.add((r, v), 0b11, true);
                        }
                    } else if const { r.is_multiple_of(2) } {
                        self.one(s, (r, v), sums[r][v], LANES, &mut doubts);
                    }
                }; 0 1 2 3 4 5 6 7);
            }; 0 1 2 3);
        }
        doubts
    }

    /// `lanes` columns of row `r` of vector `v`.
    ///
    /// # Safety
    /// As [`ByteGemm::run`], for these rows and columns.
    #[inline(always)]
    pub(super) unsafe fn one<S: Simd>(
        &self,
        s: S,
        (r, v): (usize, usize),
        a: S::I,
        lanes: usize,
        doubts: &mut Doubts,
    ) {
        // SAFETY: the caller's promise; sums have room for the tile.
        unsafe {
            let (bytes, doubtful) = self.bytes(s, (r, v), a, lanes);
            s.store_bytes(self.to(r, v), lanes, bytes);
            if doubtful {
                s.store(self.line(r, v), s.from_bits(a));
            }
            doubts.add((r, v), 1, doubtful);
        }
    }

    /// The bytes of the sums `a`, of `lanes` columns of row `r` of vector `v`, and whether one is in doubt.
    ///
    /// # Safety
    /// As [`ByteGemm::run`], for these rows and columns.
    #[inline(always)]
    unsafe fn bytes<S: Simd>(&self, s: S, (r, v): (usize, usize), a: S::I, lanes: usize) -> (S::I, bool) {
        let fixed = &self.fixed[v];
        let number = fixed.vector(s, s.from_int(a));
        let (bytes, doubtful) = (fixed.bytes(s, number), fixed.doubts(s, [number, number]));
        let Some((with, add)) = self.others else { return (bytes, doubtful) };
        // SAFETY: the caller's promise.
        let number = add.vector(s, bytes, unsafe { self.others(s, with, (r, v), lanes) });
        (add.bytes(s, number), doubtful | add.doubts(s, [number, number]))
    }

    /// Writes what fixed point did not decide. The bytes that are added are still there: [`ByteGemm::run`] wants the result apart from them.
    ///
    /// # Safety
    /// As [`ByteGemm::run`], for the rows and columns of the tile, whose sums were given to it.
    #[inline(always)]
    pub(super) unsafe fn redo<S: Simd>(&self, s: S, doubts: Doubts) {
        if doubts.0 != 0 {
            s.enter(Redo { tile: self, doubts });
        }
    }

    /// The bytes that are added to row `r` of vector `v`.
    ///
    /// # Safety
    /// As [`ByteGemm::run`], for these rows and columns.
    #[inline(always)]
    unsafe fn others<S: Simd>(&self, s: S, with: &Residual, (r, v): (usize, usize), lanes: usize) -> S::I {
        let at = (self.row + r) * with.row_stride + self.column + v * LANES;
        // SAFETY: the caller's promise.
        unsafe { with.others(s, at, lanes) }
    }

    #[inline(always)]
    fn to(&self, r: usize, v: usize) -> *mut u8 {
        self.g.c.cast::<u8>().wrapping_add((self.row + r) * self.g.c_stride + self.column + v * LANES)
    }

    #[inline(always)]
    fn line(&self, r: usize, v: usize) -> *mut f32 {
        self.sums.wrapping_add(r * WIDEST + v * LANES).cast()
    }
}

/// [`FixedTile::redo`], a call since there is little to do.
struct Redo<'a, 'b> {
    tile: &'a FixedTile<'b>,
    doubts: Doubts,
}

impl Kernel for Redo<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let FixedTile { g, sums, row, column, width, .. } = *self.tile;
        let Some(e) = &g.epilogue else { return };
        for v in 0..width.div_ceil(LANES) {
            let mut rows = self.doubts.0 >> (v * MOST_ROWS) & Doubts::ROWS;
            let line = sums.wrapping_add(v * LANES).cast_const();
            let mut place = Place { g, line, row, rows, at: column + v * LANES, lanes: lanes_of(v, width) };
            while rows != 0 {
                let r = rows.trailing_zeros() as usize;
                rows &= rows - 1;
                // SAFETY: `redo` was promised these rows and columns.
                let (_, doubtful) = unsafe { self.tile.bytes(s, (r, v), place.row(s, r), place.lanes) };
                if !doubtful {
                    // Its pair was in doubt for the other row alone.
                    place.rows &= !(1 << r);
                }
            }
            if place.rows != 0 {
                // SAFETY: as above.
                unsafe { place.requantise(s, e) }
            }
        }
    }
}
