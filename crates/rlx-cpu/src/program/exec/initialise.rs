//! The init program: what depends on parameters alone, made before the first run and again for what changed.

use std::sync::Arc;

use rlx_ir::progress::Stage;
use rlx_ir::{Error, ErrorKind, Progress, Result};

use super::{CpuExecutable, Param};
use crate::alloc::Buffer;
use crate::kernels::{BindCx, RunCx};
use crate::pool::Wake;
use crate::program::extents::Values;
use crate::program::params::load;
use crate::program::{Program, allocate};

/// What memory of the init program is for.
const PREPARED: &str = "prepared weights";

impl CpuExecutable {
    /// Rejects parameters that were never set.
    pub(super) fn check_params(&self) -> Result<()> {
        let Some(i) = self.params.iter().position(Option::is_none) else { return Ok(()) };
        let message = format!("parameter {:?} was never set", self.program.lir.params[i].name);
        Err(Error::new(ErrorKind::Binding, message).with_hint("call set_param first"))
    }

    /// Reads the parameters that are wanted, and sets the addresses of those that are read.
    pub(super) fn load_params(&mut self, wanted: impl Fn(usize) -> bool, progress: &Progress) -> Result<()> {
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
        let read = program.init.read_by(&needed);
        self.load_params(|b| program.init.kept[b] || read[b], progress)?;
        let mut fresh: Vec<Option<Buffer>> = program.lir.buffers.iter().map(|_| None).collect();
        let count = program.init.steps.len();
        for (at, init) in program.init.steps.iter().enumerate().filter(|&(at, _)| needed[at]) {
            progress.step(Stage::Prepare, at, count, || program.op_name(init.step.node))?;
            for output in &init.step.outputs {
                let b = output.buffer as usize;
                if fresh[b].is_none() {
                    let mut memory = allocate(program.prepared_bytes(b, output, &Values(&[]))?, PREPARED)?;
                    self.bases[b] = memory.as_mut_ptr();
                    fresh[b] = Some(memory);
                }
            }
            self.run_once(&program, at, &[], progress)?;
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
    pub(super) fn initialise_stale(&mut self, progress: &Progress) -> Result<()> {
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
    pub(super) fn forget_experts(&self) {
        self.kernels.iter().filter_map(|k| k.experts()).for_each(|e| e.lock().forget());
    }

    /// Runs the init steps that depend on symbols, for the present values.
    pub(super) fn initialise_symbolic(&mut self, progress: &Progress) -> Result<()> {
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
                        let mut memory =
                            allocate(bytes.checked_next_power_of_two().unwrap_or(bytes), PREPARED)?;
                        let base = memory.as_mut_ptr();
                        self.prepared[b] = Some(Arc::new(memory));
                        base
                    }
                };
            }
            let values = std::mem::take(&mut self.values);
            let ran = self.run_once(&program, at, &values, progress);
            self.values = values;
            ran?;
        }
        Ok(())
    }

    /// Binds and runs one init step.
    fn run_once(&mut self, program: &Program, at: usize, values: &[i64], progress: &Progress) -> Result<()> {
        let step = &program.init.steps[at].step;
        self.busy_with = Some(step.node);
        let placed = |e| program.place(step.node, e);
        let values = Values(values);
        let (inputs, outputs) = &mut self.operands;
        step.operands(&values, inputs, outputs).map_err(placed)?;
        let scratch = program.lir.buffers.len() as u32;
        if step.is_idle(outputs) {
            return Ok(());
        }
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
            progress,
        };
        // SAFETY: the bases of its operands were set and cover them (views are checked when bound).
        unsafe { kernel.run(&mut cx) }.map_err(placed)
    }
}
