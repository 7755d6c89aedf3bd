//! The `rlx` command: run, inspect, verify and time models.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

fn main() -> ExitCode {
    rlx::command(std::env::args_os())
}
