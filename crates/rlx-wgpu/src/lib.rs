//! RLX on GPUs through wgpu: Vulkan, OpenGL, the best adapter there is, and in a page WebGPU.
//!
//! Kernels come from [`rlx_kernel`] as WGSL; this crate brings them to a device and feeds them:
//!
//! | module | what it is |
//! |---|---|
//! | `adapter` | which adapter serves a device; what is missing when none does |
//! | `gpu` | an opened device: limits, queue, driver faults as typed errors |
//! | `memory` | ranges of buffers, uploads and readbacks |
//! | `pipeline` | kernels compiled |
//! | `trusted` | own kernels without the checks that wgpu writes into those of files |
//! | `driver_cache` | what the driver made of kernels, cached in the user's cache folder |
//! | `runs` | bind groups, and the one submission of a run |
//! | `timing` | how long steps take on the device, where it has a clock |
//! | `late` | what calls report later, where no one can wait for it |
//! | `device` | all of it as [`rlx_gpu`] uses it, which does the rest |
//!
//! [`WgpuBackend`] is what a session uses. Memory is planned by the compiler within the device's limits
//! ([`rlx_opt::PoolSpec`]): no dispatch reads and writes one pool, no range is larger than the device binds.
#![deny(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod adapter;
mod backend;
mod device;
// No driver can check the bytes that it once gave.
#[allow(unsafe_code)]
mod driver_cache;
mod gpu;
mod late;
mod memory;
mod pipeline;
mod runs;
mod timing;
// What is compiled without checks is this process's own.
#[allow(unsafe_code)]
mod trusted;

pub use backend::WgpuBackend;
pub use gpu::Lowered;
pub use rlx_gpu::Transfers;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Whether a thread can wait for the device. In a page none can: what the device did arrives between two turns of the page's
/// event loop. So devices are opened by [`WgpuBackend::open`] there, runs are awaited
/// ([`ExecutableGraph::poll_collect`](rlx_backend::ExecutableGraph::poll_collect)), and what would wait is an error.
pub(crate) const WAITS: bool = !cfg!(target_family = "wasm");

/// The value of a future of wgpu's; only where [`WAITS`]: these are ready at once there.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}
