//! Writing MIL, the language of ML Programs: types, tensors by name, and the builder of a program's operations.
//!
//! MIL is in static single assignment form. Every operand of an operation is the name of a value, constants included, and every result is
//! declared with its type. The builder writes what it is told, of shapes that the callers work out; whether that is right, others decide
//! (`coremltools`, and the evaluator of our tests), who read the package alone.

mod blob;
mod builder;
mod value;

pub use blob::{Blob, Stored};
pub(crate) use builder::named;
pub use builder::{Arg, Builder, identifier};
pub use value::{Elements, Tensor, Type};

/// What a translation cannot do, in words that come behind "no kernel for …:".
pub type Reason = String;

/// A result, or why there is none.
pub type Mil<T> = std::result::Result<T, Reason>;
