//! Tests of the passes: a text before, a text after, and the same results on the oracle.

mod common;
mod copies;
mod dispatch;
mod fuse_regions;
mod layout;
mod merge_matmuls;
mod multiply_blocks;
mod multiply_integers;
mod order_rows;
mod pack_weights;
mod precision;
mod recognize_composites;
mod simplify;
mod widen_channels;
