//! LIR: what a device executes. A list of steps over buffers, with every extent an operand.
//!
//! A [`Step`] is one kernel of the device: an op of the graph, a fused region, or a copy. Its operands are
//! a buffer and a strided [`View`] into it; offsets, dimensions and strides are [`Extent`]s, so one module
//! serves every binding of its symbols: a run evaluates them from its `dims`. Movement ops (transpose,
//! slice, expand, reshape) leave no step behind, only views; concatenation leaves views that its producers
//! write into. Steps that depend on parameters and constants alone stand in `init`: they run at first use
//! and again only for the parameters that changed.
//!
//! Where arena buffers lie is not part of the steps but of a [`MemoryPlan`], made for upper bounds of the
//! symbols; larger bounds need a new plan, never new code.

mod print;
mod views;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use self::views::{place_view, views_apart};
use smallvec::SmallVec;

use crate::dim::{Dim, DimBinding, Extent, scoped};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, Node, NodeId};
use crate::maps::HashMap;
use crate::ops::{Op, PackFormat};
use crate::shape::Shape;
use crate::sort::sort;
use crate::tensor::ConstData;

/// The id of a buffer: its position in [`LirModule::buffers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

impl BufferId {
    /// The position in [`LirModule::buffers`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Whose memory a buffer is.
#[derive(Debug, Clone, PartialEq)]
pub enum BufferKind {
    /// The caller's input number `.0`: read only, unless an output [takes its memory](LirModule::donated).
    Input(usize),
    /// Parameter number `.0`: read only.
    Param(usize),
    /// A constant: read only.
    Constant(Arc<ConstData>),
    /// Written by an init step, kept between runs and shared by clones.
    Prepared,
    /// Within the arena, at the offset the plan says.
    Arena,
}

/// A piece of memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Buffer {
    /// Whose memory it is.
    pub kind: BufferKind,
    /// The element type.
    pub dtype: DType,
    /// How many elements it holds.
    pub elements: Extent,
    /// The memory format when it is not plain elements; the device then decides its size.
    pub format: Option<PackFormat>,
}

/// A strided window into a buffer; all numbers count elements, strides may be zero or negative. Views that differ in their
/// offset alone, as the parts of a concatenation do, share the lists.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct View {
    /// Where the element of index 0 lies.
    pub offset: Extent,
    /// The logical dimensions, outermost first.
    pub dims: Arc<[Extent]>,
    /// How far one step along each dimension goes.
    pub strides: Arc<[Extent]>,
}

impl View {
    /// The row-major view of a whole buffer.
    pub fn dense(dims: &[Dim]) -> View {
        Self::dense_extents(dims.iter().map(|d| d.extent()).collect())
    }

    /// The row-major view with these dimensions.
    pub fn dense_extents(dims: Arc<[Extent]>) -> View {
        let mut strides: Arc<[Extent]> = vec![Extent::Const(1); dims.len()].into();
        let outwards = Arc::make_mut(&mut strides);
        for i in (1..dims.len()).rev() {
            outwards[i - 1] = outwards[i] * dims[i];
        }
        View { offset: Extent::Const(0), dims, strides }
    }

    /// Whether the elements are row-major without gaps (dimensions of 1 may have any stride).
    pub fn is_dense(&self) -> bool {
        let one = Extent::Const(1);
        let (mut dense, mut inner) = (one, one);
        self.dims.iter().zip(&*self.strides).rev().all(|(&dim, &stride)| {
            // What is around the outermost dimension is no one's stride.
            dense = dense * inner;
            inner = dim;
            dim == one || stride == dense
        })
    }

    /// Dimensions, strides and offset.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        self.dims.iter().chain(&*self.strides).chain([&self.offset]).copied()
    }

    /// Whether any extent is not a number.
    pub fn is_symbolic(&self) -> bool {
        self.extents().any(|e| e.as_const().is_none())
    }

    /// How many elements the view shows.
    pub fn elements(&self) -> Extent {
        self.dims.iter().fold(Extent::Const(1), |n, &d| n * d)
    }
}

/// Puts values in for symbols; an expression that occurs again is not worked out again.
struct Folder<'b> {
    binding: &'b DimBinding,
    known: HashMap<Extent, Extent>,
    /// The last view and what became of it: neighbours often share one.
    view: Option<(Arc<View>, Arc<View>)>,
}

impl Folder<'_> {
    fn extent(&mut self, e: Extent) -> Extent {
        match e {
            Extent::Const(_) => e,
            Extent::Expr(_) => *self.known.entry(e).or_insert_with(|| e.bind(self.binding)),
        }
    }

    fn operand(&mut self, operand: &Operand) -> Operand {
        let view = match self.view.take() {
            Some((old, new)) if Arc::ptr_eq(&old, &operand.view) => new,
            _ => {
                let mut list = |extents: &[Extent]| extents.iter().map(|&e| self.extent(e)).collect();
                let (dims, strides) = (list(&operand.view.dims), list(&operand.view.strides));
                Arc::new(View { offset: self.extent(operand.view.offset), dims, strides })
            }
        };
        self.view = Some((Arc::clone(&operand.view), Arc::clone(&view)));
        Operand { buffer: operand.buffer, view, dtype: operand.dtype }
    }

    /// `nodes` are of the graph before and after.
    fn step(&mut self, step: &Step, nodes: [&Node; 2]) -> Step {
        let kind = match (&step.kind, &nodes[0].op) {
            (StepKind::Copy, _) => StepKind::Copy,
            // A step and its node share the body; so they do after.
            (StepKind::Op(Op::Region { body }), Op::Region { body: same }) if Arc::ptr_eq(body, same) => {
                StepKind::Op(nodes[1].op.clone())
            }
            (StepKind::Op(op), _) => StepKind::Op(op.bind(self.binding)),
        };
        let inputs = step.inputs.iter().map(|o| self.operand(o)).collect();
        let outputs = step.outputs.iter().map(|o| self.operand(o)).collect();
        Step { kind, inputs, outputs, node: step.node }
    }

    fn slot(&mut self, slot: &IoSlot) -> IoSlot {
        IoSlot {
            name: slot.name.clone(),
            shape: slot.shape.bind(self.binding),
            operand: self.operand(&slot.operand),
        }
    }
}

/// What a step reads or writes.
#[derive(Debug, Clone, PartialEq)]
pub struct Operand {
    /// The buffer.
    pub buffer: BufferId,
    /// The window into it, shared with whatever operands have the same.
    pub view: Arc<View>,
    /// The element type.
    pub dtype: DType,
}

impl Operand {
    /// Whether both are the same elements of one buffer, in the same order.
    pub fn is_same_as(&self, other: &Operand) -> bool {
        self.buffer == other.buffer && (Arc::ptr_eq(&self.view, &other.view) || self.view == other.view)
    }
}

/// What a step does.
#[derive(Debug, Clone, PartialEq)]
pub enum StepKind {
    /// Copies the elements of the only input, in logical order, to the only output (same dimensions,
    /// any strides on both sides).
    Copy,
    /// Computes an op of the graph: one that the device claimed, or a region.
    Op(Op),
}

/// One kernel of the device.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What it does.
    pub kind: StepKind,
    /// What it reads, in the op's order.
    pub inputs: Vec<Operand>,
    /// What it writes, one for each result.
    pub outputs: Vec<Operand>,
    /// The node of [`LirModule::graph`] it computes: its name and origin.
    pub node: NodeId,
}

impl Step {
    /// The symbol that the step binds, if it counts.
    pub fn data_symbol(&self) -> Option<u32> {
        match &self.kind {
            StepKind::Op(op) => op.data_symbol(),
            StepKind::Copy => None,
        }
    }

    /// The symbols that the step binds: its own, or those that nodes of a body bind where a device runs a graph as one step.
    pub fn data_symbols(&self) -> impl Iterator<Item = u32> + '_ {
        let body = match &self.kind {
            StepKind::Op(Op::Region { body }) => body.graph.nodes(),
            _ => &[],
        };
        self.data_symbol().into_iter().chain(body.iter().filter_map(|node| node.op.data_symbol()))
    }

    /// The operand that a step copies whole because it replaces some elements of it elsewhere than [in
    /// place](Step::in_place): something reads the old value later, or the device cannot.
    pub fn copied(&self) -> Option<&Operand> {
        let StepKind::Op(op) = &self.kind else { return None };
        let of = op.def().updates().filter(|&i| !self.in_place().any(|(input, _)| input == i))?;
        self.inputs.get(of)
    }

    /// Its inputs and then its outputs, by position.
    pub fn operand(&self, at: usize) -> Option<&Operand> {
        self.inputs.get(at).or_else(|| self.outputs.get(at.checked_sub(self.inputs.len())?))
    }

    /// Which inputs the step writes over, each with the output that does: they have one buffer and one view. A device takes such
    /// steps where its kernel reads all that it needs of an element before it writes it.
    pub fn in_place(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.outputs.iter().enumerate().flat_map(move |(j, output)| {
            let over = move |(i, input): (usize, &Operand)| input.is_same_as(output).then_some((i, j));
            self.inputs.iter().enumerate().filter_map(over)
        })
    }

    /// Pairs of operands (see [`Step::operand`]) that use one buffer and of which the step writes at least one, but for those
    /// that are written [in place](Step::in_place): their views must be apart ([`views_apart`]), because kernels read and
    /// write in any order, and use indices after they were checked.
    pub fn shared_buffers(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let operands = self.inputs.iter().chain(&self.outputs).enumerate();
        let mut users: SmallVec<[(BufferId, usize); 8]> = operands.map(|(at, o)| (o.buffer, at)).collect();
        sort(&mut users);
        let found = users.iter().enumerate().filter(|(_, user)| user.1 >= self.inputs.len());
        let pairs = found.flat_map(|(i, &(buffer, at))| {
            let same = users[..i].iter().rev().take_while(move |user| user.0 == buffer);
            same.map(move |&(_, other)| (other, at))
        });
        let in_place = |a: usize, b: usize| {
            a < self.inputs.len()
                && self.operand(a).zip(self.operand(b)).is_some_and(|(a, b)| a.is_same_as(b))
        };
        let pairs = pairs.filter(|&(a, b)| !in_place(a, b));
        pairs.collect::<Vec<_>>().into_iter()
    }

    /// Calls `found` with each expression that its operands and its op mention.
    pub fn each_extent(&self, found: &mut dyn FnMut(Extent)) {
        let views = self.inputs.iter().chain(&self.outputs).map(|o| &*o.view);
        views.flat_map(View::extents).for_each(&mut *found);
        if let StepKind::Op(op) = &self.kind {
            op.each_extent(found);
        }
    }

    /// The symbols that its operands and its op mention.
    pub fn symbols(&self) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        self.each_symbol(&mut |symbol| _ = found.insert(symbol));
        found
    }

    /// Calls `found` with each symbol that its operands and its op mention, perhaps more than once.
    pub fn each_symbol(&self, found: &mut dyn FnMut(u32)) {
        if let StepKind::Op(op) = &self.kind {
            op.each_symbol(found);
        }
        let views = self.inputs.iter().chain(&self.outputs).map(|o| &*o.view);
        views.flat_map(View::extents).for_each(|e| e.each_symbol(found));
    }
}

/// A named value at the module's border.
#[derive(Debug, Clone, PartialEq)]
pub struct IoSlot {
    /// The caller's name; outputs without one are `output0`, `output1`, ….
    pub name: String,
    /// Declared shape.
    pub shape: Shape,
    /// Where it is; an output's view is always dense.
    pub operand: Operand,
}

/// Which steps use a buffer: from the first that writes it to the last that reads it, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveRange {
    /// The buffer.
    pub buffer: BufferId,
    /// The first step.
    pub first: usize,
    /// The last step; `usize::MAX` for an output, which lives until the next run.
    pub last: usize,
}

/// Where the arena's buffers lie, for symbols up to some bound.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MemoryPlan {
    /// The largest values of the symbols the plan is good for.
    pub bounds: DimBinding,
    /// Bytes the arena takes: the sum of its pools.
    pub arena_bytes: usize,
    /// Bytes of each pool. Host memory is one; devices that limit a pool's size or use have several.
    pub pools: Vec<usize>,
    /// The pool of each buffer; 0 for buffers outside the arena.
    pub pool_of: Vec<u32>,
    /// Byte offset of each buffer in its pool; `None` for buffers outside the arena.
    pub offsets: Vec<Option<usize>>,
    /// Alignment of every offset, in bytes.
    pub alignment: usize,
    /// The most bytes that are live at one step: what no plan can go below.
    pub largest_live_set: usize,
}

impl MemoryPlan {
    /// Where a buffer is when the pools stand one after the other.
    pub fn arena_offset(&self, buffer: BufferId) -> Option<usize> {
        let offset = (*self.offsets.get(buffer.index())?)?;
        let before = self.pools.get(..*self.pool_of.get(buffer.index())? as usize)?;
        before.iter().try_fold(offset, |at, &pool| at.checked_add(pool))
    }
}

/// A compiled module.
#[derive(Debug, Clone, PartialEq)]
pub struct LirModule {
    /// A name for people.
    pub name: String,
    /// The scheduled graph that the steps were made from, regions and all.
    pub graph: Graph,
    /// The shape rules, of the graph as the user gave it and of the scheduled one, that not all values of the symbols
    /// keep (see [`crate::graph::open_rules`]): a run must not begin before they hold for its dimensions.
    pub rules: Graph,
    /// The symbols a run must give values for, ascending; a run's `dims` are in this order.
    pub symbols: Vec<u32>,
    /// All buffers.
    pub buffers: Vec<Buffer>,
    /// Steps over parameters and constants alone, in order.
    pub init: Vec<Step>,
    /// The steps of a run, in order.
    pub steps: Vec<Step>,
    /// When each arena buffer is in use.
    pub live_ranges: Vec<LiveRange>,
    /// What the caller gives at every run, in declaration order.
    pub inputs: Vec<IoSlot>,
    /// What the caller sets once, in declaration order.
    pub params: Vec<IoSlot>,
    /// What a run gives back, in order.
    pub outputs: Vec<IoSlot>,
    /// The plan, if the symbols' upper bounds are known.
    pub plan: Option<MemoryPlan>,
}

impl LirModule {
    /// The same module with values put in for symbols: the same buffers and steps, whose extents are numbers
    /// where all their symbols have values. It has no memory plan yet, because that depends on sizes.
    pub fn bind(&self, binding: &DimBinding) -> LirModule {
        scoped(|| self.bound(binding).hold_extents())
    }

    /// The module, whose graph keeps the expressions that it mentions: anyone who makes a module calls this.
    pub fn hold_extents(self) -> LirModule {
        let held = self.graph.held();
        let slots = || self.inputs.iter().chain(&self.params).chain(&self.outputs);
        slots().flat_map(|slot| slot.shape.dims()).for_each(|&dim| held.dim(dim));
        self.symbols.iter().for_each(|&symbol| held.symbol(symbol));
        let of_slots = slots().flat_map(|slot| slot.operand.view.extents());
        let of_buffers = self.buffers.iter().map(|buffer| buffer.elements);
        scoped(|| {
            let steps = self.init.iter().chain(&self.steps);
            steps.for_each(|step| step.each_extent(&mut |e| held.extent(e)));
            of_slots.chain(of_buffers).for_each(|e| held.extent(e));
        });
        self
    }

    fn bound(&self, binding: &DimBinding) -> LirModule {
        let mut folder = Folder { binding, known: HashMap::default(), view: None };
        let mut buffers = self.buffers.clone();
        buffers.iter_mut().for_each(|b| b.elements = folder.extent(b.elements));
        let graph = self.graph.bind(binding);
        let mut steps = |list: &[Step]| -> Vec<Step> {
            let nodes = |s: &Step| [self.graph.node(s.node), graph.node(s.node)];
            list.iter().map(|s| folder.step(s, nodes(s))).collect()
        };
        let (init, steps) = (steps(&self.init), steps(&self.steps));
        LirModule {
            name: self.name.clone(),
            graph,
            rules: self.rules.bind(binding),
            symbols: self.symbols.iter().copied().filter(|&s| binding.get(s).is_none()).collect(),
            buffers,
            init,
            steps,
            live_ranges: self.live_ranges.clone(),
            inputs: self.inputs.iter().map(|s| folder.slot(s)).collect(),
            params: self.params.iter().map(|s| folder.slot(s)).collect(),
            outputs: self.outputs.iter().map(|s| folder.slot(s)).collect(),
            plan: None,
        }
    }

    /// The input whose memory an output takes: the steps of a run update it in place.
    pub fn donated(&self, output: usize) -> Option<usize> {
        match self.buffers[self.outputs[output].operand.buffer.index()].kind {
            BufferKind::Input(input) => Some(input),
            _ => None,
        }
    }

    /// The symbols that steps bind, in the order of the steps.
    pub fn data_symbols(&self) -> Vec<u32> {
        self.steps.iter().flat_map(Step::data_symbols).collect()
    }

    /// The plan.
    ///
    /// # Errors
    /// [`ErrorKind::Dimension`] when a symbol has no upper bound.
    pub fn plan(&self) -> Result<&MemoryPlan> {
        self.plan.as_ref().ok_or_else(|| {
            let names: Vec<String> = self.symbols.iter().map(|&s| crate::dim::sym::name(s)).collect();
            Error::new(
                ErrorKind::Dimension,
                format!("no memory plan without bounds for {}", names.join(", ")),
            )
            .with_hint("bind the dimensions, or give their ranges")
        })
    }
}

/// One line of a [`BindingManifest`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct IoBindingEntry {
    /// The caller's name.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// Declared shape.
    pub shape: Shape,
    /// How many elements; `None` while a symbol is open.
    pub elem_count: Option<usize>,
    /// How many bytes; `None` while a symbol is open.
    pub byte_size: Option<usize>,
    /// Where in the arena, for outputs; `None` for what is elsewhere or is not planned.
    pub arena_offset: Option<usize>,
}

/// What a compiled module needs and gives, and where: for callers that bind memory themselves.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct BindingManifest {
    /// The graph's name.
    pub graph_name: String,
    /// Bytes of the arena; `None` while a symbol is open.
    pub arena_size: Option<usize>,
    /// Alignment of arena offsets, in bytes.
    pub alignment: usize,
    /// What the caller gives at every run, in declaration order.
    pub inputs: Vec<IoBindingEntry>,
    /// What the caller sets once, in declaration order.
    pub params: Vec<IoBindingEntry>,
    /// What a run gives back, in order.
    pub outputs: Vec<IoBindingEntry>,
}

impl BindingManifest {
    /// The manifest of `lir`.
    pub fn from_lir(lir: &LirModule) -> Self {
        let plan = lir.plan.as_ref();
        let entry = |slot: &IoSlot| IoBindingEntry {
            name: slot.name.clone(),
            dtype: slot.shape.dtype(),
            shape: slot.shape.clone(),
            elem_count: slot.shape.num_elements(),
            byte_size: slot.shape.size_bytes(),
            arena_offset: plan.and_then(|p| p.arena_offset(slot.operand.buffer)),
        };
        BindingManifest {
            graph_name: lir.name.clone(),
            arena_size: plan.map(|p| p.arena_bytes),
            alignment: plan.map_or(64, |p| p.alignment),
            inputs: lir.inputs.iter().map(entry).collect(),
            params: lir.params.iter().map(entry).collect(),
            outputs: lir.outputs.iter().map(entry).collect(),
        }
    }
}
