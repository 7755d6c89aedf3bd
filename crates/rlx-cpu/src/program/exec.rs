//! The executable: a program bound to dimensions, with its arena, parameters and prepared buffers.

mod prepared;

use std::sync::{Arc, Weak};
use std::time::Instant;

use rlx_backend::moe::MixtureOfExperts;
use rlx_backend::{
    DeviceHandles, ExecutableGraph, InputSource, MemoryInfo, PreparedWeights, StepProfile, StepProfiler,
};
use rlx_ir::lir::{BufferKind, MemoryPlan};
use rlx_ir::progress::Stage;
use rlx_ir::{DimBinding, Error, ErrorKind, LirModule, Progress, Result, Weight};
use rlx_opt::PoolSpec;

use super::checks;
use super::extents::Values;
use super::handles::Handles;
use super::layout::Bound;
use super::moe::Routers;
use super::params::{Param, load};
use super::profile::{profiling_asked, report};
use super::scratch::{Room, Scratch, Turns};
use super::{Program, allocate, is_aligned, plan_too_large};
use crate::alloc::Buffer;
use crate::kernels::{BindCx, Needs, RunCx, StepKernel, Upcoming, WORTH_NANOS};
use crate::pool::{Run, Wake};

/// Runs longer than this wake parked helpers.
const WAKE_NANOS: f64 = 150_000.0;

/// A module on the CPU.
pub(crate) struct CpuExecutable {
    pub(super) program: Arc<Program>,
    pub(super) kernels: Vec<Box<dyn StepKernel>>,
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
    /// How often the arena had to be planned anew for larger dimensions.
    replans: usize,
    thread_stride: usize,
    /// Aligned copies of inputs that came unaligned.
    staging: Vec<Option<Buffer>>,
    /// What the present binding is for; `None` before the first run.
    pub(super) dims: Option<Vec<i64>>,
    pub(super) values: Vec<i64>,
    /// What the steps that count found in the last run, and what their followers are bound to.
    pub(super) found: Vec<i64>,
    pub(super) staged: Vec<Option<i64>>,
    operands: (Vec<Bound>, Vec<Bound>),
    /// Place and length of each output in the arena.
    pub(super) outputs: Vec<(usize, usize)>,
    pub(super) handles: Handles,
    nanos: f64,
    ran: bool,
    pub(super) profile: Option<Vec<StepProfile>>,
    /// The grouped products by what chooses their experts.
    pub(super) routers: Routers,
}

// SAFETY: the pointers are into memory that the executable owns or shares read-only (weights, constants,
// prepared buffers); those of inputs are set anew at every run.
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
            kernels: program.steps.iter().map(|s| s.prototype.boxed()).collect(),
            params: vec![None; lir.params.len()],
            weights: vec![None; lir.params.len()],
            changed: vec![true; lir.params.len()],
            stale: true,
            initialised: false,
            prepared: vec![None; buffers],
            bases,
            arena: allocate(0)?,
            scratch: Scratch::empty()?,
            room: Room::default(),
            pointed: std::ptr::null(),
            turns: program.by_turns.then(Turns::join),
            plan: lir.plan.clone().map(Arc::new),
            replans: 0,
            thread_stride: 0,
            staging: lir.inputs.iter().map(|_| None).collect(),
            dims: None,
            values: Vec::new(),
            found: Vec::new(),
            staged: vec![None; program.stages.len()],
            operands: Default::default(),
            outputs: vec![(0, 0); lir.outputs.len()],
            handles: Handles::new(lir.inputs.len(), lir.outputs.len()),
            nanos: 0.0,
            ran: false,
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

    /// Refuses parameters that were never set.
    fn check_params(&self) -> Result<()> {
        let Some(i) = self.params.iter().position(Option::is_none) else { return Ok(()) };
        let message = format!("parameter {:?} was never set", self.program.lir.params[i].name);
        Err(Error::new(ErrorKind::Binding, message).with_hint("call set_param first"))
    }

    /// Reads the parameters that are wanted, and sets the addresses of those that are read.
    fn load_params(&mut self, wanted: impl Fn(usize) -> bool, progress: &Progress) -> Result<()> {
        for (i, slot) in self.program.lir.params.iter().enumerate() {
            let buffer = slot.operand.buffer.index();
            if let Some(Param::Set(weight)) = self.params[i].as_ref().filter(|_| wanted(buffer)) {
                progress.check(Stage::Prepare)?;
                self.params[i] = Some(load(weight)?);
            }
            self.bases[buffer] = match &self.params[i] {
                Some(Param::Weight(_, ptr)) => ptr.cast_mut(),
                Some(Param::Copy(copy)) => copy.as_ptr().cast_mut(),
                Some(Param::Set(_) | Param::Forgotten) | None => std::ptr::null_mut(),
            };
        }
        Ok(())
    }

    /// Runs the init steps whose parameters changed. Where it stops early, everything is as stale as before.
    fn initialise(&mut self, progress: &Progress) -> Result<()> {
        self.check_params()?;
        let program = Arc::clone(&self.program);
        program.init.outdated(&self.changed).into_iter().for_each(|b| self.prepared[b] = None);
        self.find_prepared(&program);
        let needed = program.init.needed(|b| self.prepared[b].is_none());
        self.load_params(|b| program.init.kept[b] || program.init.reads(&needed, b), progress)?;
        let mut fresh: Vec<Option<Buffer>> = program.lir.buffers.iter().map(|_| None).collect();
        let count = program.init.steps.len();
        for (at, init) in program.init.steps.iter().enumerate().filter(|&(at, _)| needed[at]) {
            progress.step(Stage::Prepare, at, count, || program.op_name(init.step.node))?;
            for output in &init.step.outputs {
                let b = output.buffer as usize;
                if fresh[b].is_none() {
                    let mut memory = allocate(program.prepared_bytes(b, output, &Values(&[]))?)?;
                    self.bases[b] = memory.as_mut_ptr();
                    fresh[b] = Some(memory);
                }
            }
            self.run_once(&program, at, &[])?;
            for operand in init.step.inputs.iter().chain(&init.step.outputs) {
                let b = operand.buffer as usize;
                if program.init.last_use[b] == at && !program.init.kept[b] {
                    fresh[b] = None;
                }
            }
        }
        for (b, memory) in fresh.into_iter().enumerate() {
            if let Some(memory) = memory {
                self.keep_prepared(&program, b, memory);
            }
        }
        for (i, &forgettable) in program.init.forgettable.iter().enumerate() {
            if forgettable && self.params[i].is_some() {
                self.params[i] = Some(Param::Forgotten);
            }
        }
        self.initialised = true;
        Ok(())
    }

    /// Runs the init program for the parameters that changed, so that nothing is stale.
    fn initialise_stale(&mut self, progress: &Progress) -> Result<()> {
        self.initialise(progress)?;
        // Prepared buffers may have moved.
        for (base, memory) in self.bases.iter_mut().zip(&self.prepared) {
            if let Some(memory) = memory {
                *base = memory.as_ptr().cast_mut();
            }
        }
        if self.program.init.symbolic_is_stale(&self.changed) {
            self.dims = None;
        }
        self.forget_experts();
        self.changed.fill(false);
        self.stale = false;
        Ok(())
    }

    /// Weights changed, so what grouped products keep of them is old.
    fn forget_experts(&self) {
        self.kernels.iter().filter_map(|k| k.experts()).for_each(|e| e.lock().forget());
    }

    /// Runs the init steps that depend on symbols, for the present values.
    fn initialise_symbolic(&mut self) -> Result<()> {
        let program = Arc::clone(&self.program);
        if program.init.steps.iter().any(|s| s.symbolic) {
            self.forget_experts();
        }
        for (at, init) in program.init.steps.iter().enumerate().filter(|(_, s)| s.symbolic) {
            for output in &init.step.outputs {
                let b = output.buffer as usize;
                let bytes = program.prepared_bytes(b, output, &Values(&self.values))?;
                // Clones share what there is, so only memory of our own can be used again.
                let reusable = self.prepared[b].as_mut().and_then(Arc::get_mut).filter(|m| m.len() >= bytes);
                self.bases[b] = match reusable {
                    Some(memory) => memory.as_mut_ptr(),
                    None => {
                        let mut memory = allocate(bytes.next_power_of_two())?;
                        let base = memory.as_mut_ptr();
                        self.prepared[b] = Some(Arc::new(memory));
                        base
                    }
                };
            }
            let values = std::mem::take(&mut self.values);
            let ran = self.run_once(&program, at, &values);
            self.values = values;
            ran?;
        }
        Ok(())
    }

    /// Binds and runs one init step.
    fn run_once(&mut self, program: &Program, at: usize, values: &[i64]) -> Result<()> {
        let step = &program.init.steps[at].step;
        let placed = |e| program.place(step.node, e);
        let values = Values(values);
        let (inputs, outputs) = &mut self.operands;
        step.operands(&values, inputs, outputs).map_err(placed)?;
        let scratch = program.lir.buffers.len() as u32;
        let cx = BindCx { inputs, outputs, packed: &step.packed, values, scratch };
        let mut kernel = step.prototype.boxed();
        let needs = kernel.bind(&cx).map_err(placed)?;
        self.make_room(&needs)?;
        let mut run = program.threads.pool().enter(Wake::Yes);
        let mut cx = RunCx {
            bases: &self.bases,
            shared_scratch: self.scratch.shared.as_mut_ptr(),
            thread_scratch: self.scratch.threads.as_mut_ptr(),
            thread_stride: self.thread_stride,
            isa: program.isa,
            pool: &mut run,
            found: None,
            progress: &Progress::none(),
        };
        // SAFETY: the bases of its operands were set and cover them (views are checked when bound).
        unsafe { kernel.run(&mut cx) }.map_err(placed)
    }

    /// Notes what kernels need, and sees that it is there.
    pub(super) fn make_room(&mut self, needs: &Needs) -> Result<()> {
        let threads = self.program.threads.pool().threads();
        self.thread_stride = needs.thread_scratch.next_multiple_of(128).max(self.thread_stride);
        self.room.threads = self.room.threads.max(self.thread_stride * threads);
        self.room.shared = self.room.shared.max(needs.shared_scratch);
        self.fit_scratch()
    }

    /// Sees that the scratch at hand has room, and points the bases at it.
    fn fit_scratch(&mut self) -> Result<()> {
        self.scratch.fit(&self.room)?;
        if let Some(last) = self.bases.last_mut() {
            *last = self.scratch.shared.as_mut_ptr();
        }
        let start = self.scratch.arena.as_mut_ptr();
        if let Some(plan) = self.plan.as_ref().filter(|_| self.pointed != start.cast_const()) {
            for (b, offset) in plan.offsets.iter().enumerate() {
                if let (Some(offset), 1..) = (*offset, plan.pool_of[b]) {
                    self.bases[b] = start.wrapping_add(offset);
                }
            }
            self.pointed = start;
        }
        Ok(())
    }

    /// Puts new dimensions in: checks, plan, views and kernels.
    fn rebind(&mut self, dims: &[i64]) -> Result<()> {
        // An error leaves nothing bound.
        let mut kept = self.dims.take().unwrap_or_default();
        let program = Arc::clone(&self.program);
        checks::symbols(self.lir(), dims)?;
        program.evaluate(dims, &mut self.found, &mut self.values)?;
        self.staged.fill(None);
        for check in &program.checks {
            check.holds(&Values(&self.values)).map_err(|e| program.place(check.node, e))?;
        }
        self.place_arena(dims)?;
        self.initialise_symbolic()?;
        let mut total = Needs::default();
        for step in (0..program.steps.len()).filter(|&step| !program.waits(step)) {
            self.bind_step(&program, step, &mut total)?;
        }
        self.link_weights();
        self.make_room(&total)?;
        self.nanos = total.nanos;
        self.place_outputs(false)?;
        kept.clear();
        kept.extend_from_slice(dims);
        self.dims = Some(kept);
        Ok(())
    }

    /// Binds one step to the present values, and adds what it needs.
    pub(super) fn bind_step(&mut self, program: &Program, at: usize, total: &mut Needs) -> Result<()> {
        let step = &program.steps[at];
        let placed = |e| program.place(step.node, e);
        let values = Values(&self.values);
        let (inputs, outputs) = &mut self.operands;
        step.operands(&values, inputs, outputs).map_err(placed)?;
        let scratch = program.lir.buffers.len() as u32;
        let cx = BindCx { inputs, outputs, packed: &step.packed, values, scratch };
        let needs = self.kernels[at].bind(&cx).map_err(placed)?;
        total.thread_scratch = total.thread_scratch.max(needs.thread_scratch);
        total.shared_scratch = total.shared_scratch.max(needs.shared_scratch);
        total.nanos += needs.nanos;
        Ok(())
    }

    /// Makes sure the arena is planned for these dimensions: where it is not, for the next powers of two.
    fn place_arena(&mut self, dims: &[i64]) -> Result<()> {
        let program = Arc::clone(&self.program);
        let lir = &program.lir;
        let fits = |plan: &MemoryPlan| {
            let within = |(&s, &v): (&u32, &i64)| plan.bounds.get(s).is_some_and(|b| v as usize <= b);
            lir.symbols.iter().zip(dims).all(within)
        };
        if !self.plan.as_deref().is_some_and(fits) {
            let mut bounds = DimBinding::new();
            for (&symbol, &value) in lir.symbols.iter().zip(dims) {
                let before = self.plan.as_ref().and_then(|p| p.bounds.get(symbol)).unwrap_or(0);
                bounds.set(symbol, (value as usize).next_power_of_two().max(before));
            }
            let spec = PoolSpec { outputs_apart: program.by_turns, ..PoolSpec::default() };
            self.plan = Some(Arc::new(rlx_opt::plan::plan_memory(lir, &bounds, spec)?));
            self.replans += 1;
            tracing::debug!(module = %lir.name, replans = self.replans, "planned the arena for larger dimensions");
        }
        let Some(plan) = &self.plan else { return Ok(()) };
        let [own, rest @ ..] = &plan.pools[..] else { return Ok(()) };
        if *own > self.arena.len() {
            self.ran = false;
            self.arena = allocate(*own).map_err(|e| plan_too_large(&program, plan, &e))?;
        }
        // Without limits there are at most two pools: the outputs apart, and the rest.
        self.room.arena = rest.iter().sum();
        self.pointed = std::ptr::null();
        for ((base, offset), &pool) in self.bases.iter_mut().zip(&plan.offsets).zip(&plan.pool_of) {
            if let (Some(offset), 0) = (*offset, pool) {
                *base = self.arena.as_mut_ptr().wrapping_add(offset);
            }
        }
        Ok(())
    }

    /// Tells each product which packed weights the next one reads.
    fn link_weights(&mut self) {
        let mut next: Upcoming = None;
        for kernel in self.kernels.iter_mut().rev() {
            kernel.set_next(next);
            next = kernel.weights().or(next);
        }
    }

    /// Works out where outputs lie, with the room they have or, after a run, the elements they are.
    fn place_outputs(&mut self, ran: bool) -> Result<()> {
        let lir = Arc::clone(self.lir());
        for (i, slot) in lir.outputs.iter().enumerate() {
            let buffer = slot.operand.buffer.index();
            let offset = self.plan.as_ref().and_then(|p| p.offsets[buffer]).unwrap_or(0);
            let step_output = self.program.steps.iter().flat_map(|s| &s.outputs);
            let found = step_output.into_iter().find(|o| o.buffer as usize == buffer);
            let Some(operand) = found else {
                return Err(Error::new(
                    ErrorKind::Internal,
                    format!("nothing writes output {:?}", slot.name),
                ));
            };
            let extent = if ran { self.program.output_elements[i] } else { operand.elements() };
            let elements = Values(&self.values).size(extent)?;
            let bytes = slot.operand.dtype.storage_bytes(elements).unwrap_or(usize::MAX);
            if offset.checked_add(bytes).is_none_or(|end| end > self.arena.len()) {
                return Err(Error::new(
                    ErrorKind::Internal,
                    format!("output {:?} leaves the arena", slot.name),
                ));
            }
            self.outputs[i] = (offset, bytes);
        }
        Ok(())
    }

    /// Sets the addresses of the inputs; those that lie unaligned are copied.
    fn load_inputs(&mut self, inputs: &dyn InputSource) -> Result<()> {
        for (i, slot) in self.program.lir.inputs.iter().enumerate() {
            if let Some(want) = inputs.handle(i) {
                let address = self.handles.address(i, &slot.name, want)?;
                self.bases[slot.operand.buffer.index()] = address;
                continue;
            }
            let bytes = inputs.bytes(i);
            self.bases[slot.operand.buffer.index()] = if is_aligned(bytes, slot.operand.dtype.size_bytes()) {
                bytes.as_ptr().cast_mut()
            } else {
                let room = self.staging[i].as_ref().is_some_and(|s| s.len() >= bytes.len());
                if !room {
                    self.staging[i] = Some(allocate(bytes.len())?);
                }
                match &mut self.staging[i] {
                    Some(copy) => {
                        copy.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
                        copy.as_mut_ptr()
                    }
                    None => std::ptr::null_mut(),
                }
            };
        }
        Ok(())
    }

    /// A run, with the scratch that is at hand.
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
            self.rebind(dims)?;
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
        self.handles.finish(|output| self.outputs[output].1);
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
            progress.step(Stage::Run, i, program.steps.len(), || program.op_name(program.steps[i].node))
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
        match &mut self.profile {
            None => {
                for (i, kernel) in range.clone().zip(&self.kernels[range]) {
                    go_on(i)?;
                    // SAFETY: every base is set and covers its buffer: inputs' byte counts were checked by
                    // the caller, views when bound; steps run one after the other.
                    unsafe { kernel.run(&mut cx) }.map_err(|e| program.place(program.steps[i].node, e))?;
                }
            }
            Some(times) => {
                let run = begun.unwrap_or_else(Instant::now);
                for (i, kernel) in range.clone().zip(&self.kernels[range]) {
                    go_on(i)?;
                    let start = Instant::now();
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
        let Some(slot) = self.params.get_mut(index) else {
            return Err(Error::new(ErrorKind::Binding, format!("there is no parameter {index}")));
        };
        self.weights[index] = Some(Arc::downgrade(&weight));
        *slot = Some(Param::Set(weight));
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
        let Some(turns) = self.turns.clone() else { return self.run_with_scratch(inputs, dims, progress) };
        self.scratch = turns.take()?;
        let ran = self.run_with_scratch(inputs, dims, progress);
        turns.give(std::mem::replace(&mut self.scratch, Scratch::empty()?));
        ran
    }

    fn output(&self, index: usize) -> Result<&[u8]> {
        let place = self.outputs.get(index).filter(|_| self.ran);
        let Some(&(offset, bytes)) = place else {
            return Err(Error::new(ErrorKind::Binding, format!("there is no output {index} before a run")));
        };
        let in_arena = || &self.arena.as_slice()[offset..offset + bytes];
        Ok(self.handles.output(index).unwrap_or_else(in_arena))
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
