//! The command stopped by a deadline and by Ctrl-C: it ends soon, says so, and leaves nothing half-written.

mod common;

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{FLOAT, Folder, external, model, node, value};

/// Matmuls one after the other: a run of some seconds, in many steps.
fn write_long(folder: &Folder) {
    let shape = ["1024", "1024"];
    let names: Vec<String> =
        std::iter::once("x".to_owned()).chain((1..400).map(|i| format!("y{i}"))).collect();
    let nodes: Vec<_> = names.windows(2).map(|w| node("MatMul", &[&w[0], "x"], &[&w[1]])).collect();
    let last = value(names.last().unwrap(), FLOAT, &shape);
    folder.write("long.onnx", model(&[value("x", FLOAT, &shape)], &nodes, &[], &[last]));
}

/// A table of half a gigabyte, in a file of which nothing is on the disk.
fn write_large(folder: &Folder) {
    let rows: i64 = 1 << 16;
    let lookup = node("Gather", &["table", "ids"], &["rows"]);
    let ids = value("ids", common::INT64, &["2"]);
    let out = value("rows", FLOAT, &["2", "2048"]);
    folder.write(
        "large.onnx",
        model(&[ids], &[lookup], &[external("table", &[rows, 2048], "table.bin")], &[out]),
    );
    let table = std::fs::File::create(folder.path().join("table.bin")).unwrap();
    table.set_len(rows as u64 * 2048 * 4).unwrap();
}

const LONG: [&str; 6] = ["run", "long.onnx", "--input", "x=random", "--outputs", "out.npz"];

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn start(folder: &Folder, args: &[&str]) -> Child {
    let mut command = folder.command(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts")
}

fn interrupt(child: &Child) {
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
}

/// The command's end, which must come soon.
fn end(mut child: Child, within: Duration) -> Output {
    let start = Instant::now();
    while child.try_wait().expect("its state").is_none() {
        if start.elapsed() > within {
            // It is ours, and would go on for long.
            let _ = child.kill();
            panic!("it did not stop within {within:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("its output")
}

#[test]
fn a_deadline_ends_every_command_that_takes_one() {
    let folder = Folder::new("deadline");
    write_long(&folder);
    let commands: [&[&str]; 6] = [
        &LONG,
        &["bench", "long.onnx", "--runs", "1000"],
        &["verify", "long.onnx"],
        &["tune", "long.onnx"],
        &["compile", "long.onnx", "-o", "long.rlx"],
        &["inspect", "long.onnx", "-o", "long.txt"],
    ];
    for args in commands {
        // Compiling is quicker than the others: no time at all stops it, too.
        let deadline = if matches!(args[0], "compile" | "inspect" | "tune") { "0s" } else { "200ms" };
        let args: Vec<&str> = args.iter().copied().chain(["--deadline", deadline]).collect();
        let started = Instant::now();
        let output = folder.rlx(&args);
        let message = err(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {message}");
        let shown = if deadline == "0s" { "0ns" } else { deadline };
        assert!(message.starts_with(&format!("error: the deadline of {shown} passed while ")), "{message}");
        assert!(started.elapsed() < Duration::from_secs(60), "{args:?} took {:?}", started.elapsed());
        assert_eq!(folder.names(), ["long.onnx"], "{args:?} left something");
    }
    let json = folder.rlx(&[&LONG[..], &["--deadline", "50ms", "--json"]].concat());
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).expect("one JSON value");
    assert_eq!(report["error"]["kind"], "cancelled");
}

#[test]
fn a_deadline_that_is_not_reached_changes_nothing() {
    let folder = Folder::new("no-deadline");
    let nodes = [node("Relu", &["x"], &["y"])];
    let (x, y) = (value("x", FLOAT, &["3"]), value("y", FLOAT, &["3"]));
    folder.write("relu.onnx", model(&[x], &nodes, &[], &[y]));
    folder.write("x.json", "[-1, 0, 2]");
    let args = ["run", "relu.onnx", "--input", "x=x.json", "--outputs", "y.npz"];
    let output = folder.rlx(&[&args[..], &["--deadline", "10m"]].concat());
    assert!(output.status.success(), "{}", err(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("0, 0, 2"));
    assert_eq!(folder.names(), ["relu.onnx", "x.json", "y.npz"]);
    for (wrong, why) in
        [("5 parsecs", "not a unit of time"), ("soon", "not a unit of time"), ("s", "not a time")]
    {
        let output = folder.rlx(&[&args[..], &["--deadline", wrong]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(err(&output).contains(why), "{}", err(&output));
    }
}

#[test]
#[cfg(unix)]
fn ctrl_c_in_a_run_leaves_no_outputs() {
    let folder = Folder::new("interrupt-run");
    write_long(&folder);
    let child = start(&folder, &LONG);
    std::thread::sleep(Duration::from_millis(400));
    interrupt(&child);
    let output = end(child, Duration::from_secs(20));
    assert_eq!(output.status.code(), Some(130), "{}", err(&output));
    assert!(err(&output).starts_with("error: stopped while "), "{}", err(&output));
    assert_eq!(folder.names(), ["long.onnx"]);
}

#[test]
#[cfg(unix)]
fn ctrl_c_while_an_artefact_is_written_leaves_nothing_of_it() {
    let folder = Folder::new("interrupt-compile");
    write_large(&folder);
    // What was there before stays.
    folder.write("large.rlx", "an older one");
    let child = start(&folder, &["compile", "large.onnx", "-o", "large.rlx"]);
    let started = Instant::now();
    while folder.names().iter().all(|name| !name.ends_with(".part")) {
        assert!(started.elapsed() < Duration::from_secs(60), "it never began to write");
        std::thread::sleep(Duration::from_millis(1));
    }
    interrupt(&child);
    let output = end(child, Duration::from_secs(20));
    assert_eq!(output.status.code(), Some(130), "{}", err(&output));
    assert!(err(&output).starts_with("error: stopped while writing"), "{}", err(&output));
    assert_eq!(folder.names(), ["large.onnx", "large.rlx", "table.bin"]);
    assert_eq!(std::fs::read(folder.path().join("large.rlx")).unwrap(), b"an older one");
}

#[test]
#[cfg(unix)]
fn a_second_ctrl_c_ends_it_at_once() {
    let folder = Folder::new("interrupt-twice");
    write_long(&folder);
    let child = start(&folder, &LONG);
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&child);
    interrupt(&child);
    let output = end(child, Duration::from_secs(5));
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(folder.names(), ["long.onnx"]);
}
