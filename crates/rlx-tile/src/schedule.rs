//! Families of programs: matmul, of warps and of warp groups, convolution, which is a matmul of windows, and attention, of warps; [`step()`] makes one of a step of LIR.

mod attention;
mod attention_bodies;
mod attention_join;
mod attention_pages;
mod attention_tilings;
mod attention_uniforms;
mod conv;
mod launch;
mod matmul;
mod matmul_groups;
mod parts;
mod step;
mod step_attention;
mod step_attention_parts;
mod step_conv;
mod step_operands;
mod step_pages;
mod step_parts;
mod step_sums;
mod suited;
mod tilings;

pub use attention::{Attention, AttentionSizes, BATCH, Mask, attention};
pub use attention_join::{JOIN_UNIFORMS, JOIN_WORKGROUP, attention_join};
pub use attention_pages::{List, Pages};
pub use attention_tilings::{AttentionTiling, attention_tilings};
pub use launch::{Bound, PartLaunch, PartsLaunch, StepLaunch};
pub use matmul::{Given, Matmul, Operand, Sizes, Strides, matmul};
pub use matmul_groups::{group_tilings, matmul_groups};
pub use parts::{Division, Parts};
pub use step::{step, step_tilings};
pub use step_conv::convolves;
pub use step_parts::step_in_parts;
pub use suited::{instruction, multiplied, multiplies, suited_tiling};
pub use tilings::{Tiling, computed_tilings, large_tilings, tilings};
