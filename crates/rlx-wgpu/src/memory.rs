//! Device memory: its ranges, and what comes back to the host.

use std::sync::Arc;
use std::task::{Context, Poll};

use rlx_gpu::{Arrival, Back, Buffer, GpuApi, HostMemory, Signal};
use rlx_ir::{Error, ErrorKind, Result};

use crate::gpu::Gpu;

/// How long what the device has done may take to be reported by another thread.
const CALL_BACK: std::time::Duration = std::time::Duration::from_secs(10);

/// A part of a buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct Range {
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

/// A buffer that the device copies to and the host maps.
pub struct Readback {
    buffer: Buffer<Gpu>,
    mapping: Option<Mapping>,
    /// What comes back are zeros, which the device was not asked for.
    zeros: bool,
}

/// Bytes of a buffer that the host can read once what writes them is done; the buffer can be written again when this is
/// dropped.
struct Mapping {
    buffer: wgpu::Buffer,
    after: wgpu::SubmissionIndex,
    arrival: Arc<Signal<std::result::Result<(), wgpu::BufferAsyncError>>>,
}

impl Readback {
    /// A buffer of at least `bytes` bytes.
    ///
    /// # Errors
    /// Memory that cannot be had.
    pub(crate) fn new(gpu: &Gpu, bytes: usize) -> Result<Self> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let buffer = Buffer::by(gpu, bytes, "outputs", |bytes, what| gpu.create(bytes, usage, what))?;
        Ok(Readback { buffer, mapping: None, zeros: false })
    }

    /// Asks for the first `bytes` bytes, as the submission `after` leaves them.
    ///
    /// # Errors
    /// [`ErrorKind::Device`].
    fn map(&mut self, gpu: &Gpu, bytes: usize, after: wgpu::SubmissionIndex) -> Result<()> {
        let arrival = Arc::new(Signal::default());
        let (to, buffer) = (Arc::clone(&arrival), self.buffer.memory().clone());
        gpu.checked(&|| "mapping the outputs".to_string(), || {
            buffer.map_async(wgpu::MapMode::Read, 0..bytes as u64, move |mapped| to.set(mapped));
        })?;
        self.mapping = Some(Mapping { buffer, after, arrival });
        Ok(())
    }

    /// What comes back are zeros.
    pub(crate) fn bring_zeros(&mut self) {
        self.zeros = true;
    }

    fn mapping(&self, gpu: &Gpu) -> Result<&Mapping> {
        self.mapping.as_ref().ok_or_else(|| gpu.error(ErrorKind::Internal, "a run that was not mapped"))
    }
}

impl HostMemory<Gpu> for Readback {
    fn size(&self) -> usize {
        self.buffer.size()
    }

    fn release(&mut self) {
        self.mapping = None;
        self.zeros = false;
    }

    fn wait(&self, gpu: &Gpu) -> Result<()> {
        if self.zeros {
            return gpu.alive();
        }
        let Mapping { after, arrival, .. } = self.mapping(gpu)?;
        if !arrival.is_set() {
            gpu.poll(wait_for(after), &|| arrival.is_set())?;
        }
        gpu.alive()?;
        // Another thread that waits for the device may be the one that is about to call back.
        arrival.wait(CALL_BACK, |found| match found {
            Some(Ok(())) => Ok(()),
            Some(Err(e)) => Err(failed(gpu, e)),
            None => Err(failed(gpu, &"the device did not call back")),
        })
    }

    fn poll(&self, gpu: &Arc<Gpu>, context: &mut Context<'_>) -> Poll<()> {
        let Some(Mapping { after, arrival, .. }) = &self.mapping else { return Poll::Ready(()) };
        let (gpu, after) = (Arc::clone(gpu), after.clone());
        // A page calls back by itself. What is wrong is found by the call that takes the outputs.
        arrival.poll(context, Gpu::WAITS.then_some(move || drop(gpu.poll(wait_for(&after), &|| true))))
    }

    fn copy(&self, gpu: &Gpu, at: usize, out: &mut [u8]) -> Result<()> {
        if self.zeros {
            out.fill(0);
            return Ok(());
        }
        let range = at as u64..(at + out.len()) as u64;
        let view = self.mapping(gpu)?.buffer.get_mapped_range(range).map_err(|e| failed(gpu, &e))?;
        out.copy_from_slice(&view);
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.buffer.unmap();
    }
}

/// Waiting until a submission is done, and those before it.
fn wait_for(submission: &wgpu::SubmissionIndex) -> wgpu::PollType {
    wgpu::PollType::Wait { submission_index: Some(submission.clone()), timeout: None }
}

fn failed(gpu: &Gpu, e: &dyn std::fmt::Display) -> Error {
    gpu.error(ErrorKind::Device, format!("reading the outputs: {e}"))
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

    /// Submits what `record` records and then the copies of what comes back, which is mapped behind them.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn submit_with(
        &self,
        what: &dyn Fn() -> String,
        back: Option<Back<'_, Gpu>>,
        record: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<()> {
        let after = self.checked(what, || {
            let mut encoder = self.device.create_command_encoder(&Default::default());
            record(&mut encoder);
            if let Some(back) = &back {
                let to = back.to.buffer.memory();
                for Arrival { from, skip, bytes, at } in back.arrivals {
                    let from_at = from.offset + *skip as u64;
                    encoder.copy_buffer_to_buffer(&from.buffer, from_at, to, *at as u64, *bytes as u64);
                }
            }
            self.queue.submit([encoder.finish()])
        })?;
        back.map_or(Ok(()), |back| back.to.map(self, back.size(), after))
    }
}
