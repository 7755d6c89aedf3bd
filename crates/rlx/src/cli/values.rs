//! `rlx run` of models that declare strings, sequences, optionals or maps.

use std::path::Path;
use std::process::ExitCode;

use rlx::inputs::read_prepared;
use rlx::values::{MapKeys, ModelValue, StringTensor};
use rlx_ir::files::{io_error, open_file};
use rlx_ir::{Error, ErrorKind, Result};
use serde_json::{Map, Value as Json, json};

use super::args::RunArgs;
use super::failure::Failure;
use super::image::Images;
use super::job::Job;
use super::output::Output;
use super::run::{print_tensor, tensor_json};
use super::watch::Watch;
use super::written::OutputFormat;
use super::{inputs, print};

/// Runs the model and prints or writes its outputs.
pub fn run(
    args: &RunArgs,
    json: bool,
    mut job: Job,
    images: &Images<'_>,
    watch: Watch,
) -> Result<ExitCode, Failure> {
    if args.is_stream() || !args.files.is_empty() || args.labels.is_some() {
        let message = "the model declares strings, sequences or maps: give its inputs by --input NAME=FILE, without labels";
        return Err(Failure::Usage(message.to_owned()));
    }
    let given = gather(args, &job, images)?;
    let borrowed: Vec<(&str, &ModelValue)> = given.iter().map(|(n, v)| (n.as_str(), v)).collect();
    let outputs = job.runner.run_values_with_progress(&borrowed, watch.progress())?;
    if let Some(path) = &args.outputs {
        write(path, &outputs)?;
    }
    drop(watch);
    if json {
        let outputs: Vec<Json> = outputs.iter().map(|(name, value)| described(name, value)).collect();
        let (model, device) = (job.runner.name(), args.common.device.feature());
        writeln!(Output, "{}", json!({ "model": model, "device": device, "outputs": outputs }))?;
        return Ok(ExitCode::SUCCESS);
    }
    outputs.iter().try_for_each(|(name, value)| print_value(name, value))?;
    if let Some(path) = &args.outputs {
        writeln!(Output, "outputs written to {}", path.display())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Tensors of numbers from files as for any other model; strings from `.json` and `.txt` files.
fn gather(args: &RunArgs, job: &Job, images: &Images<'_>) -> Result<Vec<(String, ModelValue)>, Failure> {
    let (common, limit) = (&args.common, args.common.input_limit);
    let archive =
        common.inputs.as_ref().map(|path| inputs::archive(path, &job.declared, limit)).transpose()?;
    let mut given: Vec<(String, ModelValue)> =
        archive.into_iter().flatten().map(|(name, tensor)| (name, tensor.into())).collect();
    let names: Vec<&str> = job.runner.model().into_iter().flat_map(|model| model.input_names()).collect();
    for (name, file) in &common.input {
        if given.iter().any(|(n, _)| n == name) {
            return Err(Failure::Usage(format!("input \"{name}\" is given twice")));
        }
        if !names.contains(&name.as_str()) {
            let message = format!("the model has no input \"{name}\"; its inputs: {}", names.join(", "));
            return Err(Error::new(ErrorKind::Binding, message).into());
        }
        let path = Path::new(file);
        let value = match job.declared.iter().find(|info| info.name == *name) {
            Some(info) => read_prepared(path, info, limit, || images.preprocess(info))?.into(),
            None => ModelValue::Strings(strings(path, job, name, limit.0)?),
        };
        given.push((name.clone(), value));
    }
    Ok(given)
}

/// The strings of a file: JSON's strings and lists of them, or the lines of a text.
fn strings(path: &Path, job: &Job, name: &str, limit: u64) -> Result<StringTensor> {
    use std::io::Read;
    let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    if !matches!(ending.as_str(), "json" | "txt") {
        let message =
            format!("{}: the strings of input \"{name}\" come from a .json or .txt file", path.display());
        return Err(Error::new(ErrorKind::Unsupported, message).with_hint(
            "JSON has strings in lists that nest as the tensor does; of a text each line is a string",
        ));
    }
    let mut text = String::new();
    let file = open_file(path)?;
    file.take(limit.saturating_add(1)).read_to_string(&mut text).map_err(|e| io_error(path, e))?;
    if text.len() as u64 > limit {
        let message = format!("{}: more than {limit} bytes", path.display());
        return Err(Error::new(ErrorKind::Malformed, message).with_hint("allow more by --input-limit"));
    }
    if ending == "txt" {
        let elements: Vec<String> = text.lines().map(str::to_owned).collect();
        let rank = job.runner.model().and_then(|model| model.declared_rank(name)).unwrap_or(1);
        let mut dims = vec![elements.len()];
        dims.resize(rank.max(1), 1);
        return Ok(StringTensor { dims, elements });
    }
    let bad = |why: String| Error::new(ErrorKind::Parse, format!("{}: {why}", path.display()));
    let json: Json = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
    let (mut dims, mut elements) = (Vec::new(), Vec::new());
    let mut at = &json;
    while let Json::Array(list) = at {
        dims.push(list.len());
        let Some(first) = list.first() else { break };
        at = first;
    }
    nested(&json, &dims, &mut elements).map_err(bad)?;
    Ok(StringTensor { dims, elements })
}

fn nested(json: &Json, dims: &[usize], elements: &mut Vec<String>) -> Result<(), String> {
    match (json, dims.split_first()) {
        (Json::String(text), None) => elements.push(text.clone()),
        (Json::Array(list), Some((&length, rest))) if list.len() == length => {
            list.iter().try_for_each(|element| nested(element, rest, elements))?;
        }
        (Json::Array(list), Some((length, _))) => {
            return Err(format!("a list of {} beside one of {length}", list.len()));
        }
        (other, _) => return Err(format!("{other} is no string at its place")),
    }
    Ok(())
}

fn print_value(name: &str, value: &ModelValue) -> Result<(), Failure> {
    const SHOWN: usize = 8;
    match value {
        ModelValue::Tensor(tensor) => print_tensor(name, tensor)?,
        ModelValue::Strings(strings) => {
            let first: Vec<String> = strings.elements.iter().take(SHOWN).map(|s| format!("{s:?}")).collect();
            let more = if strings.elements.len() > SHOWN { ", …" } else { "" };
            writeln!(Output, "{name} {:?} string: {}{more}", strings.dims, first.join(", "))?;
        }
        ModelValue::Sequence(elements) => {
            writeln!(Output, "{name}: a sequence of {}", elements.len())?;
            let mut each = elements.iter().enumerate();
            each.try_for_each(|(i, element)| print_value(&format!("{name}.{i}"), element))?;
        }
        ModelValue::Maps { .. } => {
            let Json::Array(maps) = plain(value) else { return Ok(()) };
            writeln!(Output, "{name}: a sequence of {} maps", maps.len())?;
            for (i, map) in maps.iter().take(SHOWN).enumerate() {
                writeln!(Output, "{name}.{i}: {map}")?;
            }
        }
        _ => writeln!(Output, "{name}: nothing")?,
    }
    Ok(())
}

/// A value as one JSON value.
fn plain(value: &ModelValue) -> Json {
    match value {
        ModelValue::Tensor(tensor) => print::nested(tensor),
        ModelValue::Strings(strings) => lists(&strings.dims, &mut strings.elements.iter()),
        ModelValue::Sequence(elements) => elements.iter().map(plain).collect(),
        ModelValue::Maps { keys, values } => {
            let names: Vec<String> = match keys {
                MapKeys::Ints(keys) => keys.iter().map(i64::to_string).collect(),
                MapKeys::Strings(keys) => keys.clone(),
            };
            let leaves = print::leaves(&values.value());
            let map =
                |row: &[Json]| Json::Object(names.iter().cloned().zip(row.to_vec()).collect::<Map<_, _>>());
            leaves.chunks(names.len().max(1)).map(map).collect()
        }
        _ => Json::Null,
    }
}

fn lists<'s>(dims: &[usize], elements: &mut impl Iterator<Item = &'s String>) -> Json {
    match dims.split_first() {
        None => elements.next().map_or(Json::Null, |s| s.as_str().into()),
        Some((&length, rest)) => (0..length).map(|_| lists(rest, &mut *elements)).collect(),
    }
}

/// A value as an entry of the report's outputs.
fn described(name: &str, value: &ModelValue) -> Json {
    match value {
        ModelValue::Tensor(tensor) => tensor_json(name, tensor),
        ModelValue::Strings(s) => {
            json!({ "name": name, "dtype": "string", "shape": s.dims, "values": s.elements })
        }
        ModelValue::Maps { .. } => json!({ "name": name, "maps": plain(value) }),
        ModelValue::Sequence(elements) => {
            let each = elements.iter().enumerate();
            let elements: Vec<Json> = each.map(|(i, e)| described(&format!("{name}.{i}"), e)).collect();
            json!({ "name": name, "elements": elements })
        }
        _ => json!({ "name": name, "value": Json::Null }),
    }
}

fn write(path: &Path, outputs: &[(String, ModelValue)]) -> Result<(), Failure> {
    if !matches!(OutputFormat::of(path)?, OutputFormat::Json) {
        let message = format!("{}: strings, sequences and maps are written as .json", path.display());
        return Err(Failure::Usage(message));
    }
    let fields = outputs.iter().map(|(name, value)| (name.clone(), plain(value)));
    print::write_file(path, &format!("{}\n", Json::Object(fields.collect())))?;
    Ok(())
}
