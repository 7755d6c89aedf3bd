//! Handles in a run: inputs that they supply, outputs that feed them; and what a caller does with them between runs.

use std::borrow::Cow;
use std::sync::Arc;

use rlx_ir::{Error, ErrorKind, Result, memory};

use super::api::DeviceApi;
use super::handles::Handle;
use super::run::Executor;
use crate::handles::{check_feed, check_size, lost_handle, no_handle};
use crate::{DeviceHandles, RunOptions};

/// What handles' memory is for.
const VALUES: &str = "a handle's values";

impl<D: DeviceApi> Executor<D> {
    /// Where the `want` bytes of input `index` are, which its handle supplies. What the run updates is no one else's: a value
    /// that others have is copied.
    pub(super) fn handle_place(&mut self, index: usize, want: usize) -> Result<D::Place> {
        let name = &self.program.lir.inputs[index].name;
        let handle = self.handles.of[index].as_mut().ok_or_else(|| no_handle(name))?;
        check_size(name, handle.bytes, want)?;
        if handle.lost {
            return Err(lost_handle(name));
        }
        if self.handles.updated[index] && Arc::get_mut(&mut handle.value).is_none() {
            let own = self.program.device.duplicate(&handle.value, handle.bytes, VALUES)?;
            handle.value = Arc::new(own);
        }
        Ok(D::place(&handle.value))
    }

    /// Lets outputs that feed handles be written into memory of their own, the others into the arena; and says which come to the host.
    pub(super) fn redirect_outputs(&mut self, options: RunOptions<'_>) -> Result<()> {
        let (program, handles) = (&self.program, &mut self.handles);
        for (output, slot) in self.outputs.iter_mut().enumerate() {
            handles.fed[output] = None;
            let left = D::LEAVES_OUTPUTS && !options.wants(output);
            // What a run updates in place is where the input is.
            if let Some(input) = handles.donated[output] {
                slot.stays = left || handles.supplied[input];
                continue;
            }
            let feeds = handles.of.iter().flatten().any(|h| h.feed == Some(output));
            if feeds {
                let room = &mut handles.room[output];
                self.places[slot.buffer] = room_of(&program.device, room, slot.bytes)?;
            } else if handles.redirected[output] {
                self.places[slot.buffer] = self.homes[output].clone();
            }
            slot.stays = left || feeds;
            handles.redirected[output] = feeds;
        }
        Ok(())
    }

    /// The fed outputs become the handles' values.
    pub(super) fn feed_handles(&mut self) -> Result<()> {
        let (handles, outputs) = (&mut self.handles, &self.outputs);
        for (input, handle) in handles.of.iter_mut().enumerate() {
            let Some(handle) = handle else { continue };
            let Some(output) = handle.feed else { continue };
            if handles.donated[output] == Some(input) {
                // What was given instead of the handle was updated in the copy of it.
                if let (false, Some(copied)) = (handles.supplied[input], &self.inputs[input]) {
                    handle.bytes = outputs[output].bytes;
                    let own = self.program.device.duplicate(copied, handle.bytes, VALUES)?;
                    (handle.value, handle.lost) = (Arc::new(own), false);
                }
                continue;
            }
            let new = match (&handles.fed[output], &mut handles.room[output]) {
                // One output may feed several handles.
                (Some((value, _)), _) => Arc::clone(value),
                (None, Some(room)) => {
                    std::mem::swap(&mut handle.value, room);
                    Arc::clone(&handle.value)
                }
                (None, None) => continue,
            };
            handle.bytes = outputs[output].bytes;
            (handle.value, handle.lost) = (Arc::clone(&new), false);
            handles.fed[output] = Some((new, handle.bytes));
        }
        Ok(())
    }

    fn input_name(&self, input: usize) -> &str {
        self.program.lir.inputs.get(input).map_or("?", |slot| &slot.name)
    }
}

/// Memory of at least `bytes` that no one else reads.
fn room_of<D: DeviceApi>(device: &D, memory: &mut Option<Arc<D::Memory>>, bytes: usize) -> Result<D::Place> {
    let own = memory.as_mut().and_then(Arc::get_mut).filter(|m| D::size(m) >= bytes);
    if let Some(own) = own {
        return Ok(D::place(own));
    }
    // Outputs that grow from run to run need not have new memory each time.
    let fresh = Arc::new(device.allocate(device.with_room(bytes), VALUES)?);
    let place = D::place(&fresh);
    *memory = Some(fresh);
    Ok(place)
}

impl<D: DeviceApi> DeviceHandles for Executor<D> {
    fn set(&mut self, input: usize, bytes: &[u8]) -> Result<()> {
        let device = &self.program.device;
        let Some(slot) = self.handles.of.get_mut(input) else {
            return Err(Error::new(ErrorKind::Binding, format!("there is no input {input}")));
        };
        let (old, feed) = slot.take().map_or((None, None), |h| (Some(h.value), h.feed));
        let own = old.and_then(|value| Arc::try_unwrap(value).ok()).filter(|v| D::size(v) >= bytes.len());
        let mut value = own.map_or_else(|| device.allocate(bytes.len(), VALUES), Ok)?;
        device.upload(&mut value, bytes)?;
        *slot = Some(Handle { value: Arc::new(value), bytes: bytes.len(), feed, lost: false });
        self.forget_places();
        Ok(())
    }

    fn feed(&mut self, input: usize, output: Option<usize>) -> Result<()> {
        if let Some(output) = output {
            check_feed(&self.program.lir, input, output)?;
        }
        match self.handles.of.get_mut(input) {
            Some(Some(handle)) => handle.feed = output,
            _ => return Err(no_handle(self.input_name(input))),
        }
        Ok(())
    }

    fn read(&self, input: usize) -> Result<Vec<u8>> {
        let Some(Some(handle)) = self.handles.of.get(input) else {
            return Err(no_handle(self.input_name(input)));
        };
        self.settle()?;
        let touched = handle.feed.is_some() || self.handles.is_updated(input);
        if handle.lost || self.lost.get() && touched {
            return Err(lost_handle(self.input_name(input)));
        }
        let label = || format!("a copy of handle {:?}", self.input_name(input));
        match self.program.device.download(&handle.value, handle.bytes)? {
            Cow::Owned(bytes) => Ok(bytes),
            Cow::Borrowed(bytes) => memory::copy(bytes, label),
        }
    }
}
