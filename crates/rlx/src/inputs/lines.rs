//! JSON lines as inputs: each line is an object of inputs by name, or the value of the only input not given otherwise.

use std::io::{BufRead, Read};

use rlx_ir::{ConstData, Error, ErrorKind, Result};
use rlx_runtime::TensorInfo;

use super::elements::InputLimit;
use super::{Inputs, find, json};

/// The lines' inputs in order, `None` for an empty line. A line that cannot be read holds its error, so that
/// the caller can report it and continue; one that is longer than the limit is skipped without being stored.
pub fn read<'a>(
    reader: impl BufRead + 'a,
    free: &'a [&'a TensorInfo],
    limit: InputLimit,
) -> impl Iterator<Item = std::io::Result<Option<Result<Inputs>>>> + 'a {
    let mut lines = Lines { reader, most: limit.0, ended: false };
    let parsed = move |line: Option<Vec<u8>>| match line {
        Some(line) if line.iter().all(u8::is_ascii_whitespace) => None,
        Some(line) => Some(parse(&line, free, limit)),
        None => Some(Err(limit.too_long("the line"))),
    };
    std::iter::from_fn(move || lines.next()).map(move |line| line.map(&parsed))
}

/// Lines of a bounded length.
struct Lines<R> {
    reader: R,
    /// Bytes of a line.
    most: u64,
    /// An error was met: what follows is not known.
    ended: bool,
}

impl<R: BufRead> Lines<R> {
    /// The next line without its newline; `None` for one that is too long, which is skipped.
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
                .with_hint("each line must be an object of inputs by name"));
        };
        let data = json::tensor(line, only, limit).map_err(not_json)?;
        return Ok(vec![(only.name.clone(), batched(data, only)?)]);
    }
    let read = json::object(line, free, limit).map_err(not_json)?;
    let mut given = Inputs::new();
    for (name, data) in read {
        let data = batched(data, find(free, &name)?)?;
        given.push((name, data));
    }
    match free.iter().find(|info| !given.iter().any(|(name, _)| *name == info.name)) {
        None => Ok(given),
        Some(missing) => {
            let message = format!("input \"{}\" is not in the line; it is {}", missing.name, missing.shape);
            Err(Error::new(ErrorKind::Binding, message)
                .with_hint("the line must name every input that is not given otherwise"))
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
