//! Software drivers for the tests of GPU devices: Mesa's Vulkan and OpenGL, which need neither GPU nor display.

use crate::{packages, root};
use std::path::PathBuf;
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
    packages::install(PACKAGES).map_err(|why| format!("software GPU drivers: {why}"))
}

/// Whether the system finds the loaders and a Vulkan driver.
fn installed() -> bool {
    let Some(known) = packages::said(Command::new("ldconfig").arg("-p")) else { return false };
    let loaders = ["libvulkan.so.1", "libEGL.so.1", "libGLESv2.so.2"].iter().all(|name| known.contains(name));
    let folders = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"];
    let driver = |folder: &&str| std::fs::read_dir(folder).is_ok_and(|mut files| files.next().is_some());
    loaders && folders.iter().any(driver)
}

/// Debian's package with SwiftShader, Google's Vulkan on the processor: part of Chromium, which is not needed.
const WITH_SWIFTSHADER: &str = "chromium-common";

/// The description of a second Vulkan driver, for `VK_DRIVER_FILES`: taken out of its package, which is not installed.
///
/// # Errors
/// Why there is none.
pub fn swiftshader() -> Result<PathBuf, String> {
    let folder = root().join("target/xtask/swiftshader");
    let description = folder.join("usr/lib/chromium/vk_swiftshader_icd.json");
    if description.exists() {
        return Ok(description);
    }
    let failed = |what: &str| format!("SwiftShader: {what} (Debian: {WITH_SWIFTSHADER})");
    if !cfg!(target_os = "linux") {
        return Err(failed("it is taken out of Debian's package"));
    }
    std::fs::create_dir_all(&folder).map_err(|e| failed(&e.to_string()))?;
    let runs = |command: &mut Command| {
        let command = command.current_dir(&folder).stdin(Stdio::null()).stdout(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !runs(Command::new("apt-get").args(["download", WITH_SWIFTSHADER])) {
        return Err(failed("apt-get could not download its package"));
    }
    let files = std::fs::read_dir(&folder).map_err(|e| failed(&e.to_string()))?;
    let mut files = files.filter_map(|file| Some(file.ok()?.path()));
    let package = files.find(|path| path.extension().is_some_and(|kind| kind == "deb"));
    let package = package.ok_or_else(|| failed("there is no package"))?;
    if !runs(Command::new("dpkg").arg("-x").arg(&package).arg(".")) || !description.exists() {
        return Err(failed("its package has no Vulkan driver"));
    }
    Ok(description)
}
