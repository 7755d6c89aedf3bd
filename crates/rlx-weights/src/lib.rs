//! Tensors in files: safetensors, NumPy's npy and npz, and weights made by formula.
//!
//! Weights are large and mapped: [`safetensors::open`] gives a [`rlx_ir::WeightStore`] whose tensors lie in the file's
//! map. Inputs and outputs are small and read: [`npz`] and [`npy`] give [`rlx_ir::ConstData`]. [`formula`] makes the
//! weights of the models kept in this repository.
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
pub mod formula;
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

/// Writes a file whole or not at all: into a neighbour first, which is then renamed.
fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut std::fs::File) -> Result<(), Error>,
) -> Result<(), Error> {
    let name = path
        .file_name()
        .ok_or_else(|| Error::new(ErrorKind::Io, format!("{} does not name a file", path.display())))?;
    // Processes and threads that write the same file must not share a neighbour.
    static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut part = std::ffi::OsString::from(".");
    part.push(name);
    part.push(format!(".{}-{count}.part", std::process::id()));
    let part = path.with_file_name(part);
    let written = std::fs::File::create(&part)
        .map_err(|e| io_error(path, e))
        .and_then(|mut file| write(&mut file))
        .and_then(|()| std::fs::rename(&part, path).map_err(|e| io_error(path, e)));
    if written.is_err() {
        // The neighbour may not exist; nothing more can be done about it then.
        let _ = std::fs::remove_file(&part);
    }
    written
}
