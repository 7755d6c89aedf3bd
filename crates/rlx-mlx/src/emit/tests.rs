//! Without MLX: what is claimed is written, with the shapes that were declared, for MLX on the CPU and on GPUs.

use rlx_ir::testing::Case;
use rlx_ir::{Graph, Op, OpKind};
use rlx_opt::{CompileOptions, CompilePipeline};
use std::sync::Arc;

use super::write;
use crate::backend::graph_target;
use crate::claims::Abilities;
use crate::program::{Codes, NAMES};

/// Numbers as a shim could give them.
fn codes() -> Codes {
    let of = |name: &str| NAMES.iter().position(|n| *n == name).map_or(-1, |i| i as i64);
    Codes::of(of).expect("every name has a number")
}

/// The graph with inputs in place of parameters, as devices of whole graphs are given it.
fn without_params(graph: &Graph) -> Graph {
    let mut out = graph.successor();
    for node in graph.nodes() {
        let mut copy = node.clone();
        if let Op::Param { name } = &node.op {
            copy.op = Op::Input { name: name.clone() };
        }
        out.push_node(copy);
    }
    out.set_outputs(graph.outputs.clone());
    out
}

#[test]
fn what_is_claimed_is_written_with_the_shapes_that_were_declared() {
    let codes = codes();
    for gpu in [false, true] {
        let mut written = 0;
        for &kind in OpKind::ALL {
            for seed in 0..12 {
                let (graph, _) = Case::random(kind, seed).graph();
                let pipeline = CompilePipeline::new(
                    Arc::new(graph_target(Abilities { gpu })),
                    CompileOptions::default(),
                );
                let Ok(compiled) = pipeline.compile(&graph) else { continue };
                let legal = without_params(&compiled.lir.graph);
                write(&legal, &codes).unwrap_or_else(|e| panic!("{kind} seed {seed}: {e}\n{legal}"));
                written += 1;
            }
        }
        // Doubles make the difference; the rest is what MLX has not.
        assert!(written > if gpu { 480 } else { 560 }, "{written} cases with gpu: {gpu}");
    }
}

#[test]
fn a_constant_that_is_large_is_given_to_the_program() {
    let mut graph = Graph::new("constants");
    let x = graph.input("x", rlx_ir::Shape::new(&[300], rlx_ir::DType::F32));
    let value = rlx_ir::Value::float(rlx_ir::DType::F32, &[300], vec![1.0; 300]);
    let c = graph.constant(value.to_const());
    let y = graph.try_add(Op::Binary(rlx_ir::op::BinaryOp::Add), &[x, c]).expect("a sum");
    graph.set_outputs(vec![y]);
    let written = write(&graph, &codes()).expect("a program");
    assert_eq!((written.constants.len(), written.words[0], written.faults.len()), (1, 2, 0));
    assert!(written.words.len() < 20 && written.largest == 1200, "{written:?}");
}
