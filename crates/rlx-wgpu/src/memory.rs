//! Device memory: its ranges, uploads, and what comes back to the host.

use std::sync::Arc;
use std::task::{Context, Poll};

use rlx_gpu::memory::whole_words;
use rlx_gpu::{Buffer, GpuApi, HostCopy, HostMemory, Signal};
use rlx_ir::{Error, ErrorKind, Result};

use crate::WAITS;
use crate::gpu::Gpu;

/// How long what the device has done may take to be reported by another thread.
const CALL_BACK: std::time::Duration = std::time::Duration::from_secs(10);

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

impl Gpu {
    /// A buffer of `bytes` bytes; `what` says for what.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`], or what the driver reports.
    pub(crate) fn create(&self, bytes: usize, usage: wgpu::BufferUsages, what: &str) -> Result<wgpu::Buffer> {
        let size = bytes as u64;
        let description = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        self.checked(&|| what.to_owned(), || self.device.create_buffer(&description))
    }

    /// Copies `bytes` to `offset`, a multiple of four, before anything submitted later. The rest of the last word becomes zero.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn send(&self, to: &wgpu::Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        let (words, rest) = bytes.as_chunks::<{ wgpu::COPY_BUFFER_ALIGNMENT as usize }>();
        self.checked(&|| format!("copying {} bytes to the device", bytes.len()), || {
            if !words.is_empty() {
                self.queue.write_buffer(to, offset, words.as_flattened());
            }
            if !rest.is_empty() {
                let mut last = [0; wgpu::COPY_BUFFER_ALIGNMENT as usize];
                last[..rest.len()].copy_from_slice(rest);
                self.queue.write_buffer(to, offset + words.as_flattened().len() as u64, &last);
            }
        })
    }

    /// Copies bytes on the device, whole words, behind everything that was submitted.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn copy_words(
        &self,
        from: (&wgpu::Buffer, u64),
        to: &wgpu::Buffer,
        bytes: usize,
        what: &str,
    ) -> Result<wgpu::SubmissionIndex> {
        self.checked(&|| what.to_owned(), || {
            let mut encoder = self.device.create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(from.0, from.1, to, 0, whole_words(bytes) as u64);
            self.queue.submit([encoder.finish()])
        })
    }

    /// The first `bytes` bytes of a range, behind everything that was submitted.
    ///
    /// # Errors
    /// Memory that cannot be had, or a fault of the device.
    pub(crate) fn download(&self, from: &Range, bytes: usize) -> Result<Vec<u8>> {
        if bytes == 0 {
            return self.wait().map(|()| Vec::new());
        }
        let size = whole_words(bytes);
        let mut to = Readback::new(self, size)?;
        let from = (&from.buffer, from.offset);
        let index = self.copy_words(from, to.buffer.memory(), size, "reading from the device")?;
        to.map(self, size, index)?;
        to.wait(self)?;
        let mut out = rlx_ir::memory::zeroed(size, || "a copy of device memory".to_string())?;
        to.copy(self, 0, &mut out)?;
        out.truncate(bytes);
        Ok(out)
    }
}

/// A buffer that the device copies to and the host maps.
pub(crate) struct Readback {
    pub(crate) buffer: Buffer<Gpu>,
    mapping: Option<Mapping>,
    /// Its bytes in host memory, once somebody asked for them.
    host: HostCopy,
}

impl Readback {
    /// A buffer of at least `bytes` bytes.
    ///
    /// # Errors
    /// Memory that cannot be had.
    pub(crate) fn new(gpu: &Gpu, bytes: usize) -> Result<Self> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let buffer = Buffer::by(gpu, bytes, "outputs", |bytes, what| gpu.create(bytes, usage, what))?;
        Ok(Readback { buffer, mapping: None, host: HostCopy::default() })
    }

    /// Asks for the first `bytes` bytes, a multiple of four, as the submission `after` leaves them.
    ///
    /// # Errors
    /// [`ErrorKind::Device`].
    pub(crate) fn map(&mut self, gpu: &Gpu, bytes: usize, after: wgpu::SubmissionIndex) -> Result<()> {
        let arrival = Arc::new(Signal::default());
        let (to, buffer) = (Arc::clone(&arrival), self.buffer.memory().clone());
        gpu.checked(&|| "mapping the outputs".to_string(), || {
            buffer.map_async(wgpu::MapMode::Read, 0..bytes as u64, move |mapped| to.set(mapped));
        })?;
        self.mapping = Some(Mapping { buffer, after, arrival });
        Ok(())
    }

    fn mapping(&self, gpu: &Gpu) -> Result<&Mapping> {
        let missing = || gpu.error(ErrorKind::Internal, "a run that was not mapped");
        self.mapping.as_ref().ok_or_else(missing)
    }
}

impl HostMemory<Gpu> for Readback {
    fn size(&self) -> usize {
        self.buffer.size()
    }

    fn release(&mut self) {
        self.mapping = None;
        self.host.forget();
    }

    fn wait(&self, gpu: &Gpu) -> Result<()> {
        self.mapping(gpu)?.wait(gpu)
    }

    fn poll(&self, gpu: &Arc<Gpu>, context: &mut Context<'_>) -> Poll<()> {
        self.mapping.as_ref().map_or(Poll::Ready(()), |mapping| mapping.poll(gpu, context))
    }

    fn copy(&self, gpu: &Gpu, at: usize, out: &mut [u8]) -> Result<()> {
        self.mapping(gpu)?.copy(gpu, at, out)
    }

    fn bytes(&self, gpu: &Gpu, bytes: usize) -> Result<&[u8]> {
        self.host.get(bytes, |out| self.copy(gpu, 0, out))
    }
}

/// Bytes of a buffer that the host can read once what writes them is done; the buffer can be written again when this is
/// dropped.
struct Mapping {
    buffer: wgpu::Buffer,
    after: wgpu::SubmissionIndex,
    arrival: Arc<Signal<std::result::Result<(), wgpu::BufferAsyncError>>>,
}

impl Mapping {
    fn failed(gpu: &Gpu, e: &dyn std::fmt::Display) -> Error {
        gpu.error(ErrorKind::Device, format!("reading the outputs: {e}"))
    }

    fn wait(&self, gpu: &Gpu) -> Result<()> {
        if !self.arrival.is_set() {
            gpu.wait_for(self.after.clone())?;
        }
        gpu.alive()?;
        // Another thread that waits for the device may be the one that is about to call back.
        self.arrival.wait(CALL_BACK, |found| match found {
            Some(Ok(())) => Ok(()),
            Some(Err(e)) => Err(Self::failed(gpu, e)),
            None => Err(Self::failed(gpu, &"the device did not call back")),
        })
    }

    /// Whether [`Mapping::wait`] has nothing to wait for. A page calls back by itself.
    fn poll(&self, gpu: &Arc<Gpu>, context: &mut Context<'_>) -> Poll<()> {
        let (gpu, after) = (Arc::clone(gpu), self.after.clone());
        // What is wrong is found by the call that takes the outputs.
        self.arrival.poll(context, WAITS.then_some(move || drop(gpu.wait_for(after))))
    }

    /// Copies bytes that were waited for: as many as `out` has (a multiple of four) from `at` on (a multiple of eight).
    fn copy(&self, gpu: &Gpu, at: usize, out: &mut [u8]) -> Result<()> {
        let range = at as u64..(at + out.len()) as u64;
        let view = self.buffer.get_mapped_range(range).map_err(|e| Self::failed(gpu, &e))?;
        out.copy_from_slice(&view);
        gpu.shared.count_to_host(out.len());
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.buffer.unmap();
    }
}
