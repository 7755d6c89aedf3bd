//! The memory formats of packed weights that the CPU's kernels read; [`crate::kernels`] packs and sizes them.

use rlx_ir::op::PackFormat;

/// The right operand of a matmul, in panels of columns.
pub(crate) const MATMUL_RHS: PackFormat = PackFormat::new("MatMulRhs");
/// The weights `[O, I, k…]` of a convolution, as the right operand `[k…·I, O]` of a matmul.
pub(crate) const CONV_WEIGHTS: PackFormat = PackFormat::new("ConvWeights");
/// The weights `[C, 1, k…]` of a depthwise convolution, as `[k…, C]`.
pub(crate) const DEPTHWISE_WEIGHTS: PackFormat = PackFormat::new("DepthwiseWeights");
/// The weights `[n, blocks, size]` of a matmul by quantised blocks, in panels of columns, as they are.
pub(crate) const BLOCK_WEIGHTS: PackFormat = PackFormat::new("BlockWeights");
