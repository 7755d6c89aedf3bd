//! Many inputs one after the other: the pictures of folders, or the lines of a file.
//!
//! An item that cannot be read keeps its error, so that whoever goes through them can report it and go on.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use rlx_ir::files::io_error;
use rlx_ir::sort::sort;
use rlx_ir::{ConstData, Error, ErrorKind, Result};
use rlx_runtime::TensorInfo;
use serde_json::Value as Json;

use super::failure::Failure;
use super::inputs::{self, Inputs};

/// One input of the model by name, or why there is none.
pub struct Item {
    /// What reports call it: a file, or a file's line.
    pub name: String,
    /// Its values, the first dimension 1.
    pub inputs: Result<Inputs>,
}

/// Items in order, and how many there are.
pub struct Items<'a> {
    pub count: Option<usize>,
    pub each: Box<dyn Iterator<Item = Item> + 'a>,
}

/// Endings of pictures. Those of kinds that are not read are items too, and bad ones: nothing is left out silently.
const PICTURES: [&str; 8] = ["png", "jpg", "jpeg", "webp", "gif", "bmp", "tif", "tiff"];

/// The files, and in place of each folder its pictures by name.
pub fn files<'a>(paths: &[PathBuf], free: &'a TensorInfo) -> Result<Items<'a>, Failure> {
    let mut found = Vec::new();
    for path in paths {
        if !path.is_dir() {
            found.push(path.clone());
            continue;
        }
        let before = found.len();
        let entries = std::fs::read_dir(path).map_err(|e| io_error(path, e))?;
        for entry in entries {
            let file = entry.map_err(|e| io_error(path, e))?.path();
            let ending = file.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
            if PICTURES.contains(&ending.as_str()) && file.is_file() {
                found.push(file);
            }
        }
        sort(&mut found[before..]);
        if found.len() == before {
            let message = format!("the folder {} has no pictures ({})", path.display(), PICTURES.join(", "));
            return Err(Error::new(ErrorKind::Io, message)
                .with_hint("pictures are looked for in the folder itself")
                .into());
        }
    }
    let item = |file: PathBuf| Item {
        name: file.display().to_string(),
        inputs: inputs::read(&file, free).map(|data| vec![(free.name.clone(), data)]),
    };
    Ok(Items { count: Some(found.len()), each: Box::new(found.into_iter().map(item)) })
}

/// The lines of a JSON Lines file (`-`: standard input): an object of inputs by name, or the value of the one input that
/// is free. Empty lines are skipped.
pub fn lines<'a>(path: &'a Path, free: &'a [&'a TensorInfo]) -> Result<Items<'a>, Failure> {
    let is_empty = |line: &[u8]| line.iter().all(u8::is_ascii_whitespace);
    let open = || File::open(path).map(BufReader::new).map_err(|e| io_error(path, e));
    let (count, reader): (_, Box<dyn Read>) = if path.as_os_str() == "-" {
        (None, Box::new(std::io::stdin()))
    } else {
        let mut count = 0;
        for line in open()?.split(b'\n') {
            count += usize::from(!is_empty(&line.map_err(|e| io_error(path, e))?));
        }
        (Some(count), Box::new(open()?))
    };
    let shown = if path.as_os_str() == "-" { "stdin".to_owned() } else { path.display().to_string() };
    let each = BufReader::new(reader).split(b'\n').enumerate().filter_map(move |(i, line)| {
        let name = format!("{shown}:{}", i + 1);
        let inputs = match line {
            Ok(line) if is_empty(&line) => return None,
            Ok(line) => parse(&line, free),
            Err(e) => Err(io_error(path, e)),
        };
        Some(Item { name, inputs })
    });
    Ok(Items { count, each: Box::new(each) })
}

/// The inputs of one line.
fn parse(line: &[u8], free: &[&TensorInfo]) -> Result<Inputs> {
    let json: Json = serde_json::from_slice(line)
        .map_err(|e| Error::new(ErrorKind::Parse, format!("not a line of JSON: {e}")))?;
    let Json::Object(fields) = json else {
        let [only] = free else {
            let names: Vec<&str> = free.iter().map(|i| i.name.as_str()).collect();
            let message = format!("the model takes {} inputs: {}", names.len(), names.join(", "));
            return Err(Error::new(ErrorKind::Binding, message)
                .with_hint("make each line an object of inputs by name"));
        };
        return Ok(vec![(only.name.clone(), batched(inputs::from_json(&json, only)?, only)?)]);
    };
    let mut given = Inputs::new();
    for (name, value) in &fields {
        let info = inputs::find(free, name)?;
        given.push((name.clone(), batched(inputs::from_json(value, info)?, info)?));
    }
    match free.iter().find(|info| !fields.contains_key(&info.name)) {
        None => Ok(given),
        Some(missing) => {
            let message = format!("input \"{}\" is not in the line; it is {}", missing.name, missing.shape);
            Err(Error::new(ErrorKind::Binding, message)
                .with_hint("every input that is not given otherwise is named"))
        }
    }
}

/// One item of a batch may leave out the batch's dimension.
fn batched(data: ConstData, info: &TensorInfo) -> Result<ConstData> {
    let of_batch = info.shape.dims().first().is_some_and(|d| d.as_static().is_none_or(|n| n == 1));
    if !of_batch || data.dims().len() + 1 != info.shape.rank() {
        return Ok(data);
    }
    let dims: Vec<usize> = std::iter::once(1).chain(data.dims().iter().copied()).collect();
    ConstData::new(data.dtype(), &dims, data.bytes().clone())
}
