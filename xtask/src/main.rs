//! Maintenance tasks of the RLX workspace.
//!
//! `cargo xtask test` is the project's test command: it fetches the test data, runs the suites of
//! [`suites::SUITES`] and prints what passed, failed and was skipped, and what each took.
#![forbid(unsafe_code)]

mod blas;
mod coreml;
mod data;
mod deny;
mod device_lines;
mod devices;
mod docs;
mod drivers;
mod exec;
mod fake_driver;
mod fuzz;
mod gpu;
mod images;
mod miri;
mod mlx;
mod neon;
mod outcome;
mod packages;
mod peers;
mod pjrt;
#[cfg(feature = "proto")]
mod proto;
mod python;
mod record;
mod report;
mod scores;
mod structure;
mod suites;
mod toy_op;
mod vendor_compilers;
mod web;
mod windows;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask test [--all] [--suite NAME]...   run the suites (with --all, also the heavy ones); --suite runs only those named
cargo xtask test --list                      list the suites
cargo xtask mlx [FOLDER]                     build the shim over MLX for the MLX of FOLDER (its Python package; default: fetched with pip), and say where it is
cargo xtask data                             fetch the test data into RLX_CACHE_DIR (default: the user's cache folder)
cargo xtask images                           make docs/images again: measures on this machine, with a release build
cargo xtask structure [--write]              print the cycles of modules and the lines of devices; with --write, list the cycles in xtask/structure.txt
cargo xtask docs                             make docs/ops.md, docs/devices.md and the table of docs/testing.md again
cargo xtask proto                            make the types of ONNX and Core ML files again (needs `protoc`)";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["test", flags @ ..] => test(flags),
        ["mlx"] => mlx::task(None).map(|()| true),
        ["mlx", folder] => mlx::task(Some(Path::new(folder))).map(|()| true),
        ["data"] => fetch_all(),
        ["docs"] => make_docs().map(|()| true),
        ["structure"] => structure::task(false),
        ["structure", "--write"] => structure::task(true),
        ["images"] => images::write().map(|()| true),
        ["proto"] => make_proto(),
        [] | ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(true)
        }
        other => Err(format!("unknown task `{}`\n{HELP}", other.join(" "))),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
    }
}

/// The workspace's root folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace").to_path_buf()
}

fn test(flags: &[&str]) -> Result<bool, String> {
    let (mut all, mut list, mut named) = (false, false, Vec::new());
    let mut rest = flags.iter();
    while let Some(flag) = rest.next() {
        match *flag {
            "--all" => all = true,
            "--list" => list = true,
            "--suite" => named.push(*rest.next().ok_or("--suite needs a name")?),
            other => return Err(format!("unknown flag `{other}`\n{HELP}")),
        }
    }
    if list {
        report::list(suites::SUITES);
        return Ok(true);
    }
    let chosen = suites::choose(&named, all)?;
    Ok(report::run_all(&chosen))
}

fn make_docs() -> Result<(), String> {
    docs::write()?;
    record::write_table()?;
    devices::write()
}

fn fetch_all() -> Result<bool, String> {
    for set in rlx_testdata::ALL {
        println!("{}", data::fetch(set)?.display());
    }
    Ok(true)
}

#[cfg(feature = "proto")]
fn make_proto() -> Result<bool, String> {
    proto::generate().map(|()| true)
}

/// Without its feature the task starts itself again with it, so that no one else pays for the code generator.
#[cfg(not(feature = "proto"))]
fn make_proto() -> Result<bool, String> {
    let status = std::process::Command::new(exec::cargo())
        .args(["run", "--quiet", "--package", "xtask", "--features", "proto", "--", "proto"])
        .current_dir(root())
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    Ok(status.success())
}
