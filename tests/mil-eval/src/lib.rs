//! An evaluator of Core ML packages, for tests of what writes them.
//!
//! It knows nothing of RLX. It reads the bytes of a package (its own reader of protobuf's wire format, of the file of weights and of the
//! manifest), checks them as strictly as the format is documented, and computes each operation by the plainest code that follows its
//! documentation. So a mistake of the writer (a name, a layout, an order of padding) is not repeated here.
//!
//! A package is rejected that declares another type or shape than an operation gives, names a value that is not there, leaves out an
//! operand or has one too many, or points outside of the file of weights: see [`Package::run`]. Blocks of control flow see the names
//! around them, and nobody sees theirs.
//!
//! ```no_run
//! use rlx_mil_eval::{Package, Tensor};
//! let package = Package::read("model.mlpackage".as_ref())?;
//! let outputs = package.run(&[("x", Tensor::floats(&[1, 2], vec![1.0, 2.0]))])?;
//! # Ok::<(), String>(())
//! ```
#![forbid(unsafe_code)]

mod call;
mod control;
mod elementwise;
mod evaluate;
mod index;
mod linear;
mod model;
mod movement;
mod names;
mod norm;
mod package;
mod reduce;
mod tensor;
mod windows;
mod wire;

pub use package::Package;
pub use tensor::{Data, Tensor, Ty};

/// A result, or what is wrong with the package.
pub type Res<T> = Result<T, String>;
