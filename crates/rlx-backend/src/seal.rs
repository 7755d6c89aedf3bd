//! Seals: what shows that bytes are as this user's RLX left them.
//!
//! Files are exchanged, and what is in them is a stranger's. Where a device has nothing that keeps code within its memory, only the user's own is run
//! without a look at each access. A seal tells them apart: a hash keyed by a number that is in the user's own cache folder, in a file that no one else may
//! read. It is made of a context, too (what the bytes are for), so that they are taken for nothing else.
//!
//! ```
//! use rlx_backend::seal::Seal;
//! let seal = Seal::of([7; 32]);
//! let sealed = seal.seal(&["kernels", "of this module"], b"bytes");
//! assert_eq!(seal.opened(&["kernels", "of this module"], &sealed), Some(&b"bytes"[..]));
//! assert_eq!(seal.opened(&["kernels", "of another one"], &sealed), None);
//! assert_eq!(Seal::of([8; 32]).opened(&["kernels", "of this module"], &sealed), None);
//! ```

use std::collections::hash_map::RandomState;
use std::fmt;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::{Read, Write};
use std::path::Path;

use rlx_ir::files::{cache_dir, io_error, is_missing, make_own, open_file, write_whole};
use rlx_ir::{Error, ErrorKind, Result};

/// The file in the user's cache folder.
const FILE: &str = "seal.key";
/// Bytes of a key, and of a seal.
const BYTES: usize = 32;

/// What seals.
pub struct Seal {
    key: [u8; BYTES],
}

impl fmt::Debug for Seal {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    /// The user's, which is made where there is none. Of processes that make it at the same time one may seal what no one opens any more: it is made again.
    ///
    /// # Errors
    /// No folder of the user's own, or a file in it that others may read.
    pub fn own() -> Result<Seal> {
        Seal::within(&cache_dir()?)
    }

    /// As [`Seal::own`], in another folder.
    ///
    /// # Errors
    /// As [`Seal::own`].
    pub fn within(folder: &Path) -> Result<Seal> {
        make_own(folder)?;
        let path = folder.join(FILE);
        if let Some(seal) = read(&path)? {
            return Ok(seal);
        }
        write_whole(&path, |file| {
            close(file).and_then(|()| file.write_all(&random())).map_err(|e| io_error(&path, e))
        })?;
        let missing = || Error::new(ErrorKind::Io, format!("{} went as it was made", path.display()));
        read(&path)?.ok_or_else(missing)
    }

    /// That of a key.
    pub fn of(key: [u8; BYTES]) -> Seal {
        Seal { key }
    }

    fn hash(&self, context: &[&str], bytes: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for part in context.iter().map(|part| part.as_bytes()).chain([bytes]) {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        hasher.finalize()
    }

    /// The bytes behind a seal that is made of them and a context.
    pub fn seal(&self, context: &[&str], bytes: &[u8]) -> Vec<u8> {
        [self.hash(context, bytes).as_bytes(), bytes].concat()
    }

    /// What was sealed in this context; `None` where anything else was, or by another key.
    pub fn opened<'b>(&self, context: &[&str], sealed: &'b [u8]) -> Option<&'b [u8]> {
        let (hash, bytes) = sealed.split_first_chunk::<BYTES>()?;
        // Hashes are compared in constant time.
        (self.hash(context, bytes) == *hash).then_some(bytes)
    }
}

/// A key that no one can guess: made of the system's random numbers, which key these hashers.
fn random() -> [u8; BYTES] {
    let parts: Vec<u8> =
        (0..8).flat_map(|_| RandomState::new().build_hasher().finish().to_le_bytes()).collect();
    *blake3::hash(&parts).as_bytes()
}

/// The key in a file, where there is one.
fn read(path: &Path) -> Result<Option<Seal>> {
    let file = match open_file(path) {
        Err(e) if is_missing(&e) => return Ok(None),
        opened => opened?,
    };
    if !is_closed(&file).map_err(|e| io_error(path, e))? {
        return Err(Error::new(ErrorKind::Io, format!("{} may be read by others", path.display()))
            .with_hint("remove it: another one is made"));
    }
    let mut bytes = Vec::new();
    file.take(BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|e| io_error(path, e))?;
    let damaged = |_| Error::new(ErrorKind::Malformed, format!("{} is damaged", path.display()));
    bytes.try_into().map(|key| Some(Seal { key })).map_err(damaged)
}

/// No one but the user may read the file.
#[cfg(unix)]
fn close(file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))
}

#[cfg(unix)]
fn is_closed(file: &File) -> std::io::Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    Ok(file.metadata()?.permissions().mode() & 0o077 == 0)
}

/// Elsewhere the user's folder has no one else's permissions.
#[cfg(not(unix))]
fn close(_: &File) -> std::io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
fn is_closed(_: &File) -> std::io::Result<bool> {
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_of_its_key_its_context_and_every_byte() {
        let seal = Seal::of([1; 32]);
        let sealed = seal.seal(&["a", "bc"], b"kernels");
        assert_eq!(seal.opened(&["a", "bc"], &sealed), Some(&b"kernels"[..]));
        for context in [&["ab", "c"][..], &["a"], &["abc"], &["a", "bc", ""]] {
            assert_eq!(seal.opened(context, &sealed), None);
        }
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(seal.opened(&["a", "bc"], &changed), None);
            assert_eq!(seal.opened(&["a", "bc"], &sealed[..at]), None);
        }
    }

    #[test]
    fn the_key_is_made_once_and_for_the_user_alone() {
        let folder = std::env::temp_dir().join(format!("rlx-seal-{}", std::process::id()));
        let sealed = Seal::within(&folder).unwrap().seal(&[], b"x");
        assert_eq!(Seal::within(&folder).unwrap().opened(&[], &sealed), Some(&b"x"[..]));
        let path = folder.join(FILE);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
            let e = Seal::within(&folder).unwrap_err();
            assert!(e.kind() == ErrorKind::Io && e.hint().is_some(), "{e}");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(Seal::within(&folder).unwrap_err().kind(), ErrorKind::Malformed);
        std::fs::remove_file(&path).unwrap();
        // Another key.
        assert_eq!(Seal::within(&folder).unwrap().opened(&[], &sealed), None);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
