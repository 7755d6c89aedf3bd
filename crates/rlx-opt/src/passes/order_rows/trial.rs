//! What would become of the transposes behind an op on rows, if the one in front of it moved there.
//!
//! The op and what follows it (ops on rows, elementwise ops, movement) are a small graph of their own, up to the ops that compute
//! something else. It is simplified as it is and with the transpose moved, and for both the elements are counted that are
//! read out of the order that they were computed in.

use std::collections::BTreeSet;

use rlx_ir::lir::View;
use rlx_ir::maps::HashMap;
use rlx_ir::{Graph, Node, NodeId, Op, Result};

use super::{is_of_rows, reordered};
use crate::facts::{self, Users};
use crate::lower::view::through;
use crate::pipeline::PassContext;

/// How many nodes a trial has at most: a layer is much smaller, and what is behind them counts as any other reader.
const MOST: usize = 64;

/// What stands for a size that is known in a run only.
const TYPICAL: i64 = 64;

/// What reading an element through strides costs, and what it costs if a copy has to be made first: it is read, written and read again.
const STRIDED: f64 = 1.0;
const COPIED: f64 = 3.0;

/// A graph, and what is asked about its nodes.
pub(super) struct Surroundings<'g> {
    graph: &'g Graph,
    users: Users,
    outputs: Vec<bool>,
    fixed: Vec<bool>,
}

impl<'g> Surroundings<'g> {
    pub(super) fn of(graph: &'g Graph) -> Self {
        Surroundings {
            graph,
            users: facts::users(graph),
            outputs: facts::output_flags(graph),
            fixed: facts::fixed_nodes(graph),
        }
    }

    /// The trial of `first`, an op on transposed rows; `None` where it runs once, before all others.
    pub(super) fn trial(&self, first: &Node) -> Option<Trial> {
        if self.fixed[first.id.index()] {
            return None;
        }
        let members = self.followers(first);
        let mut trial = Trial::new(self.graph);
        let mut in_front = Vec::new();
        let mut at = self.graph.node(first.inputs[0]);
        while is_movement(&at.op) && in_front.len() < MOST {
            in_front.push(at);
            at = self.graph.node(at.inputs[0]);
        }
        trial.stands_for(at, Op::Input { name: "x".into() });
        let nodes = members.iter().map(|&id| self.graph.node(id));
        for node in in_front.into_iter().rev().chain(nodes) {
            self.copy(node, &mut trial);
        }
        let leaves = |id: &&NodeId| self.users[id.index()].iter().any(|user| !members.contains(user));
        let read = members.iter().filter(leaves).map(|id| (trial.ids[id], false));
        let given = members.iter().filter(|id| self.outputs[id.index()]).map(|id| (trial.ids[id], true));
        let (outputs, is_given) = read.chain(given).unzip();
        trial.is_given = is_given;
        trial.graph.set_outputs(outputs);
        Some(trial)
    }

    /// `first` and what follows it, as far as transposes may sink through it.
    fn followers(&self, first: &Node) -> BTreeSet<NodeId> {
        let mut found = BTreeSet::new();
        let mut next = BTreeSet::from([first.id]);
        while let Some(id) = next.pop_first().filter(|_| found.len() < MOST) {
            found.insert(id);
            let follows = |user: &&NodeId| self.follows(self.graph.node(**user), &found);
            next.extend(self.users[id.index()].iter().filter(follows));
        }
        found
    }

    fn follows(&self, node: &Node, found: &BTreeSet<NodeId>) -> bool {
        let fixed = |ids: &[NodeId]| ids.iter().all(|id| self.fixed[id.index()]);
        if node.results().len() != 1 {
            return false;
        }
        if is_of_rows(node, self.graph) {
            return found.contains(&node.inputs[0]) && fixed(&node.inputs[1..]);
        }
        let inside = |id: &NodeId| found.contains(id) || self.fixed[id.index()];
        (is_movement(&node.op) || node.op.is_pointwise()) && node.inputs.iter().all(inside)
    }

    fn copy(&self, node: &Node, trial: &mut Trial) {
        for &id in &node.inputs {
            let input = self.graph.node(id);
            let op = match &input.op {
                Op::Constant { .. } => input.op.clone(),
                _ => Op::Param { name: format!("p{}", id.index()) },
            };
            trial.stands_for(input, op);
        }
        let inputs = node.inputs.iter().map(|id| trial.ids[id]).collect();
        let id = trial.graph.push_node(Node::new(node.op.clone(), inputs, node.results().to_vec()));
        trial.ids.insert(node.id, id);
        if is_of_rows(node, self.graph) {
            trial.rows.push((node.id, id));
        }
    }
}

/// A part of a graph, to be tried.
pub(super) struct Trial {
    graph: Graph,
    /// The nodes that stand for those of the whole graph.
    ids: HashMap<NodeId, NodeId>,
    /// The ops on rows: in the whole graph, and here.
    rows: Vec<(NodeId, NodeId)>,
    /// For each output, whether it is one of the whole graph, too. The others are read there.
    is_given: Vec<bool>,
}

impl Trial {
    fn new(whole: &Graph) -> Trial {
        let mut graph = Graph::new("rows");
        whole.symbol_ranges().iter().for_each(|(&symbol, &range)| graph.set_symbol_range(symbol, range));
        Trial { graph, ids: HashMap::default(), rows: Vec::new(), is_given: Vec::new() }
    }

    /// Makes `op` what stands for `node`, unless something does.
    fn stands_for(&mut self, node: &Node, op: Op) {
        let graph = &mut self.graph;
        self.ids
            .entry(node.id)
            .or_insert_with(|| graph.push_node(Node::new(op, Vec::new(), vec![node.shape.clone()])));
    }

    /// The ops on rows, by their ids in the whole graph.
    pub(super) fn ops_on_rows(&self) -> impl Iterator<Item = NodeId> {
        self.rows.iter().map(|&(whole, _)| whole)
    }

    /// Whether fewer elements are read out of order when transposes are moved behind all ops on rows.
    pub(super) fn pays(&self, context: &PassContext<'_>) -> Result<bool> {
        let is_of_rows = |id: NodeId| self.rows.iter().any(|&(_, own)| own == id);
        let kept = reordered(&self.graph, context, &|_| false)?;
        let moved = reordered(&self.graph, context, &is_of_rows)?;
        Ok(self.cost(&moved) < self.cost(&kept))
    }

    /// What reading out of order costs in one of the two graphs that became of it.
    fn cost(&self, graph: &Graph) -> f64 {
        let reads = graph.nodes().iter().filter(|n| !is_movement(&n.op)).flat_map(|n| &n.inputs);
        let outputs = graph.outputs.iter().zip(&self.is_given);
        let read: f64 = reads.map(|&id| cost_of_reading(graph, id, STRIDED)).sum();
        // A result is dense; a copy is made if it is not.
        let left = |(&id, &given): (&NodeId, &bool)| {
            cost_of_reading(graph, id, if given { COPIED } else { STRIDED })
        };
        read + outputs.map(left).sum::<f64>()
    }
}

/// Movement that is a view, if anything expresses it.
fn is_movement(op: &Op) -> bool {
    matches!(op, Op::Reshape { .. } | Op::Transpose { .. } | Op::Slice { .. })
}

fn cost_of_reading(graph: &Graph, id: NodeId, strided: f64) -> f64 {
    let each = match view_of(graph, id) {
        Some(view) if view.is_dense() => return 0.0,
        Some(_) => strided,
        None => COPIED,
    };
    let size = |n: &rlx_ir::Dim| n.eval(&|_| Some(TYPICAL)).unwrap_or(TYPICAL) as f64;
    each * graph.shape(id).dims().iter().map(size).product::<f64>()
}

/// The view of what was computed last that a value is, if strides express it.
fn view_of(graph: &Graph, id: NodeId) -> Option<View> {
    let node = graph.node(id);
    if !is_movement(&node.op) {
        return Some(View::dense(node.shape.dims()));
    }
    through(node, &view_of(graph, node.inputs[0])?)
}
