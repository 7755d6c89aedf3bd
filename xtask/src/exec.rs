//! Running commands: output into a log file, a hard time limit, counts from what was printed.

use crate::outcome::Outcome;
use crate::root;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// One suite's surroundings: its name (also its log's) and when it must end.
pub struct Run {
    pub suite: &'static str,
    pub deadline: Instant,
}

impl Run {
    /// A run that is ended at twice its budget (over budget is a failure already; this stops a hang).
    pub fn new(suite: &'static str, budget_s: u64) -> std::io::Result<Run> {
        let run = Run { suite, deadline: Instant::now() + Duration::from_secs(2 * budget_s) };
        fs::create_dir_all(run.log().parent().expect("the log lies in a folder"))?;
        fs::write(run.log(), "")?;
        Ok(run)
    }

    pub fn log(&self) -> PathBuf {
        root().join("target/xtask").join(format!("{}.log", self.suite))
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
                if !ok && outcome.failed == 0 {
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

    /// Builds one integration test and runs its binary; killing that on time-out leaves nothing behind.
    pub fn test_target(&self, package: &str, target: &str, args: &[&str]) -> Outcome {
        let mut build = Command::new(cargo());
        build.args(["test", "--no-run", "--message-format=json-render-diagnostics"]);
        build.args(["--package", package, "--test", target]);
        let built = match build.current_dir(root()).stderr(Stdio::inherit()).output() {
            Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
            Ok(_) => {
                return Outcome::fail(format!("`cargo test --no-run -p {package} --test {target}` failed"));
            }
            Err(e) => return Outcome::fail(format!("cargo: {e}")),
        };
        let Some(binary) = built.lines().rev().find_map(|line| executable(line, target)) else {
            return Outcome::fail(format!("cargo named no executable for {package}'s test `{target}`"));
        };
        let folder = package_folder(package).unwrap_or_else(root);
        self.tests(Command::new(binary).args(args).arg("--nocapture").current_dir(folder))
    }

    /// Runs to the end or the deadline; returns success and all output, which is also appended to the log.
    fn capture(&self, command: &mut Command) -> Result<(bool, String), String> {
        let shown = format!("{command:?}");
        let log = File::options().append(true).open(self.log()).map_err(|e| e.to_string())?;
        let start = log.metadata().map_err(|e| e.to_string())?.len() as usize;
        let other = log.try_clone().map_err(|e| e.to_string())?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(other)
            .env("RLX_CACHE_DIR", rlx_testdata::cache_dir())
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

/// Integration test targets of the workspace as (package, target).
pub fn test_targets() -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    for package in metadata()?["packages"].as_array().into_iter().flatten() {
        for target in package["targets"].as_array().into_iter().flatten() {
            if target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k == "test")) {
                let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_owned();
                found.push((text(&package["name"]), text(&target["name"])));
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

fn package_folder(package: &str) -> Option<PathBuf> {
    let metadata = metadata().ok()?;
    let found = metadata["packages"].as_array()?.iter().find(|p| p["name"] == package)?;
    Path::new(found["manifest_path"].as_str()?).parent().map(Path::to_path_buf)
}

/// The executable in one line of cargo's JSON messages, when the line is about the test target.
fn executable(line: &str, target: &str) -> Option<String> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let is_test = message["target"]["name"] == target && message["profile"]["test"] == true;
    is_test.then(|| message["executable"].as_str().map(str::to_owned)).flatten()
}

/// The last `count` lines.
fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
