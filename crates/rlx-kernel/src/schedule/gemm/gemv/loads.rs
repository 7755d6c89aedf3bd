//! An invocation's part of the sums: what it reads of both matrices, and in which order it adds.
//!
//! ```text
//! for k of its blocks, two at a time {        each block so far from the next as all invocations reach
//!     y = right[k..k + 4, n..n + 8] of both    eight accesses that do not wait for each other
//!     x = left[m, k..k + 4] of both
//!     sums += x·y
//! }
//! ```

use super::{Along, Gemv};
use crate::ir::Value;
use crate::schedule::Scheduled;
use crate::schedule::cx::Cx;
use crate::schedule::gemm::direct::own;
use crate::schedule::gemm::{Load, LoadWide, Place, Sums, Tiling};

/// How elements of both matrices are read.
pub(super) struct Loads<'f> {
    pub gemv: Gemv,
    /// An element of the left matrix, and of the right one.
    pub a: Load<'f>,
    pub b: Load<'f>,
    /// Neighbours of them, where they are read together.
    pub wide_a: Option<LoadWide<'f>>,
    pub wide_b: Option<LoadWide<'f>>,
}

/// Rows and columns of an invocation, none beyond the last.
struct Own<'p> {
    batch: &'p [Value],
    rows: Vec<Vec<Value>>,
    /// Of neighbouring columns, the first.
    columns: Vec<Vec<Value>>,
}

/// Elements that are multiplied: for each step of the sum those of rows, and those of columns.
struct Block {
    x: Vec<Vec<Value>>,
    y: Vec<Vec<Value>>,
}

impl Loads<'_> {
    /// Adds an invocation's part of the depth to its sums.
    pub fn sum(&mut self, cx: &mut Cx<'_>, tiling: &Tiling, place: &Place, sums: &Sums) -> Scheduled<()> {
        let Gemv { steps, deep, .. } = self.gemv;
        let (own, part) = self.own(cx, tiling, place);
        // So many blocks are read before the first one is multiplied, each as far from the next as all invocations reach.
        let blocks = self.gemv.blocks();
        let (apart, round) = (deep * steps, blocks * deep * steps);
        let steps = cx.b.int(steps);
        let begin = cx.b.mul(part, steps);
        let behind = cx.b.int(round - apart);
        let end = cx.b.sub(tiling.k_count, behind);
        cx.for_step((begin, end, round), |cx, at| {
            let mut loaded = Vec::new();
            for i in 0..blocks {
                let away = cx.b.int(i * apart);
                let k = cx.b.add(at, away);
                loaded.push(self.block(cx, &own, k)?);
            }
            loaded.iter().for_each(|block| add(cx, sums, block, None));
            Ok(())
        })?;
        // What is left is less than that. Blocks that are not there are the last one again, which is not added.
        let rest = after(cx, (begin, end), round);
        let is_left = cx.b.lt(rest, tiling.k_count);
        cx.if_then(is_left, |cx| {
            let last = cx.b.sub(tiling.k_count, steps);
            let mut loaded = Vec::new();
            for i in 0..blocks - 1 {
                let away = cx.b.int(i * apart);
                let k = cx.b.add(rest, away);
                let inside = (i > 0).then(|| cx.b.lt(k, tiling.k_count));
                let k = cx.b.min(k, last);
                loaded.push((self.block(cx, &own, k)?, inside));
            }
            loaded.iter().for_each(|(block, inside)| add(cx, sums, block, *inside));
            Ok(())
        })
    }

    /// What is an invocation's own, and its number along the depth.
    fn own<'p>(&self, cx: &mut Cx<'_>, tiling: &Tiling, place: &'p Place) -> (Own<'p>, Value) {
        let Gemv { along, width, own: columns, across, deep, rows, .. } = self.gemv;
        let by = cx.b.int(if along == Along::Columns { across } else { deep });
        let (outer, inner) = (cx.b.div(tiling.lane, by), cx.b.rem(tiling.lane, by));
        let (column, part) = if along == Along::Columns { (inner, outer) } else { (outer, inner) };
        let each = cx.b.int(columns);
        let first = cx.b.mul(column, each);
        let first = cx.b.add(place.n0, first);
        let (n, m) = ((tiling.n_count, &tiling.sizes.n[..]), (tiling.m_count, &tiling.sizes.m[..]));
        let columns = match along {
            // All of them are there, or none.
            Along::Columns => {
                let width = cx.b.int(width);
                let last = cx.b.sub(n.0, width);
                let at = cx.b.min(first, last);
                vec![cx.unflatten(at, n.1)]
            }
            Along::Depth => own(cx, (first, 1, columns), n),
        };
        (Own { batch: &place.batch, rows: own(cx, (place.m0, 1, rows), m), columns }, part)
    }

    /// The elements from `k` on.
    fn block(&mut self, cx: &mut Cx<'_>, own: &Own<'_>, k: Value) -> Scheduled<Block> {
        let steps = self.gemv.steps();
        let along: Vec<Value> = (0..steps as i32)
            .map(|step| {
                let step = cx.b.int(step);
                cx.b.add(k, step)
            })
            .collect();
        let y = match self.gemv.along {
            Along::Columns => {
                let row = |&k: &Value| self.right(cx, own, k, &own.columns[0]);
                along.iter().map(row).collect::<Scheduled<Vec<_>>>()?
            }
            Along::Depth => {
                let column = |n: &Vec<Value>| self.right(cx, own, k, n);
                let columns = own.columns.iter().map(column).collect::<Scheduled<Vec<_>>>()?;
                (0..steps).map(|step| columns.iter().map(|column| column[step]).collect()).collect()
            }
        };
        let row = |m: &Vec<Value>| match &mut self.wide_a {
            Some(wide) => wide(cx, own.batch, m, &[k], steps),
            None => along.iter().map(|&k| (self.a)(cx, own.batch, m, &[k])).collect(),
        };
        let rows = own.rows.iter().map(row).collect::<Scheduled<Vec<_>>>()?;
        let x = (0..steps).map(|step| rows.iter().map(|row| row[step]).collect()).collect();
        Ok(Block { x, y })
    }

    /// Neighbours of the right matrix.
    fn right(&mut self, cx: &mut Cx<'_>, own: &Own<'_>, k: Value, n: &[Value]) -> Scheduled<Vec<Value>> {
        match &mut self.wide_b {
            Some(wide) => wide(cx, own.batch, &[k], n, self.gemv.width()),
            None => Ok(vec![(self.b)(cx, own.batch, &[k], n)?]),
        }
    }
}

/// What a counter that goes from `begin` on by `step`, while it is below `end`, is at last.
fn after(cx: &mut Cx<'_>, (begin, end): (Value, Value), step: i32) -> Value {
    let (zero, by, almost) = (cx.b.int(0), cx.b.int(step), cx.b.int(step - 1));
    let todo = cx.b.sub(end, begin);
    let todo = cx.b.max(todo, zero);
    let todo = cx.b.add(todo, almost);
    let rounds = cx.b.div(todo, by);
    let done = cx.b.mul(rounds, by);
    cx.b.add(begin, done)
}

/// Adds a block to an invocation's sums, where it is `inside`.
fn add(cx: &mut Cx<'_>, sums: &Sums, block: &Block, inside: Option<Value>) {
    for (i, &sum) in sums.vars.iter().enumerate() {
        let before = cx.b.get(sum);
        let mut now = before;
        for (x, y) in block.x.iter().zip(&block.y) {
            now = cx.b.multiply_add(x[i / sums.columns], y[i % sums.columns], now);
        }
        if let Some(inside) = inside {
            now = cx.b.select(inside, now, before);
        }
        cx.b.set(sum, now);
    }
}
