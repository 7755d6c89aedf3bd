//! What GPU backends share: one runtime for every device that runs the kernels of [`rlx_kernel`].
//!
//! A device implements [`GpuApi`]: it is opened, allocates, copies, compiles a kernel, records and submits dispatches, and says what its
//! driver's errors mean. Everything else is here, once, as the implementation of the executor's
//! [`DeviceApi`](rlx_backend::DeviceApi) over that trait.
//!
//! | module | what it is |
//! |---|---|
//! | [`api`] | the trait: what a device implements |
//! | [`open`] | devices that the process has opened, and what executables on one share: kernels, weights, the memory limit |
//! | [`memory`] | buffers that count towards the memory limit |
//! | [`mod@dispatch`] | a module's launches as dispatches, their uniforms and workgroups, constants, fault records |
//! | `device` | a module on a device: the executor's [`DeviceApi`](rlx_backend::DeviceApi) |
//! | `sequence` | steps bound to numbers and memory |
//! | [`signal`], [`host_copy`] | for devices that call back and map memory: waiting for that, and copies of what came |
//! | `flights` | runs under way, and what comes back of each |
//! | [`timing`] | the times of steps, for devices that have a clock |
//! | [`mod@backend`] | what an [`rlx_backend::Backend`] of such a device delegates to |
//!
//! ```text
//! Launches ──kernels──▶ code objects ──dispatch──▶ Dispatches ──Sequence──▶ uniforms, links ──GpuApi::submit──▶ Flights
//! ```
//!
//! Every call of the trait is on a concrete type, so nothing is dispatched at run time that a backend of its own would not have.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod api;
pub mod backend;
mod device;
pub mod dispatch;
mod flights;
pub mod host_copy;
pub mod memory;
pub mod open;
mod sequence;
pub mod signal;
pub mod timing;

pub use api::{Arrival, Back, Bindings, GpuApi, HostMemory, Job, Limits, Submission, Usage};
pub use host_copy::HostCopy;
pub use memory::Buffer;
pub use open::{Registry, Shared, Transfers, locked};
pub use signal::Signal;
