//! One step as a separate module, with the part of the init program that it needs.

use std::collections::{BTreeMap, BTreeSet};

use rlx_ir::lir::{Buffer, BufferId, BufferKind, IoSlot, LiveRange, Operand, Step, View};
use rlx_ir::{Dim, DimBinding, Extent, Graph, LirModule, Result, Shape};
use rlx_opt::PoolSpec;
use rlx_opt::plan::plan_memory;
/// How often the step is in its module: one run is then long against what every run costs, whatever it does.
const REPEATS: usize = 4;

/// Step number `at` of a module without open dimensions, several times over. What it reads of the arena are inputs,
/// what it writes are outputs, also where the whole module writes in place; parameters, constants and the init steps it
/// needs come along. `None` for a step that writes other parts of what it reads, or whose sizes are not known before the run.
///
/// # Errors
/// A step too large for the device.
pub(super) fn isolated(lir: &LirModule, at: usize, pool: PoolSpec) -> Result<Option<LirModule>> {
    let (step, copied) = apart(lir, &lir.steps[at]);
    let step = &step;
    let init = init_for(lir, step);
    let read = |steps: &[&Step]| -> BTreeSet<BufferId> {
        steps.iter().flat_map(|s| &s.inputs).map(|o| o.buffer).collect()
    };
    let written: BTreeSet<BufferId> = step.outputs.iter().map(|o| o.buffer).collect();
    let all: Vec<&Step> = init.iter().copied().chain([step]).collect();
    let open = |s: &&Step| !s.symbols().is_empty() || s.data_symbol().is_some();
    if all.iter().any(open) || !written.is_disjoint(&read(&[step])) {
        return Ok(None);
    }
    let mut extract = Extract {
        lir,
        copied,
        buffers: Vec::new(),
        places: BTreeMap::new(),
        inputs: Vec::new(),
        params: Vec::new(),
    };
    let used = all.iter().flat_map(|s| s.inputs.iter().chain(&s.outputs));
    used.for_each(|operand| extract.take(operand.buffer, written.contains(&operand.buffer)));
    let outputs =
        written.iter().enumerate().map(|(i, &buffer)| extract.slot(format!("out{i}"), buffer)).collect();
    let live = |&b: &BufferId| LiveRange { buffer: extract.places[&b], first: 0, last: usize::MAX };
    let mut module = LirModule {
        name: format!("step {at} of {}", lir.name),
        graph: lir.graph.clone(),
        rules: Graph::new("shape rules"),
        symbols: Vec::new(),
        init: init.iter().map(|s| extract.step(s)).collect(),
        steps: vec![extract.step(step); REPEATS],
        live_ranges: written.iter().map(live).collect(),
        outputs,
        inputs: extract.inputs,
        params: extract.params,
        buffers: extract.buffers,
        plan: None,
    };
    module.plan = Some(plan_memory(&module, &DimBinding::new(), pool)?);
    Ok(Some(module.hold_extents()))
}

/// The step with outputs of their own where it writes in place, and which buffers those are like, by position after the
/// module's own.
fn apart(lir: &LirModule, step: &Step) -> (Step, Vec<BufferId>) {
    let (mut apart, mut copied) = (step.clone(), Vec::new());
    for (_, j) in step.in_place() {
        let own = BufferId((lir.buffers.len() + copied.len()) as u32);
        copied.push(step.outputs[j].buffer);
        apart.outputs[j].buffer = own;
    }
    (apart, copied)
}

/// The init steps that `step` needs, in order.
fn init_for<'l>(lir: &'l LirModule, step: &Step) -> Vec<&'l Step> {
    let mut needed: BTreeSet<BufferId> = step.inputs.iter().map(|o| o.buffer).collect();
    let mut chosen = Vec::new();
    for init in lir.init.iter().rev() {
        if init.outputs.iter().any(|o| needed.contains(&o.buffer)) {
            needed.extend(init.inputs.iter().map(|o| o.buffer));
            chosen.push(init);
        }
    }
    chosen.reverse();
    chosen
}

/// A module in the making: its buffers, by what they are called in the whole one.
struct Extract<'l> {
    lir: &'l LirModule,
    /// What buffers beyond the module's own are like.
    copied: Vec<BufferId>,
    buffers: Vec<Buffer>,
    places: BTreeMap<BufferId, BufferId>,
    inputs: Vec<IoSlot>,
    params: Vec<IoSlot>,
}

impl Extract<'_> {
    /// A buffer of the whole module, or one like it.
    fn buffer(&self, id: BufferId) -> &Buffer {
        let own = self.copied.get(id.index().wrapping_sub(self.lir.buffers.len())).unwrap_or(&id);
        &self.lir.buffers[own.index()]
    }

    /// Takes a buffer over, once.
    fn take(&mut self, id: BufferId, is_output: bool) {
        if self.places.contains_key(&id) {
            return;
        }
        self.places.insert(id, BufferId(self.buffers.len() as u32));
        let buffer = self.buffer(id).clone();
        let kind = match buffer.kind {
            BufferKind::Arena if is_output => BufferKind::Arena,
            BufferKind::Input(_) | BufferKind::Arena => BufferKind::Input(self.inputs.len()),
            BufferKind::Param(_) => BufferKind::Param(self.params.len()),
            kind @ (BufferKind::Constant(_) | BufferKind::Prepared) => kind,
        };
        let border = match kind {
            BufferKind::Input(i) => Some(format!("in{i}")),
            BufferKind::Param(i) => Some(format!("w{i}")),
            _ => None,
        };
        let is_input = matches!(kind, BufferKind::Input(_));
        self.buffers.push(Buffer { kind, ..buffer });
        if let Some(name) = border {
            let slot = self.slot(name, id);
            if is_input { &mut self.inputs } else { &mut self.params }.push(slot);
        }
    }

    /// The border's view of a whole buffer.
    fn slot(&self, name: String, id: BufferId) -> IoSlot {
        let buffer = self.buffer(id);
        let elements = buffer.elements.as_const().map_or(0, |n| usize::try_from(n).unwrap_or(0));
        let view = View::dense_extents([Extent::Const(elements as i64)].into());
        let operand = Operand { buffer: self.places[&id], view: view.into(), dtype: buffer.dtype };
        IoSlot { name, shape: Shape::from_dims(&[Dim::Static(elements)], buffer.dtype), operand }
    }

    fn step(&self, step: &Step) -> Step {
        let operand = |o: &Operand| Operand { buffer: self.places[&o.buffer], ..o.clone() };
        let list = |operands: &[Operand]| operands.iter().map(operand).collect();
        Step { inputs: list(&step.inputs), outputs: list(&step.outputs), ..step.clone() }
    }
}

#[cfg(test)]
mod tests {
    use rlx_driver::Device;
    use rlx_ir::text;
    use rlx_opt::{CompileOptions, CompilePipeline};

    use super::*;
    use crate::device::DeviceBackend;

    #[test]
    fn a_step_that_writes_in_place_is_measured_with_an_output_of_its_own() {
        // The matmul adds the residual, which is not read again, in its epilogue.
        let graph = text::parse(
            r#"graph "residual" {
              %0 = Input {name="x"} : [64, 64] f32
              %1 = Param {name="w"} : [64, 64] f32
              %2 = Activation.Exp(%0) : [64, 64] f32
              %3 = MatMul(%0, %1) : [64, 64] f32
              %4 = Binary.Add(%3, %2) : [64, 64] f32
              return %4
            }"#,
        );
        let device = DeviceBackend::try_new(Device::Cpu).unwrap();
        let options = CompileOptions::default();
        let target = device.target(&options).unwrap();
        let lir = CompilePipeline::new(target.clone(), options.clone()).compile(&graph.unwrap()).unwrap().lir;
        let lir = &lir;
        let at = lir.steps.iter().position(|step| step.in_place().next().is_some()).expect("a step in place");
        let module = isolated(lir, at, target.pool_spec()).unwrap().expect("a module of one step");
        assert!(module.steps.iter().all(|step| step.in_place().next().is_none()), "{module}");
        rlx_opt::verify_lir::verify_program(&module, &*target).unwrap();
        let key =
            |lir: &LirModule, at: usize| device.backend().tuning_key(lir, &lir.steps[at], &options).unwrap();
        assert!(key(lir, at).is_some() && key(lir, at) == key(&module, 0));
    }
}
