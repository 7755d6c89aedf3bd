//! Transposing through registers, in squares of sixteen by sixteen elements.
//!
//! Sixteen runs of sixteen neighbours are read, turned by four rounds of [`Simd::zip`], and written as sixteen runs of
//! sixteen neighbours, so memory is read and written in whole cache lines wherever the strides are large. Of elements of one and
//! two bytes, four and two neighbours of the result share a lane, so that a square is four and two times as wide; those of eight
//! bytes are moved one by one.
//!
//! Rows of a result are written some columns at a time, all rows of a band: so runs of the source that are next to each other are
//! read soon one after the other. What is written next is fetched ahead, since nothing else foresees it.

mod non_temporal;

use std::mem::MaybeUninit;

use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

pub(crate) use non_temporal::{COLUMN, NonTemporal, has_whole_lines};

/// Columns that are written in all rows of a band before those behind them.
const CHUNK: usize = 128;

/// The most elements of a lane.
const MOST_OF_LANE: usize = 4;

/// Rows of a band whose columns are copied behind each other before they are transposed, where elements share lanes: otherwise the
/// few bytes that a square reads of each column would have to stay in the first-level cache until the next square, and columns
/// that are a power of two apart push each other out of it.
const STAGED: usize = 64;

/// Squares between the one that is written and the one whose memory is fetched.
const AHEAD: usize = 2;

/// Columns that are all as far apart.
pub(crate) const ONE_GROUP: (usize, isize) = (usize::MAX, 0);

/// A band of a matrix to transpose: `height` rows of the result, `width` elements each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Band<T> {
    /// The first element. Its neighbours in memory are the elements below it in the result.
    pub(crate) from: *const T,
    /// From one column of the result to the next, in the source.
    pub(crate) from_column: isize,
    /// Columns of a group, and from one group to the next in the source: [`ONE_GROUP`] where all columns are equally far apart.
    pub(crate) group: (usize, isize),
    pub(crate) to: *mut T,
    /// From one row of the result to the next.
    pub(crate) to_row: isize,
    pub(crate) height: usize,
    pub(crate) width: usize,
}

/// Writes a band whose rows are contiguous in the result.
///
/// # Safety
/// Each element of the band must be readable in the source and writable in the result, which must not overlap.
pub(crate) unsafe fn transpose<T: Cell>(isa: Isa, band: Band<T>) {
    isa.run(band);
}

/// What can be moved through lanes, or is moved one by one.
pub(crate) trait Cell: Copy {
    /// Whether elements are moved through lanes.
    const LANES: bool;

    /// Neighbours of the result that share a lane.
    const OF_LANE: usize = 1;

    /// Reads sixteen elements of each of [`OF_LANE`](Cell::OF_LANE) columns: a lane has one of each, that of the first column lowest.
    ///
    /// # Safety
    /// Each column must be readable for sixteen elements.
    #[inline(always)]
    unsafe fn load_columns<S: Simd>(s: S, columns: [*const Self; MOST_OF_LANE]) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { Self::load(s, columns[0], LANES) }
    }

    /// Reads `n ≤ 16` elements into the first lanes.
    ///
    /// # Safety
    /// `p` must be readable for `n` elements.
    unsafe fn load<S: Simd>(s: S, p: *const Self, n: usize) -> S::F;

    /// Writes the first `n ≤ 16` lanes.
    ///
    /// # Safety
    /// `p` must be writable for `n` elements.
    unsafe fn store<S: Simd>(s: S, p: *mut Self, n: usize, x: S::F);
}

impl Cell for u32 {
    const LANES: bool = true;
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const u32, n: usize) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { s.load_upto(p.cast(), n) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut u32, n: usize, x: S::F) {
        // SAFETY: the caller's promise.
        unsafe { s.store_upto(p.cast(), n, x) }
    }
}

impl Cell for u16 {
    const LANES: bool = true;
    const OF_LANE: usize = 2;
    /// # Safety
    /// As [`Cell::load_columns`] says.
    #[inline(always)]
    unsafe fn load_columns<S: Simd>(s: S, [low, high, ..]: [*const u16; MOST_OF_LANE]) -> S::F {
        // SAFETY: the caller's promise.
        let (low, high) = unsafe { (s.load_u16(low, LANES), s.load_u16(high, LANES)) };
        s.from_bits(s.or_i(low, s.shl_i::<16>(high)))
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const u16, n: usize) -> S::F {
        // SAFETY: the caller's promise.
        s.from_bits(unsafe { s.load_u16(p, n) })
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut u16, n: usize, x: S::F) {
        // SAFETY: the caller's promise.
        unsafe { s.store_u16(p, n, s.bits(x)) }
    }
}

impl Cell for u8 {
    const LANES: bool = true;
    const OF_LANE: usize = 4;
    /// # Safety
    /// As [`Cell::load_columns`] says.
    #[inline(always)]
    unsafe fn load_columns<S: Simd>(s: S, columns: [*const u8; MOST_OF_LANE]) -> S::F {
        // SAFETY: the caller's promise.
        s.from_bits(unsafe { s.load_words(columns, LANES) })
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const u8, n: usize) -> S::F {
        // SAFETY: the caller's promise.
        s.from_bits(unsafe { s.load_bytes::<false>(p, n) })
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut u8, n: usize, x: S::F) {
        // SAFETY: the caller's promise.
        unsafe { s.store_bytes(p, n, s.bits(x)) }
    }
}

impl Cell for u64 {
    const LANES: bool = false;
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, _: *const u64, _: usize) -> S::F {
        s.zero()
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(_: S, _: *mut u64, _: usize, _: S::F) {}
}

impl<T: Cell> Kernel for Band<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: `transpose` was promised the memory.
        unsafe {
            match (self.height, self.width) {
                (1, _) => return self.one_by_one(0),
                _ if self.group != ONE_GROUP => {}
                // Channels that follow each other, to planes of their own and back.
                (2, _) if self.from_column == 2 => return self.deal::<2>(),
                (3, _) if self.from_column == 3 => return self.deal::<3>(),
                (4, _) if self.from_column == 4 => return self.deal::<4>(),
                (_, 2) if self.to_row == 2 => return self.collect::<2>(),
                (_, 3) if self.to_row == 3 => return self.collect::<3>(),
                (_, 4) if self.to_row == 4 => return self.collect::<4>(),
                _ => {}
            }
        }
        // SAFETY: as above.
        unsafe {
            if self.group == ONE_GROUP { self.squares::<S, false>(s) } else { self.squares::<S, true>(s) }
        }
    }
}

impl<T: Cell> Band<T> {
    /// `width` columns of the band alone, from `first` on, where a group begins.
    pub(crate) fn columns_from(self, first: usize, width: usize) -> Band<T> {
        Band { from: self.column(first), to: self.to.wrapping_add(first), width, ..self }
    }

    /// The whole band, a square at a time; `GROUPS` where columns are in groups.
    ///
    /// # Safety
    /// Every element of the band must be readable in the source and writable in the result, and they must be apart.
    #[inline(always)]
    unsafe fn squares<S: Simd, const GROUPS: bool>(self, s: S) {
        let mut first = 0;
        if T::LANES && T::OF_LANE > 1 && !GROUPS && self.height == STAGED {
            while first + LANES * T::OF_LANE <= self.width {
                // SAFETY: the caller's promise.
                unsafe { self.staged(s, first) };
                first += LANES * T::OF_LANE;
            }
        }
        for start in (first..self.width).step_by(CHUNK) {
            let end = self.width.min(start + CHUNK);
            for y in (0..self.height).step_by(LANES) {
                // SAFETY: the caller's promise.
                unsafe { self.rows(y, (self.height - y).min(LANES)).line::<S, GROUPS>(s, start, end) };
            }
        }
    }

    /// Rows of the result alone, from `first` on.
    #[inline(always)]
    fn rows(&self, first: usize, height: usize) -> Band<T> {
        let to = self.to.wrapping_offset(first as isize * self.to_row);
        Band { from: self.from.wrapping_add(first), to, height, ..*self }
    }

    /// The columns `start..end` of sixteen rows or fewer.
    ///
    /// # Safety
    /// Every element of the band must be readable in the source and writable in the result, and they must be apart.
    #[inline(always)]
    unsafe fn line<S: Simd, const GROUPS: bool>(self, s: S, start: usize, end: usize) {
        let mut x = start;
        // SAFETY: the caller's promise.
        unsafe {
            while T::LANES && !GROUPS && self.height == LANES && x + LANES * T::OF_LANE <= end {
                Band { to: self.to.wrapping_add(x), ..self }.wide::<S, false>(s, x);
                x += LANES * T::OF_LANE;
            }
            while x < end {
                let width = (end - x).min(LANES);
                let square = Band { to: self.to.wrapping_add(x), width, ..self };
                if !T::LANES {
                    square.one_by_one(x);
                } else if width == LANES && self.height == LANES {
                    square.whole::<S, GROUPS>(s, x);
                } else {
                    square.part::<S, GROUPS>(s, x);
                }
                x += width;
            }
        }
    }

    /// Sixteen rows of as many columns as fill a vector, from column `first` on; past the caches, if rows are whole lines and a fence follows.
    ///
    /// # Safety
    /// Every element of the band must be readable in the source and writable in the result, and they must be apart.
    #[inline(always)]
    unsafe fn wide<S: Simd, const NON_TEMPORAL: bool>(&self, s: S, first: usize) {
        let mut lanes = [s.zero(); LANES];
        let mut from = self.column(first);
        // SAFETY: the caller's promise; a vector of the turned square holds neighbours of the result.
        unsafe {
            for lanes in &mut lanes {
                let mut columns = [from; MOST_OF_LANE];
                for column in &mut columns[..T::OF_LANE] {
                    *column = from;
                    from = from.wrapping_offset(self.from_column);
                }
                *lanes = T::load_columns(s, columns);
            }
            for (i, &row) in turned(s, lanes).iter().enumerate() {
                if NON_TEMPORAL {
                    s.store_non_temporal(self.row(i).cast(), row);
                    continue;
                }
                s.store(self.row(i).cast(), row);
                s.prefetch_l1(self.row(i).wrapping_add(AHEAD * LANES * T::OF_LANE).cast());
            }
        }
    }

    /// As [`Band::wide`] of all [`STAGED`] rows of a band, from a copy of the columns.
    ///
    /// # Safety
    /// Every element of the band must be readable in the source and writable in the result, and they must be apart.
    #[inline(always)]
    unsafe fn staged<S: Simd>(&self, s: S, first: usize) {
        // Elements that share a lane are so many more columns: as many bytes for each type.
        let mut stage = [MaybeUninit::<[u64; 8]>::uninit(); STAGED];
        let stage: *mut T = stage.as_mut_ptr().cast();
        let mut from = self.column(first);
        // SAFETY: the caller's promise; the copy has room for the columns, and all of them are written before they are read.
        unsafe {
            for i in 0..LANES * T::OF_LANE {
                std::ptr::copy_nonoverlapping(from, stage.add(i * STAGED), STAGED);
                from = from.wrapping_offset(self.from_column);
            }
            let to = self.to.wrapping_add(first);
            let copy = Band { from: stage.cast_const(), from_column: STAGED as isize, to, ..*self };
            for y in (0..STAGED).step_by(LANES) {
                copy.rows(y, LANES).wide::<S, false>(s, 0);
            }
        }
    }

    /// Column `i` in the source.
    #[inline(always)]
    fn column(&self, i: usize) -> *const T {
        let (size, from_group) = self.group;
        let (group, own) = if self.group == ONE_GROUP { (0, i) } else { (i / size, i % size) };
        self.from.wrapping_offset(group as isize * from_group + own as isize * self.from_column)
    }

    /// The columns from `first` on of a square, in the source.
    #[inline(always)]
    fn columns<const GROUPS: bool>(&self, first: usize) -> [*const T; LANES] {
        let (size, from_group) = self.group;
        let mut at = self.column(first);
        let mut columns = [at; LANES];
        if !GROUPS {
            for (i, column) in columns.iter_mut().enumerate() {
                *column = at.wrapping_offset(i as isize * self.from_column);
            }
            return columns;
        }
        let mut own = first % size;
        for column in &mut columns {
            *column = at;
            (at, own) = (at.wrapping_offset(self.from_column), own + 1);
            if own == size {
                at = at.wrapping_offset(from_group - size as isize * self.from_column);
                own = 0;
            }
        }
        columns
    }

    /// Row `i` of the square in the result.
    #[inline(always)]
    fn row(&self, i: usize) -> *mut T {
        self.to.wrapping_offset(i as isize * self.to_row)
    }

    /// Writes a band of pairs, whose two rows or columns take turns in the source or in the result; false, and nothing written, if it is none.
    ///
    /// # Safety
    /// Every element of the band must be readable in the source and writable in the result, and they must be apart.
    #[inline(always)]
    pub(crate) unsafe fn pairs<S: Simd>(&self, s: S) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            match (self.height, self.width) {
                _ if self.group != ONE_GROUP => return false,
                (2, _) if self.from_column == 2 => self.deal_pairs(s),
                (_, 2) if self.to_row == 2 => self.collect_pairs(s),
                _ => return false,
            }
        }
        true
    }

    /// As [`deal`](Band::deal) of two rows, in vectors.
    ///
    /// # Safety
    /// Every element of the band must be readable in the source and writable in the result, and they must be apart.
    #[inline(always)]
    unsafe fn deal_pairs<S: Simd>(&self, s: S) {
        let whole = if T::LANES { self.width / LANES * LANES } else { 0 };
        // SAFETY: the caller's promise.
        unsafe {
            for x in (0..whole).step_by(LANES) {
                let from = self.from.add(2 * x);
                let (a, b) = s.unzip(T::load(s, from, LANES), T::load(s, from.add(LANES), LANES));
                T::store(s, self.to.add(x), LANES, a);
                T::store(s, self.row(1).add(x), LANES, b);
            }
            let (from, to) = (self.from.add(2 * whole), self.to.add(whole));
            Band { from, to, width: self.width - whole, ..*self }.deal::<2>();
        }
    }

    /// As [`collect`](Band::collect) of two columns, in vectors.
    ///
    /// # Safety
    /// Every element of the band must be readable in the source and writable in the result, and they must be apart.
    #[inline(always)]
    unsafe fn collect_pairs<S: Simd>(&self, s: S) {
        let whole = if T::LANES { self.height / LANES * LANES } else { 0 };
        // SAFETY: the caller's promise.
        unsafe {
            for y in (0..whole).step_by(LANES) {
                let to = self.to.add(2 * y);
                let (a, b) = (T::load(s, self.from.add(y), LANES), T::load(s, self.column(1).add(y), LANES));
                let (low, high) = s.zip(a, b);
                T::store(s, to, LANES, low);
                T::store(s, to.add(LANES), LANES, high);
            }
            self.rows(whole, self.height - whole).collect::<2>();
        }
    }

    /// The whole band where its `N` rows take turns in the source.
    ///
    /// # Safety
    /// Every element of the band must be readable in the source and writable in the result, and they must be apart.
    #[inline(always)]
    unsafe fn deal<const N: usize>(&self) {
        let rows: [*mut T; N] = std::array::from_fn(|i| self.row(i));
        for x in 0..self.width {
            for (y, row) in rows.iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { *row.add(x) = *self.from.add(x * N + y) };
            }
        }
    }

    /// The whole band where its `N` columns take turns in the result.
    ///
    /// # Safety
    /// Every element of the band must be readable in the source and writable in the result, and they must be apart.
    #[inline(always)]
    unsafe fn collect<const N: usize>(&self) {
        let columns: [*const T; N] = std::array::from_fn(|i| self.column(i));
        for y in 0..self.height {
            for (x, column) in columns.iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { *self.to.add(y * N + x) = *column.add(y) };
            }
        }
    }

    /// A square of 16 by 16, from column `first` on.
    ///
    /// # Safety
    /// Every element of the band must be readable in the source and writable in the result, and they must be apart.
    #[inline(always)]
    unsafe fn whole<S: Simd, const GROUPS: bool>(&self, s: S, first: usize) {
        let mut columns = [s.zero(); LANES];
        // SAFETY: the caller's promise.
        unsafe {
            for (column, from) in columns.iter_mut().zip(self.columns::<GROUPS>(first)) {
                *column = T::load(s, from, LANES);
            }
            for (i, &row) in turned(s, columns).iter().enumerate() {
                T::store(s, self.row(i), LANES, row);
            }
        }
    }

    /// Lanes outside of the square are zeros, and not stored.
    ///
    /// # Safety
    /// Every element of the band must be readable in the source and writable in the result, and they must be apart.
    #[inline(always)]
    unsafe fn part<S: Simd, const GROUPS: bool>(&self, s: S, first: usize) {
        let mut columns = [s.zero(); LANES];
        // SAFETY: the caller's promise.
        unsafe {
            for (column, from) in columns.iter_mut().zip(self.columns::<GROUPS>(first)).take(self.width) {
                *column = T::load(s, from, self.height);
            }
            for (i, &row) in turned(s, columns).iter().enumerate().take(self.height) {
                T::store(s, self.row(i), self.width, row);
            }
        }
    }

    /// Elements that lanes do not hold.
    ///
    /// # Safety
    /// Every element of the band must be readable in the source and writable in the result, and they must be apart.
    #[inline(always)]
    unsafe fn one_by_one(&self, first: usize) {
        for y in 0..self.height {
            let row = self.row(y);
            for x in 0..self.width {
                // SAFETY: the caller's promise.
                unsafe { *row.add(x) = *self.column(first + x).add(y) };
            }
        }
    }
}

/// The transposed square. The number of a row followed by that of a lane is a number of eight bits; zipping rows that are
/// eight apart turns it by one bit, so four times exchange its halves.
#[inline(always)]
fn turned<S: Simd>(s: S, mut rows: [S::F; LANES]) -> [S::F; LANES] {
    for _ in 0..LANES.ilog2() {
        let old = rows;
        for i in 0..LANES / 2 {
            (rows[2 * i], rows[2 * i + 1]) = s.zip(old[i], old[i + LANES / 2]);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns are `gaps` further apart than their elements need, and rows, too.
    fn check_gaps<T: Cell + PartialEq + std::fmt::Debug>(gaps: usize, element: impl Fn(usize) -> T) {
        for isa in Isa::available() {
            for (height, width) in [
                (1, 1),
                (16, 16),
                (2, 33),
                (3, 40),
                (4, 5),
                (40, 3),
                (70, 2),
                (9, 4),
                (17, 31),
                (33, 16),
                (64, 64),
                (64, 199),
                (80, 150),
                (70, 128),
                (300, 192),
                (5, 0),
            ] {
                let (column, row) = (height + gaps, width + gaps);
                let from: Vec<T> = (0..column * width.max(1)).map(&element).collect();
                let nothing = element(usize::MAX);
                let mut to = vec![nothing; row * height];
                let band = Band {
                    from: from.as_ptr(),
                    from_column: column as isize,
                    group: ONE_GROUP,
                    to: to.as_mut_ptr(),
                    to_row: row as isize,
                    height,
                    width,
                };
                let mut compare = |how: &str, transpose: &dyn Fn(Band<T>)| {
                    to.fill(nothing);
                    transpose(Band { to: to.as_mut_ptr(), ..band });
                    for (i, &got) in to.iter().enumerate() {
                        let (y, x) = (i / row.max(1), i % row.max(1));
                        let want = if x < width { from[x * column + y] } else { nothing };
                        assert_eq!(got, want, "{isa}, {how}: {y} {x} of {height} by {width}");
                    }
                };
                // SAFETY: both vectors hold all elements of the band.
                compare("cached", &|band| unsafe { transpose(isa, band) });
                compare("past the caches", &|band| {
                    isa.run(NonTemporal(band));
                    crate::stores::fence();
                });
            }
        }
    }

    fn check<T: Cell + PartialEq + std::fmt::Debug>(element: impl Fn(usize) -> T) {
        check_gaps(0, &element);
        check_gaps(3, &element);
    }

    /// Rows of `[groups, 2, gap, height]`, of which one of the gap is taken.
    #[test]
    fn columns_in_groups_are_dealt_out() {
        for isa in Isa::available() {
            for (groups, size, height) in
                [(1, 2, 3), (9, 2, 40), (16, 2, 16), (7, 3, 20), (5, 1, 1), (40, 4, 2)]
            {
                let gap = 3;
                let from: Vec<u32> = (0..(groups * gap * size * height) as u32).collect();
                let width = groups * size;
                let mut to = vec![0u32; height * width];
                let band = Band {
                    from: from.as_ptr(),
                    from_column: height as isize,
                    group: (size, (gap * size * height) as isize),
                    to: to.as_mut_ptr(),
                    to_row: width as isize,
                    height,
                    width,
                };
                // SAFETY: both vectors hold all elements of the band.
                unsafe { transpose(isa, band) };
                for (i, &got) in to.iter().enumerate() {
                    let (y, x) = (i / width, i % width);
                    let want = from[(x / size * gap * size + x % size) * height + y];
                    assert_eq!(got, want, "{isa}: {y} {x} of {height} by {groups} groups of {size}");
                }
            }
        }
    }

    #[test]
    fn squares_and_their_edges_are_exchanged() {
        check(|i| (i as u32).wrapping_mul(2_654_435_761));
        check(|i| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        check(|i| (i as u16).wrapping_mul(40_503));
        check(|i| (i as u8).wrapping_mul(167));
    }
}
