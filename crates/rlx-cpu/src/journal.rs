//! What a run replaces in memory that outlives it, so that a run which is stopped or fails can put it back.
//!
//! A step that updates a handle in place saves the elements that it is about to replace. They are written back, last first,
//! when the run ends with an error: the handle then has the value it had before.

use rlx_ir::{Result, memory};

/// Saved elements.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Where each piece was, and how long it is.
    pieces: Vec<(*mut u8, usize)>,
    /// The pieces, one behind the other.
    bytes: Vec<u8>,
}

impl Journal {
    /// Saves `len` bytes.
    ///
    /// # Errors
    /// [`rlx_ir::ErrorKind::OutOfMemory`].
    ///
    /// # Safety
    /// They must be readable.
    pub(crate) unsafe fn save(&mut self, at: *mut u8, len: usize) -> Result<()> {
        let what = "the values that a run replaces";
        self.pieces.try_reserve(1).map_err(|e| memory::failed(len, what).with_source(e))?;
        self.bytes.try_reserve(len).map_err(|e| memory::failed(len, what).with_source(e))?;
        self.pieces.push((at, len));
        // SAFETY: the caller's promise.
        self.bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(at, len) });
        Ok(())
    }

    /// Writes everything back and forgets it.
    ///
    /// # Safety
    /// What was saved must still be there, and nothing else use it.
    pub(crate) unsafe fn restore(&mut self) {
        let mut end = self.bytes.len();
        for &(at, len) in self.pieces.iter().rev() {
            let start = end - len;
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(self.bytes[start..end].as_ptr(), at, len) };
            end = start;
        }
        self.clear();
    }

    /// Forgets everything; the room stays.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.bytes.clear();
    }
}
