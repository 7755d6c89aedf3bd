//! Graphs whose dimensions contradict each other at run time, on every instruction set.

use rlx_ir::ops::{GateFunction, Op};
use rlx_ir::oracle;
use rlx_ir::testing::{Gen, contradicting_graph};

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
    let compare = if graph.nodes().iter().any(|node| may_overflow(&node.op)) {
        Compare::Shapes
    } else {
        Compare::Values
    };
    agree(&graph, &Sample { bindings, dims: None }, session, &options, compare);
}

/// Whether values grow with every step until they are no f32s, while the oracle's f64s still hold them: a recurrence of
/// functions without bounds.
fn may_overflow(op: &Op) -> bool {
    let Op::Recurrent { functions, .. } = op else { return false };
    let bounded = |f: &GateFunction| {
        matches!(f, GateFunction::Sigmoid | GateFunction::Tanh | GateFunction::HardSigmoid { .. })
    };
    !functions.iter().all(bounded)
}
