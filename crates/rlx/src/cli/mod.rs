//! The command line: its arguments ([`args`]), and one module for each command.

mod args;
mod bench;
mod cache;
mod classes;
mod compare;
mod compile;
mod devices;
mod doctor;
mod examples;
mod failure;
mod image;
mod inputs;
mod inspect;
mod items;
mod job;
mod manual;
mod output;
mod package;
mod print;
mod profile;
mod run;
mod stream;
mod tune;
mod values;
mod verify;
mod warnings;
mod watch;
mod words;
mod written;

use std::process::ExitCode;

use args::{Cli, Command};
use clap::Parser;
use clap::error::ErrorKind as ClapKind;
use failure::Failure;
use output::{Output, output_error};

/// Runs the command that the process's arguments say.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return wrong_arguments(&e),
    };
    warnings::show(cli.wants_json());
    match dispatch(&cli).and_then(|code| Output.flush().map(|()| code)) {
        Ok(code) => code,
        Err(failure) => failure.report(cli.wants_json()),
    }
}

fn dispatch(cli: &Cli) -> Result<ExitCode, Failure> {
    match &cli.command {
        Command::Run(args) => run::run(args, cli.json),
        Command::Compile(args) => compile::compile(args, cli.json),
        Command::Cache(args) => cache::cache(args, cli.json),
        Command::Inspect(args) => inspect::inspect(args, cli.json),
        Command::Verify(args) => verify::verify(args, cli.json),
        Command::Compare(args) => compare::compare(args, cli.json),
        Command::Bench(args) => bench::bench(args, cli.json),
        Command::Tune(args) => tune::tune(args, cli.json),
        Command::Devices(args) => devices::devices(args, cli.json),
        Command::Completions(args) => manual::completions(args, cli.json),
        Command::Man(args) => manual::man(args, cli.json),
        Command::Doctor => doctor::doctor(cli.json),
    }
}

/// Help and version are no failure; all else is wrong usage.
fn wrong_arguments(e: &clap::Error) -> ExitCode {
    if matches!(e.kind(), ClapKind::DisplayHelp | ClapKind::DisplayVersion) {
        return match e.print().map_err(output_error).and_then(|()| Output.flush()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report(false),
        };
    }
    if std::env::args_os().any(|a| a == "--json") {
        let text = e.render().to_string();
        let line = text.lines().find(|l| !l.trim().is_empty()).unwrap_or("wrong usage");
        return Failure::Usage(line.trim_start_matches("error: ").to_owned()).report(true);
    }
    let _ = e.print();
    ExitCode::from(2)
}
