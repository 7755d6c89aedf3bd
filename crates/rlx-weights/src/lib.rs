//! Tensors in files: safetensors, NumPy's npy and npz, and weights made by formula; [`listing`] lists what files of weights hold.
//!
//! Weights are large and mapped: [`safetensors::open`] gives a [`rlx_ir::WeightStore`] whose tensors are in the file's
//! map. Inputs and outputs are small and read: [`npz`] and [`npy`] give [`rlx_ir::ConstData`]. [`formula`] makes the
//! weights of the models in this repository.
//!
//! ```
//! use rlx_ir::ConstData;
//! use rlx_weights::npz;
//! let x = ConstData::from_f32(&[2], &[1.0, 2.5])?;
//! let bytes = npz::to_bytes(&[("x", &x)])?;
//! assert_eq!(npz::from_bytes(&bytes)?, [("x".to_owned(), x)]);
//! # Ok::<(), rlx_ir::Error>(())
//! ```
//!
//! Files are not trusted: every length is checked against the file size before anything is allocated.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod formula;
mod gguf;
pub mod listing;
pub mod npy;
pub mod npz;
pub mod safetensors;

use rlx_ir::{Error, ErrorKind};

fn malformed(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Malformed, message)
}
