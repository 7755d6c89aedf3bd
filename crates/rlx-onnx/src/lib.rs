//! ONNX files as RLX graphs.
//!
//! Reading comes in layers: [`proto`] is the format's messages, decoded over a mapped file without copying a tensor;
//! [`OnnxFile`] is a whole model with the files beside it; [`RawTensor`] is one tensor, whichever of the format's
//! encodings holds it.
//!
//! Model files are hostile until proven otherwise: see [`OnnxFile`] for what is checked.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod decoded;
mod dims;
mod external;
mod file;
mod formats;
mod import;
mod ops;
pub mod proto;
mod tensor;
#[cfg(feature = "testing")]
pub mod testing;

pub use dims::DimNames;
pub use file::{OnnxFile, read_tensor_file};
pub use import::{ImportOptions, Imported, NeedsInputValue, import, import_with_progress, needed_input};
pub use ops::built;
pub use tensor::{RawTensor, dtype};
