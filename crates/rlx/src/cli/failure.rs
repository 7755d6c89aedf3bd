//! How a command fails: one readable message, and an exit code that tells wrong usage from other failures.

use std::process::ExitCode;

use rlx_ir::{Error, ErrorKind};
use serde_json::{Value, json};

use super::output::{Messages, Output};
use super::watch;

/// What shells report of a process that SIGPIPE (13) ended, as it ends other tools of Unix.
const PIPE_CLOSED: u8 = 128 + 13;
const CLOSED: &str = "no one reads standard output";

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// Invalid arguments: exit code 2.
    Usage(String),
    /// Arguments that do not match the model: exit code 2.
    Misuse(Error),
    /// The command failed: exit code 1.
    Job(Error),
    /// The reader of standard output is gone, as with `| head`: no message, and the exit code of a process
    /// killed by SIGPIPE.
    OutputClosed,
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        Failure::Job(e)
    }
}

impl Failure {
    /// Reports the failure: on standard error as text (what is wrong, where, and what helps, a line each); with `--json`,
    /// the object `{"error": {kind, node, origin, message, hint}}` on standard output as the command's result and on standard
    /// error.
    pub fn report(self, json: bool) -> ExitCode {
        if matches!(self, Failure::OutputClosed) {
            // No message.
        } else if json {
            let object = self.to_json();
            // The failure may be that standard output cannot be written.
            let _ = writeln!(Output, "{object}").and_then(|()| Output.flush());
            writeln!(Messages, "{object}");
        } else {
            writeln!(Messages, "{}", self.text());
        }
        match self {
            Failure::OutputClosed => ExitCode::from(PIPE_CLOSED),
            Failure::Usage(_) | Failure::Misuse(_) => ExitCode::from(2),
            Failure::Job(e) if e.kind() == ErrorKind::Cancelled => {
                watch::stopped_by_signal().map_or(ExitCode::FAILURE, ExitCode::from)
            }
            Failure::Job(_) => ExitCode::FAILURE,
        }
    }

    /// The message as text.
    pub fn text(&self) -> String {
        let error = match self {
            Failure::Usage(message) => return format!("error: {}", one_line(message)),
            Failure::OutputClosed => return format!("error: {CLOSED}"),
            Failure::Misuse(e) | Failure::Job(e) => e,
        };
        let mut text = format!("error: {}", one_line(error.message()));
        // The model's own name first.
        let origin = error.origin().map(str::to_owned);
        let node = error.node().map(|n| if origin.is_some() { format!("[{n}]") } else { n.to_owned() });
        let place: Vec<String> = [origin, node].into_iter().flatten().collect();
        // Messages about a device begin with its name.
        let device = error.device().filter(|d| !error.message().starts_with(*d));
        match (place.join(" "), device) {
            (place, None) if place.is_empty() => {}
            (place, None) => text += &format!("\n  at: {}", one_line(&place)),
            (place, Some(device)) if place.is_empty() => text += &format!("\n  on: {device}"),
            (place, Some(device)) => text += &format!("\n  at: {}, on {device}", one_line(&place)),
        }
        let general = match error.kind() {
            ErrorKind::DeviceUnavailable => {
                Some("`rlx doctor` says what each device lacks and how to get it")
            }
            ErrorKind::Internal => Some("this is a bug in RLX: please report it with the model"),
            _ => None,
        };
        for help in error.hint().into_iter().chain(general) {
            text += &format!("\n  help: {}", one_line(help));
        }
        text
    }

    /// The message for programs.
    pub fn to_json(&self) -> Value {
        let (kind, error, message) = match self {
            Failure::Usage(message) => ("usage", None, message.clone()),
            Failure::OutputClosed => (ErrorKind::Io.name(), None, CLOSED.to_owned()),
            Failure::Misuse(e) => ("usage", Some(e), e.to_string()),
            Failure::Job(e) => (e.kind().name(), Some(e), e.to_string()),
        };
        let (node, origin) = (error.and_then(Error::node), error.and_then(Error::origin));
        let (message, hint) = (one_line(&message), error.and_then(Error::hint));
        json!({ "error": { "kind": kind, "node": node, "origin": origin, "message": message, "hint": hint } })
    }
}

/// The text on one line, since messages of other libraries may have several.
fn one_line(text: &str) -> String {
    text.split('\n').map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("; ")
}
