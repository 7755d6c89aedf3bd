//! Device memory: buffers with their ranges, uploads, and what comes back to the host.

use std::sync::atomic::Ordering;

use rlx_ir::{Error, ErrorKind, Result};

use crate::gpu::{Gpu, Reserved};

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
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range<'a> {
    pub(crate) buffer: &'a DeviceBuffer,
    pub(crate) offset: u64,
    /// A multiple of four, at least four.
    pub(crate) bytes: u64,
}

impl<'a> Range<'a> {
    /// As wgpu binds it.
    pub(crate) fn entry(self, binding: u32) -> wgpu::BindGroupEntry<'a> {
        let size = wgpu::BufferSize::new(self.bytes);
        let part = wgpu::BufferBinding { buffer: &self.buffer.raw, offset: self.offset, size };
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
    pub(crate) fn whole(&self) -> Range<'_> {
        Range { buffer: self, offset: 0, bytes: self.len() }
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

    /// Waits for the device and copies the first bytes of a [`DeviceBuffer::readback`] buffer to `out`, whose
    /// length is a multiple of four.
    ///
    /// # Errors
    /// [`ErrorKind::Device`].
    pub(crate) fn read(&self, gpu: &Gpu, out: &mut [u8]) -> Result<()> {
        if out.is_empty() {
            return gpu.wait();
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        let range = 0..out.len() as u64;
        gpu.checked(&|| "mapping the outputs".to_string(), || {
            self.raw.map_async(wgpu::MapMode::Read, range.clone(), move |mapped| {
                // No one listens any more when waiting failed.
                let _ = sender.send(mapped);
            });
        })?;
        gpu.wait()?;
        let failed = |e: &dyn std::fmt::Display| -> Error {
            gpu.error(ErrorKind::Device, format!("reading the outputs: {e}"))
        };
        // Another thread that waits for the device may be the one that is about to call back.
        match receiver.recv_timeout(CALL_BACK) {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return Err(failed(&e)),
            Err(e) => return Err(failed(&e)),
        }
        {
            let view = self.raw.get_mapped_range(range).map_err(|e| failed(&e))?;
            out.copy_from_slice(&view);
        }
        gpu.moved[1].fetch_add(out.len() as u64, Ordering::Relaxed);
        self.raw.unmap();
        Ok(())
    }
}
