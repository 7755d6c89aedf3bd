//! What passes ask about nodes: constants, uses, what is known before a run.

use std::ops::Index;
use std::sync::Arc;

use rlx_ir::maps::HashSet;
use rlx_ir::{ConstData, Graph, NodeId, Op};

/// The tensor, if `id` is a constant.
pub fn constant(graph: &Graph, id: NodeId) -> Option<&Arc<ConstData>> {
    match &graph.node(id).op {
        Op::Constant { data } => Some(data),
        _ => None,
    }
}

/// The one value that all elements of a constant have.
pub fn uniform(graph: &Graph, id: NodeId) -> Option<f64> {
    let data = constant(graph, id)?;
    let size = data.dtype().size_bytes();
    if data.num_elements() == 0 || data.dtype().bits() < 8 || data.dtype() == rlx_ir::DType::C64 {
        return None;
    }
    let bytes = data.bytes();
    let first = bytes.get(..size)?;
    if !bytes.chunks_exact(size).all(|element| element == first) {
        return None;
    }
    let one = ConstData::new(data.dtype(), &[], first.to_vec()).ok()?;
    one.value().to_f64().first().copied()
}

/// Whether each node depends on parameters and constants alone, so that it is computed before a run. What a node
/// counts is known in a run only, and so is what has it as a dimension.
pub fn fixed_nodes(graph: &Graph) -> Vec<bool> {
    let mut fixed: Vec<bool> = Vec::with_capacity(graph.len());
    let counted: HashSet<u32> = graph.nodes().iter().filter_map(|n| n.op.data_symbol()).collect();
    for node in graph.nodes() {
        let mut of_itself = !matches!(node.op, Op::Input { .. });
        if !counted.is_empty() {
            node.each_symbol(&mut |s| of_itself &= !counted.contains(&s));
        }
        fixed.push(of_itself && node.inputs.iter().all(|id| fixed[id.index()]));
    }
    fixed
}

/// The nodes that use each node, by its position: ascending; a node that uses another twice is there twice.
#[derive(Debug)]
pub struct Users {
    /// Where the users of each node begin, and where those of the last one end.
    begins: Vec<usize>,
    all: Vec<NodeId>,
}

impl Index<usize> for Users {
    type Output = [NodeId];

    fn index(&self, node: usize) -> &[NodeId] {
        &self.all[self.begins[node]..self.begins[node + 1]]
    }
}

/// The users of all nodes.
pub fn users(graph: &Graph) -> Users {
    let mut begins = vec![0; graph.len() + 1];
    let used = || graph.nodes().iter().flat_map(|node| node.inputs.iter().map(|id| (id.index(), node.id)));
    used().for_each(|(of, _)| begins[of + 1] += 1);
    for node in 0..graph.len() {
        begins[node + 1] += begins[node];
    }
    let Some(&count) = begins.last() else { return Users { begins, all: Vec::new() } };
    let (mut next, mut all) =
        (begins.clone(), graph.nodes().first().map_or(Vec::new(), |n| vec![n.id; count]));
    for (of, user) in used() {
        all[next[of]] = user;
        next[of] += 1;
    }
    Users { begins, all }
}

/// Whether each node is an output of the graph.
pub fn output_flags(graph: &Graph) -> Vec<bool> {
    let mut flags = vec![false; graph.len()];
    graph.outputs.iter().for_each(|id| flags[id.index()] = true);
    flags
}
