//! The executable: a program bound to dimensions, with its arena, parameters and prepared buffers.

mod bind;
mod initialise;
mod prepared;
mod ranges;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Weak};
use std::time::Instant;

use rlx_backend::moe::MixtureOfExperts;
use rlx_backend::{
    DeviceHandles, ExecutableGraph, InputSource, MemoryInfo, PreparedWeights, StepProfile, StepProfiler,
};
use rlx_ir::lir::{BufferKind, MemoryPlan};
use rlx_ir::panics::catch;
use rlx_ir::progress::Stage;
use rlx_ir::{Error, ErrorKind, LirModule, NodeId, Progress, Result, Weight};

use self::ranges::Ranges;
use super::handles::Handles;
use super::journal::Journal;
use super::layout::Bound;
use super::moe::Routers;
use super::params::Param;
use super::profile::{profiling_asked, report};
use super::scratch::{Room, Scratch, Turns};
use super::{Program, allocate, is_aligned};
use crate::alloc::Buffer;
use crate::kernels::{RunCx, StepKernel, WORTH_NANOS};
use crate::pool::{Run, Wake};

/// Runs longer than this wake parked helpers.
const WAKE_NANOS: f64 = 150_000.0;

/// A module on the CPU.
pub(crate) struct CpuExecutable {
    pub(super) program: Arc<Program>,
    /// Its own kernels, made when it is first [bound](Self::make_kernels): compiling needs none.
    pub(super) kernels: Vec<Box<dyn StepKernel>>,
    /// Which of them have nothing to compute in the present binding.
    idle: Vec<bool>,
    params: Vec<Option<Param>>,
    /// Which weights those are, also when they were used up.
    weights: Vec<Option<Weak<Weight>>>,
    /// Parameters set since the init program ran.
    changed: Vec<bool>,
    /// Whether any is.
    stale: bool,
    initialised: bool,
    /// Buffers of the init program, by number.
    prepared: Vec<Option<Arc<Buffer>>>,
    /// The address of each buffer; the last one is the shared scratch.
    pub(super) bases: Vec<*mut u8>,
    /// Pool 0 of the plan: all of the arena, or the outputs alone.
    pub(super) arena: Buffer,
    /// The plan's other pool, and what kernels need besides.
    scratch: Scratch,
    /// How much of it a run needs.
    room: Room,
    /// Where the scratch was that `bases` point into.
    pointed: *const u8,
    /// With whom the scratch is used by turns; it is here during a run alone then.
    turns: Option<Arc<Turns>>,
    plan: Option<Arc<MemoryPlan>>,
    /// How often the arena had to be planned again for larger dimensions.
    replans: usize,
    thread_stride: usize,
    /// Aligned copies of inputs that came unaligned.
    staging: Vec<Option<Buffer>>,
    /// What the present binding is for; `None` before the first run.
    pub(super) dims: Option<Vec<i64>>,
    /// The bytes of each input in the present binding.
    input_bytes: Vec<usize>,
    pub(super) values: Vec<i64>,
    /// What the steps that count found in the last run, and what their followers are bound to.
    pub(super) found: Vec<i64>,
    pub(super) staged: Vec<Option<i64>>,
    operands: (Vec<Bound>, Vec<Bound>),
    /// Place and length of each output in the arena.
    pub(super) outputs: Vec<(usize, usize)>,
    pub(super) handles: Handles,
    /// What the present run replaced in inputs that it updates in place.
    journal: Journal,
    /// In debug builds: what steps touch, to be checked.
    ranges: Ranges,
    nanos: f64,
    ran: bool,
    /// Which node is being prepared, bound or computed: what a panic is blamed on.
    pub(super) busy_with: Option<NodeId>,
    pub(super) profile: Option<Vec<StepProfile>>,
    /// The grouped products by what chooses their experts.
    pub(super) routers: Routers,
}

// SAFETY: the pointers are into memory that the executable owns or shares read-only (weights, constants,
// prepared buffers); those of inputs are set again at every run.
unsafe impl Send for CpuExecutable {}

impl CpuExecutable {
    pub(crate) fn new(program: Arc<Program>) -> Result<CpuExecutable> {
        let lir = &program.lir;
        let buffers = lir.buffers.len();
        let mut bases = vec![std::ptr::null_mut(); buffers + 1];
        for (i, buffer) in lir.buffers.iter().enumerate() {
            if let BufferKind::Constant(data) = &buffer.kind {
                let bytes = program.constants[i].as_ref().map_or(&data.bytes()[..], Buffer::as_slice);
                bases[i] = bytes.as_ptr().cast_mut();
            }
        }
        let mut exec = CpuExecutable {
            kernels: Vec::new(),
            idle: vec![false; program.steps.len()],
            params: vec![None; lir.params.len()],
            weights: vec![None; lir.params.len()],
            changed: vec![true; lir.params.len()],
            stale: true,
            initialised: false,
            prepared: vec![None; buffers],
            bases,
            arena: allocate(0, "an arena")?,
            scratch: Scratch::empty()?,
            room: Room::default(),
            pointed: std::ptr::null(),
            turns: program.pool.outputs_apart.then(Turns::join),
            plan: lir.plan.clone().map(Arc::new),
            replans: 0,
            thread_stride: 0,
            staging: lir.inputs.iter().map(|_| None).collect(),
            dims: None,
            input_bytes: Vec::with_capacity(lir.inputs.len()),
            values: Vec::new(),
            found: Vec::new(),
            staged: vec![None; program.stages.len()],
            operands: Default::default(),
            outputs: vec![(0, 0); lir.outputs.len()],
            handles: Handles::new(lir.inputs.len(), &program.donated),
            journal: Journal::default(),
            ranges: Ranges::new(program.steps.len(), lir.inputs.len()),
            nanos: 0.0,
            ran: false,
            busy_with: None,
            profile: None,
            routers: Routers::of(&program.lir),
            program,
        };
        if profiling_asked() {
            exec.start();
        }
        Ok(exec)
    }

    fn lir(&self) -> &Arc<LirModule> {
        &self.program.lir
    }

    /// Makes the kernels, if there are none yet.
    pub(super) fn make_kernels(&mut self) {
        if self.kernels.is_empty() {
            self.kernels = self.program.steps.iter().map(|s| s.prototype.boxed()).collect();
        }
    }

    /// Sets the addresses of the inputs, each as large as it must be; those that are not aligned, or updated in place, are
    /// copied.
    fn load_inputs(&mut self, inputs: &dyn InputSource) -> Result<()> {
        let [sizes, _] = &self.program.given;
        for (i, slot) in self.program.lir.inputs.iter().enumerate() {
            let size = self.input_bytes[i];
            if let Some(want) = inputs.handle(i) {
                sizes.check(i, want, size)?;
                let address = self.handles.address(i, &slot.name, size)?;
                self.handles.supply(i, true);
                self.bases[slot.operand.buffer.index()] = address;
                self.ranges.note_input(i, address, want);
                continue;
            }
            let bytes = inputs.bytes(i);
            sizes.check(i, bytes.len(), size)?;
            self.handles.supply(i, false);
            let in_place = is_aligned(bytes, slot.operand.dtype.size_bytes()) && !self.handles.is_updated(i);
            self.bases[slot.operand.buffer.index()] = if in_place {
                bytes.as_ptr().cast_mut()
            } else {
                let room = self.staging[i].as_ref().is_some_and(|s| s.len() >= bytes.len());
                if !room {
                    self.staging[i] = Some(allocate(bytes.len(), "an aligned copy of an input")?);
                }
                match &mut self.staging[i] {
                    Some(copy) => {
                        copy.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
                        copy.as_mut_ptr()
                    }
                    None => std::ptr::null_mut(),
                }
            };
            self.ranges.note_input(i, self.bases[slot.operand.buffer.index()], bytes.len());
        }
        Ok(())
    }

    /// A run, with the scratch that is at hand. A panic in it (a fault of a kernel or a custom op) is an error that
    /// names the node. By then every helper has finished its part, and the executable is as after any other error.
    fn run_guarded(&mut self, inputs: &dyn InputSource, dims: &[i64], progress: &Progress) -> Result<()> {
        self.busy_with = None;
        let ran = catch(|| self.run_with_scratch(inputs, dims, progress)).unwrap_or_else(|text| {
            let error = Error::new(ErrorKind::Panic, format!("it panicked: {text}"));
            Err(match self.busy_with {
                Some(node) => self.program.place(node, error),
                None => error.with_device("cpu"),
            })
        });
        if ran.is_err() {
            // SAFETY: what was saved is in handles and copies of inputs, which nothing replaced since, and no kernel runs.
            unsafe { self.journal.restore() };
        }
        self.journal.clear();
        ran
    }

    /// A run that may panic.
    fn run_with_scratch(
        &mut self,
        inputs: &dyn InputSource,
        dims: &[i64],
        progress: &Progress,
    ) -> Result<()> {
        self.ran = false;
        if self.stale {
            self.initialise_stale(progress)?;
        }
        if self.dims.as_deref() != Some(dims) {
            self.rebind(dims, progress)?;
        }
        self.fit_scratch()?;
        self.load_inputs(inputs)?;
        let counts = !self.program.stages.is_empty();
        if counts {
            self.place_outputs(false)?;
        }
        self.redirect_outputs()?;
        self.run_steps(progress)?;
        if counts {
            self.place_outputs(true)?;
        }
        self.handles.finish(|output| self.outputs[output].1, |input| self.staging[input].as_ref())?;
        self.ran = true;
        Ok(())
    }

    fn run_steps(&mut self, progress: &Progress) -> Result<()> {
        let begun = self.profile.is_some().then(Instant::now);
        if self.program.stages.is_empty() {
            return self.run_range(0..self.kernels.len(), progress, begun).map(drop);
        }
        let program = Arc::clone(&self.program);
        let (mut from, mut changed) = (0, false);
        for (at, stage) in program.stages.iter().enumerate() {
            let found = self.run_range(from..stage.step + 1, progress, begun)?;
            let found = found.ok_or_else(|| Error::new(ErrorKind::Internal, "a step counted nothing"))?;
            changed |= self.found(&program, at, found, changed)?;
            from = stage.step + 1;
        }
        self.run_range(from..self.kernels.len(), progress, begun).map(drop)
    }

    /// Runs some steps; gives what the last one that counts found. `begun` is when the run did, for its profile.
    fn run_range(
        &mut self,
        range: std::ops::Range<usize>,
        progress: &Progress,
        begun: Option<Instant>,
    ) -> Result<Option<usize>> {
        let program = &*self.program;
        let go_on = |i: usize| {
            let node = program.steps[i].node;
            let going = progress.step(Stage::Run, i, program.steps.len(), || program.op_name(node));
            going.map_err(|e| if e.kind() == ErrorKind::Panic { program.place(node, e) } else { e })
        };
        let mut pool = if self.nanos < WORTH_NANOS {
            Run::alone()
        } else {
            program.threads.pool().enter(if self.nanos > WAKE_NANOS { Wake::Yes } else { Wake::No })
        };
        let mut cx = RunCx {
            bases: &self.bases,
            shared_scratch: self.scratch.shared.as_mut_ptr(),
            thread_scratch: self.scratch.threads.as_mut_ptr(),
            thread_stride: self.thread_stride,
            isa: program.isa,
            pool: &mut pool,
            found: None,
            progress,
        };
        let busy = range.clone().zip(&self.kernels[range]).filter(|&(i, _)| !self.idle[i]);
        match &mut self.profile {
            None => {
                for (i, kernel) in busy {
                    go_on(i)?;
                    if cfg!(debug_assertions) {
                        self.check_ranges(i).map_err(|e| program.place(program.steps[i].node, e))?;
                    }
                    self.busy_with = Some(program.steps[i].node);
                    if program.steps[i].updates_input {
                        // SAFETY: as below.
                        unsafe { kernel.journal(&cx, &mut self.journal) }
                            .map_err(|e| program.place(program.steps[i].node, e))?;
                    }
                    // SAFETY: every base is set and covers its buffer: the bytes of inputs were counted when they were
                    // loaded, those of parameters when they were set or bound, views were checked when bound, in a
                    // module that was verified; steps run one after the other.
                    unsafe { kernel.run(&mut cx) }.map_err(|e| program.place(program.steps[i].node, e))?;
                }
            }
            Some(times) => {
                let run = begun.unwrap_or_else(Instant::now);
                for (i, kernel) in busy {
                    go_on(i)?;
                    self.busy_with = Some(program.steps[i].node);
                    let start = Instant::now();
                    if program.steps[i].updates_input {
                        // SAFETY: as below.
                        unsafe { kernel.journal(&cx, &mut self.journal) }
                            .map_err(|e| program.place(program.steps[i].node, e))?;
                    }
                    // SAFETY: as above.
                    unsafe { kernel.run(&mut cx) }.map_err(|e| program.place(program.steps[i].node, e))?;
                    times[i].add(start - run, start.elapsed());
                }
            }
        }
        Ok(cx.found)
    }
}

impl Drop for CpuExecutable {
    /// With `RLX_PROFILE` set, says where the time went.
    fn drop(&mut self) {
        if let Some(steps) = self.profile.as_ref().filter(|_| profiling_asked()) {
            report(&self.program.lir.name, steps);
        }
    }
}

impl ExecutableGraph for CpuExecutable {
    fn lir(&self) -> &Arc<LirModule> {
        &self.program.lir
    }

    fn set_param(&mut self, index: usize, weight: Arc<Weight>) -> Result<()> {
        let [_, sizes] = &self.program.given;
        if sizes.check_weight(index, &weight)? {
            // Its size is checked with the dimensions of the next run.
            self.dims = None;
        }
        self.weights[index] = Some(Arc::downgrade(&weight));
        self.params[index] = Some(Param::Set(weight));
        self.changed[index] = true;
        self.stale = true;
        Ok(())
    }

    fn run(&mut self, inputs: &dyn InputSource, dims: &[i64]) -> Result<()> {
        self.run_with_progress(inputs, dims, &Progress::none())
    }

    fn run_with_progress(
        &mut self,
        inputs: &dyn InputSource,
        dims: &[i64],
        progress: &Progress,
    ) -> Result<()> {
        let Some(turns) = self.turns.clone() else { return self.run_guarded(inputs, dims, progress) };
        self.scratch = turns.take()?;
        let ran = self.run_guarded(inputs, dims, progress);
        turns.give(std::mem::replace(&mut self.scratch, Scratch::empty()?));
        ran
    }

    fn output(&self, index: usize) -> Result<&[u8]> {
        let place = self.outputs.get(index).filter(|_| self.ran);
        let Some(&(offset, bytes)) = place else {
            return Err(Error::new(ErrorKind::Binding, format!("there is no output {index} before a run")));
        };
        let copied = || {
            let copy = self.staging.get(self.program.donated[index]?)?.as_ref()?;
            Some(&copy.as_slice()[..bytes])
        };
        let in_arena = || &self.arena.as_slice()[offset..offset + bytes];
        Ok(self.handles.output(index).or_else(copied).unwrap_or_else(in_arena))
    }

    fn found(&self) -> &[i64] {
        &self.found
    }

    fn handles(&self) -> Option<&dyn DeviceHandles> {
        Some(self)
    }

    fn handles_mut(&mut self) -> Option<&mut dyn DeviceHandles> {
        Some(self)
    }

    fn arena(&self) -> Option<&[u8]> {
        Some(self.arena.as_slice())
    }

    fn memory(&self) -> MemoryInfo {
        let prepared: usize = self.prepared.iter().flatten().map(|b| b.len()).sum();
        let experts = self.kernels.iter().filter_map(|k| k.experts()).map(|e| e.lock().bytes());
        let params = self.params.iter().flatten().map(|p| match p {
            Param::Set(w) | Param::Weight(w, _) => w.shape().size_bytes().unwrap_or(0),
            Param::Copy(copy) => copy.len(),
            Param::Forgotten => 0,
        });
        MemoryInfo {
            arena_bytes: self.plan.as_ref().map_or(0, |p| p.arena_bytes),
            weight_bytes: prepared + experts.sum::<usize>() + params.sum::<usize>(),
            largest_live_set: self.plan.as_ref().map_or(0, |p| p.largest_live_set),
        }
    }

    fn try_clone(&self) -> Result<Box<dyn ExecutableGraph>> {
        let mut clone = CpuExecutable::new(Arc::clone(&self.program))?;
        // Clones are for running at the same time.
        clone.turns = None;
        clone.params.clone_from(&self.params);
        clone.weights.clone_from(&self.weights);
        clone.changed.clone_from(&self.changed);
        clone.stale = self.stale;
        clone.initialised = self.initialised;
        clone.prepared.clone_from(&self.prepared);
        clone.plan.clone_from(&self.plan);
        clone.handles = self.handles.values();
        if !self.routers.is_empty() {
            clone.make_kernels();
        }
        for (to, from) in clone.kernels.iter().zip(&self.kernels) {
            if let (Some(to), Some(from)) = (to.experts(), from.experts()) {
                to.copy_from(from);
            }
        }
        if clone.initialised {
            for (base, memory) in clone.bases.iter_mut().zip(&clone.prepared) {
                if let Some(memory) = memory {
                    *base = memory.as_ptr().cast_mut();
                }
            }
            // Parameters that changed since are loaded with the next initialisation.
            if !clone.changed.contains(&true) {
                clone.load_params(|_| false, &Progress::none())?;
            }
        }
        Ok(Box::new(clone))
    }

    fn prepared_weights(&mut self) -> Option<&mut dyn PreparedWeights> {
        Some(self)
    }

    fn profiler(&mut self) -> Option<&mut dyn StepProfiler> {
        Some(self)
    }

    fn moe(&mut self) -> Option<&mut dyn MixtureOfExperts> {
        if self.routers.is_empty() { None } else { Some(self) }
    }
}
