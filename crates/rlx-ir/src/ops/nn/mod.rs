//! Ops of neural networks.
//!
//! Convolutions and pooling are primitives; softmax, norms, attention, rotary embedding and quantisation are
//! composites: each has its own reference semantics **and** a decomposition into simpler ops, and a test
//! holds the two against each other.
//!
//! | file | ops |
//! |---|---|
//! | [`conv`] | convolution and its transpose |
//! | [`pool`] | pooling |

pub mod conv;
pub mod pool;
mod window;
