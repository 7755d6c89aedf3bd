//! Panels: the blocks of columns that a packed right-hand side consists of.

use crate::simd::LANES;

/// Columns of a packed panel.
pub const PANEL: usize = 48;

/// Vectors of a row of words of a panel.
pub(super) const VECTORS: usize = PANEL / LANES;

/// Columns of the widest tile: a panel and the first vector of the next. A tile of one vector waits for its loads (or, of bytes, its sums for each
/// other), so where that is all that there is of the last panel, the tiles of the one before have it, too, and fewer rows.
pub(super) const WIDEST: usize = PANEL + LANES;

/// Rows of the widest tile.
pub(super) const WIDEST_ROWS: usize = 6;

/// How many tiles a row of `n` columns has: one for each panel, or one less where the last panel has a single vector and the `widest` tiles are used.
pub(super) fn tiles_across(n: usize, widest: bool) -> usize {
    let one_vector = n > PANEL && (1..=LANES).contains(&(n % PANEL));
    panels(n) - usize::from(widest && one_vector)
}

/// Deeper matmuls are split into blocks of about this depth, so that a panel's block and the one that is fetched meanwhile
/// stay in the second-level cache (393 KB each) while the rows pass by; the partial sums wait in C.
pub(super) const BLOCK_DEPTH: usize = 2048;

/// Up to this depth a matmul may write over what its epilogue reads: it is one block then, since partial sums cannot wait there.
pub(crate) const IN_PLACE_DEPTH: usize = 4096;

/// Where vector `v` of a tile's columns is in a row of words of its panel, or of the next one, whose words are `far` behind.
#[inline(always)]
pub(super) const fn vector_at(v: usize, far: usize) -> usize {
    v / VECTORS * far + v % VECTORS * LANES
}

/// Lanes of vector `v` that are columns, when `width` columns are left.
#[inline(always)]
pub(super) fn lanes_of(v: usize, width: usize) -> usize {
    width.saturating_sub(v * LANES).min(LANES)
}

/// Panels of a matrix of `n` columns.
pub const fn panels(n: usize) -> usize {
    n.div_ceil(PANEL)
}
