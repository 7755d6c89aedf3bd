//! The outputs of the last run: where they are, and reading them.

use std::cell::{Cell, OnceCell};
use std::collections::HashSet;

use rlx_backend::ExecutableGraph;
use rlx_backend::convert;
use rlx_driver::DeviceId;
use rlx_ir::{Dim, Error, ErrorKind, LirModule, Result, memory};
use rlx_select::or_panic;
use rlx_select::panic_guard;

use super::CompiledGraph;
use super::bind::Binder;
use super::bytes::{AlignedBytes, copy_block};
use super::slot::{Infos, Slot};
use super::tensor::TensorView;
/// What the places of outputs are relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    Arena,
    /// The only output, wherever it is.
    OnlyOutput,
    Copies,
}

/// The state of the last run's outputs.
pub(super) struct Outputs {
    device: DeviceId,
    pub(super) slots: Vec<Slot>,
    /// The symbols that a run binds, and the outputs that have them.
    data: Vec<u32>,
    counted: Vec<bool>,
    /// Whether a run has finished.
    ran: bool,
    /// Which outputs the last run was asked for; all, where `wanted_all`.
    wanted: Vec<usize>,
    wanted_all: bool,
    /// Under an active extent: the outputs in the caller's extents, once somebody reads them; and memory for that.
    expanded: Vec<OnceCell<AlignedBytes>>,
    spare: Vec<Cell<AlignedBytes>>,
    /// Outputs as f32, if there is no one place where they are that.
    copies: Vec<f32>,
    base: Base,
    /// Byte offset from the base and element count.
    places: Vec<(usize, usize)>,
}

impl Outputs {
    pub(super) fn new(device: DeviceId, lir: &LirModule, infos: &Infos) -> Self {
        let slots = Slot::all(infos, &lir.symbols);
        let data = lir.data_symbols();
        let found: HashSet<u32> = data.iter().copied().collect();
        let mentions = |d: &Dim| !d.is_static() && d.extent().symbols().iter().any(|s| found.contains(s));
        let counted = slots.iter().map(|slot| slot.shape().dims().iter().any(mentions)).collect();
        Outputs {
            device,
            wanted: Vec::new(),
            wanted_all: true,
            expanded: vec![OnceCell::new(); slots.len()],
            spare: slots.iter().map(|_| Cell::default()).collect(),
            places: vec![(0, 0); slots.len()],
            slots,
            counted,
            data,
            ran: false,
            copies: Vec::new(),
            base: Base::Arena,
        }
    }

    /// Nothing is valid until the next run is finished.
    pub(super) fn invalidate(&mut self) {
        self.ran = false;
        for (expanded, spare) in self.expanded.iter_mut().zip(&self.spare) {
            if let Some(bytes) = expanded.take() {
                spare.set(bytes);
            }
        }
    }

    pub(super) fn want_all(&mut self) {
        self.wanted_all = true;
    }

    pub(super) fn want(&mut self, indices: impl Iterator<Item = usize>) {
        self.wanted_all = false;
        self.wanted.clear();
        self.wanted.extend(indices);
    }

    pub(super) fn want_too(&mut self, index: usize) {
        self.wanted.push(index);
    }

    /// Which outputs the run is for; `None`: all.
    pub(super) fn wanted(&self) -> Option<&[usize]> {
        (!self.wanted_all).then_some(&self.wanted)
    }

    pub(super) fn count_wanted(&self) -> usize {
        self.wanted().map_or(self.slots.len(), <[usize]>::len)
    }

    /// The index of the `at`-th output that was asked for.
    pub(super) fn wanted_at(&self, at: usize) -> usize {
        self.wanted().map_or(at, |wanted| wanted[at])
    }

    /// Computes the dimensions of the outputs of the next run.
    pub(super) fn place(&mut self, binder: &Binder) -> Result<()> {
        for (slot, _) in self.slots.iter_mut().zip(&self.counted).filter(|(_, counted)| !**counted) {
            if !slot.evaluate(&binder.symbols, &binder.full, &binder.run) {
                let message =
                    format!("output {:?} has dimensions without a value: {}", slot.name(), slot.shape());
                return Err(Error::new(ErrorKind::Dimension, message));
            }
            if slot.cropped() && slot.dtype.bits() < 8 {
                let message =
                    format!("output {:?}: an active extent within packed {}", slot.name(), slot.dtype);
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        }
        Ok(())
    }

    /// The run is over, or on its way: computes the data-dependent dimensions.
    pub(super) fn finish(&mut self, exec: &dyn ExecutableGraph, binder: &Binder) -> Result<()> {
        self.find(exec.found(), binder)?;
        self.ran = true;
        Ok(())
    }

    /// Output `i`, of which the device computed a part, in the caller's extents.
    fn expand(&self, exec: &dyn ExecutableGraph, i: usize) -> Result<AlignedBytes> {
        let slot = &self.slots[i];
        let bytes = panic_guard::call(self.device, "giving an output", || exec.output(i))?;
        let size = slot.bytes().ok_or_else(|| too_large(slot))?;
        let mut expanded = self.spare[i].take();
        let whole = expanded.resize(size, || allocation_label(slot))?;
        if !bytes.is_empty() {
            copy_block(bytes, slot.run_dims(), whole, slot.dims(), slot.dtype.size_bytes());
        }
        Ok(expanded)
    }

    /// The dimensions of outputs with data-dependent dimensions.
    fn find(&mut self, found: &[i64], binder: &Binder) -> Result<()> {
        let data = &self.data;
        let value = |s: u32| match data.iter().position(|&d| d == s) {
            Some(i) => found.get(i).copied(),
            None => binder.symbols.binary_search(&s).ok().map(|i| binder.run[i]),
        };
        for (slot, _) in self.slots.iter_mut().zip(&self.counted).filter(|(_, counted)| **counted) {
            if !slot.evaluate_found(&value) {
                let message =
                    format!("output {:?}: the run found no value for {}", slot.name(), slot.shape());
                return Err(Error::new(ErrorKind::Internal, message));
            }
        }
        Ok(())
    }

    /// The bytes of output `i` in the caller's extents.
    pub(super) fn bytes<'a>(&'a self, exec: &'a dyn ExecutableGraph, i: usize) -> Result<&'a [u8]> {
        if !self.ran {
            return Err(Error::new(ErrorKind::Value, "nothing ran yet, so there are no outputs"));
        }
        if self.slots[i].cropped() {
            if let Some(known) = self.expanded[i].get() {
                return Ok(known.as_slice());
            }
            let expanded = self.expand(exec, i)?;
            return Ok(self.expanded[i].get_or_init(|| expanded).as_slice());
        }
        panic_guard::call(self.device, "giving an output", || exec.output(i))
    }

    /// The number of f32 values of output `i`.
    fn floats(&self, i: usize) -> Result<usize> {
        let slot = &self.slots[i];
        let n = slot.elements().and_then(|n| n.checked_mul(convert::floats_per_element(slot.dtype)));
        n.ok_or_else(|| too_large(slot))
    }

    /// Output `i` as f32 into `out`, which has that length.
    fn read_into(&self, exec: &dyn ExecutableGraph, i: usize, out: &mut [f32]) -> Result<()> {
        let slot = &self.slots[i];
        let count = slot.elements().ok_or_else(|| too_large(slot))?;
        convert::to_f32(slot.dtype, self.bytes(exec, i)?, count, out).map_err(|e| {
            Error::new(e.kind(), format!("output {:?}: {}", slot.name(), e.message())).with_source(e)
        })
    }

    fn read(&self, exec: &dyn ExecutableGraph, i: usize) -> Result<Vec<f32>> {
        let mut out = memory::zeroed(self.floats(i)?, || allocation_label(&self.slots[i]))?;
        self.read_into(exec, i, &mut out)?;
        Ok(out)
    }

    /// Computes the position of each output as f32, relative to one base: in the arena if all are there as f32, where it is if
    /// there is only one (in a handle's memory, say), otherwise in copies.
    fn locate(&mut self, exec: &dyn ExecutableGraph) -> Result<()> {
        let arena = exec.arena().map(|a| (a.as_ptr().addr(), a.len()));
        self.base = Base::Arena;
        for i in 0..self.slots.len() {
            let count = self.floats(i)?;
            let bytes = self.bytes(exec, i)?;
            let offset = arena.and_then(|(base, len)| {
                let offset = bytes.as_ptr().addr().checked_sub(base)?;
                (offset + bytes.len() <= len && count * 4 == bytes.len()).then_some(offset)
            });
            let plain = matches!(self.slots[i].dtype, rlx_ir::DType::F32 | rlx_ir::DType::C64);
            match offset {
                Some(offset) if plain => self.places[i] = (offset, count),
                None if plain && self.slots.len() == 1 && count * 4 == bytes.len() => {
                    self.places[i] = (0, count);
                    self.base = Base::OnlyOutput;
                }
                _ => return self.copy_all(exec),
            }
        }
        Ok(())
    }

    fn copy_all(&mut self, exec: &dyn ExecutableGraph) -> Result<()> {
        let mut total = 0usize;
        for i in 0..self.slots.len() {
            let count = self.floats(i)?;
            self.places[i] = (total * 4, count);
            total += count;
        }
        let mut copies = std::mem::take(&mut self.copies);
        if copies.len() < total {
            copies = memory::zeroed(total, || "the outputs as f32".into())?;
        }
        let mut copied = Ok(());
        for (i, &(offset, count)) in self.places.iter().enumerate() {
            copied = copied.and_then(|()| self.read_into(exec, i, &mut copies[offset / 4..][..count]));
        }
        self.copies = copies;
        self.base = Base::Copies;
        copied
    }
}

fn allocation_label(slot: &Slot) -> String {
    format!("output {:?}, {}", slot.name(), slot.shape())
}

fn too_large(slot: &Slot) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("output {:?} is too large: {}", slot.name(), slot.shape()))
}

impl CompiledGraph {
    fn check_output(&self, index: usize) -> Result<()> {
        let count = self.outputs.slots.len();
        if index < count {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Binding, format!("there is no output {index}: the graph has {count}")))
    }

    /// Checks that every index names an output.
    pub(super) fn check_outputs(&self, indices: &[usize]) -> Result<()> {
        indices.iter().try_for_each(|&i| self.check_output(i))
    }

    /// Output `index` of the last run as f32.
    ///
    /// # Errors
    /// An unknown output, no run yet, or an integer that is not exact in f32.
    pub fn try_read_output(&self, index: usize) -> Result<Vec<f32>> {
        self.check_output(index)?;
        self.outputs.read(&*self.exec, index)
    }

    /// Output `index` of the last run, in place. What the run did not bring to the host, because it was for other outputs, is
    /// copied there now.
    ///
    /// # Errors
    /// An unknown output, no run yet, or what a run that is waited for reports.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("exp");
    /// # let x = g.input("x", Shape::new(&[1], DType::F32));
    /// # let y = g.exp(x);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// assert!(compiled.try_output_view(0).is_err(), "nothing ran yet");
    /// compiled.execute(RunRequest::new().input("x", &[0.0]))?;
    /// assert_eq!(compiled.try_output_view(0)?.as_f32()?, [1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn try_output_view(&self, index: usize) -> Result<TensorView<'_>> {
        let bytes = self.output_bytes(index)?;
        let slot = &self.outputs.slots[index];
        Ok(TensorView { name: slot.name(), dtype: slot.dtype, dims: slot.dims(), bytes })
    }

    pub(super) fn output_bytes(&self, index: usize) -> Result<&[u8]> {
        self.check_output(index)?;
        self.outputs.bytes(&*self.exec, index)
    }

    pub(super) fn read_output_into(&self, index: usize, out: &mut [f32]) -> Result<()> {
        let want = self.outputs.floats(index)?;
        if want != out.len() {
            let slot = &self.outputs.slots[index];
            let message = format!(
                "output {:?} has {want} elements, the buffer given for it {}",
                slot.name(),
                out.len()
            );
            return Err(Error::new(ErrorKind::Binding, message));
        }
        self.outputs.read_into(&*self.exec, index, out)
    }

    /// The outputs of the last run in place, without copying. Empty before the first run.
    ///
    /// # Panics
    /// Only if the device lost its outputs since that run.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// compiled.run(&[("x", &[1.0, 2.0])]);
    /// let view = compiled.output_views().next().unwrap();
    /// assert_eq!(view.to_f32()?, [11.0, 22.0]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn output_views(&self) -> impl Iterator<Item = TensorView<'_>> {
        let count = if self.outputs.ran { self.outputs.slots.len() } else { 0 };
        (0..count).map(|i| or_panic(self.try_output_view(i)))
    }

    /// Elements `row * row_inner ..` of output `out` of the last run, `row_inner` of them; `None` out of range
    /// or before the first run.
    ///
    /// # Panics
    /// If an integer of that row is not exact in f32; [`CompiledGraph::try_read_output_row`] returns that error.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// compiled.run(&[("x", &[1.0, 2.0])]);
    /// assert_eq!(compiled.read_output_row(0, 1, 1), Some(vec![22.0]));
    /// assert_eq!(compiled.read_output_row(0, 2, 1), None);
    /// ```
    #[track_caller]
    pub fn read_output_row(&self, out: usize, row: usize, row_inner: usize) -> Option<Vec<f32>> {
        or_panic(self.try_read_output_row(out, row, row_inner))
    }

    /// As [`CompiledGraph::read_output_row`].
    ///
    /// # Errors
    /// [`ErrorKind::Value`] for an integer that is not exact in f32.
    pub fn try_read_output_row(&self, out: usize, row: usize, row_inner: usize) -> Result<Option<Vec<f32>>> {
        if !self.outputs.ran || out >= self.outputs.slots.len() {
            return Ok(None);
        }
        let slot = &self.outputs.slots[out];
        let count = slot.elements().unwrap_or(0);
        let range = row.checked_mul(row_inner).and_then(|start| Some(start..start.checked_add(row_inner)?));
        let Some(range) = range.filter(|r| r.end <= count) else { return Ok(None) };
        if slot.dtype.bits() < 8 {
            return Ok(Some(self.try_read_output(out)?[range].to_vec()));
        }
        let size = slot.dtype.size_bytes();
        let bytes = &self.output_bytes(out)?[range.start * size..range.end * size];
        let mut values = vec![0.0; row_inner * convert::floats_per_element(slot.dtype)];
        convert::to_f32(slot.dtype, bytes, row_inner, &mut values)?;
        Ok(Some(values))
    }

    pub(super) fn locate_outputs(&mut self) -> Result<&[(usize, usize)]> {
        self.outputs.locate(&*self.exec)?;
        Ok(&self.outputs.places)
    }

    /// The base of [`CompiledGraph::run_slots`]'s offsets: valid until the next run.
    pub fn arena_ptr(&self) -> *const u8 {
        let copies = || self.outputs.copies.as_ptr().cast();
        match self.outputs.base {
            Base::Arena => self.exec.arena().map_or_else(copies, <[u8]>::as_ptr),
            Base::OnlyOutput => self.output_bytes(0).map_or_else(|_| copies(), <[u8]>::as_ptr),
            Base::Copies => copies(),
        }
    }
}
