//! Where vendors' shared libraries are looked for before the system's own places.

use std::path::PathBuf;

/// The variable that names folders to look into first, separated as in `PATH`.
pub const LIBRARY_PATH: &str = "RLX_LIBRARY_PATH";

/// The folders that [`LIBRARY_PATH`] names.
pub fn folders() -> Vec<PathBuf> {
    let value = std::env::var_os(LIBRARY_PATH).unwrap_or_default();
    std::env::split_paths(&value).filter(|folder| !folder.as_os_str().is_empty()).collect()
}
