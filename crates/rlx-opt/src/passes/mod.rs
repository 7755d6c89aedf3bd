//! The passes, one file each. Every pass is a function from a graph to a graph.

pub mod apply_precision;
pub mod choose_layout;
pub mod eliminate_dead_nodes;
pub mod fold_batch_norm;
pub mod fold_constants;
pub mod fuse_regions;
pub mod legalize;
pub mod merge_matmuls;
pub mod multiply_blocks;
pub mod multiply_integers;
pub mod order_rows;
pub mod pack_weights;
pub mod recognize_composites;
pub mod simplify;
pub mod widen_channels;
