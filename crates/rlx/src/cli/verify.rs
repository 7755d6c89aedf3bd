//! `rlx verify`: a device against the oracle or another device.

use std::process::ExitCode;

use rlx::compare::Tolerances;
use rlx::verify::{Case, Divergence, Reference, Verification, verify_compiled, verify_imported};
use rlx_ir::DType;
use rlx_runtime::{Precision, PrecisionPolicy, Session};
use serde_json::{Value as Json, json};

use super::args::{Allowed, Common, VerifyArgs};
use super::failure::Failure;
use super::job::{self, borrowed};
use super::output::Output;
use super::watch::Watch;
use super::{compare, print, values};

/// Verifies a model; exit code 1 when it diverges.
pub fn verify(args: &VerifyArgs, json: bool) -> Result<ExitCode, Failure> {
    if let Some(path) = &args.expect {
        return compare::expected(args, path, json);
    }
    let watch = Watch::start(&args.limits, "reading", json)?;
    let progress = watch.progress();
    let mut job = job::open(&args.common, progress)?;
    let inputs = values::tensors(&args.common, &mut job, json, true, progress)?;
    let given = borrowed(&inputs);
    if let Some(artefact) = job.runner.artefact() {
        artefact.verify_with_progress(progress)?;
    }
    let imported = job.runner.import_with_progress(&given, progress)?;
    let tolerance = tolerances(&args.common, &args.allowed, job.options.precision);
    let trusted = args.against.map(Session::try_on).transpose()?;
    let reference = trusted.as_ref().map_or(Reference::Oracle, Reference::Device);
    let (session, options) = (&job.session, &job.options);
    let found = if job.runner.artefact().is_some() {
        let case = Case { graph: &imported.graph, weights: &imported.weights, inputs: &given };
        let compiled = job.runner.prepare_with_progress(&given, progress)?.compiled;
        verify_compiled(compiled, session, reference, options, case, tolerance, progress)?
    } else {
        verify_imported(session, reference, options, &imported, &given, tolerance, progress)?
    };
    drop(watch);
    if json {
        writeln!(Output, "{}", to_json(&found))?;
    } else {
        print_text(&found, &imported.outputs)?;
    }
    Ok(if found.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The user's tolerance takes precedence; otherwise it depends on the type.
pub fn tolerances(common: &Common, allowed: &Allowed, precision: Precision) -> Tolerances {
    let asked = match common.policy {
        Some(PrecisionPolicy::AlwaysF32) => DType::F32,
        Some(PrecisionPolicy::AutoMixedBf16) => DType::BF16,
        Some(_) => DType::F16,
        None => precision.dtype(),
    };
    Tolerances {
        rtol: allowed.rtol,
        atol: allowed.atol,
        floor: allowed.floor.unwrap_or(0.0),
        asked: Some(asked),
    }
}

/// A number for JSON, which has no infinity.
pub fn number(x: f64) -> Json {
    if x.is_finite() { json!(x) } else { json!("inf") }
}

fn to_json(found: &Verification) -> Json {
    let d = &found.overall;
    let place = |found: &Option<Divergence>| {
        found.as_ref().map(|f| {
            json!({
                "node": f.node, "op": f.op, "origin": f.origin, "alone": f.alone,
                "max_abs": number(f.difference.max_abs), "max_ulp": number(f.difference.max_ulp),
                "overflowed": f.difference.overflowed, "elements": f.difference.count,
            })
        })
    };
    json!({
        "ok": found.ok,
        "first_divergence": place(&found.first_divergence),
        "first_overflow": place(&found.first_overflow),
        "max_abs": number(d.max_abs), "max_rel": number(d.max_rel),
        "max_ulp": number(d.max_ulp), "mean_ulp": number(d.mean_ulp),
        "values": found.values,
        "tolerance": { "rtol": found.tolerance.rtol, "atol": found.tolerance.atol },
    })
}

/// The model's own name of a node, and what the graph calls it.
fn place(found: &Divergence) -> String {
    match &found.origin {
        Some(origin) => format!("{origin} [{}]", found.node),
        None => found.node.clone(),
    }
}

fn print_text(found: &Verification, names: &[String]) -> Result<(), Failure> {
    writeln!(
        Output,
        "{:<24} {:>10} {:>10} {:>10} {:>10}",
        "output", "max abs", "max rel", "max ulp", "mean ulp"
    )?;
    for (name, d) in names.iter().zip(&found.outputs) {
        let mark = if d.ok { "" } else { "  diverges" };
        writeln!(
            Output,
            "{name:<24} {:>10.3e} {:>10.3e} {:>10} {:>10}{mark}",
            d.max_abs,
            d.max_rel,
            print::measure(d.max_ulp, 1),
            print::measure(d.mean_ulp, 3)
        )?;
    }
    writeln!(Output, "{} compared", print::counted(found.values, "inner value", "inner values"))?;
    if let Some(f) = &found.first_overflow {
        let (n, all) = (f.difference.overflowed, f.difference.count);
        writeln!(
            Output,
            "first overflow: {}: {n} of {all} elements are infinite or NaN and should not be",
            place(f)
        )?;
    }
    match &found.first_divergence {
        None => writeln!(Output, "ok"),
        Some(f) => {
            let how =
                if f.alone { "diverges by itself" } else { "diverges together with the ops fused into it" };
            writeln!(Output, "first divergence: {} {how}: max abs {:.3e}", place(f), f.difference.max_abs)
        }
    }
}
