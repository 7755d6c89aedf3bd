//! Files that appear whole or not at all: written as a *part*, a neighbour that is then renamed.
//!
//! A part is made exclusively under a name that no one can guess, so that no link that somebody placed is followed. Its
//! writer holds a lock on it; the system drops the lock when the process ends, however it ends. A part without one was
//! left by a writer that was killed, and the next one removes it.

use std::collections::hash_map::RandomState;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::io_error;
use crate::error::{Error, ErrorKind, Result};

/// Where files cannot be locked, a part that was not touched for this long has no writer any more.
const ABANDONED: Duration = Duration::from_secs(3600);

/// What names of parts end in, behind a dot.
const ENDING: &str = "part";

/// How often a part is made again when somebody took it for abandoned.
const ATTEMPTS: usize = 16;

/// Hexadecimal digits that no one can guess in a part's name.
const DIGITS: usize = 16;

/// Writes a file whole or not at all: into a neighbour first, which is then renamed. What an earlier writer of the same
/// file left when it was killed is removed.
///
/// # Errors
/// [`ErrorKind::Io`] naming the file, or what `write` reports.
pub fn write_whole(path: impl AsRef<Path>, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    let path = path.as_ref();
    let name = path
        .file_name()
        .ok_or_else(|| Error::new(ErrorKind::Io, format!("{} does not name a file", path.display())))?;
    sweep(folder_of(path), |part| is_part_of(part, name));
    let (part, mut file) = create(path, name).map_err(|e| io_error(path, e))?;
    // Its bytes are on the disk before it has its name: else the system may stop between the two, and leave the name of a file
    // that is empty. The lock is held until then: no one takes it for abandoned before.
    let named = |file: &File| file.sync_all().and_then(|()| std::fs::rename(&part, path));
    let written = write(&mut file).and_then(|()| named(&file).map_err(|e| io_error(path, e)));
    if written.is_err() {
        // Nothing more can be done about it where that fails.
        let _ = std::fs::remove_file(&part);
    }
    written
}

/// Whether a file of this name is one that [`write_whole`] had not finished.
pub fn is_part(name: &str) -> bool {
    name.starts_with('.') && Path::new(name).extension().is_some_and(|e| e == ENDING)
}

/// Removes what killed writers left in a folder, whatever they were writing. What cannot be removed stays.
pub fn remove_abandoned(folder: impl AsRef<Path>) {
    sweep(folder.as_ref(), |name| is_part(&name.to_string_lossy()));
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A new part for `path`, locked.
fn create(path: &Path, name: &OsStr) -> std::io::Result<(PathBuf, File)> {
    let mut taken = std::io::ErrorKind::AlreadyExists.into();
    for _ in 0..ATTEMPTS {
        let part = path.with_file_name(part_name(name));
        // Fails where there is anything of this name, a link also.
        let file = match OpenOptions::new().write(true).create_new(true).open(&part) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                taken = e;
                continue;
            }
            opened => opened?,
        };
        // Where files cannot be locked, its age tells.
        let locked = !matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        // Anyone who looked for abandoned ones before the lock was there took this for one.
        if locked && part.symlink_metadata().is_ok() {
            return Ok((part, file));
        }
        let _ = std::fs::remove_file(&part);
    }
    Err(taken)
}

/// A name for a part of this file: `.NAME.0123456789abcdef.part`.
fn part_name(name: &OsStr) -> OsString {
    // Keyed by the system's random numbers, again for each.
    let unguessable = RandomState::new().build_hasher().finish();
    let mut part = OsString::from(".");
    part.push(name);
    part.push(format!(".{unguessable:0DIGITS$x}.{ENDING}"));
    part
}

/// Whether `part` is a name that [`part_name`] gives for `name`.
fn is_part_of(part: &OsStr, name: &OsStr) -> bool {
    let part = part.as_encoded_bytes();
    let between = part
        .strip_prefix(b".")
        .and_then(|rest| rest.strip_prefix(name.as_encoded_bytes()))
        .and_then(|rest| rest.strip_prefix(b"."))
        .and_then(|rest| rest.strip_suffix(ENDING.as_bytes()))
        .and_then(|rest| rest.strip_suffix(b"."));
    between.is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Removes the parts of a folder whose writers are gone, of those names that are `wanted`.
fn sweep(folder: &Path, wanted: impl Fn(&OsStr) -> bool) {
    // It is a service to anyone who needs the room: the write that follows says what is wrong with the folder.
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if wanted(&entry.file_name()) && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            remove_if_abandoned(&entry.path());
        }
    }
}

/// Removes a part that no one writes any more. It stays locked until it is gone: a writer that has just made it finds it
/// locked, or gone, and never takes it for its own.
fn remove_if_abandoned(part: &Path) {
    let mut options = OpenOptions::new();
    // Between the two looks it may have become a link, or a pipe.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let Ok(file) = options.read(true).open(part) else { return };
    let abandoned = match file.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(_)) => {
            let touched = file.metadata().and_then(|m| m.modified());
            touched.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ABANDONED))
        }
    };
    if abandoned {
        // Another process may have been faster.
        let _ = std::fs::remove_file(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::map_file;
    use std::io::Write;

    /// A folder of its own for a test.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("rlx-part-{name}-{}", std::process::id()));
        // Nothing is left of an earlier run.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let folder = folder("failed");
        let path = folder.join("f");
        let fails = |file: &mut File| {
            file.write_all(b"half").map_err(|e| io_error(&path, e))?;
            Err(io_error(&path, std::io::Error::other("the disk is full")))
        };
        assert!(write_whole(&path, fails).unwrap_err().to_string().contains("the disk is full"));
        assert!(names(&folder).is_empty());
        write_whole(&path, |_| Ok(())).unwrap();
        assert!(map_file(&path).unwrap().as_ref().is_empty());
        assert_eq!(names(&folder), ["f"]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn names_of_parts_are_known_and_cannot_be_guessed() {
        let (one, other) = (part_name(OsStr::new("model.rlx")), part_name(OsStr::new("model.rlx")));
        assert_ne!(one, other);
        for part in [&one, &other] {
            assert!(
                is_part(&part.to_string_lossy()) && is_part_of(part, OsStr::new("model.rlx")),
                "{part:?}"
            );
            assert!(!part.to_string_lossy().contains(&std::process::id().to_string()), "{part:?}");
        }
        for no in ["model.rlx", ".model.rlx.part", ".model.rlx.12-3.part", ".other.0123456789abcdef.part"] {
            assert!(!is_part_of(OsStr::new(no), OsStr::new("model.rlx")), "{no}");
        }
        assert!(!is_part("model.rlx") && !is_part(".model.rlx"));
        assert!(write_whole("..", |_| Ok(())).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn links_that_somebody_placed_are_not_followed() {
        let folder = folder("planted");
        let (path, victim) = (folder.join("f"), folder.join("victim"));
        std::fs::write(&victim, "precious").unwrap();
        // The names that a process would have taken when they could be guessed.
        for n in 0..64 {
            let guess = folder.join(format!(".f.{}-{n}.part", std::process::id()));
            std::os::unix::fs::symlink(&victim, guess).unwrap();
        }
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        write_whole(&path, |file| file.write_all(b"new").map_err(|e| io_error(&path, e))).unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_killed_writers_left_goes_and_what_is_being_written_stays() {
        let folder = folder("abandoned");
        let path = folder.join("f");
        let leave = |name: &str| {
            let part = part_name(OsStr::new(name));
            std::fs::write(folder.join(&part), "half").unwrap();
            part
        };
        let (own, others) = (leave("f"), leave("g"));
        write_whole(&path, |_| {
            assert!(!folder.join(&own).exists() && folder.join(&others).exists());
            let before = names(&folder);
            // Anyone who cleans meanwhile leaves what this call writes.
            remove_abandoned(&folder);
            assert!(!folder.join(&others).exists());
            assert_eq!(names(&folder).len(), before.len() - 1);
            Ok(())
        })
        .unwrap();
        assert_eq!(names(&folder), ["f"]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn who_writes_loses_no_part_to_who_cleans() {
        let folder = folder("race");
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        remove_abandoned(&folder);
                    }
                });
            }
            let written: Vec<_> =
                (0..2000).map(|i| write_whole(folder.join(format!("f{}", i % 2)), |_| Ok(()))).collect();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(written.iter().all(Result::is_ok), "{:?}", written.iter().find(|w| w.is_err()));
        });
        std::fs::remove_dir_all(folder).unwrap();
    }
}
