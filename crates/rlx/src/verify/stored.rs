//! Verifying a graph that is already compiled: an artefact.

use rlx_ir::{Progress, Result};
use rlx_runtime::{CompileOptions, CompiledGraph, Session};

use super::{Case, Reference, Verification, by_node, reference_values, result, say, verify, widest};
use crate::compare::{Difference, Tolerances, compare};
use crate::runner::views;

/// Runs `compiled`, which was compiled from `case` earlier, and compares its outputs with the reference's. Where they
/// diverge, the case is compiled and verified again to find the first node that does.
///
/// # Errors
/// A case that fails on the reference or on the device; [`rlx_ir::ErrorKind::Cancelled`].
pub fn verify_compiled(
    compiled: &mut CompiledGraph,
    session: &Session,
    reference: Reference<'_>,
    options: &CompileOptions,
    case: Case<'_>,
    tolerance: impl Into<Tolerances>,
    progress: &Progress,
) -> Result<Verification> {
    let tolerance = tolerance.into();
    let tolerances = by_node(case.graph, tolerance);
    let values = reference_values(reference, options, case, progress)?;
    say(progress, "running the artefact")?;
    let got = compiled.try_run_tensors_with_progress(&views(case.inputs), progress)?;
    let mut outputs = Vec::with_capacity(got.len());
    for (&id, got) in case.graph.outputs.iter().zip(&got) {
        outputs.push(compare(result(&values, id)?, got, tolerances[id.index()]));
    }
    let ok = outputs.iter().all(|d| d.ok);
    let again = if ok {
        None
    } else {
        say(progress, "compiling again to find where it diverges")?;
        Some(verify(session, reference, options, case, tolerance, progress)?)
    };
    Ok(Verification {
        ok,
        first_divergence: again.as_ref().and_then(|found| found.first_divergence.clone()),
        first_overflow: again.as_ref().and_then(|found| found.first_overflow.clone()),
        overall: outputs.iter().copied().fold(Difference::NONE, Difference::merge),
        outputs,
        values: again.map_or(0, |found| found.values),
        tolerance: widest(case.graph, &tolerances),
    })
}
