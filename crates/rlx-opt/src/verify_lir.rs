//! The verifier of compiled modules: what must hold of a [`LirModule`] so that a device may run it.
//!
//! Anybody can make a module, or read one from a file, and kernels read and write through their operands' views without
//! looking again. So a backend verifies what it is to compile, anyone who made it: there is no way around these rules.
//! They hold for all values that the symbols can have. What depends on those values (a view may stay within its buffer
//! for some) is rejected here where it is wrong for all of them, and else checked each time that symbols get values
//! ([`rlx_ir::lir::place_view`]).
//!
//! - the graph verifies; every id is in its list;
//! - a step's operands have the dimensions and types of its node's inputs and results;
//! - no view leaves its buffer, and no size overflows;
//! - what a step writes it neither reads nor writes in another operand (an index that was checked stays what it was), but for
//!   operands of the same view that the device can write in place;
//! - what was written over is not read as what it was before;
//! - inputs, parameters and constants are exactly as large as they are declared;
//! - init steps read parameters, constants and prepared buffers, and write prepared ones; a run writes the arena;
//! - nothing is read before it is written;
//! - a packed buffer has one view, all of it, and is written and read by what knows its format;
//! - a symbol that a step binds is mentioned by later steps only, and buffers are large enough for what it is at most;
//! - the device claims every op and can use every view;
//! - the plan has room for every buffer, and buffers alive at once are apart.

mod overwritten;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use rlx_ir::dim::scoped;
use rlx_ir::graph::rule_may_hold;
use rlx_ir::lir::{
    Buffer, BufferKind, IoSlot, LirModule, LiveRange, MemoryPlan, Operand, Step, StepKind, View, place_view,
    views_apart,
};
use rlx_ir::maps::HashSet;
use rlx_ir::sort::sort_by_key;
use rlx_ir::{
    DataSymbols, Error, ErrorKind, Extent, Node, NodeId, Op, Result, Shape, SymRange, bound_of, sym,
    verify_ok,
};

use self::overwritten::Overwritten;
use crate::lower::used_symbols;
use crate::plan::buffer_bytes;
use crate::target::{Claim, Target};

/// Checks every rule of a module that `target`'s device is to run.
///
/// # Errors
/// [`ErrorKind::InvalidGraph`] naming the node and the rule, or what the graph's verifier reports.
pub fn verify_lir(lir: &LirModule, target: &dyn Target) -> Result<()> {
    scoped(|| {
        verify_program(lir, target)?;
        verify_interface(lir)
    })
}

/// Whether inputs, parameters and outputs are those of the module's graph.
fn verify_interface(lir: &LirModule) -> Result<()> {
    let declared = |node: &rlx_ir::Node| match &node.op {
        Op::Input { name } | Op::Param { name } => (name.clone(), node.shape.clone()),
        _ => (String::new(), node.shape.clone()),
    };
    slots_are(&lir.inputs, lir.graph.inputs().map(declared))?;
    slots_are(&lir.params, lir.graph.params().map(declared))?;
    let shapes = lir.graph.outputs.iter().map(|&id| lir.graph.shape(id));
    if lir.outputs.iter().map(|slot| &slot.shape).eq(shapes) {
        return Ok(());
    }
    Err(invalid("the outputs are not the graph's"))
}

/// The rules of [`verify_lir`] that keep a device from touching memory which is not the module's: all but those of its
/// interface. A part of a module keeps them, too, whose inputs and outputs are not the graph's.
///
/// # Errors
/// As [`verify_lir`].
pub fn verify_program(lir: &LirModule, target: &dyn Target) -> Result<()> {
    verify_ok(&lir.graph)?;
    lir.rules
        .outputs
        .iter()
        .try_for_each(|&id| rule_may_hold(&lir.rules, lir.rules.try_node(id)?).map(drop))?;
    let mut verifier = Verifier {
        lir,
        target,
        written: vec![false; lir.buffers.len()],
        packed: vec![None; lir.buffers.len()],
        within: HashSet::default(),
        overwritten: Overwritten::new(lir),
        donated: donated(lir),
        data: lir.graph.data_symbols(),
        found: HashSet::default(),
    };
    verifier.borders()?;
    verifier.program(&lir.init, Program::Init)?;
    verifier.program(&lir.steps, Program::Run)?;
    verifier.outputs()?;
    if lir.symbols != used_symbols(&lir.inputs, &lir.buffers, &lir.steps, &lir.rules) {
        return Err(invalid("the symbols are not those that occur"));
    }
    verify_live_ranges(lir)?;
    match &lir.plan {
        Some(plan) => verify_plan(lir, plan, target.pool_spec().align),
        None => Ok(()),
    }
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidGraph, format!("not a valid module: {}", what.into()))
}

/// The inputs whose memory the graph lets outputs take, where they do.
fn donated(lir: &LirModule) -> HashSet<usize> {
    let taken = |(&output, name): (&usize, &String)| {
        let BufferKind::Input(i) = lir.buffers.get(lir.outputs.get(output)?.operand.buffer.index())?.kind
        else {
            return None;
        };
        lir.inputs.get(i).filter(|slot| slot.name == *name).map(|_| i)
    };
    lir.graph.donations().iter().filter_map(taken).collect()
}

/// Which list of steps.
#[derive(Clone, Copy, PartialEq)]
enum Program {
    Init,
    Run,
}

struct Verifier<'a> {
    lir: &'a LirModule,
    target: &'a dyn Target,
    /// Whether a buffer of the init program or the arena was written so far.
    written: Vec<bool>,
    /// The one view of a packed buffer.
    packed: Vec<Option<&'a View>>,
    /// Views that stay within buffers of so many elements.
    within: HashSet<(*const View, Extent)>,
    overwritten: Overwritten<'a>,
    /// The inputs whose memory outputs take, as the graph lets them.
    donated: HashSet<usize>,
    /// The symbols that nodes bind, and those of them that steps bound so far.
    data: DataSymbols,
    found: HashSet<u32>,
}

impl<'a> Verifier<'a> {
    fn buffer(&self, operand: &Operand) -> Result<&'a Buffer> {
        self.lir.buffers.get(operand.buffer.index()).ok_or_else(|| {
            invalid(format!("buffer {} of {}", operand.buffer.index(), self.lir.buffers.len()))
        })
    }

    fn node(&self, id: NodeId) -> Result<&'a Node> {
        let nodes = self.lir.graph.nodes();
        nodes.get(id.index()).ok_or_else(|| invalid(format!("node {id} of {}", nodes.len())))
    }

    /// Inputs, parameters and constants.
    fn borders(&self) -> Result<()> {
        for (list, slots) in [("input", &self.lir.inputs), ("parameter", &self.lir.params)] {
            for (i, slot) in slots.iter().enumerate() {
                let buffer = self.buffer(&slot.operand)?;
                let own = match buffer.kind {
                    BufferKind::Input(of) => list == "input" && of == i,
                    BufferKind::Param(of) => list == "parameter" && of == i,
                    _ => false,
                };
                if !own || !is_whole(&slot.operand, buffer, &slot.shape) {
                    return Err(invalid(format!("{list} {:?} is not its buffer", slot.name)));
                }
            }
        }
        for (at, buffer) in self.lir.buffers.iter().enumerate() {
            let slot_is_here = |slots: &[IoSlot], i: usize| {
                slots.get(i).is_some_and(|s| s.operand.buffer.index() == at && buffer.format.is_none())
            };
            let fits = match &buffer.kind {
                BufferKind::Input(i) => slot_is_here(&self.lir.inputs, *i),
                BufferKind::Param(i) => slot_is_here(&self.lir.params, *i),
                BufferKind::Constant(data) => {
                    let elements = i64::try_from(data.num_elements()).unwrap_or(i64::MAX);
                    buffer.elements == Extent::Const(elements)
                        && buffer.dtype == data.dtype()
                        && buffer.format.is_none()
                }
                BufferKind::Prepared => true,
                BufferKind::Arena => buffer.format.is_none(),
            };
            if !fits {
                return Err(invalid(format!("buffer {at} is not as large as what it holds")));
            }
        }
        Ok(())
    }

    fn program(&mut self, steps: &'a [Step], program: Program) -> Result<()> {
        for step in steps {
            let node = self.node(step.node)?;
            self.step(step, node, program).map_err(|e| self.lir.graph.locate(step.node, e))?;
        }
        Ok(())
    }

    fn step(&mut self, step: &'a Step, node: &'a Node, program: Program) -> Result<()> {
        for operand in &step.inputs {
            let buffer = self.operand(operand)?;
            let there = match buffer.kind {
                BufferKind::Param(_) | BufferKind::Constant(_) => true,
                BufferKind::Prepared => self.written[operand.buffer.index()],
                BufferKind::Input(_) => program == Program::Run,
                BufferKind::Arena => program == Program::Run && self.written[operand.buffer.index()],
            };
            if !there {
                return Err(invalid(format!("reads buffer {} before it is there", operand.buffer.index())));
            }
        }
        for (j, operand) in step.outputs.iter().enumerate() {
            let buffer = self.operand(operand)?;
            let allowed = match (program, &buffer.kind) {
                (Program::Init, kind) => *kind == BufferKind::Prepared,
                (Program::Run, BufferKind::Input(i)) => self.is_donated(*i) && replaces(step, j),
                (Program::Run, kind) => *kind == BufferKind::Arena,
            };
            if !allowed {
                return Err(invalid(format!(
                    "writes buffer {}, which is not its own",
                    operand.buffer.index()
                )));
            }
        }
        match &step.kind {
            StepKind::Copy => self.copy(step)?,
            StepKind::Op(op) => self.op(step, op, node)?,
        }
        self.apart(step)?;
        self.in_place(step, node)?;
        self.overwritten.step(step, node)?;
        self.counted(step, program)?;
        step.outputs.iter().for_each(|o| self.written[o.buffer.index()] = true);
        Ok(())
    }

    /// Whether an output takes the memory of input `i`, as the graph lets it.
    fn is_donated(&self, i: usize) -> bool {
        self.donated.contains(&i)
    }

    /// Symbols that steps bind: each by one step of a run, before any other mentions it.
    fn counted(&mut self, step: &Step, program: Program) -> Result<()> {
        let own = step.data_symbol();
        let mut early = None;
        step.each_symbol(&mut |s| {
            if Some(s) != own && bound_of(&self.data)(s).is_some() && !self.found.contains(&s) {
                early = Some(s);
            }
        });
        if let Some(symbol) = early {
            return Err(invalid(format!("mentions {} before it is bound", sym::name(symbol))));
        }
        match own {
            Some(symbol) if program == Program::Init || self.found.contains(&symbol) => {
                Err(invalid(format!("binds {} a second time, or before a run", sym::name(symbol))))
            }
            own => {
                self.found.extend(own);
                Ok(())
            }
        }
    }

    /// An operand by itself: its ids, its type, its place in the buffer as far as it is fixed.
    fn operand(&mut self, operand: &'a Operand) -> Result<&'a Buffer> {
        let buffer = self.buffer(operand)?;
        let view = &*operand.view;
        if view.dims.len() != view.strides.len() || operand.dtype != buffer.dtype {
            return Err(invalid(format!("an operand {} of a buffer of {}", operand.dtype, buffer.dtype)));
        }
        if buffer.format.is_some() {
            let first = self.packed[operand.buffer.index()].get_or_insert(view);
            let whole = view.is_dense() && view.offset == Extent::Const(0);
            if !whole || *first != view || view.elements() != buffer.elements {
                return Err(invalid("a part of a packed buffer"));
            }
            return Ok(buffer);
        }
        // Operands share views, which stay where they are as long as the module does.
        let place = (Arc::as_ptr(&operand.view), buffer.elements);
        if !self.within.contains(&place) {
            self.stays_within(view, buffer.elements)?;
            self.within.insert(place);
        }
        Ok(buffer)
    }

    /// Whether a view can stay within a buffer of `elements`: the values that its extents can have are known as ranges.
    fn stays_within(&self, view: &View, elements: Extent) -> Result<()> {
        if let Some(((offset, axes), elements)) = numbers(view).zip(elements.as_const()) {
            return place_view(offset, axes, elements).map(drop).map_err(|e| self.outside(e.message()));
        }
        let of = |e: Extent| e.range(&|symbol| self.range(symbol));
        let offset = of(view.offset);
        // The first element is never after `low`, the last one never before `high`.
        let (mut low, mut high, mut empty) = (i128::from(offset.max), i128::from(offset.min), false);
        for (&d, &s) in view.dims.iter().zip(&*view.strides) {
            let (d, s) = (of(d), of(s));
            empty |= d.min < 1;
            let corners = [(d.min, s.min), (d.min, s.max), (d.max, s.min), (d.max, s.max)];
            let spans = corners.map(|(d, s)| (i128::from(d.max(1)) - 1) * i128::from(s));
            low = low.saturating_add(spans.into_iter().max().unwrap_or(0).min(0));
            high = high.saturating_add(spans.into_iter().min().unwrap_or(0).max(0));
        }
        let most = of(elements).max;
        if !empty && (low < 0 || high >= i128::from(most)) {
            let message = format!("a view of {low} to {high} of a buffer of at most {most} elements");
            return Err(self.outside(&message));
        }
        Ok(())
    }

    /// The error for a view that leaves its buffer whatever the dimensions are. Where shape rules are left to the run, the model
    /// declares dimensions that never fit, which its verifier could not see; otherwise the module is wrong.
    fn outside(&self, message: &str) -> Error {
        if self.lir.rules.outputs.is_empty() {
            return invalid(message);
        }
        Error::new(ErrorKind::Dimension, message)
            .with_hint("the dimensions that the model declares never fit together")
    }

    /// Whether what a step writes is apart from whatever else it uses, as far as extents are numbers: see
    /// [`Step::shared_buffers`].
    fn apart(&self, step: &Step) -> Result<()> {
        for (a, b) in step.shared_buffers() {
            let (Some(a), Some(b)) = (step.operand(a), step.operand(b)) else { continue };
            let (Some((at, first)), Some((other, second))) = (numbers(&a.view), numbers(&b.view)) else {
                continue;
            };
            let empty = first.iter().chain(&second).any(|&(dim, _)| dim == 0);
            if !empty && !views_apart((at, first.iter().copied()), (other, second.iter().copied())) {
                return Err(invalid(format!("writes what it uses besides, in buffer {}", a.buffer.index())));
            }
        }
        Ok(())
    }

    /// Whether the device can write over the inputs that the step writes over.
    fn in_place(&self, step: &Step, node: &Node) -> Result<()> {
        let can = |(i, _): (usize, usize)| {
            matches!(step.kind, StepKind::Op(_)) && self.target.writes_in_place(node, i, &self.lir.graph)
        };
        match step.in_place().find(|&pair| !can(pair)) {
            None => Ok(()),
            Some((i, _)) => Err(invalid(format!(
                "writes over its input {i}, for which {} has no kernel",
                self.target.name()
            ))),
        }
    }

    /// What is known of a symbol's value.
    fn range(&self, symbol: u32) -> SymRange {
        let declared = self.lir.graph.symbol_range(symbol);
        SymRange::new(declared.min.max(0), declared.max)
    }

    /// A copy of one tensor to one of the same dimensions.
    fn copy(&self, step: &Step) -> Result<()> {
        let ([from], [to]) = (&step.inputs[..], &step.outputs[..]) else {
            return Err(invalid("a copy of one tensor to one"));
        };
        if from.dtype != to.dtype || from.view.dims != to.view.dims {
            return Err(invalid("a copy between unlike tensors"));
        }
        // Whether a packed format can be read by a copy, the device knows alone.
        match self.lir.buffers[to.buffer.index()].format {
            None => Ok(()),
            Some(_) => Err(invalid("a copy into a packed buffer")),
        }
    }

    /// Whether the operands are those of the node, and the device has a kernel for it and for their views.
    fn op(&self, step: &Step, op: &Op, node: &Node) -> Result<()> {
        if *op != node.op {
            return Err(invalid("the step's op is not its node's"));
        }
        let all_fit = |operands: &[Operand], shapes: &mut dyn ExactSizeIterator<Item = &Shape>| {
            operands.len() == shapes.len()
                && operands.iter().zip(shapes).all(|(o, shape)| is_of(&o.view, o.dtype, shape))
        };
        if !all_fit(&step.inputs, &mut node.inputs.iter().map(|&id| self.lir.graph.shape(id)))
            || !all_fit(&step.outputs, &mut node.results().iter())
        {
            return Err(invalid("operands that do not fit the node"));
        }
        // What a packed buffer looks like, the kernels that read it take from the node that packs.
        let format = |o: &Operand| self.lir.buffers[o.buffer.index()].format;
        let packed_by = |op: &Op| if let Op::Pack { format } = op { Some(*format) } else { None };
        let reads = step.inputs.iter().zip(&node.inputs);
        if !{ reads }.all(|(o, &id)| format(o) == packed_by(&self.lir.graph.node(id).op))
            || !step.outputs.iter().all(|o| format(o) == packed_by(op))
        {
            return Err(invalid("a buffer in another format than its node packs"));
        }
        if let Claim::No(reason) = self.target.claim(node, &self.lir.graph) {
            return Err(invalid(format!("{} has no kernel for it: {reason}", self.target.name())));
        }
        let readable =
            |(i, o): (usize, &Operand)| o.view.is_dense() || self.target.reads_view(op, i, &o.view);
        let writable = |o: &Operand| o.view.is_dense() || self.target.writes_view(op, &o.view);
        if step.inputs.iter().enumerate().all(readable) && step.outputs.iter().all(writable) {
            return Ok(());
        }
        Err(invalid(format!("a view that {} has no kernel for", self.target.name())))
    }

    fn outputs(&self) -> Result<()> {
        for slot in &self.lir.outputs {
            let buffer = self.buffer(&slot.operand)?;
            let written = self.written[slot.operand.buffer.index()];
            let whole = is_whole_within(&slot.operand, buffer, &slot.shape, &self.data);
            let own = match buffer.kind {
                BufferKind::Input(i) => self.is_donated(i),
                ref kind => *kind == BufferKind::Arena,
            };
            if !own || !written || !whole {
                return Err(invalid(format!("output {:?} is not a whole buffer that is written", slot.name)));
            }
        }
        let outputs = self.lir.outputs.iter().zip(&self.lir.graph.outputs);
        { outputs }.try_for_each(|(slot, &id)| self.overwritten.read(&slot.operand, id))
    }
}

/// Whether a step replaces some elements of what its output `j` has before: what it replaces can be put back.
fn replaces(step: &Step, j: usize) -> bool {
    let StepKind::Op(op) = &step.kind else { return false };
    step.in_place().any(|(i, output)| output == j && op.def().updates() == Some(i))
}

/// The offset of a view and its dimensions with their strides, if all are numbers.
fn numbers(view: &View) -> Option<(i64, Vec<(i64, i64)>)> {
    let axes = view.dims.iter().zip(&*view.strides).map(|(d, s)| d.as_const().zip(s.as_const()));
    Some((view.offset.as_const()?, axes.collect::<Option<Vec<_>>>()?))
}

fn slots_are(slots: &[IoSlot], declared: impl Iterator<Item = (String, Shape)>) -> Result<()> {
    let found = slots.iter().map(|s| (s.name.clone(), s.shape.clone()));
    if found.eq(declared) { Ok(()) } else { Err(invalid("inputs or parameters are not the graph's")) }
}

/// Whether an operand is all of a buffer, of this shape.
fn is_whole(operand: &Operand, buffer: &Buffer, shape: &Shape) -> bool {
    is_whole_within(operand, buffer, shape, &DataSymbols::default())
}

/// Whether an operand is all of a buffer, of this shape, when symbols that steps bind are what they are at most.
fn is_whole_within(operand: &Operand, buffer: &Buffer, shape: &Shape, data: &DataSymbols) -> bool {
    let view = &operand.view;
    buffer.dtype == shape.dtype()
        && is_of(view, operand.dtype, shape)
        && view.offset == Extent::Const(0)
        && view.dims.len() == view.strides.len()
        && view.is_dense()
        && buffer.elements == view.elements().upper(&bound_of(data))
}

/// Whether a view is of a tensor of this shape, for all values of symbols.
fn is_of(view: &View, dtype: rlx_ir::DType, shape: &Shape) -> bool {
    dtype == shape.dtype() && view.dims.iter().copied().eq(shape.dims().iter().map(|d| d.extent()))
}

/// Whether the live ranges are those of the steps: from the first step that uses a buffer of the arena to the last one, or to
/// the next run for outputs.
fn verify_live_ranges(lir: &LirModule) -> Result<()> {
    // The steps have been verified: their buffers are there.
    let mut uses: Vec<Option<(usize, usize)>> = vec![None; lir.buffers.len()];
    for (at, step) in lir.steps.iter().enumerate() {
        for operand in step.inputs.iter().chain(&step.outputs) {
            uses[operand.buffer.index()].get_or_insert((at, at)).1 = at;
        }
    }
    for slot in &lir.outputs {
        if let Some((_, last)) = &mut uses[slot.operand.buffer.index()] {
            *last = usize::MAX;
        }
    }
    let in_arena = |&(buffer, _): &(usize, _)| lir.buffers[buffer].kind == BufferKind::Arena;
    let uses =
        uses.into_iter().enumerate().filter_map(|(buffer, uses)| Some((buffer, uses?))).filter(in_arena);
    let ranges = lir.live_ranges.iter().map(|r| (r.buffer.index(), (r.first, r.last)));
    if ranges.eq(uses) { Ok(()) } else { Err(invalid("the live ranges are not those of the steps")) }
}

/// Room for every buffer of the arena, and buffers alive at once apart.
fn verify_plan(lir: &LirModule, plan: &MemoryPlan, align: usize) -> Result<()> {
    let lists = [plan.offsets.len(), plan.pool_of.len()];
    if lists != [lir.buffers.len(); 2] || !plan.alignment.is_power_of_two() || plan.alignment < align {
        return Err(invalid("the plan is not of this module"));
    }
    let sum = plan.pools.iter().try_fold(0usize, |sum, &pool| sum.checked_add(pool));
    if sum != Some(plan.arena_bytes) || plan.largest_live_set > plan.arena_bytes {
        return Err(invalid("the arena is not the sum of its pools"));
    }
    // Each of these has a place; what has none is not in the arena, and is where its own memory is.
    if plan.offsets.iter().flatten().count() != lir.live_ranges.len() {
        return Err(invalid("the plan places what is not in the arena"));
    }
    let mut ranges: Vec<&LiveRange> = lir.live_ranges.iter().collect();
    sort_by_key(&mut ranges, |r| r.first);
    let mut ends: BinaryHeap<Reverse<(usize, u32, usize)>> = BinaryHeap::new();
    let mut alive: BTreeMap<(u32, usize), usize> = BTreeMap::new();
    for range in ranges {
        let (pool, at, bytes) = place(lir, plan, range)?;
        while let Some(Reverse((last, pool, at))) = ends.peek().copied() {
            if last >= range.first {
                break;
            }
            ends.pop();
            alive.remove(&(pool, at));
        }
        if bytes == 0 {
            continue;
        }
        let before = alive.range(..=(pool, at)).next_back();
        let after = alive.range((pool, at)..).next();
        let meets = before.is_some_and(|(&(p, _), &end)| p == pool && end > at)
            || after.is_some_and(|(&(p, start), _)| p == pool && start < at + bytes);
        if meets {
            return Err(invalid(format!("buffer {} is on another", range.buffer.index())));
        }
        alive.insert((pool, at), at + bytes);
        ends.push(Reverse((range.last, pool, at)));
    }
    Ok(())
}

/// Pool, offset and size of a buffer, which must be within the pool.
fn place(lir: &LirModule, plan: &MemoryPlan, range: &LiveRange) -> Result<(u32, usize, usize)> {
    let index = range.buffer.index();
    let buffer = &lir.buffers[index];
    let bytes = buffer_bytes(buffer.elements, buffer.dtype, &plan.bounds)?;
    let pool = plan.pool_of[index];
    let room = plan.pools.get(pool as usize);
    let at = plan.offsets[index].filter(|at| at.is_multiple_of(plan.alignment));
    match (at, room) {
        (Some(at), Some(&room)) if at.checked_add(bytes).is_some_and(|end| end <= room) => {
            Ok((pool, at, bytes))
        }
        _ => Err(invalid(format!("buffer {index} is not in its pool"))),
    }
}
