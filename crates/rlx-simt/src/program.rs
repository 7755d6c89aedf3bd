//! The executable form of a module: its steps with code objects, and what stays the same between runs. A [`Program`] is immutable and
//! shared by clones.

use std::sync::Arc;

use rlx_ir::Result;
use rlx_ir::lir::LirModule;
use rlx_kernel::dispatch::{self, ConstantLayout, ConstantPlace, Dispatches};
use rlx_kernel::{KernelTarget, Launches};

use crate::driver::Code;
use crate::gpu::Gpu;
use crate::memory::Buffer;

/// A step's dispatches.
pub(crate) type Kernel = Dispatches<Arc<Code>>;

/// The device, with what it keeps of a module.
pub(crate) struct Simt {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) target: KernelTarget,
    pub(crate) constant_pools: Vec<Buffer>,
    pub(crate) constants: Vec<Option<ConstantPlace>>,
}

/// A module with code for every step.
pub(crate) type Program = rlx_backend::executor::Program<Simt>;

/// A module on a device.
pub(crate) type SimtExecutable = rlx_backend::Executor<Simt>;

/// Compiles every kernel and copies the constants to the device.
///
/// # Errors
/// A kernel that the compiler rejects, memory that cannot be had.
pub(crate) fn program(
    gpu: Arc<Gpu>,
    target: KernelTarget,
    lir: Arc<LirModule>,
    launches: &Launches,
) -> Result<Program> {
    let name = gpu.which.device.name();
    let codes = gpu.kernels(&launches.kernels);
    let codes = codes.map_err(|(at, e)| dispatch::rejected(launches, &lir, at, e, name))?;
    let constants = ConstantLayout::new(&lir, &target).map_err(|e| e.with_device(name))?;
    let pools = constants.pools.iter().map(|&bytes| Buffer::new(&gpu, bytes as usize, "constants"));
    let constant_pools = pools.collect::<Result<Vec<_>>>()?;
    for ((pool, offset, _), bytes) in constants.bytes(&lir) {
        constant_pools[pool].write(&gpu, offset as usize, bytes)?;
    }
    let machine = gpu.machine.clone();
    let device = Simt { gpu, target, constant_pools, constants: constants.places };
    // What a fault of a dispatch is reported as: its place among those of the init program, or of the run.
    let mut numbers = [0, 0];
    Program::new(lir, device, &machine, |_, lir, at, step, table| {
        let launches = if at.init { &launches.init } else { &launches.run };
        let number = &mut numbers[usize::from(at.init)];
        Ok(Arc::new(dispatch::prepare(step, lir, &launches[at.index], &codes, number, table)))
    })
}
