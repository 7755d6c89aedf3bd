//! RLX on Apple's Core ML: graphs as ML Program packages.
//!
//! | module | what it is |
//! |---|---|
//! | `proto` | the package's messages, generated from Apple's schema and checked in |
//! | `mil` | the program being written: values, operations, the file of weights |
//! | `ops` | nodes as operations, a file for each family |
//! | `scope` | a graph's nodes one after another, of the whole graph or of a body of control flow |
//! | `claims` | what is supported: the same functions, asked for one node |
//! | `ranges` | which integers 32 bits are sure to hold |
//! | `program`, `package` | a graph as a package, in memory and on disk |
//! | `target`, `backend` | the device as the compiler sees it; packages without it ([`compile`]) |
//! | `device`, `runtime` | packages loaded and run by what can: Core ML itself, or a runtime that the program brings |
//! | `empty` | graphs without tensors that have no elements, which Core ML does not have |
//! | `apple` | Core ML itself, on Apple systems |
//!
//! A package has its weights in it, and a number for every dimension. So a model is loaded for each size, and again when a parameter is set.
//!
//! **Not yet run on hardware.** Each package of the tests is read back from its bytes and evaluated by code that knows nothing of this
//! crate (`tests/mil-eval`), and read by `coremltools`.
#![deny(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

// Calls into the system's libraries.
#[cfg(any(target_os = "macos", target_os = "ios"))]
#[allow(unsafe_code)]
mod apple;
mod backend;
mod claims;
mod device;
mod empty;
mod mil;
mod ops;
mod package;
mod program;
mod proto;
mod ranges;
mod runtime;
mod scope;
mod target;

pub use backend::{COMPUTE_UNITS, ComputeUnits, CoreMlBackend, compile};
pub use program::{Feature, OPSET, Package, SPECIFICATION};
pub use runtime::{LoadedPackage, PackageRuntime};
pub use scope::Weights;
pub use target::{NAME, target};
