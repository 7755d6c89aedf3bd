//! The init program: what depends on parameters alone, made before the first run and again for what changed; shared with
//! other executables, kept in a file, taken from there. See [`crate::init`] for what runs when.

use std::borrow::Cow;
use std::sync::Arc;

use rlx_ir::lir::{BufferId, BufferKind};
use rlx_ir::progress::Stage;
use rlx_ir::{Error, ErrorKind, Progress, Result};

use super::api::{DeviceApi, Run};
use super::binding::Binding;
use super::params::Param;
use super::program::{Program, Step};
use super::run::Executor;
use crate::PreparedWeights;
use crate::extents::Values;
use crate::prepared::bytes_of;

/// What memory of the init program is for.
const PREPARED: &str = "prepared weights";

impl<D: DeviceApi> Program<D> {
    /// Bytes of the buffer that result `output` of an init step needs.
    fn prepared_bytes(&self, step: &Step<D::Kernel>, output: usize, values: &Values<'_>) -> Result<usize> {
        if let Some(bytes) = self.device.packed_bytes(&step.kernel, output, values)? {
            return Ok(bytes);
        }
        let (buffer, elements) = step.outputs[output];
        let elements = values.size(elements)?;
        self.lir.buffers[buffer]
            .dtype
            .storage_bytes(elements)
            .ok_or_else(|| Error::new(ErrorKind::OutOfMemory, format!("{elements} elements are too many")))
    }

    /// The buffers that a file keeps, with their sizes.
    fn lasting(&self) -> Result<Vec<(usize, usize)>> {
        let mut found = Vec::new();
        for (b, step) in self.init.lasting() {
            if let Some(output) = step.outputs.iter().position(|&(buffer, _)| buffer == b) {
                found.push((b, self.prepared_bytes(step, output, &Values(&[]))?));
            }
        }
        Ok(found)
    }
}

impl<D: DeviceApi> Executor<D> {
    /// Runs the init program for the parameters that changed, so that nothing is stale.
    pub(super) fn initialise_stale(&mut self, progress: &Progress) -> Result<()> {
        let program = Arc::clone(&self.program);
        self.params.check(&program.lir.params, |_| false)?;
        self.initialise(&program, progress)?;
        if program.init.symbolic_is_stale(&self.params.changed) {
            self.drop_bindings();
        }
        program.device.forget_weights(&mut self.queue);
        self.params.changed.fill(false);
        self.params.stale = false;
        Ok(())
    }

    /// Runs the init steps whose parameters changed. Where it stops early, everything is as stale as before.
    fn initialise(&mut self, program: &Program<D>, progress: &Progress) -> Result<()> {
        program.init.outdated(&self.params.changed).into_iter().for_each(|b| self.prepared[b] = None);
        self.find_prepared(program);
        let needed = program.init.needed(|b| self.prepared[b].is_none());
        self.load_params(program, |b| program.init.kept[b], progress)?;
        let mut fresh: Vec<Option<D::Memory>> = program.lir.buffers.iter().map(|_| None).collect();
        let count = program.init.steps.len();
        let chosen: Vec<usize> = (0..count).filter(|&at| needed[at]).collect();
        for batch in chosen.chunks(D::INIT_BATCH) {
            for &at in batch {
                let step = &program.init.steps[at].step;
                progress.step(Stage::Prepare, at, count, || program.op_name(step.node))?;
                self.load_params_of(program, at, progress)?;
                for (output, &(b, _)) in step.outputs.iter().enumerate() {
                    if fresh[b].is_none() {
                        let bytes = program.prepared_bytes(step, output, &Values(&[]));
                        let memory = bytes.and_then(|bytes| program.device.allocate(bytes, PREPARED));
                        let memory = memory.map_err(|e| program.locate(step.node, e))?;
                        self.places[b] = D::place(&memory);
                        fresh[b] = Some(memory);
                    }
                }
            }
            self.run_init(program, batch, &[], progress)?;
            for &at in batch {
                for b in program.init.steps[at].buffers() {
                    if program.init.last_use[b] == at && !program.init.kept[b] {
                        fresh[b] = None;
                        self.unload_param(program, b);
                    }
                }
            }
        }
        // Those that were set on the device at once, and that only steps read whose results were found.
        for slot in &program.lir.params {
            let b = slot.operand.buffer.index();
            if !program.init.kept[b] {
                self.unload_param(program, b);
            }
        }
        for (b, memory) in fresh.into_iter().enumerate().filter(|&(b, _)| program.init.kept[b]) {
            if let Some(memory) = memory {
                self.share_prepared(program, b, memory);
            }
        }
        self.params.used(&program.init.forgettable);
        Ok(())
    }

    /// Takes over what other executables made of the same weights.
    fn find_prepared(&mut self, program: &Program<D>) {
        for (&b, (key, params)) in &program.init.shareable {
            if self.prepared[b].is_none() {
                let weights = self.params.weights_of(params);
                self.prepared[b] = weights.and_then(|weights| program.device.prepared().get(*key, &weights));
            }
        }
        for (place, memory) in self.places.iter_mut().zip(&self.prepared) {
            if let Some(memory) = memory {
                *place = D::place(memory);
            }
        }
    }

    /// Keeps what an init step made, for others too.
    fn share_prepared(&mut self, program: &Program<D>, b: usize, memory: D::Memory) {
        let memory = Arc::new(memory);
        if let Some((key, params)) = program.init.shareable.get(&b)
            && let Some(weights) = self.params.weights_of(params)
        {
            let weights = weights.into_iter().cloned().collect();
            program.device.prepared().insert(*key, weights, &memory);
        }
        self.prepared[b] = Some(memory);
    }

    /// Loads the parameters that are wanted, and sets the places of those that are there.
    pub(super) fn load_params(
        &mut self,
        program: &Program<D>,
        wanted: impl Fn(usize) -> bool,
        progress: &Progress,
    ) -> Result<()> {
        for (at, slot) in program.lir.params.iter().enumerate() {
            self.place_param(program, at, wanted(slot.operand.buffer.index()), progress)?;
        }
        Ok(())
    }

    /// Loads the parameters that an init step reads, so that those of one step after the other are there and not all at once.
    fn load_params_of(&mut self, program: &Program<D>, at: usize, progress: &Progress) -> Result<()> {
        for &b in program.init.steps[at].inputs() {
            if let BufferKind::Param(param) = program.lir.buffers[b].kind {
                self.place_param(program, param, true, progress)?;
            }
        }
        Ok(())
    }

    /// Sets the place of a parameter, which is loaded first if it is wanted and is not there.
    fn place_param(
        &mut self,
        program: &Program<D>,
        at: usize,
        wanted: bool,
        progress: &Progress,
    ) -> Result<()> {
        let (slot, param) = (&program.lir.params[at], &mut self.params.of[at]);
        if let Some(Param::Set(weight)) = param.as_ref().filter(|_| wanted) {
            progress.check(Stage::Prepare)?;
            *param = Some(Param::Loaded(program.device.load(weight, &slot.name)?));
        }
        self.places[slot.operand.buffer.index()] = match param {
            Some(Param::Loaded(memory)) => D::place(memory),
            Some(Param::Set(_) | Param::Forgotten) | None => D::Place::default(),
        };
        Ok(())
    }

    /// A parameter that no later init step reads, and no run, is no longer in memory. It stays set, for an init program
    /// that stops early.
    fn unload_param(&mut self, program: &Program<D>, buffer: usize) {
        if let BufferKind::Param(param) = program.lir.buffers[buffer].kind {
            self.params.unload(param);
            self.places[buffer] = D::Place::default();
        }
    }

    /// Runs the init steps that depend on symbols, for the values of a binding.
    pub(super) fn initialise_symbolic(
        &mut self,
        program: &Program<D>,
        binding: &mut Binding<D>,
        progress: &Progress,
    ) -> Result<()> {
        let symbolic = |&at: &usize| program.init.steps[at].symbolic;
        if !(0..program.init.steps.len()).any(|at| symbolic(&at)) {
            return Ok(());
        }
        let chosen: Vec<usize> = (0..program.init.steps.len()).filter(symbolic).collect();
        program.device.forget_weights(&mut self.queue);
        let values = Values(&binding.values);
        // Memory of this binding alone is used again where it is large enough.
        let mut before = std::mem::take(&mut binding.prepared);
        for &at in &chosen {
            let step = &program.init.steps[at].step;
            for (output, &(b, _)) in step.outputs.iter().enumerate() {
                if binding.prepared.iter().any(|&(known, _)| known == b) {
                    continue;
                }
                let bytes = program.prepared_bytes(step, output, &values);
                let bytes = bytes.map_err(|e| program.locate(step.node, e))?;
                let old = before.iter().position(|(known, m)| *known == b && D::size(m) >= bytes);
                let memory = match old.map(|at| before.swap_remove(at).1) {
                    Some(memory) => memory,
                    None => Arc::new(program.device.allocate(program.device.with_room(bytes), PREPARED)?),
                };
                self.places[b] = D::place(&memory);
                binding.prepared.push((b, memory));
            }
        }
        drop(before);
        for batch in chosen.chunks(D::INIT_BATCH) {
            self.run_init(program, batch, &binding.values, progress)?;
        }
        Ok(())
    }

    /// Binds and runs some init steps.
    fn run_init(
        &mut self,
        program: &Program<D>,
        batch: &[usize],
        values: &[i64],
        progress: &Progress,
    ) -> Result<()> {
        // What is under way reads what is there now.
        self.settle()?;
        let (device, values) = (&program.device, Values(values));
        let steps = batch.iter().map(|&at| &program.init.steps[at].step);
        let mut sequence = device.sequence(&self.queue, steps.clone(), None)?;
        for (at, step) in steps.enumerate() {
            self.busy_with = Some(step.node);
            device.bind(&mut sequence, at, step, &values).map_err(|e| program.locate(step.node, e))?;
        }
        device.seal(&mut self.queue, &mut sequence)?;
        let run = Run {
            program,
            sequence: &mut sequence,
            steps: 0..batch.len(),
            places: &mut self.places,
            outputs: &[],
            stage: None,
            progress,
            found: &mut Vec::new(),
            busy_with: &mut self.busy_with,
            times: None,
        };
        device.submit(&mut self.queue, run)?;
        device.complete(program, &self.queue)
    }

    /// As [`Executor::initialise_stale`], outside a run.
    fn initialise_now(&mut self, progress: &Progress) -> Result<()> {
        let program = Arc::clone(&self.program);
        program.device.alive()?;
        program.device.begin(&mut self.queue)?;
        let done = self.initialise_stale(progress);
        program.device.end(&mut self.queue);
        done
    }
}

impl<D: DeviceApi> PreparedWeights for Executor<D> {
    fn spent_params(&self) -> Vec<bool> {
        self.program.init.forgettable.clone()
    }

    fn prepare(&mut self, progress: &Progress) -> Result<Vec<(BufferId, Cow<'_, [u8]>)>> {
        progress.check(Stage::Prepare)?;
        if self.params.stale {
            self.initialise_now(progress)?;
        }
        let lasting = self.program.lasting()?;
        let mut found = Vec::with_capacity(lasting.len());
        for &(b, size) in &lasting {
            progress.check(Stage::Prepare)?;
            let memory = self.prepared[b].as_ref();
            let memory =
                memory.ok_or_else(|| Error::new(ErrorKind::Internal, "an init step was left out"))?;
            found.push((BufferId(b as u32), self.program.device.download(memory, size)?));
        }
        Ok(found)
    }

    fn restore(&mut self, prepared: &[(BufferId, &[u8])]) -> Result<()> {
        let program = Arc::clone(&self.program);
        let device = &program.device;
        let given = bytes_of(&program.lasting()?, prepared).map_err(|e| e.with_device(device.name()))?;
        let spent = &program.init.forgettable;
        self.params.check(&program.lir.params, |i| spent[i])?;
        let (buffers, bytes): (Vec<usize>, Vec<&[u8]>) = given.into_iter().unzip();
        let memories = device.upload_all(&bytes, PREPARED)?;
        self.params.spend(spent);
        self.load_params(&program, |b| program.init.kept[b], &Progress::none())?;
        for (b, memory) in buffers.into_iter().zip(memories) {
            self.places[b] = D::place(&memory);
            self.prepared[b] = Some(Arc::new(memory));
        }
        self.params.changed.fill(false);
        self.params.stale = false;
        self.drop_bindings();
        Ok(())
    }
}
