//! Tiles without workgroup memory: each invocation loads the rows and columns that its own results need.
//!
//! An invocation's columns are as far apart as there are invocations along a row, and its rows likewise, so that
//! neighbours load neighbours. What is beyond the last row or column is loaded from that one, which costs no
//! branch, and not stored. Caches do what workgroup memory does in the tiled variant, and no one waits for others.

use super::{Gemm, Operands, Place, Sums, Tile, Tiling, for_k};
use crate::ir::Value;
use crate::schedule::cx::Cx;
use crate::schedule::{Launch, Scheduled};

pub(super) fn launch(cx: Cx<'_>, p: &Gemm, tile: Tile, operands: Operands<'_>) -> Scheduled<Launch> {
    let Operands { a, b, mut share, finish, .. } = operands;
    Tiling::launch(cx, p, tile, |cx, tiling, place| {
        let (lane_m, lane_n) = tiling.lanes(cx);
        let (m0, n0) = (cx.b.add(place.m0, lane_m), cx.b.add(place.n0, lane_n));
        let rows = own(cx, (m0, tile.lanes_m(), tile.own_m), (tiling.m_count, &tiling.sizes.m));
        let columns = own(cx, (n0, tile.lanes_n(), tile.own_n), (tiling.n_count, &tiling.sizes.n));
        let sums = Sums::new(cx, p, tile);
        let mut outer = |cx: &mut Cx<'_>, begin| match &mut share {
            Some(share) => columns.iter().try_for_each(|n| share(cx, begin, n)),
            None => Ok(()),
        };
        for_k(cx, &tiling.sizes.k, &mut outer, &mut |cx, k| {
            let mut x = Vec::with_capacity(rows.len());
            for m in &rows {
                x.push(a(cx, &place.batch, m, k)?);
            }
            let mut y = Vec::with_capacity(columns.len());
            for n in &columns {
                y.push(b(cx, &place.batch, k, n)?);
            }
            sums.add(cx, &x, &y);
            Ok(())
        })?;
        store(cx, tiling, &Place { batch: place.batch.clone(), m0, n0 }, (&sums, tile.lanes_n()), finish)
    })
}

/// The indices of `own` rows (or columns) from `first` on, each `apart` from the next, none beyond the last.
pub(super) fn own(
    cx: &mut Cx<'_>,
    (first, apart, own): (Value, i32, i32),
    (count, dims): (Value, &[Value]),
) -> Vec<Vec<Value>> {
    let one = cx.b.int(1);
    let last = cx.b.sub(count, one);
    let index = |i: i32| {
        let away = cx.b.int(i * apart);
        let at = cx.b.add(first, away);
        let at = cx.b.min(at, last);
        cx.unflatten(at, dims)
    };
    (0..own).map(index).collect()
}

/// Stores the sums, one after the other: of columns that are so far `apart`.
pub(super) fn store(
    cx: &mut Cx<'_>,
    tiling: &Tiling,
    place: &Place,
    (sums, apart): (&Sums, i32),
    finish: super::Finish<'_>,
) -> Scheduled<()> {
    let (tile, count) = (tiling.tile, cx.b.int(sums.vars.len() as i32));
    cx.for_each(count, |cx, i| {
        let own_n = cx.b.int(tile.own_n);
        let [i_m, i_n] = [cx.b.div(i, own_n), cx.b.rem(i, own_n)];
        let (lanes_m, apart) = (cx.b.int(tile.lanes_m()), cx.b.int(apart));
        let (away_m, away_n) = (cx.b.mul(i_m, lanes_m), cx.b.mul(i_n, apart));
        let at = [cx.b.add(place.m0, away_m), cx.b.add(place.n0, away_n)];
        tiling.finish(cx, &place.batch, at, finish, |cx| {
            let first = cx.b.get(sums.vars[0]);
            let chosen = cx.b.var(first);
            for (j, &sum) in sums.vars.iter().enumerate().skip(1) {
                let j = cx.b.int(j as i32);
                let (this, v) = (cx.b.eq(i, j), cx.b.get(sum));
                let now = cx.b.get(chosen);
                let next = cx.b.select(this, v, now);
                cx.b.set(chosen, next);
            }
            cx.b.get(chosen)
        })
    })
}
