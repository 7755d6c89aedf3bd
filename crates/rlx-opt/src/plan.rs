//! The memory planner: pools and offsets for buffers with known live ranges.
//!
//! Buffers are placed from the largest to the smallest, each at the lowest offset that is free through its
//! whole live range (greedy by size; Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
//! Inference", 2020). The plan reports its size beside the largest live set, which no plan can go below; where it is
//! larger, other orders are tried and the best plan is kept. Where very many buffers are alive at once, the plan is made in
//! one walk instead (`plan/sweep.rs`).
//!
//! Host memory is one pool. A device may limit a pool's size, or forbid that one step reads and writes the
//! same pool ([`PoolSpec::exclusive_usage`]); a buffer then goes to the pool that grows least among those
//! where it may be, and to a new one when there is none. A chain of steps needs two pools, a value that
//! skips over a step three. Outputs may be kept apart from all else ([`PoolSpec::outputs_apart`]).

mod sweep;

use std::cmp::Reverse;

use rlx_ir::lir::{BufferId, BufferKind, LirModule, LiveRange, MemoryPlan};
use rlx_ir::sort::sort_by_key;
use rlx_ir::{DimBinding, Error, ErrorKind, Extent, Result, SymRange, sym};

use crate::target::PoolSpec;

/// Plans the arena of `module` for symbols up to `bounds`.
///
/// # Errors
/// [`ErrorKind::Dimension`] when a symbol has no bound, [`ErrorKind::OutOfMemory`] when sizes overflow or a
/// buffer exceeds what the device binds or a pool holds.
pub fn plan_memory(module: &LirModule, bounds: &DimBinding, spec: PoolSpec) -> Result<MemoryPlan> {
    let align = spec.align.max(1).next_power_of_two();
    let mut sized: Vec<(LiveRange, usize)> = Vec::with_capacity(module.live_ranges.len());
    // As all buffers together fit an address space, no offset can overflow below.
    let mut total = 0usize;
    for &range in &module.live_ranges {
        let buffer = &module.buffers[range.buffer.index()];
        let bytes = round_up(buffer_bytes(buffer.elements, buffer.dtype, bounds)?.max(1), align)?;
        let elements = most_elements(buffer.elements, bounds)?;
        if elements > spec.max_elements as u64 {
            let what = format!("a value of {elements} elements, the device counts to {}", spec.max_elements);
            return Err(too_large(module, range, what));
        }
        if bytes > spec.max_bytes.min(spec.max_buffer_bytes) {
            let limit = spec.max_bytes.min(spec.max_buffer_bytes);
            let what = format!("a value of {bytes} bytes, the device takes {limit} at once");
            return Err(too_large(module, range, what));
        }
        total = total.checked_add(bytes).filter(|&n| n <= isize::MAX as usize).ok_or_else(|| {
            let message = "the values of one run are larger than memory can be";
            Error::new(ErrorKind::OutOfMemory, message).with_hint("use smaller dimensions or batch")
        })?;
        sized.push((range, bytes));
    }
    let largest_live_set = largest_live_set(&sized, module.steps.len());
    let mut is_output = vec![false; module.buffers.len()];
    module.outputs.iter().for_each(|slot| is_output[slot.operand.buffer.index()] = true);
    let apart = if spec.exclusive_usage { exclusions(module)? } else { Vec::new() };
    let rules = Rules { steps: module.steps.len(), buffers: module.buffers.len(), apart, is_output, spec };
    let best = rules.search(&mut sized, largest_live_set);
    Ok(MemoryPlan {
        bounds: bounds.clone(),
        arena_bytes: best.bytes(),
        pools: best.pools,
        pool_of: best.pool_of,
        offsets: best.offsets,
        alignment: align,
        largest_live_set,
    })
}

/// What buffers are sorted by before they are placed one after the other.
type Order = fn(LiveRange, usize, usize) -> (Reverse<u128>, usize, BufferId);

/// The orders that are tried, the best first: by size, by size times how long it is alive, by how long alone, by when it
/// is written.
const ORDERS: [Order; 4] = [
    |range, bytes, _| (Reverse(bytes as u128), range.first, range.buffer),
    |range, bytes, steps| (Reverse(bytes as u128 * lasts(range, steps)), range.first, range.buffer),
    |range, _, steps| (Reverse(lasts(range, steps)), range.first, range.buffer),
    |range, _, _| (Reverse(0), range.first, range.buffer),
];

/// In how many steps a buffer is alive.
fn lasts(range: LiveRange, steps: usize) -> u128 {
    (range.last.min(steps) - range.first.min(steps)) as u128 + 1
}

/// Pools, and which of them a buffer may be in.
struct Rules {
    steps: usize,
    buffers: usize,
    /// For each buffer, those that may not be in its pool.
    apart: Vec<Vec<usize>>,
    is_output: Vec<bool>,
    spec: PoolSpec,
}

/// Where buffers lie.
#[derive(Default)]
struct Placement {
    pools: Vec<usize>,
    pool_of: Vec<u32>,
    offsets: Vec<Option<usize>>,
}

impl Placement {
    fn new(buffers: usize) -> Placement {
        Placement { pools: vec![0], pool_of: vec![0; buffers], offsets: vec![None; buffers] }
    }

    fn put(&mut self, buffer: usize, pool: usize, at: usize, bytes: usize) {
        self.offsets[buffer] = Some(at);
        self.pool_of[buffer] = pool as u32;
        self.pools[pool] = self.pools[pool].max(at + bytes);
    }

    fn bytes(&self) -> usize {
        self.pools.iter().fold(0, |sum, &pool| sum.saturating_add(pool))
    }
}

/// How many buffers are placed in all while orders are tried: a plan is made for each new set of sizes.
const MOST_PLACED: usize = 5_000;
/// Where more pairs of buffers than this are alive together, they are not compared.
const MOST_PAIRS: usize = 1 << 20;

impl Rules {
    /// The best of some placements; `goal` is what none can go below.
    ///
    /// After the fixed orders, whatever ends highest is placed first the next time, again and again. Where pools are set
    /// apart by rules, only the first order is tried: the goal is out of reach there.
    fn search(&self, sized: &mut [(LiveRange, usize)], goal: usize) -> Placement {
        if pairs_alive(sized, self.steps) > MOST_PAIRS {
            return self.sweep(sized);
        }
        let ruled = self.spec.exclusive_usage || self.spec.outputs_apart;
        let mut best: Option<(Placement, Vec<(LiveRange, usize)>)> = None;
        let least = |best: &Option<(Placement, _)>| best.as_ref().map_or(usize::MAX, |(b, _)| b.bytes());
        for order in ORDERS {
            sort_by_key(sized, |&(range, bytes)| order(range, bytes, self.steps));
            let placement = self.place(sized);
            if placement.bytes() < least(&best) {
                best = Some((placement, sized.to_vec()));
            }
            if ruled || least(&best) == goal {
                break;
            }
        }
        let Some((mut best, mut order)) = best else { return Placement::default() };
        let mut last = self.highest(&best, &order);
        let near = goal.saturating_add(goal / 100);
        for _ in 0..MOST_PLACED / order.len().max(1) {
            if ruled || best.bytes() <= near {
                break;
            }
            order[..=last].rotate_right(1);
            let placement = self.place(&order);
            last = self.highest(&placement, &order);
            if placement.bytes() < best.bytes() {
                best = placement;
            }
        }
        best
    }

    /// Which of the buffers ends where its pool does, the pool being the largest; the last such one.
    fn highest(&self, plan: &Placement, order: &[(LiveRange, usize)]) -> usize {
        let most = plan.pools.iter().copied().max().unwrap_or(0);
        let ends = |&(range, bytes): &(LiveRange, usize)| {
            plan.offsets[range.buffer.index()].is_some_and(|at| at + bytes == most)
        };
        order.iter().rposition(ends).unwrap_or(0)
    }

    /// Places buffers in this order.
    fn place(&self, sized: &[(LiveRange, usize)]) -> Placement {
        let mut plan = Placement::new(self.buffers);
        let mut placed: Vec<Placed> = vec![Placed::new(self.steps)];
        for &(range, bytes) in sized {
            let buffer = range.buffer.index();
            let best = (0..placed.len())
                .filter(|&pool| self.allows(&plan, buffer, pool))
                .map(|pool| (pool, placed[pool].lowest_free(range, bytes)))
                .filter(|&(_, at)| at.saturating_add(bytes) <= self.spec.max_bytes)
                .min_by_key(|&(pool, at)| ((at + bytes).saturating_sub(plan.pools[pool]), pool));
            let (pool, at) = best.unwrap_or((placed.len(), 0));
            if pool == placed.len() {
                placed.push(Placed::new(self.steps));
                plan.pools.push(0);
            }
            placed[pool].put(range, at, bytes);
            plan.put(buffer, pool, at, bytes);
        }
        plan
    }

    fn allows(&self, plan: &Placement, buffer: usize, pool: usize) -> bool {
        if self.spec.outputs_apart && (pool == 0) != self.is_output[buffer] {
            return false;
        }
        let excluded = self.apart.get(buffer).map_or(&[][..], Vec::as_slice);
        !excluded.iter().any(|&o| plan.offsets[o].is_some() && plan.pool_of[o] as usize == pool)
    }
}

fn too_large(module: &LirModule, range: LiveRange, message: String) -> Error {
    let error = Error::new(ErrorKind::OutOfMemory, message).with_hint("use smaller dimensions or batch");
    let writer = module.steps.get(range.first);
    writer.map_or(error.clone(), |step| module.graph.locate(step.node, error))
}

/// For each buffer: those that may not be in its pool, because a step reads the one and writes the other. What a step writes in
/// place, its kernels use once.
fn exclusions(module: &LirModule) -> Result<Vec<Vec<usize>>> {
    let arena = |b: usize| module.buffers[b].kind == BufferKind::Arena;
    let mut apart = vec![Vec::new(); module.buffers.len()];
    for step in &module.steps {
        for (j, output) in
            step.outputs.iter().map(|o| o.buffer.index()).enumerate().filter(|&(_, b)| arena(b))
        {
            for (i, input) in
                step.inputs.iter().map(|o| o.buffer.index()).enumerate().filter(|&(_, b)| arena(b))
            {
                if input == output && step.in_place().any(|pair| pair == (i, j)) {
                    continue;
                }
                if input == output {
                    let message = "a step reads the buffer it writes, which the device forbids";
                    let error = Error::new(ErrorKind::InvalidGraph, message);
                    return Err(module.graph.locate(step.node, error));
                }
                apart[output].push(input);
                apart[input].push(output);
            }
        }
    }
    Ok(apart)
}

/// The most bytes that `elements` can take for symbols up to these bounds. A size need not grow with its symbols
/// (`128 - seq`), so it is the upper end of its range that counts, not its value at the bounds.
///
/// # Errors
/// [`ErrorKind::Dimension`] when a symbol has no bound, [`ErrorKind::OutOfMemory`] when the size overflows.
pub fn buffer_bytes(elements: Extent, dtype: rlx_ir::DType, bounds: &DimBinding) -> Result<usize> {
    let n = most_elements(elements, bounds)?;
    let bytes = usize::try_from(n).ok().filter(|_| n < i64::MAX as u64).and_then(|n| dtype.storage_bytes(n));
    bytes.ok_or_else(|| {
        Error::new(ErrorKind::OutOfMemory, format!("a buffer of {n} {dtype} elements is too large"))
    })
}

/// The most that a number of elements can be for symbols up to these bounds.
fn most_elements(elements: Extent, bounds: &DimBinding) -> Result<u64> {
    let bound = |s: u32| bounds.get(s).and_then(|v| i64::try_from(v).ok());
    if let Some(open) = elements.symbols().into_iter().find(|&s| bound(s).is_none()) {
        let message = format!("{elements} elements: {} has no bound", sym::name(open));
        return Err(Error::new(ErrorKind::Dimension, message));
    }
    let n = elements.range(&|s| SymRange::new(0, bound(s).unwrap_or(i64::MAX))).max;
    Ok(u64::try_from(n).unwrap_or(0))
}

fn round_up(bytes: usize, align: usize) -> Result<usize> {
    bytes
        .checked_next_multiple_of(align)
        .ok_or_else(|| Error::new(ErrorKind::OutOfMemory, format!("a buffer of {bytes} bytes is too large")))
}

fn overlaps(a: LiveRange, b: LiveRange) -> bool {
    a.first <= b.last && b.first <= a.last
}

/// How many steps share one list of the buffers alive in them.
const BLOCK: usize = 64;

/// The buffers placed so far in a pool, found by when they are alive.
struct Placed {
    steps: usize,
    /// Range, offset and size.
    buffers: Vec<(LiveRange, usize, usize)>,
    /// For each block of steps, the buffers alive in one of them: most live shortly, so that few are looked at.
    by_block: Vec<Vec<usize>>,
}

impl Placed {
    fn new(steps: usize) -> Self {
        Placed { steps, buffers: Vec::new(), by_block: vec![Vec::new(); steps / BLOCK + 1] }
    }

    fn blocks(&self, range: LiveRange) -> std::ops::RangeInclusive<usize> {
        let last = self.by_block.len() - 1;
        (range.first / BLOCK).min(last)..=(range.last.min(self.steps) / BLOCK).min(last)
    }

    /// The lowest offset where `bytes` fit among the buffers alive at the same time.
    fn lowest_free(&self, range: LiveRange, bytes: usize) -> usize {
        let mut alive: Vec<usize> = self.by_block[self.blocks(range)].iter().flatten().copied().collect();
        alive.retain(|&i| overlaps(range, self.buffers[i].0));
        sort_by_key(&mut alive, |&i| (self.buffers[i].1, i));
        alive.dedup();
        let mut at = 0usize;
        for i in alive {
            let (_, offset, size) = self.buffers[i];
            if offset >= at.saturating_add(bytes) {
                break;
            }
            at = at.max(offset + size);
        }
        at
    }

    /// Puts a buffer there.
    fn put(&mut self, range: LiveRange, at: usize, bytes: usize) {
        let (index, blocks) = (self.buffers.len(), self.blocks(range));
        self.buffers.push((range, at, bytes));
        self.by_block[blocks].iter_mut().for_each(|block| block.push(index));
    }
}

/// About how many pairs of buffers are alive at the same time.
fn pairs_alive(sized: &[(LiveRange, usize)], steps: usize) -> usize {
    let (mut begin, mut end) = (vec![0usize; steps + 2], vec![0usize; steps + 2]);
    for (range, _) in sized {
        begin[range.first.min(steps)] += 1;
        end[range.last.min(steps).saturating_add(1)] += 1;
    }
    let (mut alive, mut pairs) = (0usize, 0usize);
    for (&begin, end) in begin.iter().zip(end) {
        alive = alive + begin - end;
        pairs = pairs.saturating_add(begin.saturating_mul(alive));
    }
    pairs
}

fn largest_live_set(sized: &[(LiveRange, usize)], steps: usize) -> usize {
    let mut change = vec![0i128; steps + 2];
    for &(range, bytes) in sized {
        change[range.first] += bytes as i128;
        change[range.last.min(steps).saturating_add(1)] -= bytes as i128;
    }
    let (mut live, mut most) = (0i128, 0i128);
    for c in change {
        live += c;
        most = most.max(live);
    }
    usize::try_from(most).unwrap_or(usize::MAX)
}
