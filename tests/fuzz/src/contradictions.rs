//! Graphs whose dimensions contradict each other at run time, on every instruction set.

use rlx_ir::ops::{GateFunction, Op};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Gen, contradicting_graph};
use rlx_ir::{Graph, Node};

use crate::run::{Compare, Sample, agree, options, session};

/// A random graph whose declared dimensions are independent of what its ops' rules make, with numbers that need not fit: the
/// CPU and the oracle give the same results, or both an error.
///
/// # Panics
/// Where they disagree.
pub fn contradictions(data: &[u8]) {
    let mut g = Gen::from_bytes(data);
    let session = session(&mut g);
    let how = g.bits();
    let Some((graph, bindings)) = contradicting_graph(&mut g) else { return };
    let dims = oracle::bind_dims(&graph, &bindings).ok();
    let options = options(&mut Gen::new(how), dims.as_ref());
    let compare = if graph.nodes().iter().any(|node| may_diverge(&graph, node, &bindings)) {
        Compare::Shapes
    } else {
        Compare::Values
    };
    agree(&graph, &Sample { bindings, dims: None }, session, &options, compare);
}

/// Steps of a recurrence in which no rounding grows to more than the tolerance.
const FEW_STEPS: usize = 9;

/// Whether the values of f32s and of the oracle's f64s may go apart although both are right: in a recurrence of functions without
/// bounds, which grows until it is no f32, and in a long one of any, where each step makes the difference of the one before larger
/// (of inputs that differ by a rounding, 30 steps of a GRU made results without a common digit, in the oracle, too).
fn may_diverge(graph: &Graph, node: &Node, bindings: &Bindings) -> bool {
    let Op::Recurrent { functions, .. } = &node.op else { return false };
    let steps = match &graph.node(node.inputs[0]).op {
        Op::Input { name } => bindings.input(name).and_then(|x| x.dims.first().copied()),
        _ => None,
    };
    let bounded = |f: &GateFunction| {
        matches!(f, GateFunction::Sigmoid | GateFunction::Tanh | GateFunction::HardSigmoid { .. })
    };
    // Of what the graph computes, the number of steps is not known here.
    steps.is_none_or(|steps| steps > FEW_STEPS) || !functions.iter().all(bounded)
}
