//! Programs in the language of a device.

mod c;

pub use c::{instructions, source};
