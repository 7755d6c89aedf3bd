//! `rlx compare`: two models; and `rlx verify --expect`: a model and another program's outputs.

use std::path::Path;
use std::process::ExitCode;

use rlx::Runner;
use rlx::compare::{OutputDifference, Tolerances, compare_outputs, shorter};
use rlx::inputs::Inputs;
use rlx::verify::output_types;
use rlx_ir::{ConstData, DType, Error, ErrorKind, Progress, Result, Value};
use rlx_runtime::TensorInfo;
use serde_json::{Value as Json, json};

use super::args::{Allowed, Common, CompareArgs, VerifyArgs};
use super::failure::Failure;
use super::image::Images;
use super::job::{self, Job, borrowed};
use super::output::{Messages, Output};
use super::verify::{number, tolerances};
use super::watch::Watch;
use super::{inputs, print, values};

/// The absolute error allowed between programs, as in `torch.testing.assert_close`.
const FLOOR: f64 = 1e-5;

/// Outputs by name.
type Outputs = Vec<(String, ConstData)>;

/// Compares two models; exit code 1 where an output differs.
pub fn compare(args: &CompareArgs, json: bool) -> Result<ExitCode, Failure> {
    let watch = Watch::start(&args.limits, "reading", json)?;
    let progress = watch.progress();
    let mut first = job::open(&args.common, progress)?;
    let mut second = open_other(args, &first, progress)?;
    let images = Images::of(&args.common, &first.metadata, json);
    let given = inputs::gather(&args.common, &images, &first.declared, true)?;
    let (own, others, notes) = shared(given, &first.declared, &second.declared)?;
    let (want, want_types) = outputs_of(&mut first.runner, &own, progress)?;
    let (got, got_types) = outputs_of(&mut second.runner, &others, progress)?;
    // Those of the first, by the positions of the second.
    let types: Vec<DType> = match want_types.len() == got_types.len() {
        true => want_types.iter().zip(&got_types).map(|(&a, &b)| shorter(a, b)).collect(),
        false => got_types,
    };
    let tolerances = allowed(&args.common, &args.allowed, &first);
    let found = compare_outputs(&want, &got, &types, tolerances)?;
    drop(watch);
    if !json {
        notes.iter().for_each(|note| writeln!(Messages, "note: {note}"));
    }
    let names = [first.runner.name(), second.runner.name()];
    report(&found, names, json, json!({ "notes": notes }))
}

/// Compares a model's outputs with arrays in a file.
pub fn expected(args: &VerifyArgs, path: &Path, json: bool) -> Result<ExitCode, Failure> {
    let watch = Watch::start(&args.limits, "reading", json)?;
    let progress = watch.progress();
    let mut job = job::open_any(&args.common, progress)?;
    let given = values::tensors(&args.common, &mut job, json, false, progress)?;
    inputs::check_complete(&job.declared, &given)?;
    let want = arrays(path)?;
    let (got, types) = outputs_of(&mut job.runner, &given, progress)?;
    let found = compare_outputs(&want, &got, &types, allowed(&args.common, &args.allowed, &job))?;
    drop(watch);
    let file = path.display().to_string();
    report(&found, [&file, job.runner.name()], json, json!({}))
}

fn allowed(common: &Common, allowed: &Allowed, job: &Job) -> Tolerances {
    let tolerances = tolerances(common, allowed, job.options.precision);
    Tolerances { floor: allowed.floor.unwrap_or(FLOOR), ..tolerances }
}

/// The arrays of a file by name, or its only one.
fn arrays(path: &Path) -> Result<Outputs> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("npy") => Ok(vec![(String::new(), rlx_weights::npy::read(path)?)]),
        Some("npz") => rlx_weights::npz::read(path),
        _ => {
            let message = format!("{}: expected outputs are in a .npz or .npy file", path.display());
            Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("numpy.savez(FILE, name=array, …) writes one"))
        }
    }
}

/// The second model, with those of the fixed dimensions that it has.
fn open_other(args: &CompareArgs, first: &Job, progress: &Progress) -> Result<Job, Failure> {
    let mut common = Common { model: args.other.clone(), ..args.common.clone() };
    let dims = std::mem::take(&mut common.dims);
    let plain = job::open(&common, progress)?;
    let has = |dim: &(String, usize)| rlx::check_dims(&plain.declared, std::slice::from_ref(dim)).is_ok();
    common.dims = dims.into_iter().filter(has).collect();
    if plain.declared.len() != first.declared.len() {
        let names = |job: &Job| job.declared.iter().map(|i| i.name.clone()).collect::<Vec<_>>().join(", ");
        let message = format!(
            "{} has {}, {} has {}",
            first.runner.name(),
            print::counted(first.declared.len(), "input", "inputs"),
            plain.runner.name(),
            print::counted(plain.declared.len(), "input", "inputs")
        );
        let hint = format!("their inputs: {}; {}", names(first), names(&plain));
        return Err(Error::new(ErrorKind::Binding, message).with_hint(hint).into());
    }
    if common.dims.is_empty() { Ok(plain) } else { job::open(&common, progress) }
}

/// The inputs of both models: the same numbers, in the types that each takes, and what is to be said of it.
fn shared(
    given: Inputs,
    first: &[TensorInfo],
    second: &[TensorInfo],
) -> Result<(Inputs, Inputs, Vec<String>)> {
    let by_name = second.iter().all(|info| first.iter().any(|f| f.name == info.name));
    let (mut own, mut others, mut notes) = (Inputs::new(), Inputs::new(), Vec::new());
    for (i, info) in first.iter().enumerate() {
        let Some((_, data)) = given.iter().find(|(name, _)| *name == info.name) else { continue };
        let other = if by_name { second.iter().find(|s| s.name == info.name) } else { second.get(i) };
        let other = other.ok_or_else(|| {
            Error::new(ErrorKind::Binding, format!("the second model has no input for \"{}\"", info.name))
        })?;
        if !by_name {
            notes
                .push(format!("input \"{}\" is \"{}\" in the second model, by order", info.name, other.name));
        }
        let data = match (data.dtype().is_float(), other.dtype.is_float()) {
            // What both can hold.
            (true, true) if data.dtype() != other.dtype => {
                let short = shorter(other.dtype, data.dtype());
                if short != data.dtype() {
                    notes.push(format!("input \"{}\" is rounded to {short} for both models", info.name));
                }
                rounded(&rounded(data, short)?, data.dtype())?
            }
            _ => data.clone(),
        };
        let theirs = match data.dtype().is_float() && other.dtype.is_float() {
            true => rounded(&data, other.dtype)?,
            false => rlx::inputs::converted(other, data.clone())?,
        };
        own.push((info.name.clone(), data));
        others.push((other.name.clone(), theirs));
    }
    Ok((own, others, notes))
}

fn rounded(data: &ConstData, dtype: DType) -> Result<ConstData> {
    if data.dtype() == dtype {
        return Ok(data.clone());
    }
    let value = data.try_value()?;
    Ok(Value::float(dtype, &value.dims, value.to_f64()).rounded().to_const())
}

/// A model's outputs, and the types that they were rounded to, where its graph is known.
fn outputs_of(runner: &mut Runner, given: &Inputs, progress: &Progress) -> Result<(Outputs, Vec<DType>)> {
    let given = borrowed(given);
    let outputs = runner.run_with_progress(&given, progress)?;
    let types = match runner.import_with_progress(&given, progress) {
        Ok(imported) => output_types(&imported.graph),
        // A slim artefact has no graph.
        Err(e) if e.kind() == ErrorKind::Unsupported => Vec::new(),
        Err(e) => return Err(e),
    };
    Ok((outputs, types))
}

/// Prints what was found.
fn report(
    found: &[OutputDifference],
    [first, second]: [&str; 2],
    json: bool,
    more: Json,
) -> Result<ExitCode, Failure> {
    let ok = found.iter().all(|d| d.difference.ok);
    if json {
        let outputs: Json = found.iter().map(to_json).collect();
        let mut report = json!({ "ok": ok, "first": first, "second": second, "outputs": outputs });
        if let (Json::Object(report), Json::Object(more)) = (&mut report, more) {
            report.extend(more);
        }
        writeln!(Output, "{report}")?;
    } else {
        print_text(found, ok)?;
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn to_json(d: &OutputDifference) -> Json {
    let diff = &d.difference;
    let worst = d
        .worst
        .as_ref()
        .map(|w| json!({ "index": w.index, "first": number(w.want), "second": number(w.got) }));
    json!({
        "name": d.name, "other_name": d.other_name, "ok": diff.ok,
        "max_abs": number(diff.max_abs), "max_rel": number(diff.max_rel), "max_ulp": number(diff.max_ulp),
        "cosine": diff.cosine, "worst": worst, "elements": diff.count,
        "shapes": d.shapes.as_ref().map(|(a, b)| [a, b]),
        "tolerance": { "rtol": d.tolerance.rtol, "atol": d.tolerance.atol, "floor": d.tolerance.floor },
    })
}

fn print_text(found: &[OutputDifference], ok: bool) -> Result<(), Failure> {
    writeln!(Output, "{:<24} {:>10} {:>10} {:>12}  worst element", "output", "max abs", "max rel", "cosine")?;
    for d in found {
        let diff = &d.difference;
        let mark = if diff.ok { "" } else { "  differs" };
        if let Some((a, b)) = &d.shapes {
            writeln!(Output, "{:<24} {a} and {b}{mark}", d.name)?;
            continue;
        }
        let worst =
            d.worst.as_ref().map_or("-".to_owned(), |w| format!("{:?}: {} and {}", w.index, w.want, w.got));
        writeln!(
            Output,
            "{:<24} {:>10.3e} {:>10.3e} {:>12.9}  {worst}{mark}",
            d.name, diff.max_abs, diff.max_rel, diff.cosine
        )?;
    }
    let bad = found.iter().filter(|d| !d.difference.ok).count();
    match ok {
        true => writeln!(Output, "ok"),
        false => writeln!(Output, "{bad} of {} outputs differ", found.len()),
    }
}
