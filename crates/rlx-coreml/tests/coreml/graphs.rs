//! Every op's own random cases and random graphs, against the oracle.

use rlx_backend::testing::{OpCases, agrees};
use rlx_ir::oracle;
use rlx_ir::testing::{Case, random_graph};
use rlx_ir::{Graph, Op};

use crate::common::{everything, on_evaluator};

/// How many ops have cases that run. More translations make it larger; nothing may make it smaller.
const COVERED: usize = 52;
/// How many of 100 random graphs are claimed as a whole.
const GRAPHS: usize = 86;

/// The graph of a case with all inputs but the first as parameters, as weights are.
fn with_weights(case: &Case) -> (Graph, oracle::Bindings) {
    let (graph, bindings) = case.graph();
    let (mut weights, mut changed, mut seen) = (Graph::new(graph.name.clone()), bindings.clone(), 0);
    for node in graph.nodes() {
        let mut node = node.clone();
        if let Op::Input { name } = &node.op {
            let value = bindings.input(name).expect("a value").clone();
            if seen == 0 {
                changed.set_input(name.clone(), value);
            } else {
                changed.set_param(name.clone(), value);
                node.op = Op::Param { name: name.clone() };
            }
            seen += 1;
        }
        node.inputs = node.inputs.iter().map(|id| weights.nodes()[id.index()].id).collect();
        weights.push_node(node);
    }
    let outputs = graph.outputs.iter().map(|id| weights.nodes()[id.index()].id).collect();
    weights.set_outputs(outputs);
    (weights, changed)
}

#[test]
fn every_op_agrees_with_the_oracle() {
    let cases = OpCases::of(if everything() { 30 } else { 6 }, |case, seed| {
        let as_inputs = seed % 2 == 0;
        let (graph, bindings) = if as_inputs { case.graph() } else { with_weights(case) };
        agrees(&graph, &bindings, &on_evaluator())
    });
    println!("{}", cases.assert(COVERED));
}

#[test]
fn random_graphs_agree_with_the_oracle() {
    let count = if everything() { 300 } else { 100 };
    let (mut ran, mut wrong) = (0, Vec::new());
    for seed in 0..count {
        let (graph, bindings) = random_graph(seed, 6);
        match agrees(&graph, &bindings, &on_evaluator()) {
            Ok(runs) => ran += usize::from(runs),
            Err(what) => wrong.push(format!("seed {seed}: {what}")),
        }
    }
    println!("{ran} of {count} random graphs");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(ran >= GRAPHS, "{ran} graphs where there were {GRAPHS}");
}
