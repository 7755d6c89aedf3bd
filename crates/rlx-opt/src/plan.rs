//! The memory planner: arena offsets for buffers with known live ranges.
//!
//! Buffers are placed from the largest to the smallest, each at the lowest offset that is free through its
//! whole live range (greedy by size; Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
//! Inference", 2020). The plan reports its size beside the largest live set, which no plan can go below.

use rlx_ir::lir::{LirModule, LiveRange, MemoryPlan};
use rlx_ir::{DimBinding, Error, ErrorKind, Extent, Result};

use crate::target::PoolSpec;

/// Plans the arena of `module` for symbols up to `bounds`.
///
/// # Errors
/// [`ErrorKind::Dimension`] when a symbol has no bound, [`ErrorKind::OutOfMemory`] when sizes overflow or
/// the arena exceeds the pool.
pub fn plan_memory(module: &LirModule, bounds: &DimBinding, pool: PoolSpec) -> Result<MemoryPlan> {
    let align = pool.align.max(1).next_power_of_two();
    let mut sized: Vec<(LiveRange, usize)> = Vec::with_capacity(module.live_ranges.len());
    for &range in &module.live_ranges {
        let buffer = &module.buffers[range.buffer.index()];
        let bytes = buffer_bytes(buffer.elements, buffer.dtype, bounds)?;
        sized.push((range, round_up(bytes.max(1), align)?));
    }
    let largest_live_set = largest_live_set(&sized, module.steps.len());
    sized.sort_by_key(|&(range, bytes)| (std::cmp::Reverse(bytes), range.first, range.buffer));
    let mut offsets = vec![None; module.buffers.len()];
    let mut placed = Placed::new(module.steps.len());
    let mut arena_bytes = 0;
    for (range, bytes) in sized {
        let at = placed.place(range, bytes);
        offsets[range.buffer.index()] = Some(at);
        arena_bytes = arena_bytes.max(at.saturating_add(bytes));
    }
    if arena_bytes > pool.max_bytes {
        let message = format!("the plan needs {arena_bytes} bytes, the device gives {}", pool.max_bytes);
        return Err(Error::new(ErrorKind::OutOfMemory, message).with_hint("use smaller dimensions or batch"));
    }
    Ok(MemoryPlan { bounds: bounds.clone(), arena_bytes, offsets, alignment: align, largest_live_set })
}

/// Bytes of `elements` at these bounds.
fn buffer_bytes(elements: Extent, dtype: rlx_ir::DType, bounds: &DimBinding) -> Result<usize> {
    let value = |s: u32| bounds.get(s).and_then(|v| i64::try_from(v).ok());
    let n = elements.eval(&value).ok_or_else(|| {
        Error::new(ErrorKind::Dimension, format!("{elements} elements: a symbol has no bound"))
    })?;
    usize::try_from(n).ok().filter(|_| n < i64::MAX).and_then(|n| dtype.storage_bytes(n)).ok_or_else(|| {
        Error::new(ErrorKind::OutOfMemory, format!("a buffer of {n} {dtype} elements is too large"))
    })
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

/// The buffers placed so far, found by when they are alive.
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

    /// Puts a buffer at the lowest offset where it fits among those alive at the same time.
    fn place(&mut self, range: LiveRange, bytes: usize) -> usize {
        let blocks = self.blocks(range);
        let mut alive: Vec<usize> = self.by_block[blocks.clone()].iter().flatten().copied().collect();
        alive.retain(|&i| overlaps(range, self.buffers[i].0));
        alive.sort_unstable_by_key(|&i| (self.buffers[i].1, i));
        alive.dedup();
        let mut at = 0usize;
        for i in alive {
            let (_, offset, size) = self.buffers[i];
            if offset >= at.saturating_add(bytes) {
                break;
            }
            at = at.max(offset + size);
        }
        let index = self.buffers.len();
        self.buffers.push((range, at, bytes));
        self.by_block[blocks].iter_mut().for_each(|block| block.push(index));
        at
    }
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
