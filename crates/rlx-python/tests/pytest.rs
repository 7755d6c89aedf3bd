//! The Python package's tests: the extension module that was built with this test, and `pytest` over this folder.
//!
//! `cargo xtask test --suite python` makes the environment with NumPy, `onnx` and `pytest`, and names its interpreter in
//! `RLX_TEST_PYTHON`. Without it the test is skipped by name; where `CI=true` that is a failure.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The folder of this crate.
const CRATE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn pytest() {
    if env::var_os("RLX_TEST_ONNX_CASES").is_some() {
        // The suite `onnx-newest` runs the other test alone.
        return;
    }
    let Some(python) = env::var_os("RLX_TEST_PYTHON") else {
        let reason = "Python's tests: RLX_TEST_PYTHON names no interpreter; `cargo xtask test --suite python` makes one";
        assert!(!rlx_testdata::in_ci(), "{reason}");
        println!("@skip 1 {reason}");
        return;
    };
    let package = package();
    // The package from this build, whatever the environment has.
    let output = Command::new(python)
        .args(["-m", "pytest", "-q", "-x", "--color=no", "-p", "no:cacheprovider"])
        .arg(Path::new(CRATE).join("tests"))
        .env("PYTHONPATH", &package)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("the interpreter starts");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let _ = fs::remove_dir_all(&package);
    println!("{text}{errors}");
    println!(
        "@counts passed={} failed={}",
        count(&text, "passed"),
        count(&text, "failed") + count(&text, "error")
    );
    if count(&text, "skipped") > 0 {
        println!(
            "@skip {} of pytest: packages that are not installed (torch, ml_dtypes)",
            count(&text, "skipped")
        );
    }
    assert!(output.status.success());
}

/// All cases of the `onnx` package that an interpreter has, by its own runner: `RLX_TEST_ONNX_CASES` names the list of those that fail.
/// `cargo xtask test --suite onnx-newest` does so for the newest release.
#[test]
fn onnx_runner() {
    let (Some(python), Some(list)) = (env::var_os("RLX_TEST_PYTHON"), env::var_os("RLX_TEST_ONNX_CASES"))
    else {
        return;
    };
    let package = package();
    let output = Command::new(python)
        .args(["-m", "rlx.backend", "--exceptions"])
        .arg(list)
        .env("PYTHONPATH", &package)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("the interpreter starts");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let _ = fs::remove_dir_all(&package);
    println!("{text}");
    let last = text.lines().last().unwrap_or_default();
    let count = |word: &str| {
        let value = last.split(' ').find_map(|pair| pair.strip_prefix(word)?.strip_prefix('='));
        value.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
    };
    println!("@counts passed={} failed={}", count("passed"), u64::from(!output.status.success()));
    assert!(output.status.success(), "{errors}");
}

/// `12 passed` in pytest's last line.
fn count(text: &str, word: &str) -> u64 {
    let last = text.lines().rev().find(|line| line.contains(" in ")).unwrap_or_default();
    let words: Vec<&str> = last.split([' ', ',']).filter(|w| !w.is_empty()).collect();
    let at = words.iter().position(|w| w.starts_with(word));
    at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok()).unwrap_or(0)
}

/// The package as a wheel would install it: its Python files, and the extension module beside them.
fn package() -> PathBuf {
    let folder = env::temp_dir().join(format!("rlx-python-{}", std::process::id()));
    copy(&Path::new(CRATE).join("python"), &folder);
    let suffix = if cfg!(windows) { "_native.pyd" } else { "_native.abi3.so" };
    fs::copy(library(), folder.join("rlx").join(suffix)).expect("the extension module is copied");
    folder
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a temporary folder");
    for entry in fs::read_dir(from).expect("the package's files").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && name != "__pycache__" {
            copy(&path, &to.join(name));
        } else if path.is_file() {
            fs::copy(&path, to.join(name)).expect("a file is copied");
        }
    }
}

/// The extension module: beside this test, where cargo put the libraries that it was built with.
fn library() -> PathBuf {
    let (prefix, suffix) = (env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let test = env::current_exe().expect("this test has a path");
    let path = test.parent().expect("it is in a folder").join(format!("{prefix}rlx_native{suffix}"));
    assert!(path.is_file(), "cargo built no {}", path.display());
    path
}
