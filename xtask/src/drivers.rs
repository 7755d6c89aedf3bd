//! Software drivers for the tests of GPU devices: Mesa's Vulkan and OpenGL, which need neither GPU nor display.

use crate::packages;
use std::process::Command;

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
