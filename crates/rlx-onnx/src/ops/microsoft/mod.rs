//! ONNX Runtime's own ops (`com.microsoft`), which its quantiser, its optimiser and its model builder write, by their
//! definitions.
//!
//! | file | ops |
//! |---|---|
//! | [`attention`] | attentions with their caches, masks and rotary embeddings |
//! | [`blocks`] | matmuls and tables whose weights are 2, 4 or 8 bits in blocks with a scale each |
//! | [`fused`] | fused standard ops: matmuls with a factor, activations with a bias, convolutions with a residual |
//! | [`generation`] | searches over the texts that a decoder, which is a graph, continues |
//! | [`mixture`] | mixtures of experts |
//! | [`norm`] | norms with embeddings, residuals or an activation |
//! | [`quantized`] | ops on 8-bit integers with scales and zero points |
//! | [`recurrent`] | an LSTM of quantised states |
//! | [`regions`] | regions of pictures, words of characters |
//! | [`tensors`] | copies of the default domain's ops, distances, inverses, transforms, hashes |
//! | [`tokens`] | padding of tokens, biases of their distances |

pub(super) mod attention;
pub(super) mod blocks;
pub(super) mod fused;
pub(super) mod generation;
pub(super) mod mixture;
pub(super) mod norm;
pub(super) mod quantized;
pub(super) mod recurrent;
pub(super) mod regions;
pub(super) mod tensors;
pub(super) mod tokens;
