//! Changes to what nodes are connected to, and to which nodes there are.

use super::Choices;
use super::mutate_tensor::arbitrary;
use crate::proto::attribute_proto::AttributeType;
use crate::proto::{AttributeProto, GraphProto, NodeProto, ValueInfoProto};

/// The names that the graph defines before its node `at`.
fn names(graph: &GraphProto, at: usize) -> Vec<String> {
    let inputs = graph.input.iter().map(|i| i.name().to_owned());
    let weights = graph.initializer.iter().map(|t| t.name().to_owned());
    let results = graph.node.iter().take(at).flat_map(|n| n.output.iter().cloned());
    inputs.chain(weights).chain(results).filter(|name| !name.is_empty()).collect()
}

/// One node is given other operands or results.
pub(super) fn rewire(graph: &mut GraphProto, choices: &mut Choices<'_>) {
    let at = choices.below(graph.node.len());
    // Rarely a name that is defined later or not at all.
    let names = names(graph, if choices.one_in(20) { usize::MAX } else { at });
    let other =
        |choices: &mut Choices<'_>| names.get(choices.below(names.len())).cloned().unwrap_or_default();
    let fresh = format!("constant {}", graph.initializer.len());
    let Some(node) = graph.node.get_mut(at) else { return };
    let (i, k) = (choices.below(node.input.len()), choices.below(node.input.len()));
    match choices.below(20) {
        0 => _ = node.input.pop(),
        1 if !node.input.is_empty() => _ = node.input.remove(i),
        2 if !node.input.is_empty() => node.input.swap(i, k),
        3 if !node.input.is_empty() => node.input[i] = node.input[k].clone(),
        4 if !node.input.is_empty() => node.input[i] = String::new(),
        5..=8 if !node.input.is_empty() => node.input[i] = other(choices),
        9..=11 => node.input.push(other(choices)),
        12 if !node.output.is_empty() => _ = node.output.pop(),
        13 => {
            let more = node.output.len();
            let first = node.output.first().cloned().unwrap_or_default();
            node.output.push(format!("{first}.{more}"));
        }
        _ if !node.input.is_empty() => {
            node.input[i].clone_from(&fresh);
            graph.initializer.push(arbitrary(&fresh, choices));
        }
        _ => {}
    }
}

/// Nodes are removed, added, swapped, or moved into a body.
pub(super) fn reshape_nodes(
    graph: &mut GraphProto,
    stock: &[NodeProto],
    choices: &mut Choices<'_>,
    depth: usize,
) {
    let names = names(graph, usize::MAX);
    let at = choices.below(graph.node.len());
    match choices.below(8) {
        0 if graph.node.len() > 1 => _ = graph.node.remove(at),
        1 if !graph.node.is_empty() => {
            let k = choices.below(graph.node.len());
            graph.node.swap(at, k);
        }
        2..=5 => {
            let own = graph.node.get(at).cloned();
            let Some(mut node) = stock.get(choices.below(stock.len())).cloned().or(own) else { return };
            // Behind the others: on what they make, for a new output.
            for input in &mut node.input {
                if !input.is_empty() {
                    *input = names.get(choices.below(names.len())).cloned().unwrap_or_default();
                }
            }
            for (i, output) in node.output.iter_mut().enumerate() {
                *output = format!("more {}.{i}", names.len());
            }
            let first = node.output.first().cloned();
            graph.node.push(node);
            graph.output.push(ValueInfoProto { name: first, ..Default::default() });
        }
        6 => {
            if let Some(output) = choices.pick_mut(&mut graph.output) {
                output.name = names.get(choices.below(names.len())).cloned();
            }
        }
        _ if depth < 3 && at < graph.node.len() => into_body(&mut graph.node[at], &names, choices),
        _ => {}
    }
}

/// The node becomes the body of a loop or both branches of a choice that give what it gave.
fn into_body(node: &mut NodeProto, names: &[String], choices: &mut Choices<'_>) {
    let given = |name: &String| ValueInfoProto { name: Some(name.clone()), ..Default::default() };
    let inner = node.clone();
    let outputs: Vec<ValueInfoProto> = inner.output.iter().map(given).collect();
    let mut any = || names.get(choices.below(names.len())).cloned().unwrap_or_default();
    let (first, second) = (any(), any());
    let body = |name: &str, graph: GraphProto| AttributeProto {
        name: Some(name.to_owned()),
        r#type: Some(AttributeType::Graph as i32),
        g: Some(Box::new(graph)),
        ..Default::default()
    };
    let graph = GraphProto { node: vec![inner], output: outputs, ..Default::default() };
    node.domain = None;
    if choices.one_in(2) {
        node.op_type = Some("If".to_owned());
        node.input = vec![first];
        node.attribute = vec![body("then_branch", graph.clone()), body("else_branch", graph)];
        return;
    }
    let mut graph = graph;
    graph.input = ["iteration", "goes on"].map(|n| given(&n.to_owned())).to_vec();
    graph.output.insert(0, given(&"goes on".to_owned()));
    node.op_type = Some("Loop".to_owned());
    node.input = vec![first, if choices.one_in(2) { second } else { String::new() }];
    node.attribute = vec![body("body", graph)];
}
