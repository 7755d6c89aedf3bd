//! A plan made in one walk over the steps.
//!
//! Comparing each buffer with all that are alive with it takes the square of their number, where very many are. Here each
//! takes the smallest hole that fits when it is written, and leaves one when it was last read: a logarithm for each
//! buffer. Such plans are larger, by what is in holes that are too small.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use rlx_ir::lir::LiveRange;
use rlx_ir::sort::sort_by_key;

use super::{Placement, Rules};

/// A pool as it is at one step: its holes, and where what was never used begins.
#[derive(Default)]
struct Holes {
    /// From where to where.
    by_place: BTreeMap<usize, usize>,
    /// Size and start.
    by_size: BTreeSet<(usize, usize)>,
    end: usize,
}

impl Holes {
    /// Where so many bytes would go: the smallest hole that is large enough, or the end.
    fn place(&self, bytes: usize) -> usize {
        match self.by_size.range((bytes, 0)..).next() {
            Some(&(_, at)) => at,
            None => self
                .by_place
                .last_key_value()
                .filter(|&(_, &to)| to == self.end)
                .map_or(self.end, |(&at, _)| at),
        }
    }

    fn add(&mut self, at: usize, to: usize) {
        if at < to {
            self.by_place.insert(at, to);
            self.by_size.insert((to - at, at));
        }
    }

    fn remove(&mut self, at: usize) -> Option<usize> {
        let to = self.by_place.remove(&at)?;
        self.by_size.remove(&(to - at, at));
        Some(to)
    }

    /// Takes bytes where [`Holes::place`] puts them.
    fn take(&mut self, at: usize, bytes: usize) {
        if let Some(to) = self.remove(at) {
            self.add(at + bytes, to);
        }
        self.end = self.end.max(at + bytes);
    }

    /// Gives bytes back, as one hole with those beside them.
    fn give(&mut self, at: usize, bytes: usize) {
        let before =
            self.by_place.range(..at).next_back().filter(|&(_, &to)| to == at).map(|(&from, _)| from);
        let from = before.inspect(|&from| _ = self.remove(from)).unwrap_or(at);
        let to = self.remove(at + bytes).unwrap_or(at + bytes);
        self.add(from, to);
    }
}

impl Rules {
    /// Places buffers in the order in which they are written.
    pub(super) fn sweep(&self, sized: &mut [(LiveRange, usize)]) -> Placement {
        sort_by_key(sized, |&(range, bytes)| (range.first, Reverse(bytes), range.buffer));
        let mut plan = Placement::new(self.buffers);
        let mut pools = vec![Holes::default()];
        let mut ends: BinaryHeap<Reverse<(usize, usize, usize, usize)>> = BinaryHeap::new();
        for &(range, bytes) in sized.iter() {
            while let Some(&Reverse((last, pool, at, size))) = ends.peek()
                && last < range.first
            {
                ends.pop();
                pools[pool].give(at, size);
            }
            let buffer = range.buffer.index();
            let best = (0..pools.len())
                .filter(|&pool| self.allows(&plan, buffer, pool))
                .map(|pool| (pool, pools[pool].place(bytes)))
                .filter(|&(_, at)| at.saturating_add(bytes) <= self.spec.max_bytes)
                .min_by_key(|&(pool, at)| ((at + bytes).saturating_sub(plan.pools[pool]), pool));
            let (pool, at) = best.unwrap_or((pools.len(), 0));
            if pool == pools.len() {
                pools.push(Holes::default());
                plan.pools.push(0);
            }
            pools[pool].take(at, bytes);
            ends.push(Reverse((range.last, pool, at, bytes)));
            plan.put(buffer, pool, at, bytes);
        }
        plan
    }
}
