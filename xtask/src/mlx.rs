//! The shim over MLX: built by the system's C++ compiler for an installed MLX, and the suite that runs the device on it.
//!
//! MLX's Python package has its headers and its library; on Linux `mlx[cpu]` computes on the CPU. Nothing of it is part of a build of
//! RLX, which loads the shim at run time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::exec::{Run, cargo_command};
use crate::outcome::Outcome;
use crate::{python, root};

/// MLX for the CPU, pinned; with the number, the name of its environment.
const PACKAGES: &[&str] = &["mlx[cpu]==0.32.4"];
const ENVIRONMENT: &str = "mlx-1";

/// What the shim is made of.
const SOURCES: [&str; 3] = ["operations.cpp", "program.cpp", "rlx_mlx.cpp"];

/// Builds the shim for the MLX in `package`, or for one that is fetched, and prints what to set.
///
/// # Errors
/// What is missing, or what the compiler says.
pub fn task(package: Option<&Path>) -> Result<(), String> {
    let package = package.map_or_else(fetched, |folder| Ok(folder.to_owned()))?;
    let folder = build(&package)?;
    println!("RLX_LIBRARY_PATH={}", folder.display());
    Ok(())
}

/// The folder `mlx` of the Python package.
fn fetched() -> Result<PathBuf, String> {
    let python = python::environment(ENVIRONMENT, PACKAGES)?;
    let ask = "import importlib.util as u; print(list(u.find_spec('mlx').submodule_search_locations)[0])";
    let output = Command::new(&python).args(["-c", ask]).output().map_err(|e| format!("Python: {e}"))?;
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if folder.join("include/mlx/mlx.h").is_file() {
        Ok(folder)
    } else {
        Err(format!("{} has no headers of MLX", folder.display()))
    }
}

/// Builds the shim into a folder of its own.
fn build(package: &Path) -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let folder = target.join("mlx");
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let name = if cfg!(target_os = "macos") { "librlx_mlx.dylib" } else { "librlx_mlx.so" };
    let (shim, libraries) = (root().join("crates/rlx-mlx/shim"), package.join("lib"));
    let mut compiler = Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned()));
    compiler.args(["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra"]);
    // MLX's own headers are not ours to mend.
    compiler.arg("-isystem").arg(package.join("include"));
    compiler.args(SOURCES.map(|source| shim.join(source)));
    compiler.arg("-L").arg(&libraries).arg("-lmlx").arg(format!("-Wl,-rpath,{}", libraries.display()));
    compiler.arg("-o").arg(folder.join(name));
    let output = compiler.output().map_err(|e| format!("a C++ compiler (Debian: g++): {e}"))?;
    if output.status.success() {
        return Ok(folder);
    }
    Err(format!("the shim does not compile:\n{}", String::from_utf8_lossy(&output.stderr)))
}

/// The suite: the device's own tests, the ONNX node cases and the contract on it.
pub fn run(run: &Run) -> Outcome {
    let folder = match fetched() {
        Ok(package) => match build(&package) {
            Ok(folder) => folder,
            Err(why) => return Outcome::fail(why),
        },
        Err(why) if rlx_testdata::in_ci() => return Outcome::fail(why),
        Err(why) => return Outcome::skip(format!("MLX: {why}")),
    };
    let mut outcome = Outcome::default();
    // Whose tests, and which of them.
    let parts = [
        ("rlx-mlx", "mlx", "", ""),
        ("rlx-onnx", "node_suite", "rlx-runtime/mlx", "on_mlx"),
        ("rlx-contract", "contract_*", "mlx", "mlx::"),
        ("rlx-contract", "contract_devices_built", "mlx", ""),
    ];
    for (package, targets, features, only) in parts {
        let mut command = cargo_command(&["test", "--no-fail-fast", "-p", package, "--test", targets]);
        command.args(["--features", features, "--", "--nocapture", only]);
        command.env("RLX_LIBRARY_PATH", &folder).env("RLX_TEST_DEVICES", "mlx").env("RLX_TEST_ALL", "1");
        let found = run.tests(&mut command);
        outcome.add(if only == "mlx::" { found.of_contract("mlx") } else { found });
    }
    outcome
}
