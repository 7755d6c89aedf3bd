//! Memory for the dimensions of a run: whether the present plan is enough, and which one comes next.
//!
//! A module is planned for upper bounds of its symbols. A run with a larger dimension needs another plan, which is made for
//! the next powers of two, so that a dimension that grows from run to run is planned for seldom.

use rlx_ir::lir::MemoryPlan;
use rlx_ir::{DimBinding, LirModule, Result};
use rlx_opt::plan::plan_memory;
use rlx_opt::target::PoolSpec;

/// Whether the memory of `plan` is enough for a run with these values of the module's symbols.
pub fn is_enough(plan: &MemoryPlan, lir: &LirModule, dims: &[i64]) -> bool {
    let within = |(&s, &v): (&u32, &i64)| plan.bounds.get(s).is_some_and(|bound| v as usize <= bound);
    lir.symbols.iter().zip(dims).all(within)
}

/// Plans memory for a run that the plan `before` is not enough for, and hands the plan to `take`, which gets the memory: room
/// for larger runs and for those before or, where there is not so much memory, for this run alone.
///
/// # Errors
/// What planning for this run alone, or `take`, reports.
pub fn plan_for_run(
    lir: &LirModule,
    before: Option<&MemoryPlan>,
    dims: &[i64],
    spec: PoolSpec,
    mut take: impl FnMut(MemoryPlan) -> Result<()>,
) -> Result<()> {
    let bounds = |of: &dyn Fn(u32, usize) -> usize| {
        let pairs = lir.symbols.iter().zip(dims).map(|(&s, &v)| (s, of(s, v as usize)));
        DimBinding::from_pairs(&pairs.collect::<Vec<_>>())
    };
    let last = |s: u32| before.and_then(|plan| plan.bounds.get(s)).unwrap_or(0);
    let roomy = bounds(&|s, v| v.next_power_of_two().max(last(s)));
    let exact = bounds(&|_, v| v);
    plan_memory(lir, &roomy, spec)
        .and_then(&mut take)
        .or_else(|e| if exact == roomy { Err(e) } else { take(plan_memory(lir, &exact, spec)?) })
}
