//! Which devices have a backend in this process.
//!
//! Backends whose Cargo feature is on are always registered; [`register_backend`] adds an external one (a vendor's,
//! a test's), which then counts as available and takes precedence over the built-in one.

use std::collections::BTreeMap;
use std::sync::{LazyLock, RwLock};

use rlx_backend::Backend;
use rlx_driver::{Device, DeviceId};
use rlx_ir::{Error, ErrorKind, Result};

use crate::panic_guard;
type Make = fn() -> Box<dyn Backend>;

static REGISTERED: LazyLock<RwLock<BTreeMap<DeviceId, Make>>> = LazyLock::new(RwLock::default);

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
    register(device.into(), make);
}

fn register(device: DeviceId, make: Make) {
    REGISTERED.write().unwrap_or_else(|e| e.into_inner()).insert(device, make);
}

/// Registers `make` as the backend of a device of its own name, for this process. Sessions, chains, environment variables, errors,
/// reports, artefacts and caches know it by that name. It is used where it is named; the automatic choice looks at [`Device`]'s list.
///
/// # Errors
/// [`ErrorKind::Config`] for a name that is none, or means a device of the list: see [`DeviceId::own`].
///
/// ```
/// # use rlx_runtime::*;
/// /// The CPU's backend, as a plug-in would offer its own.
/// fn plug_in() -> Box<dyn Backend> {
///     backend_for(Device::Cpu).expect("the CPU is built in")
/// }
/// let npu = register_device("npu-x", plug_in)?;
/// # let mut g = Graph::new("twice");
/// # let x = g.input("x", Shape::new(&[1], DType::F32));
/// # let y = g.add(x, x);
/// # g.set_outputs(vec![y]);
/// let mut compiled = Session::try_on(npu)?.try_compile(g)?;
/// assert_eq!(compiled.device_id().name(), "npu-x");
/// assert_eq!(compiled.run(&[("x", &[2.0])]), [[4.0]]);
/// assert!(register_device("cuda", plug_in).is_err(), "that is `register_backend`'s");
/// # Ok::<(), Error>(())
/// ```
pub fn register_device(name: &str, make: fn() -> Box<dyn Backend>) -> Result<DeviceId> {
    let device =
        DeviceId::own(name).map_err(|e| Error::new(ErrorKind::Config, e.to_string()).with_source(e))?;
    register(device, make);
    Ok(device)
}

/// Every device that has a name here: [`Device::all`], then those of [`register_device`] by name.
///
/// ```
/// # use rlx_runtime::*;
/// assert!(device_ids().len() >= Device::all().len());
/// ```
pub fn device_ids() -> Vec<DeviceId> {
    let registered = REGISTERED.read().unwrap_or_else(|e| e.into_inner());
    let own = registered.keys().copied().filter(|device| device.known().is_none());
    Device::all().iter().map(|&device| device.into()).chain(own).collect()
}

/// A backend for `device`: a registered one, else the one in this build.
///
/// ```
/// # use rlx_runtime::*;
/// assert!(backend_for(Device::Cpu).is_some());
/// ```
pub fn backend_for(device: Device) -> Option<Box<dyn Backend>> {
    backend_of(device)
}

/// As [`backend_for`], for any device that has a name.
pub fn backend_of(device: impl Into<DeviceId>) -> Option<Box<dyn Backend>> {
    let device = device.into();
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
    let known = |&d: &Device| registered(d.into()).is_some() || built_in(d.into()).is_some();
    Device::all().iter().copied().filter(known).collect()
}

/// The backend registered for `device`.
pub(crate) fn registered(device: DeviceId) -> Option<Make> {
    REGISTERED.read().unwrap_or_else(|e| e.into_inner()).get(&device).copied()
}

/// The backend of `device` that its Cargo feature brings into this build.
fn built_in(device: DeviceId) -> Option<Make> {
    match device.known()? {
        #[cfg(feature = "cpu")]
        Device::Cpu => Some(|| Box::new(rlx_cpu::CpuBackend::new())),
        #[cfg(feature = "ane")]
        Device::Ane => Some(|| Box::new(rlx_coreml::CoreMlBackend::new())),
        #[cfg(feature = "cuda")]
        Device::Cuda => Some(|| Box::new(rlx_simt::SimtBackend::new(Device::Cuda))),
        #[cfg(feature = "rocm")]
        Device::Rocm => Some(|| Box::new(rlx_simt::SimtBackend::new(Device::Rocm))),
        #[cfg(feature = "mlx")]
        Device::Mlx => Some(|| Box::new(rlx_mlx::MlxBackend::new())),
        #[cfg(feature = "tpu")]
        Device::Tpu => Some(|| Box::new(rlx_pjrt::PjrtBackend::new())),
        #[cfg(feature = "vulkan")]
        Device::Vulkan => Some(|| Box::new(rlx_wgpu::WgpuBackend::new(Device::Vulkan))),
        #[cfg(feature = "opengl")]
        Device::OpenGl => Some(|| Box::new(rlx_wgpu::WgpuBackend::new(Device::OpenGl))),
        #[cfg(feature = "metal")]
        Device::Metal => Some(|| Box::new(rlx_wgpu::WgpuBackend::new(Device::Metal))),
        #[cfg(feature = "directx")]
        Device::DirectX => Some(|| Box::new(rlx_wgpu::WgpuBackend::new(Device::DirectX))),
        #[cfg(feature = "gpu")]
        Device::Gpu => Some(|| Box::new(rlx_wgpu::WgpuBackend::new(Device::Gpu))),
        // A browser's device: elsewhere there is no such thing, whatever is built in.
        #[cfg(all(feature = "webgpu", target_family = "wasm"))]
        Device::WebGpu => Some(|| Box::new(rlx_wgpu::WgpuBackend::new(Device::WebGpu))),
        _ => None,
    }
}

/// The built-in backend of `device` with its own pool of this many threads.
///
/// # Errors
/// [`ErrorKind::Config`] for an invalid number, [`ErrorKind::Unsupported`] for a device that does not use
/// RLX's thread pool.
pub fn with_threads(device: impl Into<DeviceId>, threads: usize) -> Result<Box<dyn Backend>> {
    let device = device.into();
    match device.known() {
        #[cfg(feature = "cpu")]
        Some(Device::Cpu) if registered(device).is_none() => {
            Ok(Box::new(rlx_cpu::CpuBackend::new().with_threads(threads)?))
        }
        _ => {
            let message = format!("{device} does not use RLX's thread pool, so {threads} cannot be chosen");
            Err(Error::new(ErrorKind::Unsupported, message).with_device(device.name()))
        }
    }
}

/// The number of threads that the environment sets for the built-in backend of `device`.
pub fn threads_from_env(device: impl Into<DeviceId>) -> Option<usize> {
    let device = device.into();
    match device.known() {
        #[cfg(feature = "cpu")]
        Some(Device::Cpu) if registered(device).is_none() => rlx_cpu::pool::threads_from_env().ok(),
        _ => None,
    }
}

/// The backend of `device`.
///
/// # Errors
/// [`ErrorKind::DeviceUnavailable`] naming the device, its feature and [`register_backend`].
pub fn require_backend(device: impl Into<DeviceId>) -> Result<Box<dyn Backend>> {
    let device = device.into();
    panic_guard::call(device, "being made", || Ok(backend_of(device)))?.ok_or_else(|| {
        let Some(known) = device.known() else {
            let message = format!("{device}: no backend of this name is registered");
            return Error::new(ErrorKind::DeviceUnavailable, message)
                .with_device(device.name())
                .with_hint("register one with register_device");
        };
        let feature = known.feature();
        let message =
            format!("{device}: no backend in this build (Cargo feature \"{feature}\" of rlx-runtime)");
        let hint = match known {
            Device::WebGpu => {
                "WebGPU is for pages (docs/guide/browser.md); vulkan, opengl and gpu are for other programs; or add a backend with register_backend"
                    .to_string()
            }
            _ => format!("enable the feature \"{feature}\", or add a backend with register_backend"),
        };
        Error::new(ErrorKind::DeviceUnavailable, message).with_device(device.name()).with_hint(hint)
    })
}
