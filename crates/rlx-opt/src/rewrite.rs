//! The [`Rewriter`]: how passes turn one graph into another.
//!
//! A pass walks the old nodes in order and, for each, either keeps it ([`Rewriter::keep`]) or builds
//! something else ([`Rewriter::emit`]) and says what stands for it ([`Rewriter::replace`]). Building is
//! hash-consed: the same op on the same inputs is made once, so common subexpressions vanish on the way,
//! and [`Rewriter::finish`] drops what no output needs.
//!
//! ```
//! use rlx_ir::{DType, Graph, Op, Shape, op::Activation};
//! use rlx_opt::rewrite::Rewriter;
//! let mut g = Graph::new("twice");
//! let x = g.input("x", Shape::new(&[2], DType::F32));
//! let a = g.activation(Activation::Neg, x, Shape::new(&[2], DType::F32));
//! let b = g.activation(Activation::Neg, a, Shape::new(&[2], DType::F32));
//! g.set_outputs(vec![b]);
//! // −(−x) is x.
//! let mut r = Rewriter::new(&g);
//! for node in g.nodes() {
//!     match node.inputs.first().map(|&i| g.node(i)) {
//!         Some(inner) if node.op == Op::Activation(Activation::Neg) && inner.op == node.op => {
//!             let x = r.new_id(inner.inputs[0]);
//!             r.replace(node.id, x);
//!         }
//!         _ => _ = r.keep(node).unwrap(),
//!     }
//! }
//! assert_eq!(r.finish(true).len(), 1);
//! ```

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use rlx_ir::{Error, ErrorKind, Graph, Node, NodeId, Op, OriginId, Result, Shape};

/// Builds a new graph from an old one.
#[derive(Debug)]
pub struct Rewriter<'g> {
    old: &'g Graph,
    new: Graph,
    map: Vec<Option<NodeId>>,
    /// The nodes made, by a hash of what makes two nodes the same value.
    made: HashMap<u64, NodeId>,
    origin: OriginId,
}

impl<'g> Rewriter<'g> {
    /// A rewriter of `old` that has made nothing yet.
    pub fn new(old: &'g Graph) -> Self {
        let mut new = Graph::new(old.name.clone());
        old.symbol_ranges().iter().for_each(|(&s, &r)| new.set_symbol_range(s, r));
        *new.origins_mut() = old.origins().clone();
        Rewriter { old, new, map: vec![None; old.len()], made: HashMap::new(), origin: OriginId::NONE }
    }

    /// The old graph.
    pub fn old(&self) -> &'g Graph {
        self.old
    }

    /// The new graph so far.
    pub fn new_graph(&self) -> &Graph {
        &self.new
    }

    /// What stands for old node `id` in the new graph.
    ///
    /// # Panics
    /// When the pass has not come to that node yet: a pass walks nodes in order.
    pub fn new_id(&self, id: NodeId) -> NodeId {
        match self.map[id.index()] {
            Some(new) => new,
            None => panic!("a pass asked for {id} before it handled it"),
        }
    }

    /// The shape of a node of the new graph.
    pub fn shape(&self, new: NodeId) -> &Shape {
        self.new.shape(new)
    }

    /// Nodes emitted from here on come from `origin` (until the next call).
    pub fn set_origin(&mut self, origin: OriginId) {
        self.origin = origin;
    }

    /// Nodes emitted from here on come from all of these old nodes.
    pub fn set_origin_of(&mut self, nodes: &[NodeId]) {
        let parts: Vec<OriginId> = nodes.iter().map(|&id| self.old.node(id).origin).collect();
        self.origin = self.new.origins_mut().merge(parts);
    }

    /// Copies an old node, inputs replaced by what stands for them, and records it as its own stand-in.
    ///
    /// # Errors
    /// When the op's rule refuses the new inputs: a fault of an earlier rewrite.
    pub fn keep(&mut self, node: &Node) -> Result<NodeId> {
        let inputs: Vec<NodeId> = node.inputs.iter().map(|&id| self.new_id(id)).collect();
        self.keep_with(node, &inputs)
    }

    /// As [`Rewriter::keep`], with other inputs (of the new graph).
    ///
    /// # Errors
    /// As [`Rewriter::keep`].
    pub fn keep_with(&mut self, node: &Node, inputs: &[NodeId]) -> Result<NodeId> {
        let new =
            self.add(node.op.clone(), inputs.to_vec(), node.results(), node.name.clone(), node.origin)?;
        self.map[node.id.index()] = Some(new);
        Ok(new)
    }

    /// Builds a node in the new graph, or finds the one already there; its shape is inferred.
    ///
    /// # Errors
    /// What the op's shape rule reports.
    pub fn emit(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        self.add(op, inputs.to_vec(), &[], None, self.origin)
    }

    /// As [`Rewriter::emit`], with result shapes declared for ops that cannot infer them.
    ///
    /// # Errors
    /// What the op's shape rule reports.
    pub fn emit_declared(&mut self, op: Op, inputs: &[NodeId], declared: &[Shape]) -> Result<NodeId> {
        self.add(op, inputs.to_vec(), declared, None, self.origin)
    }

    fn add(
        &mut self,
        op: Op,
        inputs: Vec<NodeId>,
        declared: &[Shape],
        name: Option<String>,
        origin: OriginId,
    ) -> Result<NodeId> {
        let inferred = self.new.infer(&op, &inputs, declared)?;
        // A declared shape may know more of its symbols than the rule does; it must be as long.
        let results = if declared.len() == inferred.len() && same_form(declared, &inferred) {
            declared.to_vec()
        } else {
            inferred
        };
        let node = Node::new(op, inputs, results).with_name(name).with_origin(origin);
        let key = key(&node);
        let found = key.and_then(|key| self.made.get(&key)).copied();
        // Of nodes whose hashes are equal by accident, the first is found again.
        if let Some(found) = found.filter(|&found| same_value(self.new.node(found), &node)) {
            return Ok(found);
        }
        let id = self.new.push_node(node);
        if let Some(key) = key {
            self.made.entry(key).or_insert(id);
        }
        Ok(id)
    }

    /// Says that new node `by` stands for old node `id`.
    pub fn replace(&mut self, id: NodeId, by: NodeId) {
        self.map[id.index()] = Some(by);
    }

    /// The new graph, with the old one's outputs; with `dce`, without what no output needs (inputs and
    /// parameters stay: they are the interface).
    pub fn finish(mut self, dce: bool) -> Graph {
        let outputs: Vec<NodeId> = self.old.outputs.iter().map(|&id| self.new_id(id)).collect();
        // What the caller called an output keeps that name, whatever computes it now.
        for (&old, &new) in self.old.outputs.iter().zip(&outputs) {
            if let (Some(name), None) = (&self.old.node(old).name, &self.new.node(new).name) {
                self.new.set_name(new, name.clone());
            }
        }
        self.new.set_outputs(outputs);
        if dce { without_dead_nodes(self.new) } else { self.new }
    }
}

/// A hash of what makes two nodes the same value; `None` for nodes that never are.
fn key(node: &Node) -> Option<u64> {
    if matches!(node.op, Op::Input { .. } | Op::Param { .. } | Op::Custom { .. }) {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    let attrs = rlx_ir::text::attrs_key(&node.op);
    (node.op.kind(), attrs, &node.inputs, node.results()).hash(&mut hasher);
    Some(hasher.finish())
}

fn same_value(a: &Node, b: &Node) -> bool {
    a.op == b.op && a.inputs == b.inputs && a.results() == b.results()
}

fn same_form(declared: &[Shape], inferred: &[Shape]) -> bool {
    declared.iter().zip(inferred).all(|(d, i)| d.dtype() == i.dtype() && d.rank() == i.rank())
        && declared.iter().zip(inferred).all(|(d, i)| {
            d.dims().iter().zip(i.dims()).all(|(d, i)| d == i || d.is_static() || !i.is_static())
        })
}

/// `graph` without the nodes that no output needs; inputs and parameters stay.
pub fn without_dead_nodes(graph: Graph) -> Graph {
    let live = rlx_ir::oracle::live_nodes(&graph, &graph.outputs).unwrap_or_else(|_| vec![true; graph.len()]);
    graph.without(|n| !live[n.id.index()] && !matches!(n.op, Op::Input { .. } | Op::Param { .. }))
}

/// How many nodes and outputs use each node.
pub fn use_counts(graph: &Graph) -> Vec<usize> {
    let mut counts = vec![0; graph.len()];
    let used = graph.nodes().iter().flat_map(|n| n.inputs.iter()).chain(&graph.outputs);
    used.for_each(|id| counts[id.index()] += 1);
    counts
}

/// An error of a pass, naming it and the node.
pub fn pass_error(pass: &str, node: &Node, error: Error) -> Error {
    let kind = if error.kind() == ErrorKind::Internal { ErrorKind::Internal } else { error.kind() };
    Error::new(kind, format!("pass \"{pass}\": {}", error.message()))
        .with_node(node.describe())
        .with_source(error)
}
