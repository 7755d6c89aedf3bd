//! `rlx compare`: two models; and `rlx verify --expect`: a model and another program's outputs.

use std::path::Path;
use std::process::ExitCode;

use rlx::Runner;
use rlx::compare::{OutputDifference, Tolerances, compare_outputs, shorter};
use rlx::inputs::Inputs;
use rlx::values::ModelValue;
use rlx::verify::output_types;
use rlx_ir::{ConstData, DType, Error, ErrorKind, Progress, Result, Value};
use rlx_runtime::TensorInfo;
use rlx_weights::npy::Array;
use serde_json::{Value as Json, json};

use super::args::{Allowed, Common, CompareArgs, VerifyArgs};
use super::failure::Failure;
use super::image::Images;
use super::job::{self, Job, borrowed};
use super::output::{Messages, Output};
use super::verify::{number, tolerances};
use super::watch::Watch;
use super::words::{self, Apart, WordDifference};
use super::{inputs, print, values};

/// The absolute error allowed between programs, as in `torch.testing.assert_close`.
const FLOOR: f64 = 1e-5;

/// Outputs by name.
type Outputs = Vec<(String, ConstData)>;
/// Inputs of any type by name.
type Values = Vec<(String, ModelValue)>;

/// Compares two models; exit code 1 where an output differs.
pub fn compare(args: &CompareArgs, json: bool) -> Result<ExitCode, Failure> {
    let watch = Watch::start(&args.limits, "reading", json)?;
    let progress = watch.progress();
    let mut first = job::open(&args.common, progress)?;
    let mut second = open_other(args, &first, progress)?;
    if ![&first, &second].into_iter().all(is_plain) {
        return of_values(args, [first, second], json, watch);
    }
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
    report(&found, &[], names, json, json!({ "notes": notes }))
}

/// Whether all that a model takes and gives is tensors of numbers.
fn is_plain(job: &Job) -> bool {
    job.runner.model().is_none_or(|model| model.is_plain())
}

/// Compares two models of which one takes or gives more than tensors of numbers: strings are compared for equality.
fn of_values(
    args: &CompareArgs,
    [mut first, mut second]: [Job; 2],
    json: bool,
    watch: Watch,
) -> Result<ExitCode, Failure> {
    let metadata = std::mem::take(&mut first.metadata);
    let images = Images::of(&args.common, &metadata, json);
    let given = values::gather(&args.common, &first, &images, true)?;
    let (own, others, notes) = shared_values(given, &first, &second)?;
    let tolerances = allowed(&args.common, &args.allowed, &first);
    let (want, want_types) = values_of(&mut first.runner, &own, watch.progress())?;
    let (got, got_types) = values_of(&mut second.runner, &others, watch.progress())?;
    let types: Vec<DType> = match want_types.len() == got_types.len() {
        true => want_types.iter().zip(&got_types).map(|(&a, &b)| shorter(a, b)).collect(),
        false => got_types,
    };
    let found = compare_outputs(&want.numbers, &got.numbers, &types, tolerances)?;
    let found_words = words::compared(&want.words, &got.words).ok_or_else(|| unmatched(&want, &got))?;
    drop(watch);
    if !json {
        notes.iter().for_each(|note| writeln!(Messages, "note: {note}"));
    }
    let names = [first.runner.name(), second.runner.name()];
    report(&found, &found_words, names, json, json!({ "notes": notes }))
}

/// As [`shared`], of values: those that are no tensors go to the input of the same name, or else of the same position.
fn shared_values(given: Values, first: &Job, second: &Job) -> Result<(Values, Values, Vec<String>)> {
    let tensors = given.iter().filter_map(|(name, value)| match value {
        ModelValue::Tensor(tensor) => Some((name.clone(), tensor.clone())),
        _ => None,
    });
    let (own, others, notes) = shared(tensors.collect(), &first.declared, &second.declared)?;
    let values = |tensors: Inputs| -> Values { tensors.into_iter().map(|(n, t)| (n, t.into())).collect() };
    let (mut own, mut others) = (values(own), values(others));
    let (names, other_names) = (input_names(first), input_names(second));
    for (name, value) in given {
        if matches!(value, ModelValue::Tensor(_)) {
            continue;
        }
        let at = names.iter().position(|n| *n == name).unwrap_or(0);
        let other = if other_names.contains(&name) { Some(&name) } else { other_names.get(at) };
        let other = other.filter(|other| second.declared.iter().all(|info| info.name != **other));
        let other = other.ok_or_else(|| {
            Error::new(ErrorKind::Binding, format!("the second model takes no strings as \"{name}\""))
        })?;
        others.push((other.clone(), value.clone()));
        own.push((name, value));
    }
    Ok((own, others, notes))
}

/// The names of all inputs that a job's model declares.
fn input_names(job: &Job) -> Vec<String> {
    match job.runner.model() {
        Some(model) => model.input_names().map(str::to_owned).collect(),
        None => job.declared.iter().map(|info| info.name.clone()).collect(),
    }
}

/// As [`outputs_of`], of values; the types are those of the numbers.
fn values_of(runner: &mut Runner, given: &Values, progress: &Progress) -> Result<(Apart, Vec<DType>)> {
    let given: Vec<(&str, &ModelValue)> = given.iter().map(|(n, v)| (n.as_str(), v)).collect();
    let outputs = Apart::of(runner.run_values_with_progress(&given, progress)?);
    let tensors = runner.tensors_of(&given, progress)?;
    let imported = runner.import_with_progress(&borrowed(&tensors), progress)?;
    let types = output_types(&imported.graph);
    let of = |(name, tensor): &(String, ConstData)| {
        let at = imported.outputs.iter().position(|output| output == name);
        at.and_then(|at| types.get(at).copied()).unwrap_or(tensor.dtype())
    };
    let types = outputs.numbers.iter().map(of).collect();
    Ok((outputs, types))
}

/// Compares a model's outputs with arrays in a file: numbers within their tolerance, strings for equality.
pub fn expected(args: &VerifyArgs, path: &Path, json: bool) -> Result<ExitCode, Failure> {
    let watch = Watch::start(&args.limits, "reading", json)?;
    let progress = watch.progress();
    let mut job = job::open(&args.common, progress)?;
    let want = arrays(path)?;
    let (got, types) = if want.words.is_empty() {
        let given = values::tensors(&args.common, &mut job, json, false, progress)?;
        inputs::check_complete(&job.declared, &given)?;
        // Labels are compared by their codes: the expected ones are numbers.
        let (numbers, types) = outputs_of(&mut job.runner, &given, progress)?;
        (Apart { numbers, ..Apart::default() }, types)
    } else {
        let metadata = std::mem::take(&mut job.metadata);
        let images = Images::of(&args.common, &metadata, json);
        let given = values::gather(&args.common, &job, &images, false)?;
        values_of(&mut job.runner, &given, progress)?
    };
    let found = match want.numbers.is_empty() {
        false => {
            compare_outputs(&want.numbers, &got.numbers, &types, allowed(&args.common, &args.allowed, &job))?
        }
        true => Vec::new(),
    };
    let found_words = expected_words(&want, got)?;
    drop(watch);
    let file = path.display().to_string();
    report(&found, &found_words, [&file, job.runner.name()], json, json!({}))
}

/// Compares the strings that are expected with the outputs of their names, or with all strings of the model by order.
fn expected_words(want: &Apart, got: Apart) -> Result<Vec<WordDifference>> {
    let is_output = |name: &str| got.words.iter().any(|(output, _)| output == name);
    let named = want.words.iter().all(|(name, _)| is_output(name));
    let is_wanted = |name: &str| !named || want.words.iter().any(|(wanted, _)| wanted == name);
    let chosen: Vec<_> = got.words.iter().filter(|(name, _)| is_wanted(name)).cloned().collect();
    words::compared(&want.words, &chosen).ok_or_else(|| unmatched(want, &got))
}

fn unmatched(want: &Apart, got: &Apart) -> Error {
    let names = |apart: &Apart| apart.words.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>().join(", ");
    let message = format!("outputs of strings cannot be matched: {} and {}", names(want), names(got));
    Error::new(ErrorKind::Binding, message)
        .with_hint("give those that are compared the names of the model's outputs")
}

fn allowed(common: &Common, allowed: &Allowed, job: &Job) -> Tolerances {
    let tolerances = tolerances(common, allowed, job.options.precision);
    Tolerances { floor: allowed.floor.unwrap_or(FLOOR), ..tolerances }
}

/// The arrays of a file by name, or its only one.
fn arrays(path: &Path) -> Result<Apart> {
    let arrays = match path.extension().and_then(|e| e.to_str()) {
        Some("npy") => vec![(String::new(), rlx_weights::npy::read_any_checked(path, |_| Ok(()))?)],
        Some("npz") => rlx_weights::npz::read_any_checked(path, |_, _| Ok(()))?,
        _ => {
            let message = format!("{}: expected outputs are in a .npz or .npy file", path.display());
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("numpy.savez(FILE, name=array, …) writes one"));
        }
    };
    let value = |array| match array {
        Array::Numbers(numbers) => ModelValue::Tensor(numbers),
        Array::Strings(strings) => values::strings_of(strings).into(),
    };
    Ok(Apart::of(arrays.into_iter().map(|(name, array)| (name, value(array))).collect()))
}

/// The second model, with those of the fixed dimensions that it has.
fn open_other(args: &CompareArgs, first: &Job, progress: &Progress) -> Result<Job, Failure> {
    let mut common = Common { model: args.other.clone(), ..args.common.clone() };
    let dims = std::mem::take(&mut common.dims);
    let plain = job::open(&common, progress)?;
    let has = |dim: &(String, usize)| rlx::check_dims(&plain.declared, std::slice::from_ref(dim)).is_ok();
    common.dims = dims.into_iter().filter(has).collect();
    let (names, other_names) = (input_names(first), input_names(&plain));
    if names.len() != other_names.len() {
        let message = format!(
            "{} has {}, {} has {}",
            first.runner.name(),
            print::counted(names.len(), "input", "inputs"),
            plain.runner.name(),
            print::counted(other_names.len(), "input", "inputs")
        );
        let hint = format!("their inputs: {}; {}", names.join(", "), other_names.join(", "));
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
    words: &[WordDifference],
    [first, second]: [&str; 2],
    json: bool,
    more: Json,
) -> Result<ExitCode, Failure> {
    let ok = found.iter().all(|d| d.difference.ok) && words.iter().all(WordDifference::ok);
    if json {
        let outputs: Json =
            found.iter().map(to_json).chain(words.iter().map(WordDifference::to_json)).collect();
        let mut report = json!({ "ok": ok, "first": first, "second": second, "outputs": outputs });
        if let (Json::Object(report), Json::Object(more)) = (&mut report, more) {
            report.extend(more);
        }
        writeln!(Output, "{report}")?;
    } else {
        print_text(found, words, ok)?;
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

fn print_text(found: &[OutputDifference], words: &[WordDifference], ok: bool) -> Result<(), Failure> {
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
    words.iter().try_for_each(|d| writeln!(Output, "{}", d.line()))?;
    let bad = found.iter().filter(|d| !d.difference.ok).count() + words.iter().filter(|d| !d.ok()).count();
    match ok {
        true => writeln!(Output, "ok"),
        false => writeln!(Output, "{bad} of {} outputs differ", found.len() + words.len()),
    }
}
