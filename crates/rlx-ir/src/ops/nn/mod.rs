//! Ops of neural networks.
//!
//! Convolutions and pooling are primitives; softmax, norms, attention, rotary embedding, quantisation, integer matmuls and
//! sampling are composites: each has its own reference semantics **and** a decomposition into simpler ops, and a test
//! holds the two against each other.
//!
//! | file | ops |
//! |---|---|
//! | [`blocks`] | matmuls by weights quantised in blocks |
//! | [`conv`] | convolution and its transpose |
//! | [`pool`] | pooling |
//! | [`softmax`] | softmax and its logarithm |
//! | [`norm`] | layer, root-mean-square, group and batch norm |
//! | [`attention`] | scaled dot-product attention |
//! | [`rope`] | rotary embedding |
//! | [`integer`] | matmuls and convolutions of 8-bit integers |
//! | [`quant`] | quantisation to integers and back |
//! | [`recurrent`] | recurrent layers |
//! | [`roi`] | pooling of regions of interest |
//! | [`grid_sample`] | images read between their elements |

pub mod attention;
pub mod blocks;
pub mod conv;
pub mod grid_sample;
pub mod integer;
pub mod norm;
pub mod pool;
pub mod quant;
pub mod recurrent;
pub mod roi;
pub mod rope;
pub(in crate::ops) mod rows;
pub mod softmax;
mod window;
