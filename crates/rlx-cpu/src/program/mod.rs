//! The CPU under the executor of `rlx-backend`: kernels for steps, memory, and the walk over bound steps.
//!
//! A [`Program`] is immutable and shared by clones; an [`CpuExecutable`] binds it to dimensions and runs it. What is here is
//! what differs from other devices: which kernel a step has ([`kernel`]), how it is bound and run ([`sequence`]), and which
//! memory it uses ([`device`], [`scratch`]).

mod device;
mod kernel;
mod moe;
mod ranges;
pub(crate) mod scratch;
mod sequence;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_bands;
mod threads;
mod together;
pub(crate) mod tuned;

use std::sync::Arc;

use rlx_backend::tuning::Tuning;
use rlx_ir::lir::IoSlot;
use rlx_ir::{Error, ErrorKind, LirModule, Result};
use rlx_opt::PoolSpec;

use self::device::Cpu;
use self::kernel::{Joined, Kernel};
pub(crate) use self::threads::Threads;
use crate::gemm::TileSizes;
use crate::isa::Isa;
use crate::kernels::{BodyExecutable, BodyProgram, Programs};

/// A module with a kernel for every step.
pub(crate) type Program = rlx_backend::executor::Program<Cpu>;

/// A module on the CPU.
pub(crate) type CpuExecutable = rlx_backend::Executor<Cpu>;

/// Chooses a kernel for every step of a module that was verified.
pub(crate) fn program(
    lir: Arc<LirModule>,
    isa: Isa,
    threads: Threads,
    pool: PoolSpec,
    tuning: &Tuning,
) -> Result<Program> {
    check_pools(&lir)?;
    let cpu = Cpu::new(&lir, isa, threads.clone(), pool)?;
    let mut programs = Programs::default();
    let joined = Joined::all(&lir);
    let body = |lir| -> Result<Arc<dyn BodyProgram>> {
        let threads = threads.clone();
        Ok(Arc::new(program(Arc::new(lir), isa, threads, PoolSpec::default(), &Tuning::default())?))
    };
    Program::new(lir, cpu, &format!("cpu {isa}"), |cpu, lir, at, step, table| {
        let mut kernel = Kernel::new(step, lir, table, isa, &body, &mut programs)?;
        if !at.init {
            kernel.joined = joined[at.index];
        }
        if !at.init && !tuning.is_empty() {
            let key = tuned::tuning_key(lir, step, isa, &cpu.threads);
            let tile_sizes =
                key.map_or(TileSizes::DEFAULT, |key| tuned::tile_sizes(isa, tuning.variant(&key)));
            kernel.prototype.set_tile_sizes(tile_sizes);
        }
        Ok(kernel)
    })
}

impl BodyProgram for Program {
    fn inputs(&self) -> usize {
        self.lir.inputs.len()
    }

    fn executable(self: Arc<Self>) -> Result<Box<dyn BodyExecutable>> {
        Ok(Box::new(CpuExecutable::new(self)?))
    }
}

impl BodyExecutable for CpuExecutable {
    fn output_dim(&self, output: usize, axis: usize) -> Result<usize> {
        self.output_dim(output, axis)
    }
}

/// The arena is one pool, or the outputs' and one of the rest.
fn check_pools(lir: &LirModule) -> Result<()> {
    let Some(plan) = &lir.plan else { return Ok(()) };
    let apart = |slot: &IoSlot| plan.pool_of[slot.operand.buffer.index()] != 0;
    if plan.pools.len() > 2 || lir.outputs.iter().any(apart) {
        let message = "the memory plan has pools that are not the CPU's";
        return Err(Error::new(ErrorKind::InvalidGraph, message).with_device("cpu"));
    }
    Ok(())
}
