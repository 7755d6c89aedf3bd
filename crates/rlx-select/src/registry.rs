//! Which devices have a backend in this process.
//!
//! Backends whose Cargo feature is on are always registered; [`register_backend`] adds an external one (a vendor's,
//! a test's), which then counts as available and takes precedence over the built-in one.

use std::collections::BTreeMap;
use std::sync::{LazyLock, RwLock};

use rlx_backend::Backend;
use rlx_driver::Device;
use rlx_ir::{Error, ErrorKind, Result};

use crate::panic_guard;
type Make = fn() -> Box<dyn Backend>;

static REGISTERED: LazyLock<RwLock<BTreeMap<Device, Make>>> = LazyLock::new(RwLock::default);

/// Registers `make` as the backend of `device` for this process.
///
/// ```
/// # use rlx_runtime::*;
/// /// The CPU's backend under another device's name, as a plug-in would offer its own.
/// fn plug_in() -> Box<dyn Backend> {
///     backend_for(Device::Cpu).expect("the CPU is built in")
/// }
/// register_backend(Device::Tpu, plug_in);
/// assert!(registered_devices().contains(&Device::Tpu) && is_available(Device::Tpu));
/// ```
pub fn register_backend(device: Device, make: fn() -> Box<dyn Backend>) {
    REGISTERED.write().unwrap_or_else(|e| e.into_inner()).insert(device, make);
}

/// A backend for `device`: a registered one, else the one in this build.
///
/// ```
/// # use rlx_runtime::*;
/// assert!(backend_for(Device::Cpu).is_some());
/// ```
pub fn backend_for(device: Device) -> Option<Box<dyn Backend>> {
    match registered(device) {
        Some(make) => Some(make()),
        None => built_in(device).map(|make| make()),
    }
}

/// The devices that have a backend, in [`Device::all`]'s order. [`crate::device_ext::is_available`] says whether the device itself
/// is available.
///
/// ```
/// # use rlx_runtime::*;
/// assert!(registered_devices().contains(&Device::Cpu));
/// ```
pub fn registered_devices() -> Vec<Device> {
    let known = |&d: &Device| registered(d).is_some() || built_in(d).is_some();
    Device::all().iter().copied().filter(known).collect()
}

/// The backend registered by [`register_backend`] for `device`.
pub(crate) fn registered(device: Device) -> Option<Make> {
    REGISTERED.read().unwrap_or_else(|e| e.into_inner()).get(&device).copied()
}

/// The backend of `device` that its Cargo feature brings into this build.
fn built_in(device: Device) -> Option<Make> {
    match device {
        #[cfg(feature = "cpu")]
        Device::Cpu => Some(|| Box::new(rlx_cpu::CpuBackend::new())),
        #[cfg(feature = "cuda")]
        Device::Cuda => Some(|| Box::new(rlx_simt::SimtBackend::new(Device::Cuda))),
        #[cfg(feature = "rocm")]
        Device::Rocm => Some(|| Box::new(rlx_simt::SimtBackend::new(Device::Rocm))),
        #[cfg(feature = "vulkan")]
        Device::Vulkan => Some(|| Box::new(rlx_wgpu::WgpuBackend::new(Device::Vulkan))),
        #[cfg(feature = "opengl")]
        Device::OpenGl => Some(|| Box::new(rlx_wgpu::WgpuBackend::new(Device::OpenGl))),
        #[cfg(feature = "gpu")]
        Device::Gpu => Some(|| Box::new(rlx_wgpu::WgpuBackend::new(Device::Gpu))),
        _ => None,
    }
}

/// The built-in backend of `device` with its own pool of this many threads.
///
/// # Errors
/// [`ErrorKind::Config`] for an invalid number, [`ErrorKind::Unsupported`] for a device that does not use
/// RLX's thread pool.
pub fn with_threads(device: Device, threads: usize) -> Result<Box<dyn Backend>> {
    match device {
        #[cfg(feature = "cpu")]
        Device::Cpu if registered(device).is_none() => {
            Ok(Box::new(rlx_cpu::CpuBackend::new().with_threads(threads)?))
        }
        _ => {
            let message = format!("{device} does not use RLX's thread pool, so {threads} cannot be chosen");
            Err(Error::new(ErrorKind::Unsupported, message).with_device(device.name()))
        }
    }
}

/// The number of threads that the environment sets for the built-in backend of `device`.
pub fn threads_from_env(device: Device) -> Option<usize> {
    match device {
        #[cfg(feature = "cpu")]
        Device::Cpu if registered(device).is_none() => rlx_cpu::pool::threads_from_env().ok(),
        _ => None,
    }
}

/// The devices that RLX has a backend for, in some build.
const WRITTEN: [Device; 6] =
    [Device::Cpu, Device::Cuda, Device::Rocm, Device::Vulkan, Device::OpenGl, Device::Gpu];

/// The backend of `device`.
///
/// # Errors
/// [`ErrorKind::DeviceUnavailable`] naming the device, its feature and [`register_backend`].
pub fn require_backend(device: Device) -> Result<Box<dyn Backend>> {
    panic_guard::call(device, "being made", || Ok(backend_for(device)))?.ok_or_else(|| {
        let feature = device.feature();
        let message =
            format!("{device}: no backend in this build (Cargo feature \"{feature}\" of rlx-runtime)");
        let hint = if WRITTEN.contains(&device) {
            format!("enable the feature \"{feature}\", or add a backend with register_backend")
        } else {
            "RLX has none for it yet; add one with register_backend".to_string()
        };
        Error::new(ErrorKind::DeviceUnavailable, message).with_device(device.name()).with_hint(hint)
    })
}
