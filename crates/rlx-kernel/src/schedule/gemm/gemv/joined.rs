//! What the invocations of a workgroup have of a sum, added through workgroup memory.
//!
//! Twice: first those that are [`LAST`] invocations apart, so that a warp reads neighbours, then what is left of each column by one invocation, which goes on with the
//! result. Sums of some rows at a time are in workgroup memory.

use super::{Gemv, LAST};
use crate::build::Builder;
use crate::ir::{Shared, Value};
use crate::schedule::Scheduled;
use crate::schedule::cx::Cx;
use crate::schedule::gemm::{Finish, Place, Sums, Tiling};

/// What is added through workgroup memory.
pub(super) struct Joined<'t> {
    pub gemv: Gemv,
    pub tiling: &'t Tiling,
    pub place: &'t Place,
    /// See [`Gemv::memory`].
    pub memory: [Option<Shared>; 3],
}

/// The sum of elements that are `apart`, from one on, `before` so many elements.
fn added(b: &mut Builder, (memory, first): (Shared, Value), (apart, before): (i32, i32)) -> Value {
    let mut sum = b.load_shared(memory, first);
    for away in (apart..before).step_by(apart as usize) {
        let away = b.int(away);
        let next = b.add(first, away);
        let next = b.load_shared(memory, next);
        sum = b.add(sum, next);
    }
    sum
}

impl Joined<'_> {
    /// Adds the sums of all invocations, some rows at a time, and does what is behind the matmul.
    pub fn finish(&self, cx: &mut Cx<'_>, sums: &Sums, finish: Finish<'_>) -> Scheduled<()> {
        let Gemv { rows, own, across, .. } = self.gemv;
        let (together, columns) = (self.gemv.rows_together(), own * across);
        for first in (0..rows).step_by(together as usize) {
            let now = together.min(rows - first);
            if first > 0 && self.gemv.is_last_alone() {
                cx.b.barrier();
            }
            let of = &sums.vars[(first * own) as usize..((first + now) * own) as usize];
            let values: Vec<Value> = of.iter().map(|&sum| cx.b.get(sum)).collect();
            self.keep(cx, &values);
            let (lane, count) = (self.tiling.lane, cx.b.int(now * columns));
            let has = cx.b.lt(lane, count);
            cx.if_then(has, |cx| {
                let sum = self.last(cx);
                let Some(results) = self.memory[2] else { return self.store(cx, lane, finish, sum) };
                let first = cx.b.int(first * columns);
                let at = cx.b.add(first, lane);
                cx.b.store_shared(results, at, sum);
                Ok(())
            })?;
        }
        let Some(results) = self.memory[2] else { return Ok(()) };
        cx.b.barrier();
        let count = cx.b.int(rows * columns);
        cx.for_step((self.tiling.lane, count, self.gemv.lanes()), |cx, at| {
            let sum = cx.b.load_shared(results, at);
            self.store(cx, at, finish, sum)
        })
    }

    /// Puts sums of all invocations where they are added last, those of one column that are [`LAST`] invocations apart as one.
    fn keep(&self, cx: &mut Cx<'_>, sums: &[Value]) {
        let (lane, lanes) = (self.tiling.lane, self.gemv.lanes());
        let [all, Some(kept), _] = self.memory else { return };
        let Some(all) = all else {
            let first = self.kept(&mut cx.b, lane);
            for (i, &sum) in sums.iter().enumerate() {
                let away = cx.b.int(i as i32 * self.gemv.pitch() * (lanes / LAST));
                let at = cx.b.add(first, away);
                cx.b.store_shared(kept, at, sum);
            }
            return cx.b.barrier();
        };
        for (i, &sum) in sums.iter().enumerate() {
            let away = cx.b.int(i as i32 * lanes);
            let at = cx.b.add(lane, away);
            cx.b.store_shared(all, at, sum);
        }
        cx.b.barrier();
        let block = self.gemv.block();
        let count = cx.b.int(sums.len() as i32 * lanes / block * LAST);
        cx.b.for_step(lane, count, lanes, |b, at| {
            let (last, size) = (b.int(LAST), b.int(block));
            let (column, place) = (b.div(at, last), b.rem(at, last));
            let first = b.mul(column, size);
            let first = b.add(first, place);
            let sum = added(b, (all, first), (LAST, block));
            let to = self.kept(b, at);
            b.store_shared(kept, to, sum);
        });
        cx.b.barrier();
    }

    /// Where number `at` of what is added last is, of which each row and column has [`LAST`].
    fn kept(&self, b: &mut Builder, at: Value) -> Value {
        let (last, pitch) = (b.int(LAST), b.int(self.gemv.pitch()));
        let (column, place) = (b.div(at, last), b.rem(at, last));
        let column = b.mul(column, pitch);
        b.add(column, place)
    }

    /// The invocation's result: what was kept of its row and column, added.
    fn last(&self, cx: &mut Cx<'_>) -> Value {
        let apart = self.gemv.interleaved();
        let (of, pitch) = (cx.b.int(apart), cx.b.int(self.gemv.pitch()));
        let (column, within) = (cx.b.div(self.tiling.lane, of), cx.b.rem(self.tiling.lane, of));
        let first = cx.b.mul(column, pitch);
        let first = cx.b.add(first, within);
        self.memory[1].map_or(first, |kept| added(&mut cx.b, (kept, first), (apart, LAST)))
    }

    /// Stores result number `at`: those of a row one after the other, of these the same column of all invocations.
    fn store(&self, cx: &mut Cx<'_>, at: Value, finish: Finish<'_>, sum: Value) -> Scheduled<()> {
        let Gemv { own, across, .. } = self.gemv;
        let (columns, lanes, own) = (cx.b.int(own * across), cx.b.int(across), cx.b.int(own));
        let (row, at) = (cx.b.div(at, columns), cx.b.rem(at, columns));
        let (column, lane) = (cx.b.div(at, lanes), cx.b.rem(at, lanes));
        let n = cx.b.mul(lane, own);
        let n = cx.b.add(n, column);
        let at = [cx.b.add(self.place.m0, row), cx.b.add(self.place.n0, n)];
        self.tiling.finish(cx, &self.place.batch, at, finish, |_| sum)
    }
}
