//! Mixture of experts: which experts stay resident, which were chosen.
//!
//! These calls are about graphs with a router op. The op table has none yet, so every compiled graph answers
//! truthfully that it has no router.

use rlx_ir::{Error, ErrorKind, Result};

use super::CompiledGraph;
use crate::error::or_panic;

/// How often experts ran where, since the last time this was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MoeResidencyStats {
    /// Calls of experts on the device.
    pub gpu_expert_calls: u64,
    /// Calls of experts on the host.
    pub cpu_expert_calls: u64,
    /// Tokens that experts on the device saw.
    pub gpu_tokens: u64,
    /// Tokens that experts on the host saw.
    pub cpu_tokens: u64,
}

fn no_router() -> Error {
    Error::new(ErrorKind::Unsupported, "the graph has no router: there are no experts to keep resident")
}

impl CompiledGraph {
    /// Says which experts are resident, for all layers.
    ///
    /// # Panics
    /// When the graph has no router; [`CompiledGraph::try_set_moe_resident_experts`] reports it.
    #[track_caller]
    pub fn set_moe_resident_experts(&mut self, mask: &[bool]) {
        or_panic(self.try_set_moe_resident_experts(mask));
    }

    /// As [`CompiledGraph::set_moe_resident_experts`].
    ///
    /// # Errors
    /// A graph without a router.
    pub fn try_set_moe_resident_experts(&mut self, mask: &[bool]) -> Result<()> {
        if mask.is_empty() { Ok(()) } else { Err(no_router()) }
    }

    /// Says which experts are resident, layer by layer in forward order.
    ///
    /// # Panics
    /// When the graph has no router; [`CompiledGraph::try_set_moe_resident_experts_per_layer`] reports it.
    #[track_caller]
    pub fn set_moe_resident_experts_per_layer(&mut self, masks: &[&[bool]]) {
        or_panic(self.try_set_moe_resident_experts_per_layer(masks));
    }

    /// As [`CompiledGraph::set_moe_resident_experts_per_layer`].
    ///
    /// # Errors
    /// A graph without a router.
    pub fn try_set_moe_resident_experts_per_layer(&mut self, masks: &[&[bool]]) -> Result<()> {
        if masks.is_empty() { Ok(()) } else { Err(no_router()) }
    }

    /// Keeps the indices of the chosen experts of each forward; `false` when the graph has no router.
    pub fn enable_moe_topk_capture(&mut self, _capacity: usize) -> bool {
        false
    }

    /// The experts the last forward chose, by router; `None` when nothing is captured.
    pub fn take_moe_topk_capture(&mut self) -> Option<Vec<Vec<u32>>> {
        None
    }

    /// How often experts ran where; `None` when the graph has no router.
    pub fn take_moe_residency_stats(&mut self) -> Option<MoeResidencyStats> {
        None
    }
}
