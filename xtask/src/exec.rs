//! Running commands: output into a log file, a hard time limit, counts from what was printed.

use crate::outcome::Outcome;
use crate::root;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// One suite's surroundings: its name (also its log's), when it should end, and when it is ended.
pub struct Run {
    pub suite: &'static str,
    /// The end of its budget.
    pub due: Instant,
    pub deadline: Instant,
    /// Which of several that run at the same time it is; each has a log of its own.
    part: Option<usize>,
}

impl Run {
    /// A run that is ended at twice its budget (this stops a hang).
    pub fn new(suite: &'static str, budget_s: u64) -> std::io::Result<Run> {
        let due = Instant::now() + Duration::from_secs(budget_s);
        let run = Run { suite, due, deadline: due + Duration::from_secs(budget_s), part: None };
        run.begin_log()?;
        Ok(run)
    }

    /// The same suite's run `part`, beside others.
    pub fn part(&self, part: usize) -> std::io::Result<Run> {
        let run = Run { part: Some(part), ..*self };
        run.begin_log()?;
        Ok(run)
    }

    fn begin_log(&self) -> std::io::Result<()> {
        fs::create_dir_all(self.log().parent().expect("the log is in a folder"))?;
        fs::write(self.log(), "")
    }

    pub fn log(&self) -> PathBuf {
        let part = self.part.map(|part| format!(".{part}")).unwrap_or_default();
        root().join("target/xtask").join(format!("{}{part}.log", self.suite))
    }

    /// Runs a command whose success is the only result.
    pub fn check(&self, command: &mut Command) -> Outcome {
        match self.capture(command) {
            Ok((true, _)) => Outcome::pass(),
            Ok((false, output)) => Outcome::fail(tail(&output, 40)),
            Err(e) => Outcome::fail(e),
        }
    }

    /// Runs a test runner and reads its counts.
    pub fn tests(&self, command: &mut Command) -> Outcome {
        match self.capture(command) {
            Ok((ok, output)) => {
                let mut outcome = Outcome::read(&output);
                // A runner that says nothing ran nothing, whatever it exits with.
                let silent = outcome.passed + outcome.failed + outcome.skipped() == 0;
                if (!ok || silent) && outcome.failed == 0 {
                    outcome.failed = 1;
                }
                if outcome.failed > 0 {
                    outcome.notes.push(tail(&output, 60));
                }
                outcome
            }
            Err(e) => Outcome::fail(e),
        }
    }

    /// Builds integration tests by name and runs their binaries; killing one on time-out leaves nothing behind.
    ///
    /// The whole workspace is named, so that features are those of the `build` suite and nothing is compiled twice.
    pub fn test_targets(&self, targets: &[&str]) -> Outcome {
        self.test_targets_with(targets, &[])
    }

    /// As [`Run::test_targets`], with these in the tests' environment.
    pub fn test_targets_with(&self, targets: &[&str], env: &[(&str, &Path)]) -> Outcome {
        let mut build = cargo_command(&["test", "--workspace", "--no-run", "--quiet"]);
        build.arg("--message-format=json-render-diagnostics");
        targets.iter().for_each(|target| {
            build.args(["--test", target]);
        });
        let built = match build.output() {
            Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
            Ok(output) => return Outcome::fail(tail(&String::from_utf8_lossy(&output.stderr), 60)),
            Err(e) => return Outcome::fail(format!("cargo: {e}")),
        };
        let mut outcome = Outcome::default();
        let mut found = 0;
        for (binary, folder) in built.lines().filter_map(executable) {
            found += 1;
            // As cargo would set it: what xtask inherited names its own folder.
            let mut command = Command::new(binary);
            command.arg("--nocapture").env("CARGO_MANIFEST_DIR", &folder).current_dir(&folder);
            command.envs(env.iter().copied());
            outcome.add(self.tests(&mut command));
        }
        if found < targets.len() {
            outcome.add(Outcome::fail(format!("cargo named {found} executables for {}", targets.join(", "))));
        }
        outcome
    }

    /// Runs to the end or the deadline; returns success and all output, which is also appended to the log.
    pub fn capture(&self, command: &mut Command) -> Result<(bool, String), String> {
        let shown = shortened(format!("{command:?}"));
        let log = File::options().append(true).open(self.log()).map_err(|e| e.to_string())?;
        let start = log.metadata().map_err(|e| e.to_string())?.len() as usize;
        let other = log.try_clone().map_err(|e| e.to_string())?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(other)
            .env("RLX_CACHE_DIR", rlx_testdata::cache_dir().map_err(|e| e.to_string())?)
            .env("CARGO_TERM_COLOR", "never")
            .spawn()
            .map_err(|e| format!("{shown}: {e}"))?;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
                break Some(status);
            }
            if Instant::now() > self.deadline {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let bytes = fs::read(self.log()).map_err(|e| e.to_string())?;
        let mut output = String::from_utf8_lossy(bytes.get(start..).unwrap_or(&[])).into_owned();
        if status.is_none() {
            output.push_str(&format!("\nended by xtask at twice its budget: {shown}\n"));
        }
        Ok((status.is_some_and(|s| s.success()), output))
    }
}

/// The cargo that started this task.
pub fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// `cargo ARGS` in the workspace root.
pub fn cargo_command(args: &[&str]) -> Command {
    let mut command = Command::new(cargo());
    command.args(args).current_dir(root());
    if rlx_testdata::in_ci() {
        // Nothing is built twice there, and what incremental builds keep for the next one takes an eighth of the time.
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// Whether `cargo SUBCOMMAND` is installed.
pub fn has_cargo_tool(subcommand: &str) -> bool {
    let probe = Command::new(cargo())
        .args([subcommand, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    probe.is_ok_and(|s| s.success())
}

/// The names of the workspace's integration test targets; packages may share one.
pub fn test_target_names() -> Result<BTreeSet<String>, String> {
    let mut found = BTreeSet::new();
    for package in metadata()?["packages"].as_array().into_iter().flatten() {
        for target in package["targets"].as_array().into_iter().flatten() {
            if target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k == "test")) {
                found.extend(target["name"].as_str().map(str::to_owned));
            }
        }
    }
    Ok(found)
}

fn metadata() -> Result<serde_json::Value, String> {
    let output = cargo_command(&["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))
}

/// The executable of a test target, and its package's folder, in one line of cargo's JSON messages.
fn executable(line: &str) -> Option<(String, PathBuf)> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let kinds = message["target"]["kind"].as_array()?;
    if !kinds.iter().any(|kind| kind == "test") {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    Some((message["executable"].as_str()?.to_owned(), folder))
}

/// A command as messages show it: some name a thousand files.
fn shortened(command: String) -> String {
    const MOST: usize = 400;
    match command.char_indices().nth(MOST) {
        Some((end, _)) => format!("{} …", &command[..end]),
        None => command,
    }
}

/// The last `count` lines.
fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_up_to_a_length() {
        assert_eq!(shortened("\"cargo\" \"test\"".to_owned()), "\"cargo\" \"test\"");
        let long = shortened("é".repeat(5000));
        assert_eq!((long.chars().count(), long.ends_with(" …")), (402, true));
    }
}
