//! Kernels along the last axis: reductions, softmax, normalisation and gates of contiguous rows; reductions and softmax also of
//! columns, along another axis.
//!
//! Sums have one fixed order on every instruction set: four vectors of sixteen partial sums, taken in
//! turn, folded pairwise. Rows are independent, so any split of them over threads gives the same bits.
//!
//! ```
//! use rlx_cpu::{isa::Isa, rows};
//! let mut x = [0.0f32, 0.0, 1.0, 1.0, 1.0, 1.0];
//! rows::softmax_in_place(Isa::detect(), &mut x, 2);
//! assert_eq!(x, [0.5; 6]);
//! ```

mod gates;
mod norm;
mod online;
mod reduce;
mod reduce_columns;
mod short;
mod softmax;
mod softmax_columns;
#[cfg(test)]
mod tests;

pub use gates::{GateRow, Gates, gate_row};
pub use norm::{GroupNorm, Norm, normalize, normalize_groups};
pub use online::{Piece, RowState, Sums, divide, weigh};
pub use reduce::{Reduction, Rows, extremes, reduce, reduce_rows};
pub use reduce_columns::{Columns, reduce_columns};
pub(crate) use reduce_columns::{join_stretches, reduce_stretch};
pub use short::softmax_rows;
pub use softmax::{Softmax, softmax, softmax_in_place};
pub use softmax_columns::{SoftmaxColumns, softmax_columns};
