//! The init program: what depends on parameters and constants alone is computed once, and again only for
//! the parameters that changed.
//!
//! Buffers it leaves for the run are shared by clones. Buffers between init steps live only while it runs;
//! when a parameter changes, the steps that must run again are those that depend on it, and whatever makes
//! their transient inputs. Steps with symbolic extents run again with every new binding.

use std::collections::BTreeSet;

use rlx_ir::LirModule;
use rlx_ir::lir::BufferKind;

use super::{Program, ProgramStep};

/// One init step and what it depends on.
pub(crate) struct InitStep {
    pub(crate) step: ProgramStep,
    /// The parameters it depends on, directly or not.
    pub(crate) params: BTreeSet<usize>,
    /// Whether extents of it, or of what it reads, depend on symbols.
    pub(crate) symbolic: bool,
}

/// The init steps with their dependencies.
pub(crate) struct InitPlan {
    pub(crate) steps: Vec<InitStep>,
    /// For each buffer: the init steps that write it.
    pub(crate) writers: Vec<Vec<usize>>,
    /// For each buffer: the last init step that reads or writes it.
    pub(crate) last_use: Vec<usize>,
    /// For each buffer: whether it outlives the init program.
    pub(crate) kept: Vec<bool>,
    /// For each parameter: whether it can be forgotten once the init program ran.
    pub(crate) forgettable: Vec<bool>,
}

impl InitPlan {
    pub(crate) fn new(lir: &LirModule, steps: Vec<ProgramStep>, run: &[ProgramStep]) -> InitPlan {
        let buffers = lir.buffers.len();
        let mut writers: Vec<Vec<usize>> = vec![Vec::new(); buffers];
        let mut last_use = vec![0; buffers];
        let mut kept = vec![false; buffers];
        let mut depends: Vec<(BTreeSet<usize>, bool)> = vec![Default::default(); buffers];
        for (at, step) in steps.iter().enumerate() {
            let own = (BTreeSet::new(), step.is_symbolic());
            let all = step.inputs.iter().fold(own, |(mut params, symbolic), input| {
                let (more, open) = &depends[input.buffer as usize];
                params.extend(more);
                if let BufferKind::Param(i) = lir.buffers[input.buffer as usize].kind {
                    params.insert(i);
                }
                (params, symbolic || *open)
            });
            for operand in step.inputs.iter().chain(&step.outputs) {
                last_use[operand.buffer as usize] = at;
            }
            for output in &step.outputs {
                let slot = &mut depends[output.buffer as usize];
                slot.0.extend(&all.0);
                slot.1 |= all.1;
                writers[output.buffer as usize].push(at);
            }
        }
        run.iter().flat_map(|s| &s.inputs).for_each(|o| kept[o.buffer as usize] = true);
        let steps: Vec<InitStep> = steps.into_iter().map(|step| of_step(step, &depends)).collect();
        // What a symbolic step reads must still be there at the next binding.
        for s in steps.iter().filter(|s| s.symbolic) {
            s.step.inputs.iter().chain(&s.step.outputs).for_each(|o| kept[o.buffer as usize] = true);
        }
        let forgettable = forgettable(lir, &steps, &kept);
        InitPlan { steps, writers, last_use, kept, forgettable }
    }

    /// Which steps without symbols must run, given the parameters that changed (or that nothing ran yet).
    pub(crate) fn needed(&self, changed: &[bool], first: bool) -> Vec<bool> {
        let stale = |s: &InitStep| !s.symbolic && (first || s.params.iter().any(|&p| changed[p]));
        let mut needed: Vec<bool> = self.steps.iter().map(stale).collect();
        loop {
            let mut grew = false;
            for i in 0..self.steps.len() {
                if !needed[i] {
                    continue;
                }
                let step = &self.steps[i].step;
                // Inputs that are gone, and the other parts of what it writes.
                let gone = step.inputs.iter().filter(|o| !self.kept[o.buffer as usize]);
                for operand in gone.chain(&step.outputs) {
                    for &writer in &self.writers[operand.buffer as usize] {
                        grew |= !std::mem::replace(&mut needed[writer], true);
                    }
                }
            }
            if !grew {
                return needed;
            }
        }
    }

    /// Whether a step with symbols depends on a parameter that changed.
    pub(crate) fn symbolic_is_stale(&self, changed: &[bool]) -> bool {
        self.steps.iter().any(|s| s.symbolic && s.params.iter().any(|&p| changed[p]))
    }
}

fn of_step(step: ProgramStep, depends: &[(BTreeSet<usize>, bool)]) -> InitStep {
    let mut found = InitStep { params: BTreeSet::new(), symbolic: step.is_symbolic(), step };
    for output in &found.step.outputs {
        let (params, symbolic) = &depends[output.buffer as usize];
        found.params.extend(params);
        found.symbolic |= symbolic;
    }
    found
}

/// A parameter that the run does not read, and that no init step needs when another parameter changes.
fn forgettable(lir: &LirModule, steps: &[InitStep], kept: &[bool]) -> Vec<bool> {
    let mut can = vec![true; lir.params.len()];
    for (i, slot) in lir.params.iter().enumerate() {
        can[i] = !kept[slot.operand.buffer.index()];
    }
    for s in steps {
        if s.symbolic || s.params.len() > 1 {
            s.params.iter().for_each(|&p| can[p] = false);
        }
    }
    can
}

impl Program {
    /// Bytes of the buffer that an init step's output needs.
    pub(crate) fn prepared_bytes(
        &self,
        buffer: usize,
        operand: &super::layout::SymOperand,
        values: &super::extents::Values<'_>,
    ) -> rlx_ir::Result<usize> {
        let info = &self.lir.buffers[buffer];
        match info.format {
            Some(format) => crate::kernels::pack::packed_bytes(format, operand.bind(values)?.dims()),
            None => {
                let elements = values.size(operand.elements())?;
                info.dtype.storage_bytes(elements).ok_or_else(|| {
                    rlx_ir::Error::new(
                        rlx_ir::ErrorKind::OutOfMemory,
                        format!("{elements} elements are too many"),
                    )
                })
            }
        }
    }
}
