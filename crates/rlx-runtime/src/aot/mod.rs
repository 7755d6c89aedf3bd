//! Ahead-of-time compilation: [`Artefact`], a compiled model in a file, and [`AotCache`], compiled modules on disk.
//!
//! An artefact holds what takes time to make: the plan (the compiled module), the packed weights
//! and the tuning results. [`Session::save`](crate::Session::save) writes one, and
//! [`Session::load`](crate::Session::load) maps it and runs it without importing, optimising or packing again:
//!
//! ```
//! use rlx_ir::{DType, Graph, Shape, WeightStore, Weight};
//! use rlx_runtime::{Artefact, CompileOptions, Device, NewArtefact, Session};
//! let mut graph = Graph::new("product");
//! let x = graph.input("x", Shape::new(&[1, 2], DType::F32));
//! let w = graph.param("w", Shape::new(&[2, 1], DType::F32));
//! let y = graph.matmul(x, w, Shape::new(&[1, 1], DType::F32));
//! graph.set_outputs(vec![y]);
//! let session = Session::try_new(Device::Cpu)?;
//! let mut compiled = session.try_compile(graph)?;
//! let mut weights = WeightStore::new();
//! weights.insert("w", Weight::owned(DType::F32, &[2, 1], [1f32, 2.0].map(f32::to_le_bytes).concat())?);
//! compiled.try_set_weights(&weights)?;
//!
//! let path = std::env::temp_dir().join(format!("product-{}.rlx", std::process::id()));
//! session.save(&path, &mut compiled, NewArtefact::new("product", &weights))?;
//! let mut loaded = session.load(&Artefact::open(&path)?)?;
//! assert_eq!(loaded.try_run(&[("x", &[3.0, 4.0])])?, [[11.0]]);
//! # std::fs::remove_file(path).unwrap();
//! # Ok::<(), rlx_ir::Error>(())
//! ```
//!
//! Files are not trusted. Head, module and table are checked against their hashes when a file is opened, tensors when
//! they are first used. Every size and index is checked as well, and the module by [`rlx_opt::verify_lir()`], so that
//! a malicious file with correct hashes cannot make a kernel access memory outside of its buffers. An artefact for another device, instruction
//! set, driver or version of RLX is rejected.

mod artefact;
mod cache;
mod entries;
mod error;
mod key;
mod layout;
mod module;
mod origins;
mod save;
mod tensors;
#[cfg(test)]
mod tests;

pub use artefact::{Artefact, ArtefactSizes};
pub use cache::AotCache;
pub use entries::CacheEntry;
pub use error::AotCacheError;
pub use layout::ArtefactTarget;
pub use save::NewArtefact;

use layout::malformed;
use rlx_ir::{Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A record as bytes.
fn write_record<T: Serialize>(record: &T) -> Result<Vec<u8>> {
    postcard::to_allocvec(record)
        .map_err(|e| Error::new(ErrorKind::Internal, format!("postcard rejects a record: {e}")))
}

/// The record stored in all of `bytes`.
fn read_record<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((record, [])) => Ok(record),
        Ok((_, rest)) => Err(malformed(format!("{} bytes after {what}", rest.len()))),
        Err(e) => Err(malformed(format!("{what} cannot be read: {e}"))),
    }
}
