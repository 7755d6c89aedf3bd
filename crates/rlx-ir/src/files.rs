//! Files from outside opened, read and mapped into memory, and files that appear whole or not at all: the one place of
//! this crate that needs `unsafe`.
//!
//! Anyone who opens a path that a user or a file names does it here: [`open_file`], [`read_file`], [`read_text`],
//! [`map_file`]. They take regular files alone, because a named pipe or a device may never answer, or never end. What is
//! written appears whole or not at all ([`write_whole`]), and what is kept for later is in the user's own folder
//! ([`cache_dir`], [`make_own`]).
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

mod own;
mod part;

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::error::{Error, ErrorKind, Result};

pub use own::{cache_dir, check_own, make_own};
pub use part::{is_part, remove_abandoned, write_whole};

/// Files up to this size are copied instead of mapped: it costs less than a millisecond, and no change of the file is seen.
const COPIED: u64 = 1 << 20;

/// A file's bytes: in place, or copied where that is cheap.
#[derive(Debug)]
pub struct MappedFile {
    bytes: FileBytes,
}

#[derive(Debug)]
enum FileBytes {
    Mapped {
        map: memmap2::Mmap,
        file: File,
        path: PathBuf,
        /// As it was before it was mapped, and whether that tells it from what it becomes.
        stamp: String,
        settled: bool,
    },
    Copied(Vec<u8>),
}

/// How finely file systems note times, where they do it finer than seconds.
const TICK: Duration = Duration::from_millis(20);
/// The same where times are whole seconds, as if no finer ones were noted.
const COARSE_TICK: Duration = Duration::from_secs(2);

/// What the system notes of a file: whatever is written to the file changes it, unless the time of the last change is
/// [too near](is_settled).
#[cfg(unix)]
fn stamp(_: &Path, metadata: &Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    let (modified, changed) =
        ((metadata.mtime(), metadata.mtime_nsec()), (metadata.ctime(), metadata.ctime_nsec()));
    format!("{} {} {} {modified:?} {changed:?}", metadata.dev(), metadata.ino(), metadata.len())
}

#[cfg(not(unix))]
fn stamp(path: &Path, metadata: &Metadata) -> String {
    format!("{path:?} {} {:?} {:?}", metadata.len(), metadata.modified().ok(), metadata.created().ok())
}

/// Whether a change from now on gets another time than the last one had.
fn is_settled(metadata: &Metadata) -> bool {
    // The time of the last change of anything cannot be set, unlike that of the contents.
    #[cfg(unix)]
    let changed = {
        use std::os::unix::fs::MetadataExt;
        let (seconds, nanoseconds) = (metadata.ctime().max(0) as u64, metadata.ctime_nsec().max(0) as u32);
        Some(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds))
    };
    #[cfg(not(unix))]
    let changed = metadata.modified().ok();
    let Some(changed) = changed else { return false };
    let whole = changed.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|t| t.subsec_nanos() == 0);
    changed.elapsed().is_ok_and(|age| age > if whole { COARSE_TICK } else { TICK })
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        match &self.bytes {
            FileBytes::Mapped { map, .. } => map,
            FileBytes::Copied(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for MappedFile {
    /// Bytes that were read elsewhere: from a server, where there are no files.
    fn from(bytes: Vec<u8>) -> Self {
        MappedFile { bytes: FileBytes::Copied(bytes) }
    }
}

impl MappedFile {
    /// What tells these bytes from any others that a file may have had or will have: a hash where they were copied, else
    /// what the system noted of the file before it was mapped. `None` where that cannot tell, because the file was written
    /// in the very moment. It holds for what was read of the file as long as [`MappedFile::is_unchanged`] says so.
    pub fn identity(&self) -> Option<String> {
        match &self.bytes {
            FileBytes::Copied(bytes) => Some(blake3::hash(bytes).to_string()),
            FileBytes::Mapped { stamp, settled, .. } => settled.then(|| stamp.clone()),
        }
    }

    /// Whether the file was not written since it was mapped: what was read of it so far is what it held then. (What was
    /// copied does not change. A file that was removed or replaced may count as written.)
    pub fn is_unchanged(&self) -> bool {
        match &self.bytes {
            FileBytes::Copied(_) => true,
            FileBytes::Mapped { file, path, stamp, .. } => {
                file.metadata().is_ok_and(|now| self::stamp(path, &now) == *stamp)
            }
        }
    }

    /// Where in the file these bytes lie; nothing if they are others.
    pub fn position(&self, bytes: &[u8]) -> Option<Range<usize>> {
        let whole = self.as_ref().as_ptr_range();
        let part = bytes.as_ptr_range();
        let within = whole.start <= part.start && part.end <= whole.end;
        within.then(|| part.start.addr() - whole.start.addr()..part.end.addr() - whole.start.addr())
    }

    /// Gives the memory that holds these bytes of a mapped file back to the system, which reads them from the file when they
    /// are used again.
    pub fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let FileBytes::Mapped { map, .. } = &self.bytes
            && range.start < range.end
            && range.end <= map.len()
        {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: the map is read-only, so every page is what the file has there, and is read from it again.
            // Advice that the system rejects changes nothing.
            let _ = unsafe { map.unchecked_advise_range(advice, range.start, range.len()) };
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    /// Whether all of the file is still there: asked before a part is used for the first time, so that a file that was
    /// truncated meanwhile is an error and not the end of the process.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] naming the file.
    pub fn check_whole(&self) -> Result<()> {
        let FileBytes::Mapped { map, file, path, .. } = &self.bytes else { return Ok(()) };
        let now = file.metadata().map_err(|e| io_error(path, e))?.len();
        if now >= map.len() as u64 {
            return Ok(());
        }
        let message =
            format!("{} was truncated from {} bytes to {now} while in use", path.display(), map.len());
        Err(Error::new(ErrorKind::Io, message)
            .with_hint("write a new file and rename it over the old one instead of writing into it"))
    }
}

/// Whether an error says that there is no such file, or not even a folder where it would be.
pub fn is_missing(e: &Error) -> bool {
    let source = std::error::Error::source(e).and_then(|s| s.downcast_ref::<std::io::Error>());
    source.is_some_and(|e| is_absence(e.kind()))
}

fn is_absence(kind: std::io::ErrorKind) -> bool {
    matches!(kind, std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
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
    // Opening a device can do something already, so it is asked for first; anyone who swaps the file after this only meets
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
    let metadata = file.metadata().map_err(failed)?;
    if metadata.len() <= COPIED {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        return Ok(MappedFile { bytes: FileBytes::Copied(bytes) });
    }
    let (stamp, settled) = (stamp(path, &metadata), is_settled(&metadata));
    // SAFETY: the map is read-only and private to this process, and is handed out only as shared bytes without
    // any invariant on their values; the documented condition above covers writers outside this process.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(failed)?;
    Ok(MappedFile { bytes: FileBytes::Mapped { map, file, path: path.to_owned(), stamp, settled } })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of its own for a test.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("rlx-files-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn what_was_released_is_read_again() {
        let folder = folder("released");
        let path = folder.join("large");
        let bytes: Vec<u8> = (0..COPIED as usize + 5000).map(|i| (i / 7) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        for file in [map_file(&path).unwrap(), MappedFile::from(bytes.clone())] {
            for range in [0..bytes.len(), 4097..9000, 5..5, bytes.len()..bytes.len() + 1] {
                file.release(range);
                assert!(file.as_ref() == bytes);
            }
            let part = &file.as_ref()[4100..5000];
            assert_eq!(file.position(part), Some(4100..5000));
            assert_eq!(file.position(&bytes[4100..5000]), None);
        }
        std::fs::remove_dir_all(&folder).unwrap();
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
        assert!(e.kind() == ErrorKind::Io && e.to_string().contains("was truncated"), "{e}");
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
            // No one writes to the pipe: without care, these would wait for ever.
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
    fn an_identity_is_that_of_the_bytes_that_were_read() {
        let folder = folder("identity");
        let (small, large) = (folder.join("small"), folder.join("large"));
        let write = |byte: u8| {
            std::fs::write(&small, [byte; 4096]).unwrap();
            std::fs::write(&large, vec![byte; COPIED as usize + 1]).unwrap();
        };
        write(1);
        let soon = map_file(&large).unwrap();
        std::thread::sleep(TICK * 3);
        let mapped = |path: &Path| (map_file(path).unwrap(), map_file(path).unwrap());
        for path in [&small, &large] {
            let (one, other) = mapped(path);
            assert!(one.identity().is_some() && one.identity() == other.identity());
            assert!(one.is_unchanged());
        }
        let ((few, _), (many, _)) = (mapped(&small), mapped(&large));
        write(2);
        // What was copied is still what it was; what is mapped is not.
        assert!(few.is_unchanged() && !many.is_unchanged() && !soon.is_unchanged());
        assert_ne!(few.identity(), map_file(&small).unwrap().identity());
        std::thread::sleep(TICK * 3);
        assert_ne!(many.identity(), map_file(&large).unwrap().identity());
        // Another file of the same length and times in its place.
        let (before, after) = (map_file(&large).unwrap(), folder.join("new"));
        std::fs::write(&after, vec![3; COPIED as usize + 1]).unwrap();
        let times = File::open(&large).unwrap().metadata().unwrap().modified().unwrap();
        OpenOptions::new().write(true).open(&after).unwrap().set_modified(times).unwrap();
        std::fs::rename(&after, &large).unwrap();
        std::thread::sleep(TICK * 3);
        assert_ne!(before.identity(), map_file(&large).unwrap().identity());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
