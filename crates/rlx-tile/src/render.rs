//! Programs in the language of a device.

mod cuda;

pub use cuda::{cuda, cuda_instructions};
