//! The ONNX format's messages, as Rust types.
//!
//! [`generated`](self) code is made by `cargo xtask proto` and checked in, so that a build needs no `protoc`.
//! Fields of type `bytes` are [`bytes::Bytes`]: decoding from a mapped file copies no tensor.
#![allow(missing_docs, clippy::all)]

pub(crate) mod tensors;

include!("generated.rs");
