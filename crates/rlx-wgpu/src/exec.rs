//! The executable: a program bound to dimensions, with its pools, parameters and prepared buffers.
//!
//! A run is one submission: clear the fault record, every dispatch in order, copy outputs and record to memory
//! the host can see. Outputs that feed handles stay on the device until somebody asks for them. Bind groups are
//! made again only when a buffer behind them was replaced, extents are written again only for new dimensions.

mod prepared;

use std::cell::OnceCell;
use std::sync::{Arc, Weak};

use rlx_backend::checks;
use rlx_backend::extents::Values;
use rlx_backend::plans::{is_enough, plan_for_run};
use rlx_backend::{CodePart, DeviceHandles, ExecutableGraph, InputSource, MemoryInfo, PreparedWeights};
use rlx_ir::lir::{BufferKind, MemoryPlan};
use rlx_ir::{Error, ErrorKind, LirModule, Result, Weight};
use rlx_kernel::render::FAULT_WORDS;

use crate::backend::KERNELS;
use crate::dispatch::{Bound, Uniforms};
use crate::handles::Handles;
use crate::memory::{DeviceBuffer, Range, whole_words};
use crate::program::Program;

/// Bytes of the fault record.
const FAULT_BYTES: usize = 4 * FAULT_WORDS;
/// Alignment of outputs in host memory.
const HOST_ALIGN: usize = 64;

/// A parameter's state.
#[derive(Clone)]
enum Param {
    /// On the device.
    Set(Arc<DeviceBuffer>),
    /// Used up by the init program.
    Forgotten,
}

/// A module on a device.
pub(crate) struct WgpuExecutable {
    pub(crate) program: Arc<Program>,
    params: Vec<Option<Param>>,
    /// How many bytes each was set to.
    param_bytes: Vec<usize>,
    /// How many bytes each input must have for the present dimensions.
    input_bytes: Vec<usize>,
    /// Which weights the parameters were set to.
    weights: Vec<Option<Weak<Weight>>>,
    /// Parameters set since the init program ran.
    changed: Vec<bool>,
    initialised: bool,
    /// Buffers of the init program, by number.
    prepared: Vec<Option<Arc<DeviceBuffer>>>,
    plan: Option<Arc<MemoryPlan>>,
    /// Bytes that each arena buffer is bound with.
    bound_bytes: Vec<u64>,
    pools: Vec<DeviceBuffer>,
    inputs: Vec<Option<DeviceBuffer>>,
    pub(crate) handles: Handles,
    faults: DeviceBuffer,
    uniforms: Uniforms,
    /// The bind groups of the run; `None` when a buffer was replaced. Two, because buffers of handles that outputs
    /// feed change places with every run.
    bound: [Option<Bound>; 2],
    /// Which of them the next run uses.
    turn: usize,
    /// What the present binding is for; `None` before the first run.
    dims: Option<Vec<i64>>,
    values: Vec<i64>,
    /// What comes back: outputs, then the fault record.
    readback: Option<DeviceBuffer>,
    host: Vec<u64>,
    /// Place and length of each output in `host`; those that feed handles have no place.
    outputs: Vec<(Option<usize>, usize)>,
    /// Where the fault record is in `host`.
    fault_at: usize,
    /// Whether `outputs` are placed for the present dimensions and feeds.
    placed: bool,
    /// By output: what was fetched because somebody asked for it.
    fetched: Vec<OnceCell<Vec<u64>>>,
    ran: bool,
}

impl WgpuExecutable {
    pub(crate) fn new(program: Arc<Program>) -> Result<WgpuExecutable> {
        let (gpu, lir) = (&program.gpu, &program.lir);
        let faults = DeviceBuffer::storage(gpu, FAULT_BYTES as u64, "the fault record")?;
        Ok(WgpuExecutable {
            params: vec![None; lir.params.len()],
            param_bytes: vec![0; lir.params.len()],
            input_bytes: Vec::new(),
            weights: vec![None; lir.params.len()],
            changed: vec![true; lir.params.len()],
            initialised: false,
            prepared: vec![None; lir.buffers.len()],
            plan: None,
            bound_bytes: vec![0; lir.buffers.len()],
            pools: Vec::new(),
            inputs: lir.inputs.iter().map(|_| None).collect(),
            handles: Handles::new(lir),
            faults,
            uniforms: Uniforms::new(gpu, program.dispatches())?,
            bound: [None, None],
            turn: 0,
            dims: None,
            values: Vec::new(),
            readback: None,
            host: Vec::new(),
            outputs: vec![(None, 0); lir.outputs.len()],
            fault_at: 0,
            placed: false,
            fetched: vec![OnceCell::new(); lir.outputs.len()],
            ran: false,
            program,
        })
    }

    /// A buffer behind the bind groups was replaced.
    pub(crate) fn unbind(&mut self) {
        self.bound = [None, None];
    }

    /// Other outputs than before feed handles.
    pub(crate) fn feeds_changed(&mut self) {
        self.bound[1 - self.turn] = None;
        self.placed = false;
    }

    fn bug(&self, what: impl Into<String>) -> Error {
        self.program.gpu.error(ErrorKind::Internal, what)
    }

    /// Where a buffer of the module is.
    fn range(&self, buffer: usize) -> Result<Range<'_>> {
        let program = &*self.program;
        let missing = || self.bug(format!("buffer {buffer} has no memory"));
        match &program.lir.buffers[buffer].kind {
            BufferKind::Input(i) => {
                let own = || self.inputs[*i].as_ref().map(DeviceBuffer::whole);
                self.handles.range(*i).or_else(own).ok_or_else(missing)
            }
            BufferKind::Param(i) => match &self.params[*i] {
                Some(Param::Set(memory)) => Ok(memory.whole()),
                _ => Err(missing()),
            },
            BufferKind::Prepared => self.prepared[buffer].as_ref().map(|m| m.whole()).ok_or_else(missing),
            BufferKind::Constant(_) => {
                let (pool, offset, bytes) = program.constants[buffer].ok_or_else(missing)?;
                Ok(Range { buffer: &program.constant_pools[pool], offset, bytes })
            }
            BufferKind::Arena => {
                let plan = self.plan.as_ref().ok_or_else(missing)?;
                let offset = plan.offsets[buffer].ok_or_else(missing)? as u64;
                let pool = self.pools.get(plan.pool_of[buffer] as usize).ok_or_else(missing)?;
                Ok(Range { buffer: pool, offset, bytes: self.bound_bytes[buffer] })
            }
        }
    }

    /// Rejects parameters that were never set, where they are needed.
    fn check_params(&self, needed: impl Fn(usize) -> bool) -> Result<()> {
        let unset = |&(i, param): &(usize, &Option<Param>)| param.is_none() && needed(i);
        match self.params.iter().enumerate().find(unset) {
            None => Ok(()),
            Some((i, _)) => {
                let message = format!("parameter {:?} was never set", self.program.lir.params[i].name);
                Err(Error::new(ErrorKind::Binding, message).with_hint("call set_param first"))
            }
        }
    }

    /// Makes the prepared buffers fit the parameters.
    fn refresh(&mut self) -> Result<()> {
        if self.initialised && !self.changed.contains(&true) {
            return Ok(());
        }
        self.initialise()?;
        if self.program.init.symbolic_is_stale(&self.changed) {
            self.dims = None;
        }
        self.changed.fill(false);
        Ok(())
    }

    /// Runs the init steps whose parameters changed.
    fn initialise(&mut self) -> Result<()> {
        self.check_params(|_| true)?;
        let program = Arc::clone(&self.program);
        program.init.outdated(&self.changed).into_iter().for_each(|b| self.prepared[b] = None);
        self.find_prepared(&program);
        let needed = program.init.needed(|b| self.prepared[b].is_none());
        let chosen: Vec<usize> = (0..needed.len()).filter(|&at| needed[at]).collect();
        self.run_init(&chosen, &[])?;
        self.share_prepared(&program, &chosen);
        for (buffer, memory) in self.prepared.iter_mut().enumerate() {
            if !program.init.kept[buffer] {
                *memory = None;
            }
        }
        for (param, &forgettable) in self.params.iter_mut().zip(&program.init.forgettable) {
            if forgettable && param.is_some() {
                *param = Some(Param::Forgotten);
            }
        }
        self.initialised = true;
        Ok(())
    }

    /// Runs these init steps in one submission. What they write is new memory: clones share the old.
    fn run_init(&mut self, chosen: &[usize], values: &[i64]) -> Result<()> {
        if chosen.is_empty() {
            return Ok(());
        }
        let program = Arc::clone(&self.program);
        let steps = || chosen.iter().map(|&at| &program.init.steps[at].step);
        let values = Values(values);
        let mut fresh = vec![false; self.prepared.len()];
        for step in steps() {
            let placed = |e| program.place(step.node, e);
            step.views.iter().try_for_each(|view| view.holds(&values)).map_err(placed)?;
            for &(buffer, elements) in step.outputs.iter() {
                if !std::mem::replace(&mut fresh[buffer], true) {
                    let bytes = values.size(elements).and_then(|n| storage_bytes(&program, buffer, n));
                    let memory =
                        DeviceBuffer::storage(&program.gpu, bytes.map_err(placed)?, "a prepared parameter");
                    self.prepared[buffer] = Some(Arc::new(memory.map_err(placed)?));
                }
            }
        }
        self.unbind();
        let dispatches = || steps().flat_map(|s| &s.dispatches);
        let mut uniforms = Uniforms::new(&program.gpu, dispatches())?;
        let grids = uniforms.write(&program, steps(), &values)?;
        let bound = Bound::new(&program, dispatches(), &uniforms, &self.faults, |b| self.range(b))?;
        let readback = DeviceBuffer::readback(&program.gpu, FAULT_BYTES as u64)?;
        bound.submit(&program, dispatches(), &grids, &self.faults, |encoder| {
            encoder.copy_buffer_to_buffer(&self.faults.raw, 0, &readback.raw, 0, FAULT_BYTES as u64);
        })?;
        if dispatches().any(|d| d.can_fail) {
            let mut record = [0; FAULT_BYTES];
            readback.read(&program.gpu, &mut record)?;
            program.fault(&record, steps())?;
        }
        Ok(())
    }

    /// Puts new dimensions in: checks, plan, extents.
    fn rebind(&mut self, dims: &[i64]) -> Result<()> {
        // An error leaves nothing bound.
        self.dims = None;
        let program = Arc::clone(&self.program);
        checks::symbols(&program.lir, dims)?;
        program.table.eval(&program.lir.symbols, dims, &mut self.values)?;
        let values = std::mem::take(&mut self.values);
        let bound = self.rebind_values(&program, dims, &values);
        self.values = values;
        bound?;
        self.dims = Some(dims.to_vec());
        Ok(())
    }

    fn rebind_values(&mut self, program: &Program, dims: &[i64], numbers: &[i64]) -> Result<()> {
        let values = Values(numbers);
        let position = |s: u32| program.lir.symbols.binary_search(&s).ok();
        let value = |s: u32| position(s).and_then(|i| dims.get(i).copied());
        program.rules.hold(None, &value).map_err(|e| e.with_device(program.gpu.name.name()))?;
        let [inputs, params] = &program.given;
        params.check_all(&values, |i| {
            matches!(self.params[i], Some(Param::Set(_))).then_some(self.param_bytes[i])
        })?;
        inputs.bytes(&values, &mut self.input_bytes)?;
        self.place_pools(dims)?;
        let symbolic: Vec<usize> =
            (0..program.init.steps.len()).filter(|&at| program.init.steps[at].symbolic).collect();
        self.run_init(&symbolic, numbers)?;
        for step in &program.steps {
            let held = step.views.iter().try_for_each(|view| view.holds(&values));
            held.map_err(|e| program.place(step.node, e))?;
        }
        let grids = self.uniforms.write(program, program.steps.iter(), &values)?;
        self.uniforms.grids = grids;
        self.placed = false;
        Ok(())
    }

    /// Makes sure the pools are planned for these dimensions: where they are not, for the next powers of two,
    /// or, where those do not fit the device, for just these.
    fn place_pools(&mut self, dims: &[i64]) -> Result<()> {
        let program = Arc::clone(&self.program);
        let lir = &program.lir;
        if self.plan.as_deref().is_some_and(|plan| is_enough(plan, lir, dims)) {
            return Ok(());
        }
        if let Some(plan) = lir.plan.as_ref().filter(|plan| is_enough(plan, lir, dims)) {
            return self.use_plan(Arc::new(plan.clone()));
        }
        let before = self.plan.clone();
        plan_for_run(lir, before.as_deref(), dims, program.target.pool, |plan| {
            tracing::debug!(module = %lir.name, bytes = plan.arena_bytes, "planned for larger dimensions");
            self.use_plan(Arc::new(plan))
        })
    }

    fn use_plan(&mut self, plan: Arc<MemoryPlan>) -> Result<()> {
        let program = Arc::clone(&self.program);
        (self.ran, self.plan) = (false, None);
        self.unbind();
        for range in &program.lir.live_ranges {
            let buffer = &program.lir.buffers[range.buffer.index()];
            let bytes = rlx_opt::plan::buffer_bytes(buffer.elements, buffer.dtype, &plan.bounds)?;
            self.bound_bytes[range.buffer.index()] = whole_words(bytes as u64);
        }
        let large_enough = |have: &DeviceBuffer, want: usize| have.len() >= want as u64;
        let keep = self.pools.len() == plan.pools.len()
            && self.pools.iter().zip(&plan.pools).all(|(have, &want)| large_enough(have, want));
        if !keep {
            self.pools.clear();
            for (i, &bytes) in plan.pools.iter().enumerate() {
                self.pools.push(DeviceBuffer::pool(&program.gpu, bytes as u64, &format!("pool {i}"))?);
            }
        }
        self.plan = Some(plan);
        Ok(())
    }

    /// Lays the outputs out in host memory, the fault record behind them; those that feed handles stay away.
    fn place_outputs(&mut self) -> Result<()> {
        let program = Arc::clone(&self.program);
        let values = Values(&self.values);
        let mut end = 0usize;
        for (i, (slot, &elements)) in program.lir.outputs.iter().zip(&program.output_elements).enumerate() {
            let bytes =
                storage_bytes(&program, slot.operand.buffer.index(), values.size(elements)?)? as usize;
            let comes = !self.handles.is_fed_by(i);
            self.outputs[i] = (comes.then_some(end), bytes);
            if comes {
                end = end.saturating_add(bytes).next_multiple_of(HOST_ALIGN);
            }
        }
        self.fault_at = end;
        let total = end.saturating_add(FAULT_BYTES);
        self.host.resize(total.div_ceil(8), 0);
        if self.readback.as_ref().is_none_or(|r| r.len() < total as u64) {
            self.readback = Some(DeviceBuffer::readback(&program.gpu, (total as u64).next_power_of_two())?);
        }
        self.placed = true;
        Ok(())
    }

    fn load_inputs(&mut self, inputs: &dyn InputSource) -> Result<()> {
        let program = Arc::clone(&self.program);
        for (i, slot) in program.lir.inputs.iter().enumerate() {
            let from_handle = inputs.handle(i);
            let [sizes, _] = &program.given;
            let have = from_handle.unwrap_or_else(|| inputs.bytes(i).len());
            sizes.check(i, have, self.input_bytes[i])?;
            if self.handles.choose(i, &slot.name, from_handle)? {
                self.unbind();
            }
            if from_handle.is_some() {
                if self.handles.make_own(&program.gpu, i)? {
                    self.unbind();
                }
                continue;
            }
            let bytes = inputs.bytes(i);
            let size = whole_words(bytes.len() as u64);
            if self.inputs[i].as_ref().is_none_or(|memory| memory.len() < size) {
                let what = format!("input {:?}", slot.name);
                // Room to grow, where the device binds that much.
                let room = size.next_power_of_two().min(program.gpu.limits.max_storage_buffer_binding_size);
                self.inputs[i] = None;
                self.inputs[i] = Some(DeviceBuffer::storage(&program.gpu, room.max(size), &what)?);
                self.unbind();
            }
            if let Some(memory) = &self.inputs[i] {
                memory.write(&program.gpu, bytes)?;
            }
        }
        Ok(())
    }

    /// One submission, and its outputs to the host.
    fn execute(&mut self) -> Result<()> {
        let program = Arc::clone(&self.program);
        if self.handles.make_room(&program.gpu, |output| self.outputs[output].1)? {
            self.bound[1 - self.turn] = None;
        }
        if self.bound[self.turn].is_none() {
            let range = |b| self.range(b);
            let bound = Bound::new(&program, program.dispatches(), &self.uniforms, &self.faults, range)?;
            self.bound[self.turn] = Some(bound);
        }
        let (Some(bound), Some(readback)) = (&self.bound[self.turn], &self.readback) else {
            return Err(self.bug("a run without buffers"));
        };
        let mut copies = Vec::with_capacity(self.outputs.len());
        for (output, &(place, bytes)) in self.outputs.iter().enumerate() {
            if let Some(at) = place.filter(|_| bytes > 0) {
                copies.push((self.output_range(output)?, readback, at as u64));
            }
        }
        for (output, to) in self.handles.copies().filter(|&(output, _)| self.outputs[output].1 > 0) {
            copies.push((self.output_range(output)?, to, 0));
        }
        bound.submit(&program, program.dispatches(), &self.uniforms.grids, &self.faults, |encoder| {
            for (from, to, at) in &copies {
                encoder.copy_buffer_to_buffer(&from.buffer.raw, from.offset, &to.raw, *at, from.bytes);
            }
            let (fault, at) = (&self.faults.raw, self.fault_at as u64);
            encoder.copy_buffer_to_buffer(fault, 0, &readback.raw, at, FAULT_BYTES as u64);
        })?;
        let host: &mut [u8] = bytemuck::cast_slice_mut(&mut self.host);
        readback.read(&program.gpu, &mut host[..self.fault_at + FAULT_BYTES])?;
        program.fault(&host[self.fault_at..][..FAULT_BYTES], &program.steps)?;
        if self.handles.exchange(|output| self.outputs[output].1) {
            self.turn = 1 - self.turn;
        }
        Ok(())
    }

    /// Where an output of the present binding is on the device: as many bytes as it has.
    fn output_range(&self, output: usize) -> Result<Range<'_>> {
        let buffer = self.program.lir.outputs[output].operand.buffer.index();
        Ok(Range { bytes: whole_words(self.outputs[output].1 as u64), ..self.range(buffer)? })
    }

    /// Copies the first bytes of a range (a multiple of four) to the host, in a submission of its own.
    pub(crate) fn download(&self, from: Range<'_>, out: &mut [u8]) -> Result<()> {
        let gpu = &self.program.gpu;
        let to = DeviceBuffer::readback(gpu, out.len() as u64)?;
        gpu.checked(&|| "reading from the device".to_string(), || {
            let mut encoder = gpu.device.create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(&from.buffer.raw, from.offset, &to.raw, 0, out.len() as u64);
            gpu.queue.submit([encoder.finish()]);
        })?;
        to.read(gpu, out)
    }

    /// An output that did not come with the run: it fed a handle.
    fn fetch(&self, output: usize) -> Result<&[u8]> {
        let bytes = self.outputs[output].1;
        if let Some(known) = self.fetched[output].get() {
            return Ok(&bytemuck::cast_slice(known)[..bytes]);
        }
        let mut words = vec![0u64; bytes.div_ceil(8)];
        if bytes > 0 {
            let out: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
            self.download(self.output_range(output)?, &mut out[..whole_words(bytes as u64) as usize])?;
        }
        Ok(&bytemuck::cast_slice(self.fetched[output].get_or_init(|| words))[..bytes])
    }
}

/// Bytes of `elements` elements of a buffer.
fn storage_bytes(program: &Program, buffer: usize, elements: usize) -> Result<u64> {
    let bytes = program.lir.buffers[buffer].dtype.storage_bytes(elements);
    bytes
        .map(|b| b as u64)
        .ok_or_else(|| Error::new(ErrorKind::OutOfMemory, format!("{elements} elements are too many")))
}

impl ExecutableGraph for WgpuExecutable {
    fn lir(&self) -> &Arc<LirModule> {
        &self.program.lir
    }

    fn set_param(&mut self, index: usize, weight: Arc<Weight>) -> Result<()> {
        let program = &self.program;
        let [_, sizes] = &program.given;
        let depends_on_symbols = sizes.check_weight(index, &weight)?;
        let memory = program.gpu.upload(&weight, &program.lir.params[index].name)?;
        if depends_on_symbols {
            // Its size is checked with the dimensions of the next run.
            self.dims = None;
        }
        self.param_bytes[index] = weight.size_bytes().unwrap_or(usize::MAX);
        self.params[index] = Some(Param::Set(memory));
        self.weights[index] = Some(Arc::downgrade(&weight));
        self.changed[index] = true;
        self.unbind();
        Ok(())
    }

    fn run(&mut self, inputs: &dyn InputSource, dims: &[i64]) -> Result<()> {
        self.ran = false;
        self.fetched.iter_mut().for_each(|fetched| _ = fetched.take());
        self.program.gpu.alive()?;
        self.refresh()?;
        if self.dims.as_deref() != Some(dims) {
            self.rebind(dims)?;
        }
        self.load_inputs(inputs)?;
        if !self.placed {
            self.place_outputs()?;
        }
        if let Err(e) = self.execute() {
            self.handles.lose_updated();
            return Err(e);
        }
        self.ran = true;
        Ok(())
    }

    fn output(&self, index: usize) -> Result<&[u8]> {
        match self.outputs.get(index).filter(|_| self.ran) {
            Some(&(Some(at), bytes)) => Ok(&bytemuck::cast_slice(&self.host)[at..at + bytes]),
            Some((None, _)) => self.fetch(index),
            None => Err(Error::new(ErrorKind::Binding, format!("there is no output {index} before a run"))),
        }
    }

    fn handles(&self) -> Option<&dyn DeviceHandles> {
        Some(self)
    }

    fn handles_mut(&mut self) -> Option<&mut dyn DeviceHandles> {
        Some(self)
    }

    fn arena(&self) -> Option<&[u8]> {
        Some(bytemuck::cast_slice(&self.host))
    }

    fn memory(&self) -> MemoryInfo {
        let params = self.params.iter().flatten().map(|p| match p {
            Param::Set(memory) => memory.len(),
            Param::Forgotten => 0,
        });
        let prepared = self.prepared.iter().flatten().map(|m| m.len());
        MemoryInfo {
            arena_bytes: self.plan.as_ref().map_or(0, |p| p.arena_bytes),
            weight_bytes: (params.sum::<u64>() + prepared.sum::<u64>()) as usize,
            largest_live_set: self.plan.as_ref().map_or(0, |p| p.largest_live_set),
        }
    }

    fn try_clone(&self) -> Result<Box<dyn ExecutableGraph>> {
        let mut clone = WgpuExecutable::new(Arc::clone(&self.program))?;
        clone.params.clone_from(&self.params);
        clone.param_bytes.clone_from(&self.param_bytes);
        clone.weights.clone_from(&self.weights);
        clone.changed.clone_from(&self.changed);
        clone.initialised = self.initialised;
        clone.prepared.clone_from(&self.prepared);
        clone.handles = self.handles.values();
        Ok(Box::new(clone))
    }

    fn prepared_weights(&mut self) -> Option<&mut dyn PreparedWeights> {
        Some(self)
    }

    fn code(&self) -> Result<Vec<CodePart>> {
        Ok(vec![CodePart { name: KERNELS.to_owned(), bytes: self.program.launches.to_bytes()? }])
    }

    fn drain(&mut self) -> Result<()> {
        self.program.gpu.wait()
    }
}
