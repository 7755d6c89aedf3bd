//! The memory formats of packed weights that the CPU's kernels read; [`crate::kernels`] packs and sizes them.

use rlx_ir::op::PackFormat;

use crate::gemm::WinogradTile;

/// The right operand of a matmul, in panels of columns.
pub(crate) const MATMUL_RHS: PackFormat = PackFormat::new("MatMulRhs");
/// The weights `[O, I, k…]` of a convolution, as the right operand `[k…·I, O]` of a matmul.
pub(crate) const CONV_WEIGHTS: PackFormat = PackFormat::new("ConvWeights");
/// The weights `[C, 1, k…]` of a depthwise convolution, as `[k…, C]`; those `[C, g, h, w]` of one with few channels in a group, as `[C / 16, h, g, w, 16]`,
/// of bf16 `[C / 16, h, g / 2, w, 16, 2]`.
pub(crate) const GROUPED_WEIGHTS: PackFormat = PackFormat::new("GroupedWeights");
/// The weights `[n, blocks, size]` of a matmul by quantised blocks, in panels of columns, as they are.
pub(crate) const BLOCK_WEIGHTS: PackFormat = PackFormat::new("BlockWeights");
/// The same bytes, where a few rows are multiplied in fixed point ([`crate::gemm::FixedRows`]).
pub(crate) const FIXED_POINT_BLOCKS: PackFormat = PackFormat::new("FixedPointBlocks");

/// Whether weights of this format are quantised blocks as they are.
pub(crate) fn is_blocks(format: PackFormat) -> bool {
    [BLOCK_WEIGHTS, FIXED_POINT_BLOCKS].contains(&format)
}

/// The weights `[O, I, k…]` of a convolution, transformed for Winograd's `F(2 × 2, 3 × 3)`: a convolution's weights of 16 points for each piece of a window.
pub(crate) const WINOGRAD_2: PackFormat = PackFormat::new("WinogradWeights2");
/// As [`WINOGRAD_2`], for `F(4 × 4, 3 × 3)`: 36 points.
pub(crate) const WINOGRAD_4: PackFormat = PackFormat::new("WinogradWeights4");

/// As [`WINOGRAD_2`], for `F(4, 3)` along lines: 6 points.
pub(crate) const WINOGRAD_LINE: PackFormat = PackFormat::new("WinogradWeightsLine");

/// Winograd's algorithms, each with the format of its weights.
pub(crate) const WINOGRAD: [(PackFormat, WinogradTile); 3] =
    [(WINOGRAD_2, WinogradTile::Two), (WINOGRAD_4, WinogradTile::Four), (WINOGRAD_LINE, WinogradTile::Line)];

/// Winograd's algorithm that weights of this format are for.
pub(crate) fn winograd_tile(format: PackFormat) -> Option<WinogradTile> {
    WINOGRAD.iter().find(|(of, _)| *of == format).map(|&(_, tile)| tile)
}
