//! The `toy-op` suite: adds an op and an elementary function to a copy of the workspace by the steps of CONTRIBUTING.md and
//! tests them there.
//!
//! The copy is under `target/toy-op/` and shares the workspace's build folder, so that external crates are built once. Only files
//! whose contents changed are written, so that later runs build little.

use crate::exec::{Run, cargo_command};
use crate::outcome::Outcome;
use crate::root;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Copies, adds the op, and runs its tests and those that hold of every op.
pub fn run(run: &Run) -> Outcome {
    match prepare() {
        Ok(copy) => {
            // The whole workspace is named, so that external crates have the features that they were built with. The tests
            // `functions` walk the table of functions.
            let mut command = cargo_command(&["test", "--workspace", "--quiet"]);
            command.args(["--test", "toy_op", "--test", "toy_function"]);
            command.args(["--test", "every_op", "--test", "functions"]);
            command.current_dir(&copy).env("CARGO_TARGET_DIR", build_folder());
            // The tests compute little, so most of their time is the compiler's.
            command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
            run.tests(&mut command)
        }
        Err(e) => Outcome::fail(e),
    }
}

/// The workspace's own.
fn build_folder() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// The workspace's copy with the op in it.
fn prepare() -> Result<PathBuf, String> {
    let copy = root().join("target/toy-op/workspace");
    let kept = copy_workspace(&copy)?;
    remove_others(&copy, &kept)?;
    let fixture = |name: &str| read(&root().join("xtask/fixtures/toy_op").join(name));
    write(&copy.join("crates/rlx-ir/src/ops/toy.rs"), &fixture("toy.rs")?)?;
    write(&copy.join("crates/rlx-runtime/tests/toy_op.rs"), &fixture("toy_op.rs")?)?;
    let table = read(&root().join("crates/rlx-ir/src/ops/mod.rs"))?;
    let table = insert_before(&table, "pub mod types;", "pub mod toy;\n")?;
    let table = insert_after(&table, "\nops! {\n", &fixture("line.rs")?)?;
    write(&copy.join(CHANGED[0]), &table)?;
    add_function(&copy)?;
    Ok(copy)
}

/// The files that get lines, so that they are not copied as they are.
const CHANGED: [&str; 4] = [
    "crates/rlx-ir/src/ops/mod.rs",
    "crates/rlx-ir/src/ops/elementwise/functions.rs",
    "crates/rlx-math/src/exp.rs",
    "crates/rlx-math/src/table.rs",
];

/// The toy function: three files changed, and a test.
fn add_function(copy: &Path) -> Result<(), String> {
    let fixture = |name: &str| read(&root().join("xtask/fixtures/toy_function").join(name));
    let [_, graph, approximations, table] = CHANGED;
    let text = read(&root().join(graph))?;
    let text = insert_after(&text, "\n        $callback! {\n", &fixture("line.rs")?)?;
    let text = insert_before(&text, "#[cfg(test)]", &fixture("reference.rs")?)?;
    write(&copy.join(graph), &text)?;
    let text = read(&root().join(approximations))? + &fixture("approximation.rs")?;
    write(&copy.join(approximations), &text)?;
    let text = insert_after(&read(&root().join(table))?, "\nfunctions! {\n", &fixture("math_line.rs")?)?;
    write(&copy.join(table), &text)?;
    write(&copy.join("crates/rlx-runtime/tests/toy_function.rs"), &fixture("toy_function.rs")?)
}

/// Copies every file that git tracks or would track; returns what was copied.
fn copy_workspace(copy: &Path) -> Result<Vec<PathBuf>, String> {
    let mut list = Command::new("git");
    list.args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
        "crates",
        "xtask",
        "examples",
        "tests",
    ]);
    list.args(["Cargo.toml", "Cargo.lock", "README.md"]);
    let listed = list.current_dir(root()).output().map_err(|e| format!("git: {e}"))?;
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut kept = Vec::new();
    for name in names.split('\0').filter(|n| !n.is_empty()) {
        let from = root().join(name);
        // Tables get their lines below; a file deleted but not yet committed is not there.
        if !CHANGED.contains(&name) && from.is_file() {
            let bytes = fs::read(&from).map_err(|e| format!("{name}: {e}"))?;
            write_bytes(&copy.join(name), &bytes)?;
        }
        kept.push(copy.join(name));
    }
    if kept.is_empty() { Err("git lists no files".to_owned()) } else { Ok(kept) }
}

/// The files that only the copy has.
const ADDED: [&str; 3] = ["ops/toy.rs", "toy_op.rs", "toy_function.rs"];

/// Removes files of an older copy that the workspace no longer has.
fn remove_others(copy: &Path, kept: &[PathBuf]) -> Result<(), String> {
    let mut folders = vec![copy.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if !kept.contains(&path) && !ADDED.iter().any(|added| path.ends_with(added)) {
                fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            }
        }
    }
    Ok(())
}

fn insert_before(text: &str, anchor: &str, new: &str) -> Result<String, String> {
    let at = text.find(anchor).ok_or_else(|| format!("no `{anchor}` in the table's file"))?;
    Ok(format!("{}{new}{}", &text[..at], &text[at..]))
}

fn insert_after(text: &str, anchor: &str, new: &str) -> Result<String, String> {
    let at = text.find(anchor).ok_or_else(|| format!("no `{}` in the table's file", anchor.trim()))?;
    let at = at + anchor.len();
    Ok(format!("{}{new}{}", &text[..at], &text[at..]))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    write_bytes(path, text.as_bytes())
}

/// Writes only what changed: an untouched file keeps its time, and cargo its build.
fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, bytes))
        .map_err(|e| format!("{}: {e}", path.display()))
}
