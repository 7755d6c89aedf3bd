//! A folder of artefacts: the files of a compile cache.

use std::path::{Path, PathBuf};

use rlx_ir::files::{cache_dir, check_own, make_own, parse_size};
use rlx_ir::{Error, ErrorKind, Result};

use crate::artefact::Artefact;
use crate::entries::{self, CacheEntry};
use crate::layout::{ArtefactTarget, Digest};

/// A folder of artefacts, each under a name and a key.
///
/// Entries are written to a temporary file and renamed, so any number of processes may share a folder. When it exceeds its
/// limit, the least recently used entries are removed. The folder must belong to the user (or root) and must not be
/// writable by others, because its contents are trusted: from any other folder no entry is read, and writing one is an
/// error.
///
/// ```
/// use rlx_artifact::EntryStore;
/// let store = EntryStore::new(std::env::temp_dir().join("rlx-no-such-folder")).with_limit(1 << 30);
/// assert!(store.entries()?.is_empty());
/// # Ok::<(), rlx_ir::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryStore {
    root: PathBuf,
    limit: u64,
}

/// What a store has under a name alone.
#[derive(Debug)]
pub enum Lookup {
    /// The only entry, or the one whose key was asked for first.
    Found(Box<Artefact>),
    /// None that could be meant, and why: words that a name can follow.
    Missing(String),
    /// An entry that cannot be used.
    Damaged(Error),
}

impl EntryStore {
    /// The default limit: 16 GiB.
    pub const DEFAULT_LIMIT: u64 = 16 << 30;

    /// The store in the folder `root`, which is made when the first entry is written.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        EntryStore { root: root.into(), limit: Self::DEFAULT_LIMIT }
    }

    /// The user's store: the folder `aot` in `RLX_CACHE_DIR`, or in the folder `rlx` of the user's cache folder; with
    /// at most `RLX_CACHE_LIMIT` bytes (`800M`, `8G`).
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an invalid limit, and if there is no cache folder.
    pub fn from_env() -> Result<Self> {
        let store = Self::new(cache_dir()?.join("aot"));
        match std::env::var("RLX_CACHE_LIMIT") {
            Ok(text) if !text.trim().is_empty() => {
                let limit = parse_size(text.trim()).ok_or_else(|| {
                    let message =
                        format!("RLX_CACHE_LIMIT: {text:?} is not a size; write bytes, or 800M, 8G");
                    Error::new(ErrorKind::Config, message)
                })?;
                Ok(store.with_limit(limit))
            }
            _ => Ok(store),
        }
    }

    /// The same store with at most this many bytes, of which the entry written last may take more.
    pub fn with_limit(self, bytes: u64) -> Self {
        EntryStore { limit: bytes, ..self }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The entry, if it is there, whole, and what its name says. One that is there and cannot be used is a warning.
    pub fn get(&self, name: &str, key: &Digest, target: &ArtefactTarget) -> Option<Artefact> {
        let path = entries::path_of(&self.root, name, key);
        if !path.exists() {
            return None;
        }
        if let Err(e) = check_own(&self.root) {
            Self::not_used(&path, &e);
            return None;
        }
        let foreign = || Error::new(ErrorKind::Unsupported, "it is an entry with another key");
        let found = Artefact::open(&path).and_then(|artefact| {
            let own = artefact.key() == key && artefact.name() == name && artefact.target() == target;
            if own { Ok(artefact) } else { Err(foreign()) }
        });
        match found {
            Ok(artefact) => {
                entries::touch(&path);
                Some(artefact)
            }
            // It went between the two looks.
            Err(e) if e.kind() == ErrorKind::Io => None,
            Err(e) => {
                Self::not_used(&path, &e);
                None
            }
        }
    }

    /// Says that an entry is not used.
    pub fn not_used(path: &Path, e: &Error) {
        tracing::warn!(path = %path.display(), error = %e, "a cache entry is not used; compiling again");
    }

    /// The entry of this name and key, or else the only one of that name, whatever it was compiled for.
    ///
    /// # Errors
    /// A folder that cannot be read, or is not the user's own.
    pub fn find(&self, name: &str, key: &Digest) -> Result<Lookup> {
        let own = entries::path_of(&self.root, name, key);
        check_own(&self.root)?;
        let path = match (own.is_file(), entries::of_name(&self.root, name)?.as_slice()) {
            (true, _) => own,
            (false, [one]) => one.clone(),
            (false, []) => return Ok(Lookup::Missing("no entry".to_owned())),
            (false, several) => {
                return Ok(Lookup::Missing(format!("{} entries, none put by itself, called", several.len())));
            }
        };
        Ok(match Artefact::open(&path) {
            Err(e) if e.kind() == ErrorKind::Io => Lookup::Missing("no entry".to_owned()),
            Err(e) => Lookup::Damaged(e),
            Ok(artefact) if artefact.name() != name => {
                Lookup::Missing("an entry of another name where it keeps".to_owned())
            }
            Ok(artefact) => {
                entries::touch(&path);
                Lookup::Found(Box::new(artefact))
            }
        })
    }

    /// Whether there is an entry of this name that opens.
    pub fn contains(&self, name: &str) -> bool {
        let of_name = entries::of_name(&self.root, name).unwrap_or_default();
        of_name.iter().any(|path| Artefact::open(path).is_ok_and(|a| a.name() == name))
    }

    /// Writes an entry with `write`, which is given its path, and removes others where there are too many.
    ///
    /// # Errors
    /// A folder that is not the user's own or cannot be written; what `write` reports.
    pub fn put(&self, name: &str, key: &Digest, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        make_own(&self.root)?;
        let path = entries::path_of(&self.root, name, key);
        write(&path)?;
        entries::evict(&self.root, self.limit, &path)
    }

    /// All entries, the most recently used first.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn entries(&self) -> Result<Vec<CacheEntry>> {
        entries::list(&self.root)
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// A file that cannot be removed.
    pub fn remove(&self, entry: &CacheEntry) -> Result<()> {
        entries::remove(&entry.path)
    }

    /// Removes all entries; says how many.
    ///
    /// # Errors
    /// A file that cannot be removed.
    pub fn clear(&self) -> Result<usize> {
        entries::clear(&self.root)
    }
}

#[cfg(test)]
mod tests {
    use rlx_ir::files::parse_size;

    #[test]
    fn limits_are_read_as_people_write_them() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("800M", 800 << 20), ("8g", 8 << 30), ("2 T", 2 << 40)]
        {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
        for text in ["", "G", "-1", "8GB", "1.5G", "99999999999T", "é"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }
}
