//! Zeroed, aligned memory, in huge pages where it is large.
//!
//! Reading weights from huge pages is up to half again as fast as from ordinary ones, so packed weights
//! and the arena live here. Memory comes lazily from the system: untouched pages cost nothing.
//!
//! ```
//! let mut b = rlx_cpu::alloc::Buffer::zeroed(1000).unwrap();
//! assert_eq!(b.as_ptr() as usize % rlx_cpu::alloc::ALIGN, 0);
//! b.as_mut_slice()[999] = 7;
//! ```

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;

use memmap2::{MmapMut, MmapOptions};

/// Every buffer starts at a multiple of this: a cache line, and a whole vector.
pub const ALIGN: usize = 64;

/// The size of a huge page, and the smallest size of a buffer that asks for them. (Miri has no pages, and looks at each byte.)
const HUGE: usize = if cfg!(miri) { 1 << 10 } else { 2 << 20 };

/// Whether large buffers come from the system's pages. Miri knows no advice about them, and WebAssembly's memory has no maps.
const MAPS: bool = !cfg!(any(miri, target_family = "wasm"));

/// Owned bytes, zero at first, aligned to [`ALIGN`].
#[derive(Debug)]
pub struct Buffer {
    ptr: NonNull<u8>,
    len: usize,
    memory: Memory,
}

#[derive(Debug)]
enum Memory {
    /// No bytes.
    None,
    /// From the allocator, with this layout.
    Heap(Layout),
    /// From the system, aligned to huge pages.
    Mapped { _map: MmapMut },
}

// SAFETY: the buffer owns its bytes; shared access only reads.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

/// The system has no such amount of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocError {
    bytes: usize,
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot allocate {} bytes", self.bytes)
    }
}

impl std::error::Error for AllocError {}

impl Buffer {
    /// A buffer of `len` zero bytes.
    ///
    /// # Errors
    /// [`AllocError`] if the system rejects.
    pub fn zeroed(len: usize) -> Result<Buffer, AllocError> {
        Self::zeroed_aligned(len, ALIGN)
    }

    /// A buffer of `len` zero bytes that starts at a multiple of `align`, a power of two, besides the usual alignment.
    ///
    /// # Errors
    /// [`AllocError`] if the system rejects.
    pub fn zeroed_aligned(len: usize, align: usize) -> Result<Buffer, AllocError> {
        let rejected = AllocError { bytes: len };
        let align = align.max(ALIGN);
        if len == 0 {
            let ptr = NonNull::new(std::ptr::without_provenance_mut(align)).ok_or(rejected)?;
            return Ok(Buffer { ptr, len, memory: Memory::None });
        }
        if MAPS && len >= HUGE && align <= HUGE {
            return Self::mapped(len).ok_or(rejected);
        }
        let layout = Layout::from_size_align(len, align).map_err(|_| rejected.clone())?;
        // SAFETY: the layout's size is not zero.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(rejected)?;
        Ok(Buffer { ptr, len, memory: Memory::Heap(layout) })
    }

    /// A buffer for `len` f32.
    ///
    /// # Errors
    /// [`AllocError`] if the system rejects, or the size overflows.
    pub fn zeroed_f32(len: usize) -> Result<Buffer, AllocError> {
        Self::zeroed(len.checked_mul(4).ok_or(AllocError { bytes: usize::MAX })?)
    }

    fn mapped(len: usize) -> Option<Buffer> {
        // Room to start at a huge page; what is left over is never touched.
        let mut map = MmapOptions::new().len(len.checked_add(HUGE)?).map_anon().ok()?;
        // Advice may be rejected (a kernel without huge pages); ordinary pages are right too, only slower.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let offset = map.as_ptr().align_offset(HUGE).min(HUGE);
        let ptr = NonNull::new(map.as_mut_ptr().wrapping_add(offset))?;
        Some(Buffer { ptr, len, memory: Memory::Mapped { _map: map } })
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.ptr.as_ptr()
    }

    /// The first byte, to write.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// All bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the buffer owns `len` initialised (zeroed) bytes.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }

    /// All bytes, to write.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.len) }
    }

    /// All whole f32 in it.
    pub fn as_f32(&self) -> &[f32] {
        // SAFETY: aligned to 64 bytes; every bit pattern is an f32.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), self.len / 4) }
    }

    /// All whole f32 in it, to write.
    pub fn as_f32_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), self.len / 4) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Memory::Heap(layout) = self.memory {
            // SAFETY: allocated with this layout in `zeroed`.
            unsafe { dealloc(self.as_mut_ptr(), layout) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_all_kinds_are_zero_aligned_and_writable() {
        for len in [0, 1, 63, 4096, HUGE - 1, HUGE, 3 * HUGE + 5] {
            let mut b = Buffer::zeroed(len).unwrap();
            assert_eq!((b.len(), b.as_ptr() as usize % ALIGN), (len, 0));
            assert!(b.as_slice().iter().all(|&x| x == 0));
            b.as_mut_slice().fill(0xff);
            assert!(b.as_f32().iter().all(|x| x.is_nan()));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends the process where a system rejects")]
    fn absurd_sizes_are_errors() {
        assert!(Buffer::zeroed(usize::MAX).is_err());
        assert!(Buffer::zeroed(usize::MAX / 2 - 64).is_err());
        assert!(Buffer::zeroed_f32(usize::MAX / 2).is_err());
    }
}
