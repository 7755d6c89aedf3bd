//! Tiles through workgroup memory.
//!
//! A workgroup makes one tile of results. Strips of both operands go through its memory; each invocation keeps the
//! sums of a few rows and columns. The finished tile goes through the same memory, some rows of every
//! invocation at a time, so that what follows is written once and neighbours store side by side.
//!
//! **Banks.** Workgroup memory has 32 banks; a warp that accesses several words of one bank waits for each (`interp::count` finds that). So the
//! rows of an invocation are neighbours, its columns are as far apart as there are invocations along a row, and rows in memory are a
//! little longer than what they hold ([`Layout`]).

use super::{Finish, Gemm, Operands, Place, Sums, Tile, Tiling};
use crate::ir::{Const, Shared, Ty, Value};
use crate::schedule::cx::Cx;
use crate::schedule::{Launch, Scheduled};

/// Banks of workgroup memory, and invocations that access it at once.
const BANKS: i32 = 32;

/// Where strips and slabs are in workgroup memory, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// From one row of the left strip to the next; a row is what one `k` needs.
    left: i32,
    /// Where the right strip begins, whose rows are dense.
    right_at: i32,
    /// How many rows of each invocation a slab of the finished tile has.
    slab_rows: i32,
    /// From one invocation's rows of a slab to the next one's; its own follow each other without a gap.
    slab: i32,
    /// How long it all is.
    pub(super) len: i32,
}

impl Layout {
    /// The layout for a tile with strips so deep; sizes are powers of two.
    pub(super) const fn new(tile: Tile, depth: i32) -> Layout {
        // A warp fills `depth` rows of a few columns each: rows begin that many banks apart.
        let left = tile.m + if depth < BANKS { BANKS / depth } else { 1 };
        let right_at = left * depth;
        let strips = right_at + tile.n * depth;
        // As many rows of each invocation as there is room for.
        let mut slab_rows = tile.own_m;
        while tile.lanes_m() * slab_rows * tile.n > strips {
            slab_rows /= 2;
        }
        // A warp stores what several rows of invocations have: those begin as many banks apart as a row has invocations. It reads rows that are
        // shorter than a warp several at once: all of them are one invocation's, and so without a gap.
        let mut slab = slab_rows * tile.n;
        while tile.lanes_n() < BANKS && slab % (2 * tile.lanes_n()) != tile.lanes_n() {
            slab += 1;
        }
        let rows = tile.lanes_m() * slab;
        Layout { left, right_at, slab_rows, slab, len: if strips > rows { strips } else { rows } }
    }
}

/// The kernel's workgroup memory: the strips, and later slabs of the finished tile.
struct Memory {
    shared: Shared,
    layout: Layout,
    /// How deep the strips are. The left one is `depth`×`tile.m`, and the right one, `depth`×`tile.n`, follows it.
    depth: i32,
    /// Which of the invocations along the rows and columns this is, and its first row within the tile.
    lane_m: Value,
    lane_n: Value,
    own_m: Value,
}

pub(super) fn launch(
    mut cx: Cx<'_>,
    p: &Gemm,
    (tile, depth): (Tile, i32),
    operands: Operands<'_>,
) -> Scheduled<Launch> {
    let Operands { a, b, finish, .. } = operands;
    let layout = Layout::new(tile, depth);
    let shared = cx.b.shared(Ty::of(p.dtype), layout.len as u32);
    Tiling::launch(cx, p, tile, |cx, tiling, place| {
        let (lane_m, lane_n) = tiling.lanes(cx);
        let per_m = cx.b.int(tile.own_m);
        let own_m = cx.b.mul(lane_m, per_m);
        let memory = Memory { shared, layout, depth, lane_m, lane_n, own_m };
        let sums = Sums::new(cx, p, tile);
        let start = cx.b.int(0);
        cx.for_step((start, tiling.k_count, depth), |cx, k0| {
            memory.fill_left(cx, (tiling, place, k0), p, a)?;
            memory.fill_right(cx, (tiling, place, k0), p, b)?;
            cx.b.barrier();
            memory.multiply(cx, tile, &sums)?;
            cx.b.barrier();
            Ok(())
        })?;
        memory.store(cx, tiling, place, &sums, finish)
    })
}

impl Memory {
    /// The left strip: neighbouring invocations load neighbours along `k`.
    ///
    /// What is beyond the end of `k` is -0 here and 0 in the right strip: that adds -0, which changes no sum, not even
    /// one that is -0 itself because a driver joined product and sum without rounding between them.
    fn fill_left(
        &self,
        cx: &mut Cx<'_>,
        (tiling, place, k0): (&Tiling, &Place, Value),
        p: &Gemm,
        a: super::Load<'_>,
    ) -> Scheduled<()> {
        let ty = Ty::of(p.dtype);
        let pad = if ty.is_float() { cx.b.constant(Const::float(ty, -0.0)) } else { p.zero(cx) };
        self.each(cx, tiling, tiling.tile.m * self.depth, |cx, flat| {
            let (depth, size) = (cx.b.int(self.depth), cx.b.int(self.layout.left));
            let (k, m) = (cx.b.rem(flat, depth), cx.b.div(flat, depth));
            let (at_m, at_k) = (cx.b.add(place.m0, m), cx.b.add(k0, k));
            let v = element_or(cx, [(at_m, tiling.m_count), (at_k, tiling.k_count)], pad, |cx| {
                let (m, k) = (cx.unflatten(at_m, &tiling.sizes.m), cx.unflatten(at_k, &tiling.sizes.k));
                a(cx, &place.batch, &m, &k)
            })?;
            let row = cx.b.mul(k, size);
            let at = cx.b.add(row, m);
            cx.b.store_shared(self.shared, at, v);
            Ok(())
        })
    }

    /// The right strip: neighbouring invocations load neighbours along `n`.
    fn fill_right(
        &self,
        cx: &mut Cx<'_>,
        (tiling, place, k0): (&Tiling, &Place, Value),
        p: &Gemm,
        b: super::Load<'_>,
    ) -> Scheduled<()> {
        let pad = p.zero(cx);
        self.each(cx, tiling, tiling.tile.n * self.depth, |cx, flat| {
            let (size, before) = (cx.b.int(tiling.tile.n), cx.b.int(self.layout.right_at));
            let (k, n) = (cx.b.div(flat, size), cx.b.rem(flat, size));
            let (at_k, at_n) = (cx.b.add(k0, k), cx.b.add(place.n0, n));
            let v = element_or(cx, [(at_k, tiling.k_count), (at_n, tiling.n_count)], pad, |cx| {
                let (k, n) = (cx.unflatten(at_k, &tiling.sizes.k), cx.unflatten(at_n, &tiling.sizes.n));
                b(cx, &place.batch, &k, &n)
            })?;
            let at = cx.b.add(before, flat);
            cx.b.store_shared(self.shared, at, v);
            Ok(())
        })
    }

    /// Adds what the strips hold to the sums.
    fn multiply(&self, cx: &mut Cx<'_>, tile: Tile, sums: &Sums) -> Scheduled<()> {
        let depth = cx.b.int(self.depth);
        cx.for_each(depth, |cx, k| {
            let mut load =
                |(before, size): (i32, i32), own: Value, (apart, count): (i32, i32)| -> Vec<Value> {
                    let (size, before) = (cx.b.int(size), cx.b.int(before));
                    let row = cx.b.mul(k, size);
                    let row = cx.b.add(row, before);
                    let first = cx.b.add(row, own);
                    (0..count)
                        .map(|i| {
                            let i = cx.b.int(i * apart);
                            let at = cx.b.add(first, i);
                            cx.b.load_shared(self.shared, at)
                        })
                        .collect()
                };
            let Layout { left, right_at, .. } = self.layout;
            let x = load((0, left), self.own_m, (1, tile.own_m));
            let y = load((right_at, tile.n), self.lane_n, (tile.lanes_n(), tile.own_n));
            sums.add(cx, &x, &y);
            Ok(())
        })
    }

    /// Stores the tile, slab by slab. Every workgroup that has a tile comes here, with all its invocations.
    fn store(
        &self,
        cx: &mut Cx<'_>,
        tiling: &Tiling,
        place: &Place,
        sums: &Sums,
        finish: Finish<'_>,
    ) -> Scheduled<()> {
        let per = self.layout.slab_rows;
        let slabs = tiling.tile.own_m / per;
        if slabs == 1 {
            let first = cx.b.int(0);
            return self.store_slab(cx, (tiling, place), (first, per), sums, finish);
        }
        let count = cx.b.int(slabs);
        cx.for_each(count, |cx, slab| {
            self.store_slab(cx, (tiling, place), (slab, per), sums, finish)?;
            cx.b.barrier();
            Ok(())
        })
    }

    /// Stores `per` rows of each invocation, from row `slab · per` on.
    fn store_slab(
        &self,
        cx: &mut Cx<'_>,
        (tiling, place): (&Tiling, &Place),
        (slab, per): (Value, i32),
        sums: &Sums,
        finish: Finish<'_>,
    ) -> Scheduled<()> {
        let tile = tiling.tile;
        let (rows, own_rows, width) = (cx.b.int(per), cx.b.int(tile.own_m), cx.b.int(tile.n));
        let apart = cx.b.int(self.layout.slab);
        for (own_slab, sums) in sums.vars.chunks((per * tile.own_n) as usize).enumerate() {
            let own_slab = cx.b.int(own_slab as i32);
            let this = cx.b.eq(slab, own_slab);
            cx.if_then(this, |cx| {
                let own = cx.b.mul(self.lane_m, apart);
                let first = cx.b.add(own, self.lane_n);
                for (i, &sum) in sums.iter().enumerate() {
                    let (row, column) = (i as i32 / tile.own_n, i as i32 % tile.own_n);
                    let away = cx.b.int(row * tile.n + column * tile.lanes_n());
                    let (at, v) = (cx.b.add(first, away), cx.b.get(sum));
                    cx.b.store_shared(self.shared, at, v);
                }
                Ok(())
            })?;
        }
        cx.b.barrier();
        let before = cx.b.mul(slab, rows);
        let (dense, gap) = (cx.b.int(per * tile.n), cx.b.int(self.layout.slab - per * tile.n));
        self.each(cx, tiling, tile.lanes_m() * per * tile.n, |cx, flat| {
            let (row, n) = (cx.b.div(flat, width), cx.b.rem(flat, width));
            // Of each invocation there are `per` rows here, of the `own_m` that lie side by side in the tile.
            let m = if per == tile.own_m {
                row
            } else {
                let (lane_m, i) = (cx.b.div(row, rows), cx.b.rem(row, rows));
                let (first, i) = (cx.b.mul(lane_m, own_rows), cx.b.add(before, i));
                cx.b.add(first, i)
            };
            let at = [cx.b.add(place.m0, m), cx.b.add(place.n0, n)];
            tiling.finish(cx, &place.batch, at, finish, |cx| {
                let owner = cx.b.div(flat, dense);
                let gaps = cx.b.mul(owner, gap);
                let from = cx.b.add(flat, gaps);
                cx.b.load_shared(self.shared, from)
            })
        })
    }

    /// Runs `f` for every number below `all` that is this invocation's.
    fn each(
        &self,
        cx: &mut Cx<'_>,
        tiling: &Tiling,
        all: i32,
        f: impl FnOnce(&mut Cx<'_>, Value) -> Scheduled<()>,
    ) -> Scheduled<()> {
        let all = cx.b.int(all);
        cx.for_step((tiling.lane, all, tiling.tile.lanes_m() * tiling.tile.lanes_n()), f)
    }
}

/// What `f` gives where both indices are below their limits, else `pad`.
fn element_or(
    cx: &mut Cx<'_>,
    limits: [(Value, Value); 2],
    pad: Value,
    f: impl FnOnce(&mut Cx<'_>) -> Scheduled<Value>,
) -> Scheduled<Value> {
    let [p, q] = limits.map(|(i, limit)| cx.b.lt(i, limit));
    let inside = cx.b.and(p, q);
    cx.value_if(inside, pad, f)
}
