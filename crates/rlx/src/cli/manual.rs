//! `rlx completions` and `rlx man`: generated from the argument definitions.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use rlx_ir::Error;
use rlx_ir::files::io_error;
use rlx_ir::sort::sort;
use serde_json::json;

use super::args::{Cli, CompletionsArgs, ManArgs};
use super::failure::Failure;
use super::output::Output;

/// Prints the script that completes `rlx` in a shell.
pub fn completions(args: &CompletionsArgs, json: bool) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "rlx", &mut script);
    print(&String::from_utf8_lossy(&script), "script", json)
}

/// Prints the manual page of the command, or writes those of all commands to a folder.
pub fn man(args: &ManArgs, json: bool) -> Result<ExitCode, Failure> {
    // Under its own name, so that pages of commands are called `rlx-run` and refer to each other.
    let mut command = Cli::command();
    command.build();
    match &args.output {
        Some(folder) => write_pages(&command, folder, json),
        None => print(&page(&command)?, "page", json),
    }
}

/// A page in the language of `man`.
fn page(command: &clap::Command) -> Result<String, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .render(&mut page)
        .map_err(|e| Failure::Job(Error::new(rlx_ir::ErrorKind::Io, format!("the manual page: {e}"))))?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

fn write_pages(command: &clap::Command, folder: &Path, json: bool) -> Result<ExitCode, Failure> {
    std::fs::create_dir_all(folder).map_err(|e| io_error(folder, e))?;
    let mut written = Vec::new();
    let mut open = vec![command];
    while let Some(command) = open.pop() {
        let file = folder.join(format!("{}.1", command.get_display_name().unwrap_or(command.get_name())));
        super::print::write_file(&file, &page(command)?)?;
        written.push(file.display().to_string());
        open.extend(command.get_subcommands().filter(|c| c.get_name() != "help"));
    }
    sort(&mut written);
    match json {
        true => writeln!(Output, "{}", json!({ "written": written }))?,
        false => written.iter().try_for_each(|file| writeln!(Output, "{file}"))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print(text: &str, name: &str, json: bool) -> Result<ExitCode, Failure> {
    match json {
        true => writeln!(Output, "{}", json!({ name: text }))?,
        false => write!(Output, "{text}")?,
    }
    Ok(ExitCode::SUCCESS)
}
