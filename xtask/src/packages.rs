//! Packages of the system that some suites need: installed only where that is ours to do, as root or where
//! `CI=true`. Elsewhere the suites name the packages in their skips.

use std::process::{Command, Stdio};

/// Installs Debian packages.
///
/// # Errors
/// Why they are not there now, naming them.
pub fn install(packages: &[&str]) -> Result<(), String> {
    let names = packages.join(" ");
    let root = said(Command::new("id").arg("-u")).is_some_and(|id| id.trim() == "0");
    if !root && !rlx_testdata::in_ci() {
        return Err(format!("not installed (Debian: {names})"));
    }
    let apt = |args: &[&str]| {
        let mut command = if root { Command::new("apt-get") } else { Command::new("sudo") };
        if !root {
            command.args(["-n", "apt-get"]);
        }
        command
            .args(args)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let install: Vec<&str> =
        ["install", "-y", "--no-install-recommends"].iter().chain(packages).copied().collect();
    // The package lists may be stale or absent.
    if apt(&install) || (apt(&["update"]) && apt(&install)) {
        return Ok(());
    }
    Err(format!("apt-get could not install {names}"))
}

/// What a command prints, when it succeeds.
pub fn said(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
