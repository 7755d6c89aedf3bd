//! The `miri` suite: the CPU backend's memory, pool and programs under Miri, which sees undefined behaviour.
//!
//! Miri interprets, a thousand times slower than the processor: it runs the portable kernels on the smallest graphs of
//! the tests, those about views, open dimensions, clones and packed parameters. The vector kernels differ from the
//! portable ones in the functions of `simd/` only.

use crate::exec::Run;
use crate::outcome::Outcome;
use crate::{packages, root};
use std::process::Command;

const TOOLCHAIN: &str = "nightly";

/// What runs: flags of Miri's own, and the arguments of each part.
const PARTS: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "-p",
            "rlx-cpu",
            "--lib",
            "--",
            "alloc::",
            // The tests of panics in kernels (`program::tests`) multiply matrices hundreds of times and did not end within forty minutes
            // of Miri's; the pool's own test of panics is below.
            "program::scratch::",
            "pool::tests::a_busy_pool_means_run_alone",
            "pool::tests::a_run_lends_its_helpers_to_runs_within_it",
            "pool::tests::what_was_lent_to_a_run_that_panics_comes_back",
            "pool::tests::a_run_that_outlives_its_loan_gives_helpers_to_the_pool",
            "pool::tests::a_panic_reaches_the_caller_and_the_pool_survives",
        ],
    ),
    // The process's own pool lives until the process ends, which Miri counts as a leak; the part above looks for those.
    (
        "-Zmiri-ignore-leaks",
        &[
            "-p",
            "rlx-cpu",
            "--test",
            "programs",
            "--",
            "a_changed_parameter_is_packed_again_and_clones_keep_theirs",
            "open_dimensions_bind_again_and_give_the_bits_of_fixed_ones",
            "dimensions_that_must_agree_are_checked",
            "a_missing_parameter_is_named",
        ],
    ),
];

/// Runs the parts.
pub fn run(run: &Run) -> Outcome {
    if let Err(why) = ensure() {
        let note = format!("Miri: {why}");
        return if rlx_testdata::in_ci() { Outcome::fail(note) } else { Outcome::skip(note) };
    }
    let mut outcome = Outcome::default();
    for (flags, part) in PARTS {
        let mut command = Command::new("rustup");
        command.args(["run", TOOLCHAIN, "cargo", "miri", "test", "--quiet"]).args(*part);
        command.current_dir(root()).env("CARGO_TARGET_DIR", root().join("target/miri"));
        // Threads and the clock are the process's own; the wish for a number of threads comes from the environment.
        command.env("MIRIFLAGS", format!("-Zmiri-disable-isolation {flags}")).env("RLX_NUM_THREADS", "2");
        command.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
        outcome.add(run.tests(&mut command));
    }
    outcome
}

fn ensure() -> Result<(), String> {
    let there = |args: &[&str]| packages::said(Command::new("rustup").args(args)).is_some();
    let installed = there(&["run", TOOLCHAIN, "cargo", "miri", "--version"]);
    let parts = ["toolchain", "install", TOOLCHAIN, "--profile", "minimal", "--component", "miri,rust-src"];
    if installed || there(&parts) { Ok(()) } else { Err(format!("`rustup {}` failed", parts.join(" "))) }
}
