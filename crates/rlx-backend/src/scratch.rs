//! Scratch memory of single steps: buffers that a device adds to a module, which nothing uses before or behind their steps.
//!
//! How a device computes a step is not the compiler's concern, and neither is what it needs meanwhile: parts of long sums that a second kernel adds up, say.
//! But the memory is the plan's, so that it is shared with everything that is not alive at the same time, counted, and within the device's limits. A device
//! runs the module with more buffers, and callers see the one that was compiled ([`Program::shown_as`](crate::executor::Program::shown_as)).

use rlx_ir::lir::{Buffer, BufferId, BufferKind, LirModule, LiveRange};
use rlx_ir::{DType, Extent, Result, bound_of};
use rlx_opt::PoolSpec;
use rlx_opt::plan::plan_memory;

/// What a step of a run needs while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scratch {
    /// The number of the step.
    pub step: usize,
    /// The type of its elements.
    pub dtype: DType,
    /// How many there are.
    pub elements: Extent,
}

/// The module with these buffers behind its own, in their order.
///
/// # Errors
/// Memory that cannot be planned.
pub fn with_scratch(lir: &LirModule, scratch: &[Scratch], spec: PoolSpec) -> Result<LirModule> {
    let mut module = lir.clone();
    let data = lir.graph.data_symbols();
    for &Scratch { step, dtype, elements } in scratch {
        let buffer = BufferId(module.buffers.len() as u32);
        let elements = elements.upper(&bound_of(&data));
        module.buffers.push(Buffer { kind: BufferKind::Arena, dtype, elements, format: None });
        module.live_ranges.push(LiveRange { buffer, first: step, last: step });
    }
    let bounds = lir.plan.as_ref().map(|plan| &plan.bounds);
    module.plan = bounds.map(|bounds| plan_memory(&module, bounds, spec)).transpose()?;
    Ok(module.hold_extents())
}
