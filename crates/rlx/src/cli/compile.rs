//! `rlx compile`: compiles a model to a file that runs without importing or optimising again.

use std::process::ExitCode;
use std::time::Instant;

use serde_json::{Value as Json, json};

use super::args::CompileArgs;
use super::failure::Failure;
use super::image::Images;
use super::job::{self, borrowed};
use super::output::Output;
use super::watch::Watch;
use super::written::keep_apart;
use super::{inputs, package, print};
use rlx_ir::{Error, ErrorKind, Result};
use rlx_runtime::Artefact;

/// Compiles a model.
pub fn compile(args: &CompileArgs, json: bool) -> Result<ExitCode, Failure> {
    if package::wanted(args) {
        return package::compile(args, json);
    }
    let watch = Watch::start(&args.limits, "reading", json)?;
    let mut job = job::open(&args.common, watch.progress())?;
    takes_tensors(&job)?;
    keep_apart(&[("--output", &args.output)], &[args.common.reads(), job.files.clone()].concat())?;
    let given =
        inputs::gather(&args.common, &Images::of(&args.common, &job.metadata, json), &job.declared, false)?;
    let start = Instant::now();
    let (output, given) = (&args.output, borrowed(&given));
    let artefact = job.runner.compile_to_with_progress(output, &given, args.slim, watch.progress())?;
    let time = print::ms(start.elapsed());
    drop(watch);
    if json {
        let mut report = artefact_json(&artefact)?;
        report["compile_ms"] = time.into();
        writeln!(Output, "{report}")?;
    } else {
        let sizes = artefact.sizes();
        writeln!(
            Output,
            "{}: {} for {} ({}), {} of packed weights, {:.1} ms",
            args.output.display(),
            print::bytes(sizes.file),
            artefact.target().device,
            artefact.target().machine,
            print::bytes(sizes.prepared),
            time
        )?;
        for (key, variant) in artefact.tuning()?.iter() {
            writeln!(Output, "  tuned: {variant} for {key}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A compiled model has tensors of numbers alone.
fn takes_tensors(job: &job::Job) -> Result<()> {
    let is_tensor = |name: &str| job.declared.iter().any(|info| info.name == name);
    let Some(name) = job.runner.model().and_then(|model| model.input_names().find(|name| !is_tensor(name)))
    else {
        return Ok(());
    };
    let message = format!(
        "input \"{name}\" takes strings or a sequence, which a compiled model cannot: the words of a run decide how the model is imported"
    );
    Err(Error::new(ErrorKind::Unsupported, message)
        .with_hint("run the ONNX file itself (rlx run); to compile the rest, cut the model where it has tensors of numbers alone"))
}

/// What is known of an artefact without loading it.
pub fn artefact_json(artefact: &Artefact) -> Result<Json> {
    let (target, sizes) = (artefact.target(), artefact.sizes());
    let tuning = artefact.tuning()?;
    let tuning: Vec<Json> =
        tuning.iter().map(|(key, variant)| json!({ "key": key, "variant": variant })).collect();
    Ok(json!({
        "path": artefact.path().display().to_string(), "model": artefact.name(),
        "device": target.device, "machine": target.machine, "version": target.version,
        "precision": target.precision,
        "bytes": sizes.file, "module_bytes": sizes.module,
        "parameter_bytes": sizes.params, "prepared_bytes": sizes.prepared, "code_bytes": sizes.code,
        "tuning": tuning,
    }))
}
