//! Steps are timed by the device's events, and a run that is timed computes the same.

use rlx_ir::testing::random_bindings;
use rlx_ir::{DType, DimBinding, Graph, Op, Shape};

use crate::common::{all, compile, disagreement, set_params};

/// Softmaxes, one after the other: as many steps.
fn chain(length: usize) -> Graph {
    let mut graph = Graph::new("chain");
    let mut x = graph.input("x", Shape::new(&[64, 64], DType::F32));
    for _ in 0..length {
        x = graph.try_add(Op::Softmax { axis: -1 }, &[x]).unwrap();
    }
    graph.set_outputs(vec![x]);
    graph
}

#[test]
fn steps_are_timed_by_events() {
    let (graph, length) = (chain(5), 5);
    let bindings = random_bindings(&graph, &DimBinding::new(), 3);
    for backend in all() {
        let mut exec = compile(&graph, &backend).unwrap();
        set_params(&mut *exec, &bindings).unwrap();
        // From the second run on, what is not timed is a captured graph.
        for _ in 0..3 {
            assert_eq!(disagreement(&graph, &bindings, &mut *exec), None);
        }
        exec.profiler().expect("both drivers have events").start();
        for _ in 0..2 {
            assert_eq!(disagreement(&graph, &bindings, &mut *exec), None);
        }
        let profiler = exec.profiler().unwrap();
        let steps = profiler.steps().to_vec();
        assert_eq!(steps.len(), length);
        assert!(steps.iter().all(|step| step.runs == 2 && step.least <= step.mean()), "{steps:?}");
        assert!(steps.iter().all(|step| step.least.as_nanos() > 500), "{steps:?}");
        assert!(steps.windows(2).all(|pair| pair[0].began < pair[1].began), "steps run one after the other");
        profiler.stop();
        assert_eq!(disagreement(&graph, &bindings, &mut *exec), None);
    }
}
