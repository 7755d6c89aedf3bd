//! Device memory with its account, and what goes there from the host: through pinned memory, so that the device copies by itself while
//! the host goes on.

use std::collections::VecDeque;

use rlx_backend::budget::Reserved;
use rlx_ir::{ErrorKind, Result, memory};

use crate::driver::{DeviceMemory, Event, Part, Pinned};
use crate::gpu::{Gpu, locked};
use crate::table::DevicePtr;

/// The most bytes that one piece of pinned memory has.
const PIECE: usize = 4 << 20;
/// How many pieces wait for the device before the host does.
const PIECES: usize = 4;

/// A buffer on the device.
pub(crate) struct Buffer {
    memory: DeviceMemory,
    _reserved: Reserved,
}

impl Buffer {
    /// Memory of at least `bytes` bytes, for `what`.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`].
    pub(crate) fn new(gpu: &Gpu, bytes: usize, what: &str) -> Result<Buffer> {
        gpu.alive()?;
        // Kernels that handle small elements in words read the whole last word.
        let bytes = bytes.max(1).checked_next_multiple_of(4).unwrap_or(usize::MAX);
        let what = format!("{bytes} bytes for {what}");
        let reserved = gpu.reserve(bytes as u64, &what)?;
        let memory = gpu.checked(&what, gpu.context.allocate(bytes))?;
        Ok(Buffer { memory, _reserved: reserved })
    }

    /// How many bytes it holds.
    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }

    /// `bytes` bytes at `offset`.
    pub(crate) fn part(&self, offset: usize, bytes: usize) -> Part {
        self.memory.part(offset, bytes)
    }

    /// All of it.
    pub(crate) fn whole(&self) -> Part {
        self.part(0, self.len())
    }

    /// Copies `bytes` to `offset`, behind what was given before.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn write(&self, gpu: &Gpu, offset: usize, bytes: &[u8]) -> Result<()> {
        gpu.alive()?;
        for (i, piece) in bytes.chunks(PIECE).enumerate() {
            let to = self.part(offset + i * PIECE, piece.len());
            locked(&gpu.staging).send(gpu, to, piece)?;
        }
        Ok(())
    }

    /// The first `bytes` bytes, behind everything that was given.
    ///
    /// # Errors
    /// Memory that cannot be had, or what the driver reports.
    pub(crate) fn read(&self, gpu: &Gpu, bytes: usize) -> Result<Vec<u8>> {
        self.part(0, bytes).read(gpu)
    }

    /// Other memory with the same first `bytes` bytes, behind what was given before.
    ///
    /// # Errors
    /// Memory that cannot be had, or what the driver reports.
    pub(crate) fn duplicate(&self, gpu: &Gpu, bytes: usize, what: &str) -> Result<Buffer> {
        let own = Buffer::new(gpu, bytes, what)?;
        if bytes > 0 {
            let copied = gpu.context.on_device(own.part(0, bytes), self.part(0, bytes));
            gpu.checked(format_args!("copying {what}"), copied)?;
        }
        Ok(own)
    }
}

impl Part {
    /// Its bytes, behind everything that was given.
    ///
    /// # Errors
    /// Memory that cannot be had, or what the driver reports.
    pub(crate) fn read(self, gpu: &Gpu) -> Result<Vec<u8>> {
        gpu.alive()?;
        let mut out = memory::zeroed(self.bytes, || "a copy of device memory".to_string())?;
        if self.bytes == 0 {
            gpu.wait()?;
            return Ok(out);
        }
        let what = "reading from the device";
        let pinned = gpu.checked(what, gpu.context.pinned(self.bytes.min(PIECE)))?;
        for (i, piece) in out.chunks_mut(PIECE).enumerate() {
            let from = Part { at: self.at + (i * PIECE) as DevicePtr, bytes: piece.len() };
            gpu.checked(what, gpu.context.to_host(&pinned, 0, from))?;
            gpu.wait()?;
            piece.copy_from_slice(&pinned.bytes()[..piece.len()]);
        }
        Ok(out)
    }
}

/// A piece of pinned memory, and the end of the copy that reads it.
struct Piece {
    memory: Pinned,
    copied: Event,
}

/// Pinned memory for what is on its way to the device.
#[derive(Default)]
pub(crate) struct Staging {
    /// In the order of their copies.
    pieces: VecDeque<Piece>,
}

impl Staging {
    fn send(&mut self, gpu: &Gpu, to: Part, bytes: &[u8]) -> Result<()> {
        let what = format!("copying {} bytes to the device", bytes.len());
        let oldest = if self.pieces.len() < PIECES { None } else { self.pieces.pop_front() };
        let mut piece = match oldest {
            Some(piece) => piece,
            None => Piece {
                memory: gpu.checked(&what, gpu.context.pinned(bytes.len().next_power_of_two()))?,
                copied: gpu.checked(&what, gpu.context.event())?,
            },
        };
        gpu.checked(&what, piece.copied.wait())?;
        if piece.memory.len() < bytes.len() {
            piece.memory = gpu.checked(&what, gpu.context.pinned(bytes.len().next_power_of_two()))?;
        }
        piece.memory.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        // After an error the piece is dropped, which waits for the copy.
        gpu.checked(&what, gpu.context.to_device(to, &piece.memory, bytes.len()))?;
        gpu.checked(&what, gpu.context.record(&piece.copied))?;
        self.pieces.push_back(piece);
        Ok(())
    }
}

/// The error for a buffer that nobody gave memory.
pub(crate) fn without_memory(gpu: &Gpu, buffer: usize) -> rlx_ir::Error {
    gpu.error(ErrorKind::Internal, format!("buffer {buffer} has no memory"))
}
