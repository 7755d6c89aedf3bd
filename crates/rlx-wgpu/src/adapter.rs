//! Which adapter serves a device, and what to say when there is none.

use rlx_driver::Device;
use rlx_gpu::{Lowered, which};
use rlx_ir::{Error, ErrorKind, Result};
use rlx_kernel::ir::SUBGROUPS;

/// Packages that bring a software Vulkan driver and its loader, as Debian calls them.
const VULKAN_PACKAGES: &str = "mesa-vulkan-drivers libvulkan1";
/// Packages that bring a software OpenGL driver that needs no display.
const OPENGL_PACKAGES: &str = "libegl1 libgles2 libegl-mesa0 libgl1-mesa-dri";

/// The wgpu back ends that may serve `device`; `None` for devices this crate does not serve.
pub(crate) fn backends(device: Device) -> Option<wgpu::Backends> {
    match device {
        Device::Vulkan => Some(wgpu::Backends::VULKAN),
        Device::OpenGl => Some(wgpu::Backends::GL),
        Device::Metal => Some(wgpu::Backends::METAL),
        Device::DirectX => Some(wgpu::Backends::DX12),
        Device::WebGpu => Some(wgpu::Backends::BROWSER_WEBGPU),
        Device::Gpu if cfg!(feature = "noop") => Some(wgpu::Backends::all()),
        Device::Gpu => Some(wgpu::Backends::PRIMARY | wgpu::Backends::GL),
        _ => None,
    }
}

/// An instance that sees only `backends`. Validation by the driver's layers stays off: wgpu checks what we
/// give it already.
pub(crate) fn instance(backends: wgpu::Backends) -> wgpu::Instance {
    let mut description = wgpu::InstanceDescriptor::new_without_display_handle();
    description.backends = backends;
    description.flags = wgpu::InstanceFlags::empty();
    if cfg!(feature = "noop") {
        // Subgroups of one size, as programs on matrices need them.
        let lanes = Some(rlx_tile::Arch::Coop16.lanes());
        description.backend_options.noop = wgpu::NoopBackendOptions {
            subgroup_min_size: lanes,
            subgroup_max_size: lanes,
            ..wgpu::NoopBackendOptions::from_env_or_default()
        };
    }
    wgpu::Instance::new(description)
}

/// The best adapter for `device`: a GPU of its own before one that shares memory before software, OpenGL
/// last; of equals the first.
///
/// # Errors
/// [`ErrorKind::DeviceUnavailable`] saying what is missing and how to get it.
pub(crate) async fn choose(device: Device) -> Result<wgpu::Adapter> {
    let backends = backends(device).ok_or_else(|| {
        let message =
            format!("{device} is not served through wgpu; vulkan, opengl, metal, directx, gpu and (in a page) webgpu are");
        Error::new(ErrorKind::DeviceUnavailable, message).with_device(device.name())
    })?;
    // Without WebGPU, or outside of pages, there is not even an instance.
    if device == Device::WebGpu && !wgpu::util::is_browser_webgpu_supported().await {
        return Err(missing(device));
    }
    let instance = instance(backends);
    let adapters = instance.enumerate_adapters(backends).await;
    let usable = adapters.into_iter().filter(computes);
    usable.min_by_key(|a| rank(&a.get_info())).ok_or_else(|| missing(device))
}

/// Whether the adapter runs compute shaders with enough storage buffers (OpenGL before 4.3 does not).
fn computes(adapter: &wgpu::Adapter) -> bool {
    let flags = adapter.get_downlevel_capabilities().flags;
    flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS)
        && adapter.limits().max_storage_buffers_per_shader_stage >= 4
}

/// The limits that a device is opened with: an adapter's, lowered. They are asked for as they are used, so that wgpu rejects what is beyond them.
pub(crate) fn limits(adapter: &wgpu::Adapter, lowered: &Lowered) -> wgpu::Limits {
    let mut limits = adapter.limits();
    let most = lowered.max_binding_bytes;
    limits.max_storage_buffer_binding_size = which::lower(limits.max_storage_buffer_binding_size, most);
    let most = lowered.max_storage_buffers;
    limits.max_storage_buffers_per_shader_stage =
        which::lower(limits.max_storage_buffers_per_shader_stage, most);
    for limit in [&mut limits.max_compute_invocations_per_workgroup, &mut limits.max_compute_workgroup_size_x]
    {
        *limit = which::lower(*limit, lowered.max_workgroup);
    }
    let most = lowered.max_shared_bytes;
    limits.max_compute_workgroup_storage_size = which::lower(limits.max_compute_workgroup_storage_size, most);
    limits
}

/// The size of an adapter's subgroups, where all have the same and kernels exchange values within them. Of Vulkan alone: a page would need another text, Metal's
/// adapters are said to have any from 4 to 64 lanes, and what naga writes for DirectX and OpenGL was not tried.
pub(crate) fn subgroup(info: &wgpu::AdapterInfo, features: wgpu::Features) -> Option<u32> {
    let lanes = info.subgroup_min_size;
    let has = info.backend == wgpu::Backend::Vulkan && features.contains(wgpu::Features::SUBGROUP);
    (has && lanes == info.subgroup_max_size && SUBGROUPS.contains(&lanes)).then_some(lanes)
}

fn rank(info: &wgpu::AdapterInfo) -> (u8, u8) {
    let kind = match info.device_type {
        // There only where somebody asked for it.
        _ if info.backend == wgpu::Backend::Noop => 0,
        wgpu::DeviceType::DiscreteGpu => 1,
        wgpu::DeviceType::IntegratedGpu => 2,
        wgpu::DeviceType::VirtualGpu => 3,
        wgpu::DeviceType::Other => 4,
        wgpu::DeviceType::Cpu => 5,
    };
    (kind, u8::from(info.backend == wgpu::Backend::Gl))
}

/// The error for a device without an adapter. Metal and DirectX 12 are parts of their systems: elsewhere there is nothing to install.
fn missing(device: Device) -> Error {
    let mesa = |packages: &str| format!("install the GPU vendor's driver, or Mesa's (Debian: {packages})");
    let (what, hint) = match device {
        Device::Vulkan => {
            ("the Vulkan loader (libvulkan.so.1) or a Vulkan driver is missing", mesa(VULKAN_PACKAGES))
        }
        Device::OpenGl => (
            "EGL (libEGL.so.1), OpenGL ES (libGLESv2.so.2) or a driver with compute shaders (OpenGL ES 3.1) is missing",
            mesa(OPENGL_PACKAGES),
        ),
        Device::Metal if cfg!(target_vendor = "apple") => {
            ("this machine has no Metal device", "a virtual machine needs a paravirtualised GPU".to_owned())
        }
        Device::Metal => ("Metal is part of macOS and iOS", elsewhere("macOS or iOS")),
        Device::DirectX if cfg!(windows) => (
            "a DirectX 12 driver is missing",
            "install the GPU vendor's driver; Windows 10 and later have a software device (WARP)".to_owned(),
        ),
        Device::DirectX => ("DirectX 12 is part of Windows", elsewhere("Windows")),
        Device::WebGpu => (
            "this engine has no WebGPU, or none for this machine",
            "use a current browser, with hardware acceleration on, and a page from https or localhost; or the CPU"
                .to_owned(),
        ),
        _ => ("a Vulkan or OpenGL driver is missing", mesa(&format!("{VULKAN_PACKAGES} {OPENGL_PACKAGES}"))),
    };
    Error::new(ErrorKind::DeviceUnavailable, format!("no adapter was found: {what}"))
        .with_device(device.name())
        .with_hint(hint)
}

/// What to do about a device that only `system` has.
fn elsewhere(system: &str) -> String {
    format!("run RLX on {system}; GPUs of this system are vulkan, opengl and gpu")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_names_the_packages() {
        let e = missing(Device::Vulkan);
        assert_eq!((e.kind(), e.device()), (ErrorKind::DeviceUnavailable, Some("Vulkan")));
        assert!(e.hint().is_some_and(|h| h.contains("mesa-vulkan-drivers libvulkan1")));
        assert!(missing(Device::OpenGl).hint().is_some_and(|h| h.contains("libegl-mesa0")));
        if !cfg!(any(windows, target_vendor = "apple")) {
            for (device, system) in [(Device::Metal, "macOS"), (Device::DirectX, "Windows")] {
                let e = rlx_gpu::block_on(choose(device)).unwrap_err();
                assert_eq!((e.kind(), e.device()), (ErrorKind::DeviceUnavailable, Some(device.name())));
                assert!(e.message().contains(system) && e.hint().is_some_and(|h| h.contains(system)), "{e}");
            }
        }
        let other = rlx_gpu::block_on(choose(Device::Cuda)).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::DeviceUnavailable);
    }

    #[test]
    fn subgroups_are_those_of_one_size_on_vulkan() {
        use wgpu::DeviceType::{Cpu, DiscreteGpu};
        let of = |kind, backend, (least, most), features| {
            let info = wgpu::AdapterInfo {
                subgroup_min_size: least,
                subgroup_max_size: most,
                ..wgpu::AdapterInfo::new(kind, backend)
            };
            subgroup(&info, features)
        };
        let (vulkan, has) = (wgpu::Backend::Vulkan, wgpu::Features::SUBGROUP);
        assert_eq!(of(DiscreteGpu, vulkan, (32, 32), has), Some(32));
        assert_eq!(of(DiscreteGpu, vulkan, (64, 64), has), Some(64));
        for lanes in [(32, 64), (4, 4), (128, 128)] {
            assert_eq!(of(DiscreteGpu, vulkan, lanes, has), None, "{lanes:?}");
        }
        assert_eq!(of(DiscreteGpu, vulkan, (32, 32), wgpu::Features::empty()), None);
        assert_eq!(of(DiscreteGpu, wgpu::Backend::Metal, (32, 32), has), None);
        // Lavapipe's.
        assert_eq!(of(Cpu, vulkan, (8, 8), has), Some(8));
    }
}
