//! Matmuls of few rows by a matrix of which neighbouring elements are read by one access.
//!
//! Such a matmul is as fast as the matrix is read, so what counts is how: several elements at once, each invocation from one place. Where elements of a
//! row are neighbours, an invocation has neighbouring columns ([`columns`]); where those of a column are, it has one column and takes several steps
//! of the sum at once ([`depth`]). Elements of the left matrix are read together too, where they are neighbours along the depth.
//!
//! ```text
//! columns: s0 += x[k]·w[k, n]; s1 += x[k]·w[k, n + 1]; …         depth: s += x[k]·w[n, k]; s += x[k + 1]·w[n, k + 1]; …
//! ```

use super::direct::{own, store};
use super::{Gemm, LoadWide, Neighbours, Operands, Place, Sums, Tile, Tiling};
use crate::ir::Value;
use crate::schedule::cx::Cx;
use crate::schedule::{Launch, Scheduled, reject};

/// Steps of the sum that [`columns`] takes at once where the left matrix is read so.
const STEPS: usize = 4;

/// Operands of which some elements are read together.
pub(crate) struct Wide<'f> {
    /// Neighbours along the depth of the left matrix, where it has them: at `(batch, m, k)`.
    pub a: Option<LoadWide<'f>>,
    /// Those of the right matrix: at `(batch, k, n)`.
    pub b: LoadWide<'f>,
}

/// Elements of the left matrix: of each row, so many steps of the sum.
fn left(
    cx: &mut Cx<'_>,
    (a, wide): (super::Load<'_>, &mut Option<LoadWide<'_>>),
    (batch, rows): (&[Value], &[Vec<Value>]),
    (begin, steps): (Value, usize),
) -> Scheduled<Vec<Vec<Value>>> {
    let row = |m: &Vec<Value>| match wide {
        Some(wide) => wide(cx, batch, m, &[begin], steps),
        None => (0..steps)
            .map(|i| {
                let i = cx.b.int(i as i32);
                let k = cx.b.add(begin, i);
                a(cx, batch, m, &[k])
            })
            .collect(),
    };
    rows.iter().map(row).collect()
}

/// Each invocation has neighbouring columns, of which all or none are there.
pub(super) fn columns(cx: Cx<'_>, p: &Gemm, tile: Tile, operands: Operands<'_>) -> Scheduled<Launch> {
    let Operands { a, wide, finish, .. } = operands;
    let (Some(mut wide), Some(Neighbours::Columns(most))) = (wide, p.neighbours) else {
        return reject("columns that are no neighbours");
    };
    let own_n = tile.own_n as usize;
    let (width, steps) = (most.min(own_n), if wide.a.is_some() { STEPS } else { 1 });
    Tiling::launch(cx, p, tile, |cx, tiling, place| {
        let (lane_m, lane_n) = tiling.lanes(cx);
        let each = cx.b.int(tile.own_n);
        let first = cx.b.mul(lane_n, each);
        let (m0, n0) = (cx.b.add(place.m0, lane_m), cx.b.add(place.n0, first));
        let rows = own(cx, (m0, tile.lanes_m(), tile.own_m), (tiling.m_count, &tiling.sizes.m));
        let inside = cx.b.lt(n0, tiling.n_count);
        cx.if_then(inside, |cx| {
            let sums = Sums::new(cx, p, tile);
            let zero = cx.b.int(0);
            cx.for_step((zero, tiling.k_count, steps as i32), |cx, begin| {
                let x = left(cx, (&mut *a, &mut wide.a), (&place.batch, &rows), (begin, steps))?;
                for step in 0..steps {
                    let away = cx.b.int(step as i32);
                    let k = cx.b.add(begin, away);
                    let mut y = Vec::with_capacity(own_n);
                    for column in (0..own_n).step_by(width) {
                        let away = cx.b.int(column as i32);
                        let n = cx.b.add(n0, away);
                        y.extend((wide.b)(cx, &place.batch, &[k], &[n], width)?);
                    }
                    let x: Vec<Value> = x.iter().map(|row| row[step]).collect();
                    sums.add(cx, &x, &y);
                }
                Ok(())
            })?;
            let place = Place { batch: place.batch.clone(), m0, n0 };
            store(cx, tiling, &place, (&sums, 1), finish)
        })
    })
}

/// Each invocation takes several steps of the sums of its columns at once.
pub(super) fn depth(cx: Cx<'_>, p: &Gemm, tile: Tile, operands: Operands<'_>) -> Scheduled<Launch> {
    let Operands { a, wide, finish, .. } = operands;
    let (Some(mut wide), Some(Neighbours::Depth(steps))) = (wide, p.neighbours) else {
        return reject("elements of a column that are no neighbours");
    };
    Tiling::launch(cx, p, tile, |cx, tiling, place| {
        let (lane_m, lane_n) = tiling.lanes(cx);
        let (m0, n0) = (cx.b.add(place.m0, lane_m), cx.b.add(place.n0, lane_n));
        let rows = own(cx, (m0, tile.lanes_m(), tile.own_m), (tiling.m_count, &tiling.sizes.m));
        let columns = own(cx, (n0, tile.lanes_n(), tile.own_n), (tiling.n_count, &tiling.sizes.n));
        let sums = Sums::new(cx, p, tile);
        let zero = cx.b.int(0);
        cx.for_step((zero, tiling.k_count, steps as i32), |cx, begin| {
            let x = left(cx, (&mut *a, &mut wide.a), (&place.batch, &rows), (begin, steps))?;
            let column = |n: &Vec<Value>| (wide.b)(cx, &place.batch, &[begin], n, steps);
            let y = columns.iter().map(column).collect::<Scheduled<Vec<_>>>()?;
            for step in 0..steps {
                let at = |of: &[Vec<Value>]| of.iter().map(|own| own[step]).collect::<Vec<_>>();
                sums.add(cx, &at(&x), &at(&y));
            }
            Ok(())
        })?;
        store(cx, tiling, &Place { batch: place.batch.clone(), m0, n0 }, (&sums, tile.lanes_n()), finish)
    })
}
