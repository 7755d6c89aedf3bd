//! Files from outside opened, read and mapped into memory, and files that appear whole or not at all: the one place of
//! this crate that needs `unsafe`.
//!
//! Whoever opens a path that a user or a file names does it here: [`open_file`], [`read_file`], [`read_text`],
//! [`map_file`]. They take regular files alone, because a named pipe or a device may never answer, or never end.
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
use std::fs::{File, FileType, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, ErrorKind, Result};

/// Files up to this size are copied instead of mapped: it costs less than a millisecond, and no change of the file is seen.
const COPIED: u64 = 1 << 20;

/// A file's bytes: in place, or copied where that is cheap.
#[derive(Debug)]
pub struct MappedFile {
    bytes: FileBytes,
}

#[derive(Debug)]
enum FileBytes {
    Mapped { map: memmap2::Mmap, file: File, path: PathBuf },
    Copied(Vec<u8>),
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        match &self.bytes {
            FileBytes::Mapped { map, .. } => map,
            FileBytes::Copied(bytes) => bytes,
        }
    }
}

impl MappedFile {
    /// Whether all of the file is still there: asked before a part is used for the first time, so that a file that was
    /// cut short meanwhile is an error and not the end of the process.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] naming the file.
    pub fn check_whole(&self) -> Result<()> {
        let FileBytes::Mapped { map, file, path } = &self.bytes else { return Ok(()) };
        let now = file.metadata().map_err(|e| io_error(path, e))?.len();
        if now >= map.len() as u64 {
            return Ok(());
        }
        let message = format!("{} was cut from {} bytes to {now} while in use", path.display(), map.len());
        Err(Error::new(ErrorKind::Io, message)
            .with_hint("write a new file and rename it over the old one instead of writing into it"))
    }
}

/// Whether an error says that there is no such file.
pub fn is_missing(e: &Error) -> bool {
    let source = std::error::Error::source(e).and_then(|s| s.downcast_ref::<std::io::Error>());
    source.is_some_and(|e| e.kind() == std::io::ErrorKind::NotFound)
}

/// What a path names that is no regular file.
fn irregular(path: &Path, kind: FileType) -> Error {
    #[cfg(unix)]
    let special = {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            Some("a named pipe")
        } else if kind.is_char_device() || kind.is_block_device() {
            Some("a device")
        } else if kind.is_socket() {
            Some("a socket")
        } else {
            None
        }
    };
    #[cfg(not(unix))]
    let special = None;
    let what = if kind.is_dir() { "a folder" } else { special.unwrap_or("something else") };
    let error = Error::new(ErrorKind::Io, format!("{} is {what}, not a regular file", path.display()));
    if kind.is_dir() { error } else { error.with_hint("copy what it gives to a file first") }
}

/// Opens a regular file to be read. Named pipes, devices and sockets are errors, and opening one does not wait.
///
/// # Errors
/// [`ErrorKind::Io`] naming the file, when it cannot be opened or is no regular file.
pub fn open_file(path: impl AsRef<Path>) -> Result<File> {
    let path = path.as_ref();
    let failed = |e: std::io::Error| io_error(path, e);
    // Opening a device can do something already, so it is asked for first; whoever swaps the file after this only meets
    // an open that does not wait.
    let kind = std::fs::metadata(path).map_err(failed)?.file_type();
    if !kind.is_file() {
        return Err(irregular(path, kind));
    }
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let file = options.read(true).open(path).map_err(failed)?;
    let kind = file.metadata().map_err(failed)?.file_type();
    if kind.is_file() { Ok(file) } else { Err(irregular(path, kind)) }
}

/// The bytes of a regular file.
///
/// # Errors
/// As [`open_file`]; what reading reports.
pub fn read_file(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    let path = path.as_ref();
    let mut bytes = Vec::new();
    open_file(path)?.read_to_end(&mut bytes).map_err(|e| io_error(path, e))?;
    Ok(bytes)
}

/// The text of a regular file.
///
/// # Errors
/// As [`read_file`]; [`ErrorKind::Io`] for bytes that are no UTF-8.
pub fn read_text(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    let mut text = String::new();
    open_file(path)?.read_to_string(&mut text).map_err(|e| io_error(path, e))?;
    Ok(text)
}

/// Bytes as people write them: a number, perhaps with K, M, G or T for powers of 1024.
///
/// ```
/// use rlx_ir::files::parse_size;
/// assert_eq!((parse_size("800M"), parse_size("12"), parse_size("9X")), (Some(800 << 20), Some(12), None));
/// ```
pub fn parse_size(text: &str) -> Option<u64> {
    let shift = match text.chars().last()?.to_ascii_uppercase() {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    digits.trim_end().parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// An I/O error that names the file; [`ErrorKind::OutOfMemory`] where memory was what there was too little of.
pub fn io_error(path: &Path, e: std::io::Error) -> Error {
    let kind = match e.kind() {
        std::io::ErrorKind::OutOfMemory => ErrorKind::OutOfMemory,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("{}: {e}", path.display())).with_source(e)
}

/// Maps a regular file read-only.
///
/// Files up to a mebibyte are copied, so that nothing that happens to them is seen. The contents of larger ones must not
/// change while mapped (true of every memory-mapped model): a writer would be seen by readers, and of a file that is cut
/// short, the first touch of a missing page ends the process with a bus error (SIGBUS). [`MappedFile::check_whole`]
/// finds that before a part is first used; nothing can for parts that are used in place later. Files that
/// [`write_whole`] replaces are safe: the old one lives on until the last map is gone. Where others may write into a
/// model's file, copy it first.
///
/// # Errors
/// As [`open_file`].
pub fn map_file(path: impl AsRef<Path>) -> Result<MappedFile> {
    let path = path.as_ref();
    let failed = |e: std::io::Error| io_error(path, e);
    let mut file = open_file(path)?;
    if file.metadata().map_err(failed)?.len() <= COPIED {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        return Ok(MappedFile { bytes: FileBytes::Copied(bytes) });
    }
    // SAFETY: the map is read-only and private to this process, and is handed out only as shared bytes without
    // any invariant on their values; the documented condition above covers writers outside this process.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(failed)?;
    Ok(MappedFile { bytes: FileBytes::Mapped { map, file, path: path.to_owned() } })
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

    /// A folder of its own for a test.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("rlx-files-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_file_that_is_cut_short_is_an_error_before_it_is_used() {
        let folder = folder("cut");
        let (small, large) = (folder.join("small"), folder.join("large"));
        std::fs::write(&small, vec![1; 4096]).unwrap();
        std::fs::write(&large, vec![2; COPIED as usize + 4096]).unwrap();
        let (few, many) = (map_file(&small).unwrap(), map_file(&large).unwrap());
        assert!(few.check_whole().is_ok() && many.check_whole().is_ok());
        for path in [&small, &large] {
            OpenOptions::new().write(true).open(path).unwrap().set_len(100).unwrap();
        }
        // What was copied does not see it.
        assert!(few.check_whole().is_ok() && few.as_ref() == [1; 4096]);
        let e = many.check_whole().unwrap_err();
        assert!(e.kind() == ErrorKind::Io && e.to_string().contains("was cut"), "{e}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn pipes_devices_and_folders_are_errors_at_once() {
        let folder = folder("kinds");
        let pipe = folder.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let link = folder.join("link");
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        let paths = [
            (&*pipe, "a named pipe"),
            (&link, "a named pipe"),
            (Path::new("/dev/zero"), "a device"),
            (&folder, "a folder"),
        ];
        for (path, what) in paths {
            // Nobody writes to the pipe: without care, these would wait for ever.
            let errors = [
                open_file(path).map(drop).unwrap_err(),
                read_file(path).map(drop).unwrap_err(),
                read_text(path).map(drop).unwrap_err(),
                map_file(path).map(drop).unwrap_err(),
            ];
            for e in errors {
                assert!(e.kind() == ErrorKind::Io && e.to_string().contains(what), "{e}");
            }
        }
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
