//! Panels: the blocks of columns that a packed right-hand side consists of.

/// Columns of a packed panel.
pub const PANEL: usize = 48;

/// Deeper matmuls are split into blocks of at most this depth, so that a panel's block stays in the
/// second-level cache while the rows pass by; the partial sums wait in C.
pub(crate) const MAX_DEPTH: usize = 4096;

/// Panels of a matrix of `n` columns.
pub const fn panels(n: usize) -> usize {
    n.div_ceil(PANEL)
}
