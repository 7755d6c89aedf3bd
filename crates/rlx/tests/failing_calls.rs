//! The command while a system call fails: each call in turn, and all calls from each one on, as on a full disk.
//!
//! A library that `cc` builds from `faults/shim.c` is preloaded between the command and the C library. Whatever fails, the command
//! ends by itself, correctly or with a message, and leaves no incomplete file that a later command would accept: the same command
//! without faults succeeds afterwards, with the same cache. A command that only caches something for later succeeds even
//! if nothing can be written.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use common::{FLOAT, Folder, external, model, node, value};
use rlx_runtime::{AotCache, Artefact};
use serde_json::Value as Json;

/// `ENOSPC`, `EIO`, `EACCES`, `EMFILE`, in turn.
const ERRORS: [&str; 4] = ["28", "5", "13", "24"];

/// More calls than this no command makes.
const MOST_CALLS: usize = 2000;

/// The library that lets calls fail.
static SHIM: LazyLock<(Folder, PathBuf)> = LazyLock::new(|| {
    let folder = Folder::new("faults-shim");
    let (source, library) =
        (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/shim.c"), folder.path().join("shim.so"));
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(source)
        .arg("-ldl")
        .output();
    let made = made.expect("cc, which also links every program of Rust");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (folder, library)
});

/// A model with data beside it that is mapped, and its input.
fn model_folder(name: &str) -> Folder {
    let folder = Folder::new(&format!("faults-{name}"));
    let (x, y) = (value("x", FLOAT, &["1", "4"]), value("y", FLOAT, &["1", "4"]));
    let product = node("MatMul", &["x", "w"], &["y"]);
    folder.write("m.onnx", model(&[x], &[product], &[external("w", &[4, 4], "w.bin")], &[y]));
    folder.write("w.bin", 2f32.to_le_bytes().repeat(300_000));
    folder.write("x.json", "[[1, 2, 3, 4]]");
    std::thread::sleep(std::time::Duration::from_millis(40));
    folder
}

/// A command, and what must hold of what it left in its folder whenever it said that all went well.
struct Scenario<'a> {
    name: &'a str,
    args: &'a [&'a str],
    /// Whether what earlier commands left stays there.
    warm: bool,
    /// Whether it writes nothing but what it keeps for later: then it does its job on a full disk, too.
    keeps_only: bool,
    check: fn(&Folder, &Output),
}

/// The outputs that a report in JSON gives.
fn right_report(_: &Folder, output: &Output) {
    let report: Json = serde_json::from_slice(&output.stdout).expect("one JSON value");
    let values = &report["outputs"][0]["values"];
    assert_eq!(values.to_string(), "[20.0,20.0,20.0,20.0]", "{report}");
}

fn right_file(folder: &Folder, _: &Output) {
    let text = std::fs::read_to_string(folder.path().join("out.json")).expect("the outputs were written");
    assert_eq!(text, "{\"y\":[[20.0,20.0,20.0,20.0]]}\n");
}

fn right_artefact(folder: &Folder, _: &Output) {
    Artefact::open(folder.path().join("m.rlx")).expect("an artefact").verify().expect("a whole one");
}

fn any(_: &Folder, _: &Output) {}

impl Scenario<'_> {
    /// Lets every call fail in turn; says how many there were, and how often the command failed.
    fn sweep(&self, lasting: bool) -> (usize, usize) {
        let folder = model_folder(&format!("{}-{lasting}", self.name));
        if self.warm {
            self.right(&folder);
        }
        let mut failed = 0;
        for at in 1..MOST_CALLS {
            let hit = folder.path().join("hit");
            let output = self.faulty(&folder, at, lasting, &hit);
            if !hit.exists() {
                (self.check)(&folder, &output);
                return (at, failed);
            }
            std::fs::remove_file(&hit).expect("it is there");
            self.judge(&folder, &output, at);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                !lasting || !self.keeps_only || output.status.success(),
                "{}, from {at}: {said}",
                self.name
            );
            failed += usize::from(!output.status.success());
            let cache = folder.path().join("cache");
            let left = ["cache/aot", "out.json", "m.rlx"].map(|name| folder.path().join(name));
            if left.iter().any(|path| path.exists()) {
                self.right(&folder);
            }
            if !self.warm {
                let _ = std::fs::remove_dir_all(&cache);
                left[1..].iter().for_each(|path| _ = std::fs::remove_file(path));
            }
        }
        panic!("{}: more than {MOST_CALLS} calls", self.name);
    }

    fn faulty(&self, folder: &Folder, at: usize, lasting: bool, hit: &Path) -> Output {
        let mut command = folder.command(self.args);
        command.env("LD_PRELOAD", &SHIM.1).env("FAULT_AT", at.to_string()).env("FAULT_HIT", hit);
        command.env("RLX_NUM_THREADS", "2");
        let error = if lasting { "28" } else { ERRORS[at % ERRORS.len()] };
        if lasting {
            command.env("FAULT_ON", "1");
        }
        command.env("FAULT_ERRNO", error).output().expect("the command starts")
    }

    /// It ends by itself, right or with a message, and what it left is whole.
    fn judge(&self, folder: &Folder, output: &Output, at: usize) {
        let said = String::from_utf8_lossy(&output.stderr);
        let name = self.name;
        assert!(!said.contains("panicked"), "{name}, call {at}: {said}");
        match output.status.code() {
            Some(0) => (self.check)(folder, output),
            Some(1) => assert!(said.contains("error"), "{name}, call {at}: no message: {said:?}"),
            _ => panic!("{name}, call {at}: {}: {said}", output.status),
        }
        let cache = AotCache::new(folder.path().join("cache/aot"));
        for entry in cache.entries().expect("the cache is the test's own") {
            cache.verify_entry(&entry).unwrap_or_else(|e| panic!("{name}, call {at}: {e}"));
        }
        for (file, check) in [("out.json", right_file as fn(&Folder, &Output)), ("m.rlx", right_artefact)] {
            if folder.path().join(file).exists() {
                check(folder, output);
            }
        }
    }

    /// Without faults everything works, whatever files were left.
    fn right(&self, folder: &Folder) {
        let output =
            folder.command(self.args).env("RLX_NUM_THREADS", "2").output().expect("the command starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{}: {said}", self.name);
        (self.check)(folder, &output);
        let parts: Vec<String> = [folder.path().to_owned(), folder.path().join("cache/aot")]
            .iter()
            .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.ends_with(".part"))
            .collect();
        assert!(self.warm || parts.is_empty(), "{}: {parts:?} are left", self.name);
    }

    /// Sweeps once with single faults, and once with all that follow.
    fn run(&self) {
        let ((single, failed), (lasting, _)) = (self.sweep(false), self.sweep(true));
        println!(
            "{}: {single} single faults, {failed} of which end the command, {lasting} lasting ones",
            self.name
        );
        assert!(single > 20 && failed > 0 && failed < single, "{}: the faults do not reach it", self.name);
    }
}

const RUN: &[&str] = &["run", "m.onnx", "--input", "x=x.json", "--json"];

#[test]
fn run_that_keeps_the_model() {
    let args = [RUN, &["--cache"]].concat();
    Scenario { name: "cold", args: &args, warm: false, keeps_only: true, check: right_report }.run();
}

#[test]
fn run_from_a_cached_model() {
    let args = [RUN, &["--cache"]].concat();
    Scenario { name: "warm", args: &args, warm: true, keeps_only: true, check: right_report }.run();
}

#[test]
fn run_that_writes_outputs() {
    let args = [RUN, &["--outputs", "out.json"]].concat();
    Scenario { name: "outputs", args: &args, warm: false, keeps_only: false, check: right_file }.run();
}

#[test]
fn compile() {
    let args = ["compile", "m.onnx", "-o", "m.rlx"];
    Scenario { name: "compile", args: &args, warm: false, keeps_only: false, check: right_artefact }.run();
}

#[test]
fn bench() {
    let args = ["bench", "m.onnx", "--runs", "2", "--cache"];
    Scenario { name: "bench", args: &args, warm: false, keeps_only: true, check: any }.run();
}
