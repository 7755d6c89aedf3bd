//! The error of compiling.

use std::fmt;

use rlx_ir::{Error, ErrorKind};

/// Why a graph could not be compiled: an [`Error`] that names device, node and origin.
#[derive(Debug, Clone, PartialEq)]
pub struct CompileError(Error);

impl CompileError {
    /// What kind of fault it is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind()
    }

    /// All that is known of it.
    pub fn error(&self) -> &Error {
        &self.0
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for CompileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0)
    }
}

impl From<Error> for CompileError {
    fn from(error: Error) -> Self {
        CompileError(error)
    }
}

impl From<CompileError> for Error {
    fn from(error: CompileError) -> Self {
        error.0
    }
}

impl From<CompileError> for String {
    fn from(error: CompileError) -> Self {
        error.to_string()
    }
}
