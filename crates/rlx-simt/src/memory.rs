//! Copies to the device: through pinned memory, so that the device copies by itself while the host goes on.

use std::collections::VecDeque;

use rlx_gpu::{GpuApi, locked};
use rlx_ir::Result;

use crate::driver::{Event, Part, Pinned};
use crate::gpu::Gpu;
use crate::table::DevicePtr;

/// The most bytes that one piece of pinned memory has.
const PIECE: usize = 1 << 20;
/// How many pieces of a thread wait for the device before the thread does.
const PIECES: usize = 4;

/// What is copied by several threads, at most so many: one of them copies more slowly than the device does.
const BY_SEVERAL: usize = 2 << 20;
const THREADS: usize = 4;

/// How many threads copy so many bytes.
fn threads(bytes: usize) -> usize {
    match bytes >= BY_SEVERAL {
        true => std::thread::available_parallelism().map_or(1, usize::from).min(THREADS),
        false => 1,
    }
}

impl Gpu {
    /// Copies `bytes` to a part of memory, behind what was given before.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn send(&self, to: Part, bytes: &[u8]) -> Result<()> {
        self.alive()?;
        let threads = threads(bytes.len());
        let send = |lane: &mut Lane, first: usize| {
            for (i, piece) in bytes.chunks(PIECE).enumerate().skip(first).step_by(threads) {
                lane.send(self, Part { at: to.at + (i * PIECE) as DevicePtr, bytes: piece.len() }, piece)?;
            }
            Ok(())
        };
        let mut staging = locked(&self.staging);
        let [own, others @ ..] = &mut staging.lanes;
        if threads < 2 {
            return send(own, 0);
        }
        std::thread::scope(|scope| {
            let others = (1..threads).zip(others);
            let others: Vec<_> = others.map(|(first, lane)| scope.spawn(move || send(lane, first))).collect();
            let mut sent = send(own, 0);
            for other in others {
                let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                sent = sent.and(other);
            }
            sent
        })
    }
}

/// A piece of pinned memory, and the end of the copy that reads it.
struct Piece {
    memory: Pinned,
    copied: Event,
}

/// What one thread copies through, in the order of its copies.
#[derive(Default)]
struct Lane {
    pieces: VecDeque<Piece>,
}

/// Pinned memory for what is on its way to the device.
#[derive(Default)]
pub(crate) struct Staging {
    lanes: [Lane; THREADS],
}

impl Lane {
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
