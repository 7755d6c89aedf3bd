//! The folder in which devices keep what their drivers made of kernels: `pipelines` in the user's cache folder, with a
//! folder for each adapter and driver, and a file for each kernel.
//!
//! What is in the files, drivers alone know. They may all be removed at any time: they only save time.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rlx_ir::Result;
use rlx_ir::files::{cache_dir, check_own, io_error, is_part, remove_abandoned};

/// How many bytes the folder may hold: beyond it, what was used longest ago goes.
pub const LIMIT: u64 = 256 << 20;

/// A cached pipeline.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CachedPipeline {
    /// When it was last used.
    pub used: SystemTime,
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// The folder: in `RLX_CACHE_DIR`, or in the folder `rlx` of the user's cache folder.
///
/// # Errors
/// As [`cache_dir`].
pub fn folder() -> Result<PathBuf> {
    Ok(cache_dir()?.join("pipelines"))
}

/// All files below the folder, what was used longest ago first; an absent folder has none.
pub fn list(root: &Path) -> Vec<CachedPipeline> {
    // What cannot be read, or went meanwhile, is not there.
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let file = |entry: std::fs::DirEntry| {
        let metadata = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Some(CachedPipeline { used, path: entry.path(), bytes: metadata.len() })
    };
    let mut found: Vec<_> =
        entries(root).flat_map(|adapter| entries(&adapter.path())).filter_map(file).collect();
    found.sort();
    found
}

/// Removes all of them; says how many.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Io`] for a file that cannot be removed, and for a folder that is not the user's own.
pub fn clear(root: &Path) -> Result<usize> {
    check_own(root)?;
    let found = list(root);
    for kept in &found {
        match std::fs::remove_file(&kept.path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io_error(&kept.path, e)),
            _ => {}
        }
    }
    Ok(found.len())
}

/// Removes what was used longest ago until at most `limit` bytes are left, and what writers left behind that were ended.
pub fn evict(root: &Path, limit: u64) {
    std::fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .for_each(|adapter| remove_abandoned(adapter.path()));
    let mut found = list(root);
    found.retain(|kept| !kept.path.file_name().is_some_and(|name| is_part(&name.to_string_lossy())));
    let mut total: u64 = found.iter().map(|kept| kept.bytes).sum();
    for kept in found {
        if total > limit && std::fs::remove_file(&kept.path).is_ok() {
            total = total.saturating_sub(kept.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let root = std::env::temp_dir().join(format!("rlx-kept-{}", std::process::id()));
        let adapter = root.join("adapter");
        std::fs::create_dir_all(&adapter).unwrap();
        std::fs::write(adapter.join(".d.bin.0123456789abcdef.part"), [0; 100]).unwrap();
        for (i, name) in ["a", "b", "c"].iter().enumerate() {
            let path = adapter.join(format!("{name}.bin"));
            std::fs::write(&path, [0; 100]).unwrap();
            let then = SystemTime::now() - Duration::from_secs(100 - i as u64);
            std::fs::File::open(&path).unwrap().set_modified(then).unwrap();
        }
        evict(&root, 250);
        let left: Vec<_> = list(&root).into_iter().map(|kept| kept.path).collect();
        assert_eq!(left, [adapter.join("b.bin"), adapter.join("c.bin")]);
        assert_eq!(clear(&root).unwrap(), 2);
        assert_eq!(list(&root), []);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(clear(&root).unwrap(), 0);
    }
}
