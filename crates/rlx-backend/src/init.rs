//! The init program: what depends on parameters and constants alone is computed once, and again only for
//! the parameters that changed.
//!
//! Buffers it leaves for the run are shared by clones. Buffers between init steps live only while it runs;
//! when a parameter changes, the steps that must run again are those that depend on it, and whatever makes
//! their transient inputs. Steps with symbolic extents run again with every new binding.
//!
//! What they make is known by a key (see [`crate::prepared`]), so that executables share it, whatever modules
//! they come from.

use std::collections::BTreeSet;

use rlx_ir::hash::hash_of;
use rlx_ir::lir::{BufferKind, LirModule, Operand, Step, StepKind};
use rlx_ir::sort::sort_by;
use rlx_ir::{Op, graph_hash};

use crate::prepared::PreparedKey;

/// One init step and what it depends on.
#[derive(Debug)]
pub struct InitStep<S> {
    /// The step as the device compiled it.
    pub step: S,
    /// The parameters it depends on, directly or not.
    pub params: BTreeSet<usize>,
    /// Whether extents of it, or of what it reads, depend on symbols.
    pub symbolic: bool,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

/// The init steps with their dependencies.
#[derive(Debug)]
pub struct InitPlan<S> {
    /// The steps, in order.
    pub steps: Vec<InitStep<S>>,
    /// For each buffer: the init steps that write it.
    writers: Vec<Vec<usize>>,
    /// For each buffer: the last init step that reads or writes it.
    pub last_use: Vec<usize>,
    /// For each buffer: whether it outlives the init program.
    pub kept: Vec<bool>,
    /// For each parameter: whether it can be forgotten once the init program ran.
    pub forgettable: Vec<bool>,
    /// For each buffer that outlives the init program and does not depend on symbols: what it is, and the
    /// parameters it depends on, in the order of their names.
    pub shareable: Vec<Option<(PreparedKey, Vec<usize>)>>,
}

impl<S> InitPlan<S> {
    /// The plan of `lir.init`, whose steps the device compiled to `steps`. `device` names whatever the bytes
    /// that steps make depend on besides the module, such as the instruction set.
    pub fn new(lir: &LirModule, steps: Vec<S>, device: &str) -> Self {
        let buffers = lir.buffers.len();
        let mut writers: Vec<Vec<usize>> = vec![Vec::new(); buffers];
        let mut last_use = vec![0; buffers];
        let mut kept = vec![false; buffers];
        let mut depends: Vec<(BTreeSet<usize>, bool)> = vec![Default::default(); buffers];
        for (at, step) in lir.init.iter().enumerate() {
            let own = (BTreeSet::new(), is_symbolic(step, lir));
            let all = numbers(&step.inputs).fold(own, |(mut params, symbolic), input| {
                let (more, open) = &depends[input];
                params.extend(more);
                if let BufferKind::Param(i) = lir.buffers[input].kind {
                    params.insert(i);
                }
                (params, symbolic || *open)
            });
            numbers(&step.inputs).chain(numbers(&step.outputs)).for_each(|b| last_use[b] = at);
            for output in numbers(&step.outputs) {
                let slot = &mut depends[output];
                slot.0.extend(&all.0);
                slot.1 |= all.1;
                writers[output].push(at);
            }
        }
        lir.steps.iter().flat_map(|s| numbers(&s.inputs)).for_each(|b| kept[b] = true);
        let of = |(step, compiled): (&Step, S)| of_step(step, compiled, lir, &depends);
        let steps: Vec<InitStep<S>> = lir.init.iter().zip(steps).map(of).collect();
        // What a symbolic step reads must still be there at the next binding.
        for s in steps.iter().filter(|s| s.symbolic) {
            s.inputs.iter().chain(&s.outputs).for_each(|&b| kept[b] = true);
        }
        let forgettable = forgettable(lir, &steps, &kept);
        let shareable = shareable(lir, &depends, &kept, device);
        InitPlan { steps, writers, last_use, kept, forgettable, shareable }
    }

    /// The kept buffers of steps without symbols that depend on a parameter that changed.
    pub fn outdated(&self, changed: &[bool]) -> Vec<usize> {
        let stale = |s: &&InitStep<S>| !s.symbolic && s.params.iter().any(|&p| changed[p]);
        let outputs = self.steps.iter().filter(stale).flat_map(|s| &s.outputs);
        outputs.copied().filter(|&b| self.kept[b]).collect()
    }

    /// Which steps without symbols must run to make the kept buffers that are absent.
    pub fn needed(&self, absent: impl Fn(usize) -> bool) -> Vec<bool> {
        let wanted = |s: &InitStep<S>| !s.symbolic && s.outputs.iter().any(|&b| self.kept[b] && absent(b));
        let mut needed: Vec<bool> = self.steps.iter().map(wanted).collect();
        loop {
            let mut grew = false;
            for i in 0..self.steps.len() {
                if !needed[i] {
                    continue;
                }
                // Inputs that are gone, and the other parts of what it writes.
                let step = &self.steps[i];
                let gone = step.inputs.iter().filter(|&&b| !self.kept[b]);
                for &buffer in gone.chain(&step.outputs) {
                    for &writer in &self.writers[buffer] {
                        grew |= !std::mem::replace(&mut needed[writer], true);
                    }
                }
            }
            if !grew {
                return needed;
            }
        }
    }

    /// Whether one of these steps reads the buffer.
    pub fn reads(&self, chosen: &[bool], buffer: usize) -> bool {
        self.steps.iter().zip(chosen).any(|(s, &chosen)| chosen && s.inputs.contains(&buffer))
    }

    /// The buffers that outlive the init program and do not depend on symbols, each with a step that writes it.
    pub fn lasting(&self) -> Vec<(usize, &S)> {
        let mut found: Vec<(usize, &S)> = Vec::new();
        for init in self.steps.iter().filter(|s| !s.symbolic) {
            for &b in &init.outputs {
                if self.kept[b] && !found.iter().any(|&(known, _)| known == b) {
                    found.push((b, &init.step));
                }
            }
        }
        found
    }

    /// Whether a step with symbols depends on a parameter that changed.
    pub fn symbolic_is_stale(&self, changed: &[bool]) -> bool {
        self.steps.iter().any(|s| s.symbolic && s.params.iter().any(|&p| changed[p]))
    }
}

/// The numbers of the operands' buffers.
fn numbers(operands: &[Operand]) -> impl Iterator<Item = usize> {
    operands.iter().map(|o| o.buffer.index())
}

/// Whether an extent of an operand, or of the op, depends on a symbol.
fn is_symbolic(step: &Step, lir: &LirModule) -> bool {
    let open =
        |o: &Operand| o.view.is_symbolic() || lir.buffers[o.buffer.index()].elements.as_const().is_none();
    step.inputs.iter().chain(&step.outputs).any(open) || !step.symbols().is_empty()
}

fn of_step<S>(step: &Step, compiled: S, lir: &LirModule, depends: &[(BTreeSet<usize>, bool)]) -> InitStep<S> {
    let mut found = InitStep {
        params: BTreeSet::new(),
        symbolic: is_symbolic(step, lir),
        inputs: numbers(&step.inputs).collect(),
        outputs: numbers(&step.outputs).collect(),
        step: compiled,
    };
    for output in numbers(&step.outputs) {
        let (params, symbolic) = &depends[output];
        found.params.extend(params);
        found.symbolic |= symbolic;
    }
    found
}

/// A parameter that the run does not read, and that no init step needs when another parameter changes.
fn forgettable<S>(lir: &LirModule, steps: &[InitStep<S>], kept: &[bool]) -> Vec<bool> {
    let mut can: Vec<bool> = lir.params.iter().map(|slot| !kept[slot.operand.buffer.index()]).collect();
    for s in steps {
        if s.symbolic || s.params.len() > 1 {
            s.params.iter().for_each(|&p| can[p] = false);
        }
    }
    can
}

/// What each buffer is that can be shared: a hash of the steps that made it, back to parameters and constants.
fn shareable(
    lir: &LirModule,
    depends: &[(BTreeSet<usize>, bool)],
    kept: &[bool],
    device: &str,
) -> Vec<Option<(PreparedKey, Vec<usize>)>> {
    let leaf = |buffer: &rlx_ir::lir::Buffer| match &buffer.kind {
        BufferKind::Param(i) => hash_of(["param", &lir.params[*i].name, &lir.params[*i].shape.to_string()]),
        BufferKind::Constant(data) => hash_of([data.dtype().name().as_bytes(), data.bytes()]),
        _ => hash_of([device]),
    };
    // Only what init steps read; constants may be large.
    let mut read = vec![false; lir.buffers.len()];
    lir.init
        .iter()
        .flat_map(|s| s.inputs.iter().chain(&s.outputs))
        .for_each(|o| read[o.buffer.index()] = true);
    let mut keys: Vec<_> = lir.buffers.iter().zip(&read).map(|(b, &r)| r.then(|| leaf(b))).collect();
    for step in &lir.init {
        let operand = |o: &Operand| {
            let buffer = &lir.buffers[o.buffer.index()];
            let of = keys[o.buffer.index()].map_or_else(String::new, |key| key.to_string());
            format!("{of} {} {} {:?} {}", o.view, o.dtype, buffer.format, buffer.elements)
        };
        let mut parts = vec![match &step.kind {
            StepKind::Copy => "copy".to_string(),
            StepKind::Op(Op::Region { body }) => graph_hash(&body.graph).to_string(),
            StepKind::Op(op) => format!("{op:?}"),
        }];
        parts.extend(step.inputs.iter().chain(&step.outputs).map(operand));
        for (i, output) in step.outputs.iter().enumerate() {
            // A buffer that several steps write has a key of them all.
            let whole = hash_of(parts.iter().map(String::as_str).chain([i.to_string().as_str()]));
            keys[output.buffer.index()] = Some(whole);
        }
    }
    let of = |(b, key): (usize, &Option<rlx_ir::GraphHash>)| {
        let made = matches!(lir.buffers[b].kind, BufferKind::Prepared) && kept[b] && !depends[b].1;
        let mut params: Vec<usize> = depends[b].0.iter().copied().collect();
        sort_by(&mut params, |&x, &y| lir.params[x].name.cmp(&lir.params[y].name));
        key.filter(|_| made).map(|key| (PreparedKey(key), params))
    };
    keys.iter().enumerate().map(of).collect()
}
