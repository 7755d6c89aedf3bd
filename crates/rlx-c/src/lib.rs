//! RLX for C and C++: a small, stable surface over `rlx::SharedRunner`.
//!
//! [`model`] loads models and describes them, [`run`] runs them, [`error`] keeps each thread's last message. The header
//! `include/rlx.h` is made from this crate by cbindgen, and `examples/` has a program in C and one in C++.
//!
//! No caller is trusted: null pointers, sizes that do not match and text that is not UTF-8 are errors, and a panic never crosses
//! into C. What cannot be checked is that a pointer that is not null points to what its type says, and that what was freed is not used again.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[allow(unsafe_code)]
pub mod error;
#[allow(unsafe_code)]
pub mod model;
#[allow(unsafe_code)]
pub mod run;
mod types;

pub use error::RlxStatus;
pub use model::{RlxModel, RlxOptions};
pub use run::RlxRun;
pub use types::{RlxDtype, RlxTensor, RlxTensorInfo};
