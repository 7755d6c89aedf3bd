//! RLX on TPUs, and on any other device that has a PJRT plugin.
//!
//! A graph becomes StableHLO text, which the plugin's compiler (XLA) compiles as a whole, for each set of dimensions. The plugin is loaded at run
//! time through PJRT's C API: a program that was built with this crate starts anywhere, and says what is missing where there is none.
//!
//! | module | what it is |
//! |---|---|
//! | [`stablehlo`] | graphs as text, one file for each family of ops; what there is text for |
//! | `load` | where plugins are, and how to get them |
//! | `api` | the C API's table and arguments |
//! | `client` | what a plugin has, as values: client, programs, buffers, events |
//! | `device` | the device of [`rlx_backend::whole_graph`] |
//!
//! **Not yet run on a TPU.** Tests have the text of every op verified and executed by the StableHLO interpreter of `jaxlib` and by XLA on the
//! CPU, and models compiled by `libtpu` for TPUs that are not here.
#![deny(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

// Calls functions of a plugin.
#[allow(unsafe_code)]
mod api;
mod backend;
// Calls into a plugin.
#[allow(unsafe_code)]
mod client;
mod device;
// Loads plugins.
#[allow(unsafe_code)]
mod load;
pub mod stablehlo;

pub use backend::{PjrtBackend, target};
pub use client::AheadOfTime;
pub use load::PLUGIN;
