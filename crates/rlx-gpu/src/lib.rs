//! What GPU backends share: one runtime for every device that runs the kernels of [`rlx_kernel`].
//!
//! A device implements [`GpuApi`]: it is opened, allocates, copies, compiles a kernel, records and submits dispatches, and says what its
//! driver's errors mean. [`GpuBackend`] of it is then the backend. Everything else is here, once, as the implementation of the executor's
//! [`DeviceApi`](rlx_backend::DeviceApi) over that trait.
//!
//! | module | what it is |
//! |---|---|
//! | [`api`] | the trait: what a device implements |
//! | [`which`] | what a device is opened by, limits below its own among that |
//! | [`health`] | whether it is still there, and errors that no call could give |
//! | [`open`] | devices that the process has opened, and what executables on one share: kernels, weights, the memory limit |
//! | [`memory`] | buffers that count towards the memory limit, and copies of them |
//! | [`mod@dispatch`] | a module's launches as dispatches, their uniforms and workgroups, constants, fault records |
//! | [`blas`] | matmuls that a BLAS of the vendor does |
//! | [`tiles`] | matmuls on matrix units, by tile programs |
//! | [`classes`], `self_check` | classes of kernels, and how a device is tried for each before it is used |
//! | [`few_rows`] | which sums are divided where other bits are allowed: matmuls of few rows, long sums of small results |
//! | `waves` | matmuls whose tiles do not come out even |
//! | `own` | what a device has for steps besides kernels |
//! | `variants` | by what a step may be done, and what a tuning chose |
//! | `target` | the device as the compiler sees it |
//! | `device` | a module on a device: the executor's [`DeviceApi`](rlx_backend::DeviceApi) |
//! | `sequence` | steps bound to numbers and memory |
//! | [`signal`] | waiting, for devices that call back; how a page gives up its turn meanwhile |
//! | `flights`, `host_copy` | runs under way, and what comes back of each |
//! | `timing` | the times of steps, for devices that have a clock |
//! | [`mod@backend`] | [`GpuBackend`], the [`rlx_backend::Backend`] of every such device |
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
pub mod blas;
pub mod classes;
mod device;
pub mod dispatch;
pub mod few_rows;
mod flights;
pub mod health;
mod host_copy;
mod making;
pub mod memory;
pub mod open;
mod own;
mod producers;
mod self_check;
mod sequence;
pub mod signal;
mod stored;
mod target;
pub mod tiles;
mod timing;
pub mod trial;
mod variants;
mod waves;
pub mod which;

pub use api::{
    Arrival, Back, Bindings, BoundMatMul, GpuApi, HostMemory, Job, Limits, PlacedMap, Source, Stores,
    Submission, Times, Usage,
};
pub use backend::GpuBackend;
pub use classes::{Class, Classes, Family};
pub use few_rows::Fast;
pub use health::{Health, out_of_memory};
pub use memory::Buffer;
pub use open::{Registry, Shared, Transfers};
pub use signal::{Signal, block_on, locked, set_turn};
pub use tiles::MatrixUnits;
pub use which::{Lowered, Which};
