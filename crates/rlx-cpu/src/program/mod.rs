//! The CPU under the executor of `rlx-backend`: kernels for steps, memory, and the walk over bound steps.
//!
//! A [`Program`] is immutable and shared by clones; an [`CpuExecutable`] binds it to dimensions and runs it. What is here is
//! what differs from other devices: which kernel a step has ([`kernel`]), how it is bound and run ([`sequence`]), and where
//! memory comes from ([`memory`], [`scratch`], [`journal`]).

mod device;
pub(crate) mod journal;
mod kernel;
pub(crate) mod layout;
mod memory;
mod moe;
mod ranges;
pub(crate) mod scratch;
mod sequence;
#[cfg(test)]
mod tests;
pub(crate) mod tuned;

use std::sync::Arc;

use rlx_backend::tuning::Tuning;
use rlx_ir::lir::IoSlot;
use rlx_ir::{Error, ErrorKind, LirModule, Result};
use rlx_opt::PoolSpec;

pub(crate) use rlx_backend::extents;

use self::device::Cpu;
use self::kernel::Kernel;
pub(crate) use self::memory::{Place, allocate};
use crate::gemm::TileSizes;
use crate::isa::Isa;
use crate::kernels::Programs;
use crate::pool::Pool;

/// A module with a kernel for every step.
pub(crate) type Program = rlx_backend::executor::Program<Cpu>;

/// A module on the CPU.
pub(crate) type CpuExecutable = rlx_backend::Executor<Cpu>;

/// Which threads a program runs on.
#[derive(Debug, Clone)]
pub(crate) enum Threads {
    /// The process's pool.
    Global(&'static Pool),
    /// One of its own.
    Own(Arc<Pool>),
}

impl Threads {
    pub(crate) fn pool(&self) -> &Pool {
        match self {
            Threads::Global(pool) => pool,
            Threads::Own(pool) => pool,
        }
    }
}

/// Chooses a kernel for every step of a module that was verified.
pub(crate) fn program(
    lir: Arc<LirModule>,
    isa: Isa,
    threads: Threads,
    pool: PoolSpec,
    tuning: &Tuning,
) -> Result<Program> {
    check_pools(&lir)?;
    let cpu = Cpu::new(&lir, isa, threads, pool)?;
    let mut programs = Programs::default();
    Program::new(lir, cpu, &format!("cpu {isa}"), |cpu, lir, at, step, table| {
        let mut kernel = Kernel::new(step, lir, table, isa, &cpu.threads, &mut programs)?;
        if !at.init && !tuning.is_empty() {
            let key = tuned::tuning_key(lir, step, isa, &cpu.threads);
            let tile_sizes =
                key.map_or(TileSizes::DEFAULT, |key| tuned::tile_sizes(isa, tuning.variant(&key)));
            kernel.prototype.set_tile_sizes(tile_sizes);
        }
        Ok(kernel)
    })
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
