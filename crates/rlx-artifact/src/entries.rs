//! The files of a cache: naming, listing and evicting entries.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rlx_ir::files::{check_own, io_error, is_part, open_file, remove_abandoned};
use rlx_ir::sort::{sort, sort_by, sort_by_key};
use rlx_ir::{ErrorKind, Result};

use crate::artefact::Artefact;
use crate::layout::Digest;

/// What entries' names end in.
const ENDING: &str = "rlx";

/// An entry of the cache.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CacheEntry {
    /// The name it was stored under.
    pub name: String,
    /// What tells it from others of its name: the start of its key.
    pub key: String,
    /// The path of its file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// When it was last used.
    pub used: SystemTime,
    /// Why it cannot be used, as far as opening it tells.
    pub fault: Option<rlx_ir::Error>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What the names of all entries of this name start with: readable, and different for different names.
fn stem(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let readable: String = name.chars().take(40).map(plain).collect();
    format!("{}-{}.", readable.trim_start_matches('.'), hex(&blake3::hash(name.as_bytes()).as_bytes()[..6]))
}

/// The path of the entry with this name and key.
pub(crate) fn path_of(root: &Path, name: &str, key: &Digest) -> PathBuf {
    root.join(format!("{}{}.{ENDING}", stem(name), hex(&key[..16])))
}

/// The entries' files with their sizes and last uses; an absent folder has none. One that is not the user's own is an
/// error: files of other users are neither trusted nor removed.
fn files(root: &Path) -> Result<Vec<(PathBuf, u64, SystemTime)>> {
    check_own(root)?;
    let listing = match std::fs::read_dir(root) {
        Ok(listing) => listing,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(io_error(root, e)),
    };
    let mut found = Vec::new();
    for entry in listing {
        let entry = entry.map_err(|e| io_error(root, e))?;
        // A file may go while the folder is read; then it is no entry.
        let Ok(metadata) = entry.metadata() else { continue };
        let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        if metadata.is_file() {
            found.push((entry.path(), metadata.len(), used));
        }
    }
    Ok(found)
}

fn is_entry(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == ENDING)
}

/// All entries, the most recently used first.
pub(crate) fn list(root: &Path) -> Result<Vec<CacheEntry>> {
    let entry = |(path, bytes, used): (PathBuf, u64, SystemTime)| {
        let file = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let key = file.rsplit('.').next().unwrap_or_default().to_owned();
        let (name, fault) = match Artefact::open(&path) {
            Ok(artefact) => (artefact.name().to_owned(), None),
            Err(e) => (file, Some(e)),
        };
        CacheEntry { name, key, path, bytes, used, fault }
    };
    let mut found: Vec<CacheEntry> =
        files(root)?.into_iter().filter(|(path, ..)| is_entry(path)).map(entry).collect();
    // One that went meanwhile is none.
    found.retain(|e| e.fault.as_ref().is_none_or(|fault| fault.kind() != ErrorKind::Io));
    sort_by(&mut found, |a, b| b.used.cmp(&a.used).then_with(|| a.path.cmp(&b.path)));
    Ok(found)
}

/// The files of entries of this name, the most recently used first.
pub(crate) fn of_name(root: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let stem = stem(name);
    let is_one = |path: &Path| {
        is_entry(path) && path.file_name().is_some_and(|f| f.to_string_lossy().starts_with(&stem))
    };
    let mut found: Vec<_> = files(root)?.into_iter().filter(|(path, ..)| is_one(path)).collect();
    sort_by_key(&mut found, |(_, _, used)| std::cmp::Reverse(*used));
    Ok(found.into_iter().map(|(path, ..)| path).collect())
}

/// Notes that an entry is used now. A cache that cannot be written still serves; its entries then leave in another
/// order.
pub(crate) fn touch(path: &Path) {
    let noted =
        open_file(path).and_then(|f| f.set_modified(SystemTime::now()).map_err(|e| io_error(path, e)));
    if let Err(e) = noted {
        tracing::debug!(path = %path.display(), error = %e, "the time of use of a cache entry was not updated");
    }
}

/// Removes a file; one that is gone already is as good.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(io_error(path, e)),
        _ => Ok(()),
    }
}

/// Removes the least recently used entries until at most `limit` bytes are left, and the files of abandoned writers; `kept`
/// stays.
pub(crate) fn evict(root: &Path, limit: u64, kept: &Path) -> Result<()> {
    remove_abandoned(root);
    let found = files(root)?.into_iter().filter(|(path, ..)| is_entry(path));
    let mut entries: Vec<_> = found.map(|(path, bytes, used)| (used, path, bytes)).collect();
    sort(&mut entries);
    let mut total: u64 = entries.iter().map(|(.., bytes)| bytes).sum();
    for (_, path, bytes) in entries {
        if total <= limit {
            break;
        }
        if path != kept {
            tracing::debug!(path = %path.display(), bytes, "the cache is full: removing the least recently used entry");
            remove(&path)?;
            total = total.saturating_sub(bytes);
        }
    }
    Ok(())
}

/// Removes everything the cache wrote.
pub(crate) fn clear(root: &Path) -> Result<usize> {
    let mut removed = 0;
    for (path, ..) in files(root)? {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if is_entry(&path) || is_part(&name) {
            remove(&path)?;
            removed += usize::from(is_entry(&path));
        }
    }
    Ok(removed)
}
