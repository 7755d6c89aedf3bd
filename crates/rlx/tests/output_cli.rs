//! Output that cannot be written: a closed reader ends the command quietly, a full disk is an error. Every command,
//! as text and as JSON.

#![cfg(target_os = "linux")]

mod common;

use std::fs::File;
use std::process::Stdio;

use common::{FLOAT, Folder, model, node, value};

/// Every command that prints, by what is needed to make it do so.
const COMMANDS: &[&[&str]] = &[
    &["run", "relu.onnx", "--input", "x=random", "--dim", "n=2"],
    &["run", "relu.onnx", "--lines", "lines.jsonl"],
    &["run", "relu.onnx", "--lines", "bad.jsonl"],
    &["compile", "relu.onnx", "-o", "relu.rlx"],
    &["inspect", "relu.onnx"],
    &["inspect", "relu.onnx", "--passes"],
    &["inspect", "relu.onnx", "--format", "dot"],
    &["inspect", "relu.onnx", "--format", "svg"],
    &["verify", "relu.onnx", "--dim", "n=2"],
    &["bench", "relu.onnx", "--dim", "n=2", "--runs", "2"],
    &["tune", "relu.onnx", "--dim", "n=2"],
    &["devices"],
    &["devices", "relu.onnx"],
    &["cache", "ls"],
    &["cache", "verify"],
    &["cache", "rm", "--all"],
    &["completions", "bash"],
    &["man"],
    &["man", "-o", "pages"],
    &["doctor"],
    &["help"],
    &["--help"],
    &["--version"],
    &["run", "--help"],
    &["cache", "ls", "--help"],
];

fn folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    let ports = ["x", "y"].map(|port| value(port, FLOAT, &["n", "3"]));
    folder.write("relu.onnx", model(&ports[..1], &[node("Relu", &["x"], &["y"])], &[], &ports[1..]));
    folder.write("lines.jsonl", "[[1, 2, 3]]\n".repeat(3));
    folder.write("bad.jsonl", "nonsense\n".repeat(3));
    folder
}

/// The exit code and the messages of a command that writes to `output`.
fn run(folder: &Folder, args: &[&str], output: Stdio) -> (Option<i32>, String) {
    let child = folder.command(args).stdin(Stdio::null()).stdout(output).stderr(Stdio::piped()).spawn();
    let output = child.expect("the command starts").wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Each command as it is, and for programs.
fn forms() -> impl Iterator<Item = Vec<&'static str>> {
    let json = |args: &&[&'static str]| [args, ["--json"].as_slice()].concat();
    // Diagrams and help are the same for programs.
    let is_json =
        |args: &&&[&str]| !args.iter().any(|a| ["--format", "--help", "--version", "help"].contains(a));
    COMMANDS.iter().map(|args| args.to_vec()).chain(COMMANDS.iter().filter(is_json).map(json))
}

#[test]
fn a_reader_that_went_away_ends_every_command_quietly() {
    let folder = folder("pipe");
    for args in forms() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let (code, told) = run(&folder, &args, writer.into());
        assert_eq!(code, Some(141), "{args:?}: {told}");
        // What is wrong with a line is still told; nothing is about the pipe.
        let expected = |line: &str| line.starts_with("error: bad.jsonl:");
        assert!(told.lines().all(expected), "{args:?}: {told}");
    }
}

#[test]
fn a_full_disk_is_an_error_of_every_command() {
    let folder = folder("full");
    for args in forms() {
        let full = File::options().write(true).open("/dev/full").expect("the device");
        let (code, told) = run(&folder, &args, full.into());
        assert_eq!(code, Some(1), "{args:?}: {told}");
        assert!(told.contains("standard output: No space left on device"), "{args:?}: {told}");
        assert!(!told.contains("panicked"), "{args:?}: {told}");
    }
}

/// Messages that no one can read change nothing.
#[test]
fn messages_that_cannot_be_written_do_not_matter() {
    let folder = folder("mute");
    for (args, code) in [
        (["run", "missing.onnx"].as_slice(), 1),
        (&["frobnicate"], 2),
        (&["run", "relu.onnx", "--dim", "n=1", "--dim", "n=2"], 2),
        (&["run", "relu.onnx", "--lines", "bad.jsonl"], 1),
        (&["run", "relu.onnx", "--lines", "lines.jsonl"], 0),
        (&["run", "relu.onnx", "--input", "x=random", "--dim", "n=2"], 0),
    ] {
        let full = File::options().write(true).open("/dev/full").expect("the device");
        let mut command = folder.command(args);
        // Reports of the compiler go to standard error as well.
        command.env("RLX_DISPATCH_REPORT", "1").env("RLX_PROFILE", "1");
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(full).status();
        assert_eq!(status.expect("the command starts").code(), Some(code), "{args:?}");
    }
}

/// Files that cannot be written whole are errors, and nothing is left of them.
#[test]
fn no_file_is_left_half_written() {
    let folder = folder("half");
    let before = folder.names();
    for args in [
        ["run", "relu.onnx", "--input", "x=random", "--dim", "n=2", "--outputs", "absent/y.npz"].as_slice(),
        &["inspect", "relu.onnx", "-o", "absent/y.svg"],
        &["compile", "relu.onnx", "-o", "absent/y.rlx"],
        &["man", "-o", "relu.onnx"],
    ] {
        let (code, told) = run(&folder, args, Stdio::null());
        assert_eq!(code, Some(1), "{args:?}: {told}");
        assert!(told.starts_with("error: "), "{args:?}: {told}");
    }
    let after: Vec<String> = folder.names().into_iter().filter(|name| name != "cache").collect();
    assert_eq!(after, before);
}
