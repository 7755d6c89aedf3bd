//! The memory of a plan, where a device has it as separate allocations.

use rlx_ir::lir::MemoryPlan;
use rlx_ir::{LirModule, Result};

use super::DeviceApi;

/// Makes `pools` the pools of `plan`, and says in `places` where its buffers are: what [`DeviceApi::use_plan`] does on devices that
/// allocate each pool by itself. Pools that are large enough stay. `allocate` is given a pool's number and bytes, `part` a
/// pool, an offset and bytes.
///
/// # Errors
/// Memory that cannot be had.
pub fn use_pools<D: DeviceApi>(
    pools: &mut Vec<D::Memory>,
    lir: &LirModule,
    plan: &MemoryPlan,
    places: &mut [D::Place],
    allocate: impl Fn(usize, usize) -> Result<D::Memory>,
    part: impl Fn(&D::Memory, usize, usize) -> D::Place,
) -> Result<()> {
    let fits = pools.len() == plan.pools.len()
        && pools.iter().zip(&plan.pools).all(|(have, &want)| D::size(have) >= want);
    if !fits {
        // The old memory goes first.
        lir.live_ranges.iter().for_each(|range| places[range.buffer.index()] = D::Place::default());
        pools.clear();
        for (i, &bytes) in plan.pools.iter().enumerate() {
            pools.push(allocate(i, bytes)?);
        }
    }
    for range in &lir.live_ranges {
        let b = range.buffer.index();
        let buffer = &lir.buffers[b];
        let bytes = rlx_opt::plan::buffer_bytes(buffer.elements, buffer.dtype, &plan.bounds)?;
        places[b] = match (plan.offsets[b], pools.get(plan.pool_of[b] as usize)) {
            (Some(offset), Some(pool)) => part(pool, offset, bytes),
            _ => D::Place::default(),
        };
    }
    Ok(())
}
