//! The folder with the fake driver for suites that run other crates' tests on it.

use rlx_testdata::fake_driver::{BLAS, BUILT, DRIVERS, link};
use std::path::PathBuf;

/// Makes the folder; the library is built with the tests of `rlx-simt`.
///
/// # Errors
/// What is not there or cannot be written.
pub fn folder() -> Result<PathBuf, String> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from);
    let built = target.join("debug/deps").join(BUILT);
    if !built.exists() {
        return Err(format!("{} is not built", built.display()));
    }
    let folder = target.join("fake-driver");
    let linked = link(&built, &folder, DRIVERS.into_iter().chain(BLAS));
    linked.map(|()| folder.clone()).map_err(|e| format!("{}: {e}", folder.display()))
}
