//! Handles on the CPU: a fed output is written straight into memory that then becomes the handle's, so that
//! feeding copies nothing.
//!
//! ```text
//! before the run   handle: A   room: B   the output's base is B
//! after it         handle: B   room: A
//! ```
//!
//! Where the output takes the memory of the handle's input ([`rlx_ir::LirModule::donated`]), the run updates the value where it
//! is; a value that clones share is copied first.

use std::sync::Arc;

use rlx_backend::DeviceHandles;
use rlx_backend::handles::{check_feed, check_size, no_handle};
use rlx_ir::{Error, ErrorKind, Result, memory};

use super::exec::CpuExecutable;
use super::{allocate, copy_of};
use crate::alloc::Buffer;

#[derive(Clone)]
struct Handle {
    /// Shared by clones, so it is only read.
    value: Arc<Buffer>,
    bytes: usize,
    /// The output that becomes its value.
    feed: Option<usize>,
}

/// The handles of an executable, and where outputs that feed them go.
pub(super) struct Handles {
    /// By input.
    of: Vec<Option<Handle>>,
    /// By output: what it is written into when it feeds a handle.
    room: Vec<Option<Arc<Buffer>>>,
    /// By output: whether its base is `room`.
    redirected: Vec<bool>,
    /// By output: its value of the last run, where it fed a handle.
    fed: Vec<Option<(Arc<Buffer>, usize)>>,
    /// By output: the input whose memory it takes.
    donated: Vec<Option<usize>>,
    /// By input: whether a run updates it in place, and whether the run takes it from its handle.
    updated: Vec<bool>,
    supplied: Vec<bool>,
}

impl Handles {
    pub(super) fn new(inputs: usize, donated: &[Option<usize>]) -> Handles {
        let outputs = donated.len();
        Handles {
            of: vec![None; inputs],
            room: vec![None; outputs],
            redirected: vec![false; outputs],
            fed: vec![None; outputs],
            donated: donated.to_vec(),
            updated: (0..inputs).map(|input| donated.contains(&Some(input))).collect(),
            supplied: vec![false; inputs],
        }
    }

    /// The same values, for a clone of the executable.
    pub(super) fn values(&self) -> Handles {
        Handles { of: self.of.clone(), ..Handles::new(self.of.len(), &self.donated) }
    }

    /// The memory that fed outputs may be written into.
    pub(super) fn memory(&self) -> impl Iterator<Item = &Buffer> {
        self.room.iter().flatten().map(|b| &**b)
    }

    /// Where the `want` bytes of input `index` are. What the run updates is no one else's: a value that others have is copied.
    pub(super) fn address(&mut self, index: usize, name: &str, want: usize) -> Result<*mut u8> {
        let handle = self.of[index].as_mut().ok_or_else(|| no_handle(name))?;
        check_size(name, handle.bytes, want)?;
        if !self.updated[index] {
            return Ok(handle.value.as_ptr().cast_mut());
        }
        if Arc::get_mut(&mut handle.value).is_none() {
            let mut own = allocate(handle.bytes, "a handle's values")?;
            own.as_mut_slice()[..handle.bytes].copy_from_slice(&handle.value.as_slice()[..handle.bytes]);
            handle.value = Arc::new(own);
        }
        let own = Arc::get_mut(&mut handle.value);
        own.map(Buffer::as_mut_ptr).ok_or_else(|| Error::new(ErrorKind::Internal, "a value that is shared"))
    }

    /// Whether a run updates input `index` in place.
    pub(super) fn is_updated(&self, index: usize) -> bool {
        self.updated[index]
    }

    /// Notes whether the run takes input `index` from its handle.
    pub(super) fn supply(&mut self, index: usize, handle: bool) {
        self.supplied[index] = handle;
    }

    /// The handle whose memory output `index` took in the last run.
    fn updated_by(&self, index: usize) -> Option<&Handle> {
        let input = self.donated[index].filter(|&input| self.supplied[input])?;
        self.of[input].as_ref()
    }

    /// Output `index` of the last run, where it fed a handle or took its memory.
    pub(super) fn output(&self, index: usize) -> Option<&[u8]> {
        if let Some(handle) = self.updated_by(index) {
            return Some(&handle.value.as_slice()[..handle.bytes]);
        }
        self.fed[index].as_ref().map(|(value, bytes)| &value.as_slice()[..*bytes])
    }

    /// The fed outputs become the handles' values. `copied` is what the run updated of an input that was given.
    pub(super) fn finish<'b>(
        &mut self,
        bytes: impl Fn(usize) -> usize,
        copied: impl Fn(usize) -> Option<&'b Buffer>,
    ) -> Result<()> {
        for (input, handle) in self.of.iter_mut().enumerate() {
            let Some(handle) = handle else { continue };
            let Some(output) = handle.feed else { continue };
            if self.donated[output] == Some(input) {
                if let (false, Some(copied)) = (self.supplied[input], copied(input)) {
                    handle.bytes = bytes(output);
                    handle.value = Arc::new(copy_of(&copied.as_slice()[..handle.bytes])?);
                }
                continue;
            }
            let new = match (&self.fed[output], &mut self.room[output]) {
                // One output may feed several handles.
                (Some((value, _)), _) => Arc::clone(value),
                (None, Some(room)) => {
                    std::mem::swap(&mut handle.value, room);
                    Arc::clone(&handle.value)
                }
                (None, None) => continue,
            };
            handle.bytes = bytes(output);
            handle.value = Arc::clone(&new);
            self.fed[output] = Some((new, handle.bytes));
        }
        Ok(())
    }
}

impl CpuExecutable {
    /// Lets outputs that feed handles be written into memory of their own, the others into the arena.
    pub(super) fn redirect_outputs(&mut self) -> Result<()> {
        for output in 0..self.outputs.len() {
            self.handles.fed[output] = None;
            // What a run updates in place is where the input is.
            if self.handles.donated[output].is_some() {
                continue;
            }
            let feeds = self.handles.of.iter().flatten().any(|h| h.feed == Some(output));
            let (offset, bytes) = self.outputs[output];
            let buffer = self.program.lir.outputs[output].operand.buffer.index();
            if feeds {
                self.bases[buffer] = room(&mut self.handles.room[output], bytes)?;
            } else if self.handles.redirected[output] {
                self.bases[buffer] = self.arena.as_mut_ptr().wrapping_add(offset);
            }
            self.handles.redirected[output] = feeds;
        }
        Ok(())
    }

    fn input_name(&self, input: usize) -> &str {
        self.program.lir.inputs.get(input).map_or("?", |slot| &slot.name)
    }
}

/// Memory of at least `bytes` that no one else reads.
fn room(memory: &mut Option<Arc<Buffer>>, bytes: usize) -> Result<*mut u8> {
    let own = memory.as_mut().and_then(Arc::get_mut).filter(|m| m.len() >= bytes);
    if let Some(own) = own {
        return Ok(own.as_mut_ptr());
    }
    // Outputs that grow from run to run need not have new memory each time.
    let mut fresh = allocate(bytes.checked_next_power_of_two().unwrap_or(bytes), "a handle's values")?;
    let address = fresh.as_mut_ptr();
    *memory = Some(Arc::new(fresh));
    Ok(address)
}

impl DeviceHandles for CpuExecutable {
    fn set(&mut self, input: usize, bytes: &[u8]) -> Result<()> {
        let Some(slot) = self.handles.of.get_mut(input) else {
            return Err(Error::new(ErrorKind::Binding, format!("there is no input {input}")));
        };
        let (old, feed) = slot.take().map_or((None, None), |h| (Some(h.value), h.feed));
        let own = old.and_then(|value| Arc::try_unwrap(value).ok()).filter(|v| v.len() >= bytes.len());
        let mut value = own.map_or_else(|| allocate(bytes.len(), "a handle's values"), Ok)?;
        value.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
        *slot = Some(Handle { value: Arc::new(value), bytes: bytes.len(), feed });
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
        match self.handles.of.get(input) {
            Some(Some(handle)) => memory::copy(&handle.value.as_slice()[..handle.bytes], || {
                format!("a copy of handle {:?}", self.input_name(input))
            }),
            _ => Err(no_handle(self.input_name(input))),
        }
    }
}
