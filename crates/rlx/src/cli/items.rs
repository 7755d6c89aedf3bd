//! Many inputs one after the other: the images of folders, or the lines of a file.
//!
//! An item that cannot be read holds its error, so that the caller can report it and continue.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use rlx::inputs::{self, IMAGES, InputLimit, Inputs, lines};
use rlx_ir::files::io_error;
use rlx_ir::sort::sort;
use rlx_ir::{Error, ErrorKind, Result};
use rlx_runtime::TensorInfo;

use super::failure::Failure;
use super::image::Images;

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

/// Endings of images that are not read: they are items too, and bad ones, so nothing is left out silently.
const UNREAD: [&str; 3] = ["gif", "heic", "avif"];

/// The files, with each folder replaced by its images in order of name.
pub fn files<'a>(
    paths: &[PathBuf],
    images: &'a Images<'_>,
    free: &'a TensorInfo,
    limit: InputLimit,
) -> Result<Items<'a>, Failure> {
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
            let image = IMAGES.iter().chain(&UNREAD).any(|known| ending == *known);
            if image && file.is_file() {
                found.push(file);
            }
        }
        sort(&mut found[before..]);
        if found.len() == before {
            let message = format!("the folder {} has no images ({})", path.display(), IMAGES.join(", "));
            return Err(Error::new(ErrorKind::Io, message)
                .with_hint("only the folder itself is searched, not the folders in it")
                .into());
        }
    }
    let item = move |file: PathBuf| Item {
        name: file.display().to_string(),
        inputs: inputs::read_prepared(&file, free, limit, || images.preprocess(free))
            .map(|data| vec![(free.name.clone(), data)]),
    };
    Ok(Items { count: Some(found.len()), each: Box::new(found.into_iter().map(item)) })
}

/// The lines of a JSON Lines file (`-`: standard input): an object of inputs by name, or the value of the one input that
/// is free. Empty lines are skipped. What is no regular file is read once, so no one knows how many lines there are.
pub fn of_lines<'a>(
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
    let each = lines::read(reader, free, limit).enumerate().filter_map(move |(i, line)| {
        let inputs = line.unwrap_or_else(|e| Some(Err(io_error(path, e))))?;
        Some(Item { name: format!("{shown}:{}", i + 1), inputs })
    });
    Ok(Items { count, each: Box::new(each) })
}

/// The number of lines that are not empty.
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
