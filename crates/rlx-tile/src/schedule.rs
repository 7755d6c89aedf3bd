//! Families of programs. So far there is one: matmul.

mod matmul;

pub use matmul::{Matmul, Operand, Sizes, Strides, Tiling, matmul, tilings};
