//! A module prepared for a device: what stays the same between runs, and is shared by clones.

use std::sync::Arc;

use rlx_ir::lir::{BufferKind, Operand, Step as LirStep};
use rlx_ir::{Error, LirModule, NodeId, Result};

use super::api::DeviceApi;
use super::stage::Stages;
use crate::checks::ShapeRules;
use crate::extents::{Ex, ExtentTable, SlotSizes};
use crate::init::InitPlan;

/// A step with what the device prepared for it.
#[derive(Debug)]
pub struct Step<K> {
    /// What the device prepared.
    pub kernel: K,
    /// What it computes.
    pub node: NodeId,
    /// Whether it replaces elements of an input that the caller gave.
    pub updates_input: bool,
    /// The places of the table that binding it reads.
    pub(super) reads: Box<[u32]>,
    /// Of a step of the init program: the buffers that it writes, with their elements.
    pub(super) outputs: Box<[(usize, Ex)]>,
}

/// Which step of a module is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepAt {
    /// Whether it is of the init program.
    pub init: bool,
    /// Its number there, or in the run.
    pub index: usize,
}

/// An output of the module.
#[derive(Debug)]
pub(super) struct OutputSlot {
    pub(super) buffer: usize,
    /// The elements that its buffer has room for, and those that it is.
    pub(super) room: Ex,
    pub(super) elements: Ex,
}

/// A module with all its steps prepared.
pub struct Program<D: DeviceApi> {
    /// The device.
    pub device: D,
    /// The module.
    pub lir: Arc<LirModule>,
    /// The module as callers see it: the one that was compiled, also where a device runs another form of it.
    pub(super) shown: Arc<LirModule>,
    /// The steps of a run.
    pub steps: Vec<Step<D::Kernel>>,
    pub(super) table: ExtentTable,
    pub(super) init: InitPlan<Step<D::Kernel>>,
    pub(super) rules: ShapeRules,
    /// Where steps find dimensions out.
    pub(super) stages: Stages,
    /// Which steps are bound within a run, not before it.
    pub(super) waits: Vec<bool>,
    /// How large inputs and parameters must be.
    pub(super) given: [SlotSizes; 2],
    pub(super) outputs: Vec<OutputSlot>,
    /// The input whose memory each output takes.
    pub(super) donated: Vec<Option<usize>>,
}

impl<D: DeviceApi> Program<D> {
    /// Prepares the steps of a module that was verified. `machine` is what the bytes that init steps make depend on besides the
    /// module; `prepare` enters the extents that it will read in the table.
    ///
    /// # Errors
    /// What `prepare` reports, with the step's node.
    pub fn new(
        lir: Arc<LirModule>,
        device: D,
        machine: &str,
        mut prepare: impl FnMut(&D, &LirModule, StepAt, &LirStep, &mut ExtentTable) -> Result<D::Kernel>,
    ) -> Result<Program<D>> {
        let mut table = ExtentTable::default();
        let mut all = |init: bool, list: &[LirStep]| {
            let mut steps = Vec::with_capacity(list.len());
            for (index, step) in list.iter().enumerate() {
                table.forget_asked();
                let kernel = prepare(&device, &lir, StepAt { init, index }, step, &mut table);
                let kernel = kernel.map_err(|e| lir.graph.locate(step.node, e))?;
                let reads = table.asked();
                let of = |o: &Operand| {
                    let buffer = o.buffer.index();
                    (buffer, table.add(lir.buffers[buffer].elements))
                };
                let written = if init { &step.outputs[..] } else { &[] };
                let outputs = written.iter().map(of).collect();
                let is_input =
                    |o: &Operand| matches!(lir.buffers[o.buffer.index()].kind, BufferKind::Input(_));
                let updates_input = step.outputs.iter().any(is_input);
                steps.push(Step { kernel, node: step.node, updates_input, reads, outputs });
            }
            Ok::<_, Error>(steps)
        };
        let (init, steps) = (all(true, &lir.init)?, all(false, &lir.steps)?);
        let output = |slot: &rlx_ir::lir::IoSlot, table: &mut ExtentTable| {
            let buffer = slot.operand.buffer.index();
            let (room, elements) = (lir.buffers[buffer].elements, slot.operand.view.elements());
            OutputSlot { buffer, room: table.add(room), elements: table.add(elements) }
        };
        let outputs = lir.outputs.iter().map(|slot| output(slot, &mut table)).collect();
        let given = [&lir.inputs, &lir.params].map(|slots| SlotSizes::new(slots, &lir, &mut table));
        table.seal();
        let stages = Stages::new(&lir, &table)?;
        let waits = stages.waits(steps.len());
        Ok(Program {
            init: InitPlan::new(&lir, init, machine),
            rules: ShapeRules::new(&lir),
            donated: (0..lir.outputs.len()).map(|output| lir.donated(output)).collect(),
            device,
            steps,
            table,
            stages,
            waits,
            given,
            outputs,
            shown: Arc::clone(&lir),
            lir,
        })
    }

    /// The program of a module that is another form of `lir`: its inputs, parameters, outputs and symbols are the same, its steps are
    /// not. Callers see `lir`.
    #[must_use]
    pub fn shown_as(mut self, lir: Arc<LirModule>) -> Self {
        self.stages.number_as(&lir);
        Program { shown: lir, ..self }
    }

    /// Whether the init program, and the numbers of the buffers that it uses, are those of the module that callers see.
    pub(super) fn has_buffers_of_shown(&self) -> bool {
        let (own, shown) = (&self.lir, &self.shown);
        Arc::ptr_eq(own, shown) || own.buffers.starts_with(&shown.buffers) && own.init == shown.init
    }

    /// An error of a step, with where it happened.
    pub fn locate(&self, node: NodeId, error: Error) -> Error {
        self.lir.graph.locate(node, error).with_device(self.device.name())
    }

    /// What anyone who watches a run is told of a step.
    pub fn op_name(&self, node: NodeId) -> &'static str {
        self.lir.graph.node(node).op.kind().name()
    }
}
