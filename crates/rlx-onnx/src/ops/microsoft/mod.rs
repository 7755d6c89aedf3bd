//! ONNX Runtime's own ops (`com.microsoft`), which its quantiser and its optimiser write, by their definitions.
//!
//! | file | ops |
//! |---|---|
//! | [`fused`] | fused standard ops: matmuls with a factor, norms with a residual, activations with a bias |
//! | [`quantized`] | ops on 8-bit integers with scales and zero points |

pub(super) mod fused;
pub(super) mod quantized;
