//! `rlx run` over folders and JSON lines: every valid item gives a result, every invalid one an error.

mod common;

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use common::{FLOAT, Folder, INT64, model, node, value};
use rlx_ir::ConstData;
use serde_json::{Value as Json, json};

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The digits model, and its samples in a folder `images`.
fn digits(name: &str) -> Folder {
    let (folder, from) = (Folder::new(name), rlx_testdata::models::folder().join("digits"));
    for file in ["digits.onnx", "labels.txt"] {
        std::fs::copy(from.join(file), folder.path().join(file)).unwrap();
    }
    let images = folder.path().join("images");
    std::fs::create_dir_all(&images).unwrap();
    for entry in std::fs::read_dir(from.join("samples")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), images.join(entry.file_name())).unwrap();
    }
    folder
}

fn images(folder: &Folder) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path().join("images")).unwrap();
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.retain(|n| n.ends_with(".png"));
    names.sort();
    names
}

#[test]
fn a_folder_runs_in_batches_and_bad_images_are_named() {
    let folder = digits("stream-folder");
    let good = images(&folder);
    folder.write("images/2_broken.png", "no image");
    folder.write("images/5_photo.JPG", [0xff, 0xd8, 0xff]);
    let args = ["run", "digits.onnx", "images", "--batch", "4", "--labels", "labels.txt"];
    let output = folder.rlx(&args);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let (printed, told) = (out(&output), err(&output));
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), good.len(), "{printed}");
    for (line, name) in lines.iter().zip(&good) {
        let mut words = line.split_whitespace();
        assert!(Path::new(words.next().unwrap()).ends_with(name), "{line}, not {name}");
        assert_eq!(words.next(), name.get(..1), "{line}");
    }
    for (bad, why) in [("2_broken.png", "not a PNG"), ("5_photo.JPG", "not a JPEG image")] {
        assert!(told.contains(bad) && told.contains(why), "{told}");
    }
    assert!(told.contains(&format!("{} done, 2 failed", good.len())) && told.contains("items/s"), "{told}");
    let first = folder.rlx(&[&args[..], &["--fail-fast"]].concat());
    assert_eq!(first.status.code(), Some(1));
    let before = good.iter().filter(|n| n.as_str() < "2_broken.png").count();
    assert_eq!(out(&first).lines().count(), before, "{}", out(&first));
    assert!(err(&first).contains("1 failed, stopped there"), "{}", err(&first));
}

#[test]
fn batches_give_what_one_batch_gives() {
    let folder = digits("stream-same");
    let files: Vec<String> = images(&folder).iter().map(|n| format!("images/{n}")).collect();
    let whole: Vec<&str> = ["run", "digits.onnx"]
        .into_iter()
        .chain(files.iter().map(String::as_str))
        .chain(["--outputs", "whole.npz"])
        .collect();
    assert!(folder.rlx(&whole).status.success());
    let args = ["run", "digits.onnx", "images", "--batch", "3", "--outputs", "parts.npz", "--json"];
    let output = folder.rlx(&args);
    assert!(output.status.success(), "{}", err(&output));
    let report: Json = serde_json::from_slice(&output.stdout).expect("one JSON value");
    assert_eq!((report["done"].as_u64(), report["failed"].as_u64()), (Some(files.len() as u64), Some(0)));
    assert_eq!(report["items"].as_array().unwrap().len(), files.len());
    assert_eq!(report["items"][0]["outputs"][0]["shape"], json!([1, 10]));
    let read = |name: &str| -> Vec<(String, ConstData)> {
        rlx_weights::npz::read(folder.path().join(name)).unwrap()
    };
    assert_eq!(read("whole.npz"), read("parts.npz"));
}

#[test]
fn a_fixed_batch_is_filled_up() {
    let folder = Folder::new("stream-fixed");
    let pair = |name: &str| value(name, FLOAT, &["2", "3"]);
    folder.write("pair.onnx", model(&[pair("x")], &[node("Relu", &["x"], &["y"])], &[], &[pair("y")]));
    folder.write("items.jsonl", "[[-1, 2, 3]]\n\n[[4, -5, 6]]\n{\"x\": [[7, 8, -9]]}\n");
    let output = folder.rlx(&["run", "pair.onnx", "--lines", "items.jsonl"]);
    assert!(output.status.success(), "{}", err(&output));
    let got: Vec<Json> = out(&output).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let want = [[0.0, 2.0, 3.0], [4.0, 0.0, 6.0], [7.0, 8.0, 0.0]].map(|row| json!({ "y": [row] }));
    assert_eq!(got, want);
    assert!(err(&output).starts_with("3 done, 0 failed"), "{}", err(&output));
    let wrong = folder.rlx(&["run", "pair.onnx", "--lines", "items.jsonl", "--batch", "3"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(err(&wrong).contains("batches of 2, not 3"), "{}", err(&wrong));
}

/// A model of two inputs, of open batch and length.
fn sum(name: &str) -> Folder {
    let folder = Folder::new(name);
    let tokens = |name: &str| value(name, INT64, &["batch", "seq"]);
    let add = node("Add", &["ids", "mask"], &["sum"]);
    folder.write("sum.onnx", model(&[tokens("ids"), tokens("mask")], &[add], &[], &[tokens("sum")]));
    folder
}

#[test]
fn every_line_has_its_line() {
    let folder = sum("stream-lines");
    let lines = [
        r#"{"ids": [1, 2], "mask": [1, 1]}"#,
        r#"{"ids": [3, 4], "mask": [1, 0]}"#,
        r#"{"ids": [5, 6, 7], "mask": [1, 1, 1]}"#,
        r#"{"ids": [1.5], "mask": [1]}"#,
        r#"{"ids": [1]}"#,
        r#"{"ids": [1], "mask": [1], "extra": [1]}"#,
        r#"{"ids": [1, 2], "mask": [1, 2, 3]}"#,
        "[1, 2]",
        "not json",
        r#"{"ids": [[8, 9]], "mask": [[1, 1]]}"#,
    ];
    folder.write("items.jsonl", lines.join("\n"));
    let output = folder.rlx(&["run", "sum.onnx", "--lines", "items.jsonl", "--batch", "4"]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let got: Vec<Json> = out(&output).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(got.len(), lines.len(), "{}", out(&output));
    for (at, want) in
        [(0, json!([[2, 3]])), (1, json!([[4, 4]])), (2, json!([[6, 7, 8]])), (9, json!([[9, 10]]))]
    {
        assert_eq!(got[at]["sum"], want, "line {at}");
    }
    let kinds = ["dtype", "binding", "binding", "binding", "binding", "parse"];
    for (at, kind) in (3..9).zip(kinds) {
        assert_eq!(got[at]["error"]["kind"], kind, "line {at}: {}", got[at]);
        assert!(err(&output).contains(&format!("items.jsonl:{}: ", at + 1)), "{}", err(&output));
    }
    assert!(err(&output).contains("4 done, 6 failed"), "{}", err(&output));
}

#[test]
fn lines_come_from_standard_input_and_inputs_may_be_shared() {
    let folder = sum("stream-stdin");
    folder.write("mask.json", "[[10, 20]]");
    let args = ["run", "sum.onnx", "--lines", "-", "--input", "mask=mask.json"];
    let mut command = folder.command(&args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"[1, 2]\n[3, 4]\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(out(&output), "{\"sum\":[[11,22]]}\n{\"sum\":[[13,24]]}\n");
}

#[test]
fn inputs_that_cannot_be_streamed_are_errors() {
    let folder = sum("stream-wrong");
    std::fs::create_dir_all(folder.path().join("empty")).unwrap();
    folder.write("items.jsonl", "[1]");
    let failed = |code: i32, args: &[&str], part: &str| {
        let output = folder.rlx(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", err(&output));
        assert!(err(&output).contains(part), "{args:?}: {}", err(&output));
    };
    failed(1, &["run", "sum.onnx", "empty", "--input", "mask=random", "--dim", "seq=1"], "has no images");
    failed(1, &["run", "sum.onnx", "empty"], "input \"mask\" was not given");
    failed(1, &["run", "sum.onnx", "--lines", "none.jsonl"], "none.jsonl");
    failed(2, &["run", "sum.onnx", "empty", "--lines", "items.jsonl"], "--lines");
    failed(2, &["run", "sum.onnx", "--lines", "items.jsonl", "--batch", "0"], "--batch");
}

/// All that a terminal is sent while the command runs on it; nothing where no terminal can be made.
#[cfg(target_os = "linux")]
fn on_a_terminal(folder: &Folder, args: &[&str]) -> Option<String> {
    let plain = folder.command(args);
    let words = std::iter::once(plain.get_program()).chain(plain.get_args());
    let line: Vec<String> = words.map(|word| format!("'{}'", word.to_string_lossy())).collect();
    let mut script = std::process::Command::new("script");
    script.args(["--quiet", "--return", "--command", &line.join(" "), "/dev/null"]);
    script.current_dir(folder.path()).env("TERM", "xterm").stdin(Stdio::null());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    match script.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}{}", out(&output), err(&output));
            Some(out(&output))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            println!("@skip 1 `script` of util-linux, which makes a terminal, is not installed");
            None
        }
        Err(e) => panic!("script: {e}"),
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_bar_is_drawn_on_a_terminal_alone_and_vanishes() {
    const CLEAR: &str = "\x1b[2K";
    let folder = sum("stream-bar");
    let lines: String = (0..40).map(|i| format!("{{\"ids\": [[{i}, 1]], \"mask\": [[1, 2]]}}\n")).collect();
    folder.write("items.jsonl", lines);
    folder.write("ids.json", "[[1, 2]]");
    let stream = ["run", "sum.onnx", "--lines", "items.jsonl"];
    let once = ["run", "sum.onnx", "--input", "ids=ids.json", "--input", "mask=ids.json"];
    for args in [&stream[..], &once] {
        let piped = folder.rlx(args);
        assert!(piped.status.success(), "{}", err(&piped));
        let (printed, told) = (out(&piped), err(&piped));
        assert!(!printed.contains(['\x1b', '\r']) && !told.contains(['\x1b', '\r']), "{printed}{told}");
    }
    let Some(shown) = on_a_terminal(&folder, &stream) else { return };
    let printed = out(&folder.rlx(&stream));
    for line in printed.lines() {
        assert!(shown.contains(line), "the bar swallowed {line}: {shown}");
    }
    let bar = shown.rfind(" left").expect("a bar with the time that is left");
    assert!(shown[..bar].contains("/40"), "{shown}");
    let rest = &shown[bar..];
    assert!(rest.contains(CLEAR), "the bar stays: {rest}");
    assert!(
        rest.contains("40 done, 0 failed") && !rest[rest.rfind(CLEAR).unwrap()..].contains("/40"),
        "{rest}"
    );
    // A single run is too short for a bar: what moves meanwhile is gone in the end, too.
    let Some(shown) = on_a_terminal(&folder, &once) else { return };
    let last = shown.rfind(CLEAR).map_or(0, |at| at + CLEAR.len());
    assert!(shown[last..].contains('2') && !shown[last..].contains("running"), "{shown}");
}
