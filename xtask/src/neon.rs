//! The `neon` suite: the CPU backend's own tests on AArch64, run by QEMU's user mode.
//!
//! It needs the toolchain's AArch64 target, a cross linker and QEMU; what is missing is installed where that
//! is ours to do.

use crate::exec::{Run, cargo_command};
use crate::outcome::Outcome;
use crate::packages;
use std::process::Command;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const PACKAGES: &[&str] = &["qemu-user", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"];

/// Builds for AArch64 and runs its tests, those against the oracle included.
pub fn run(run: &Run) -> Outcome {
    if let Err(why) = ensure() {
        let note = format!("AArch64 tools: {why}");
        return if rlx_testdata::in_ci() { Outcome::fail(note) } else { Outcome::skip(note) };
    }
    let mut command = cargo_command(&["test", "--quiet", "--target", TARGET, "-p", "rlx-cpu", "--tests"]);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", "qemu-aarch64 -L /usr/aarch64-linux-gnu");
    run.tests(&mut command)
}

fn ensure() -> Result<(), String> {
    let there = |tool: &str| packages::said(Command::new(tool).arg("--version")).is_some();
    if !there("qemu-aarch64") || !there("aarch64-linux-gnu-gcc") {
        packages::install(PACKAGES)?;
    }
    match packages::said(Command::new("rustup").args(["target", "add", TARGET])) {
        Some(_) => Ok(()),
        None => Err(format!("`rustup target add {TARGET}` failed")),
    }
}
