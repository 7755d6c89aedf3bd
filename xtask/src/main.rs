//! Maintenance tasks of the RLX workspace: `cargo xtask test` is the project's test command.
fn main() -> std::process::ExitCode {
    let status = std::process::Command::new("cargo").args(["test", "--workspace"]).status();
    match status {
        Ok(s) if s.success() => std::process::ExitCode::SUCCESS,
        _ => std::process::ExitCode::FAILURE,
    }
}
