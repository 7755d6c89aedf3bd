//! Files mapped into memory, and files that appear whole or not at all: the one place of this crate that needs
//! `unsafe`.
//!
//! ```
//! use rlx_ir::files::{io_error, map_file, write_whole};
//! use std::io::Write;
//! let path = std::env::temp_dir().join(format!("rlx-files-{}", std::process::id()));
//! write_whole(&path, |file| file.write_all(b"weights").map_err(|e| io_error(&path, e)))?;
//! assert_eq!(map_file(&path)?.as_ref(), b"weights");
//! # std::fs::remove_file(&path).unwrap();
//! # Ok::<(), rlx_ir::Error>(())
//! ```

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, ErrorKind, Result};

/// A file's bytes, in place.
#[derive(Debug)]
pub struct MappedFile(Option<memmap2::Mmap>);

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// An I/O error that names the file.
pub fn io_error(path: &Path, e: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("{}: {e}", path.display())).with_source(e)
}

/// Maps a regular file read-only.
///
/// The contents must not change while mapped (true of every memory-mapped model): a writer would be seen by
/// readers, and a file cut short ends the process with a bus error at the first touch of the missing pages.
/// Files that [`write_whole`] replaces are safe: the old one lives on until the last map is gone.
///
/// # Errors
/// [`ErrorKind::Io`] naming the file, when it cannot be read or is no regular file.
pub fn map_file(path: impl AsRef<Path>) -> Result<MappedFile> {
    let path = path.as_ref();
    let failed = |e: std::io::Error| io_error(path, e);
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::new(ErrorKind::Io, format!("{} is not a regular file", path.display())));
    }
    if metadata.len() == 0 {
        return Ok(MappedFile(None));
    }
    // SAFETY: the map is read-only and private to this process, and is handed out only as shared bytes without
    // any invariant on their values; the documented condition above covers writers outside this process.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(failed)?;
    Ok(MappedFile(Some(map)))
}

/// Where [`write_whole`] writes `path` first: a neighbour whose name no other process or thread uses, and which
/// [`is_part`] knows.
fn part_of(path: &Path) -> Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path
        .file_name()
        .ok_or_else(|| Error::new(ErrorKind::Io, format!("{} does not name a file", path.display())))?;
    let mut part = OsString::from(".");
    part.push(name);
    part.push(format!(".{}-{}.part", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    Ok(path.with_file_name(part))
}

/// Whether a file of this name is one that [`write_whole`] had not finished.
pub fn is_part(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(".part")
}

/// Writes a file whole or not at all: into a neighbour first, which is then renamed.
///
/// # Errors
/// [`ErrorKind::Io`] naming the file, or what `write` reports.
pub fn write_whole(path: impl AsRef<Path>, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    let path = path.as_ref();
    let part = part_of(path)?;
    let written = File::create(&part)
        .map_err(|e| io_error(path, e))
        .and_then(|mut file| write(&mut file))
        .and_then(|()| std::fs::rename(&part, path).map_err(|e| io_error(path, e)));
    if written.is_err() {
        // The neighbour may not exist; nothing more can be done about it then.
        let _ = std::fs::remove_file(&part);
    }
    written
}

/// `RLX_CACHE_DIR`, or the folder `rlx` in the user's cache folder; without a home, in the system's temporary folder.
pub fn cache_dir() -> PathBuf {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(dir) = var("RLX_CACHE_DIR") {
        return dir;
    }
    let user = if cfg!(windows) {
        var("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        var("HOME").map(|home| home.join("Library/Caches"))
    } else {
        var("XDG_CACHE_HOME").or_else(|| var("HOME").map(|home| home.join(".cache")))
    };
    user.unwrap_or_else(std::env::temp_dir).join("rlx")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_failed_write_leaves_nothing() {
        let folder = std::env::temp_dir().join(format!("rlx-files-test-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("f");
        let fails = |file: &mut File| {
            file.write_all(b"half").map_err(|e| io_error(&path, e))?;
            Err(io_error(&path, std::io::Error::other("the disk is full")))
        };
        assert!(write_whole(&path, fails).unwrap_err().to_string().contains("the disk is full"));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        write_whole(&path, |_| Ok(())).unwrap();
        assert!(map_file(&path).unwrap().as_ref().is_empty());
        assert_eq!(map_file(&folder).unwrap_err().kind(), ErrorKind::Io);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn unfinished_files_are_known_by_name() {
        let part = part_of(Path::new("folder/model.rlx")).unwrap();
        assert!(is_part(&part.file_name().unwrap().to_string_lossy()));
        assert!(!is_part("model.rlx"));
        assert!(part_of(Path::new("..")).is_err());
    }
}
