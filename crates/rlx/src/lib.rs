//! RLX compiles a model once into one intermediate representation and runs it, with the same results up to rounding, on any
//! supported device.
//!
//! [`Runner`] loads and runs a model file. It is built on [`Model`] (an ONNX file and its imports) and the
//! sessions of `rlx-runtime`, which also compile graphs built by hand. [`verify`](mod@verify) compares a
//! device with the oracle (the reference interpreter), [`diagram`] draws graphs, `inputs` reads arrays and JSON, and `image`
//! decodes and prepares photographs.
//!
//! ```no_run
//! use rlx::prelude::*;
//! let mut digits = rlx::Runner::open("models/digits/digits.onnx")?;
//! let image = ConstData::from_f32(&[1, 1, 8, 8], &[0.5; 64])?;
//! let outputs = digits.run(&[("image", &image)])?;
//! println!("{}: {:?}", outputs[0].0, outputs[0].1.as_f32()?);
//! # Ok::<(), rlx::prelude::Error>(())
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod compare;
pub mod diagram;
#[cfg(feature = "inputs")]
pub mod image;
#[cfg(feature = "inputs")]
pub mod inputs;
mod metadata;
mod model;
mod open;
mod runner;
mod shared;
pub mod svg;
pub mod units;
pub mod values;
pub mod verify;

/// The README's example, compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The guides' examples; their shell is run by `tests/guides.rs`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/run-from-rust.md")]
#[doc = include_str!("../../../docs/guide/decoding.md")]
#[doc = include_str!("../../../docs/guide/why-numbers-differ.md")]
struct Guides;

pub use metadata::Metadata;
pub use model::{Model, check_dims};
pub use open::OpenOptions;
pub use runner::{Prepared, Runner};
pub use shared::{Finished, SharedRunner};
pub use values::ModelValue;

/// Everything most programs need: `use rlx::prelude::*;`.
pub mod prelude {
    pub use crate::{Model, Runner, SharedRunner};
    /// `Result<T>` is with [`Error`]; another error type is the second parameter, as in the standard library.
    pub use rlx_ir::Result;
    // The macro's own path for users of this crate; it wins over the one among `rlx_runtime`'s items.
    #[doc(inline)]
    pub use rlx_macros::rlx_model_of_rlx as rlx_model;
    pub use rlx_runtime::*;
}
