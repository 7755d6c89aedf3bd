//! Mapped files: the one place in this crate that needs `unsafe`.

use crate::io_error;
use memmap2::Mmap;
use rlx_ir::Error;
use std::fs::File;
use std::path::Path;

/// Maps a file read-only. Its contents must not change while it is mapped.
pub(crate) fn map_file(path: &Path) -> Result<Mmap, Error> {
    let file = File::open(path).map_err(|e| io_error(path, e))?;
    // SAFETY: the map is read-only and handed out only as bytes without any invariant on their values; that no other
    // process changes or cuts the file meanwhile is the documented condition of opening it.
    unsafe { Mmap::map(&file) }.map_err(|e| io_error(path, e))
}
