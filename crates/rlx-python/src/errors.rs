//! Errors as Python exceptions: one class for each kind, defined in `rlx/errors.py`.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlx_ir::{Error, ErrorKind};

/// The exception for an error, with what is known of where it happened as attributes.
pub fn to_python(py: Python<'_>, e: &Error) -> PyErr {
    exception(py, e).unwrap_or_else(|failed| failed)
}

fn exception(py: Python<'_>, e: &Error) -> PyResult<PyErr> {
    let class = py.import("rlx.errors")?.getattr(class(e.kind()))?;
    let about = PyDict::new(py);
    about.set_item("message", e.message())?;
    about.set_item("node", e.node())?;
    about.set_item("op", e.node().and_then(op_of))?;
    about.set_item("origin", e.origin())?;
    about.set_item("device", e.device())?;
    about.set_item("hint", e.hint())?;
    Ok(PyErr::from_value(class.call((e.to_string(),), Some(&about))?))
}

/// The op in a node's description: `add` in `%7 add`.
fn op_of(node: &str) -> Option<&str> {
    node.split_whitespace().find(|word| !word.starts_with('%'))
}

fn class(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Shape => "ShapeError",
        ErrorKind::DType => "DTypeError",
        ErrorKind::InvalidGraph => "InvalidGraphError",
        ErrorKind::Parse => "ParseError",
        ErrorKind::Io => "FileError",
        ErrorKind::Malformed => "MalformedError",
        ErrorKind::Unsupported => "UnsupportedError",
        ErrorKind::NeedsInputValue => "NeedsInputValueError",
        ErrorKind::Binding => "InputError",
        ErrorKind::Value => "InvalidValueError",
        ErrorKind::Dimension => "DimensionError",
        ErrorKind::DeviceUnavailable => "DeviceUnavailableError",
        ErrorKind::OutOfMemory => "OutOfMemoryError",
        ErrorKind::Device => "DeviceError",
        ErrorKind::Config => "ConfigError",
        ErrorKind::Cancelled => "Cancelled",
        ErrorKind::Panic => "PanicError",
        // Kinds that are added later are errors too.
        _ => "InternalError",
    }
}

/// Results of the libraries as Python's.
pub trait OrRaise<T> {
    /// The value, or the error as an exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T, E: Into<Error>> OrRaise<T> for Result<T, E> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|e| to_python(py, &e.into()))
    }
}
