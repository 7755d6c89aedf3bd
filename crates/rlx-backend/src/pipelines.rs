//! Kernels on their way through a driver's compiler: several at a time ([`in_parallel`]), and the folder in which devices keep what
//! their drivers made of them: `pipelines` in the user's cache folder, with a folder for each adapter and driver, and a file for each
//! kernel.
//!
//! What is in the files, drivers alone know. They may all be removed at any time: they only save time. Files appear whole or not at
//! all, those of one kernel mean the same anyone who wrote them, and none grows: so processes need no lock.
//!
//! **Trust.** No driver checks these bytes as it checks code; they must be what it gave. That is why they never are in
//! artefacts, which people exchange, but only in a folder of the user's own that no one else may write. A hash seals
//! each file against damage; one that does not match is written again.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::SystemTime;

use rlx_ir::files::{
    cache_dir, check_own, io_error, is_missing, is_part, make_own, open_file, remove_abandoned, write_whole,
};
use rlx_ir::{Error, ErrorKind, Result};

/// How many bytes the folder may hold: beyond it, what was used longest ago goes.
pub const LIMIT: u64 = 256 << 20;

/// What `make` gives for each number below `count`, in that order, made on so many threads.
pub fn in_parallel<T: Send>(
    threads: usize,
    count: usize,
    make: impl Fn(usize) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<Result<T>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    rlx_ir::threads::share(threads, || {
        let take = || Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, done.get(at)?)));
        while let Some((at, slot)) = take() {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(make(at));
        }
    });
    let lost = || Err(Error::new(ErrorKind::Internal, "a kernel that no one compiled"));
    let taken = |slot: Mutex<Option<Result<T>>>| slot.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.into_iter().map(|slot| taken(slot).unwrap_or_else(lost)).collect()
}

/// The first bytes of a file.
const MAGIC: [u8; 8] = *b"RLXPIPE1";
const HASH: usize = 32;
/// The largest file that is read.
const MOST_BYTES: u64 = 64 << 20;

/// What one driver made of kernels.
#[derive(Debug)]
pub struct Kept {
    /// Of all drivers.
    root: PathBuf,
    folder: PathBuf,
    cleaned: Once,
}

impl Kept {
    /// What is kept of a driver: `adapter` begins the folder's name, and `parts` are all that the bytes depend on (the device, the
    /// driver and its version). `None` where no one can keep it.
    pub fn of(adapter: &str, parts: &[&str]) -> Option<Kept> {
        let made = folder().and_then(|root| make_own(&root).map(|()| root));
        let root = made.map_err(|e| tracing::warn!(error = %e, "compiled kernels are not cached")).ok()?;
        Some(Kept::within(root, adapter, parts))
    }

    /// As [`Kept::of`], in another folder than the user's.
    pub fn within(root: PathBuf, adapter: &str, parts: &[&str]) -> Kept {
        let parts = [parts, &[env!("CARGO_PKG_VERSION")]].concat();
        let key = blake3::hash(parts.join("\n").as_bytes()).to_hex();
        let folder = root.join(format!("{adapter}-{}", &key[..16]));
        Kept { root, folder, cleaned: Once::new() }
    }

    /// Where a kernel's file is.
    pub fn path(&self, kernel: &str) -> PathBuf {
        self.folder.join(format!("{kernel}.bin"))
    }

    /// The bytes of a kernel, where they are there and whole.
    pub fn load(&self, kernel: &str) -> Option<Vec<u8>> {
        let path = self.path(kernel);
        read(&path).unwrap_or_else(|e| {
            tracing::warn!(path = %path.display(), error = %e, "a cached kernel is not used");
            None
        })
    }

    /// Keeps the bytes of a kernel. A file that cannot be written only costs time.
    pub fn keep(&self, kernel: &str, data: &[u8]) {
        let path = self.path(kernel);
        let written = make_own(&self.folder).and_then(|()| write(&path, data));
        if let Err(e) = written {
            tracing::warn!(path = %path.display(), error = %e, "a compiled kernel was not kept");
        }
        self.cleaned.call_once(|| evict(&self.root, LIMIT));
    }
}

fn write(path: &Path, data: &[u8]) -> Result<()> {
    use std::io::Write;
    let hash = blake3::hash(data);
    let mut parts = [&MAGIC[..], hash.as_bytes(), data].into_iter();
    write_whole(path, |file| parts.try_for_each(|part| file.write_all(part)).map_err(|e| io_error(path, e)))
}

/// What [`write`] wrote; `None` when there is no such file.
fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    use std::io::Read;
    let mut file = match open_file(path) {
        Err(e) if is_missing(&e) => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.by_ref().take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|e| io_error(path, e))?;
    let damaged = || Error::new(ErrorKind::Malformed, format!("{} is damaged", path.display()));
    let sealed = bytes.strip_prefix(&MAGIC).ok_or_else(damaged)?;
    let (hash, data) = sealed.split_first_chunk::<HASH>().ok_or_else(damaged)?;
    if bytes.len() as u64 > MOST_BYTES || blake3::hash(data).as_bytes() != hash {
        return Err(damaged());
    }
    // Noted for what goes when the folder is full; where it cannot be, files leave in another order.
    let _ = file.set_modified(SystemTime::now());
    Ok(Some(data.to_vec()))
}

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

    fn fresh(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("rlx-pipelines-{name}-{}", std::process::id()));
        // Nothing is left of an earlier run.
        let _ = std::fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn what_is_written_is_read_and_any_damage_is_noticed() {
        let kept = Kept::within(fresh("read"), "adapter", &["driver 1"]);
        let path = kept.path("k");
        assert_eq!(read(&path).unwrap(), None);
        kept.keep("k", b"what a driver gave");
        assert_eq!(kept.load("k").as_deref(), Some(&b"what a driver gave"[..]));
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(&path, &bad).unwrap();
            assert_eq!(read(&path).unwrap_err().kind(), ErrorKind::Malformed, "byte {at}");
            std::fs::write(&path, &good[..at]).unwrap();
            assert_eq!(read(&path).unwrap_err().kind(), ErrorKind::Malformed, "cut at {at}");
        }
        let other = Kept::within(kept.root.clone(), "adapter", &["driver 2"]);
        assert!(other.load("k").is_none() && other.folder != kept.folder, "another driver's are others");
        std::fs::remove_dir_all(&kept.root).unwrap();
    }

    #[test]
    fn numbers_come_back_in_order_from_any_number_of_threads() {
        for threads in [1, 3] {
            let made = in_parallel(threads, 20, |n| Ok(n * n));
            let made: Vec<usize> = made.into_iter().collect::<Result<_>>().unwrap();
            assert_eq!(made, (0..20).map(|n| n * n).collect::<Vec<_>>());
        }
    }

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
