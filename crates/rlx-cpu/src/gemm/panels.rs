//! Panels: the blocks of columns that a packed right-hand side consists of.

/// Columns of a packed panel.
pub const PANEL: usize = 48;

/// Deeper matmuls are split into blocks of about this depth, so that a panel's block and the one that is fetched meanwhile
/// stay in the second-level cache (393 KB each) while the rows pass by; the partial sums wait in C.
pub(super) const BLOCK_DEPTH: usize = 2048;

/// Up to this depth a matmul may write over what its epilogue reads: it is one block then, since partial sums cannot wait there.
pub(crate) const IN_PLACE_DEPTH: usize = 4096;

/// Panels of a matrix of `n` columns.
pub const fn panels(n: usize) -> usize {
    n.div_ceil(PANEL)
}
