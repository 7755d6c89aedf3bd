//! The fake driver under the names of the vendors' libraries, in a folder that `RLX_LIBRARY_PATH` can name.

use std::io;
use std::path::Path;

/// The file that cargo builds of `rlx-fake-driver`, beside the tests.
pub const BUILT: &str = "librlx_fake_driver.so";

/// What the vendors call their drivers and run-time compilers: CUDA's and ROCm's.
pub const DRIVERS: [&str; 4] = ["libcuda.so.1", "libnvrtc.so.13", "libamdhip64.so.7", "libhiprtc.so.7"];

/// What they call their libraries of matrix multiplication.
pub const BLAS: [&str; 2] = ["libcublasLt.so.13", "libhipblaslt.so.1"];

/// Makes `folder`, in which the library `built` has these names.
///
/// # Errors
/// What cannot be written.
pub fn link<'a>(built: &Path, folder: &Path, names: impl IntoIterator<Item = &'a str>) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for name in names {
        let path = folder.join(name);
        if path.symlink_metadata().is_ok() {
            std::fs::remove_file(&path)?;
        }
        symlink(built, &path)?;
    }
    Ok(())
}

#[cfg(unix)]
fn symlink(to: &Path, at: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(to, at)
}

/// Links need a permission elsewhere.
#[cfg(not(unix))]
fn symlink(to: &Path, at: &Path) -> io::Result<()> {
    std::fs::copy(to, at).map(drop)
}
