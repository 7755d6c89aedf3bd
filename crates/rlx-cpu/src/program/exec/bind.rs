//! Binding: the arena, the views and the kernels of an executable for the dimensions of a run.

use std::sync::Arc;

use rlx_backend::plans::{is_enough, plan_for_run};
use rlx_ir::lir::MemoryPlan;
use rlx_ir::{Error, ErrorKind, Progress, Result};

use super::{CpuExecutable, Param};
use crate::kernels::{BindCx, Needs, Upcoming};
use crate::program::extents::Values;
use crate::program::{Program, allocate_aligned, checks, plan_too_large};

impl CpuExecutable {
    /// Notes what kernels need, and sees that it is there.
    pub(in crate::program) fn make_room(&mut self, needs: &Needs) -> Result<()> {
        let threads = self.program.threads.pool().threads();
        self.thread_stride = needs.thread_scratch.next_multiple_of(128).max(self.thread_stride);
        self.room.threads = self.room.threads.max(self.thread_stride * threads);
        self.room.shared = self.room.shared.max(needs.shared_scratch);
        self.fit_scratch()
    }

    /// Sees that the scratch at hand has room, and points the bases at it.
    pub(super) fn fit_scratch(&mut self) -> Result<()> {
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

    /// Puts new dimensions in. An error leaves nothing bound, and no plan for dimensions that there is no memory for.
    pub(super) fn rebind(&mut self, dims: &[i64], progress: &Progress) -> Result<()> {
        let before = (self.plan.clone(), self.room, self.thread_stride);
        let bound = self.bind_all(dims, progress);
        if bound.is_err() {
            (self.plan, self.room, self.thread_stride) = before;
        }
        bound
    }

    /// Checks, plan, views and kernels for these dimensions.
    fn bind_all(&mut self, dims: &[i64], progress: &Progress) -> Result<()> {
        // An error leaves nothing bound.
        let mut kept = self.dims.take().unwrap_or_default();
        let program = Arc::clone(&self.program);
        self.make_kernels();
        checks::symbols(self.lir(), dims)?;
        program.evaluate(dims, &mut self.found, &mut self.values)?;
        self.staged.fill(None);
        program.hold_rules(dims, &self.found)?;
        self.size_given(&program)?;
        self.place_arena(dims)?;
        self.initialise_symbolic(progress)?;
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

    /// Works out how large inputs must be, and whether the parameters are as large as they must.
    fn size_given(&mut self, program: &Program) -> Result<()> {
        let [inputs, params] = &program.given;
        let values = Values(&self.values);
        params.check_all(&values, |i| match &self.params[i] {
            Some(Param::Set(weight) | Param::Weight(weight, _)) => {
                Some(weight.size_bytes().unwrap_or(usize::MAX))
            }
            Some(Param::Copy(copy)) => Some(copy.len()),
            Some(Param::Forgotten) | None => None,
        })?;
        inputs.bytes(&values, &mut self.input_bytes)
    }

    /// Binds one step to the present values, and adds what it needs.
    pub(in crate::program) fn bind_step(
        &mut self,
        program: &Program,
        at: usize,
        total: &mut Needs,
    ) -> Result<()> {
        let step = &program.steps[at];
        self.busy_with = Some(step.node);
        let placed = |e| program.place(step.node, e);
        let values = Values(&self.values);
        let (inputs, outputs) = &mut self.operands;
        step.operands(&values, inputs, outputs).map_err(placed)?;
        let scratch = program.lir.buffers.len() as u32;
        if cfg!(debug_assertions) {
            self.ranges.note_step(at, inputs, &step.packed, outputs);
        }
        self.idle[at] = step.is_idle(outputs);
        if self.idle[at] {
            return Ok(());
        }
        let cx = BindCx { inputs, outputs, packed: &step.packed, values, scratch };
        let needs = self.kernels[at].bind(&cx).map_err(placed)?;
        total.thread_scratch = total.thread_scratch.max(needs.thread_scratch);
        total.shared_scratch = total.shared_scratch.max(needs.shared_scratch);
        total.nanos += needs.nanos;
        Ok(())
    }

    /// Makes sure the arena is planned for these dimensions: where it is not, for the next powers of two, or, where there is
    /// not so much memory, for just these.
    fn place_arena(&mut self, dims: &[i64]) -> Result<()> {
        let program = Arc::clone(&self.program);
        let lir = &program.lir;
        match self.plan.clone() {
            Some(plan) if is_enough(&plan, lir, dims) => self.use_plan(plan),
            before => plan_for_run(lir, before.as_deref(), dims, program.pool, |plan| {
                self.replans += 1;
                tracing::debug!(module = %lir.name, replans = self.replans, "planned the arena for larger dimensions");
                self.use_plan(Arc::new(plan))
            }),
        }
    }

    /// Gets the arena that a plan needs, and points the bases into it.
    fn use_plan(&mut self, plan: Arc<MemoryPlan>) -> Result<()> {
        if let [own, rest @ ..] = &plan.pools[..] {
            if *own > self.arena.len() {
                self.ran = false;
                self.arena = allocate_aligned(*own, plan.alignment, "the arena")
                    .map_err(|e| plan_too_large(&self.program, &plan, &e))?;
            }
            // Without limits there are at most two pools: the outputs apart, and the rest.
            self.room.arena = rest.iter().sum();
            self.room.align = plan.alignment;
            self.pointed = std::ptr::null();
            for ((base, offset), &pool) in self.bases.iter_mut().zip(&plan.offsets).zip(&plan.pool_of) {
                if let (Some(offset), 0) = (*offset, pool) {
                    *base = self.arena.as_mut_ptr().wrapping_add(offset);
                }
            }
        }
        self.plan = Some(plan);
        Ok(())
    }

    /// Tells each product which packed weights the next one reads.
    fn link_weights(&mut self) {
        let mut next: Upcoming = None;
        for (kernel, _) in self.kernels.iter_mut().zip(&self.idle).rev().filter(|(_, idle)| !**idle) {
            kernel.set_next(next);
            next = kernel.weights().or(next);
        }
    }

    /// Works out where outputs lie, with the room they have or, after a run, the elements they are.
    pub(super) fn place_outputs(&mut self, ran: bool) -> Result<()> {
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
            let in_arena = self.program.donated[i].is_none();
            if in_arena && offset.checked_add(bytes).is_none_or(|end| end > self.arena.len()) {
                return Err(Error::new(
                    ErrorKind::Internal,
                    format!("output {:?} leaves the arena", slot.name),
                ));
            }
            self.outputs[i] = (offset, bytes);
        }
        Ok(())
    }
}
