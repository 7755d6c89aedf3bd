//! Named pipes and devices where the command takes a file: an immediate error, even if no other process ever writes to the pipe.
#![cfg(unix)]

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::Folder;
use rlx_testdata::models::folder;

/// The command's exit code and what it said; it must end by itself.
fn ends(folder: &Folder, args: &[&str]) -> (Option<i32>, String) {
    let mut command = folder.command(args);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let begun = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if begun.elapsed() > Duration::from_secs(60) {
            child.kill().expect("a child");
            panic!("{args:?} waits");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("a child");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn pipes_and_devices_given_as_files_are_errors_at_once() {
    let own = Folder::new("special-files");
    let model = folder().join("digits/digits.onnx");
    let model = model.to_str().expect("text");
    let image = folder().join("digits/samples/0_a.png");
    let image = image.to_str().expect("text");
    for name in ["pipe", "pipe.onnx", "pipe.rlx", "pipe.npy", "pipe.npz", "pipe.png", "pipe.json", "pipe.txt"]
    {
        let made = Command::new("mkfifo").arg(own.path().join(name)).status();
        assert!(made.expect("mkfifo").success());
    }
    let cases: &[&[&str]] = &[
        &["run", "pipe"],
        &["run", "pipe.onnx"],
        &["run", "pipe.rlx"],
        &["inspect", "pipe.onnx"],
        &["compile", "pipe.onnx", "-o", "out.rlx"],
        &["verify", "pipe.rlx"],
        &["run", "/dev/zero"],
        &["run", model, "pipe.npy"],
        &["run", model, "pipe.png"],
        &["run", model, "--inputs", "pipe.npz"],
        &["run", model, "--input", "image=pipe.json"],
        &["run", model, image, "--labels", "pipe.txt"],
    ];
    for args in cases {
        let (code, message) = ends(&own, args);
        assert!(matches!(code, Some(1 | 2)), "{args:?}: {code:?}: {message}");
        assert!(message.contains("a named pipe") || message.contains("a device"), "{args:?}: {message}");
    }
    // A tuning or calibration that is a pipe is a warning at most.
    let (code, message) = ends(&own, &["run", model, image]);
    assert_eq!(code, Some(0), "{message}");
}
