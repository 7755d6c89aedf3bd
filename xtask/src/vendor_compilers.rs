//! The suites `nvrtc` and `amdgpu`: every kernel the tests make and every tile program, in CUDA C and HIP C, compiled by NVRTC and by clang's AMDGPU
//! back end. And the suite `headers`: the functions that the runtime calls, as the vendors' headers declare them.

use crate::exec::{Run, cargo_command};
use crate::outcome::Outcome;
use crate::{packages, root};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// What is in the machine code of tile programs, for NVIDIA's devices and for AMD's.
const MACHINE_CODE: &str = "crates/rlx-tile/tests/machine_code.tsv";
const MACHINE_CODE_AMD: &str = "crates/rlx-tile/tests/machine_code_amd.tsv";

/// Leaves what tests of this name render in a folder of `target/xtask`, and lists it.
fn rendered(run: &Run, language: &str, test: &str) -> Result<Vec<PathBuf>, Outcome> {
    let folder = root().join("target/xtask").join(language);
    let failed = |e: std::io::Error| Outcome::fail(format!("{}: {e}", folder.display()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(failed)?;
    // The whole workspace is named, so that nothing is compiled twice.
    let mut make = cargo_command(&["test", "--quiet", "--workspace", "--test", "render"]);
    let variable = format!("RLX_{}_OUT", language.to_uppercase());
    let made = run.check(make.args([test]).env(variable, &folder));
    if made.failed > 0 {
        return Err(made);
    }
    Ok(fs::read_dir(&folder).map_err(failed)?.flatten().map(|e| e.path()).collect())
}

/// A tool that compiles files and compares what is in the machine code of tile programs with a table.
fn checker(tool: &str, table: &str, files: Vec<PathBuf>) -> Command {
    let mut check = Command::new("python3");
    let arguments = [root().join("tools").join(tool).into(), OsString::from("--machine-code")];
    check.args(arguments).arg(root().join(table)).args(files);
    check
}

/// Writes the kernels in HIP C, then compiles them for AMD's architectures.
pub fn amdgpu(run: &Run) -> Outcome {
    if packages::said(Command::new("clang-19").arg("--version")).is_none()
        && let Err(why) = packages::install(&["clang-19"])
    {
        let note = format!("clang: {why}");
        return if rlx_testdata::in_ci() { Outcome::fail(note) } else { Outcome::skip(note) };
    }
    match rendered(run, "hip", "every_kernel_renders_as_hip") {
        Ok(files) => run.check(&mut checker("amdgpu_check.py", MACHINE_CODE_AMD, files)),
        Err(outcome) => outcome,
    }
}

/// Writes the kernels in CUDA C, then compiles them.
pub fn nvrtc(run: &Run) -> Outcome {
    let files = match rendered(run, "cuda", "every_kernel_renders_as_cuda") {
        Ok(files) => files,
        Err(outcome) => return outcome,
    };
    let mut check = checker("nvrtc_check.py", MACHINE_CODE, files);
    let package = rlx_testdata::NVRTC.folder().unwrap_or_default();
    let disassembler = rlx_testdata::NVDISASM.folder().unwrap_or_default();
    let mut outcome = run.check(check.env("RLX_NVRTC", &package).env("RLX_NVDISASM", disassembler));
    // As the runtime calls it; and what it makes of tile programs, on an emulator.
    let tests = ["--test", "simt", "--test", "ptx", "--test", "ptx_tensor"];
    let targets = [&["test", "--quiet", "--workspace"][..], &tests, &["nvrtc_"]].concat();
    let mut own = cargo_command(&targets);
    outcome.add(run.tests(own.env("RLX_NVRTC", &package)));
    outcome
}

/// What Debian has of HIP.
const HIP_HEADERS: &str = "libamdhip64-dev";

/// Compares the tables of functions with the vendors' headers and NVIDIA's library.
pub fn headers(run: &Run) -> Outcome {
    let hip = PathBuf::from("/usr/include");
    let mut notes = Outcome::default();
    if !hip.join("hip/hiprtc.h").is_file()
        && let Err(why) = packages::install(&[HIP_HEADERS])
    {
        let note = format!("HIP's headers: {why}");
        notes = if rlx_testdata::in_ci() { Outcome::fail(note) } else { Outcome::skip(note) };
    }
    let of = |set: &rlx_testdata::DataSet| set.folder().unwrap_or_default();
    let (cuda, cublas, nvrtc) =
        (of(&rlx_testdata::CUDA), of(&rlx_testdata::CUBLAS), of(&rlx_testdata::NVRTC));
    let include = [&cuda, &cublas, &nvrtc].map(|package| package.join("nvidia/cu13/include"));
    let include = std::env::join_paths(include).unwrap_or_default();
    let mut tests =
        cargo_command(&["test", "--workspace", "--test", "simt", "headers::", "--", "--nocapture"]);
    tests.env("RLX_CUDA_INCLUDE", include).env("RLX_CUBLAS", &cublas);
    if hip.join("hip/hiprtc.h").is_file() {
        tests.env("RLX_HIP_INCLUDE", &hip);
    }
    notes.add(run.tests(&mut tests));
    notes
}
