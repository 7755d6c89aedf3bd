//! Writing results over operands: a step whose operand is not read any more needs no other memory for its result.
//!
//! After lowering, every result has a buffer of its own. Where a result is as large as an operand with the same view that
//! dies at that step, and the device's kernel can write over it ([`Target::writes_in_place`]), the operand's buffer takes the
//! result, and whatever reads the result later reads it there. A chain of elementwise steps then uses one buffer, and a
//! residual stream stays where it is.
//!
//! ```text
//! arena.1 = Region(input.0)                    arena.1 = Region(input.0)
//! arena.2 = MatMul(arena.1, param.0)      →    arena.2 = MatMul(arena.1, param.0)
//! arena.3 = Add(arena.2, arena.1)              arena.1 = Add(arena.2, arena.1)
//! ```

use std::collections::HashMap;

use rlx_ir::Graph;
use rlx_ir::lir::{Buffer, BufferId, BufferKind, IoSlot, LirModule, Operand, Step, StepKind};

use crate::target::Target;

/// Makes the steps of a run write in place where the device can; buffers that are not used any more are removed.
pub(super) fn write_in_place(module: &mut LirModule, target: &dyn Target) {
    let LirModule { graph, buffers, steps, outputs, .. } = &mut *module;
    let mut in_place = InPlace::new(graph, target, buffers, steps, outputs);
    for (at, step) in steps.iter_mut().enumerate() {
        in_place.step(at, step);
    }
    let mut moved_to = in_place.moved_to;
    for slot in outputs.iter_mut() {
        slot.operand.buffer = moved_to[slot.operand.buffer.index()];
    }
    take_donations(module, target, &mut moved_to);
    remove_unused(module, &moved_to);
}

/// Lets outputs take the memory of the inputs that the graph donates to them, where only some elements of it are replaced and
/// nothing reads the old value later. Elsewhere the output has memory of its own, which costs a copy.
fn take_donations(module: &mut LirModule, target: &dyn Target, moved_to: &mut [BufferId]) {
    if module.graph.donations().is_empty() {
        return;
    }
    let LirModule { graph, buffers, steps, outputs, inputs, .. } = &mut *module;
    let uses = InPlace::new(graph, target, buffers, steps, outputs);
    // Buffers that some step writes otherwise than by replacing elements of what is there.
    let mut whole = vec![false; buffers.len()];
    for (at, step) in steps.iter().enumerate() {
        for (j, output) in step.outputs.iter().enumerate() {
            let again = uses.first[output.buffer.index()] < at;
            whole[output.buffer.index()] |=
                again && !step.in_place().any(|(i, o)| o == j && replaces(step) == Some(i));
        }
    }
    let of_input: HashMap<&str, BufferId> =
        inputs.iter().map(|slot| (slot.name.as_str(), slot.operand.buffer)).collect();
    let mut taken = Vec::new();
    for (&output, name) in graph.donations() {
        let from = of_input.get(name.as_str()).copied();
        let to = outputs[output].operand.buffer;
        let fits = |from: BufferId| {
            let first = uses.first[to.index()];
            !whole[to.index()] && steps.get(first).is_some_and(|step| uses.may_take(first, step, from, to))
        };
        taken.extend(from.filter(|&from| fits(from)).map(|from| (to, from)));
    }
    for &(to, from) in &taken {
        moved_to[to.index()] = from;
    }
    let operands = steps.iter_mut().flat_map(|s| s.inputs.iter_mut().chain(&mut s.outputs));
    let operands = operands.chain(outputs.iter_mut().map(|slot| &mut slot.operand));
    operands.for_each(|operand| operand.buffer = moved_to[operand.buffer.index()]);
}

/// The input of a step that its only result is, with some elements replaced.
fn replaces(step: &Step) -> Option<usize> {
    match &step.kind {
        StepKind::Op(op) => op.def().updates(),
        StepKind::Copy => None,
    }
}

/// Removes the buffers that have moved; the others are numbered without gaps.
fn remove_unused(module: &mut LirModule, moved_to: &[BufferId]) {
    let stays = |at: usize| moved_to[at].index() == at;
    if (0..moved_to.len()).all(stays) {
        return;
    }
    let mut next = 0;
    let number = |at: usize| {
        next += u32::from(stays(at));
        BufferId(next.saturating_sub(1))
    };
    let numbers: Vec<BufferId> = (0..moved_to.len()).map(number).collect();
    let mut at = 0;
    module.buffers.retain(|_| {
        at += 1;
        stays(at - 1)
    });
    let slots = module.inputs.iter_mut().chain(&mut module.params).chain(&mut module.outputs);
    let steps = module.init.iter_mut().chain(&mut module.steps);
    let operands = steps.flat_map(|s| s.inputs.iter_mut().chain(&mut s.outputs));
    let operands = slots.map(|slot| &mut slot.operand).chain(operands);
    operands.for_each(|operand| operand.buffer = numbers[operand.buffer.index()]);
}

/// When buffers are used, and which took the place of others.
struct InPlace<'a> {
    graph: &'a Graph,
    target: &'a dyn Target,
    buffers: &'a [Buffer],
    /// The step that uses each buffer first, and the last one: `usize::MAX` for outputs.
    first: Vec<usize>,
    last: Vec<usize>,
    /// The buffer that each buffer's values are in.
    moved_to: Vec<BufferId>,
}

impl<'a> InPlace<'a> {
    fn new(
        graph: &'a Graph,
        target: &'a dyn Target,
        buffers: &'a [Buffer],
        steps: &[Step],
        outputs: &[IoSlot],
    ) -> Self {
        let (mut first, mut last) = (vec![usize::MAX; buffers.len()], vec![0; buffers.len()]);
        for (at, step) in steps.iter().enumerate() {
            for operand in step.inputs.iter().chain(&step.outputs) {
                let buffer = operand.buffer.index();
                first[buffer] = first[buffer].min(at);
                last[buffer] = at;
            }
        }
        outputs.iter().for_each(|slot| last[slot.operand.buffer.index()] = usize::MAX);
        let moved_to = (0..buffers.len()).map(|i| BufferId(i as u32)).collect();
        InPlace { graph, target, buffers, first, last, moved_to }
    }

    /// Where the values of a buffer are now. Steps come in order and buffers move when they are first written, so one look is
    /// enough.
    fn now(&self, buffer: BufferId) -> BufferId {
        self.moved_to[buffer.index()]
    }

    fn step(&mut self, at: usize, step: &mut Step) {
        for operand in &mut step.inputs {
            operand.buffer = self.now(operand.buffer);
        }
        for j in 0..step.outputs.len() {
            let own = step.outputs[j].buffer;
            if let Some(i) = (0..step.inputs.len()).find(|&i| self.fits(at, step, i, j)) {
                let over = step.inputs[i].buffer;
                self.moved_to[own.index()] = over;
                self.last[over.index()] = self.last[own.index()];
            }
            step.outputs[j].buffer = self.now(own);
        }
    }

    /// Whether output `j` of the step may be written over input `i`.
    fn fits(&self, at: usize, step: &Step, i: usize, j: usize) -> bool {
        let (from, to) = (&step.inputs[i], &step.outputs[j]);
        let of = |operand: &Operand| &self.buffers[operand.buffer.index()];
        let in_arena =
            [from, to].into_iter().all(|o| of(o).kind == BufferKind::Arena && of(o).format.is_none());
        // Nothing is in the result's own buffer but this result.
        let whole = |o: &Operand| o.view.is_dense() && o.view.elements() == of(o).elements;
        in_arena
            && from.view == to.view
            && from.dtype == to.dtype
            && of(from).elements == of(to).elements
            && whole(to)
            && self.first[to.buffer.index()] == at
            && self.last[from.buffer.index()] == at
            && step.outputs[..j].iter().all(|o| o.buffer != from.buffer)
            && self.may_write_over(step, from)
    }

    /// Whether buffer `to`, which the step writes first, may be the input `from`, of which the step replaces some elements.
    fn may_take(&self, at: usize, step: &Step, from: BufferId, to: BufferId) -> bool {
        let Some(operand) = replaces(step).and_then(|i| step.inputs.get(i)) else { return false };
        let [result] = &step.outputs[..] else { return false };
        let (old, new) = (&self.buffers[from.index()], &self.buffers[to.index()]);
        let whole = operand.view.is_dense() && operand.view.elements() == old.elements;
        operand.buffer == from
            && result.buffer == to
            && operand.view == result.view
            && (old.elements, old.dtype) == (new.elements, new.dtype)
            && whole
            && self.last[from.index()] == at
            && self.may_write_over(step, operand)
    }

    /// Whether the kernel may write over the operand, in whatever positions it is read.
    fn may_write_over(&self, step: &Step, operand: &Operand) -> bool {
        let node = self.graph.node(step.node);
        let mut uses = step.inputs.iter().enumerate().filter(|(_, o)| o.buffer == operand.buffer);
        matches!(step.kind, StepKind::Op(_))
            && uses.all(|(i, o)| o.view == operand.view && self.target.writes_in_place(node, i, self.graph))
    }
}
