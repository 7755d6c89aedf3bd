//! Families of programs: matmul, of warps and of warp groups, convolution, which is a matmul of windows, and attention, of warps; [`step()`] makes one of a step of LIR.

mod attention;
mod attention_bodies;
mod attention_join;
mod attention_tilings;
mod conv;
mod matmul;
mod matmul_groups;
mod parts;
mod step;
mod step_attention;
mod step_attention_parts;
mod step_conv;
mod step_operands;
mod step_parts;

pub use attention::{Attention, AttentionSizes, BATCH, Mask, attention};
pub use attention_join::{JOIN_UNIFORMS, JOIN_WORKGROUP, attention_join};
pub use attention_tilings::{AttentionTiling, attention_tilings};
pub use matmul::{
    Given, Matmul, Operand, Sizes, Strides, Tiling, computed_tilings, large_tilings, matmul, tilings,
};
pub use matmul_groups::{group_tilings, matmul_groups, packings};
pub use parts::{Division, FEW_QUERIES, FEW_ROWS, Parts};
pub use step::{StepLaunch, multiplied, multiplies, multiplies_blocks, step, step_tilings, suited_tiling};
pub use step_conv::convolves;
pub use step_parts::{Bound, PartLaunch, PartsLaunch, step_in_parts};
