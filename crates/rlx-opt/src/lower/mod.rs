//! From the fused graph to steps: views for movement, slices for concatenation, the init program.
//!
//! One walk over the nodes keeps, for each value, the [`Operand`] it can be read through. Movement ops only
//! change that operand; a reshape that no strides can express, and an operand the device cannot read, put a
//! copy step in front. Producers of a concatenation write straight into its buffer where the device can
//! (*destination placement*); the others are copied. At the end, results are written over operands that die there
//! (`in_place.rs`). Nodes that depend on parameters and constants alone
//! make init steps.
//!
//! ```text
//! %2 = Transpose(%1) {perm=[1, 0]} : [4, 3] f32
//! %3 = MatMul(%0, %2) : [2, 3] f32
//!     →  arena.2[2, 3] f32 = MatMul(input.0[2, 4] f32, param.0[4, 3; strides 1, 4; at 0] f32)
//! ```

mod in_place;
pub(crate) mod view;

pub use view::shown;

use std::collections::BTreeSet;
use std::sync::Arc;

use rlx_ir::lir::{
    Buffer, BufferId, BufferKind, IoSlot, LirModule, LiveRange, MemoryPlan, Operand, Step, StepKind, View,
};
use rlx_ir::maps::{HashMap, HashSet};
use rlx_ir::op::PackFormat;
use rlx_ir::{
    DType, DataSymbols, Dim, DimBinding, Error, ErrorKind, Extent, Graph, Node, NodeId, Op, Result, Shape,
    bound_of, check_extents, graph::open_rules,
};

use crate::facts;
use crate::pipeline::PassContext;
use crate::plan;
use crate::target::Target;

/// What the graph as it was given declares of its dimensions: it is checked at every run, also where passes removed the node
/// that declared it.
#[derive(Debug)]
pub struct SourceRules {
    rules: Graph,
    /// The dimensions that nodes of the graph find out.
    counted: BTreeSet<u32>,
}

impl SourceRules {
    /// Those of a verified graph.
    pub fn new(source: &Graph) -> SourceRules {
        SourceRules { rules: open_rules(&[source]), counted: counted(source) }
    }
}

/// Lowers a legal, fused graph to steps over planned memory. `source` is of the graph as it was given.
///
/// # Errors
/// [`ErrorKind::Internal`] for a graph that breaks the language's rules; [`ErrorKind::OutOfMemory`] when the
/// plan exceeds the device's limits.
pub fn to_lir(graph: &Graph, source: &SourceRules, context: &PassContext<'_>) -> Result<LirModule> {
    let mut lowering = Lowering::new(graph, context.target);
    for node in graph.nodes() {
        lowering.node(node).map_err(|e| graph.locate(node.id, e))?;
    }
    let outputs = lowering.outputs()?;
    let mut module = lowering.into_module(outputs, rules_of_run(source, graph)).hold_extents();
    in_place::write_in_place(&mut module, context.target);
    module.live_ranges = live_ranges(&module.buffers, &module.steps, &module.outputs);
    module.plan = plan_within_bounds(&module, context)?;
    if cfg!(debug_assertions) {
        crate::verify_lir::verify_lir(&module, context.target).map_err(|e| match e.kind() {
            ErrorKind::Dimension => e,
            _ => Error::new(ErrorKind::Internal, format!("after lowering: {e}\n{module}")),
        })?;
    }
    Ok(module)
}

/// The rules of both graphs that a run checks. What depends on a dimension that only the source counts is left out: the
/// passes found its value.
fn rules_of_run(source: &SourceRules, graph: &Graph) -> Graph {
    let mut rules = open_rules(&[&source.rules, graph]);
    let gone: BTreeSet<u32> = source.counted.difference(&counted(graph)).copied().collect();
    if !gone.is_empty() {
        let mentions = |id: NodeId, rules: &Graph| {
            let mut mentions = false;
            rules.symbols_of_rule(rules.node(id), &mut |s| mentions |= gone.contains(&s));
            mentions
        };
        let kept = rules.outputs.iter().copied().filter(|&id| !mentions(id, &rules)).collect();
        rules.set_outputs(kept);
    }
    rules
}

/// The symbols that nodes of a graph bind.
fn counted(graph: &Graph) -> BTreeSet<u32> {
    graph.nodes().iter().filter_map(|node| node.op.data_symbol()).collect()
}

/// The memory plan for the upper bounds of the module's symbols; `None` while one has no bound.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`] when the plan exceeds the device's limits.
pub fn plan_within_bounds(module: &LirModule, context: &PassContext<'_>) -> Result<Option<MemoryPlan>> {
    let bounds = upper_bounds(module);
    let spec = context.target.pool_spec().for_options(context.options);
    bounds.map(|bounds| plan::plan_memory(module, &bounds, spec)).transpose()
}

/// The largest values of the module's symbols, if all are bounded.
fn upper_bounds(module: &LirModule) -> Option<DimBinding> {
    let mut bounds = DimBinding::new();
    for &symbol in &module.symbols {
        let max = module.graph.symbol_range(symbol).max;
        if max == i64::MAX {
            return None;
        }
        bounds.set(symbol, usize::try_from(max).ok()?);
    }
    Some(bounds)
}

struct Lowering<'g> {
    graph: &'g Graph,
    target: &'g dyn Target,
    /// Whether a node depends on parameters and constants alone.
    fixed: Vec<bool>,
    /// The symbols that nodes bind; memory is for what they are at most.
    data: DataSymbols,
    /// The operands of each node's results.
    values: Vec<Vec<Operand>>,
    /// For a producer that may write into a concatenation: which one, and which of its inputs.
    placement: HashMap<NodeId, (NodeId, usize)>,
    /// The transpose that is the only use of a step, and who uses it.
    transposes: HashMap<NodeId, (NodeId, Vec<NodeId>)>,
    joined: HashMap<NodeId, Joined>,
    dense_copies: HashMap<NodeId, Operand>,
    /// The dense views by their dimensions: most operands share one.
    dense_views: HashMap<Arc<[Extent]>, Arc<View>>,
    buffers: Vec<Buffer>,
    init: Vec<Step>,
    steps: Vec<Step>,
    inputs: Vec<IoSlot>,
    params: Vec<IoSlot>,
}

/// A concatenation: its buffer, its strides, and where each input begins.
struct Joined {
    buffer: BufferId,
    strides: Arc<[Extent]>,
    offsets: Vec<Extent>,
}

impl<'g> Lowering<'g> {
    fn new(graph: &'g Graph, target: &'g dyn Target) -> Self {
        // A list that grows leaves holes in memory where it was, and these are the largest.
        let uses = crate::rewrite::use_counts(graph);
        let placement = placements(graph, &uses);
        let joined = graph.nodes().iter().filter(|node| matches!(node.op, Op::Concat { .. }));
        let copies = joined.map(|node| node.inputs.len()).sum::<usize>() - placement.len();
        Lowering {
            graph,
            target,
            fixed: facts::fixed_nodes(graph),
            data: graph.data_symbols(),
            values: Vec::with_capacity(graph.len()),
            placement,
            transposes: only_transposed(graph, &uses),
            joined: HashMap::default(),
            dense_copies: HashMap::default(),
            dense_views: HashMap::default(),
            buffers: Vec::with_capacity(graph.len()),
            init: Vec::new(),
            steps: Vec::with_capacity(graph.len() + copies),
            inputs: Vec::new(),
            params: Vec::new(),
        }
    }

    fn buffer(
        &mut self,
        kind: BufferKind,
        dtype: DType,
        elements: Extent,
        format: Option<PackFormat>,
    ) -> BufferId {
        let elements = elements.upper(&bound_of(&self.data));
        self.buffers.push(Buffer { kind, dtype, elements, format });
        BufferId((self.buffers.len() - 1) as u32)
    }

    /// A buffer of its own for a result of this shape, in the arena or, when fixed, prepared.
    fn fresh(&mut self, shape: &Shape, fixed: bool, format: Option<PackFormat>) -> Operand {
        let kind = if fixed { BufferKind::Prepared } else { BufferKind::Arena };
        let buffer = self.buffer(kind, shape.dtype(), shape.elements(), format);
        Operand { buffer, view: self.dense_view(shape.dims()), dtype: shape.dtype() }
    }

    fn whole(&mut self, kind: BufferKind, shape: &Shape) -> Operand {
        let buffer = self.buffer(kind, shape.dtype(), shape.elements(), None);
        Operand { buffer, view: self.dense_view(shape.dims()), dtype: shape.dtype() }
    }

    /// The row-major view with these dimensions.
    fn dense_view(&mut self, dims: &[Dim]) -> Arc<View> {
        let dims: Vec<Extent> = dims.iter().map(|d| d.extent()).collect();
        match self.dense_views.get(&*dims) {
            Some(view) => Arc::clone(view),
            None => {
                let view = Arc::new(View::dense_extents(dims.into()));
                self.dense_views.insert(view.dims.clone(), Arc::clone(&view));
                view
            }
        }
    }

    fn push_step(&mut self, fixed: bool, step: Step) {
        if fixed { self.init.push(step) } else { self.steps.push(step) }
    }

    fn value(&self, id: NodeId) -> &Operand {
        &self.values[id.index()][0]
    }

    fn node(&mut self, node: &Node) -> Result<()> {
        let results = match &node.op {
            Op::Input { name } => {
                let operand = self.whole(BufferKind::Input(self.inputs.len()), &node.shape);
                self.inputs.push(IoSlot {
                    name: name.clone(),
                    shape: node.shape.clone(),
                    operand: operand.clone(),
                });
                vec![operand]
            }
            Op::Param { name } => {
                let operand = self.whole(BufferKind::Param(self.params.len()), &node.shape);
                self.params.push(IoSlot {
                    name: name.clone(),
                    shape: node.shape.clone(),
                    operand: operand.clone(),
                });
                vec![operand]
            }
            Op::Constant { data } => vec![self.whole(BufferKind::Constant(Arc::clone(data)), &node.shape)],
            Op::Result { index } => vec![self.result_of(node, *index)?],
            Op::Reshape { .. } => vec![self.reshape(node)],
            Op::Concat { axis } => vec![self.concat(node, *axis)?],
            op if view::is_movement(op) => match view::moved(op, &self.values_of(node), &node.shape) {
                Some(view) => {
                    let source = self.value(node.inputs[0]);
                    vec![Operand { view: Arc::new(view), ..source.clone() }]
                }
                None => self.compute(node),
            },
            _ => self.compute(node),
        };
        // Offsets and strides multiply what dimensions are.
        results.iter().try_for_each(|operand| check_extents(operand.view.extents()))?;
        self.values.push(results);
        Ok(())
    }

    fn values_of(&self, node: &Node) -> Vec<View> {
        node.inputs.iter().map(|&id| View::clone(&self.value(id).view)).collect()
    }

    fn result_of(&self, node: &Node, index: usize) -> Result<Operand> {
        let of = &self.values[node.inputs[0].index()];
        of.get(index)
            .cloned()
            .ok_or_else(|| Error::new(ErrorKind::Internal, format!("there is no result {index}")))
    }

    /// The value of `id` through a dense view, copied if need be.
    fn dense(&mut self, id: NodeId) -> Operand {
        let operand = self.value(id).clone();
        if operand.view.is_dense() {
            return operand;
        }
        if let Some(copy) = self.dense_copies.get(&id) {
            return copy.clone();
        }
        let fixed = self.fixed[id.index()];
        let copy = self.fresh(&self.graph.node(id).shape.clone(), fixed, None);
        let dims = operand.view.dims.clone();
        let copy = Operand { view: Arc::new(View::dense_extents(dims)), ..copy };
        let step =
            Step { kind: StepKind::Copy, inputs: vec![operand], outputs: vec![copy.clone()], node: id };
        self.push_step(fixed, step);
        self.dense_copies.insert(id, copy.clone());
        copy
    }

    fn reshape(&mut self, node: &Node) -> Operand {
        let source = self.value(node.inputs[0]).clone();
        let to: Vec<Extent> = node.shape.dims().iter().map(|d| d.extent()).collect();
        match view::reshaped(&source.view, &to) {
            Some(view) => Operand { view: Arc::new(view), ..source },
            None => {
                let copy = self.dense(node.inputs[0]);
                let view = View { offset: copy.view.offset, ..View::dense_extents(to.into()) };
                Operand { view: Arc::new(view), ..copy }
            }
        }
    }

    /// Where input `index` of concatenation `id` is in its buffer.
    fn concat_slice(&mut self, id: NodeId, index: usize) -> Operand {
        let node = self.graph.node(id);
        let Op::Concat { axis } = node.op else { return self.value(id).clone() };
        if !self.joined.contains_key(&id) {
            let joined = self.join(node, axis);
            self.joined.insert(id, joined);
        }
        let joined = &self.joined[&id];
        let input = self.graph.shape(node.inputs[index]);
        let (buffer, offset, strides) = (joined.buffer, joined.offsets[index], joined.strides.clone());
        let dims = self.dense_view(input.dims()).dims.clone();
        let view = View { offset, dims, strides };
        Operand { buffer, view: Arc::new(view), dtype: node.shape.dtype() }
    }

    /// A buffer for a concatenation, and where each of its inputs begins.
    fn join(&mut self, node: &Node, axis: usize) -> Joined {
        let Operand { buffer, view, .. } = self.fresh(&node.shape, self.fixed[node.id.index()], None);
        let mut at = Extent::Const(0);
        let offset = |&input: &NodeId| {
            let before = at;
            at = at + self.graph.shape(input).dim(axis).extent() * view.strides[axis];
            before
        };
        let offsets = node.inputs.iter().map(offset).collect();
        Joined { buffer, strides: view.strides.clone(), offsets }
    }

    fn concat(&mut self, node: &Node, _axis: usize) -> Result<Operand> {
        let fixed = self.fixed[node.id.index()];
        for (i, &input) in node.inputs.iter().enumerate() {
            let slice = self.concat_slice(node.id, i);
            let source = self.value(input).clone();
            if source != slice {
                let step =
                    Step { kind: StepKind::Copy, inputs: vec![source], outputs: vec![slice], node: node.id };
                self.push_step(fixed, step);
            }
        }
        let buffer = self.joined.get(&node.id).map(|joined| joined.buffer);
        let buffer = buffer.ok_or_else(|| Error::new(ErrorKind::Internal, "a concatenation of nothing"))?;
        Ok(Operand { buffer, view: self.dense_view(node.shape.dims()), dtype: node.shape.dtype() })
    }

    /// A step of the device.
    fn compute(&mut self, node: &Node) -> Vec<Operand> {
        let fixed = self.fixed[node.id.index()];
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (i, &id) in node.inputs.iter().enumerate() {
            let operand = self.value(id);
            let readable = operand.view.is_dense() || self.target.reads_view(&node.op, i, &operand.view);
            inputs.push(if readable { operand.clone() } else { self.dense(id) });
        }
        let format = if let Op::Pack { format } = node.op { Some(format) } else { None };
        let outputs = match self.placement.get(&node.id).copied() {
            Some((concat, index)) => {
                let slice = self.concat_slice(concat, index);
                // Init steps and runs must not share a buffer that both write.
                let same_program = self.fixed[concat.index()] == fixed;
                // Where the slice is must be known when the step runs.
                let counts = |e: Extent| e.symbols().iter().any(|s| bound_of(&self.data)(*s).is_some());
                let placed = !slice.view.extents().any(counts);
                if same_program
                    && placed
                    && (slice.view.is_dense() || self.target.writes_view(&node.op, &slice.view))
                {
                    vec![slice]
                } else {
                    vec![self.fresh(&node.shape, fixed, format)]
                }
            }
            None => match self.transposed(node) {
                Some(operand) => vec![operand],
                None => node.results().iter().map(|shape| self.fresh(shape, fixed, format)).collect(),
            },
        };
        let step =
            Step { kind: StepKind::Op(node.op.clone()), inputs, outputs: outputs.clone(), node: node.id };
        self.push_step(fixed, step);
        outputs
    }

    /// A place for the result of a step that only a transpose uses, in the order behind that: where the transposed value is wanted dense, and the
    /// step writes it for less than a copy does.
    fn transposed(&mut self, node: &Node) -> Option<Operand> {
        let (transpose, users) = self.transposes.get(&node.id)?;
        let transpose = self.graph.node(*transpose);
        let Op::Transpose { perm } = &transpose.op else { return None };
        // Where each dimension of the result goes.
        let mut places = vec![0; perm.len()];
        perm.iter().enumerate().for_each(|(to, &from)| places[from] = to);
        let there = View::dense(transpose.shape.dims());
        let view = view::moved(&Op::Transpose { perm: places }, &[there], &node.shape)?;
        let here = view::moved(&transpose.op, &[View::dense(node.shape.dims())], &transpose.shape)?;
        if !self.target.transposes(&node.op, &view) || !self.is_wanted_dense(transpose.id, users, &here) {
            return None;
        }
        let whole = self.fresh(&transpose.shape, self.fixed[node.id.index()], None);
        Some(Operand { view: Arc::new(view), ..whole })
    }

    /// Whether a value through this view would be copied: it is a result, or one of its users does not read the view.
    fn is_wanted_dense(&self, id: NodeId, users: &[NodeId], view: &View) -> bool {
        let graph = self.graph;
        let reads = |user: &Node, input: usize| match &user.op {
            Op::Reshape { .. } => {
                let to: Vec<Extent> = user.shape.dims().iter().map(|d| d.extent()).collect();
                view::reshaped(view, &to).is_some()
            }
            op => view::is_movement(op) || self.target.reads_view(op, input, view),
        };
        let copies = |user: &Node| (0..user.inputs.len()).any(|i| user.inputs[i] == id && !reads(user, i));
        graph.outputs.contains(&id) || users.iter().any(|&user| copies(graph.node(user)))
    }

    /// Outputs are dense and whole in arena buffers of their own; what does not is copied there.
    fn outputs(&mut self) -> Result<Vec<IoSlot>> {
        let mut slots: Vec<IoSlot> = Vec::new();
        let mut given: HashSet<BufferId> = HashSet::default();
        for (i, &id) in self.graph.outputs.iter().enumerate() {
            let node = self.graph.node(id);
            let operand = self.dense_copies.get(&id).unwrap_or(self.value(id)).clone();
            let buffer = &self.buffers[operand.buffer.index()];
            let whole = operand.view.is_dense()
                && operand.view.offset == Extent::Const(0)
                && operand.view.elements().upper(&bound_of(&self.data)) == buffer.elements;
            let free = !given.contains(&operand.buffer);
            let operand = if buffer.kind == BufferKind::Arena && whole && free {
                operand
            } else {
                let copy = self.fresh(&node.shape, false, None);
                let step = Step {
                    kind: StepKind::Copy,
                    inputs: vec![operand],
                    outputs: vec![copy.clone()],
                    node: id,
                };
                self.steps.push(step);
                copy
            };
            given.insert(operand.buffer);
            let name = node.name.clone().unwrap_or_else(|| format!("output{i}"));
            slots.push(IoSlot { name, shape: node.shape.clone(), operand });
        }
        Ok(slots)
    }

    /// The module, without live ranges and plan.
    fn into_module(self, outputs: Vec<IoSlot>, rules: Graph) -> LirModule {
        let symbols = used_symbols(&self.inputs, &self.buffers, &self.steps, &rules);
        LirModule {
            name: self.graph.name.clone(),
            graph: self.graph.clone(),
            rules,
            symbols,
            buffers: self.buffers,
            init: self.init,
            steps: self.steps,
            live_ranges: Vec::new(),
            inputs: self.inputs,
            params: self.params,
            outputs,
            plan: None,
        }
    }
}

/// Which producers may write straight into which concatenation: those with a step of their own whose only
/// use is that one input.
fn placements(graph: &Graph, uses: &[usize]) -> HashMap<NodeId, (NodeId, usize)> {
    let mut found = HashMap::default();
    for node in graph.nodes() {
        if !matches!(node.op, Op::Concat { .. }) {
            continue;
        }
        for (i, &id) in node.inputs.iter().enumerate() {
            let producer = graph.node(id);
            let single = producer.results().len() == 1 && uses[id.index()] == 1;
            if single && !view::is_movement(&producer.op) && !producer.inputs.is_empty() {
                found.insert(id, (node.id, i));
            }
        }
    }
    found
}

/// The steps whose only use is a transpose, which that is, and who uses it.
fn only_transposed(graph: &Graph, uses: &[usize]) -> HashMap<NodeId, (NodeId, Vec<NodeId>)> {
    let mut found = HashMap::default();
    for node in graph.nodes() {
        if let (Op::Transpose { .. }, &[of]) = (&node.op, &node.inputs[..]) {
            let producer = graph.node(of);
            let is_step = !view::is_movement(&producer.op) && !producer.inputs.is_empty();
            if is_step && uses[of.index()] == 1 && producer.results().len() == 1 {
                found.insert(of, (node.id, Vec::new()));
            }
        }
        for &input in node.inputs.iter() {
            let of = graph.node(input).inputs.first();
            if let Some((transpose, users)) = of.and_then(|of| found.get_mut(of))
                && *transpose == input
            {
                users.push(node.id);
            }
        }
    }
    found
}

/// When each arena buffer is in use.
pub fn live_ranges(buffers: &[Buffer], steps: &[Step], outputs: &[IoSlot]) -> Vec<LiveRange> {
    let mut ranges: Vec<Option<LiveRange>> = vec![None; buffers.len()];
    for (at, step) in steps.iter().enumerate() {
        for operand in step.outputs.iter().chain(&step.inputs) {
            if buffers[operand.buffer.index()].kind == BufferKind::Arena {
                let fresh = LiveRange { buffer: operand.buffer, first: at, last: at };
                ranges[operand.buffer.index()].get_or_insert(fresh).last = at;
            }
        }
    }
    for slot in outputs {
        if let Some(range) = &mut ranges[slot.operand.buffer.index()] {
            range.last = usize::MAX;
        }
    }
    ranges.into_iter().flatten().collect()
}

/// The symbols that a run must give values for, ascending: not those that steps bind.
pub fn used_symbols(inputs: &[IoSlot], buffers: &[Buffer], steps: &[Step], rules: &Graph) -> Vec<u32> {
    let (mut symbols, mut known) = (BTreeSet::new(), HashSet::default());
    let mut add = |e: Extent| {
        if e.as_const().is_none() && known.insert(e) {
            symbols.extend(e.symbols());
        }
    };
    inputs.iter().flat_map(|s| s.shape.dims()).for_each(|d| add(d.extent()));
    buffers.iter().for_each(|b| add(b.elements));
    steps.iter().for_each(|step| step.each_extent(&mut add));
    for &id in &rules.outputs {
        rules.symbols_of_rule(rules.node(id), &mut |symbol| _ = symbols.insert(symbol));
    }
    for symbol in steps.iter().filter_map(Step::data_symbol) {
        symbols.remove(&symbol);
    }
    symbols.into_iter().collect()
}
