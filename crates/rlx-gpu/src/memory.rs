//! Device memory that counts towards the device's memory limit, and copies from it and to it.

use rlx_backend::budget::Reserved;
use rlx_ir::{ErrorKind, Result, memory};

use crate::api::{Arrival, Back, GpuApi, HostMemory, Usage};
use crate::which::lower;

/// Copies, bindings and kernels of small elements handle whole words.
const WORD: usize = 4;
/// The most bytes that are read at once: host memory that a device copies to is scarcer than others.
const PIECE: usize = 64 << 20;

/// A buffer on the device.
pub struct Buffer<G: GpuApi> {
    memory: G::Memory,
    bytes: usize,
    _reserved: Reserved,
}

/// `bytes` as whole words, at least one.
pub fn whole_words(bytes: usize) -> usize {
    bytes.max(1).checked_next_multiple_of(WORD).unwrap_or(usize::MAX)
}

/// The most bytes that a kernel is bound to at once.
pub(crate) fn most_bound<G: GpuApi>(gpu: &G) -> usize {
    lower(gpu.limits().most_bound, gpu.shared().limits.max_binding_bytes)
}

impl<G: GpuApi> Buffer<G> {
    /// Memory of at least `bytes` bytes, for `what`.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] when it exceeds what the device has in one piece or may use in all, or there is no memory.
    pub fn new(gpu: &G, bytes: usize, usage: Usage, what: &str) -> Result<Self> {
        let most = most_bound(gpu);
        if usage == Usage::Storage && bytes > most {
            let message = format!("{what} has {bytes} bytes, the device binds at most {most}");
            return Err(gpu.error(ErrorKind::OutOfMemory, message));
        }
        Self::by(gpu, bytes, what, |size, what| gpu.allocate(size, usage, what))
    }

    /// As [`Buffer::new`], by an allocation of the device's own.
    ///
    /// # Errors
    /// As [`Buffer::new`].
    pub fn by(
        gpu: &G,
        bytes: usize,
        what: &str,
        allocate: impl FnOnce(usize, &str) -> Result<G::Memory>,
    ) -> Result<Self> {
        gpu.alive()?;
        let (size, most) = (whole_words(bytes), gpu.limits().most_buffer);
        if size > most {
            let message = format!("{what} takes {size} bytes, a buffer of the device has at most {most}");
            return Err(gpu.error(ErrorKind::OutOfMemory, message));
        }
        let what = format!("{size} bytes for {what}");
        let reserved = gpu.shared().reserve(size as u64).ok_or_else(|| gpu.out_of_memory(&what))?;
        Ok(Buffer { memory: allocate(size, &what)?, bytes: size, _reserved: reserved })
    }

    /// How many bytes it holds.
    pub fn size(&self) -> usize {
        self.bytes
    }

    /// The device's memory.
    pub fn memory(&self) -> &G::Memory {
        &self.memory
    }

    /// All of it.
    pub fn whole(&self) -> G::Range {
        self.part(0, self.bytes)
    }

    /// `bytes` bytes at `offset`, as whole words.
    pub fn part(&self, offset: usize, bytes: usize) -> G::Range {
        G::range(&self.memory, offset, whole_words(bytes))
    }

    /// Copies `bytes` to `offset`, a multiple of four, before anything submitted later. The rest of the last word becomes zero.
    ///
    /// # Errors
    /// A fault of the device.
    pub fn write(&self, gpu: &G, offset: usize, bytes: &[u8]) -> Result<()> {
        gpu.shared().count_to_device(bytes.len());
        let (words, rest) = bytes.as_chunks::<WORD>();
        let words = words.as_flattened();
        if !words.is_empty() {
            gpu.write(&self.memory, offset, words)?;
        }
        if !rest.is_empty() {
            let mut last = [0; WORD];
            last[..rest.len()].copy_from_slice(rest);
            gpu.write(&self.memory, offset + words.len(), &last)?;
        }
        Ok(())
    }

    /// Its first `bytes` bytes, behind everything that was submitted.
    ///
    /// # Errors
    /// Memory that cannot be had, or a fault of the device.
    pub fn read(&self, gpu: &G, bytes: usize) -> Result<Vec<u8>> {
        read(gpu, &self.whole(), bytes)
    }

    /// Other memory with the same first `bytes` bytes, behind everything that was submitted.
    ///
    /// # Errors
    /// Memory that cannot be had, or a fault of the device.
    pub fn duplicate(&self, gpu: &G, bytes: usize, what: &str) -> Result<Self> {
        let own = Self::new(gpu, bytes, Usage::Storage, what)?;
        if bytes > 0 {
            gpu.copy(&own.memory, &self.memory, own.bytes, what)?;
        }
        Ok(own)
    }
}

/// The first `bytes` bytes of a range, behind everything that was submitted.
///
/// # Errors
/// Memory that cannot be had, or a fault of the device.
pub(crate) fn read<G: GpuApi>(gpu: &G, from: &G::Range, bytes: usize) -> Result<Vec<u8>> {
    if bytes == 0 {
        gpu.wait()?;
        return Ok(Vec::new());
    }
    let size = whole_words(bytes);
    let mut out = memory::zeroed(size, || "a copy of device memory".to_string())?;
    let mut to = gpu.host(size.min(PIECE))?;
    for (i, piece) in out.chunks_mut(PIECE).enumerate() {
        let arrivals = [Arrival { from: from.clone(), skip: i * PIECE, bytes: piece.len(), at: 0 }];
        to.release();
        gpu.read(Back { to: &mut to, arrivals: &arrivals })?;
        to.wait(gpu)?;
        to.copy(gpu, 0, piece)?;
        gpu.shared().count_to_host(piece.len());
    }
    out.truncate(bytes);
    Ok(out)
}
