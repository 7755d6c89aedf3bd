//! Device memory: buffers with their ranges, uploads, and what comes back to the host.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};

use rlx_backend::budget::Reserved;
use rlx_ir::{Error, ErrorKind, Result};

use crate::WAITS;
use crate::gpu::{Gpu, locked};

/// Copies and bindings move whole words.
const WORD: u64 = 4;

/// How long what the device has done may take to be reported by another thread.
const CALL_BACK: std::time::Duration = std::time::Duration::from_secs(10);

/// A buffer on the device.
#[derive(Debug)]
pub(crate) struct DeviceBuffer {
    pub(crate) raw: wgpu::Buffer,
    _reserved: Reserved,
}

/// A part of a buffer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Range {
    pub(crate) buffer: wgpu::Buffer,
    pub(crate) offset: u64,
    /// A multiple of four, at least four.
    pub(crate) bytes: u64,
}

impl Range {
    /// As wgpu binds it.
    pub(crate) fn entry(&self, binding: u32) -> wgpu::BindGroupEntry<'_> {
        let size = wgpu::BufferSize::new(self.bytes);
        let part = wgpu::BufferBinding { buffer: &self.buffer, offset: self.offset, size };
        wgpu::BindGroupEntry { binding, resource: wgpu::BindingResource::Buffer(part) }
    }
}

/// `bytes` as whole words, at least one.
pub(crate) fn whole_words(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(WORD)
}

impl DeviceBuffer {
    /// A buffer that kernels are bound to as a whole.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] when it exceeds what the device binds, or there is no memory.
    pub(crate) fn storage(gpu: &Gpu, bytes: u64, what: &str) -> Result<Self> {
        let most = gpu.limits.max_storage_buffer_binding_size;
        if bytes > most {
            let message = format!("{what} has {bytes} bytes, the device binds at most {most}");
            return Err(gpu.error(ErrorKind::OutOfMemory, message));
        }
        Self::pool(gpu, bytes, what)
    }

    /// A buffer that kernels are bound to in parts.
    pub(crate) fn pool(gpu: &Gpu, bytes: u64, what: &str) -> Result<Self> {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
        Self::new(gpu, bytes, usage, what)
    }

    /// A buffer of uniforms.
    pub(crate) fn uniforms(gpu: &Gpu, bytes: u64) -> Result<Self> {
        Self::new(gpu, bytes, wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST, "extents")
    }

    /// A buffer of notes of the device's clock.
    pub(crate) fn queries(gpu: &Gpu, bytes: u64) -> Result<Self> {
        Self::new(gpu, bytes, wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC, "times")
    }

    /// A buffer that the host reads.
    pub(crate) fn readback(gpu: &Gpu, bytes: u64) -> Result<Self> {
        Self::new(gpu, bytes, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST, "outputs")
    }

    fn new(gpu: &Gpu, bytes: u64, usage: wgpu::BufferUsages, what: &str) -> Result<Self> {
        let size = whole_words(bytes);
        if size > gpu.limits.max_buffer_size {
            let message = format!(
                "{what} takes {size} bytes, a buffer of the device has at most {}",
                gpu.limits.max_buffer_size
            );
            return Err(gpu.error(ErrorKind::OutOfMemory, message));
        }
        let reserved = gpu.reserve(size, &format!("{size} bytes for {what}"))?;
        let description = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        let raw =
            gpu.checked(&|| format!("{size} bytes for {what}"), || gpu.device.create_buffer(&description))?;
        Ok(DeviceBuffer { raw, _reserved: reserved })
    }

    /// How many bytes it holds.
    pub(crate) fn len(&self) -> u64 {
        self.raw.size()
    }

    /// All of it.
    pub(crate) fn whole(&self) -> Range {
        self.part(0, self.len())
    }

    /// `bytes` bytes at `offset`.
    pub(crate) fn part(&self, offset: u64, bytes: u64) -> Range {
        Range { buffer: self.raw.clone(), offset, bytes }
    }

    /// Copies `bytes` to its start, before anything submitted later.
    pub(crate) fn write(&self, gpu: &Gpu, bytes: &[u8]) -> Result<()> {
        self.write_at(gpu, 0, bytes)
    }

    /// Copies `bytes` to `offset`, a multiple of four. The rest of the last word becomes zero.
    pub(crate) fn write_at(&self, gpu: &Gpu, offset: u64, bytes: &[u8]) -> Result<()> {
        gpu.moved[0].fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let (words, rest) = bytes.split_at(bytes.len() - bytes.len() % WORD as usize);
        gpu.checked(&|| format!("copying {} bytes to the device", bytes.len()), || {
            if !words.is_empty() {
                gpu.queue.write_buffer(&self.raw, offset, words);
            }
            if !rest.is_empty() {
                let mut last = [0; WORD as usize];
                last[..rest.len()].copy_from_slice(rest);
                gpu.queue.write_buffer(&self.raw, offset + words.len() as u64, &last);
            }
        })
    }

    /// Asks for the first `bytes` bytes of a [`DeviceBuffer::readback`] buffer, a multiple of four, as the submission `after`
    /// leaves them.
    ///
    /// # Errors
    /// [`ErrorKind::Device`].
    pub(crate) fn map(&self, gpu: &Gpu, bytes: usize, after: wgpu::SubmissionIndex) -> Result<Mapping> {
        let arrival = Arc::new(Arrival::default());
        let to = Arc::clone(&arrival);
        gpu.checked(&|| "mapping the outputs".to_string(), || {
            self.raw.map_async(wgpu::MapMode::Read, 0..bytes as u64, move |mapped| to.arrive(mapped));
        })?;
        Ok(Mapping { buffer: self.raw.clone(), after, arrival })
    }

    /// The first `bytes` bytes, behind everything that was submitted.
    ///
    /// # Errors
    /// Memory that cannot be had, or a fault of the device.
    pub(crate) fn download(&self, gpu: &Gpu, bytes: usize) -> Result<Vec<u8>> {
        self.whole().download(gpu, bytes)
    }
}

impl Range {
    /// The first `bytes` bytes, behind everything that was submitted.
    ///
    /// # Errors
    /// Memory that cannot be had, or a fault of the device.
    pub(crate) fn download(&self, gpu: &Gpu, bytes: usize) -> Result<Vec<u8>> {
        if bytes == 0 {
            return gpu.wait().map(|()| Vec::new());
        }
        let size = whole_words(bytes as u64);
        let to = DeviceBuffer::readback(gpu, size)?;
        let index = gpu.checked(&|| "reading from the device".to_string(), || {
            let mut encoder = gpu.device.create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(&self.buffer, self.offset, &to.raw, 0, size);
            gpu.queue.submit([encoder.finish()])
        })?;
        let mapping = to.map(gpu, size as usize, index)?;
        mapping.wait(gpu)?;
        let mut out = rlx_ir::memory::zeroed(size as usize, || "a copy of device memory".to_string())?;
        mapping.copy(gpu, 0, &mut out)?;
        out.truncate(bytes);
        Ok(out)
    }
}

/// Bytes of a buffer that the host can read once what writes them is done; the buffer can be written again when this is
/// dropped.
pub(crate) struct Mapping {
    buffer: wgpu::Buffer,
    after: wgpu::SubmissionIndex,
    arrival: Arc<Arrival>,
}

/// Whether the bytes are there: what the device's callback leaves for the thread or the task that waits.
#[derive(Default)]
struct Arrival {
    state: Mutex<Arriving>,
    changed: Condvar,
}

#[derive(Default)]
struct Arriving {
    result: Option<std::result::Result<(), wgpu::BufferAsyncError>>,
    /// The task to wake.
    task: Option<Waker>,
    watch: Watch,
}

/// Whether some thread waits for the device on behalf of the task.
#[derive(Default, PartialEq)]
enum Watch {
    #[default]
    None,
    Running,
    /// It no longer does: what there is to say is said to who takes the bytes.
    Over,
}

impl Arrival {
    fn arrive(&self, result: std::result::Result<(), wgpu::BufferAsyncError>) {
        let task = {
            let mut state = locked(&self.state);
            state.result = Some(result);
            state.task.take()
        };
        self.changed.notify_all();
        if let Some(task) = task {
            task.wake();
        }
    }

    fn is_there(&self) -> bool {
        locked(&self.state).result.is_some()
    }
}

impl Mapping {
    fn failed(gpu: &Gpu, e: &dyn std::fmt::Display) -> Error {
        gpu.error(ErrorKind::Device, format!("reading the outputs: {e}"))
    }

    /// Waits for the bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Device`].
    pub(crate) fn wait(&self, gpu: &Gpu) -> Result<()> {
        if !self.arrival.is_there() {
            gpu.wait_for(self.after.clone())?;
        }
        gpu.alive()?;
        let mut state = locked(&self.arrival.state);
        if state.result.is_none() {
            // Another thread that waits for the device may be the one that is about to call back.
            let waited =
                self.arrival.changed.wait_timeout_while(state, CALL_BACK, |state| state.result.is_none());
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        match &state.result {
            Some(Ok(())) => Ok(()),
            Some(Err(e)) => Err(Self::failed(gpu, e)),
            None => Err(Self::failed(gpu, &"the device did not call back")),
        }
    }

    /// Whether [`Mapping::wait`] has nothing to wait for; where it has, the task of `context` is woken later. A page calls back by
    /// itself. Elsewhere somebody must wait for the device: a thread does, for the task.
    pub(crate) fn poll(&self, gpu: &Arc<Gpu>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = locked(&self.arrival.state);
        if state.result.is_some() || state.watch == Watch::Over {
            return Poll::Ready(());
        }
        state.task = Some(context.waker().clone());
        if WAITS && state.watch == Watch::None {
            state.watch = Watch::Running;
            drop(state);
            let (gpu, after, arrival) = (Arc::clone(gpu), self.after.clone(), Arc::clone(&self.arrival));
            let watch = move || {
                // What is wrong is found by the call that takes the outputs.
                let _ = gpu.wait_for(after);
                let task = {
                    let mut state = locked(&arrival.state);
                    state.watch = Watch::Over;
                    state.task.take()
                };
                if let Some(task) = task {
                    task.wake();
                }
            };
            if std::thread::Builder::new().name("rlx-wgpu-wait".to_string()).spawn(watch).is_err() {
                // Without a thread the call that takes the outputs waits.
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// Copies bytes that were waited for: as many as `out` has (a multiple of four) from `at` on (a multiple of eight).
    ///
    /// # Errors
    /// [`ErrorKind::Device`].
    pub(crate) fn copy(&self, gpu: &Gpu, at: usize, out: &mut [u8]) -> Result<()> {
        let range = at as u64..(at + out.len()) as u64;
        let view = self.buffer.get_mapped_range(range).map_err(|e| Self::failed(gpu, &e))?;
        out.copy_from_slice(&view);
        gpu.moved[1].fetch_add(out.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.buffer.unmap();
    }
}
