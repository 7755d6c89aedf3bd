//! Rewriting composites into simpler ops by their own decompositions.

mod whole_bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, Node, NodeId, rule_may_hold};
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
                declare(node, &results, first_new, &mut out);
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

/// Declares new nodes as the one that they replace, where their own rules allow it: what reads it may need sizes that only its
/// declaration has, because the decomposition's rule joins symbols that need not be equal.
fn declare(node: &Node, results: &[NodeId], first_new: usize, out: &mut Graph) {
    for (&id, declared) in results.iter().zip(node.results()).filter(|(id, _)| id.index() >= first_new) {
        let new = out.node(id);
        let alike = new.shape.dtype() == declared.dtype() && new.shape.rank() == declared.rank();
        if new.shape == *declared || !alike || new.results().len() > 1 {
            continue;
        }
        let dims = declared.dims().iter().zip(new.shape.dims());
        let shape =
            declared.with_dims(dims.map(|(&d, &own)| if own.is_static() { own } else { d }).collect());
        let mut as_declared = new.clone();
        as_declared.shape = shape.clone();
        if rule_may_hold(out, &as_declared).is_ok() {
            out.declare(id, shape);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;
    use crate::verify::verify;

    #[test]
    fn what_replaces_a_node_is_declared_as_it_was() {
        let graph = text::parse(
            r#"graph "norm" {
              %0 = Input {name="x"} : [batch, seq, width] f32
              %1 = Input {name="scale"} : [s] f32
              %2 = Input {name="shift"} : [t] f32
              %3 = LayerNorm(%0, %1, %2) {axis=-1, eps=0.1} : [3, 5, 8] f32
              %4 = Attention(%3, %3, %3) {num_heads=2, head_dim=4, mask=Causal, window=none, scale=none, unseen=Zero} : [3, 5, 8] f32
              return %4
            }"#,
        );
        let graph = graph.unwrap();
        assert_eq!(verify(&graph), []);
        let norms = decompose_all(&graph, |kind| kind == OpKind::LayerNorm).unwrap().unwrap();
        assert_eq!(verify(&norms), [], "{norms}");
    }
}
