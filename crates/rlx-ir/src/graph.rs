//! The graph (MIR): a list of nodes in topological order.
//!
//! Builders take the shape the caller expects; nothing is checked while building (builders never
//! fail), [`crate::verify()`] checks everything at once, and `try_add` checks one node at a time. The
//! shape-inferring short forms are in [`crate::GraphExt`].
//!
//! ```
//! use rlx_ir::{DType, Graph, Shape, op::Activation, verify};
//! let mut g = Graph::new("ffn");
//! let x = g.input("x", Shape::new(&[2, 4], DType::F32));
//! let w = g.param("w", Shape::new(&[4, 3], DType::F32));
//! let y = g.matmul(x, w, Shape::new(&[2, 3], DType::F32));
//! let y = g.activation(Activation::Gelu, y, Shape::new(&[2, 3], DType::F32));
//! g.set_outputs(vec![y]);
//! assert!(verify(&g).is_empty());
//! ```

mod builders;
pub(crate) mod data;
pub mod donations;
mod ext;
pub(crate) mod fault;
mod ranges;
mod rules;

pub use data::{DataSymbol, DataSymbols, bound_of};
pub use ext::GraphExt;
pub use rules::{SymbolValues, open_rules, rule_holds, rule_may_hold};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use smallvec::{SmallVec, smallvec};

use crate::dim::{DimBinding, Held, scoped};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::{self, Op};
use crate::origin::{OriginId, Origins};
use crate::shape::{Shape, Shapes};

use ranges::SymbolRanges;

/// The shapes of a node's operands, of which there are few.
pub(crate) type ShapeRefs<'a> = SmallVec<[&'a Shape; 4]>;

/// The id of a node: its position in [`Graph::nodes`].
///
/// It also remembers which graph made it, so that an id of another graph is reported instead of
/// silently meaning some other node. Equality and order look at the position only.
#[derive(Clone, Copy)]
pub struct NodeId {
    index: u32,
    graph: u32,
}

impl NodeId {
    /// The position in [`Graph::nodes`].
    pub fn index(self) -> usize {
        self.index as usize
    }

    /// The id at `index` of the list of nodes with this tag.
    pub(crate) fn new(index: usize, tag: u32) -> NodeId {
        NodeId { index: index as u32, graph: tag }
    }

    /// Whether the id is one of the first `len` of the list with this tag, called `name` in messages.
    pub(crate) fn check(self, len: usize, tag: u32, name: &str) -> Result<()> {
        if self.index() >= len {
            return Err(Error::new(ErrorKind::InvalidGraph, format!("{self} is not a node of \"{name}\"")));
        }
        if self.graph != tag {
            let message = format!("{self} belongs to another graph than \"{name}\"");
            return Err(Error::new(ErrorKind::InvalidGraph, message));
        }
        Ok(())
    }
}

impl PartialEq for NodeId {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

impl Eq for NodeId {}

impl PartialOrd for NodeId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NodeId {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.index.cmp(&other.index)
    }
}

impl std::hash::Hash for NodeId {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.index.hash(state);
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.index)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One operation and its results.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Node {
    /// The node's id.
    pub id: NodeId,
    /// What it computes.
    pub op: Op,
    /// What it computes it from.
    pub inputs: Vec<NodeId>,
    /// The shape of result 0.
    pub shape: Shape,
    /// A name for people.
    pub name: Option<String>,
    /// Where the node came from.
    pub origin: OriginId,
    /// The shapes of all results when there are several; else empty.
    more_results: Vec<Shape>,
}

impl Node {
    /// A node not yet in a graph.
    pub fn new(op: Op, inputs: Vec<NodeId>, results: impl Into<Shapes>) -> Self {
        let results = results.into();
        let shape = results.first().cloned().unwrap_or_else(|| Shape::scalar(crate::DType::F32));
        let more_results = if results.len() > 1 { results.into_vec() } else { Vec::new() };
        let id = NodeId { index: u32::MAX, graph: 0 };
        Node { id, op, inputs, shape, name: None, origin: OriginId::NONE, more_results }
    }

    /// The same node with a name.
    pub fn with_name(mut self, name: Option<String>) -> Self {
        self.name = name;
        self
    }

    /// The same node on other inputs, not yet in a graph.
    pub fn with_inputs(&self, inputs: Vec<NodeId>) -> Self {
        let id = NodeId { index: u32::MAX, graph: 0 };
        let (op, shape, name) = (self.op.clone(), self.shape.clone(), self.name.clone());
        Node { id, op, inputs, shape, name, origin: OriginId::NONE, more_results: self.more_results.clone() }
    }

    /// The same node with an origin.
    pub fn with_origin(mut self, origin: OriginId) -> Self {
        self.origin = origin;
        self
    }

    /// The shapes of all results.
    pub fn results(&self) -> &[Shape] {
        if self.more_results.is_empty() { std::slice::from_ref(&self.shape) } else { &self.more_results }
    }

    /// The symbols that its attributes and the shapes of its results mention.
    pub fn symbols(&self) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        self.each_symbol(&mut |symbol| _ = found.insert(symbol));
        found
    }

    /// Calls `found` with each symbol that its attributes and the shapes of its results mention, perhaps more than once.
    pub fn each_symbol(&self, found: &mut dyn FnMut(u32)) {
        self.op.each_symbol(found);
        self.results().iter().flat_map(|s| s.dims()).for_each(|d| d.each_symbol(found));
    }

    /// `%7 MatMul "name"`: the node as messages call it.
    pub fn describe(&self) -> String {
        match (&self.name, &self.op) {
            (Some(name), _) => format!("{} {} {name:?}", self.id, self.op.kind()),
            (None, Op::Input { name } | Op::Param { name }) => {
                format!("{} {} {name:?}", self.id, self.op.kind())
            }
            (None, _) => format!("{} {}", self.id, self.op.kind()),
        }
    }
}

impl PartialEq for Node {
    /// Origins are no part of equality.
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
            && self.op == other.op
            && self.inputs == other.inputs
            && self.name == other.name
            && self.results() == other.results()
    }
}

/// A list of nodes in topological order, and which of them are the outputs.
#[derive(Debug, Clone)]
pub struct Graph {
    /// A name for people.
    pub name: String,
    /// What a run gives back, in order.
    pub outputs: Vec<NodeId>,
    /// Shared with copies until one of them is changed: compiling keeps the graph as it was beside what becomes of it.
    nodes: Arc<Vec<Node>>,
    symbol_ranges: SymbolRanges,
    /// See [`Graph::donate`].
    donations: BTreeMap<usize, String>,
    origins: Origins,
    /// Distinguishes this graph's ids from another's.
    tag: u32,
    /// Owns the names and expressions that its nodes mention.
    held: Held,
    /// See [`Graph::is_canonical`].
    canonical: bool,
}

static NEXT_TAG: AtomicU32 = AtomicU32::new(1);

/// A tag no other list of nodes in this process has.
pub(crate) fn new_tag() -> u32 {
    NEXT_TAG.fetch_add(1, Ordering::Relaxed)
}

impl PartialEq for Graph {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.outputs == other.outputs
            && self.nodes == other.nodes
            && self.symbol_ranges == other.symbol_ranges
            && self.donations == other.donations
    }
}

impl Graph {
    /// A graph without nodes.
    pub fn new(name: impl Into<String>) -> Self {
        Graph {
            name: name.into(),
            outputs: Vec::new(),
            nodes: Arc::default(),
            symbol_ranges: SymbolRanges::default(),
            donations: BTreeMap::new(),
            origins: Origins::default(),
            tag: new_tag(),
            held: Held::default(),
            canonical: false,
        }
    }

    /// A graph without nodes for what this one becomes: its name, what is known of its symbols, its donations and origins.
    pub fn successor(&self) -> Graph {
        let mut graph = Graph::new(self.name.clone());
        graph.take_symbol_ranges(self);
        graph.donations.clone_from(&self.donations);
        graph.origins.clone_from(&self.origins);
        graph
    }

    /// The nodes, each after the nodes it uses.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node with this id.
    ///
    /// # Panics
    /// When the graph has no such node; [`Graph::try_node`] reports it.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The node with this id.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidGraph`] when it is unknown or belongs to another graph.
    pub fn try_node(&self, id: NodeId) -> Result<&Node> {
        self.check_id(id)?;
        Ok(&self.nodes[id.index()])
    }

    /// The shape of result 0 of this node.
    ///
    /// # Panics
    /// When the graph has no such node.
    pub fn shape(&self, id: NodeId) -> &Shape {
        &self.node(id).shape
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Sets what a run gives back.
    pub fn set_outputs(&mut self, outputs: Vec<NodeId>) {
        self.outputs = outputs;
    }

    /// The input nodes, in declaration order.
    pub fn inputs(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|n| matches!(n.op, Op::Input { .. }))
    }

    /// The parameter nodes, in declaration order.
    pub fn params(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|n| matches!(n.op, Op::Param { .. }))
    }

    /// The table of origins.
    pub fn origins(&self) -> &Origins {
        &self.origins
    }

    /// The table of origins, to add to.
    pub fn origins_mut(&mut self) -> &mut Origins {
        &mut self.origins
    }

    /// What people call a node: the nodes of their model that it comes from, the main one first
    /// (`/layer.0/MatMul (+ Add, Softmax)`), else [`Node::describe`].
    ///
    /// # Panics
    /// When the graph has no such node.
    pub fn label(&self, id: NodeId) -> String {
        let node = self.node(id);
        self.origins.label(node.origin).unwrap_or_else(|| node.describe())
    }

    /// `error` with the node where it happened, and what that comes from, unless it names a place already.
    ///
    /// # Panics
    /// When the graph has no such node.
    pub fn locate(&self, id: NodeId, error: Error) -> Error {
        let node = self.node(id);
        let error = error.with_node(node.describe());
        match self.origins.label(node.origin) {
            Some(origin) => error.with_origin(origin),
            None => error,
        }
    }

    /// Gives nodes that have a name but no origin the name as their origin, so that it is not lost when a pass replaces
    /// them.
    pub fn names_to_origins(&mut self) {
        let named: Vec<usize> = self
            .nodes
            .iter()
            .filter(|n| n.name.is_some() && n.origin == OriginId::NONE)
            .map(|n| n.id.index())
            .collect();
        if named.is_empty() {
            return;
        }
        let nodes = Arc::make_mut(&mut self.nodes);
        for index in named {
            if let Some(name) = nodes[index].name.clone() {
                nodes[index].origin = self.origins.source(name);
            }
        }
    }

    /// Whether `id` names a node of this graph.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidGraph`] when it is unknown or belongs to another graph.
    pub fn check_id(&self, id: NodeId) -> Result<()> {
        id.check(self.nodes.len(), self.tag, &self.name)
    }

    /// Adds a node; its id is set here. Nothing is checked.
    pub fn push_node(&mut self, mut node: Node) -> NodeId {
        let id = NodeId::new(self.nodes.len(), self.tag);
        node.id = id;
        self.hold_node(&node);
        // Most nodes have the shape of their first operand, or of the node before: then they share the memory of it, too.
        let operand = node.inputs.first().and_then(|of| self.nodes.get(of.index()));
        if let Some(alike) = operand.into_iter().chain(self.nodes.last()).find(|of| of.shape == node.shape) {
            node.shape = alike.shape.clone();
        }
        self.canonical = false;
        Arc::make_mut(&mut self.nodes).push(node);
        id
    }

    /// Makes room for so many more nodes.
    pub fn reserve(&mut self, nodes: usize) {
        Arc::make_mut(&mut self.nodes).reserve_exact(nodes);
    }

    /// Gives back room for nodes that are not there: for graphs that are kept, of which there may be many.
    pub fn shrink_to_fit(&mut self) {
        if let Some(nodes) = Arc::get_mut(&mut self.nodes) {
            nodes.shrink_to_fit();
        }
    }

    /// Whether it is known that no two nodes compute the same value, and that each declares what its op's rule gives, as in
    /// graphs that the optimiser built. Adding a node ends that.
    pub fn is_canonical(&self) -> bool {
        self.canonical
    }

    /// States that the graph [is canonical](Graph::is_canonical).
    pub fn set_canonical(&mut self) {
        self.canonical = true;
    }

    /// The first `count` nodes, with the same ids, and no outputs. There is room for as many as here.
    pub fn prefix(&self, count: usize) -> Graph {
        let mut nodes = Vec::with_capacity(self.len());
        nodes.extend(self.nodes.iter().take(count).cloned());
        Graph { name: self.name.clone(), nodes: Arc::new(nodes), outputs: Vec::new(), ..self.clone() }
    }

    /// Keeps what a node mentions as long as this graph and its copies.
    fn hold_node(&self, node: &Node) {
        node.results().iter().flat_map(|shape| shape.dims()).for_each(|&dim| self.held.dim(dim));
        scoped(|| node.op.each_extent(&mut |e| self.held.extent(e)));
    }

    /// Who owns the names and expressions that its nodes mention; what is made of it may be kept there, too.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Adds a node of one result with the shape the caller expects. Nothing is checked.
    pub fn add_node(&mut self, op: Op, inputs: Vec<NodeId>, shape: Shape) -> NodeId {
        self.push_node(Node::new(op, inputs, vec![shape]))
    }

    /// Adds a node whose shape is inferred.
    ///
    /// # Errors
    /// An unknown input, or what the op's shape rule reports.
    pub fn try_add(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        scoped(|| {
            let results = self.infer(&op, inputs, &[])?;
            Ok(self.push_node(Node::new(op, inputs.to_vec(), results)))
        })
    }

    /// The shape of a node that others may use: not that of a kept fault.
    pub(crate) fn value_shape(&self, id: NodeId) -> Result<&Shape> {
        let node = self.try_node(id)?;
        match fault::error(&node.op) {
            Some(error) => Err(error),
            None => Ok(&node.shape),
        }
    }

    /// The shapes a node of `op` with these inputs would have.
    ///
    /// # Errors
    /// An unknown input, or what the op's shape rule reports.
    pub fn infer(&self, op: &Op, inputs: &[NodeId], declared: &[Shape]) -> Result<Shapes> {
        if let Op::Result { index } = op {
            return self.infer_result(*index, inputs);
        }
        let shapes: ShapeRefs<'_> = inputs.iter().map(|&id| self.value_shape(id)).collect::<Result<_>>()?;
        ops::def::infer(op, &shapes, declared)
    }

    /// `Result` looks at all results of its input, which other ops do not see.
    fn infer_result(&self, index: usize, inputs: &[NodeId]) -> Result<Shapes> {
        let &[of] = inputs else {
            return Err(Error::new(ErrorKind::InvalidGraph, "Result takes 1 input"));
        };
        let node = self.try_node(of)?;
        match node.results().get(index) {
            Some(shape) => Ok(smallvec![shape.clone()]),
            None => Err(Error::new(
                ErrorKind::InvalidGraph,
                format!("{} has {} results, not {}", node.describe(), node.results().len(), index + 1),
            )),
        }
    }

    /// Result `index` of `node` as a value other nodes can use.
    ///
    /// # Errors
    /// When the node is unknown or has fewer results.
    pub fn result(&mut self, node: NodeId, index: usize) -> Result<NodeId> {
        if index == 0 {
            self.check_id(node)?;
            return Ok(node);
        }
        self.try_add(Op::Result { index }, &[node])
    }

    /// Declares every [`Op::Result`] as just what its node declares for that result. Symbols that were only declared equal
    /// become the same; whether they are equal is a shape rule of the graph as it was (see [`open_rules`]).
    pub fn align_results(&mut self) {
        for i in 0..self.nodes.len() {
            let (Op::Result { index }, Some(of)) = (&self.nodes[i].op, self.nodes[i].inputs.first()) else {
                continue;
            };
            let declared = self.nodes.get(of.index()).and_then(|node| node.results().get(*index));
            if let Some(shape) = declared.filter(|shape| **shape != self.nodes[i].shape).cloned() {
                Arc::make_mut(&mut self.nodes)[i].shape = shape;
            }
        }
    }

    /// The graph without the nodes that `drop` names; those that stay use none of them.
    pub fn without(self, drop: impl Fn(&Node) -> bool) -> Graph {
        if !self.nodes.iter().any(&drop) {
            return self;
        }
        let mut graph = Graph { nodes: Arc::default(), outputs: Vec::new(), tag: new_tag(), ..self };
        let canonical = self.canonical;
        let mut map: Vec<Option<NodeId>> = vec![None; self.nodes.len()];
        let mut add = |mut node: Node| {
            let old = node.id.index();
            node.inputs.retain_mut(|id| map[id.index()].inspect(|&new| *id = new).is_some());
            map[old] = Some(graph.push_node(node));
        };
        let stays = |node: &Node| !drop(node);
        // What is shared is copied; what is dropped is not.
        match Arc::try_unwrap(self.nodes) {
            Ok(own) => own.into_iter().filter(stays).for_each(&mut add),
            Err(shared) => shared.iter().filter(|node| stays(node)).cloned().for_each(&mut add),
        }
        graph.outputs = self.outputs.iter().filter_map(|id| map[id.index()]).collect();
        graph.canonical = canonical;
        graph
    }

    /// Declares the first result of a node as `shape`. Nothing is checked.
    pub(crate) fn declare(&mut self, id: NodeId, shape: Shape) {
        let Some(node) = Arc::make_mut(&mut self.nodes).get_mut(id.index()) else { return };
        shape.dims().iter().for_each(|&dim| self.held.dim(dim));
        node.shape = shape;
        self.canonical = false;
    }

    /// Names a node for people.
    pub fn set_name(&mut self, id: NodeId, name: impl Into<String>) {
        if let Some(node) = Arc::make_mut(&mut self.nodes).get_mut(id.index()) {
            node.name = Some(name.into());
        }
    }

    /// States where a node came from.
    pub fn set_origin(&mut self, id: NodeId, origin: OriginId) {
        if let Some(node) = Arc::make_mut(&mut self.nodes).get_mut(id.index()) {
            node.origin = origin;
        }
    }

    /// States where the nodes inside of a node's op came from: `state` is called with each of its bodies, in the order of
    /// [`Op::bodies`], and changes origins and names alone.
    ///
    /// # Errors
    /// The first of `state`.
    pub fn state_body_origins(
        &mut self,
        id: NodeId,
        mut state: impl FnMut(&mut Graph) -> Result<()>,
    ) -> Result<()> {
        match Arc::make_mut(&mut self.nodes).get_mut(id.index()) {
            Some(node) => {
                node.op.bodies_mut().into_iter().try_for_each(|body| state(&mut Arc::make_mut(body).graph))
            }
            None => Ok(()),
        }
    }

    /// Whether a node of the graph has a dimension for these values that is negative.
    ///
    /// # Errors
    /// [`ErrorKind::Dimension`] naming the node and the dimension.
    pub fn check_binding(&self, binding: &DimBinding) -> Result<()> {
        if binding.is_empty() {
            return Ok(());
        }
        scoped(|| {
            let of = |node: &Node| node.results().iter().try_for_each(|shape| shape.check_binding(binding));
            self.nodes.iter().try_for_each(|node| of(node).map_err(|e| self.locate(node.id, e)))
        })
    }

    /// As [`Graph::bind`], for values that may not fit.
    ///
    /// ```
    /// use rlx_ir::{DType, Dim, DimBinding, Extent, Graph, Shape, sym};
    /// let mut g = Graph::new("tail");
    /// let rest = Dim::from(Extent::sym(sym::SEQ) - 4);
    /// g.input("x", Shape::from_dims(&[rest], DType::F32));
    /// assert_eq!(g.try_bind(&DimBinding::batch_seq(1, 9))?.nodes()[0].shape, Shape::new(&[5], DType::F32));
    /// let error = g.try_bind(&DimBinding::batch_seq(1, 3)).unwrap_err();
    /// assert!(error.to_string().contains("would be -1"), "{error}");
    /// # Ok::<(), rlx_ir::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Graph::check_binding`].
    pub fn try_bind(&self, binding: &DimBinding) -> Result<Graph> {
        self.check_binding(binding)?;
        Ok(self.bind(binding))
    }

    /// The graph with the bound symbols' values put in everywhere; dimensions that would be negative become 0 (see
    /// [`Graph::try_bind`]).
    pub fn bind(&self, binding: &DimBinding) -> Graph {
        let mut bound = self.clone();
        if binding.is_empty() {
            return bound;
        }
        bound.symbol_ranges = self.symbol_ranges.unbound(binding);
        bound.held = Held::default();
        bound.canonical = false;
        scoped(|| {
            for node in Arc::make_mut(&mut bound.nodes) {
                node.op = node.op.bind(binding);
                node.shape = node.shape.bind(binding);
                node.more_results.iter_mut().for_each(|s| *s = s.bind(binding));
            }
            bound.nodes.iter().for_each(|node| bound.hold_node(node));
        });
        bound
    }
}
