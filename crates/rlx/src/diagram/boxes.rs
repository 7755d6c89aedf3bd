//! From a graph to boxes: one for each node that a run computes.
//!
//! Nodes that depend on parameters and constants only get no box; they become lines in the boxes that use them. Consecutive
//! reshapes and transposes become one small box.

use std::collections::BTreeMap;

use rlx_ir::text::attrs_key;
use rlx_ir::{Graph, Node, NodeId, Op};

use super::{BoxKind, DiagramBox, ParamLine};

/// A value: which box gives it, and which of its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Source {
    pub(super) from: usize,
    pub(super) result: usize,
}

/// The boxes of a graph, each after those it uses, and what each reads.
pub(super) struct Flat {
    pub(super) boxes: Vec<DiagramBox>,
    pub(super) inputs: Vec<Vec<Source>>,
    /// What is equal for boxes that compute the same: everything but names and the values of weights.
    pub(super) keys: Vec<String>,
    pub(super) parameter_bytes: usize,
}

/// What a box of this op is called: the op's name, or those of the ops that a region fuses.
pub fn op_name(op: &Op) -> String {
    match op {
        Op::Region { body } => region_name(&body.graph),
        Op::Activation(_) | Op::Binary(_) | Op::Compare(_) | Op::Predicate(_) => {
            attrs_key(op).trim_start_matches('.').to_owned()
        }
        Op::Custom { name, .. } => name.clone(),
        Op::Reduce { op, .. } => format!("Reduce {op:?}"),
        Op::Pool { kind, .. } => format!("Pool {kind:?}"),
        other => other.kind().name().to_owned(),
    }
}

/// The ops of a fused region: a few by name, more by number.
fn region_name(body: &Graph) -> String {
    const MOST: usize = 4;
    let shown = |n: &&Node| !is_fixed(&n.op) && !matches!(n.op, Op::Input { .. } | Op::Result { .. });
    let ops: Vec<&Node> = body.nodes().iter().filter(shown).collect();
    let parts: Vec<String> = ops.iter().filter(|n| !is_view(&n.op)).map(|n| op_name(&n.op)).collect();
    // Views alone, or nothing but them.
    let parts = if parts.is_empty() { ops.iter().map(|n| op_name(&n.op)).collect() } else { parts };
    if parts.len() <= MOST + 1 {
        return parts.join(" + ");
    }
    match anchor(body) {
        Some(anchor) => format!("{} + {} more", op_name(&anchor.op), parts.len() - 1),
        None => format!("{} + {} more", parts[..MOST].join(" + "), parts.len() - MOST),
    }
}

/// The node of a region that is more than elementwise, if there is one: the matmul rather than the norm or quantisation before it.
fn anchor(body: &Graph) -> Option<&Node> {
    let around = |op: &Op| {
        op.is_elementwise()
            || is_view(op)
            || is_fixed(op)
            || matches!(op, Op::Input { .. } | Op::Result { .. })
    };
    let around_one = |op: &Op| {
        matches!(op, Op::LayerNorm { .. } | Op::RmsNorm { .. } | Op::Quantize { .. } | Op::Dequantize { .. })
    };
    let inside = || body.nodes().iter().filter(|n| !around(&n.op));
    inside().find(|n| !around_one(&n.op)).or_else(|| inside().next())
}

/// What kind of work an op is: its kind; of a region, that of what it is built around.
pub fn op_family(op: &Op) -> &'static str {
    match op {
        Op::Region { body } => anchor(&body.graph).map_or("Elementwise", |n| n.op.kind().name()),
        other if other.is_elementwise() => "Elementwise",
        other => other.kind().name(),
    }
}

fn is_fixed(op: &Op) -> bool {
    matches!(op, Op::Param { .. } | Op::Constant { .. })
}

/// Ops that only view the same elements differently.
fn is_view(op: &Op) -> bool {
    matches!(op, Op::Reshape { .. } | Op::Transpose { .. } | Op::Expand { .. } | Op::Slice { .. })
}

/// What of an op's attributes a reader wants to know.
fn detail(op: &Op) -> Option<String> {
    let list = |v: &[usize]| v.iter().map(usize::to_string).collect::<Vec<_>>().join("×");
    match op {
        Op::Conv { strides, groups, dilations, .. } => {
            let mut parts = Vec::new();
            if strides.iter().any(|&s| s != 1) {
                parts.push(format!("stride {}", list(strides)));
            }
            if dilations.iter().any(|&d| d != 1) {
                parts.push(format!("dilation {}", list(dilations)));
            }
            if *groups != 1 {
                parts.push(format!("{groups} groups"));
            }
            (!parts.is_empty()).then(|| parts.join(", "))
        }
        Op::Attention { num_heads, head_dim, .. } => Some(format!("{num_heads} heads of {head_dim}")),
        Op::Concat { axis } | Op::Gather { axis } => Some(format!("axis {axis}")),
        Op::Region { body } => body.graph.nodes().iter().find_map(|n| detail(&n.op)),
        _ => None,
    }
}

/// Follows `Result` nodes to the node and the number of its result.
fn resolve(graph: &Graph, id: NodeId) -> (usize, usize) {
    match graph.node(id).op {
        Op::Result { index } => (graph.node(id).inputs[0].index(), index),
        _ => (id.index(), 0),
    }
}

/// Makes the boxes.
pub(super) struct Builder<'a> {
    graph: &'a Graph,
    names: &'a [String],
    /// By node: depends on parameters and constants alone.
    held: Vec<bool>,
    uses: Vec<usize>,
    /// By node: its box.
    box_of: Vec<Option<usize>>,
    flat: Flat,
}

impl<'a> Builder<'a> {
    /// For `graph`, whose outputs are called `names` (those without a name are numbered).
    pub(super) fn new(graph: &'a Graph, names: &'a [String]) -> Self {
        let mut held: Vec<bool> = Vec::with_capacity(graph.len());
        let mut uses = vec![0; graph.len()];
        for node in graph.nodes() {
            let fixed = !matches!(node.op, Op::Input { .. }) && node.inputs.iter().all(|i| held[i.index()]);
            held.push(fixed);
            node.inputs.iter().for_each(|i| uses[i.index()] += 1);
        }
        graph.outputs.iter().for_each(|o| uses[o.index()] += 1);
        let parameter_bytes = graph.params().filter_map(|n| n.shape.size_bytes()).sum();
        let flat = Flat { boxes: Vec::new(), inputs: Vec::new(), keys: Vec::new(), parameter_bytes };
        Builder { graph, names, held, uses, box_of: vec![None; graph.len()], flat }
    }

    pub(super) fn build(mut self) -> Flat {
        for node in self.graph.nodes() {
            let computed = !self.held[node.id.index()] && !matches!(node.op, Op::Result { .. });
            if computed && !self.join_views(node) {
                self.add(node);
            }
        }
        for (i, &id) in self.graph.outputs.iter().enumerate() {
            let (at, result) = resolve(self.graph, id);
            // A weight that is an output is drawn as a weight.
            if self.box_of[at].is_none() {
                self.add(&self.graph.nodes()[at]);
            }
            let from = self.box_of[at].unwrap_or_default();
            let shape = self.graph.shape(id).to_string();
            let title = self.names.get(i).cloned().unwrap_or_else(|| format!("output{i}"));
            let drawn = DiagramBox::new(BoxKind::Output, title, vec![shape.clone()]);
            self.push(drawn, vec![Source { from, result }], format!("output {shape}"));
        }
        self.flat
    }

    fn push(&mut self, drawn: DiagramBox, inputs: Vec<Source>, key: String) -> usize {
        self.flat.boxes.push(drawn);
        self.flat.inputs.push(inputs);
        self.flat.keys.push(key);
        self.flat.boxes.len() - 1
    }

    /// Adds a view to the box of the view before it, where nothing else reads that.
    fn join_views(&mut self, node: &Node) -> bool {
        let [before] = node.inputs[..] else { return false };
        let Some(at) = self.box_of[before.index()].filter(|_| is_view(&node.op)) else { return false };
        let drawn = &mut self.flat.boxes[at];
        if drawn.kind != BoxKind::View || self.uses[before.index()] != 1 {
            return false;
        }
        drawn.title = format!("{} · {}", drawn.title, op_name(&node.op));
        drawn.results = vec![node.shape.to_string()];
        drawn.nodes.push(node.describe());
        self.flat.keys[at] += &key_of(node);
        self.box_of[node.id.index()] = Some(at);
        true
    }

    fn add(&mut self, node: &Node) {
        let kind = match &node.op {
            Op::Input { .. } => BoxKind::Input,
            _ if self.held[node.id.index()] => BoxKind::Parameter,
            op if is_view(op) => BoxKind::View,
            _ => BoxKind::Op,
        };
        let title = match &node.op {
            Op::Input { name } | Op::Param { name } => name.clone(),
            op => op_name(op),
        };
        let mut drawn = DiagramBox::new(kind, title, node.results().iter().map(|s| s.to_string()).collect());
        drawn.detail = detail(&node.op);
        drawn.nodes.push(node.describe());
        drawn.origin = self.graph.origins().describe(node.origin);
        let (mut inputs, mut key) = (Vec::new(), key_of(node));
        for &input in &node.inputs {
            let (at, result) = resolve(self.graph, input);
            match self.box_of[at] {
                Some(from) if !self.held[at] => inputs.push(Source { from, result }),
                _ => {
                    let line = self.line(input);
                    key += &format!("|{} {}", self.graph.shape(input), line.prepared);
                    drawn.params.push(line);
                }
            }
        }
        let at = self.push(drawn, inputs, key);
        self.box_of[node.id.index()] = Some(at);
    }

    /// A fixed operand as a line: the parameters behind it.
    fn line(&self, id: NodeId) -> ParamLine {
        let behind = self.behind(id);
        let params: Vec<&Node> =
            behind.iter().copied().filter(|n| matches!(n.op, Op::Param { .. })).collect();
        let node = self.graph.node(id);
        let nodes = behind.iter().map(|n| n.describe()).collect();
        let size = |n: &Node| n.shape.size_bytes().unwrap_or(0);
        let Some(largest) = params.iter().copied().max_by_key(|n| (size(n), std::cmp::Reverse(n.id))) else {
            let name = node.name.clone().unwrap_or_else(|| "constant".to_owned());
            let (shape, bytes) = (node.shape.to_string(), size(node));
            return ParamLine { name, more: 0, shape, bytes, param: false, prepared: false, nodes };
        };
        let name = match &largest.op {
            Op::Param { name } => name.clone(),
            _ => String::new(),
        };
        let bytes = params.iter().map(|n| size(n)).sum();
        let (more, shape, prepared) = (params.len() - 1, largest.shape.to_string(), largest.id != id);
        ParamLine { name, more, shape, bytes, param: true, prepared, nodes }
    }

    /// What a fixed value is made of, itself included.
    fn behind(&self, id: NodeId) -> Vec<&'a Node> {
        let mut found = BTreeMap::new();
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            let node = self.graph.node(id);
            if found.insert(id, node).is_none() {
                open.extend(&node.inputs);
            }
        }
        found.into_values().collect()
    }
}

/// What a node computes, without names.
fn key_of(node: &Node) -> String {
    let results: Vec<String> = node.results().iter().map(|s| s.to_string()).collect();
    format!("{}{} : {};", node.op.kind(), attrs_key(&node.op), results.join(", "))
}
