//! Families of programs. So far there is one, matmul, of warps and of warp groups; [`step()`] makes one of a step of LIR.

mod matmul;
mod matmul_groups;
mod step;

pub use matmul::{Matmul, Operand, Sizes, Strides, Tiling, large_tilings, matmul, tilings};
pub use matmul_groups::{group_tilings, matmul_groups, packings};
pub use step::{StepLaunch, multiplies, step, step_tilings};
