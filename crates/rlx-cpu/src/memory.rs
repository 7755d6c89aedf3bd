//! Memory as the executor keeps it on the CPU, and where kernels find buffers in it.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use rlx_backend::prepared::{Prepared, PreparedKey};
use rlx_ir::hash::hash_of;
use rlx_ir::{Result, Weight, memory};

use crate::alloc::Buffer;

/// What init steps made in this process, and aligned copies of weights: each is there once.
pub(crate) static PREPARED: LazyLock<Prepared<Memory>> = LazyLock::new(Prepared::new);

/// Bytes that kernels read, or write where nothing else uses them.
pub(crate) enum Memory {
    /// Our own.
    Own(Buffer),
    /// A weight's, in place.
    Weight(InPlace),
}

/// The bytes of a weight: where they begin, and how many.
pub(crate) struct InPlace {
    start: *const u8,
    len: usize,
    /// Whose they are.
    _weight: Arc<Weight>,
}

// SAFETY: the bytes of a weight never change, and are there as long as the weight is.
unsafe impl Send for InPlace {}
// SAFETY: as above.
unsafe impl Sync for InPlace {}

impl Memory {
    pub(crate) fn len(&self) -> usize {
        match self {
            Memory::Own(buffer) => buffer.len(),
            Memory::Weight(weight) => weight.len,
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Memory::Own(buffer) => buffer.as_slice(),
            // SAFETY: the weight is there, and so are its bytes.
            Memory::Weight(weight) => unsafe { std::slice::from_raw_parts(weight.start, weight.len) },
        }
    }

    pub(crate) fn place(&self) -> Place {
        match self {
            Memory::Own(buffer) => Place::of(buffer),
            Memory::Weight(weight) => Place::new(weight.start.cast_mut(), weight.len),
        }
    }
}

/// Where a buffer begins; null for none. In debug builds it knows the memory that it is in.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    address: *mut u8,
    #[cfg(debug_assertions)]
    memory: std::ops::Range<usize>,
}

// SAFETY: an address alone; every use is unsafe and has its reason.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Default for Place {
    fn default() -> Place {
        Place::new(std::ptr::null_mut(), 0)
    }
}

impl Place {
    /// The first of `len` bytes.
    pub(crate) fn new(address: *mut u8, len: usize) -> Place {
        let _ = len;
        Place {
            address,
            #[cfg(debug_assertions)]
            memory: address.addr()..address.addr() + len,
        }
    }

    /// The start of a buffer.
    pub(crate) fn of(buffer: &Buffer) -> Place {
        Place::new(buffer.as_ptr().cast_mut(), buffer.len())
    }

    /// `offset` bytes behind, in the same memory.
    pub(crate) fn behind(&self, offset: usize) -> Place {
        Place { address: self.address.wrapping_add(offset), ..self.clone() }
    }

    #[inline]
    pub(crate) fn address(&self) -> *mut u8 {
        self.address
    }

    /// Whether these bytes behind it are in its memory. Only debug builds know.
    pub(crate) fn covers(&self, bytes: &std::ops::Range<isize>) -> bool {
        #[cfg(debug_assertions)]
        {
            let base = self.address.addr() as isize;
            let (start, end) = (base + bytes.start, base + bytes.end);
            !self.address.is_null() && self.memory.start as isize <= start && end <= self.memory.end as isize
        }
        #[cfg(not(debug_assertions))]
        {
            let _ = bytes;
            true
        }
    }
}

/// A weight's bytes: in place where they are aligned, else in the one copy that there is of them.
pub(crate) fn load(weight: &Arc<Weight>) -> Result<Arc<Memory>> {
    let (id, key) = (Arc::downgrade(weight), PreparedKey(hash_of(["an aligned copy"])));
    if let Some(copy) = PREPARED.get(key, &[&id]) {
        return Ok(copy);
    }
    match weight.bytes()? {
        Cow::Borrowed(bytes) if is_aligned(bytes, weight.dtype().size_bytes()) => {
            let (start, len) = (bytes.as_ptr(), bytes.len());
            Ok(Arc::new(Memory::Weight(InPlace { start, len, _weight: Arc::clone(weight) })))
        }
        bytes => {
            let copy = Arc::new(Memory::Own(copy_of(&bytes)?));
            PREPARED.insert(key, vec![id], &copy);
            Ok(copy)
        }
    }
}

/// Whether bytes can be read as elements of this size where they are.
pub(crate) fn is_aligned(bytes: &[u8], size: usize) -> bool {
    (bytes.as_ptr() as usize).is_multiple_of(size)
}

/// An aligned copy of bytes.
pub(crate) fn copy_of(bytes: &[u8]) -> Result<Buffer> {
    let mut copy = allocate(bytes.len(), "an aligned copy")?;
    copy.as_mut_slice().copy_from_slice(bytes);
    Ok(copy)
}

/// Zeroed memory; `what` is what it is for.
pub(crate) fn allocate(bytes: usize, what: &str) -> Result<Buffer> {
    allocate_aligned(bytes, 1, what)
}

/// As [`allocate`], at a multiple of `align` (a power of two) at least.
pub(crate) fn allocate_aligned(bytes: usize, align: usize, what: &str) -> Result<Buffer> {
    Buffer::zeroed_aligned(bytes, align)
        .map_err(|e| memory::failed(bytes, what).with_source(e).with_device("cpu"))
}
