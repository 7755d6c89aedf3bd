//! The suites of the Python package: its tests on the build of the workspace, its wheel in a fresh environment, and all of ONNX's cases.

use crate::data::python;
use crate::exec::Run;
use crate::outcome::Outcome;
use crate::root;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the tests import, pinned; with the number, the name of their environment.
const PACKAGES: &[&str] = &["numpy==2.2.6", "onnx==1.20.0", "ml_dtypes==0.5.4", "pytest==8.4.2"];
const ENVIRONMENT: &str = "python-tests-1";

/// The newest `onnx`, whose cases `tests/node_suite/newest.txt` is about.
const NEWEST: &[&str] = &["numpy==2.4.6", "onnx==1.23.2", "ml_dtypes==0.6.0"];
const NEWEST_ENVIRONMENT: &str = "onnx-newest-1";

/// The largest wheel that is accepted.
const MOST_BYTES: u64 = 8 << 20;

/// `crates/rlx-python/tests` by pytest, on the extension module that the suite `build` made.
pub fn tests(run: &Run) -> Outcome {
    match environment(ENVIRONMENT, PACKAGES) {
        Ok(python) => run.test_targets_with(&["pytest"], &[("RLX_TEST_PYTHON", &python)]),
        Err(why) => absent(&why),
    }
}

/// ONNX's cases, those of the pinned release and those that the newest one generates: by this workspace's runner and by ONNX's own. For each
/// release one list says which cases fail, and both runners are held to exactly that list, so their counts are equal.
pub fn onnx_cases(run: &Run) -> Outcome {
    let (pinned, newest) = match (environment(ENVIRONMENT, PACKAGES), environment(NEWEST_ENVIRONMENT, NEWEST))
    {
        (Ok(pinned), Ok(newest)) => (pinned, newest),
        (Err(why), _) | (_, Err(why)) => return absent(&why),
    };
    let lists = root().join("crates/rlx-onnx/tests/node_suite");
    let cases = root().join("target/xtask/onnx-cases");
    let _ = fs::remove_dir_all(&cases);
    let mut generate = Command::new(&newest);
    generate.arg(root().join("tools/conformance.py")).arg("--write-cases").arg(&cases);
    let generated = run.check(&mut generate);
    if generated.failed > 0 {
        return generated;
    }
    let (of_pinned, of_newest) = (lists.join("expected.txt"), lists.join("newest.txt"));
    let mut outcome = run.test_targets_with(
        &["node_suite"],
        &[("RLX_NODE_FOLDER", cases.as_path()), ("RLX_NODE_LIST", of_newest.as_path())],
    );
    for (python, list) in [(&pinned, &of_pinned), (&newest, &of_newest)] {
        let env = [("RLX_TEST_PYTHON", python.as_path()), ("RLX_TEST_ONNX_CASES", list.as_path())];
        outcome.add(run.test_targets_with(&["pytest"], &env));
    }
    outcome
}

/// The wheel as users build it, and the script for ONNX Runtime in an environment that has nothing else.
pub fn wheel(run: &Run) -> Outcome {
    let Some(python) = python() else { return absent("no Python (3)") };
    match built_and_used(run, python) {
        Ok(outcome) => outcome,
        Err(note) => Outcome::fail(note),
    }
}

/// The outcome where there is no environment.
pub fn absent(why: &str) -> Outcome {
    let note = format!("the environment of the tests: {why}");
    if rlx_testdata::in_ci() { Outcome::fail(note) } else { Outcome::skip(note) }
}

/// The interpreter of the environment called `name`, which is made with these packages first when it is not there.
pub fn environment(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let folder = rlx_testdata::cache_dir().map_err(|e| e.to_string())?.join(name);
    let complete = folder.join("complete");
    let interpreter = interpreter(&folder);
    if complete.is_file() {
        return Ok(interpreter);
    }
    let python = python().ok_or("no Python (3) with pip")?;
    finish(Command::new(python).args(["-m", "venv", "--clear"]).arg(&folder), "making an environment")?;
    let mut pip = Command::new(&interpreter);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"])
        .args(packages);
    finish(&mut pip, "installing what the tests import")?;
    fs::write(&complete, packages.join("\n")).map_err(|e| format!("{}: {e}", complete.display()))?;
    Ok(interpreter)
}

fn interpreter(environment: &Path) -> PathBuf {
    if cfg!(windows) { environment.join("Scripts/python.exe") } else { environment.join("bin/python") }
}

fn finish(command: &mut Command, what: &str) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("{what}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
    Err(format!("{what}: {last}"))
}

fn built_and_used(run: &Run, python: &str) -> Result<Outcome, String> {
    let (package, folder) = (root().join("crates/rlx-python"), root().join("target/xtask/wheel"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut build = Command::new(python);
    build
        .args(["-m", "pip", "wheel", "--no-deps", "--disable-pip-version-check", "-w"])
        .arg(&folder)
        .arg(&package);
    // The folder of release builds, so that what is there already is used.
    let built = run.check(build.env("CARGO_TARGET_DIR", root().join("target")));
    if built.failed > 0 {
        return Ok(built);
    }
    let wheels = fs::read_dir(&folder).map_err(|e| e.to_string())?.flatten().map(|entry| entry.path());
    let wheel =
        wheels.into_iter().find(|p| p.extension().is_some_and(|e| e == "whl")).ok_or("pip left no wheel")?;
    let size = fs::metadata(&wheel).map_err(|e| e.to_string())?.len();
    if size > MOST_BYTES {
        return Err(format!("{} has {size} bytes, more than {MOST_BYTES}", wheel.display()));
    }
    let fresh = folder.join("environment");
    finish(Command::new(python).args(["-m", "venv"]).arg(&fresh), "making an environment")?;
    let python = interpreter(&fresh);
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).arg(&wheel);
    finish(&mut install, "installing the wheel")?;
    let mut outcome = run.check(Command::new(&python).arg(package.join("tests/fresh_environment.py")));
    outcome.detail = format!("wheel of {:.1} MB", size as f64 / 1e6);
    Ok(outcome)
}
