//! Mixtures of experts: what an executable offers whose graph chooses experts.
//!
//! A *router* is a value of choices that grouped matmuls ([`rlx_ir::Op::GroupedMatMul`]) use; routers are numbered
//! in forward order. An expert is *resident* when the device holds its matrices in memory of its own; the others
//! stay where their weights are (a mapped file, as a rule) and are read from there whenever they are chosen. Where
//! an expert is never changes a result.

use rlx_ir::Result;

/// How often experts ran where, since the last time this was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MoeResidencyStats {
    /// Matmuls of a resident expert's matrix with the rows that chose it.
    pub gpu_expert_calls: u64,
    /// Matmuls of an expert's matrix that was read from host memory.
    pub cpu_expert_calls: u64,
    /// Rows that went through resident experts' matrices.
    pub gpu_tokens: u64,
    /// Rows that went through the others'.
    pub cpu_tokens: u64,
}

/// An executable with routers.
pub trait MixtureOfExperts {
    /// How many experts each router chooses from, in forward order.
    fn routers(&self) -> &[usize];

    /// Makes the experts resident that `masks` says, one mask for each router; `None`: all of them.
    ///
    /// # Errors
    /// Memory that cannot be had.
    fn set_resident(&mut self, masks: Option<&[Vec<bool>]>) -> Result<()>;

    /// Keeps what routers chose from now on, or stops and forgets: for each router whether it is wanted.
    fn capture(&mut self, wanted: &[bool]);

    /// What the wanted routers chose in the last run, in forward order; `None` when nothing ran since they were
    /// last taken.
    fn take_captured(&mut self) -> Option<Vec<Vec<u32>>>;

    /// How often experts ran where.
    fn take_stats(&mut self) -> MoeResidencyStats;
}
