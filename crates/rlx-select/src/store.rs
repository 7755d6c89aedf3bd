//! Measurements stored on disk: small text files in the cache folder that appear whole or not at all and
//! carry their own check.
//!
//! The first line says what the file is; the last is the hash of all before it. A file that does not match was
//! damaged, or belongs to another user: it is not used.

use std::io::Write;
use std::path::{Path, PathBuf};

use rlx_ir::files::{
    cache_dir, check_own, io_error, is_missing, make_own, read_file, remove_abandoned, write_whole,
};
use rlx_ir::{Error, ErrorKind, Result};
/// The version of all stored files: another version of RLX measures again.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

const CHECK: &str = "check ";

/// A short name for a text, of letters a file name may have.
pub fn digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..16].to_string()
}

/// The file called `name` of this kind.
///
/// # Errors
/// As [`cache_dir`].
pub fn path(kind: &str, name: &str) -> Result<PathBuf> {
    Ok(cache_dir()?.join(kind).join(format!("{name}.txt")))
}

/// Writes `text`, lines that each end with a line feed.
///
/// # Errors
/// [`ErrorKind::Io`] naming the file, or a folder that is not the user's own.
pub fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        make_own(folder)?;
        remove_abandoned(folder);
    }
    let sealed = format!("{text}{CHECK}{}\n", digest(text));
    write_whole(path, |file| file.write_all(sealed.as_bytes()).map_err(|e| io_error(path, e)))
}

/// What [`write()`] wrote; `None` when there is no such file.
///
/// # Errors
/// [`ErrorKind::Io`] when it cannot be read or is in a folder that is not the user's own, [`ErrorKind::Malformed`] when
/// it is not as it was written.
pub fn read(path: &Path) -> Result<Option<String>> {
    path.parent().map_or(Ok(()), check_own)?;
    let bytes = match read_file(path) {
        Err(e) if is_missing(&e) => return Ok(None),
        read => read?,
    };
    let damaged = || Error::new(ErrorKind::Malformed, format!("{} is damaged", path.display()));
    let sealed = String::from_utf8(bytes).map_err(|_| damaged())?;
    let at = sealed.trim_end_matches('\n').rfind('\n').map_or(0, |i| i + 1);
    let (text, check) = sealed.split_at(at);
    let check = check.strip_prefix(CHECK).and_then(|c| c.strip_suffix('\n')).ok_or_else(damaged)?;
    if check != digest(text) {
        return Err(damaged());
    }
    Ok(Some(text.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_any_damage_is_noticed() {
        let folder = std::env::temp_dir().join(format!("rlx-store-{}", std::process::id()));
        let path = folder.join("deep").join("a.txt");
        assert!(read(&path).unwrap().is_none());
        let text = "what 1\nvalue 2.5\n";
        write(&path, text).unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some(text));
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(&path, &bad).unwrap();
            assert_eq!(read(&path).unwrap_err().kind(), ErrorKind::Malformed, "byte {at}");
            std::fs::write(&path, &good[..at]).unwrap();
            assert!(read(&path).is_err(), "cut at {at}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn entries_that_others_can_write_are_neither_read_nor_replaced() {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("rlx-store-others-{}", std::process::id()));
        let path = folder.join("a.txt");
        write(&path, "planted\n").unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        for rejected in [read(&path).map(drop), write(&path, "own\n")] {
            let e = rejected.unwrap_err();
            assert!(e.kind() == ErrorKind::Io && e.to_string().contains("other users"), "{e}");
        }
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("planted\n"));
        // What a killed writer of another file left goes with the next one.
        std::fs::write(folder.join(".b.txt.0123456789abcdef.part"), "half").unwrap();
        write(&path, "own\n").unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
