//! The error of the AOT cache.

use std::fmt;

use rlx_ir::{Error, LowerError};

use crate::error::CompileError;

/// Why a call of the AOT cache failed.
///
/// A damaged or foreign entry is no error of the calls that can compile: they warn and compile again.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum AotCacheError {
    /// The cache has no usable entry of this name.
    Missing(Error),
    /// An entry's bytes are not those that were written.
    Damaged(Error),
    /// A folder or file that cannot be read or written.
    Io(Error),
    /// A module or a graph that cannot be stored.
    Store(Error),
    /// Blocks that do not lower to a graph.
    Lower(LowerError),
    /// A graph that does not compile for the device.
    Compile(CompileError),
}

impl AotCacheError {
    /// All that is known of it.
    pub fn error(&self) -> &Error {
        match self {
            AotCacheError::Missing(e)
            | AotCacheError::Damaged(e)
            | AotCacheError::Io(e)
            | AotCacheError::Store(e) => e,
            AotCacheError::Lower(e) => e.error(),
            AotCacheError::Compile(e) => e.error(),
        }
    }
}

impl fmt::Display for AotCacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AotCacheError::Lower(e) => e.fmt(f),
            other => other.error().fmt(f),
        }
    }
}

impl std::error::Error for AotCacheError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error())
    }
}

impl From<LowerError> for AotCacheError {
    fn from(e: LowerError) -> Self {
        AotCacheError::Lower(e)
    }
}

impl From<CompileError> for AotCacheError {
    fn from(e: CompileError) -> Self {
        AotCacheError::Compile(e)
    }
}

impl From<AotCacheError> for Error {
    fn from(e: AotCacheError) -> Self {
        e.error().clone()
    }
}

impl From<AotCacheError> for String {
    fn from(e: AotCacheError) -> Self {
        e.to_string()
    }
}
