//! The init program: what depends on parameters and constants alone is computed once, and again only for
//! the parameters that changed.
//!
//! Buffers it leaves for the run are shared by clones. Buffers between init steps live only while it runs;
//! when a parameter changes, the steps that must run again are those that depend on it, and whatever makes
//! their transient inputs. Steps with symbolic extents run again with every new binding.
//!
//! The sets of parameters that steps depend on are exact while they are small. In a chain of steps over many parameters they
//! would take the square of their number; there, a step depends on all parameters of the steps it is connected with.
//!
//! What they make is known by a key (see [`crate::prepared`]), so that executables share it, whatever modules
//! they come from.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use rlx_ir::hash::hash_of;
use rlx_ir::lir::{BufferKind, LirModule, Operand, Step, StepKind};
use rlx_ir::sort::{sort, sort_by};
use rlx_ir::{Op, graph_hash};

use crate::prepared::PreparedKey;

/// One init step and what it depends on.
#[derive(Debug)]
pub struct InitStep<S> {
    /// The step as the device compiled it.
    pub step: S,
    /// The parameters it depends on, directly or not, and perhaps others of the steps it is connected with.
    params: Params,
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
    /// For each buffer that init steps write: which.
    writers: HashMap<usize, Vec<usize>>,
    /// For each buffer: the last init step that reads or writes it.
    pub last_use: Vec<usize>,
    /// For each buffer: whether it outlives the init program.
    pub kept: Vec<bool>,
    /// For each parameter: whether it can be forgotten once the init program ran.
    pub forgettable: Vec<bool>,
    /// For each buffer that outlives the init program and does not depend on symbols: what it is, and the
    /// parameters it depends on, in the order of their names.
    pub shareable: BTreeMap<usize, (PreparedKey, Vec<usize>)>,
}

impl<S> InitStep<S> {
    /// The buffers that it reads.
    pub fn inputs(&self) -> &[usize] {
        &self.inputs
    }

    /// The buffers that it reads and writes.
    pub fn buffers(&self) -> impl Iterator<Item = usize> + '_ {
        self.inputs.iter().chain(&self.outputs).copied()
    }
}

impl<S> InitPlan<S> {
    /// The plan of `lir.init`, whose steps the device compiled to `steps`. `device` names whatever the bytes
    /// that steps make depend on besides the module, such as the instruction set.
    pub fn new(lir: &LirModule, steps: Vec<S>, device: &str) -> Self {
        let buffers = lir.buffers.len();
        let mut writers: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut last_use = vec![0; buffers];
        let mut kept = vec![false; buffers];
        let depends = dependencies(lir);
        for (at, step) in lir.init.iter().enumerate() {
            numbers(&step.inputs).chain(numbers(&step.outputs)).for_each(|b| last_use[b] = at);
            numbers(&step.outputs).for_each(|output| writers.entry(output).or_default().push(at));
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
        let mut any = AnyOf::new(changed);
        let stale = |s: &&InitStep<S>| !s.symbolic && any.of(&s.params);
        let outputs = self.steps.iter().filter(stale).flat_map(|s| &s.outputs);
        outputs.copied().filter(|&b| self.kept[b]).collect()
    }

    /// Which steps without symbols must run to make the kept buffers that are absent.
    pub fn needed(&self, absent: impl Fn(usize) -> bool) -> Vec<bool> {
        let wanted = |s: &InitStep<S>| !s.symbolic && s.outputs.iter().any(|&b| self.kept[b] && absent(b));
        let mut needed: Vec<bool> = self.steps.iter().map(wanted).collect();
        let mut open: Vec<usize> = (0..needed.len()).filter(|&i| needed[i]).collect();
        let mut seen = vec![false; self.kept.len()];
        while let Some(i) = open.pop() {
            // Inputs that are gone, and the other parts of what it writes.
            let step = &self.steps[i];
            let gone = step.inputs.iter().filter(|&&b| !self.kept[b]);
            for &buffer in gone.chain(&step.outputs) {
                if std::mem::replace(&mut seen[buffer], true) {
                    continue;
                }
                for &writer in self.writers.get(&buffer).into_iter().flatten() {
                    if !std::mem::replace(&mut needed[writer], true) {
                        open.push(writer);
                    }
                }
            }
        }
        needed
    }

    /// The buffers that outlive the init program and do not depend on symbols, each with a step that writes it.
    pub fn lasting(&self) -> Vec<(usize, &S)> {
        let mut found: Vec<(usize, &S)> = Vec::new();
        let mut known = vec![false; self.kept.len()];
        for init in self.steps.iter().filter(|s| !s.symbolic) {
            for &b in &init.outputs {
                if self.kept[b] && !std::mem::replace(&mut known[b], true) {
                    found.push((b, &init.step));
                }
            }
        }
        found
    }

    /// Whether a step with symbols depends on a parameter that changed.
    pub fn symbolic_is_stale(&self, changed: &[bool]) -> bool {
        let mut any = AnyOf::new(changed);
        self.steps.iter().any(|s| s.symbolic && any.of(&s.params))
    }
}

/// The parameters that something depends on, ascending.
type Params = Arc<[usize]>;

/// Larger sets of parameters are not kept for each buffer by itself.
const MOST_EXACT: usize = 64;

/// Whether one of some parameters is among those that are set; sets that many steps share are looked at once.
struct AnyOf<'a> {
    set: &'a [bool],
    known: HashMap<*const usize, bool>,
}

impl<'a> AnyOf<'a> {
    fn new(set: &'a [bool]) -> Self {
        AnyOf { set, known: HashMap::new() }
    }

    fn of(&mut self, params: &Params) -> bool {
        let any = || params.iter().any(|&p| self.set[p]);
        if params.len() <= MOST_EXACT {
            any()
        } else {
            *self.known.entry(params.as_ptr()).or_insert_with(any)
        }
    }
}

/// For each buffer: the parameters it depends on through init steps, and whether it depends on symbols.
fn dependencies(lir: &LirModule) -> Vec<(Params, bool)> {
    if lir.init.is_empty() {
        return vec![(Params::default(), false); lir.buffers.len()];
    }
    // An exact set, or none where it would be large.
    let mut depends: Vec<(Option<BTreeSet<usize>>, bool)> =
        vec![(Some(BTreeSet::new()), false); lir.buffers.len()];
    let joined = |a: Option<BTreeSet<usize>>, b: &Option<BTreeSet<usize>>| {
        let mut set = a?;
        set.extend(b.as_ref()?);
        (set.len() <= MOST_EXACT).then_some(set)
    };
    for step in &lir.init {
        let (mut params, mut symbolic) = (Some(BTreeSet::new()), is_symbolic(step, lir));
        for input in numbers(&step.inputs) {
            let (more, open) = &depends[input];
            params = match lir.buffers[input].kind {
                BufferKind::Param(i) => joined(params, &Some(BTreeSet::from([i]))),
                _ => joined(params, more),
            };
            symbolic |= open;
        }
        for output in numbers(&step.outputs) {
            let slot = &mut depends[output];
            slot.0 = joined(slot.0.take(), &params);
            slot.1 |= symbolic;
        }
    }
    let connected = Connected::new(lir);
    let mut whole: HashMap<usize, Params> = HashMap::new();
    let exact = |(b, (params, symbolic)): (usize, (Option<BTreeSet<usize>>, bool))| {
        let params = match params {
            Some(params) => params.into_iter().collect(),
            None => whole.entry(connected.part[b]).or_insert_with(|| connected.params(lir, b)).clone(),
        };
        (params, symbolic)
    };
    depends.into_iter().enumerate().map(exact).collect()
}

/// Which buffers init steps connect.
struct Connected {
    /// One buffer of each part stands for it.
    part: Vec<usize>,
}

impl Connected {
    fn new(lir: &LirModule) -> Connected {
        let mut part: Vec<usize> = (0..lir.buffers.len()).collect();
        fn root(part: &mut [usize], mut b: usize) -> usize {
            while part[b] != b {
                part[b] = part[part[b]];
                b = part[b];
            }
            b
        }
        for step in &lir.init {
            let mut buffers = numbers(&step.inputs).chain(numbers(&step.outputs));
            let Some(first) = buffers.next() else { continue };
            for b in buffers {
                let (a, b) = (root(&mut part, first), root(&mut part, b));
                part[a.max(b)] = a.min(b);
            }
        }
        for b in 0..part.len() {
            part[b] = root(&mut part, b);
        }
        Connected { part }
    }

    /// The parameters in the part of a buffer.
    fn params(&self, lir: &LirModule, buffer: usize) -> Params {
        let in_part = lir.buffers.iter().zip(&self.part).filter(|(_, part)| **part == self.part[buffer]);
        let mut params: Vec<usize> = { in_part }
            .filter_map(|(b, _)| match b.kind {
                BufferKind::Param(i) => Some(i),
                _ => None,
            })
            .collect();
        sort(&mut params);
        params.into()
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

fn of_step<S>(step: &Step, compiled: S, lir: &LirModule, depends: &[(Params, bool)]) -> InitStep<S> {
    let mut found = InitStep {
        params: Params::default(),
        symbolic: is_symbolic(step, lir),
        inputs: numbers(&step.inputs).collect(),
        outputs: numbers(&step.outputs).collect(),
        step: compiled,
    };
    for output in numbers(&step.outputs) {
        let (params, symbolic) = &depends[output];
        found.params = union(&found.params, params);
        found.symbolic |= symbolic;
    }
    found
}

/// The parameters of both sets. A large one has those of all that is connected.
fn union(a: &Params, b: &Params) -> Params {
    match (a.len(), b.len()) {
        (0, _) => Arc::clone(b),
        (n, m) if n.max(m) > MOST_EXACT => Arc::clone(if n > m { a } else { b }),
        _ => a.iter().chain(b.iter()).copied().collect::<BTreeSet<_>>().into_iter().collect(),
    }
}

/// A parameter that the run does not read, and that no init step needs when another parameter changes.
fn forgettable<S>(lir: &LirModule, steps: &[InitStep<S>], kept: &[bool]) -> Vec<bool> {
    let mut can: Vec<bool> = lir.params.iter().map(|slot| !kept[slot.operand.buffer.index()]).collect();
    let mut last: Option<&Params> = None;
    for s in steps.iter().filter(|s| s.symbolic || s.params.len() > 1) {
        // Steps of one part often share their set.
        if last.is_none_or(|last| !Arc::ptr_eq(last, &s.params)) {
            s.params.iter().for_each(|&p| can[p] = false);
        }
        last = Some(&s.params);
    }
    can
}

/// How many parameters are listed for all buffers together; what comes after them is not shared.
const MOST_LISTED: usize = 1 << 20;

/// What each buffer is that can be shared: a hash of the steps that made it, back to parameters and constants.
fn shareable(
    lir: &LirModule,
    depends: &[(Params, bool)],
    kept: &[bool],
    device: &str,
) -> BTreeMap<usize, (PreparedKey, Vec<usize>)> {
    if lir.init.is_empty() {
        return BTreeMap::new();
    }
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
    let mut listed = 0usize;
    let of = |(b, key): (usize, &Option<rlx_ir::GraphHash>)| {
        let made = matches!(lir.buffers[b].kind, BufferKind::Prepared) && kept[b] && !depends[b].1;
        let key = key.filter(|_| made)?;
        listed = listed.saturating_add(depends[b].0.len());
        if listed > MOST_LISTED {
            return None;
        }
        let mut params = depends[b].0.to_vec();
        sort_by(&mut params, |&x, &y| lir.params[x].name.cmp(&lir.params[y].name));
        Some((b, (PreparedKey(key), params)))
    };
    keys.iter().enumerate().filter_map(of).collect()
}
