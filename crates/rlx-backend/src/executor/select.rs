//! Binding: memory, views and steps of an executable for the dimensions of a run.
//!
//! An executable keeps its last eight bindings, so that dimensions that change back and forth are bound once. New dimensions begin
//! with a copy of the present binding (or take the memory of the oldest one), and only steps that read a number that
//! differs are bound again.

use std::sync::Arc;

use rlx_ir::lir::MemoryPlan;
use rlx_ir::{Error, ErrorKind, LirModule, Progress, Result, sym};

use super::api::DeviceApi;
use super::binding::{BINDINGS, Binding};
use super::program::Program;
use super::run::Executor;
use crate::checks;
use crate::extents::Values;
use crate::plans::{is_enough, plan_for_run};

impl<D: DeviceApi> Executor<D> {
    /// Makes the binding of these dimensions the present one. An error leaves none, and no plan for dimensions that there is no
    /// memory for.
    #[inline]
    pub(super) fn select(&mut self, dims: &[i64], progress: &Progress) -> Result<()> {
        if self.present.as_ref().is_some_and(|present| present.dims == dims) {
            return Ok(());
        }
        self.change(dims, progress)
    }

    #[cold]
    fn change(&mut self, dims: &[i64], progress: &Progress) -> Result<()> {
        self.clock += 1;
        let before = self.plan.clone();
        let changed = match self.others.iter().position(|b| b.dims == dims) {
            Some(at) => self.return_to(at),
            None => self.bind_new(dims, progress),
        };
        if changed.is_err() {
            (self.plan, self.plan_in_use) = (before, false);
        }
        changed
    }

    /// Goes back to a binding that was kept.
    fn return_to(&mut self, at: usize) -> Result<()> {
        let program = Arc::clone(&self.program);
        let mut binding = self.others.swap_remove(at);
        self.others.extend(self.present.take());
        // Parameters may have been set since, and another plan may be in use.
        self.check_params(&program, &binding.values)?;
        self.ensure_plan(&program, &binding.dims)?;
        if !binding.prepared.is_empty() {
            program.device.forget_weights(&mut self.queue);
        }
        for (buffer, memory) in &binding.prepared {
            self.places[*buffer] = D::place(memory);
        }
        binding.used = self.clock;
        self.present = Some(binding);
        self.size_outputs(false)
    }

    fn bind_new(&mut self, dims: &[i64], progress: &Progress) -> Result<()> {
        let program = Arc::clone(&self.program);
        checks::symbols(&program.lir, dims)?;
        let mut binding = self.next_binding(&program)?;
        self.others.extend(self.present.take());
        binding.dims.clear();
        binding.dims.extend_from_slice(dims);
        self.bind_all(&program, &mut binding, progress)?;
        binding.used = self.clock;
        self.stats.bound += 1;
        self.present = Some(binding);
        self.size_outputs(false)
    }

    /// A binding to put new dimensions in: a copy of the present one, or the one that was not used for the longest time.
    fn next_binding(&mut self, program: &Program<D>) -> Result<Binding<D>> {
        let kept = self.others.len() + usize::from(self.present.is_some());
        if kept >= BINDINGS {
            let oldest = (0..self.others.len()).min_by_key(|&i| self.others[i].used);
            if let Some(oldest) = oldest {
                let mut binding = self.others.swap_remove(oldest);
                D::forget_places(&mut binding.sequence);
                return Ok(binding);
            }
        }
        let like = self.present.as_ref();
        let steps = program.steps.iter();
        Ok(Binding {
            dims: Vec::new(),
            values: like.map_or_else(Vec::new, |b| b.values.clone()),
            found: Vec::new(),
            staged: vec![false; program.stages.list.len()],
            sequence: program.device.sequence(&self.queue, steps, like.map(|b| &b.sequence))?,
            prepared: Vec::new(),
            input_bytes: Vec::with_capacity(program.lir.inputs.len()),
            whole: like.is_some_and(|b| b.whole),
            used: 0,
        })
    }

    /// Checks, plan and steps for the dimensions of a binding.
    fn bind_all(&mut self, program: &Program<D>, b: &mut Binding<D>, progress: &Progress) -> Result<()> {
        // Steps that count leave numbers behind that they were not bound to.
        let partly = std::mem::replace(&mut b.whole, false) && program.stages.list.is_empty();
        std::mem::swap(&mut self.values_before, &mut b.values);
        program.evaluate(&b.dims, &mut b.found, &mut b.values)?;
        b.staged.fill(false);
        program.hold_rules(&b.dims, &b.found)?;
        self.check_params(program, &b.values)?;
        program.given[0].bytes(&Values(&b.values), &mut b.input_bytes)?;
        self.ensure_plan(program, &b.dims)?;
        self.initialise_symbolic(program, b, progress)?;
        let (values, before) = (Values(&b.values), &self.values_before);
        let differs = |&slot: &u32| before.get(slot as usize) != b.values.get(slot as usize);
        for (at, step) in program.steps.iter().enumerate().filter(|&(at, _)| !program.waits[at]) {
            if partly && !step.reads.iter().any(differs) {
                continue;
            }
            self.busy_with = Some(step.node);
            let bound = program.device.bind(&mut b.sequence, at, step, &values);
            bound.map_err(|e| program.locate(step.node, e))?;
            self.stats.steps += 1;
        }
        program.device.seal(&mut self.queue, &mut b.sequence)?;
        b.whole = true;
        Ok(())
    }

    /// Whether the parameters are as large as they must be.
    fn check_params(&self, program: &Program<D>, values: &[i64]) -> Result<()> {
        program.given[1].check_all(&Values(values), |i| self.params.bytes(i))
    }

    /// Makes sure memory is planned for these dimensions: where it is not, for the next powers of two, or, where there is not so
    /// much memory, for just these.
    fn ensure_plan(&mut self, program: &Program<D>, dims: &[i64]) -> Result<()> {
        let lir = &program.lir;
        match self.plan.clone() {
            Some(plan) if is_enough(&plan, lir, dims) => {
                if self.plan_in_use {
                    Ok(())
                } else {
                    self.use_plan(program, plan)
                }
            }
            before => plan_for_run(lir, before.as_deref(), dims, program.device.pools(), |plan| {
                self.stats.planned += 1;
                let bytes = plan.arena_bytes;
                tracing::debug!(module = %lir.name, bytes, "planned memory for larger dimensions");
                self.use_plan(program, Arc::new(plan))
            }),
        }
    }

    /// Memory is being replaced: no binding keeps the old.
    pub(super) fn forget_places(&mut self) {
        let all = self.present.iter_mut().chain(&mut self.others);
        all.for_each(|binding| D::forget_places(&mut binding.sequence));
    }

    fn use_plan(&mut self, program: &Program<D>, plan: Arc<MemoryPlan>) -> Result<()> {
        self.plan_in_use = false;
        self.forget_places();
        let used = program.device.use_plan(&mut self.queue, &program.lir, &plan, &mut self.places);
        used.map_err(|e| plan_too_large(program, &plan, e))?;
        for (home, slot) in self.homes.iter_mut().zip(&program.outputs) {
            *home = self.places[slot.buffer].clone();
        }
        (self.plan, self.plan_in_use) = (Some(plan), true);
        Ok(())
    }
}

/// The error of a plan for which there is no memory.
fn plan_too_large<D: DeviceApi>(program: &Program<D>, plan: &MemoryPlan, e: Error) -> Error {
    if e.kind() != ErrorKind::OutOfMemory {
        return e;
    }
    let lir: &LirModule = &program.lir;
    let gigabytes = |bytes: usize| format!("{:.1} GB", bytes as f64 / 1e9);
    let bound = |&s: &u32| plan.bounds.get(s).map(|n| format!("{} up to {n}", sym::name(s)));
    let bounds: Vec<String> = lir.symbols.iter().filter_map(bound).collect();
    let bounds =
        if bounds.is_empty() { String::new() } else { format!(", planned for {}", bounds.join(", ")) };
    let (need, least) = (gigabytes(plan.arena_bytes), gigabytes(plan.largest_live_set));
    let message = format!("the values of one run need {need} ({least} at one step{bounds}): {}", e.message());
    Error::new(ErrorKind::OutOfMemory, message)
        .with_device(program.device.name())
        .with_hint(
            "give smaller dimensions, such as a smaller batch, or run the parts of the batch one by one",
        )
        .with_source(e)
}
