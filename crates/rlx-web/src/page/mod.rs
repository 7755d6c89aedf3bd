//! What the package calls.

mod devices;
mod errors;
mod model;
mod tensors;

pub use devices::{close_web_gpu, cpu_instructions, open_web_gpu};
pub use errors::last_panic;
pub use model::{Model, external_files};
