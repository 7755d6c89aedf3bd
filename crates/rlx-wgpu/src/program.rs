//! The executable form of a module: its steps with pipelines, and what stays the same between runs.
//!
//! A [`Program`] is immutable and shared by clones. Sizes are entries of a table that every binding evaluates, so
//! one program serves all dimensions.

use std::sync::{Arc, OnceLock};

use rlx_gpu::dispatch::{self, ConstantLayout, ConstantPlace, Dispatches};
use rlx_ir::lir::LirModule;
use rlx_ir::{Error, Result};
use rlx_kernel::{KernelTarget, Launches};

use crate::gpu::Gpu;
use crate::memory::DeviceBuffer;
use crate::pipeline::{Origin, Pipeline};

/// A step's dispatches.
pub(crate) type Kernel = Dispatches<Arc<Pipeline>>;

/// The device, with what it keeps of a module.
pub(crate) struct Wgpu {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) target: KernelTarget,
    /// What the dispatches were made of, to be saved.
    pub(crate) launches: Launches,
    pub(crate) constant_pools: Vec<DeviceBuffer>,
    pub(crate) constants: Vec<Option<ConstantPlace>>,
    /// What the init program reported after it was left to itself: see `Wgpu::check_init`.
    pub(crate) init_fault: OnceLock<Error>,
}

/// A module with pipelines for every step.
pub(crate) type Program = rlx_backend::executor::Program<Wgpu>;

/// A module on a device.
pub(crate) type WgpuExecutable = rlx_backend::Executor<Wgpu>;

/// Compiles a pipeline for every kernel and copies the constants to the device.
///
/// # Errors
/// A kernel that the driver rejects, memory that cannot be had.
pub(crate) fn program(
    gpu: Arc<Gpu>,
    target: KernelTarget,
    lir: Arc<LirModule>,
    launches: Launches,
    origin: Origin,
) -> Result<Program> {
    let pipelines = gpu
        .pipelines(&launches.kernels, origin)
        .map_err(|(at, e)| dispatch::rejected(&launches, &lir, at, e, gpu.name.name()))?;
    let constants = ConstantLayout::new(&lir, &target).map_err(|e| e.with_device(gpu.name.name()))?;
    let pools = constants.pools.iter().map(|&bytes| DeviceBuffer::pool(&gpu, bytes, "constants"));
    let constant_pools = pools.collect::<Result<Vec<_>>>()?;
    for ((pool, offset, _), bytes) in constants.bytes(&lir) {
        constant_pools[pool].write_at(&gpu, offset, bytes)?;
    }
    let machine = gpu.name.name();
    let (constants, init_fault) = (constants.places, OnceLock::new());
    let device = Wgpu { gpu, target, launches, constant_pools, constants, init_fault };
    // What a fault of a dispatch is reported as: its place among those of the init program, or of the run.
    let mut numbers = [0, 0];
    Program::new(lir, device, machine, |device, lir, at, step, table| {
        let launches = if at.init { &device.launches.init } else { &device.launches.run };
        let number = &mut numbers[usize::from(at.init)];
        Ok(Arc::new(dispatch::prepare(step, lir, &launches[at.index], &pipelines, number, table)))
    })
}
