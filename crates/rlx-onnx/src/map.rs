//! Files mapped into memory as [`Bytes`]: the one place in this crate that needs `unsafe`.

use bytes::Bytes;
use rlx_ir::{Error, ErrorKind};
use std::fs::File;
use std::path::Path;

/// Maps a regular file read-only; slices of the result keep the map alive and share it.
///
/// The contents must not change while mapped (true of every memory-mapped model): a writer would be seen by
/// readers, and a file cut short ends the process with a bus error at the first touch of the missing pages.
pub(crate) fn map_file(path: &Path) -> Result<Bytes, Error> {
    let failed =
        |e: std::io::Error| Error::new(ErrorKind::Io, format!("{}: {e}", path.display())).with_source(e);
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::new(ErrorKind::Io, format!("{} is not a regular file", path.display())));
    }
    if metadata.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is read-only and private to this process, and is handed out only as shared bytes without
    // any invariant on their values; the documented condition above covers writers outside this process.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(failed)?;
    Ok(Bytes::from_owner(map))
}
