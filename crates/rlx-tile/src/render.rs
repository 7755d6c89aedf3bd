//! Programs in the language of a device.

mod c;

pub use c::{PROLOGUE, instructions, source};
