//! The `nvrtc` suite: every kernel the tests make and every tile program, in CUDA C, compiled by NVRTC.

use crate::exec::{Run, cargo_command};
use crate::outcome::Outcome;
use crate::root;
use std::fs;
use std::process::Command;

/// What is in the machine code of tile programs.
const MACHINE_CODE: &str = "crates/rlx-tile/tests/machine_code.tsv";

/// Writes the kernels, then compiles them.
pub fn run(run: &Run) -> Outcome {
    let folder = root().join("target/xtask/cuda");
    let _ = fs::remove_dir_all(&folder);
    if let Err(e) = fs::create_dir_all(&folder) {
        return Outcome::fail(format!("{}: {e}", folder.display()));
    }
    // The whole workspace is named, so that nothing is compiled twice.
    let mut make = cargo_command(&["test", "--quiet", "--workspace", "--test", "render"]);
    make.args(["every_kernel_renders_as_cuda"]).env("RLX_CUDA_OUT", &folder);
    let made = run.check(&mut make);
    if made.failed > 0 {
        return made;
    }
    let files: Vec<_> = match fs::read_dir(&folder) {
        Ok(entries) => entries.flatten().map(|e| e.path()).collect(),
        Err(e) => return Outcome::fail(format!("{}: {e}", folder.display())),
    };
    let mut check = Command::new("python3");
    check
        .arg(root().join("tools/nvrtc_check.py"))
        .arg("--machine-code")
        .arg(root().join(MACHINE_CODE))
        .args(files);
    let package = rlx_testdata::NVRTC.folder().unwrap_or_default();
    let disassembler = rlx_testdata::NVDISASM.folder().unwrap_or_default();
    let mut outcome = run.check(check.env("RLX_NVRTC", &package).env("RLX_NVDISASM", disassembler));
    // And as the runtime calls it.
    let mut own = cargo_command(&["test", "--quiet", "--workspace", "--test", "simt", "nvrtc_"]);
    outcome.add(run.tests(own.env("RLX_NVRTC", &package)));
    outcome
}
