//! The messages of Core ML's packages, as Rust types.
//!
//! Generated code is made by `cargo xtask proto` and checked in, so that a build needs neither `protoc` nor Python. Of the model's
//! messages only those are there that an ML Program needs.
#![allow(missing_docs, clippy::all)]

include!("model.rs");

/// The program inside of a model.
pub mod mil_spec {
    include!("mil_spec.rs");
}
