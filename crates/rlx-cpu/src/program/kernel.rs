//! A step prepared for the CPU: its kernel and its operands, for all dimensions.

use rlx_ir::lir::{LirModule, Step, StepKind};
use rlx_ir::{Error, ErrorKind, Result};

use super::Threads;
use super::extents::{ExtentTable, Values};
use super::layout::{Bound, SymOperand};
use crate::isa::Isa;
use crate::kernels::{self, CompileCx, StepKernel};

/// A step with its kernel, not yet bound.
pub(crate) struct Kernel {
    /// Copied by every binding.
    pub(crate) prototype: Box<dyn StepKernel>,
    pub(crate) inputs: Vec<SymOperand>,
    pub(crate) outputs: Vec<SymOperand>,
    pub(crate) packed: Vec<bool>,
    /// Operands (inputs, then outputs) that must not overlap and depend on symbols.
    apart: Vec<(usize, usize)>,
    /// Whether it has something to do even where no output has an element: it counts, or packs.
    always: bool,
}

impl Kernel {
    /// Whether there is nothing to compute for these outputs, whatever the other dimensions multiply to.
    pub(crate) fn is_idle(&self, outputs: &[Bound]) -> bool {
        !self.always && outputs.iter().all(|out| out.layout.elements() == 0)
    }

    /// The operands for these values, into lists whose room is reused.
    pub(crate) fn operands(
        &self,
        values: &Values<'_>,
        inputs: &mut Vec<Bound>,
        outputs: &mut Vec<Bound>,
    ) -> Result<()> {
        inputs.clear();
        outputs.clear();
        for operand in &self.inputs {
            inputs.push(operand.bind(values)?);
        }
        for operand in &self.outputs {
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
        threads: &Threads,
    ) -> Result<Kernel> {
        let mut operands = |list: &[rlx_ir::lir::Operand]| {
            // As many as there are: collecting results would make room for four.
            let mut operands = Vec::with_capacity(list.len());
            for operand in list {
                operands.push(SymOperand::new(operand, &lir.buffers[operand.buffer.index()], table)?);
            }
            Ok::<_, Error>(operands)
        };
        let (inputs, outputs) = (operands(&step.inputs)?, operands(&step.outputs)?);
        let prototype = kernels::compile(&mut CompileCx { step, module: lir, table, isa, threads })?;
        let packed: Vec<bool> = inputs.iter().map(|o| o.packed).collect();
        let knows = |i: usize| matches!(&step.kind, StepKind::Op(op) if kernels::pack::reads_packed(op, i));
        if let Some(i) = (0..packed.len()).find(|&i| packed[i] && !knows(i)) {
            let message = format!("input {i} is in a packed format, which this step does not read");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        // Those of numbers alone were verified.
        let open = |at: usize| step.operand(at).is_some_and(|o| o.view.is_symbolic());
        let apart = step.shared_buffers().filter(|&(a, b)| open(a) || open(b)).collect();
        let counts = matches!(&step.kind, StepKind::Op(op) if op.def().counted(op).is_some());
        let always = counts || outputs.iter().any(|out| out.packed);
        Ok(Kernel { prototype, inputs, outputs, packed, apart, always })
    }
}
