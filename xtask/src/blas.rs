//! The `blas` suite: the CPU's matmuls by OpenBLAS, the one BLAS that every system's packages have.

use crate::exec::{Run, cargo_command};
use crate::outcome::Outcome;
use crate::packages;
use std::process::Command;

/// What Debian and its kin call it.
const PACKAGES: &[&str] = &["libopenblas0-pthread"];

/// Runs the tests of the feature, with the library installed where that is ours to do.
pub fn run(run: &Run) -> Outcome {
    let known = packages::said(Command::new("ldconfig").arg("-p")).unwrap_or_default();
    if cfg!(target_os = "linux")
        && !known.contains("libopenblas.so.0")
        && let Err(why) = packages::install(PACKAGES)
    {
        let note = format!("OpenBLAS: {why}");
        return if rlx_testdata::in_ci() { Outcome::fail(note) } else { Outcome::skip(note) };
    }
    let args = ["test", "--quiet", "-p", "rlx-cpu", "--features", "blas-openblas", "--test", "blas"];
    run.tests(&mut cargo_command(&args))
}
