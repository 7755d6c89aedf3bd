//! Keyword arguments as `rlx::OpenOptions`, and where a model comes from.

use std::path::PathBuf;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict};
use rlx::{OpenOptions, Runner};
use rlx_ir::{Progress, Result};

use crate::errors::OrRaise;

/// Where a model comes from.
pub enum Source {
    File(PathBuf),
    Bytes(Vec<u8>),
}

impl Source {
    /// A path, or the bytes of an ONNX file.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Source::Bytes(bytes.as_bytes().to_vec()));
        }
        let path: PathBuf = object.extract().map_err(|_| {
            let kind = object.get_type().name().map_or_else(|_| "?".to_owned(), |n| n.to_string());
            PyTypeError::new_err(format!("a model is a path or the bytes of an ONNX file, not {kind}"))
        })?;
        Ok(Source::File(path))
    }

    /// Opens the model; compiling is left to the first run.
    pub fn open(self, options: &OpenOptions, progress: &Progress) -> Result<Runner> {
        match self {
            Source::File(path) => options.open_with_progress(path, progress),
            Source::Bytes(bytes) => options.open_bytes(bytes),
        }
    }
}

/// The options that keyword arguments give; those that are absent or `None` have their defaults.
pub fn options(given: &Bound<'_, PyDict>) -> PyResult<OpenOptions> {
    let py = given.py();
    let mut options = OpenOptions::new().or_raise(py)?;
    for (name, value) in given.iter().filter(|(_, value)| !value.is_none()) {
        let name: String = name.extract()?;
        if name == "dims" {
            for item in value.call_method0("items")?.try_iter()? {
                options.dims.push(item?.extract()?);
            }
            continue;
        }
        let text: String = value.str()?.extract()?;
        // Python's `True` is Rust's `true`.
        let text = if value.is_instance_of::<PyBool>() { text.to_lowercase() } else { text };
        options.set(&name, &text).or_raise(py)?;
    }
    Ok(options)
}
