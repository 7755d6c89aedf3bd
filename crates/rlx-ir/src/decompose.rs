//! Rewriting composites into simpler ops by their own decompositions.

mod whole_bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, Node, NodeId};
use crate::ops::{Op, OpKind};

/// Composites may decompose into composites; more levels than this mean a circle.
const MAX_ROUNDS: usize = 16;

/// The graph with every node whose kind `chosen` accepts replaced by its decomposition, repeatedly, until
/// none is left that can be; `None` when there was nothing to replace.
///
/// # Errors
/// What a decomposition reports, or [`ErrorKind::Internal`] when decompositions run in a circle.
pub fn decompose_all(graph: &Graph, chosen: impl Fn(OpKind) -> bool) -> Result<Option<Graph>> {
    decompose_nodes(graph, |node, _| chosen(node.op.kind()))
}

/// Whether the op of `node` has a decomposition for its inputs.
pub fn can_decompose(graph: &Graph, node: &Node) -> bool {
    let mut scratch = Graph::new("scratch");
    let inputs: Vec<NodeId> =
        node.inputs.iter().map(|&id| scratch.input(format!("x{id}"), graph.shape(id).clone())).collect();
    matches!(parts(node, graph, &inputs, &mut scratch), Some(Ok(_)))
}

/// As [`decompose_all`], choosing by node (of the graph as far as it is decomposed).
///
/// # Errors
/// As [`decompose_all`].
pub fn decompose_nodes(graph: &Graph, chosen: impl Fn(&Node, &Graph) -> bool) -> Result<Option<Graph>> {
    let mut current: Option<Graph> = None;
    for _ in 0..MAX_ROUNDS {
        match decompose_once(current.as_ref().unwrap_or(graph), &chosen)? {
            Some(next) => current = Some(next),
            None => return Ok(current),
        }
    }
    Err(Error::new(ErrorKind::Internal, "decompositions do not come to an end"))
}

fn decompose_once(graph: &Graph, chosen: &impl Fn(&Node, &Graph) -> bool) -> Result<Option<Graph>> {
    let mut out = graph.successor();
    let mut changed = false;
    // For each old node, the new ids of its results.
    let mut map: Vec<Vec<NodeId>> = Vec::with_capacity(graph.len());
    for node in graph.nodes() {
        let inputs: Vec<NodeId> = node.inputs.iter().map(|id| map[id.index()][0]).collect();
        let first_new = out.len();
        let results = match decomposed(node, graph, &inputs, &mut out, chosen) {
            Some(results) => {
                changed = true;
                let results = results.map_err(|e| graph.locate(node.id, e))?;
                for i in first_new..out.len() {
                    out.set_origin(out.nodes()[i].id, node.origin);
                }
                results
            }
            None => copied(node, &inputs, &map, graph, &mut out),
        };
        map.push(results);
    }
    out.set_outputs(graph.outputs.iter().map(|id| map[id.index()][0]).collect());
    Ok(changed.then_some(out))
}

fn decomposed(
    node: &Node,
    graph: &Graph,
    inputs: &[NodeId],
    out: &mut Graph,
    chosen: &impl Fn(&Node, &Graph) -> bool,
) -> Option<Result<Vec<NodeId>>> {
    if !chosen(node, graph) {
        return None;
    }
    parts(node, graph, inputs, out)
}

/// What a node becomes: of packed elements the same in whole bytes, where that is possible, else the op's decomposition.
fn parts(node: &Node, graph: &Graph, inputs: &[NodeId], out: &mut Graph) -> Option<Result<Vec<NodeId>>> {
    whole_bytes::in_whole_bytes(node, graph, inputs, out)
        .or_else(|| node.op.def().decompose(&node.op, inputs, out))
}

/// The node as it is; a `Result` of a decomposed node becomes the value itself.
fn copied(
    node: &Node,
    inputs: &[NodeId],
    map: &[Vec<NodeId>],
    graph: &Graph,
    out: &mut Graph,
) -> Vec<NodeId> {
    if let Op::Result { index } = node.op
        && let Some(&id) = map[node.inputs[0].index()].get(index)
        && (graph.node(node.inputs[0]).results().len() > 1 || index == 0)
        && map[node.inputs[0].index()].len() > 1
    {
        return vec![id];
    }
    let mut copy = node.clone();
    copy.inputs = inputs.to_vec();
    vec![out.push_node(copy)]
}
