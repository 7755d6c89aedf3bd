//! Programs in the language of a device.

mod c;
mod wgsl;

use rlx_ir::Result;

pub use c::{PROLOGUE, instructions};

use crate::atom::Vendor;
use crate::ir::Program;

/// The program in CUDA C, HIP C, the Metal Shading Language or WGSL, as its architecture has it; `entry` is the kernel's name, without C++ mangling.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] for a program that does not verify, or a scalar body with a function that the language lacks.
pub fn source(program: &Program, entry: &str) -> Result<String> {
    match program.arch.vendor() {
        Vendor::Khronos => wgsl::source(program, entry),
        Vendor::Nvidia | Vendor::Amd | Vendor::Apple => c::source(program, entry),
    }
}
