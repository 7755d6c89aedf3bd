//! Everything that the command prints goes through this module.
//!
//! `println!` panics when its text cannot be written. Here, a closed reader (`rlx … | head -1`) ends the command
//! quietly, and any other error, such as a full disk, makes the command fail. Clippy denies the printing macros in this
//! crate, so all output uses these types.

use std::fmt::Arguments;
use std::io::{ErrorKind as IoKind, Write, stderr, stdout};

use rlx_ir::{Error, ErrorKind};

use super::failure::Failure;

/// Standard output: results, as in `writeln!(Output, "{result}")?`.
#[derive(Debug, Clone, Copy)]
pub struct Output;

impl Output {
    /// What `write!` and `writeln!` call.
    ///
    /// # Errors
    /// [`Failure::OutputClosed`] if the reader is gone; otherwise the system's error.
    pub fn write_fmt(self, text: Arguments<'_>) -> Result<(), Failure> {
        stdout().lock().write_fmt(text).map_err(output_error)
    }

    /// Hands over what is still in a buffer: only then is it known whether all could be written.
    ///
    /// # Errors
    /// As [`Output::write_fmt`].
    pub fn flush(self) -> Result<(), Failure> {
        stdout().lock().flush().map_err(output_error)
    }
}

/// What an error of standard output means for the command.
pub fn output_error(e: std::io::Error) -> Failure {
    match e.kind() {
        IoKind::BrokenPipe => Failure::OutputClosed,
        _ => Failure::Job(Error::new(ErrorKind::Io, format!("standard output: {e}")).with_source(e)),
    }
}

/// Standard error: messages for people, as in `writeln!(Messages, "{message}")`. There is no one left to tell when they
/// cannot be written, so that is no failure: the exit code says how the command ended.
#[derive(Debug, Clone, Copy)]
pub struct Messages;

impl Messages {
    /// What `write!` and `writeln!` call.
    pub fn write_fmt(self, text: Arguments<'_>) {
        let _ = stderr().lock().write_fmt(text);
    }
}
