//! The executor's state, and the way of a run through it.

use std::cell::{Cell, OnceCell};
use std::ops::Range;
use std::sync::Arc;

use rlx_ir::clock::Instant;
use rlx_ir::lir::MemoryPlan;
use rlx_ir::panics::catch;
use rlx_ir::progress::Stage;
use rlx_ir::{Error, ErrorKind, NodeId, Progress, Result};

use super::api::{DeviceApi, Output, Run};
use super::binding::Binding;
use super::handles::Handles;
use super::params::Params;
use super::program::Program;
use crate::extents::Values;
use crate::profile::profiling_asked;
use crate::{BindingStats, InputSource, RunOptions, StepProfile, StepProfiler};

/// A module on a device.
pub struct Executor<D: DeviceApi> {
    pub(super) program: Arc<Program<D>>,
    pub(super) queue: D::Queue,
    pub(super) params: Params<D::Memory>,
    /// Buffers of the init program that do not depend on symbols, by number.
    pub(super) prepared: Vec<Option<Arc<D::Memory>>>,
    /// Where each buffer is; the last place is the device's own.
    pub(super) places: Vec<D::Place>,
    /// Where each output is when it feeds no handle.
    pub(super) homes: Vec<D::Place>,
    pub(super) plan: Option<Arc<MemoryPlan>>,
    /// Whether its memory is there.
    pub(super) plan_in_use: bool,
    /// What the last run was bound to, and other bindings that are kept.
    pub(super) present: Option<Binding<D>>,
    pub(super) others: Vec<Binding<D>>,
    /// Counts changes of the binding.
    pub(super) clock: u64,
    pub(super) stats: BindingStats,
    /// The numbers of the binding that new dimensions are put in.
    pub(super) values_before: Vec<i64>,
    /// Copies of inputs that the device cannot read in place.
    pub(super) inputs: Vec<Option<D::Memory>>,
    pub(super) handles: Handles<D::Memory>,
    pub(super) outputs: Vec<Output>,
    /// What the last step that counts found.
    pub(super) counted: Vec<usize>,
    /// By output: what was copied to the host because somebody asked for it.
    pub(super) fetched: Vec<OnceCell<Vec<u8>>>,
    pub(super) ran: bool,
    /// How many runs are under way.
    pub(super) in_flight: Cell<usize>,
    /// Whether `output` gives the outputs of the run that was collected last, not of the newest one.
    pub(super) collected: bool,
    /// Whether a run failed while others were under way, so that what they updated is lost.
    pub(super) lost: Cell<bool>,
    /// Which node is being prepared, bound or computed: what a panic is blamed on.
    pub(super) busy_with: Option<NodeId>,
    pub(super) profile: Option<Vec<StepProfile>>,
}

impl<D: DeviceApi> Executor<D> {
    /// An executable of a program.
    ///
    /// # Errors
    /// Memory that cannot be had.
    pub fn new(program: Arc<Program<D>>) -> Result<Self> {
        let queue = program.device.queue(&program, None)?;
        Ok(Self::with_queue(program, queue))
    }

    pub(super) fn with_queue(program: Arc<Program<D>>, queue: D::Queue) -> Self {
        let lir = &program.lir;
        let buffers = lir.buffers.len();
        let mut places: Vec<D::Place> =
            (0..buffers).map(|b| program.device.constant(b).unwrap_or_default()).collect();
        places.push(D::Place::default());
        let outputs = program.outputs.iter();
        let mut executor = Executor {
            queue,
            params: Params::new(lir.params.len()),
            prepared: (0..buffers).map(|_| None).collect(),
            places,
            homes: vec![D::Place::default(); lir.outputs.len()],
            plan: lir.plan.clone().map(Arc::new),
            plan_in_use: false,
            present: None,
            others: Vec::new(),
            clock: 0,
            stats: BindingStats::default(),
            values_before: Vec::new(),
            inputs: lir.inputs.iter().map(|_| None).collect(),
            handles: Handles::new(lir.inputs.len(), &program.donated),
            outputs: outputs.map(|o| Output { buffer: o.buffer, bytes: 0, stays: false }).collect(),
            counted: Vec::new(),
            fetched: vec![OnceCell::new(); lir.outputs.len()],
            ran: false,
            in_flight: Cell::new(0),
            collected: false,
            lost: Cell::new(false),
            busy_with: None,
            profile: None,
            program,
        };
        if profiling_asked() && executor.program.device.times_steps() {
            executor.start();
        }
        executor
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program<D>> {
        &self.program
    }

    /// Nothing is bound any more.
    pub(super) fn drop_bindings(&mut self) {
        self.present = None;
        self.others.clear();
    }

    /// Says where the inputs are, each as large as it must be; those that the device cannot read in place, or that are updated
    /// there, are copied.
    fn load_inputs(&mut self, inputs: &dyn InputSource) -> Result<()> {
        for i in 0..self.inputs.len() {
            let size = self.present.as_ref().and_then(|b| b.input_bytes.get(i).copied()).unwrap_or(0);
            let sizes = &self.program.given[0];
            let operand = &self.program.lir.inputs[i].operand;
            let (buffer, element) = (operand.buffer.index(), operand.dtype.size_bytes());
            if let Some(want) = inputs.handle(i) {
                sizes.check(i, want, size)?;
                self.places[buffer] = self.handle_place(i, want)?;
                self.handles.supply(i, true);
                continue;
            }
            let bytes = inputs.bytes(i);
            sizes.check(i, bytes.len(), size)?;
            self.handles.supply(i, false);
            let in_place =
                if self.handles.is_updated(i) { None } else { self.program.device.borrow(bytes, element) };
            self.places[buffer] = match in_place {
                Some(place) => place,
                None => self.copy_input(i, bytes)?,
            };
        }
        Ok(())
    }

    fn copy_input(&mut self, i: usize, bytes: &[u8]) -> Result<D::Place> {
        if self.inputs[i].as_ref().is_none_or(|copy| D::size(copy) < bytes.len()) {
            self.inputs[i] = None;
            self.forget_places();
            let what = format!("input {:?}", self.program.lir.inputs[i].name);
            let device = &self.program.device;
            self.inputs[i] = Some(device.allocate(device.with_room(bytes.len()), &what)?);
        }
        let device = &self.program.device;
        match &mut self.inputs[i] {
            Some(copy) => {
                device.upload(copy, bytes)?;
                Ok(D::place(copy))
            }
            None => Ok(D::Place::default()),
        }
    }

    /// Starts a run; [`Executor::settle`] waits for it. A panic in it (a fault of a kernel or a custom op) is an error that
    /// names the node. By then nothing of it runs any more, and the executable is as after any other error.
    pub(super) fn start_run(
        &mut self,
        inputs: &dyn InputSource,
        dims: &[i64],
        options: RunOptions<'_>,
    ) -> Result<()> {
        (self.ran, self.collected) = (false, false);
        self.busy_with = None;
        if self.lost.take() {
            self.handles.lose(true);
        }
        self.fetched.iter_mut().for_each(|fetched| _ = fetched.take());
        let started = self.program.device.alive().and_then(|()| {
            catch(|| self.start_guarded(inputs, dims, options)).unwrap_or_else(|text| {
                let error = Error::new(ErrorKind::Panic, format!("it panicked: {text}"));
                Err(match self.busy_with {
                    Some(node) => self.program.locate(node, error),
                    None => error.with_device(self.program.device.name()),
                })
            })
        });
        if started.is_err() {
            self.fail();
        }
        self.program.device.end(&mut self.queue);
        started
    }

    /// A run failed: what it replaced is put back where the device can do that, or lost.
    pub(super) fn fail(&mut self) {
        if !self.program.device.roll_back(&mut self.queue) {
            self.handles.lose(false);
        }
    }

    /// A run that may panic.
    fn start_guarded(
        &mut self,
        inputs: &dyn InputSource,
        dims: &[i64],
        options: RunOptions<'_>,
    ) -> Result<()> {
        let progress = options.progress;
        self.program.device.begin(&mut self.queue)?;
        if self.params.stale {
            self.initialise_stale(progress)?;
        }
        self.select(dims, progress)?;
        self.load_inputs(inputs)?;
        let counts = !self.program.stages.list.is_empty();
        if counts {
            self.size_outputs(false)?;
        }
        self.redirect_outputs(options)?;
        self.run_steps(progress)?;
        if counts {
            self.size_outputs(true)?;
        }
        Ok(())
    }

    /// The steps of the present binding, in parts behind each step that counts.
    fn run_steps(&mut self, progress: &Progress) -> Result<()> {
        let Executor { program, queue, present, places, outputs, counted, busy_with, profile, .. } = self;
        let program: &Program<D> = program;
        let Some(binding) = present else {
            return Err(Error::new(ErrorKind::Internal, "a run without a binding"));
        };
        let begun = profile.is_some().then(Instant::now);
        let mut part = |queue: &mut D::Queue,
                        sequence: &mut D::Sequence,
                        steps: Range<usize>,
                        found: &mut Vec<usize>| {
            let run = Run {
                program,
                sequence,
                steps,
                places: &mut *places,
                outputs,
                stage: Some(Stage::Run),
                progress,
                found,
                busy_with: &mut *busy_with,
                times: profile.as_deref_mut().zip(begun),
            };
            program.device.submit(queue, run)
        };
        let (mut from, mut changed) = (0, false);
        for (at, stage) in program.stages.list.iter().enumerate() {
            counted.clear();
            part(queue, &mut binding.sequence, from..stage.step + 1, counted)?;
            changed |= program.found(queue, binding, at, counted, changed)?;
            from = stage.step + 1;
        }
        if from < program.steps.len() || program.stages.list.is_empty() {
            part(queue, &mut binding.sequence, from..program.steps.len(), counted)?;
        }
        Ok(())
    }

    /// Works out how large outputs are: the room they have or, after a run that counted, the elements they are.
    pub(super) fn size_outputs(&mut self, ran: bool) -> Result<()> {
        let Some(binding) = &self.present else { return Ok(()) };
        let values = Values(&binding.values);
        for (slot, output) in self.program.outputs.iter().zip(&mut self.outputs) {
            let elements = values.size(if ran { slot.elements } else { slot.room })?;
            let dtype = self.program.lir.buffers[slot.buffer].dtype;
            output.bytes = dtype.storage_bytes(elements).unwrap_or(usize::MAX);
        }
        Ok(())
    }

    /// Waits for the oldest run that is under way. Where one failed, what it and later ones updated is lost.
    pub(super) fn complete_oldest(&self) -> Result<()> {
        self.in_flight.set(self.in_flight.get().saturating_sub(1));
        let done = self.program.device.complete(&self.program, &self.queue);
        self.lost.set(self.lost.get() || done.is_err());
        done
    }

    /// Waits for all runs that are under way.
    ///
    /// # Errors
    /// The first that one of them reports.
    pub(super) fn settle(&self) -> Result<()> {
        let mut all = Ok(());
        while self.in_flight.get() > 0 {
            let done = self.complete_oldest();
            all = all.and(done);
        }
        all
    }

    /// An output that is in memory of its own, which the host does not see.
    pub(super) fn fetch(&self, output: usize, memory: &D::Memory, bytes: usize) -> Result<&[u8]> {
        if let Some(known) = self.fetched[output].get() {
            return Ok(known);
        }
        let copy = self.program.device.download(memory, bytes)?.into_owned();
        Ok(self.fetched[output].get_or_init(|| copy))
    }

    /// An output that the last run left on the device.
    pub(super) fn fetch_left(&self, output: usize) -> Result<&[u8]> {
        if let Some(known) = self.fetched[output].get() {
            return Ok(known);
        }
        if self.collected && self.in_flight.get() > 0 {
            let message = format!("output {output} was not asked for, and later runs have replaced it");
            return Err(Error::new(ErrorKind::Binding, message));
        }
        let Output { buffer, bytes, .. } = self.outputs[output];
        let copy = self.program.device.fetch(&self.places[buffer], bytes)?;
        Ok(self.fetched[output].get_or_init(|| copy))
    }

    /// The memory that an output is in, where that is its own.
    pub(super) fn output_memory(&self, index: usize) -> Option<&D::Memory> {
        if let Some(memory) = self.handles.output(index) {
            return Some(memory);
        }
        // An input that was given was updated in the copy of it.
        let copy = self.inputs[self.program.donated[index]?].as_ref()?;
        D::host(copy).map(|_| copy)
    }

    /// A dimension of an output, as the last run had it.
    ///
    /// # Errors
    /// No such output or axis, or nothing ran.
    pub fn output_dim(&self, output: usize, axis: usize) -> Result<usize> {
        let program = &self.program;
        let graph = &program.lir.graph;
        let dim = graph.outputs.get(output).and_then(|&id| graph.shape(id).dims().get(axis));
        let size = self.present.as_ref().zip(dim).and_then(|(binding, dim)| {
            dim.extent().eval(&|s| program.value(&binding.dims, &binding.found, s))
        });
        let size = size.and_then(|n| usize::try_from(n).ok());
        size.ok_or_else(|| Error::new(ErrorKind::Internal, "a dimension of an output has no value"))
    }
}
