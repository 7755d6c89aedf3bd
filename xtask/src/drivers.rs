//! Software drivers for the tests of GPU devices: Mesa's Vulkan and OpenGL, which need neither GPU nor display.
//!
//! They are packages of the system, so they are installed only where that is ours to do: as root, or where
//! `CI=true`. Elsewhere the tests name the packages in their skips.

use std::process::{Command, Stdio};

/// What Debian and its kin call them.
const PACKAGES: &[&str] =
    &["mesa-vulkan-drivers", "libvulkan1", "libegl1", "libgl1-mesa-dri", "libegl-mesa0", "libgles2"];

/// Installs the drivers where they are missing and that is ours to do.
///
/// # Errors
/// Why there are none now.
pub fn ensure() -> Result<(), String> {
    if !cfg!(target_os = "linux") || installed() {
        return Ok(());
    }
    let packages = PACKAGES.join(" ");
    let root = said(Command::new("id").arg("-u")).is_some_and(|id| id.trim() == "0");
    if !root && !rlx_testdata::in_ci() {
        return Err(format!("software GPU drivers are not installed (Debian: {packages})"));
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
        ["install", "-y", "--no-install-recommends"].iter().chain(PACKAGES).copied().collect();
    // The package lists may be stale or absent.
    if apt(&install) || (apt(&["update"]) && apt(&install)) {
        return Ok(());
    }
    Err(format!("apt-get could not install {packages}"))
}

/// Whether the system finds the loaders and a Vulkan driver.
fn installed() -> bool {
    let Some(known) = said(Command::new("ldconfig").arg("-p")) else { return false };
    let loaders = ["libvulkan.so.1", "libEGL.so.1", "libGLESv2.so.2"].iter().all(|name| known.contains(name));
    let folders = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"];
    let driver = |folder: &&str| std::fs::read_dir(folder).is_ok_and(|mut files| files.next().is_some());
    loaders && folders.iter().any(driver)
}

/// What a command prints, when it succeeds.
fn said(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
