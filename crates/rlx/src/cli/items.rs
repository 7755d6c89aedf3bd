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

use super::elements::InputLimit;
use super::failure::Failure;
use super::inputs::{self, Inputs};
use super::json;

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
pub fn files<'a>(paths: &[PathBuf], free: &'a TensorInfo, limit: InputLimit) -> Result<Items<'a>, Failure> {
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
    let item = move |file: PathBuf| Item {
        name: file.display().to_string(),
        inputs: inputs::read(&file, free, limit).map(|data| vec![(free.name.clone(), data)]),
    };
    Ok(Items { count: Some(found.len()), each: Box::new(found.into_iter().map(item)) })
}

/// The lines of a JSON Lines file (`-`: standard input): an object of inputs by name, or the value of the one input that
/// is free. Empty lines are skipped. What is no regular file is read once, so nobody knows how many lines there are.
pub fn lines<'a>(
    path: &'a Path,
    free: &'a [&'a TensorInfo],
    limit: InputLimit,
) -> Result<Items<'a>, Failure> {
    let is_stdin = path.as_os_str() == "-";
    if !is_stdin && path.is_dir() {
        let message = format!("{} is a folder, and --lines takes a file", path.display());
        return Err(Error::new(ErrorKind::Io, message).into());
    }
    let open = || File::open(path).map(BufReader::new).map_err(|e| io_error(path, e));
    let mut count = None;
    let reader: Box<dyn BufRead> =
        if is_stdin { Box::new(BufReader::new(std::io::stdin())) } else { Box::new(open()?) };
    if !is_stdin && std::fs::metadata(path).is_ok_and(|m| m.is_file()) {
        count = Some(count_lines(open()?).map_err(|e| io_error(path, e))?);
    }
    let shown = if is_stdin { "stdin".to_owned() } else { path.display().to_string() };
    let mut lines = Lines { reader, most: limit.0, ended: false };
    let each = std::iter::from_fn(move || lines.next()).enumerate().filter_map(move |(i, line)| {
        let name = format!("{shown}:{}", i + 1);
        let inputs = match line {
            Ok(Some(line)) if line.iter().all(u8::is_ascii_whitespace) => return None,
            Ok(Some(line)) => parse(&line, free, limit),
            Ok(None) => Err(limit.too_long("the line")),
            Err(e) => Err(io_error(path, e)),
        };
        Some(Item { name, inputs })
    });
    Ok(Items { count, each: Box::new(each) })
}

/// How many lines are not empty. No line is kept.
fn count_lines(mut reader: impl BufRead) -> std::io::Result<usize> {
    let (mut count, mut is_empty) = (0, true);
    loop {
        let part = reader.fill_buf()?;
        if part.is_empty() {
            return Ok(count + usize::from(!is_empty));
        }
        for &byte in part {
            if byte == b'\n' {
                count += usize::from(!is_empty);
                is_empty = true;
            } else {
                is_empty &= byte.is_ascii_whitespace();
            }
        }
        let read = part.len();
        reader.consume(read);
    }
}

/// Lines of a bounded length.
struct Lines {
    reader: Box<dyn BufRead>,
    /// Bytes of a line.
    most: u64,
    /// An error was met: what follows is not known.
    ended: bool,
}

impl Lines {
    /// The next line without its end; `None` in place of one that is too long, which is skipped.
    fn next(&mut self) -> Option<std::io::Result<Option<Vec<u8>>>> {
        if self.ended {
            return None;
        }
        let line = self.read();
        self.ended = line.is_err();
        line.transpose()
    }

    fn read(&mut self) -> std::io::Result<Option<Option<Vec<u8>>>> {
        let mut line = Vec::new();
        let most = self.most.saturating_add(1);
        if self.reader.by_ref().take(most).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.len() as u64 == most {
            self.reader.skip_until(b'\n')?;
            return Ok(Some(None));
        }
        Ok(Some(Some(line)))
    }
}

/// The inputs of one line.
fn parse(line: &[u8], free: &[&TensorInfo], limit: InputLimit) -> Result<Inputs> {
    let not_json = |e: Error| match e.kind() {
        ErrorKind::Parse if e.message().contains(" at line ") => {
            Error::new(ErrorKind::Parse, format!("not a line of JSON: {}", e.message()))
        }
        _ => e,
    };
    if line.trim_ascii_start().first() != Some(&b'{') {
        let [only] = free else {
            json::check(line).map_err(not_json)?;
            let names: Vec<&str> = free.iter().map(|i| i.name.as_str()).collect();
            let message = format!("the model takes {} inputs: {}", names.len(), names.join(", "));
            return Err(Error::new(ErrorKind::Binding, message)
                .with_hint("make each line an object of inputs by name"));
        };
        let data = json::tensor(line, only, limit).map_err(not_json)?;
        return Ok(vec![(only.name.clone(), batched(data, only)?)]);
    }
    let read = json::object(line, free, limit).map_err(not_json)?;
    let mut given = Inputs::new();
    for (name, data) in read {
        let data = batched(data, inputs::find(free, &name)?)?;
        given.push((name, data));
    }
    match free.iter().find(|info| !given.iter().any(|(name, _)| *name == info.name)) {
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
