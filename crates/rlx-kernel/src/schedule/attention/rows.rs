//! What a workgroup does with its rows of an attention: blocks of keys, one after the other.

use rlx_ir::op::{MaskKind, Unseen};

use super::{Attention, LANES, SIDE, Tile};
use crate::build::Builder;
use crate::ir::{MathFn, Shared, Ty, Value, Var};
use crate::schedule::Scheduled;
use crate::schedule::cx::{Cx, Place};

/// Neighbouring invocations of which no two may meet in a bank, and which read the same row of an operand.
const WARP: i32 = 32;

/// An invocation of a workgroup: its number, and where it is among rows and columns.
#[derive(Clone, Copy)]
pub(super) struct Lane {
    pub lane: Value,
    pub row: Value,
    pub col: Value,
}

/// The rows of a workgroup.
pub(super) struct Rows<'a> {
    pub what: &'a Attention,
    pub tile: Tile,
    /// See [`Tile::memory`].
    pub memory: [Shared; 4],
    /// Queries, keys, values, result.
    pub operands: [Place; 4],
    /// The mask, where it is data.
    pub given: Option<Place>,
    /// Item, head, head of keys and values, first query.
    pub at: [Value; 4],
    pub queries: Value,
    pub keys: Value,
    pub lane: Lane,
}

/// What an invocation has of its rows.
struct Own {
    /// The greatest score of each.
    greatest: Vec<Var>,
    /// The sum of the weights of its keys.
    total: Vec<Var>,
    /// Its columns of the result, before they are divided by that.
    sums: Vec<Vec<Var>>,
}

/// A matrix that is copied to workgroup memory, zeros where it ends.
struct Copied<'p> {
    to: Shared,
    /// Rows and elements of them.
    size: [i32; 2],
    /// Elements of a row in memory, the last of which may be zeros; and from row to row.
    filled: i32,
    pitch: i32,
    from: &'p Place,
    item: Value,
    head: Value,
    first: Value,
    /// How many rows there are in all.
    count: Value,
}

impl Copied<'_> {
    /// A warp has neighbours of one row.
    fn copy(&self, cx: &mut Cx<'_>, lane: Value) -> Scheduled<()> {
        let [rows, size] = self.size;
        let wide = self.filled.unsigned_abs().next_multiple_of(WARP.unsigned_abs()) as i32;
        let end = cx.b.int(rows * wide);
        cx.for_step((lane, end, LANES), |cx, i| {
            let (wide, filled, pitch) = (cx.b.int(wide), cx.b.int(self.filled), cx.b.int(self.pitch));
            let (row, col) = (cx.b.div(i, wide), cx.b.rem(i, wide));
            let has = cx.b.lt(col, filled);
            cx.if_then(has, |cx| {
                let from = cx.b.add(self.first, row);
                let (is_row, size) = (cx.b.lt(from, self.count), cx.b.int(size));
                let is_col = cx.b.lt(col, size);
                let inside = cx.b.and(is_row, is_col);
                let zero = cx.b.number(Ty::F32, 0.0);
                let v = cx.value_if(inside, zero, |cx| {
                    let at = cx.address(self.from, &[self.item, self.head, from, col]);
                    Ok(cx.b.load(self.from.buffer, at))
                })?;
                let to = cx.b.mul(row, pitch);
                let to = cx.b.add(to, col);
                cx.b.store_shared(self.to, to, v);
                Ok(())
            })
        })
    }
}

/// The greater one, where `y` is no NaN.
fn greater(b: &mut Builder, x: Value, y: Value) -> Value {
    let more = b.gt(x, y);
    b.select(more, x, y)
}

/// `first + i · apart`, for several.
fn apart(b: &mut Builder, first: Value, (count, apart): (i32, i32)) -> Vec<Value> {
    (0..count)
        .map(|i| {
            let away = b.int(i * apart);
            b.add(first, away)
        })
        .collect()
}

impl Rows<'_> {
    /// Writes all that a workgroup does.
    pub(super) fn write(&self, cx: &mut Cx<'_>) -> Scheduled<()> {
        let [item, head, _, first] = self.at;
        let (head_size, pitch) = (i32::from(self.tile.head), self.tile.pitch());
        let queries = Copied {
            to: self.memory[0],
            size: [i32::from(self.tile.rows), head_size],
            filled: head_size,
            pitch,
            from: &self.operands[0],
            item,
            head,
            first,
            count: self.queries,
        };
        queries.copy(cx, self.lane.lane)?;
        let [rows, _, columns] = self.tile.own();
        let (least, zero) = (cx.b.number(Ty::F32, f64::from(f32::MIN)), cx.b.number(Ty::F32, 0.0));
        let mut all = |count: i32, v: Value| (0..count).map(|_| cx.b.var(v)).collect::<Vec<Var>>();
        let (greatest, total) = (all(rows, least), all(rows, zero));
        let sums = (0..rows).map(|_| all(columns, zero)).collect();
        let own = Own { greatest, total, sums };
        let (begin, end) = self.seen(&mut cx.b);
        cx.for_step((begin, end, i32::from(self.tile.keys)), |cx, key| self.block(cx, &own, key))?;
        self.finish(cx, &own)
    }

    /// The first key of the first block, and the end of all that any query may see.
    fn seen(&self, b: &mut Builder) -> (Value, Value) {
        let zero = b.int(0);
        if self.what.mask != MaskKind::Causal {
            return (zero, self.keys);
        }
        let (first, rows) = (self.at[3], b.int(i32::from(self.tile.rows)));
        let shift = b.sub(self.keys, self.queries);
        let behind = b.add(first, rows);
        let behind = b.min(behind, self.queries);
        let end = b.add(behind, shift);
        let Some(window) = self.what.window else { return (zero, end) };
        let last = b.add(first, shift);
        let (almost, block) = (b.int(window as i32 - 1), b.int(i32::from(self.tile.keys)));
        let begin = b.sub(last, almost);
        let begin = b.max(begin, zero);
        let begin = b.div(begin, block);
        (b.mul(begin, block), end)
    }

    fn block(&self, cx: &mut Cx<'_>, own: &Own, key: Value) -> Scheduled<()> {
        let [item, _, head, _] = self.at;
        let (keys, [_, _, columns]) = (i32::from(self.tile.keys), self.tile.own());
        let copied = |from, size: u16, filled, pitch| Copied {
            to: self.memory[1],
            size: [keys, i32::from(size)],
            filled,
            pitch,
            from,
            item,
            head,
            first: key,
            count: self.keys,
        };
        let head = i32::from(self.tile.head);
        copied(&self.operands[1], self.tile.head, head, self.tile.pitch()).copy(cx, self.lane.lane)?;
        cx.b.barrier();
        self.scores(&mut cx.b);
        self.greatest(cx, key)?;
        cx.b.barrier();
        let filled = columns * SIDE;
        copied(&self.operands[2], self.tile.value, filled, filled).copy(cx, self.lane.lane)?;
        self.weights(&mut cx.b, own);
        cx.b.barrier();
        self.add(&mut cx.b, own);
        cx.b.barrier();
        Ok(())
    }

    /// The products of an invocation's queries and keys, kept where the weights will be.
    fn scores(&self, b: &mut Builder) {
        let [rows, keys, _] = self.tile.own();
        let (zero, pitch) = (b.number(Ty::F32, 0.0), b.int(self.tile.pitch()));
        let sums: Vec<Var> = (0..rows * keys).map(|_| b.var(zero)).collect();
        let (row, key) = (b.mul(self.lane.row, pitch), b.mul(self.lane.col, pitch));
        let end = b.int(i32::from(self.tile.head));
        b.for_each(end, |b, at| {
            let mut read = |memory: Shared, first: Value, count: i32| {
                let first = b.add(first, at);
                let all = apart(b, first, (count, SIDE * self.tile.pitch()));
                all.into_iter().map(|at| b.load_shared(memory, at)).collect::<Vec<Value>>()
            };
            let (x, y) = (read(self.memory[0], row, rows), read(self.memory[1], key, keys));
            for (i, &sum) in sums.iter().enumerate() {
                let before = b.get(sum);
                let now = b.multiply_add(x[i / keys as usize], y[i % keys as usize], before);
                b.set(sum, now);
            }
        });
        let scale = b.number(Ty::F32, self.what.scale);
        for (i, &sum) in sums.iter().enumerate() {
            let (row, key) = (b.int(i as i32 / keys), b.int(i as i32 % keys));
            let (product, at) = (b.get(sum), self.weight(b, row, key));
            let score = b.mul(product, scale);
            b.store_shared(self.memory[2], at, score);
        }
    }

    /// The row within the workgroup that is number `i` of an invocation's own.
    fn row(&self, b: &mut Builder, i: Value) -> Value {
        let side = b.int(SIDE);
        let away = b.mul(i, side);
        b.add(self.lane.row, away)
    }

    /// Where the weight of a row and a key is, both by their numbers among the invocation's own.
    fn weight(&self, b: &mut Builder, row: Value, key: Value) -> Value {
        let (side, pitch) = (b.int(SIDE), b.int(self.tile.weights_pitch()));
        let row = self.row(b, row);
        let (row, key) = (b.mul(row, pitch), b.mul(key, side));
        let first = b.add(row, self.lane.col);
        b.add(first, key)
    }

    /// Where what an invocation has of a row is, which is number `i` of its own; 0 is that of the first invocation of the row.
    fn part(&self, b: &mut Builder, i: Value, of: Value) -> Value {
        let (row, side) = (self.row(b, i), b.int(SIDE));
        let row = b.mul(row, side);
        b.add(row, of)
    }

    /// Masks the scores from `key` on; the greatest of an invocation's own go where the others of its rows find them.
    fn greatest(&self, cx: &mut Cx<'_>, key: Value) -> Scheduled<()> {
        let [rows, keys, _] = self.tile.own().map(|n| cx.b.int(n));
        let least = cx.b.number(Ty::F32, f64::from(f32::MIN));
        cx.for_each(rows, |cx, i| {
            let row = self.row(&mut cx.b, i);
            let query = cx.b.add(self.at[3], row);
            let most = cx.b.var(least);
            cx.for_each(keys, |cx, j| {
                let side = cx.b.int(SIDE);
                let away = cx.b.mul(j, side);
                let own = cx.b.add(self.lane.col, away);
                let key = cx.b.add(key, own);
                let at = self.weight(&mut cx.b, i, j);
                let score = cx.b.load_shared(self.memory[2], at);
                let score = self.masked(cx, score, query, key)?;
                cx.b.store_shared(self.memory[2], at, score);
                let before = cx.b.get(most);
                let now = greater(&mut cx.b, score, before);
                cx.b.set(most, now);
                Ok(())
            })?;
            let (most, at) = (cx.b.get(most), self.part(&mut cx.b, i, self.lane.col));
            cx.b.store_shared(self.memory[3], at, most);
            Ok(())
        })
    }

    /// A score, −∞ where the query may not see the key.
    fn masked(&self, cx: &mut Cx<'_>, score: Value, query: Value, key: Value) -> Scheduled<Value> {
        let never = cx.b.number(Ty::F32, f64::NEG_INFINITY);
        let inside = cx.b.lt(key, self.keys);
        if let Some(given) = &self.given {
            let is_query = cx.b.lt(query, self.queries);
            let inside = cx.b.and(inside, is_query);
            return cx.value_if(inside, never, |cx| {
                let at = cx.address(given, &[self.at[0], self.at[1], query, key]);
                let mask = cx.b.load(given.buffer, at);
                Ok(match cx.b.ty(mask) {
                    Ty::Bool => cx.b.select(mask, score, never),
                    _ => cx.b.add(score, mask),
                })
            });
        }
        let b = &mut cx.b;
        let score = b.select(inside, score, never);
        if self.what.mask != MaskKind::Causal {
            return Ok(score);
        }
        let shift = b.sub(self.keys, self.queries);
        let last = b.add(query, shift);
        let seen = b.le(key, last);
        let score = b.select(seen, score, never);
        let Some(window) = self.what.window else { return Ok(score) };
        let (behind, window) = (b.sub(last, key), b.int(window as i32));
        let near = b.lt(behind, window);
        Ok(b.select(near, score, never))
    }

    /// Scores become weights, and what was summed so far relative to the new greatest scores.
    fn weights(&self, b: &mut Builder, own: &Own) {
        let [_, keys, _] = self.tile.own();
        for (i, (&greatest, &total)) in own.greatest.iter().zip(&own.total).enumerate() {
            let i_value = b.int(i as i32);
            let before = b.get(greatest);
            let most = self.of_row(b, i_value, before, greater);
            let less = b.sub(before, most);
            let again = b.math(MathFn::Exp, less);
            b.set(greatest, most);
            for &var in own.sums[i].iter().chain([&total]) {
                let sum = b.get(var);
                let sum = b.mul(sum, again);
                b.set(var, sum);
            }
            let keys = b.int(keys);
            b.for_each(keys, |b, j| {
                let at = self.weight(b, i_value, j);
                let score = b.load_shared(self.memory[2], at);
                let less = b.sub(score, most);
                let weight = b.math(MathFn::Exp, less);
                b.store_shared(self.memory[2], at, weight);
                let sum = b.get(total);
                let sum = b.add(sum, weight);
                b.set(total, sum);
            });
        }
    }

    /// What all invocations have of a row, in order of these, together with `first`.
    fn of_row(
        &self,
        b: &mut Builder,
        i: Value,
        first: Value,
        join: impl Fn(&mut Builder, Value, Value) -> Value,
    ) -> Value {
        (0..SIDE).fold(first, |so_far, of| {
            let of = b.int(of);
            let at = self.part(b, i, of);
            let part = b.load_shared(self.memory[3], at);
            join(b, part, so_far)
        })
    }

    /// Adds the weighted values of a block.
    fn add(&self, b: &mut Builder, own: &Own) {
        let ([rows, _, columns], pitch) = (self.tile.own(), self.tile.weights_pitch());
        let apart_rows = b.int(pitch);
        let row = b.mul(self.lane.row, apart_rows);
        let end = b.int(i32::from(self.tile.keys));
        b.for_each(end, |b, key| {
            let first = b.add(row, key);
            let weights = apart(b, first, (rows, SIDE * pitch));
            let weights: Vec<Value> =
                weights.into_iter().map(|at| b.load_shared(self.memory[2], at)).collect();
            let width = b.int(columns * SIDE);
            let first = b.mul(key, width);
            let first = b.add(first, self.lane.col);
            let values = apart(b, first, (columns, SIDE));
            let values: Vec<Value> = values.into_iter().map(|at| b.load_shared(self.memory[1], at)).collect();
            for (sums, &weight) in own.sums.iter().zip(&weights) {
                for (&sum, &value) in sums.iter().zip(&values) {
                    let before = b.get(sum);
                    let now = b.multiply_add(weight, value, before);
                    b.set(sum, now);
                }
            }
        });
    }

    /// Adds the totals of all invocations of a row, divides by them and stores.
    fn finish(&self, cx: &mut Cx<'_>, own: &Own) -> Scheduled<()> {
        let numbers: Vec<Value> = (0..own.total.len() as i32).map(|i| cx.b.int(i)).collect();
        for (&i, &total) in numbers.iter().zip(&own.total) {
            let (total, at) = (cx.b.get(total), self.part(&mut cx.b, i, self.lane.col));
            cx.b.store_shared(self.memory[3], at, total);
        }
        cx.b.barrier();
        let columns = self.tile.own()[2];
        for (&i, sums) in numbers.iter().zip(&own.sums) {
            let zero = cx.b.number(Ty::F32, 0.0);
            let total = self.of_row(&mut cx.b, i, zero, |b, part, so_far| b.add(so_far, part));
            let inverse = self.inverse(&mut cx.b, total);
            let row = self.row(&mut cx.b, i);
            let query = cx.b.add(self.at[3], row);
            let inside = cx.b.lt(query, self.queries);
            let cols = apart(&mut cx.b, self.lane.col, (columns, SIDE));
            cx.if_then(inside, |cx| {
                for (&sum, &col) in sums.iter().zip(&cols) {
                    let size = cx.b.int(i32::from(self.tile.value));
                    let has = cx.b.lt(col, size);
                    cx.if_then(has, |cx| {
                        let sum = cx.b.get(sum);
                        let v = self.normalised(&mut cx.b, sum, inverse);
                        let at = cx.address(&self.operands[3], &[self.at[0], self.at[1], query, col]);
                        cx.b.store(self.operands[3].buffer, at, v);
                        Ok(())
                    })?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// What the sum of the weighted values is multiplied by.
    fn inverse(&self, b: &mut Builder, total: Value) -> Value {
        let (zero, one) = (b.number(Ty::F32, 0.0), b.number(Ty::F32, 1.0));
        let inverse = b.div(one, total);
        match self.what.unseen {
            Unseen::Zero => {
                let none = b.eq(total, zero);
                b.select(none, zero, inverse)
            }
            // 0 also where the sum is NaN.
            Unseen::Guard => {
                let some = b.gt(total, zero);
                b.select(some, inverse, zero)
            }
            // 0 / 0 is NaN, but of no keys at all the sum is 0.
            _ => {
                let none = b.int(0);
                let some = b.gt(self.keys, none);
                b.select(some, inverse, zero)
            }
        }
    }

    fn normalised(&self, b: &mut Builder, sum: Value, inverse: Value) -> Value {
        let product = b.mul(sum, inverse);
        if self.what.unseen != Unseen::Guard {
            return product;
        }
        // What was multiplied by 0 may be NaN.
        let zero = b.number(Ty::F32, 0.0);
        let none = b.eq(inverse, zero);
        b.select(none, zero, product)
    }
}
