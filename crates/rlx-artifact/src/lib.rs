//! Compiled models in files: an [`Artefact`] is one, an [`EntryStore`] is a folder of them.
//!
//! An artefact holds what takes time to make: the plan (the compiled module), the packed weights and the tuning
//! results. [`NewFile`] says what goes into one and writes it; [`Artefact::open`] maps and checks it. A store names its
//! entries by a [`Key`], the hash of everything that their code depends on, and removes the least recently used when it
//! is full. Making an executable of an artefact is the runtime's.
//!
//! ```
//! use rlx_artifact::Artefact;
//! # let path = std::env::temp_dir().join(format!("rlx-artifact-{}.txt", std::process::id()));
//! # std::fs::write(&path, "a text file").unwrap();
//! assert!(!Artefact::is_artefact(&path));
//! let e = Artefact::open(&path).unwrap_err();
//! assert!(e.to_string().contains("not an artefact"), "{e}");
//! # std::fs::remove_file(path).unwrap();
//! ```
//!
//! Files are not trusted. Head, module and table are checked against their hashes when a file is opened, tensors when
//! they are first used. Every size and index is checked as well. Whether a device may run the module is for
//! [`rlx_opt::verify_lir()`] to say, so that a malicious file with correct hashes cannot make a kernel access memory
//! outside of its buffers.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod artefact;
mod entries;
mod key;
mod layout;
mod module;
mod origins;
mod store;
mod tensors;
mod write;

pub use artefact::{Artefact, ArtefactSizes};
pub use entries::CacheEntry;
pub use key::Key;
pub use layout::{ArtefactTarget, Digest};
pub use module::EncodedModule;
pub use store::{EntryStore, Lookup};
pub use write::NewFile;

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
