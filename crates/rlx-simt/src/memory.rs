//! Copies to the device: through pinned memory, so that the device copies by itself while the host goes on.

use std::collections::VecDeque;

use rlx_gpu::{GpuApi, locked};
use rlx_ir::Result;

use crate::driver::{Event, Part, Pinned};
use crate::gpu::Gpu;
use crate::table::DevicePtr;

/// The most bytes that one piece of pinned memory has.
const PIECE: usize = 4 << 20;
/// How many pieces wait for the device before the host does.
const PIECES: usize = 4;

/// What is copied by several threads, at most so many: 19 MB of images take 0.1 to 0.3 ms less on the way to an H100.
const BY_SEVERAL: usize = 1 << 20;
const THREADS: usize = 4;

/// Copies on the host.
fn copy(to: &mut [u8], from: &[u8]) {
    let threads = match from.len() >= BY_SEVERAL {
        true => std::thread::available_parallelism().map_or(1, usize::from).min(THREADS),
        false => 1,
    };
    if threads < 2 {
        return to.copy_from_slice(from);
    }
    let each = from.len().div_ceil(threads);
    std::thread::scope(|scope| {
        for (to, from) in to.chunks_mut(each).zip(from.chunks(each)) {
            scope.spawn(|| to.copy_from_slice(from));
        }
    });
}

impl Gpu {
    /// Copies `bytes` to a part of memory, behind what was given before.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn send(&self, to: Part, bytes: &[u8]) -> Result<()> {
        self.alive()?;
        for (i, piece) in bytes.chunks(PIECE).enumerate() {
            let at = to.at + (i * PIECE) as DevicePtr;
            locked(&self.staging).send(self, Part { at, bytes: piece.len() }, piece)?;
        }
        Ok(())
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
        copy(&mut piece.memory.bytes_mut()[..bytes.len()], bytes);
        // After an error the piece is dropped, which waits for the copy.
        gpu.checked(&what, gpu.context.to_device(to, &piece.memory, bytes.len()))?;
        gpu.checked(&what, gpu.context.record(&piece.copied))?;
        self.pieces.push_back(piece);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_whoever_copies_it() {
        for len in [0, 5, BY_SEVERAL - 1, BY_SEVERAL, BY_SEVERAL + 3, 3 * BY_SEVERAL + 1] {
            let from: Vec<u8> = (0..len).map(|i| (i % 251) as u8 + 1).collect();
            let mut to = vec![0; len];
            copy(&mut to, &from);
            assert!(to == from, "{len} bytes");
        }
    }
}
