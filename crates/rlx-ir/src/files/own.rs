//! Folders in which RLX keeps what it may need again: the user's own, and no one else's.
//!
//! What is there is believed: a compiled model gives the results of a model, and a driver runs what it once made. So such
//! a folder belongs to the user (or to root), and no one else may write it; the system's temporary folder, which
//! everybody may write, is never taken unasked. Files of a folder that fails this are neither read nor written.

use std::path::{Path, PathBuf};

use super::io_error;
#[cfg(unix)]
use super::is_absence;
use crate::error::{Error, ErrorKind, Result};

/// `RLX_CACHE_DIR`, or the folder `rlx` in the user's cache folder (`XDG_CACHE_HOME`, `~/.cache`; `~/Library/Caches` on
/// macOS, `LOCALAPPDATA` on Windows).
///
/// # Errors
/// [`ErrorKind::Config`] where none of them is known, as for a service without a home: then nothing is kept.
pub fn cache_dir() -> Result<PathBuf> {
    cache_dir_of(|name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from))
}

fn cache_dir_of(var: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf> {
    if let Some(dir) = var("RLX_CACHE_DIR") {
        return Ok(dir);
    }
    let user = if cfg!(windows) {
        var("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        var("HOME").map(|home| home.join("Library/Caches"))
    } else {
        // Relative ones are to be ignored, says the XDG Base Directory Specification.
        let given = var("XDG_CACHE_HOME").filter(|dir| dir.is_absolute());
        given.or_else(|| var("HOME").map(|home| home.join(".cache")))
    };
    user.filter(|dir| dir.is_absolute()).map(|dir| dir.join("rlx")).ok_or_else(|| {
        Error::new(ErrorKind::Config, "the user has no folder for caches, so nothing is kept")
            .with_hint("set RLX_CACHE_DIR to a folder that no one else may write")
    })
}

/// Whether a folder, if it is there, is the user's or root's, and no one else may write it.
///
/// # Errors
/// [`ErrorKind::Io`] naming the folder, and what would fix it.
pub fn check_own(folder: impl AsRef<Path>) -> Result<()> {
    let folder = folder.as_ref();
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        // A link that somebody else placed leads wherever they like.
        let link = match std::fs::symlink_metadata(folder) {
            Err(e) if is_absence(e.kind()) => return Ok(()),
            found => found.map_err(|e| io_error(folder, e))?,
        };
        let found = std::fs::metadata(folder).map_err(|e| io_error(folder, e))?;
        if !found.is_dir() {
            return Err(Error::new(ErrorKind::Io, format!("{} is no folder", folder.display())));
        }
        // SAFETY: the call has no arguments and cannot fail.
        let user = unsafe { libc::geteuid() };
        if let Some(fault) = fault(user, [link.uid(), found.uid()], found.mode()) {
            let message = format!("{} {}", folder.display(), fault.what);
            return Err(Error::new(ErrorKind::Io, message).with_hint(fault.hint(folder)));
        }
    }
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

/// Why a folder is not believed.
#[cfg(unix)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fault {
    what: &'static str,
    others_write: bool,
}

#[cfg(unix)]
impl Fault {
    fn hint(self, folder: &Path) -> String {
        match self.others_write {
            true => {
                format!("`chmod go-w {}`, after looking at what is in it, or RLX_CACHE_DIR", folder.display())
            }
            false => "set RLX_CACHE_DIR to a folder of your own".to_owned(),
        }
    }
}

#[cfg(unix)]
fn fault(user: u32, owners: [u32; 2], mode: u32) -> Option<Fault> {
    if owners.iter().any(|&owner| owner != user && owner != 0) {
        return Some(Fault {
            what: "belongs to another user: what is there is not used",
            others_write: false,
        });
    }
    let what = "may be written by other users: what is there is not used";
    (mode & 0o022 != 0).then_some(Fault { what, others_write: true })
}

/// Makes a folder if it is not there, for this user alone; else as [`check_own`].
///
/// # Errors
/// As [`check_own`]; a folder that cannot be made.
pub fn make_own(folder: impl AsRef<Path>) -> Result<()> {
    let folder = folder.as_ref();
    check_own(folder)?;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|e| io_error(folder, e))?;
    // Somebody may have been faster.
    check_own(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shared_temporary_folder_is_never_taken_unasked() {
        let with = |set: &'static [(&str, &str)]| {
            cache_dir_of(move |name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| PathBuf::from(v)))
        };
        let e = with(&[]).unwrap_err();
        assert!(e.kind() == ErrorKind::Config && e.hint().unwrap().contains("RLX_CACHE_DIR"), "{e}");
        assert_eq!(with(&[("RLX_CACHE_DIR", "here")]).unwrap(), Path::new("here"));
        #[cfg(target_os = "linux")]
        {
            let (home, xdg) = (("HOME", "/home/a"), ("XDG_CACHE_HOME", "/cache"));
            assert_eq!(with(&[("HOME", "/home/a")]).unwrap(), Path::new("/home/a/.cache/rlx"));
            assert_eq!(
                cache_dir_of(|name| [home, xdg].iter().find(|v| v.0 == name).map(|v| v.1.into())).unwrap(),
                Path::new("/cache/rlx")
            );
            assert!(
                with(&[("XDG_CACHE_HOME", "relative")]).is_err() && with(&[("HOME", "relative")]).is_err()
            );
        }
    }

    #[cfg(unix)]
    #[test]
    fn folders_of_others_or_that_others_may_write_are_rejected() {
        for (user, owners, mode, ok) in [
            (1000, [1000, 1000], 0o40700, true),
            (1000, [0, 0], 0o40755, true),
            (1000, [1000, 0], 0o40755, true),
            (1000, [1000, 1001], 0o40700, false),
            (1000, [1001, 1000], 0o40700, false),
            (0, [0, 1000], 0o40700, false),
            (1000, [1000, 1000], 0o40775, false),
            (1000, [1000, 1000], 0o40702, false),
            (1000, [0, 0], 0o41777, false),
        ] {
            assert_eq!(fault(user, owners, mode).is_none(), ok, "{user} {owners:?} {mode:o}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_is_made_for_the_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let top = std::env::temp_dir().join(format!("rlx-own-{}", std::process::id()));
        let folder = top.join("deep");
        check_own(&folder).unwrap();
        make_own(&folder).unwrap();
        for made in [&top, &folder] {
            assert_eq!(std::fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700);
        }
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        for rejected in [make_own(&folder), check_own(&folder)] {
            let e = rejected.unwrap_err();
            assert!(e.kind() == ErrorKind::Io && e.hint().unwrap().contains("chmod"), "{e}");
        }
        std::fs::remove_dir_all(top).unwrap();
        assert!(check_own("/dev/null").unwrap_err().to_string().contains("no folder"));
    }
}
