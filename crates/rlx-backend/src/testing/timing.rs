//! Times of steps: what holds of them on every device that has a clock.

use rlx_ir::oracle::Bindings;
use rlx_ir::{DType, Graph, Op, Shape};

use super::disagreement;
use crate::{ExecutableGraph, StepProfile};

/// Softmaxes of a matrix of so many rows and columns, one after the other: as many steps.
pub fn softmaxes(length: usize, size: usize) -> Graph {
    let mut graph = Graph::new("chain");
    let mut x = graph.input("x", Shape::new(&[size, size], DType::F32));
    for _ in 0..length {
        x = graph.try_add(Op::Softmax { axis: -1 }, &[x]).expect("a softmax of the last axis");
    }
    graph.set_outputs(vec![x]);
    graph
}

/// Two runs that are timed, and one behind them that is not; all of them are right. The times of the `length` steps, or `None` where the device has no clock.
///
/// # Panics
/// Where something of that does not hold.
pub fn timed(
    graph: &Graph,
    bindings: &Bindings,
    exec: &mut dyn ExecutableGraph,
    length: usize,
) -> Option<Vec<StepProfile>> {
    exec.profiler()?.start();
    for _ in 0..2 {
        assert_eq!(disagreement(graph, bindings, exec), None);
    }
    let profiler = exec.profiler()?;
    let steps = profiler.steps().to_vec();
    profiler.stop();
    assert_eq!(steps.len(), length);
    assert!(steps.iter().all(|step| step.runs == 2 && step.least <= step.mean()), "{steps:?}");
    assert!(steps.windows(2).all(|pair| pair[0].began <= pair[1].began), "steps run one after the other");
    assert!(exec.profiler()?.steps().is_empty(), "a profiler that was stopped has no steps");
    assert_eq!(disagreement(graph, bindings, exec), None);
    Some(steps)
}
