//! What a graph costs: arithmetic and memory traffic, for fixed shapes.

use crate::graph::{Graph, Node};
use crate::ops::Op;
use crate::ops::def::{self, Cost};
use crate::shape::Shape;

/// The sum over all nodes. Nodes with symbolic shapes count nothing: bind the graph first.
pub fn graph_cost(graph: &Graph) -> Cost {
    let mut total = Cost::default();
    for node in graph.nodes() {
        if matches!(node.op, Op::Input { .. } | Op::Param { .. } | Op::Constant { .. } | Op::Result { .. }) {
            continue;
        }
        let cost = node_cost(graph, node);
        total.flops += cost.flops;
        total.bytes += cost.bytes;
    }
    total
}

/// The cost of one node of `graph`; nothing while its shapes are open.
pub fn node_cost(graph: &Graph, node: &Node) -> Cost {
    let inputs: Vec<&Shape> = node.inputs.iter().map(|&id| graph.shape(id)).collect();
    def::cost(&node.op, &inputs, node.results())
}
