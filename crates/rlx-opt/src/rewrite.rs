//! The [`Rewriter`]: how passes turn one graph into another.
//!
//! A pass walks the old nodes in order and, for each, either keeps it ([`Rewriter::keep`]) or builds
//! something else ([`Rewriter::emit`]) and says what stands for it ([`Rewriter::replace`]). Building is
//! hash-consed: the same op on the same inputs is made once, so common subexpressions vanish on the way,
//! and [`Rewriter::finish`] drops what no output needs. It also gives new nodes their origins: those of the old node they
//! were made for, and of the old nodes behind it that nothing stands for any more. A graph that a rewriter built before is
//! copied only from the first node on that is not kept: most passes find little to do, and large graphs pass through them
//! unchanged.
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

mod lineage;

use rlx_ir::maps::{HashMap, HashSet, hash_of};
use rlx_ir::{Error, ErrorKind, Graph, Node, NodeId, Op, Result, Shape, Shapes};

use lineage::Walk;

/// Builds a new graph from an old one.
#[derive(Debug)]
pub struct Rewriter<'g> {
    old: &'g Graph,
    /// What there is beside the old graph; nothing, as long as every node of a canonical one was kept.
    new: Option<New>,
    map: Vec<Option<NodeId>>,
    /// How many of the old nodes were kept before there was a new graph.
    kept: usize,
    /// The old nodes that new ones were made for, and where the new ones of each end. Others have the kept ones' origins.
    made: Vec<(NodeId, usize)>,
    /// Whether new nodes are looked up among those that there are.
    joins: bool,
    /// For each old node, the one whose new nodes compute it, if any do.
    heirs: Vec<Option<NodeId>>,
}

#[derive(Debug)]
struct New {
    graph: Graph,
    /// The nodes made, by a hash of what makes two nodes the same value.
    made: HashMap<u64, NodeId>,
    /// Room for the text of attributes, which is hashed.
    text: String,
}

impl<'g> Rewriter<'g> {
    /// A rewriter of `old` that has made nothing yet.
    pub fn new(old: &'g Graph) -> Self {
        let new = (!old.is_canonical()).then(|| {
            let mut graph = old.successor();
            graph.reserve(old.len());
            New { graph, made: HashMap::default(), text: String::new() }
        });
        let (map, heirs) = (vec![None; old.len()], vec![None; old.len()]);
        Rewriter { old, new, map, kept: 0, made: Vec::new(), joins: true, heirs }
    }

    /// The same for a pass that never makes two nodes of one: what is distinct in `old` stays so, and nodes are not compared.
    pub fn keeping_distinct(old: &'g Graph) -> Self {
        Rewriter { joins: !old.is_canonical(), ..Self::new(old) }
    }

    /// The new graph, to add to: a copy of what was kept so far, if there was none.
    fn new_mut(&mut self) -> &mut New {
        self.new.get_or_insert_with(|| {
            let graph = self.old.prefix(self.kept);
            let mut text = String::new();
            let joined = if self.joins { graph.nodes() } else { &[] };
            let keys = joined.iter().filter_map(|node| Some((key(node, &mut text)?, node.id)));
            let room = if self.joins { self.old.len() } else { 0 };
            let mut made = HashMap::with_capacity_and_hasher(room, Default::default());
            keys.for_each(|(key, id)| _ = made.entry(key).or_insert(id));
            New { graph, made, text }
        })
    }

    /// The old graph.
    pub fn old(&self) -> &'g Graph {
        self.old
    }

    /// The new graph so far: it has at least the nodes that were kept and emitted.
    pub fn new_graph(&self) -> &Graph {
        self.new.as_ref().map_or(self.old, |new| &new.graph)
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
        self.new_graph().shape(new)
    }

    /// Copies an old node, inputs replaced by what stands for them, and records it as its own stand-in.
    ///
    /// # Errors
    /// When the op's rule rejects the new inputs: a fault of an earlier rewrite.
    pub fn keep(&mut self, node: &Node) -> Result<NodeId> {
        if self.new.is_none() && node.id.index() == self.kept {
            self.map[self.kept] = Some(node.id);
            self.heirs[self.kept] = Some(node.id);
            self.kept += 1;
            return Ok(node.id);
        }
        let inputs = node.inputs.iter().map(|&id| self.new_id(id)).collect();
        self.keep_node(node, inputs)
    }

    /// As [`Rewriter::keep`], with other inputs (of the new graph).
    ///
    /// # Errors
    /// As [`Rewriter::keep`].
    pub fn keep_with(&mut self, node: &Node, inputs: &[NodeId]) -> Result<NodeId> {
        self.keep_node(node, inputs.to_vec())
    }

    fn keep_node(&mut self, node: &Node, inputs: Vec<NodeId>) -> Result<NodeId> {
        let new = if self.gives_the_same(node, &inputs) {
            self.find_or_push(node.with_inputs(inputs))
        } else {
            self.add(node.op.clone(), inputs, node.results(), node.name.clone())?
        };
        self.replace(node.id, new);
        Ok(new)
    }

    /// Whether the rule of an old node gives what it gave, since nothing that it looks at is another: its results were
    /// inferred, as all of a canonical graph, and its operands have the same shapes.
    fn gives_the_same(&self, node: &Node, inputs: &[NodeId]) -> bool {
        let alike = |(&old, &new): (&NodeId, &NodeId)| self.old.shape(old) == self.shape(new);
        self.old.is_canonical()
            && !matches!(node.op, Op::Result { .. })
            && node.inputs.len() == inputs.len()
            && node.inputs.iter().zip(inputs).all(alike)
    }

    /// Builds a node in the new graph, or finds the one already there; its shape is inferred.
    ///
    /// # Errors
    /// What the op's shape rule reports.
    pub fn emit(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        self.add(op, inputs.to_vec(), &[], None)
    }

    /// As [`Rewriter::emit`], with result shapes declared for ops that cannot infer them.
    ///
    /// # Errors
    /// What the op's shape rule reports.
    pub fn emit_declared(&mut self, op: Op, inputs: &[NodeId], declared: &[Shape]) -> Result<NodeId> {
        self.add(op, inputs.to_vec(), declared, None)
    }

    fn add(
        &mut self,
        op: Op,
        inputs: Vec<NodeId>,
        declared: &[Shape],
        name: Option<String>,
    ) -> Result<NodeId> {
        let new = self.new_mut();
        let inferred = new.graph.infer(&op, &inputs, declared)?;
        // Each declared shape of a graph may be possible by itself, but not together with those of its operands.
        if let Some((declared, inferred)) = declared.iter().zip(&inferred).find(|(d, i)| contradict(d, i)) {
            let message = format!("{} is declared as {declared}, but its rule gives {inferred}", op.kind());
            let error = Error::new(ErrorKind::Dimension, message);
            return Err(error.with_hint("the dimensions that the model declares never fit together"));
        }
        let results = refined(declared, inferred);
        Ok(self.find_or_push(Node::new(op, inputs, results).with_name(name)))
    }

    /// The node of the new graph that computes what `node` does, which is put in if there is none.
    fn find_or_push(&mut self, node: Node) -> NodeId {
        let joins = self.joins;
        let new = self.new_mut();
        if !joins {
            return new.graph.push_node(node);
        }
        let key = key(&node, &mut new.text);
        let found = key.and_then(|key| new.made.get(&key)).copied();
        // Of nodes whose hashes are equal by accident, the first is found again.
        if let Some(found) = found.filter(|&found| same_value(new.graph.node(found), &node)) {
            return found;
        }
        let id = new.graph.push_node(node);
        if let Some(key) = key {
            new.made.entry(key).or_insert(id);
        }
        id
    }

    /// Says that new node `by` stands for old node `id`. What was made since the last call was made for `id`.
    pub fn replace(&mut self, id: NodeId, by: NodeId) {
        self.map[id.index()] = Some(by);
        let Some(new) = &self.new else { return };
        let (begin, end) = (self.made.last().map_or(self.kept, |made| made.1), new.graph.len());
        if end > begin {
            self.made.push((id, end));
        }
        // What was there before has an origin of its own.
        self.heirs[id.index()] = (by.index() >= begin).then_some(id);
    }

    /// Says that the node handled last computes all of these old nodes, itself among them.
    pub fn fused(&mut self, members: &[NodeId]) {
        let last = self.made.last().map(|made| made.0);
        members.iter().for_each(|m| self.heirs[m.index()] = last);
    }

    /// The new graph, with the old one's outputs; with `dce`, without what no output needs (inputs and
    /// parameters stay: they are the interface).
    pub fn finish(mut self, dce: bool) -> Graph {
        let outputs: Vec<NodeId> = self.old.outputs.iter().map(|&id| self.new_id(id)).collect();
        if self.new.is_none() && outputs == self.old.outputs {
            return if dce { without_dead_nodes(self.old.clone()) } else { self.old.clone() };
        }
        self.new_mut();
        let Some(New { mut graph, .. }) = self.new else { return self.old.clone() };
        // What the caller called an output keeps that name, whatever computes it now.
        for (&old, &new) in self.old.outputs.iter().zip(&outputs) {
            if let (Some(name), None) = (&self.old.node(old).name, &graph.node(new).name) {
                graph.set_name(new, name.clone());
            }
        }
        graph.set_outputs(outputs);
        let live = live_nodes(&graph);
        let walk = Walk { old: self.old, map: &self.map, kept: self.kept, made: &self.made };
        walk.set_origins(self.heirs, &mut graph, &live);
        graph.set_canonical();
        if dce { without(graph, &live) } else { graph }
    }
}

/// A hash of what makes two nodes the same value; `None` for nodes that never are. `text` is room to work in.
fn key(node: &Node, text: &mut String) -> Option<u64> {
    if matches!(node.op, Op::Input { .. } | Op::Param { .. } | Op::Custom { .. }) {
        return None;
    }
    rlx_ir::text::write_attrs_key(&node.op, text);
    Some(hash_of(&(node.op.kind(), text.as_str(), &node.inputs, node.results())))
}

/// Whether no two nodes of a graph have the same op, inputs and results.
pub fn all_distinct(graph: &Graph) -> bool {
    let (mut known, mut text) = (HashSet::default(), String::new());
    known.reserve(graph.len());
    graph.nodes().iter().filter_map(|node| key(node, &mut text)).all(|key| known.insert(key))
}

fn same_value(a: &Node, b: &Node) -> bool {
    a.op == b.op && a.inputs == b.inputs && a.results() == b.results()
}

/// Whether two shapes differ in a size that both know.
fn contradict(declared: &Shape, inferred: &Shape) -> bool {
    let mut dims = declared.dims().iter().zip(inferred.dims());
    declared.rank() == inferred.rank() && dims.any(|(d, i)| d.is_static() && i.is_static() && d != i)
}

/// The declared shapes, which may know more of their symbols than the rule does, with the sizes that only the rule knows; what
/// the rule gives where it is of another form.
fn refined(declared: &[Shape], inferred: Shapes) -> Shapes {
    let alike = |(d, i): (&Shape, &Shape)| d.dtype() == i.dtype() && d.rank() == i.rank();
    if *declared == *inferred
        || declared.len() != inferred.len()
        || !declared.iter().zip(&inferred).all(alike)
    {
        return inferred;
    }
    let merged = |(d, i): (&Shape, &Shape)| {
        if d == i {
            return d.clone();
        }
        let dims = d.dims().iter().zip(i.dims());
        d.with_dims(dims.map(|(&d, &i)| if i.is_static() { i } else { d }).collect())
    };
    declared.iter().zip(&inferred).map(merged).collect()
}

/// `graph` without the nodes that no output needs; inputs and parameters stay.
pub fn without_dead_nodes(graph: Graph) -> Graph {
    let live = live_nodes(&graph);
    without(graph, &live)
}

fn live_nodes(graph: &Graph) -> Vec<bool> {
    rlx_ir::oracle::live_nodes(graph, &graph.outputs).unwrap_or_else(|_| vec![true; graph.len()])
}

fn without(graph: Graph, live: &[bool]) -> Graph {
    graph.without(|n| !live[n.id.index()] && !matches!(n.op, Op::Input { .. } | Op::Param { .. }))
}

/// How many nodes and outputs use each node.
pub fn use_counts(graph: &Graph) -> Vec<usize> {
    let mut counts = vec![0; graph.len()];
    let used = graph.nodes().iter().flat_map(|n| n.inputs.iter()).chain(&graph.outputs);
    used.for_each(|id| counts[id.index()] += 1);
    counts
}
