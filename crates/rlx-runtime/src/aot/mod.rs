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
//! The file itself, what is checked when it is read, and the cache's folder are in [`rlx_artifact`]. The module is
//! verified by [`rlx_opt::verify_lir()`] before anything runs. An artefact for another device, instruction set, driver or
//! version of RLX is rejected.

mod cache;
mod error;
mod save;
#[cfg(test)]
mod tests;

pub use cache::AotCache;
pub use error::AotCacheError;
pub use rlx_artifact::{Artefact, ArtefactSizes, ArtefactTarget, CacheEntry};
pub use save::NewArtefact;
