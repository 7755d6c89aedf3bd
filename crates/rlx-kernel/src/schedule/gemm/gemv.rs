//! Matmuls of few rows whose sums are divided among the invocations of a workgroup.
//!
//! Such a matmul is as fast as its right matrix is read. One invocation for each result reads it by single elements, in as long a chain as the matrix is
//! deep; here a workgroup has a few columns and all of the depth, and each of its invocations a part of both, of which it reads 16 bytes at a time, several
//! times before it multiplies the first. Then the parts are added through workgroup memory, in an order that is always the same, and what is behind the
//! matmul is done with the results. So one dispatch without scratch memory reads the matrix once, and many workgroups at once do even where columns are few.
//!
//! ```text
//! Along::Columns, two lanes along the columns     Along::Depth, two columns for a lane, eight lanes along the depth
//!   w[k, n..]: lane 0 | lane 1                      w[n, k..]: lane 0 | lane 1 | … | lane 7 | lane 0 | …
//!              lane 2 | lane 3                                 the same lanes
//!              …                                    w[n + 2, k..]: lane 8 | lane 9 | …
//! ```
//!
//! **The sum is another one** than that of the variants: each invocation has a chain in order of its own `k`; of those that are 32 numbers apart the chains are added in
//! order, and then these 32 (or as many as have the same column). How it is divided follows from the matrix alone, the right one, and not from the number of
//! rows, so a row has the same bits whatever the others are.

use std::fmt;

use rlx_ir::Extent;

use super::direct::own;
use super::{Finish, Gemm, Load, LoadWide, Neighbours, Operands, Place, Sums, Tile, Tiling};
use crate::ir::{Shared, Ty, Value};
use crate::schedule::cx::Cx;
use crate::schedule::{Launch, Scheduled, divides_sums_of, reject};

/// Invocations of a workgroup.
const LANES: i32 = 256;
/// Chains that are added last: those of so many neighbouring invocations.
const LAST: i32 = 32;
/// Bytes that an invocation reads at once, where the matrix allows it.
const BYTES: i64 = 16;
/// Bytes of a row that a workgroup reads, at least: what memory is read in.
const LEAST_BYTES: i64 = 32;
/// Bytes of a row that a workgroup reads, at most.
const MOST_BYTES: i64 = 128;
/// Accesses to the right matrix that an invocation has under way.
const UNDER_WAY: i32 = 8;
/// Steps of the sum that an invocation with neighbouring columns takes at once: those of which it reads the left matrix by one access.
const STEPS: i32 = 4;
/// Columns that an invocation has, at most, where it reads along the depth.
const MOST_COLUMNS: i32 = 4;
/// Workgroups that are enough to fill a large GPU.
const MANY: i64 = 128;
/// Sums of an invocation that are in workgroup memory together.
const TOGETHER: i32 = 8;
/// Rows, at most.
pub(in crate::schedule) const MOST_ROWS: i64 = 4;
/// The depth from which on it is worth dividing.
const DEEP: i64 = 128;

/// Which neighbours an invocation reads together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Along {
    Columns,
    Depth,
}

/// How a workgroup divides its columns and the depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gemv {
    /// Rows of the result that a workgroup makes.
    rows: i32,
    along: Along,
    /// Elements of the right matrix that are read by one access.
    width: i32,
    /// Neighbouring steps of the sum that an invocation takes at once.
    steps: i32,
    /// Columns of an invocation.
    own: i32,
    /// Invocations along the columns.
    across: i32,
    /// Invocations along the depth.
    deep: i32,
}

impl Gemv {
    /// How a matmul of few rows is divided, for workgroups of `rows` rows, where it is worth it. Of the right matrix, `width` elements are read together; they are
    /// neighbours of a row or of a column.
    ///
    /// # Errors
    /// Why it is not divided.
    pub(in crate::schedule) fn of(p: &Gemm, neighbours: Neighbours, rows: i64) -> Scheduled<Gemv> {
        if !divides_sums_of(p.dtype) {
            return reject(format!("a sum of {}", p.dtype));
        }
        let &[Extent::Const(depth @ DEEP..)] = &p.k[..] else {
            return reject("a sum that is short, or of a length that is not known");
        };
        let (Some(columns), Some(batch)) =
            (super::elements(&p.n).as_const(), super::elements(&p.batch).as_const())
        else {
            return reject("columns, or matrices, whose number is not known");
        };
        let element = p.dtype.bits() as i64 / 8;
        let gemv = Gemv {
            rows: rows as i32,
            along: Along::Columns,
            width: 1,
            steps: 1,
            own: 1,
            across: 1,
            deep: LANES,
        };
        Ok(match neighbours {
            Neighbours::Columns(most) => {
                gemv.along_columns((most as i64).min(BYTES / element), element, [batch, depth, columns])
            }
            Neighbours::Depth(most) => {
                gemv.along_depth((most as i64).min(BYTES / element), [batch, depth, columns])
            }
        })
    }

    /// As few lanes along the columns as make enough workgroups, and have something to do.
    fn along_columns(self, width: i64, element: i64, [batch, depth, columns]: [i64; 3]) -> Gemv {
        let steps = if depth % i64::from(STEPS) == 0 { STEPS } else { 1 };
        let lanes = |bytes: i64| (bytes / (width * element)).clamp(1, i64::from(LAST)) as i32;
        let mut across = lanes(MOST_BYTES);
        let groups = |across: i32| {
            batch * (columns + width * i64::from(across) - 1).div_euclid(width * i64::from(across))
        };
        let busy = |across: i32| i64::from(LANES / across * steps) <= depth;
        while across > lanes(LEAST_BYTES) && groups(across) < MANY && busy(across / 2) {
            across /= 2;
        }
        let width = width as i32;
        Gemv { along: Along::Columns, width, steps, own: width, across, deep: LANES / across, ..self }
    }

    /// Lanes along the depth that have two accesses at least; fewer columns for each, and then more lanes, until there are enough workgroups.
    fn along_depth(self, width: i64, [batch, depth, columns]: [i64; 3]) -> Gemv {
        let (mut deep, mut own) = (LAST, MOST_COLUMNS);
        while deep < LANES && i64::from(4 * deep) * width <= depth {
            deep *= 2;
        }
        let groups = |deep: i32, own: i32| batch * columns / i64::from(LANES / deep * own);
        while own > 1 && groups(deep, own) < MANY {
            own /= 2;
        }
        while deep < LANES && groups(deep, own) < MANY && i64::from(2 * deep) * width <= depth {
            deep *= 2;
        }
        let width = width as i32;
        Gemv { along: Along::Depth, width, steps: width, own, across: LANES / deep, deep, ..self }
    }

    /// Invocations of a workgroup.
    pub const fn workgroup(self) -> u32 {
        LANES as u32
    }

    /// How many elements of the right matrix are read together.
    pub(in crate::schedule) fn width(self) -> usize {
        self.width as usize
    }

    /// How many elements of the left matrix are taken at once.
    pub(in crate::schedule) fn steps(self) -> usize {
        self.steps as usize
    }

    fn tile(self) -> Tile {
        Tile::new(self.rows, self.own * self.across, self.rows, self.own)
    }

    /// Neighbouring invocations between which sums of one column are added: all, or those of one column.
    fn block(self) -> i32 {
        match self.along {
            Along::Columns => LANES,
            Along::Depth => self.deep,
        }
    }

    /// How many of [`LAST`] neighbouring invocations have other columns.
    fn interleaved(self) -> i32 {
        match self.along {
            Along::Columns => self.across,
            Along::Depth => 1,
        }
    }

    /// Rows whose sums are in workgroup memory together.
    fn rows_together(self) -> i32 {
        (TOGETHER / self.own).clamp(1, self.rows)
    }

    /// Where sums that are added last are in workgroup memory: so far from those of one column to those of the next, which no two lanes find in one bank.
    fn pitch(self) -> i32 {
        LAST + self.interleaved()
    }

    /// Of those, how many columns and rows there are together.
    fn kept(self) -> i32 {
        self.rows_together() * self.own * LANES / self.block()
    }

    /// Whether sums go into workgroup memory where those are that are added last.
    fn is_last_alone(self) -> bool {
        self.block() == LAST
    }

    /// Elements of workgroup memory: sums of all invocations, those that are added last, results that wait for others.
    fn memory(self) -> [i32; 3] {
        let together = self.rows_together();
        let all = if self.is_last_alone() { 0 } else { together * self.own * LANES };
        let results = if together < self.rows { self.rows * self.own * self.across } else { 0 };
        [all, self.kept() * self.pitch(), results]
    }

    /// Elements of workgroup memory.
    pub(super) fn shared_len(self) -> u32 {
        self.memory().iter().sum::<i32>() as u32
    }
}

impl fmt::Display for Gemv {
    /// `gemv1x8.k128.columns4`: rows and columns of a workgroup, invocations along the depth, what is read by one access.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let along = if self.along == Along::Columns { "columns" } else { "depth" };
        let columns = self.own * self.across;
        write!(f, "gemv{}x{columns}.k{}.{along}{}", self.rows, self.deep, self.width)
    }
}

pub(super) fn launch(cx: Cx<'_>, p: &Gemm, gemv: Gemv, operands: Operands<'_>) -> Scheduled<Launch> {
    let Operands { a, b, wide, finish, .. } = operands;
    let (wide_a, wide_b) = wide.map_or((None, None), |wide| (wide.a, Some(wide.b)));
    let mut loads = Loads { gemv, a, b, wide_a, wide_b };
    Tiling::launch(cx, p, gemv.tile(), |cx, tiling, place| {
        let sums = Sums::new(cx, p, gemv.tile());
        loads.sum(cx, tiling, place, &sums)?;
        let memory = gemv.memory().map(|len| (len > 0).then(|| cx.b.shared(Ty::F32, len as u32)));
        Joined { gemv, tiling, place, memory }.finish(cx, &sums, finish)
    })
}

/// How elements of both matrices are read.
struct Loads<'f> {
    gemv: Gemv,
    a: Load<'f>,
    b: Load<'f>,
    wide_a: Option<LoadWide<'f>>,
    wide_b: Option<LoadWide<'f>>,
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
    fn sum(&mut self, cx: &mut Cx<'_>, tiling: &Tiling, place: &Place, sums: &Sums) -> Scheduled<()> {
        let Gemv { along, width, steps, own: columns, across, deep, rows, .. } = self.gemv;
        let (lanes, of) = if along == Along::Columns { (across, width) } else { (deep, columns) };
        let lanes = cx.b.int(lanes);
        let (outer, inner) = (cx.b.div(tiling.lane, lanes), cx.b.rem(tiling.lane, lanes));
        let (column, part) = if along == Along::Columns { (inner, outer) } else { (outer, inner) };
        let of = cx.b.int(of);
        let first = cx.b.mul(column, of);
        let first = cx.b.add(place.n0, first);
        let (n, m) = ((tiling.n_count, &tiling.sizes.n[..]), (tiling.m_count, &tiling.sizes.m[..]));
        let own = Own {
            batch: &place.batch,
            rows: own(cx, (place.m0, 1, rows), m),
            columns: match along {
                Along::Columns => {
                    let width = cx.b.int(width);
                    let last = cx.b.sub(n.0, width);
                    let at = cx.b.min(first, last);
                    vec![cx.unflatten(at, n.1)]
                }
                Along::Depth => own(cx, (first, 1, columns), n),
            },
        };
        // So many blocks are loaded before the first one is multiplied, each as far from the next as all invocations reach.
        let blocks = UNDER_WAY / if along == Along::Columns { steps } else { columns };
        let apart = deep * steps;
        let steps = cx.b.int(steps);
        let begin = cx.b.mul(part, steps);
        let behind = cx.b.int((blocks - 1) * apart);
        let end = cx.b.sub(tiling.k_count, behind);
        cx.for_step((begin, end, blocks * apart), |cx, at| {
            let loaded = (0..blocks).map(|i| {
                let away = cx.b.int(i * apart);
                let k = cx.b.add(at, away);
                self.block(cx, &own, k)
            });
            let loaded = loaded.collect::<Scheduled<Vec<Block>>>()?;
            loaded.iter().for_each(|block| add(cx, sums, block, None));
            Ok(())
        })?;
        // What is left: fewer blocks than that, and those that are not there are the last one again, which is not added.
        let (zero, round) = (cx.b.int(0), cx.b.int(blocks * apart));
        let almost = cx.b.int(blocks * apart - 1);
        let todo = cx.b.sub(end, begin);
        let todo = cx.b.max(todo, zero);
        let todo = cx.b.add(todo, almost);
        let rounds = cx.b.div(todo, round);
        let done = cx.b.mul(rounds, round);
        let rest = cx.b.add(begin, done);
        let is_left = cx.b.lt(rest, tiling.k_count);
        cx.if_then(is_left, |cx| {
            let last = cx.b.sub(tiling.k_count, steps);
            let mut loaded = Vec::new();
            // Were there all, the loop would have taken them.
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

/// Adds a block to an invocation's sums, where it is `inside`.
fn add(cx: &mut Cx<'_>, sums: &Sums, block: &Block, inside: Option<Value>) {
    for (i, &sum) in sums.vars.iter().enumerate() {
        let before = cx.b.get(sum);
        let mut now = before;
        for (x, y) in block.x.iter().zip(&block.y) {
            let product = cx.b.mul(x[i / sums.columns], y[i % sums.columns]);
            now = cx.b.add(now, product);
        }
        if let Some(inside) = inside {
            now = cx.b.select(inside, now, before);
        }
        cx.b.set(sum, now);
    }
}

/// What is added through workgroup memory.
struct Joined<'t> {
    gemv: Gemv,
    tiling: &'t Tiling,
    place: &'t Place,
    /// See [`Gemv::memory`].
    memory: [Option<Shared>; 3],
}

impl Joined<'_> {
    /// Adds the sums of all invocations, some rows at a time, and does what is behind the matmul.
    fn finish(&self, cx: &mut Cx<'_>, sums: &Sums, finish: Finish<'_>) -> Scheduled<()> {
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
        cx.for_step((self.tiling.lane, count, LANES), |cx, at| {
            let sum = cx.b.load_shared(results, at);
            self.store(cx, at, finish, sum)
        })
    }

    /// Puts sums of all invocations where they are added last.
    fn keep(&self, cx: &mut Cx<'_>, sums: &[Value]) {
        let (lane, lanes, last) = (self.tiling.lane, cx.b.int(LANES), cx.b.int(LAST));
        let [all, kept, _] = self.memory;
        let Some(kept) = kept else { return };
        let pitch = cx.b.int(self.gemv.pitch());
        let within = |cx: &mut Cx<'_>, at: Value, behind: i32| {
            // Number `at` of those that are kept, which are `LAST` for each row and column.
            let (column, place) = (cx.b.div(at, last), cx.b.rem(at, last));
            let column = cx.b.mul(column, pitch);
            let behind = cx.b.int(behind);
            let at = cx.b.add(column, place);
            cx.b.add(at, behind)
        };
        let Some(all) = all else {
            for (i, &sum) in sums.iter().enumerate() {
                let at = within(cx, lane, i as i32 * self.gemv.pitch() * (LANES / LAST));
                cx.b.store_shared(kept, at, sum);
            }
            return cx.b.barrier();
        };
        for (i, &sum) in sums.iter().enumerate() {
            let (i, of) = (cx.b.int(i as i32), lanes);
            let at = cx.b.mul(i, of);
            let at = cx.b.add(at, lane);
            cx.b.store_shared(all, at, sum);
        }
        cx.b.barrier();
        let block = self.gemv.block();
        let count = cx.b.int(sums.len() as i32 * LANES / block * LAST);
        cx.b.for_step(lane, count, LANES, |b, at| {
            let (last, block_size) = (b.int(LAST), b.int(block));
            let (column, place) = (b.div(at, last), b.rem(at, last));
            let first = b.mul(column, block_size);
            let first = b.add(first, place);
            let mut sum = b.load_shared(all, first);
            for i in 1..block / LAST {
                let away = b.int(i * LAST);
                let next = b.add(first, away);
                let next = b.load_shared(all, next);
                sum = b.add(sum, next);
            }
            let to = b.mul(column, pitch);
            let to = b.add(to, place);
            b.store_shared(kept, to, sum);
        });
        cx.b.barrier();
    }

    /// The invocation's result: what was kept of its row and column, added.
    fn last(&self, cx: &mut Cx<'_>) -> Value {
        let apart = self.gemv.interleaved();
        let (of, pitch) = (cx.b.int(apart), cx.b.int(self.gemv.pitch()));
        let (column, within) = (cx.b.div(self.tiling.lane, of), cx.b.rem(self.tiling.lane, of));
        let first = cx.b.mul(column, pitch);
        let first = cx.b.add(first, within);
        let Some(kept) = self.memory[1] else { return first };
        let mut sum = cx.b.load_shared(kept, first);
        for away in (apart..LAST).step_by(apart as usize) {
            let away = cx.b.int(away);
            let next = cx.b.add(first, away);
            let next = cx.b.load_shared(kept, next);
            sum = cx.b.add(sum, next);
        }
        sum
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
