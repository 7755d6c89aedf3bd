//! Families of programs. So far there is one, matmul, of warps and of warp groups.

mod matmul;
mod matmul_groups;

pub use matmul::{Matmul, Operand, Sizes, Strides, Tiling, matmul, tilings};
pub use matmul_groups::{group_tilings, matmul_groups, packings};
