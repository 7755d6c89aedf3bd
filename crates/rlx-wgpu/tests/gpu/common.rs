//! Which devices the tests run on, and running a graph on one of them.
//!
//! `RLX_TEST_DEVICES=vulkan,opengl` says which devices must be there: their absence is then a failure. Without
//! it, a device that is absent is a named skip.

pub use rlx_backend::testing::{disagreement, run, set_params};
use rlx_backend::{Backend, ExecutableGraph, testing};
use rlx_driver::Device;
use rlx_ir::oracle::Bindings;
use rlx_ir::{Graph, Result};
use rlx_wgpu::{Lowered, WgpuBackend};

/// The backend of `device`, or a named skip.
///
/// # Panics
/// When the device is absent and `RLX_TEST_DEVICES` names it.
pub fn device(device: Device) -> Option<WgpuBackend> {
    let backend = WgpuBackend::new(device);
    match backend.probe() {
        Ok(()) => Some(backend),
        Err(missing) => {
            let required = std::env::var("RLX_TEST_DEVICES").unwrap_or_default();
            let named = required.split(',').any(|name| name.parse() == Ok(device));
            assert!(!named, "RLX_TEST_DEVICES names {device}: {missing}");
            println!("@skip 1 {device}: {missing}");
            None
        }
    }
}

/// The device that most tests run on: the system's own.
pub const MAIN: Device = if cfg!(windows) {
    Device::DirectX
} else if cfg!(target_vendor = "apple") {
    Device::Metal
} else {
    Device::Vulkan
};

/// The devices that tests of what drivers differ in run on.
pub const DEVICES: [Device; 2] = [MAIN, Device::OpenGl];

/// Those of them that are there.
pub fn devices() -> impl Iterator<Item = WgpuBackend> {
    DEVICES.into_iter().filter_map(device)
}

pub fn main_device() -> Option<WgpuBackend> {
    device(MAIN)
}

/// The same device under lower limits.
pub fn lowered(limits: Lowered) -> Option<WgpuBackend> {
    main_device().map(|backend| backend.with_limits(limits))
}

/// Whether everything runs (`RLX_TEST_ALL=1`, set by `cargo xtask test --all`), or what fits the test command.
pub fn all() -> bool {
    std::env::var("RLX_TEST_ALL").is_ok_and(|v| v == "1")
}

pub fn compile(graph: &Graph, backend: &WgpuBackend) -> Result<Box<dyn ExecutableGraph>> {
    testing::compile(graph, backend)
}

/// Compiles, sets the parameters, runs, compares.
pub fn check(
    graph: &Graph,
    bindings: &Bindings,
    backend: &WgpuBackend,
) -> std::result::Result<(), rlx_ir::Error> {
    let mut exec = compile(graph, backend)?;
    set_params(&mut *exec, bindings)?;
    if let Some(what) = disagreement(graph, bindings, &mut *exec) {
        panic!("{what}\n{graph}\n{}", exec.lir());
    }
    Ok(())
}
