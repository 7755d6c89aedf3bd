//! A step prepared for the CPU: its kernel and its operands, for all dimensions.

use std::sync::Arc;

use rlx_backend::extents::{ExtentTable, Values};
use rlx_ir::lir::{BufferKind, LirModule, Step, StepKind};
use rlx_ir::op::PackFormat;
use rlx_ir::{Error, ErrorKind, Result};

use crate::isa::Isa;
use crate::kernels::{self, BodyProgram, CompileCx, Programs, StepKernel};
use crate::layout::{Bound, SymOperand};

/// A step with its kernel, not yet bound.
pub(crate) struct Kernel {
    /// Copied by every binding.
    pub(crate) prototype: Box<dyn StepKernel>,
    /// The inputs, then the outputs.
    operands: Box<[SymOperand]>,
    inputs: u32,
    /// Operands that must not overlap and depend on symbols.
    apart: Box<[(usize, usize)]>,
    /// Whether it has something to do even where no output has an element: it counts, or packs.
    always: bool,
    /// How it hands values to its neighbours.
    pub(super) joined: Joined,
}

/// Whether a value is of two neighbouring steps alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Joined {
    /// The step's only result is read by the next step, and nothing else uses it.
    pub(crate) to_next: bool,
    /// The same of the step before.
    pub(crate) to_previous: bool,
}

impl Joined {
    /// Of each step of a run.
    pub(super) fn all(lir: &LirModule) -> Vec<Joined> {
        let mut uses = vec![0usize; lir.buffers.len()];
        let operands = lir.steps.iter().flat_map(|step| step.inputs.iter().chain(&step.outputs));
        operands
            .chain(lir.outputs.iter().map(|slot| &slot.operand))
            .for_each(|o| uses[o.buffer.index()] += 1);
        let mut all = vec![Joined::default(); lir.steps.len()];
        for (i, pair) in lir.steps.windows(2).enumerate() {
            let [result] = &pair[0].outputs[..] else { continue };
            let own = uses[result.buffer.index()] == 2
                && lir.buffers[result.buffer.index()].kind == BufferKind::Arena
                && pair[1].inputs.iter().any(|input| input.is_same_as(result));
            if own && pair[1].outputs.len() == 1 {
                (all[i].to_next, all[i + 1].to_previous) = (true, true);
            }
        }
        all
    }
}

/// The operands of a step that is being bound.
#[derive(Debug, Default)]
pub(crate) struct Operands {
    pub(crate) inputs: Vec<Bound>,
    pub(crate) outputs: Vec<Bound>,
    /// The packed formats that inputs are in.
    pub(crate) formats: Vec<Option<PackFormat>>,
}

impl Kernel {
    /// Whether there is nothing to compute for these outputs, whatever the other dimensions multiply to.
    pub(crate) fn is_idle(&self, outputs: &[Bound]) -> bool {
        !self.always && outputs.iter().all(|out| out.layout.elements() == 0)
    }

    /// What it reads.
    pub(crate) fn inputs(&self) -> &[SymOperand] {
        &self.operands[..self.inputs as usize]
    }

    /// What it writes.
    pub(crate) fn outputs(&self) -> &[SymOperand] {
        &self.operands[self.inputs as usize..]
    }

    /// The operands for these values, into lists whose room is reused.
    pub(crate) fn operands(&self, values: &Values<'_>, bound: &mut Operands) -> Result<()> {
        let Operands { inputs, outputs, formats } = bound;
        inputs.clear();
        outputs.clear();
        formats.clear();
        for operand in self.inputs() {
            inputs.push(operand.bind(values)?);
            formats.push(operand.format);
        }
        for operand in self.outputs() {
            outputs.push(operand.bind(values)?);
        }
        let operand = |at: usize| inputs.get(at).unwrap_or_else(|| &outputs[at - inputs.len()]);
        match self.apart.iter().find(|&&(a, b)| !operand(a).is_apart_from(operand(b))) {
            None => Ok(()),
            Some(_) => Err(Error::new(ErrorKind::Dimension, "these dimensions make views overlap")
                .with_hint("dimensions that the model declares equal differ")),
        }
    }

    /// Chooses the kernel of a step.
    pub(crate) fn new(
        step: &Step,
        lir: &LirModule,
        table: &mut ExtentTable,
        isa: Isa,
        body: &dyn Fn(LirModule) -> Result<Arc<dyn BodyProgram>>,
        programs: &mut Programs,
    ) -> Result<Kernel> {
        let inputs = step.inputs.len();
        let operand = |operand: &rlx_ir::lir::Operand| {
            SymOperand::new(operand, &lir.buffers[operand.buffer.index()], table)
        };
        let operands: Box<[SymOperand]> =
            step.inputs.iter().chain(&step.outputs).map(operand).collect::<Result<_>>()?;
        let prototype = kernels::compile(&mut CompileCx { step, module: lir, table, isa, body, programs })?;
        let knows = |i: usize| matches!(&step.kind, StepKind::Op(op) if kernels::pack::reads_packed(op, i));
        if let Some(i) = (0..inputs).find(|&i| operands[i].format.is_some() && !knows(i)) {
            let message = format!("input {i} is in a packed format, which this step does not read");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        // Those of numbers alone were verified.
        let open = |at: usize| step.operand(at).is_some_and(|o| o.view.is_symbolic());
        let apart = step.shared_buffers().filter(|&(a, b)| open(a) || open(b)).collect();
        let counts = matches!(&step.kind, StepKind::Op(op) if op.def().counted(op).is_some());
        let always = counts || operands[inputs..].iter().any(|out| out.format.is_some());
        let joined = Joined::default();
        Ok(Kernel { prototype, operands, inputs: inputs as u32, apart, always, joined })
    }
}
