//! Memory as the executor sees it, on a device whose tensors have types and are never changed: a place that holds bytes or a tensor.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rlx_ir::{Error, ErrorKind, Result, Shape, memory};

use super::{Argument, GraphDevice};

/// What a slot holds.
enum State<T> {
    Nothing,
    /// Bytes that no run needed yet; which type they have, the run says.
    Bytes(Vec<u8>),
    Tensor(Arc<T>, Shape),
}

/// A value's place. Putting a value in replaces the old one, which runs under way keep.
pub(super) struct Slot<G: GraphDevice> {
    bytes: usize,
    state: Mutex<State<G::Tensor>>,
}

impl<G: GraphDevice> Slot<G> {
    pub(super) fn empty(bytes: usize) -> Arc<Self> {
        Arc::new(Slot { bytes, state: Mutex::new(State::Nothing) })
    }

    pub(super) fn of(tensor: G::Tensor, shape: Shape) -> Arc<Self> {
        let bytes = shape.size_bytes().unwrap_or(usize::MAX);
        Arc::new(Slot { bytes, state: Mutex::new(State::Tensor(Arc::new(tensor), shape)) })
    }

    fn state(&self) -> MutexGuard<'_, State<G::Tensor>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes it was made for.
    pub(super) fn size(&self) -> usize {
        self.bytes
    }

    /// Keeps a copy of bytes.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<()> {
        let copy = memory::copy(bytes, || "a value on its way to the device".into())?;
        *self.state() = State::Bytes(copy);
        Ok(())
    }

    /// Keeps a tensor.
    pub(super) fn put(&self, tensor: Arc<G::Tensor>, shape: Shape) {
        *self.state() = State::Tensor(tensor, shape);
    }

    /// The first `bytes` bytes.
    pub(super) fn read(&self, device: &G, bytes: usize) -> Result<Vec<u8>> {
        let known = match &*self.state() {
            State::Nothing => return Err(nothing()),
            State::Bytes(known) => known.clone(),
            State::Tensor(tensor, _) => device.download(tensor)?,
        };
        first(known, bytes)
    }

    /// Another slot with the same value.
    pub(super) fn duplicate(&self) -> Arc<Self> {
        let state = match &*self.state() {
            State::Nothing => State::Nothing,
            State::Bytes(bytes) => State::Bytes(bytes.clone()),
            State::Tensor(tensor, shape) => State::Tensor(Arc::clone(tensor), shape.clone()),
        };
        Arc::new(Slot { bytes: self.bytes, state: Mutex::new(state) })
    }

    /// The value as a tensor of this shape, for a run. With `take`, the run may have it for itself; then the slot is empty.
    pub(super) fn argument(&self, device: &G, shape: &Shape, take: bool) -> Result<Argument<G::Tensor>> {
        let mut state = self.state();
        let bytes = match &*state {
            State::Nothing => return Err(nothing()),
            State::Bytes(bytes) => Some(bytes.clone()),
            State::Tensor(_, known) if known == shape => None,
            // A handle whose bytes mean something else to this run.
            State::Tensor(tensor, _) => Some(device.download(tensor)?),
        };
        if let Some(bytes) = bytes {
            let bytes = first(bytes, shape.size_bytes().unwrap_or(usize::MAX))?;
            *state = State::Tensor(Arc::new(device.upload(&bytes, shape)?), shape.clone());
        }
        let State::Tensor(tensor, _) = &*state else { return Err(nothing()) };
        if !take {
            return Ok(Argument::Shared(Arc::clone(tensor)));
        }
        let State::Tensor(tensor, _) = std::mem::replace(&mut *state, State::Nothing) else {
            return Err(nothing());
        };
        Ok(Arc::try_unwrap(tensor).map_or_else(Argument::Shared, Argument::Donated))
    }
}

fn first(mut bytes: Vec<u8>, count: usize) -> Result<Vec<u8>> {
    if bytes.len() < count {
        let message = format!("a value of {} bytes where {count} are needed", bytes.len());
        return Err(Error::new(ErrorKind::Internal, message));
    }
    bytes.truncate(count);
    Ok(bytes)
}

fn nothing() -> Error {
    Error::new(ErrorKind::Internal, "a value that nothing wrote")
}
