//! The one error type of the libraries.
//!
//! An [`Error`] names what went wrong ([`ErrorKind`]), where (node, origin, device), and what to do
//! next (`hint`). Layers add what they know with the `with_` methods; nothing is lost on the way.
//!
//! ```
//! use rlx_ir::{Error, ErrorKind};
//! let e = Error::new(ErrorKind::Shape, "cannot broadcast [2, 3] f32 with [4] f32")
//!     .with_node("%7 add")
//!     .with_hint("make the last dimensions equal, or one of them 1");
//! assert_eq!(
//!     e.to_string(),
//!     "shape error at %7 add: cannot broadcast [2, 3] f32 with [4] f32 \
//!      (make the last dimensions equal, or one of them 1)"
//! );
//! ```

use std::fmt;
use std::sync::Arc;

/// What kind of fault an [`Error`] reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Shapes do not fit the op's rule.
    Shape,
    /// An element type the op does not take.
    DType,
    /// A graph that breaks a structural rule (unknown id, duplicate name, cycle, …).
    InvalidGraph,
    /// Text or bytes that do not follow their format.
    Parse,
    /// A file that could not be read or written.
    Io,
    /// A file whose contents break its format, or exceed a limit.
    Malformed,
    /// An op, attribute or element type that is valid but not built here.
    Unsupported,
    /// The value of an input is needed at compile time (it decides a shape, an axis, …).
    NeedsInputValue,
    /// An input or parameter that is missing, unknown, or given with the wrong length.
    Binding,
    /// A value that the op forbids, such as an index out of range.
    Value,
    /// A symbolic dimension without a value, or a value out of its range.
    Dimension,
    /// A device that is absent, or a build without its backend.
    DeviceUnavailable,
    /// Memory that cannot be had, or a plan over the device's limit.
    OutOfMemory,
    /// A fault the device's driver reported.
    Device,
    /// An environment variable or option whose value makes no sense.
    Config,
    /// The caller stopped the work, or its deadline passed.
    Cancelled,
    /// Code that panicked: a kernel, or a custom op or a callback of the caller.
    Panic,
    /// A rule of ours that did not hold: a bug in RLX.
    Internal,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: &'static [ErrorKind] = &[
        ErrorKind::Shape,
        ErrorKind::DType,
        ErrorKind::InvalidGraph,
        ErrorKind::Parse,
        ErrorKind::Io,
        ErrorKind::Malformed,
        ErrorKind::Unsupported,
        ErrorKind::NeedsInputValue,
        ErrorKind::Binding,
        ErrorKind::Value,
        ErrorKind::Dimension,
        ErrorKind::DeviceUnavailable,
        ErrorKind::OutOfMemory,
        ErrorKind::Device,
        ErrorKind::Config,
        ErrorKind::Cancelled,
        ErrorKind::Panic,
        ErrorKind::Internal,
    ];

    /// The kind with this [`name`](ErrorKind::name).
    pub fn from_name(name: &str) -> Option<ErrorKind> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// A stable lower-case name, used in messages and in `--json` output.
    pub const fn name(self) -> &'static str {
        match self {
            ErrorKind::Shape => "shape",
            ErrorKind::DType => "dtype",
            ErrorKind::InvalidGraph => "invalid graph",
            ErrorKind::Parse => "parse",
            ErrorKind::Io => "io",
            ErrorKind::Malformed => "malformed file",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::NeedsInputValue => "needs input value",
            ErrorKind::Binding => "binding",
            ErrorKind::Value => "value",
            ErrorKind::Dimension => "dimension",
            ErrorKind::DeviceUnavailable => "device unavailable",
            ErrorKind::OutOfMemory => "out of memory",
            ErrorKind::Device => "device",
            ErrorKind::Config => "configuration",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Panic => "panic",
            ErrorKind::Internal => "internal",
        }
    }
}

/// A fault, with all that is known of where it happened and what helps.
#[derive(Debug, Clone)]
pub struct Error(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    node: Option<String>,
    origin: Option<String>,
    device: Option<String>,
    hint: Option<String>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// Shorthand for results with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind` that says `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            kind,
            message: message.into(),
            node: None,
            origin: None,
            device: None,
            hint: None,
            source: None,
        }))
    }

    /// Names the node (`%7 add`); an inner layer's name is kept.
    pub fn with_node(mut self, node: impl Into<String>) -> Self {
        self.0.node.get_or_insert_with(|| node.into());
        self
    }

    /// Names where the node came from (an ONNX node, a HIR block, a line); an inner layer's is kept.
    pub fn with_origin(mut self, origin: impl Into<String>) -> Self {
        self.0.origin.get_or_insert_with(|| origin.into());
        self
    }

    /// Names the device; an inner layer's name is kept.
    pub fn with_device(mut self, device: impl Into<String>) -> Self {
        self.0.device.get_or_insert_with(|| device.into());
        self
    }

    /// Says what the reader can do next.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Keeps the error underneath.
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// What kind of fault this is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The message alone, without place and hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The node it happened at, if known.
    pub fn node(&self) -> Option<&str> {
        self.0.node.as_deref()
    }

    /// Where the node came from, if known.
    pub fn origin(&self) -> Option<&str> {
        self.0.origin.as_deref()
    }

    /// The device, if one is concerned.
    pub fn device(&self) -> Option<&str> {
        self.0.device.as_deref()
    }

    /// What to do next, if anything helps.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, message, node, origin, device, hint, .. } = &*self.0;
        // Names that say by themselves what is wrong: `out of memory on cpu: …`.
        let complete = matches!(
            kind,
            ErrorKind::Malformed
                | ErrorKind::Unsupported
                | ErrorKind::NeedsInputValue
                | ErrorKind::DeviceUnavailable
                | ErrorKind::OutOfMemory
                | ErrorKind::Cancelled
                | ErrorKind::Panic
        );
        write!(f, "{}{}", kind.name(), if complete { "" } else { " error" })?;
        if let Some(device) = device {
            write!(f, " on {device}")?;
        }
        match (node, origin) {
            (Some(node), Some(origin)) => write!(f, " at {origin} [{node}]")?,
            (Some(node), None) => write!(f, " at {node}")?,
            (None, Some(origin)) => write!(f, " at {origin}")?,
            (None, None) => {}
        }
        write!(f, ": {message}")?;
        if let Some(hint) = hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|s| s as _)
    }
}

impl From<Error> for String {
    fn from(e: Error) -> String {
        e.to_string()
    }
}

impl PartialEq for Error {
    /// Equal when kind, message and place are; the source is not compared.
    fn eq(&self, other: &Self) -> bool {
        self.0.kind == other.0.kind && self.to_string() == other.to_string()
    }
}
