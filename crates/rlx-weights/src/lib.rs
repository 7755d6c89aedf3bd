//! Tensors in files: safetensors, NumPy's npy and npz.
//!
//! Weights are large and mapped: [`safetensors::open`] gives a [`rlx_ir::WeightStore`] whose tensors lie in the file's
//! map. Inputs and outputs are small and read: [`npz`] and [`npy`] give [`rlx_ir::ConstData`].
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
//! Files are not trusted: every length is checked against the bytes that are there before anything is allocated.
#![deny(unsafe_code)]

mod crc;
#[allow(unsafe_code)]
mod map;
pub mod npy;
pub mod npz;
pub mod safetensors;

use rlx_ir::{Error, ErrorKind};
use std::path::Path;

fn malformed(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Malformed, message)
}

fn io_error(path: &Path, e: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("{}: {e}", path.display())).with_source(e)
}
