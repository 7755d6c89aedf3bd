//! When passes copy a graph: from the first node on that they change.

use std::sync::Arc;

use rlx_ir::Graph;
use rlx_opt::{CompileOptions, CompilePipeline};

use crate::common::{Anything, parse};

/// Whether the first passes hand on the nodes as they are in memory, and how many there are behind them.
fn after_folding(graph: &Graph) -> (bool, usize) {
    let target = Arc::new(Anything { channels_last: false, ..Anything::default() });
    let mut pipeline = CompilePipeline::new(target, CompileOptions::default());
    pipeline.keep_graphs = true;
    let compiled = pipeline.compile(graph).unwrap();
    let nodes_after = |pass: &str| {
        let record = compiled.passes.iter().find(|record| record.name == pass).unwrap();
        record.after.as_ref().unwrap().nodes()
    };
    let (before, after) = (nodes_after("eliminate-dead-nodes"), nodes_after("fold-constants"));
    (before.as_ptr() == after.as_ptr(), after.len())
}

#[test]
fn a_graph_of_distinct_nodes_is_not_copied() {
    let graph = parse(
        r#"graph "distinct" {
          %0 = Input {name="x"} : [2, 3] f32
          %1 = Activation.Relu(%0) : [2, 3] f32
          %2 = Activation.Sin(%1) : [2, 3] f32
          return %2
        }"#,
    );
    assert_eq!(after_folding(&graph), (true, 3));
}

#[test]
fn a_graph_with_equal_nodes_is_copied_with_one_of_them() {
    let graph = parse(
        r#"graph "equal" {
          %0 = Input {name="x"} : [2, 3] f32
          %1 = Activation.Sin(%0) : [2, 3] f32
          %2 = Activation.Sin(%0) : [2, 3] f32
          %3 = Binary.Sub(%1, %2) : [2, 3] f32
          return %3
        }"#,
    );
    assert_eq!(after_folding(&graph), (false, 3));
}

#[test]
fn a_graph_that_declares_more_than_its_rules_give_is_copied_with_what_they_give() {
    let graph = parse(
        r#"graph "declared" {
          %0 = Input {name="x"} : [n, 3] f32
          %1 = Activation.Sin(%0) : [m, 3] f32
          return %1
        }"#,
    );
    assert_eq!(after_folding(&graph), (false, 2));
}
