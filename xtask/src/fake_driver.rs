//! The fake driver under the vendors' names, in a folder that `RLX_LIBRARY_PATH` can name.

use std::path::{Path, PathBuf};

/// What CUDA's and ROCm's libraries are called.
const NAMES: [&str; 6] = [
    "libcuda.so.1",
    "libnvrtc.so.13",
    "libcublasLt.so.13",
    "libamdhip64.so.7",
    "libhiprtc.so.7",
    "libhipblaslt.so.1",
];

/// Makes the folder; the library is built with the tests of `rlx-simt`.
///
/// # Errors
/// What is not there or cannot be written.
pub fn folder() -> Result<PathBuf, String> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from);
    let built = target.join("debug/deps/librlx_fake_driver.so");
    if !built.exists() {
        return Err(format!("{} is not built", built.display()));
    }
    let folder = target.join("fake-driver");
    let link = |name: &str| -> std::io::Result<()> {
        let path = folder.join(name);
        if path.symlink_metadata().is_ok() {
            std::fs::remove_file(&path)?;
        }
        symlink(&built, &path)
    };
    let made = std::fs::create_dir_all(&folder).and_then(|()| NAMES.iter().try_for_each(|name| link(name)));
    made.map(|()| folder.clone()).map_err(|e| format!("{}: {e}", folder.display()))
}

#[cfg(unix)]
fn symlink(to: &Path, at: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(to, at)
}

/// Links need a permission elsewhere.
#[cfg(not(unix))]
fn symlink(to: &Path, at: &Path) -> std::io::Result<()> {
    std::fs::copy(to, at).map(drop)
}
