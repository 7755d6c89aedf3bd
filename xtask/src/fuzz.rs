//! The `fuzz-` suites: libFuzzer under AddressSanitizer on the targets of `fuzz/`.
//!
//! A target passes when it ran as often, and as long, as it must, and nothing was found. Each core runs processes of some
//! hundred thousand executions, one after the other on a corpus that grows, so that what a process keeps for ever is bounded
//! as it is in use.

use crate::exec::Run;
use crate::outcome::Outcome;
use crate::{packages, root};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const TOOLCHAIN: &str = "nightly";

/// A target is executed so often.
const EXECUTIONS: u64 = 1_000_000;

/// Executions of one process.
const EACH: u64 = 100_000;

/// Seconds that one execution may take, and MiB that the process may, AddressSanitizer's own included.
const TIMEOUT_S: u64 = 20;
const MEMORY_MB: u64 = 3072;

/// Where targets that need a file on each execution write it, where there is such a folder.
const MEMORY_FOLDER: &str = "/dev/shm";

/// What libFuzzer is told besides, by target. To prefer inputs that reach what few others do, it counts for each of them how
/// often each edge was taken; a target that compiles graphs has so many edges that this takes several times as long as the
/// target itself. Where the bytes are choices of a generator, how often an edge was taken says little, too.
const OPTIONS: &[(&str, &[&str])] =
    &[("contradictions", &["-entropic=0", "-use_counters=0"]), ("importer", &["-entropic=0"])];

/// Targets built without the trace of comparisons, which tells a fuzzer what a parser expects and costs time where nothing parses.
const NO_COMPARISONS: &[&str] = &["contradictions"];

/// AddressSanitizer's options. Interned expressions look like leaks, and one frame of an allocation's stack is enough to find
/// the place. An allocation too large for a fuzzer fails, as it may anywhere. Frames on the heap, to find uses of a function's
/// locals after its return, cost a quarter of the time and find what the borrow checker and Miri find.
const ASAN: &str = "detect_leaks=0:malloc_context_size=1:quarantine_size_mb=16:allocator_may_return_null=1:\
                    max_allocation_size_mb=512:detect_stack_use_after_return=0";

/// What one process did, as libFuzzer says it.
const COUNT: &str = "stat::number_of_executed_units:";

/// Fuzzes `target` until it ran [`EXECUTIONS`] times and `least_s` seconds, or the suite's budget is spent.
pub fn run(run: &Run, target: &str, least_s: u64) -> Outcome {
    if let Err(why) = ensure() {
        let note = format!("cargo-fuzz: {why}");
        return if rlx_testdata::in_ci() { Outcome::fail(note) } else { Outcome::skip(note) };
    }
    let built = run.check(&mut cargo_fuzz("build", target));
    if built.failed > 0 {
        return built;
    }
    // A process that is ended by the budget needs some time to say so.
    let until = run.due - Duration::from_secs(2 * TIMEOUT_S);
    let (start, executions, stop) = (Instant::now(), AtomicU64::new(0), AtomicBool::new(false));
    // What processes that have begun are going to do: no core begins one that is not needed.
    let begun = AtomicU64::new(0);
    let one_after_the_other = &|core: usize| -> Result<(), String> {
        let run = run.part(core).map_err(|e| e.to_string())?;
        while begun.fetch_add(EACH, Relaxed) < EXECUTIONS || start.elapsed().as_secs() < least_s {
            let left = until.saturating_duration_since(Instant::now()).as_secs();
            if left == 0 || stop.load(Relaxed) {
                break;
            }
            let output = command(target, left).and_then(|mut command| match run.capture(&mut command)? {
                (true, output) => Ok(output),
                (false, output) => Err(what_was_found(&output)),
            });
            let made = output.inspect_err(|_| stop.store(true, Relaxed))?;
            executions.fetch_add(count(&made).unwrap_or(0), Relaxed);
        }
        Ok(())
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let found = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|core| scope.spawn(move || one_after_the_other(core))).collect();
        let ended = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())));
        ended.fold(Ok(()), Result::and)
    });
    if let Err(e) = found {
        return Outcome::fail(e);
    }
    let (seconds, executions) = (start.elapsed().as_secs(), executions.into_inner());
    let done = format!("{executions} executions in {seconds} s");
    if executions < EXECUTIONS || seconds < least_s {
        return Outcome::fail(format!(
            "{target}: only {done}; {EXECUTIONS} in at least {least_s} s are wanted"
        ));
    }
    Outcome { detail: done, ..Outcome::pass() }
}

/// One process, which ends after `left` seconds at the latest.
fn command(target: &str, left: u64) -> Result<Command, String> {
    let fuzz = root().join("fuzz");
    let (found, grown) = (root().join("target/fuzz/found"), root().join("target/fuzz/corpus").join(target));
    for folder in [&found, &grown] {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let mut command = cargo_fuzz("run", target);
    if Path::new(MEMORY_FOLDER).is_dir() {
        command.env("TMPDIR", MEMORY_FOLDER);
    }
    command.arg(&grown);
    let kept = fuzz.join("corpus").join(target);
    if kept.is_dir() {
        command.arg(kept);
    }
    command.env("ASAN_OPTIONS", ASAN);
    // The names of functions reached for the first time cost a symbolizer that reads the whole binary, and looking each second
    // for what the other process found is a tenth of the time where the corpus has many files.
    command.args(["--", "-print_final_stats=1", "-print_funcs=0", "-detect_leaks=0", "-reload=30"]);
    command.arg(format!("-artifact_prefix={}/{target}-", found.display()));
    command.arg(format!("-runs={EACH}")).arg(format!("-max_total_time={left}"));
    command.arg(format!("-timeout={TIMEOUT_S}")).arg(format!("-rss_limit_mb={MEMORY_MB}"));
    OPTIONS.iter().filter(|(name, _)| *name == target).for_each(|(_, options)| _ = command.args(*options));
    let dictionary = fuzz.join("dictionaries").join(format!("{target}.dict"));
    if dictionary.is_file() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    Ok(command)
}

/// `cargo fuzz` with `verb` on the nightly toolchain, in the workspace's root and target folder.
fn cargo_fuzz(verb: &str, target: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", TOOLCHAIN, "cargo", "fuzz", verb, "--target-dir"]).arg(root().join("target/fuzz"));
    if NO_COMPARISONS.contains(&target) {
        command.arg("--no-trace-compares");
    }
    command.arg(target).current_dir(root());
    command.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// How many executions a process says it made.
fn count(output: &str) -> Option<u64> {
    output.lines().rev().find_map(|line| line.strip_prefix(COUNT)?.trim().parse().ok())
}

/// The part of the output that says what broke: from the first report on, without the fuzzer's progress.
fn what_was_found(output: &str) -> String {
    let is_progress = |line: &&str| line.starts_with('#') || line.trim().is_empty();
    let lines: Vec<&str> = output.lines().filter(|line| !is_progress(line)).collect();
    let report = |line: &&str| line.contains("panicked at") || line.contains("ERROR:");
    let from = lines.iter().position(report).unwrap_or_else(|| lines.len().saturating_sub(40));
    lines[from..].iter().take(60).copied().collect::<Vec<_>>().join("\n")
}

fn ensure() -> Result<(), String> {
    let there = |args: &[&str]| packages::said(Command::new("rustup").args(args)).is_some();
    let toolchain = ["toolchain", "install", TOOLCHAIN, "--profile", "minimal"];
    if !there(&["run", TOOLCHAIN, "cargo", "--version"]) && !there(&toolchain) {
        return Err(format!("`rustup {}` failed", toolchain.join(" ")));
    }
    let install = ["run", TOOLCHAIN, "cargo", "install", "--locked", "cargo-fuzz"];
    if there(&["run", TOOLCHAIN, "cargo", "fuzz", "--version"]) || there(&install) {
        return Ok(());
    }
    Err(format!("`rustup {}` failed", install.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_are_read_from_the_last_statistics() {
        let output =
            "#2\tINITED\nstat::number_of_executed_units: 12\nstat::number_of_executed_units: 250000\n";
        assert_eq!(count(output), Some(250_000));
        assert_eq!(count("#2 INITED"), None);
    }

    #[test]
    fn a_report_is_told_from_progress() {
        let output = "#2\tINITED\nthread panicked at src/x.rs:1:\nwhy\n#3\tNEW\nstack\n";
        assert_eq!(what_was_found(output), "thread panicked at src/x.rs:1:\nwhy\nstack");
    }

    #[test]
    fn every_target_has_its_suite() {
        let targets = fs::read_dir(root().join("fuzz/fuzz_targets")).unwrap();
        for target in targets {
            let name = target.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned();
            let suite = format!("fuzz-{name}");
            assert!(crate::suites::SUITES.iter().any(|s| s.name == suite), "{name} has no suite");
        }
    }
}
