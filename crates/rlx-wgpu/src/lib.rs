//! RLX on GPUs through wgpu: Vulkan, OpenGL, the best adapter there is, and in a page WebGPU.
//!
//! Kernels come from [`rlx_kernel`] as WGSL, for Metal in its own language; this crate brings them to a device and feeds them:
//!
//! | module | what it is |
//! |---|---|
//! | `adapter` | which adapter serves a device; what is missing when none does |
//! | `gpu` | an opened device: limits, queue, driver faults as typed errors |
//! | `memory` | ranges of buffers, and what comes back to the host |
//! | `language` | what kernels are written in |
//! | `matrices` | whether f16 is multiplied on cooperative matrices |
//! | `pipeline` | kernels compiled |
//! | `spirv` | own kernels as Vulkan takes them, written once |
//! | `trusted` | own kernels without the checks that wgpu writes into those of files |
//! | `driver_cache` | what the driver made of kernels, cached in the user's cache folder |
//! | `runs` | bind groups, the one submission of a run, and its steps timed where the device has a clock |
//! | `device` | all of it as [`rlx_gpu`] uses it, which does the rest |
//!
//! [`WgpuBackend`] is what a session uses. Memory is planned by the compiler within the device's limits
//! ([`rlx_opt::PoolSpec`]): no dispatch reads and writes one pool, no range is larger than the device binds.
#![deny(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod adapter;
mod device;
// No driver can check the bytes that it once gave.
#[allow(unsafe_code)]
mod driver_cache;
mod gpu;
mod language;
mod matrices;
mod memory;
mod pipeline;
mod runs;
#[cfg(not(any(target_vendor = "apple", target_family = "wasm")))]
mod spirv;
// What is compiled without checks is this process's own.
#[allow(unsafe_code)]
mod trusted;

pub use gpu::Gpu;
pub use rlx_gpu::{Lowered, Transfers, set_turn};

/// A device that wgpu drives: [`Device::Vulkan`], [`Device::OpenGl`], [`Device::Metal`], [`Device::DirectX`], in a page
/// [`Device::WebGpu`], or, as [`Device::Gpu`], the best adapter.
///
/// ```no_run
/// use rlx_backend::Backend;
/// use rlx_driver::Device;
/// let backend = rlx_wgpu::WgpuBackend::new(Device::Vulkan);
/// match backend.probe() {
///     Ok(()) => println!("{}", backend.machine()?),
///     Err(missing) => println!("{missing}"),
/// }
/// # Ok::<(), rlx_ir::Error>(())
/// ```
///
/// In a page it is opened first:
///
/// ```no_run
/// # async fn example() -> rlx_ir::Result<()> {
/// use rlx_driver::Device;
/// let backend = rlx_wgpu::WgpuBackend::new(Device::WebGpu);
/// backend.open().await?;
/// # Ok(())
/// # }
/// ```
///
/// and its runs are awaited, unless the page's host can suspend a call ([`set_turn`]).
///
/// [`Device::Vulkan`]: rlx_driver::Device::Vulkan
/// [`Device::OpenGl`]: rlx_driver::Device::OpenGl
/// [`Device::Metal`]: rlx_driver::Device::Metal
/// [`Device::DirectX`]: rlx_driver::Device::DirectX
/// [`Device::WebGpu`]: rlx_driver::Device::WebGpu
/// [`Device::Gpu`]: rlx_driver::Device::Gpu
pub type WgpuBackend = rlx_gpu::GpuBackend<Gpu>;
