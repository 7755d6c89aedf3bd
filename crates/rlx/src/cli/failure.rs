//! How a command fails: one readable message, and an exit code that says whose fault it was.

use std::process::ExitCode;

use rlx_ir::Error;
use serde_json::{Value, json};

/// Why a command did not do its job.
#[derive(Debug)]
pub enum Failure {
    /// The arguments make no sense: exit code 2.
    Usage(String),
    /// The job failed: exit code 1.
    Job(Error),
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        Failure::Job(e)
    }
}

impl Failure {
    /// Reports the failure: on standard error one line for people; with `--json`, the object
    /// `{"error": {kind, node, message}}` on standard output as the command's result and on standard error.
    pub fn report(self, json: bool) -> ExitCode {
        if json {
            let object = self.to_json();
            println!("{object}");
            eprintln!("{object}");
        } else {
            eprintln!("error: {}", self.message());
        }
        match self {
            Failure::Usage(_) => ExitCode::from(2),
            Failure::Job(_) => ExitCode::FAILURE,
        }
    }

    fn message(&self) -> String {
        let text = match self {
            Failure::Usage(message) => message.clone(),
            Failure::Job(e) => e.to_string(),
        };
        // One line, whatever an error underneath wrote.
        text.split('\n').map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("; ")
    }

    fn to_json(&self) -> Value {
        let (kind, node) = match self {
            Failure::Usage(_) => ("usage", None),
            Failure::Job(e) => (e.kind().name(), e.node()),
        };
        json!({ "error": { "kind": kind, "node": node, "message": self.message() } })
    }
}
