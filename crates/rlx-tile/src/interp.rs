//! The interpreter: runs programs on the CPU, every lane of every warp.
//!
//! The statements of a workgroup are run one after the other, each for all lanes. Control flow never depends on data, so a device runs the
//! same statements; only the order between two barriers is its own. That order is checked instead: a lane that uses a chunk of workgroup memory which
//! another lane uses between the same two barriers, one of them writing, is a race, and so is the use of a chunk whose asynchronous copy nobody
//! waited for. Also checked: every access is within its buffer and aligned as its view promises, no element is stored twice, nothing is
//! read before it is written.
//!
//! Matrix instructions take their operands from lanes' registers as [`crate::atom`] has them, and loads put them there as `ldmatrix` is documented or as
//! the text does it, so a fragment that is loaded in another order than it is multiplied gives wrong results here, too. An instruction computes
//! its sum of products exactly (in f64) and rounds once; hardware keeps fewer digits, and the vendors do not say how many.
//!
//! Counted are the same things as of kernels: [`mod@rlx_kernel::interp::count`].

mod elements;
mod fragments;
mod global;
mod groups;
mod lookups;
mod multiplications;
mod places;
mod shared;
mod stores;
mod tensor;
mod windows;

use std::collections::{BTreeMap, HashSet};

use rlx_ir::{Error, ErrorKind, Result};
use rlx_kernel::interp::{Binding, Counters, Pools};

use crate::ir::{Begin, Below, Coord, Counter, Index, Program, Size, Stage, Stmt, Tile};
use fragments::Warp;
use global::Fetched;
use shared::{Chunks, Step};
use stores::Store;

/// The number of workgroups of a dispatch with these uniforms, each with one tile; 0 where a size is not positive. Of a program of several tiles fewer
/// workgroups do them, too ([`run_in`]).
pub fn workgroups(program: &Program, uniforms: &[i32]) -> u64 {
    let size = |s: Size| u64::try_from(value(s, uniforms, 0)).unwrap_or(0);
    let (rows, cols) = tiles(program, uniforms);
    program.grid.batch.iter().fold(rows * cols, |n, &s| n.saturating_mul(size(s)))
}

/// Rows and columns of tiles.
fn tiles(program: &Program, uniforms: &[i32]) -> (u64, u64) {
    let of = |s: Size, tile: u32| u64::try_from(value(s, uniforms, 0)).unwrap_or(0).div_ceil(u64::from(tile));
    (of(program.grid.rows, program.grid.tile.0), of(program.grid.cols, program.grid.tile.1))
}

/// A size for the part of this number.
fn value(size: Size, uniforms: &[i32], part: i64) -> i64 {
    let uniform = |i: u32| uniforms.get(i as usize).copied().map_or(0, i64::from);
    match size {
        Size::Const(n) => i64::from(n),
        Size::Uniform(i) => uniform(i),
        Size::Part { whole, each } => {
            let each = uniform(each).max(0);
            uniform(whole).saturating_sub(part.saturating_mul(each)).clamp(0, each)
        }
    }
}

/// Runs all workgroups of a program, verified first, on `pools` through `bindings`, one for each buffer.
///
/// # Errors
/// [`ErrorKind::Internal`] naming the program and the check that failed.
pub fn run(program: &Program, uniforms: &[i32], pools: &mut Pools, bindings: &[Binding]) -> Result<Counters> {
    run_in(program, workgroups(program, uniforms), uniforms, pools, bindings)
}

/// The same in a grid of so many workgroups, where they may have several tiles ([`Program::has_several_tiles`]).
///
/// # Errors
/// Likewise, and a grid in which tiles have no workgroup.
pub fn run_in(
    program: &Program,
    grid: u64,
    uniforms: &[i32],
    pools: &mut Pools,
    bindings: &[Binding],
) -> Result<Counters> {
    crate::verify::verify(program)?;
    let all = workgroups(program, uniforms);
    if grid < all && (grid == 0 || !program.has_several_tiles()) {
        return Err(wrong(program, format!("{grid} workgroups for {all} tiles")));
    }
    let grid = grid.min(all);
    run_verified(program, (0..grid, grid), uniforms, pools, bindings)
}

/// The same of workgroups of these numbers alone, each with one tile: for comparing interpreter and rendered text.
///
/// # Errors
/// Likewise, and a number that no workgroup has.
pub fn run_some(
    program: &Program,
    numbers: &[u64],
    uniforms: &[i32],
    pools: &mut Pools,
    bindings: &[Binding],
) -> Result<Counters> {
    crate::verify::verify(program)?;
    let grid = workgroups(program, uniforms);
    if let Some(number) = numbers.iter().find(|&&number| number >= grid) {
        return Err(wrong(program, format!("workgroup {number} of {grid}")));
    }
    run_verified(program, (numbers.iter().copied(), grid), uniforms, pools, bindings)
}

fn run_verified(
    program: &Program,
    (numbers, grid): (impl Iterator<Item = u64>, u64),
    uniforms: &[i32],
    pools: &mut Pools,
    bindings: &[Binding],
) -> Result<Counters> {
    if uniforms.len() < program.uniforms.len() || bindings.len() != program.buffers.len() {
        return Err(wrong(program, "the wrong number of uniforms or bindings".to_string()));
    }
    bindings.iter().try_for_each(|b| pools.check(b)).map_err(|what| wrong(program, what))?;
    let expanded = crate::expand::expand(program);
    crate::verify::verify(&expanded)?;
    let (mut total, mut stored) = (Counters::default(), HashSet::new());
    for number in numbers {
        let mut group = Group::new(&expanded, uniforms, (number, grid), pools, bindings, stored);
        let done = group.has_table().and_then(|has| if has { group.block(&expanded.body) } else { Ok(()) });
        done.map_err(|e| wrong(program, format!("workgroup {number}: {e}")))?;
        total += group.count;
        stored = group.stored;
    }
    Ok(total)
}

fn wrong(program: &Program, what: String) -> Error {
    Error::new(ErrorKind::Internal, format!("tile program {:?}: {what}", program.name))
}

/// One workgroup under way.
struct Group<'a> {
    p: &'a Program,
    uniforms: &'a [i32],
    pools: &'a mut Pools,
    bindings: &'a [Binding],
    /// Its number, and how many there are.
    number: (u64, u64),
    /// The flat number of the batch, and its indices.
    batch: (i32, Vec<i64>),
    row: u32,
    col: u32,
    counters: BTreeMap<Counter, u32>,
    /// The steps that loops with windows begin at.
    firsts: BTreeMap<Counter, u32>,
    shared: Chunks,
    warps: Vec<Warp>,
    fetched: BTreeMap<u32, Fetched>,
    count: Counters,
    /// Elements that were stored, by buffer.
    stored: HashSet<(u32, usize)>,
}

impl<'a> Group<'a> {
    fn new(
        p: &'a Program,
        uniforms: &'a [i32],
        number: (u64, u64),
        pools: &'a mut Pools,
        bindings: &'a [Binding],
        stored: HashSet<(u32, usize)>,
    ) -> Self {
        let warps = (0..p.warps.0 * p.warps.1).map(|n| Warp::new(p, n / p.warps.1, n % p.warps.1)).collect();
        let mut group = Group {
            p,
            uniforms,
            pools,
            bindings,
            number,
            batch: (0, Vec::new()),
            row: 0,
            col: 0,
            counters: BTreeMap::new(),
            firsts: BTreeMap::new(),
            shared: Chunks::new(&p.tiles),
            warps,
            fetched: BTreeMap::new(),
            count: Counters { groups: 1, ..Counters::default() },
            stored,
        };
        group.take(number.0);
        group.firsts = p.begins().iter().map(|(&counter, begin)| (counter, group.first(begin))).collect();
        group
    }

    /// Takes the tile of this number.
    fn take(&mut self, tile: u64) {
        let (p, uniforms) = (self.p, self.uniforms);
        let (rows, cols) = tiles(p, uniforms);
        let (plane, in_plane) = (tile / (rows * cols), tile % (rows * cols));
        let bands = u64::from(p.grid.bands);
        let (band, within) = (in_plane / (bands * cols), in_plane % (bands * cols));
        let height = (rows - band * bands).min(bands);
        let mut rest = plane;
        let mut indices: Vec<i64> = Vec::new();
        for &size in p.grid.batch.iter().rev() {
            let size = value(size, uniforms, 0) as u64;
            indices.push((rest % size) as i64);
            rest /= size;
        }
        indices.reverse();
        self.batch = (plane as i32, indices);
        (self.row, self.col) = ((band * bands + within % height) as u32, (within / height) as u32);
    }

    /// How many tiles the workgroup has, where it has several.
    fn turns(&self) -> u32 {
        let (number, grid) = self.number;
        (workgroups(self.p, self.uniforms) - number).div_ceil(grid) as u32
    }

    /// Takes the tile of a turn.
    fn take_turn(&mut self, turn: u32) {
        let (number, grid) = self.number;
        self.take(number + u64::from(turn) * grid);
    }

    /// The number of the part that the workgroup has.
    fn part(&self) -> i64 {
        self.batch.1.first().copied().unwrap_or(0)
    }

    fn value(&self, size: Size) -> i64 {
        value(size, self.uniforms, self.part())
    }

    /// How much of a size is in the parts before this workgroup's: nothing of one that is not divided.
    fn before_part(&self, size: Size) -> i64 {
        match size {
            Size::Part { each, .. } => {
                let part = self.batch.1.first().copied().unwrap_or(0);
                part.saturating_mul(self.value(Size::Uniform(each)))
            }
            Size::Const(_) | Size::Uniform(_) => 0,
        }
    }

    /// How far a loop goes.
    fn extent(&self, extent: Size, below: Option<Below>) -> i64 {
        let whole = self.value(extent);
        below.map_or(whole, |b| {
            let rows = u64::from(b.rows) * (u64::from(self.row) + 1);
            let end = rows.div_ceil(u64::from(b.heads)) as i64 + self.value(b.offset);
            whole.min(end - self.before(extent))
        })
    }

    /// The step that a loop with a window begins at ([`Below::window`]).
    fn first(&self, begin: &Begin) -> u32 {
        let b = begin.below;
        let own = u64::from(b.rows) * u64::from(self.row) / u64::from(b.heads);
        let last = own as i64 + self.value(b.offset) - self.before(begin.extent);
        let first = (last + 1 - i64::from(begin.window)).max(0) / i64::from(begin.step);
        u32::try_from(first).unwrap_or(u32::MAX)
    }

    /// How much the parts before this one have of something that is divided.
    fn before(&self, extent: Size) -> i64 {
        match extent {
            Size::Part { each, .. } => self.part() * self.value(Size::Uniform(each)).max(0),
            Size::Const(_) | Size::Uniform(_) => 0,
        }
    }

    /// A position, for the warp of the given row and column.
    fn position(&self, index: &Index, warp: (u32, u32)) -> i64 {
        let of = |coord: &Coord| match coord {
            Coord::GroupRow => self.row,
            Coord::GroupCol => self.col,
            Coord::WarpRow => warp.0,
            Coord::WarpCol => warp.1,
            Coord::Counter(c) => self.counters.get(c).copied().unwrap_or(0),
            Coord::First(c) => self.firsts.get(c).copied().unwrap_or(0),
        };
        let terms = index.terms.iter().map(|(coord, factor)| i64::from(of(coord)) * i64::from(*factor));
        i64::from(index.constant) + terms.sum::<i64>()
    }

    /// The number of a stage of a tile.
    fn stage(&self, tile: Tile, stage: Stage) -> u32 {
        let iteration = stage.counter.and_then(|c| self.counters.get(&c).copied()).unwrap_or(0);
        (iteration + stage.ahead) % self.p.tile(tile).stages
    }

    fn block(&mut self, stmts: &[Stmt]) -> Step {
        stmts.iter().try_for_each(|s| self.stmt(s))
    }

    fn stmt(&mut self, s: &Stmt) -> Step {
        match s {
            Stmt::Zero(f) => self.warps.iter_mut().for_each(|w| w.fill(self.p, *f, 0.0)),
            Stmt::Fill(f, x) => self.warps.iter_mut().for_each(|w| w.fill(self.p, *f, *x)),
            Stmt::Each { of, with, row, col, map } => self.each(*of, with, (row, col), map)?,
            Stmt::Exp2(f) => self.warps.iter_mut().try_for_each(|w| w.exp2(*f))?,
            Stmt::Reduce { to, from, op } => {
                self.warps.iter_mut().try_for_each(|w| w.reduce(self.p, *to, *from, *op))?;
            }
            Stmt::Convert { to, from, col } => self.convert(*to, *from, col)?,
            Stmt::Copy(c) => {
                let fetched = self.fetch(c)?;
                self.put(c, fetched, false)?;
            }
            Stmt::CopyAsync(c) => {
                let fetched = self.fetch(c)?;
                self.put(c, fetched, true)?;
            }
            Stmt::Fetch(n, c) => {
                let fetched = self.fetch(c)?;
                self.fetched.insert(*n, fetched);
            }
            Stmt::Put(n, c) => {
                let fetched = self.fetched.remove(n).ok_or("a put without its fetch")?;
                self.put(c, fetched, false)?;
            }
            Stmt::Commit => self.shared.commit(),
            Stmt::Wait(n) => self.shared.wait(*n as usize),
            Stmt::Barrier => {
                self.shared.barrier();
                self.count.barriers += 1;
            }
            Stmt::Load { to, from, stage, row, col, depth_rows, of_sums } => {
                let stage = self.stage(*from, *stage);
                for w in 0..self.warps.len() {
                    let at = self.warps[w].place;
                    let (row, col) = (self.position(row, at) as u32, self.position(col, at) as u32);
                    let (tile, lane) = (*from, w * self.p.arch.lanes() as usize);
                    let (shared, count) = (&mut self.shared, &mut self.count);
                    let (depth_rows, of_sums) = (*depth_rows, *of_sums);
                    let from = fragments::Source { tile, stage, row, col, depth_rows, of_sums, lane };
                    self.warps[w].load(self.p, *to, &from, shared, count)?;
                }
            }
            Stmt::Mma { sum, left, right } => {
                self.warps.iter_mut().try_for_each(|w| w.mma(self.p, *sum, *left, *right))?;
            }
            // What is fetched ahead is read by the statements that use it.
            Stmt::Prefetch { .. } => {}
            Stmt::Store { to, from, row, col, with, map } => {
                self.store(Store { to: *to, from: *from, with, map: map.as_ref() }, (row, col))?;
            }
            Stmt::For { counter, extent, below, step, body } => {
                let steps = (self.extent(*extent, *below).max(0) as u64).div_ceil(u64::from(*step));
                let first = self.firsts.get(counter).copied().map_or(0, u64::from);
                for i in 0..steps.saturating_sub(first) {
                    self.counters.insert(*counter, i as u32);
                    self.count.serial += 1;
                    self.block(body)?;
                }
                self.counters.remove(counter);
            }
            Stmt::Roles { producer, multiplier, consumers } => {
                self.roles([producer, multiplier, consumers])?
            }
            Stmt::Group(_) | Stmt::Staggered(_) | Stmt::Tiles { .. } => {
                return Err("a statement of a role outside of one".to_string());
            }
            Stmt::Pipelined { .. } => return Err("a pipelined loop that was not expanded".to_string()),
        }
        Ok(())
    }
}
