//! Handles on the device: a fed output is copied there within the run's own submission, into a second buffer that
//! becomes the handle's when the run succeeded. So a run that fails leaves the value as it was, and nothing passes
//! through the host.
//!
//! The two buffers change places with every run; the executable keeps bind groups for both turns.
//!
//! Where the output takes the memory of the handle's input ([`rlx_ir::LirModule::donated`]), kernels update the value where it
//! is; one that clones share is copied first. A fault is known when the whole submission is done, so a run that fails loses
//! such a value, and says so when it is used again.

use std::sync::Arc;

use rlx_backend::DeviceHandles;
use rlx_backend::handles::{check_feed, check_size, lost_handle, no_handle};
use rlx_ir::{Error, ErrorKind, LirModule, Result};

use crate::exec::WgpuExecutable;
use crate::gpu::Gpu;
use crate::memory::{DeviceBuffer, Range, whole_words};

/// The value of a handle.
#[derive(Clone)]
pub(crate) struct Handle {
    /// Shared by clones, so kernels only read it.
    value: Arc<DeviceBuffer>,
    bytes: usize,
    /// Where the next value goes.
    spare: Option<Arc<DeviceBuffer>>,
    /// The output that becomes its value.
    feed: Option<usize>,
    /// Whether a run that failed was updating it.
    lost: bool,
}

/// The handles of an executable.
pub(crate) struct Handles {
    /// By input.
    of: Vec<Option<Handle>>,
    /// By input: whether the run takes it from the handle.
    used: Vec<bool>,
    /// By input: the output that takes its memory.
    updated_by: Vec<Option<usize>>,
}

impl Handles {
    pub(crate) fn new(lir: &LirModule) -> Handles {
        let inputs = lir.inputs.len();
        let mut updated_by = vec![None; inputs];
        for output in 0..lir.outputs.len() {
            if let Some(input) = lir.donated(output) {
                updated_by[input] = Some(output);
            }
        }
        Handles { of: vec![None; inputs], used: vec![false; inputs], updated_by }
    }

    /// The same values, for a clone of the executable.
    pub(crate) fn values(&self) -> Handles {
        let own = |handle: &Handle| Handle { spare: None, ..handle.clone() };
        Handles {
            of: self.of.iter().map(|slot| slot.as_ref().map(own)).collect(),
            used: vec![false; self.used.len()],
            updated_by: self.updated_by.clone(),
        }
    }

    /// What input `index` is bound to, where that is its handle.
    pub(crate) fn range(&self, index: usize) -> Option<Range<'_>> {
        self.of[index].as_ref().filter(|_| self.used[index]).map(|handle| handle.value.whole())
    }

    /// Takes input `index` from its handle (`want` bytes of it), or not; whether that is new.
    pub(crate) fn choose(&mut self, index: usize, name: &str, want: Option<usize>) -> Result<bool> {
        if let Some(want) = want {
            let handle = self.of[index].as_ref().ok_or_else(|| no_handle(name))?;
            check_size(name, handle.bytes, want)?;
            if handle.lost {
                return Err(lost_handle(name));
            }
        }
        Ok(std::mem::replace(&mut self.used[index], want.is_some()) != want.is_some())
    }

    /// Gives the handle of input `index`, if the run updates it, a value that no one else has; whether that is new.
    pub(crate) fn make_own(&mut self, gpu: &Gpu, index: usize) -> Result<bool> {
        let Some(handle) = self.of[index].as_mut().filter(|_| self.updated_by[index].is_some()) else {
            return Ok(false);
        };
        if Arc::get_mut(&mut handle.value).is_some() {
            return Ok(false);
        }
        let own = DeviceBuffer::storage(gpu, handle.value.len(), "a handle")?;
        gpu.checked(&|| "copying a handle".to_string(), || {
            let mut encoder = gpu.device.create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(&handle.value.raw, 0, &own.raw, 0, own.len());
            gpu.queue.submit([encoder.finish()]);
        })?;
        handle.value = Arc::new(own);
        Ok(true)
    }

    /// Whether the run updates the value of input `index`'s handle where it is.
    fn is_updated(&self, index: usize, output: usize) -> bool {
        self.used[index] && self.updated_by[index] == Some(output)
    }

    /// A run failed: the values it was updating are lost.
    pub(crate) fn lose_updated(&mut self) {
        for (index, handle) in self.of.iter_mut().enumerate() {
            if let Some(handle) = handle.as_mut().filter(|_| self.used[index]) {
                handle.lost |= self.updated_by[index].is_some();
            }
        }
    }

    /// Whether output `output` feeds a handle.
    pub(crate) fn is_fed_by(&self, output: usize) -> bool {
        self.of.iter().flatten().any(|handle| handle.feed == Some(output))
    }

    /// Makes room for the next values, `bytes(output)` bytes each; whether any buffer is new.
    pub(crate) fn make_room(&mut self, gpu: &Gpu, bytes: impl Fn(usize) -> usize) -> Result<bool> {
        let mut fresh = false;
        for input in 0..self.of.len() {
            let Some(output) = self.of[input].as_ref().and_then(|handle| handle.feed) else { continue };
            let updated = self.is_updated(input, output);
            let Some(handle) = self.of[input].as_mut().filter(|_| !updated) else { continue };
            let size = whole_words(bytes(output) as u64);
            let own = handle.spare.as_mut().and_then(Arc::get_mut);
            if own.is_none_or(|spare| spare.len() < size) {
                // Outputs that grow from run to run need not have new memory each time.
                let room = size.next_power_of_two().min(gpu.limits.max_storage_buffer_binding_size);
                handle.spare = Some(Arc::new(DeviceBuffer::storage(gpu, room.max(size), "a handle")?));
                fresh = true;
            }
        }
        Ok(fresh)
    }

    /// Which outputs are copied where by the run's submission.
    pub(crate) fn copies(&self) -> impl Iterator<Item = (usize, &DeviceBuffer)> {
        self.of.iter().enumerate().filter_map(|(input, handle)| {
            let handle = handle.as_ref()?;
            let output = handle.feed.filter(|&output| !self.is_updated(input, output))?;
            Some((output, &**handle.spare.as_ref()?))
        })
    }

    /// The next values become the handles'; whether there were any.
    pub(crate) fn exchange(&mut self, bytes: impl Fn(usize) -> usize) -> bool {
        let mut any = false;
        for input in 0..self.of.len() {
            let Some(output) = self.of[input].as_ref().and_then(|handle| handle.feed) else { continue };
            let updated = self.is_updated(input, output);
            let Some(handle) = self.of[input].as_mut().filter(|_| !updated) else { continue };
            if let Some(spare) = &mut handle.spare {
                std::mem::swap(&mut handle.value, spare);
                handle.bytes = bytes(output);
                handle.lost = false;
                any = true;
            }
        }
        any
    }
}

impl WgpuExecutable {
    fn handle(&self, input: usize) -> Result<&Handle> {
        let name = self.program.lir.inputs.get(input).map_or("?", |slot| &slot.name);
        self.handles.of.get(input).and_then(Option::as_ref).ok_or_else(|| no_handle(name))
    }
}

impl DeviceHandles for WgpuExecutable {
    fn set(&mut self, input: usize, bytes: &[u8]) -> Result<()> {
        let program = Arc::clone(&self.program);
        let Some(slot) = program.lir.inputs.get(input) else {
            return Err(Error::new(ErrorKind::Binding, format!("there is no input {input}")));
        };
        let what = format!("handle {:?}", slot.name);
        let value = DeviceBuffer::storage(&program.gpu, bytes.len() as u64, &what)?;
        value.write(&program.gpu, bytes)?;
        let feed = self.handles.of[input].as_ref().and_then(|handle| handle.feed);
        let handle = Handle { value: Arc::new(value), bytes: bytes.len(), spare: None, feed, lost: false };
        self.handles.of[input] = Some(handle);
        self.unbind();
        Ok(())
    }

    fn feed(&mut self, input: usize, output: Option<usize>) -> Result<()> {
        if let Some(output) = output {
            check_feed(&self.program.lir, input, output)?;
        }
        if self.handle(input)?.feed == output {
            return Ok(());
        }
        if let Some(handle) = &mut self.handles.of[input] {
            handle.feed = output;
        }
        self.feeds_changed();
        Ok(())
    }

    fn read(&self, input: usize) -> Result<Vec<u8>> {
        let handle = self.handle(input)?;
        if handle.lost {
            return Err(lost_handle(&self.program.lir.inputs[input].name));
        }
        let mut bytes = vec![0; whole_words(handle.bytes as u64) as usize];
        self.download(handle.value.whole(), &mut bytes)?;
        bytes.truncate(handle.bytes);
        Ok(bytes)
    }
}
