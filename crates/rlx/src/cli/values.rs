//! Models that declare strings, sequences, optionals or maps: `rlx run` of them, and what the other commands give their graphs.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use rlx::inputs::{InputLimit, Inputs, converted, read_prepared};
use rlx::values::{MapKeys, ModelValue, StringTensor};
use rlx_ir::files::{io_error, open_file, write_whole};
use rlx_ir::{Error, ErrorKind, Progress, Result};
use rlx_runtime::TensorInfo;
use rlx_weights::npy::{self, Array, Elements, Header, StringArray};
use rlx_weights::npz;
use serde_json::{Map, Value as Json, json};

use super::args::{Common, RunArgs};
use super::failure::Failure;
use super::image::Images;
use super::job::Job;
use super::output::Output;
use super::run::{print_tensor, tensor_json, widened};
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
    let given = gather(&args.common, &job, images, false)?;
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

/// What the arguments give, as tensors for the inputs of the model's graph: strings as their codes. With `fill`, tensors of numbers
/// that are not given are made up. `json` is about warnings.
pub fn tensors(
    common: &Common,
    job: &mut Job,
    json: bool,
    fill: bool,
    progress: &Progress,
) -> Result<Inputs, Failure> {
    let metadata = std::mem::take(&mut job.metadata);
    let images = Images::of(common, &metadata, json);
    let is_tensor = |name: &str| job.declared.iter().any(|info| info.name == name);
    if job.runner.model().is_none_or(|model| model.input_names().all(is_tensor)) {
        return inputs::gather(common, &images, &job.declared, fill);
    }
    let given = gather(common, job, &images, fill)?;
    let borrowed: Vec<(&str, &ModelValue)> = given.iter().map(|(n, v)| (n.as_str(), v)).collect();
    Ok(job.runner.tensors_of(&borrowed, progress)?)
}

/// Tensors of numbers from files as for any other model, or random; strings from `.json`, `.txt`, `.npy` and `.npz` files. With `fill`,
/// tensors of numbers that are not given are random, too.
pub fn gather(
    common: &Common,
    job: &Job,
    images: &Images<'_>,
    fill: bool,
) -> Result<Vec<(String, ModelValue)>, Failure> {
    let limit = common.input_limit;
    let names: Vec<&str> = job.runner.model().into_iter().flat_map(|model| model.input_names()).collect();
    let mut given = match &common.inputs {
        Some(path) => archive(path, job, &names, limit)?,
        None => Vec::new(),
    };
    let mut random: Vec<&TensorInfo> = Vec::new();
    for (name, file) in &common.input {
        if given.iter().any(|(n, _)| n == name) || random.iter().any(|info| info.name == *name) {
            return Err(Failure::Usage(format!("input \"{name}\" is given twice")));
        }
        known(name, &names)?;
        let path = Path::new(file);
        let value = match job.declared.iter().find(|info| info.name == *name) {
            Some(info) if file == "random" => {
                random.push(info);
                continue;
            }
            Some(info) => read_prepared(path, info, limit, || images.preprocess(info))?.into(),
            None if file == "random" => {
                return Err(Failure::Usage(format!(
                    "input \"{name}\" takes strings, which cannot be random"
                )));
            }
            None => ModelValue::Strings(strings(path, job, name, limit)?),
        };
        given.push((name.clone(), value));
    }
    let tensors = given.iter().filter_map(|(name, value)| match value {
        ModelValue::Tensor(tensor) => Some((name.clone(), tensor.clone())),
        _ => None,
    });
    let mut tensors: Inputs = tensors.collect();
    let before = tensors.len();
    inputs::make_up(&job.declared, random, fill, &mut tensors, limit)?;
    given.extend(tensors.drain(before..).map(|(name, tensor)| (name, tensor.into())));
    Ok(given)
}

fn known(name: &str, names: &[&str]) -> Result<()> {
    if names.contains(&name) {
        return Ok(());
    }
    let message = format!("the model has no input \"{name}\"; its inputs: {}", names.join(", "));
    Err(Error::new(ErrorKind::Binding, message))
}

/// The arrays of an archive: numbers for the inputs that are tensors of them, strings for the others.
fn archive(
    path: &Path,
    job: &Job,
    names: &[&str],
    limit: InputLimit,
) -> Result<Vec<(String, ModelValue)>, Failure> {
    let declared = |name: &str| job.declared.iter().find(|info| info.name == name);
    let mut seen: Vec<String> = Vec::new();
    let arrays = npz::read_any_checked(path, |name, header| {
        known(name, names)?;
        if seen.iter().any(|n| n == name) {
            return Err(Error::new(ErrorKind::Binding, format!("input \"{name}\" is in the archive twice")));
        }
        seen.push(name.to_owned());
        match declared(name) {
            Some(info) => limit.allows(info, &header.dims, &format!("array \"{name}\"")),
            None => holds_strings(name, header, limit),
        }
    })?;
    let value = |(name, array): (String, Array)| match (declared(&name), array) {
        (None, Array::Strings(strings)) => Ok((name, strings_of(strings).into())),
        (Some(info), array) => Ok((name, converted(info, array.numbers()?)?.into())),
        (None, Array::Numbers(_)) => Err(no_strings(&name, "numbers")),
    };
    Ok(arrays.into_iter().map(value).collect::<Result<_>>()?)
}

fn no_strings(name: &str, found: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::DType, format!("input \"{name}\" takes strings, and the array holds {found}"))
}

/// Whether an array is one of strings, of no more bytes than an input may have.
fn holds_strings(name: &str, header: &Header, limit: InputLimit) -> Result<()> {
    if let Elements::Numbers(dtype) = header.elements {
        return Err(no_strings(name, dtype));
    }
    match header.data_bytes().is_some_and(|bytes| bytes as u64 <= limit.0) {
        true => Ok(()),
        false => Err(too_long(&format!("the array of input \"{name}\""), limit.0)),
    }
}

fn too_long(what: &str, limit: u64) -> Error {
    let message = format!("{what}: more than {limit} bytes");
    Error::new(ErrorKind::Malformed, message).with_hint("allow more by --input-limit")
}

/// An array of NumPy as the value of a model.
pub fn strings_of(array: StringArray) -> StringTensor {
    StringTensor { dims: array.dims, elements: array.elements }
}

/// The strings of a file: JSON's strings and lists of them, the lines of a text, or an array of NumPy.
fn strings(path: &Path, job: &Job, name: &str, limit: InputLimit) -> Result<StringTensor> {
    use std::io::Read;
    let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    if ending == "npy" {
        return match npy::read_any_checked(path, |header| holds_strings(name, header, limit))? {
            Array::Strings(strings) => Ok(strings_of(strings)),
            Array::Numbers(_) => Err(no_strings(name, "numbers")),
        };
    }
    if !matches!(ending.as_str(), "json" | "txt") {
        let message = format!(
            "{}: the strings of input \"{name}\" come from a .json, .txt or .npy file",
            path.display()
        );
        return Err(Error::new(ErrorKind::Unsupported, message).with_hint(
            "JSON has strings in lists that nest as the tensor does; of a text each line is a string",
        ));
    }
    let limit = limit.0;
    let mut text = String::new();
    let file = open_file(path)?;
    file.take(limit.saturating_add(1)).read_to_string(&mut text).map_err(|e| io_error(path, e))?;
    if text.len() as u64 > limit {
        return Err(too_long(&path.display().to_string(), limit));
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
    let format = OutputFormat::of(path)?;
    if format == OutputFormat::Json {
        let fields = outputs.iter().map(|(name, value)| (name.clone(), plain(value)));
        print::write_file(path, &format!("{}\n", Json::Object(fields.collect())))?;
        return Ok(());
    }
    let mut arrays = Vec::new();
    outputs.iter().try_for_each(|(name, value)| as_arrays(path, name.clone(), value, &mut arrays))?;
    let bytes = match (&arrays[..], format) {
        ([(_, one)], OutputFormat::Npy) => npy::any_to_bytes(one)?,
        _ => {
            format.check_count(path, arrays.len())?;
            let named: Vec<(&str, &Array)> = arrays.iter().map(|(n, array)| (n.as_str(), array)).collect();
            npz::any_to_bytes(&named)?
        }
    };
    Ok(write_whole(path, |file| file.write_all(&bytes).map_err(|e| io_error(path, e)))?)
}

/// A value as arrays: the elements of a sequence one by one, under the names that they are printed with.
fn as_arrays(
    path: &Path,
    name: String,
    value: &ModelValue,
    arrays: &mut Vec<(String, Array)>,
) -> Result<(), Failure> {
    match value {
        ModelValue::Tensor(tensor) => arrays.push((name, Array::Numbers(widened(tensor)))),
        ModelValue::Strings(s) => {
            let strings = StringArray { dims: s.dims.clone(), elements: s.elements.clone() };
            arrays.push((name, Array::Strings(strings)));
        }
        ModelValue::Sequence(elements) => {
            let mut each = elements.iter().enumerate();
            each.try_for_each(|(i, element)| as_arrays(path, format!("{name}.{i}"), element, arrays))?;
        }
        ModelValue::Maps { .. } => {
            let message =
                format!("{}: output \"{name}\" is maps, which are written as .json", path.display());
            return Err(Failure::Usage(message));
        }
        _ => {}
    }
    Ok(())
}
