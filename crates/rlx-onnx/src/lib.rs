//! ONNX files as RLX graphs.
//!
//! Reading has three layers: [`proto`] has the format's messages, decoded from a mapped file without copying tensors;
//! [`OnnxFile`] is a whole model with its external data files; [`RawTensor`] is one tensor in any of the format's
//! encodings.
//!
//! Model files are not trusted: see [`OnnxFile`] for what is checked.
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
mod shrink;
mod structure;
mod survey;
mod tensor;
#[cfg(feature = "testing")]
pub mod testing;

pub use dims::DimNames;
pub use file::{OnnxFile, read_tensor_file};
pub use import::{
    DecodedImage, ImageDecoder, ImportOptions, Imported, NeedsInputValue, NeedsTensorValue, import,
    import_with_progress, needed_input, needed_tensor,
};
pub use ops::built;
pub use structure::{FileValue, MapKeys, StringTable, StringTensor, Structure, read_value_file};
pub use survey::{ExternalData, LargeTensor, OpCount, Survey, TensorCount};
pub use tensor::{RawTensor, dtype};
