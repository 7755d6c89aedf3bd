//! Tensor memory: sums that a lane's multiplications leave there, and who knows that they are done.
//!
//! What is multiplied is computed at once, but known to be done only to who waited for a barrier that a commit behind it arrives at. Such an arrival is made only when nobody can go on
//! without it.

use super::Group as Workgroup;
use super::fragments::number;
use super::groups::Shared;
use super::places::Place;
use super::shared::{Chunk, Step};
use crate::group::tensor::{Accumulator, LANES, Tensor, WARP_LANES};
use crate::group::{Barrier, DEPTH, GroupTile, ROW};
use crate::ir::{Fragment, Index, Size};
use crate::layout::CHUNK;

/// An accumulator.
pub(super) struct Sums {
    cols: u32,
    /// Rows one behind the other.
    data: Vec<f32>,
    /// The group of the last multiplication into it; they are numbered from 1.
    last: Option<u64>,
}

impl Sums {
    pub(super) fn new(cols: u32) -> Self {
        Sums { cols, data: vec![0.0; (LANES * cols) as usize], last: None }
    }
}

/// An arrival that is made when a group of multiplications, and all before it, are done.
pub(super) struct Commit {
    barrier: (Barrier, u32),
    group: u64,
}

/// An operand: an element of each row along the depth.
type Elements = Vec<Vec<f64>>;

impl Workgroup<'_> {
    pub(super) fn tensor(&mut self, tensor: &Tensor, place: &Place, s: &mut Shared) -> Step {
        match tensor {
            Tensor::Mma { sum, left, row, right, depth_rows, counter } => {
                s.has_fenced()?;
                let n = place.number(*counter);
                let left = self.left_of(*left, *row, n, s)?;
                let right = self.right_of((*right, *depth_rows), n, s)?;
                multiply(&mut s.sums[sum.0 as usize], (&left, &right), n == 0)?;
                let group = s.team().committed + 1;
                s.sums[sum.0 as usize].last = Some(group);
            }
            Tensor::Commit(b, c) => {
                let stages = self.p.group.barriers[b.0 as usize].stages;
                let team = s.team();
                team.committed += 1;
                let group = team.committed;
                s.commits.push(Commit { barrier: (*b, place.number(*c) % stages), group });
            }
            Tensor::Fence => s.team().waited = false,
            Tensor::Load { to, from, row, col, depth } => {
                self.load_sums(*to, (*from, *row, col), *depth, s)?;
            }
        }
        Ok(())
    }

    /// The 128 rows of a left operand.
    fn left_of(&mut self, tile: GroupTile, row: u32, iteration: u32, s: &mut Shared) -> Step<Elements> {
        let decl = self.p.group.tiles[tile.0 as usize];
        let rows = self.rows_of((tile, decl), iteration, (0, row..row + LANES), s)?;
        Ok(rows.iter().map(|row| self.elements(row)).collect())
    }

    /// The columns of a right operand.
    fn right_of(
        &mut self,
        (tile, depth_rows): (GroupTile, bool),
        iteration: u32,
        s: &mut Shared,
    ) -> Step<Elements> {
        let decl = self.p.group.tiles[tile.0 as usize];
        let mut all: Elements = Vec::new();
        for block in 0..decl.blocks {
            let rows = self.rows_of((tile, decl), iteration, (block, 0..decl.rows), s)?;
            let rows: Elements = rows.iter().map(|row| self.elements(row)).collect();
            match depth_rows {
                true => all.extend((0..ROW as usize).map(|c| rows.iter().map(|row| row[c]).collect())),
                false => all.extend(rows),
            }
        }
        Ok(all)
    }

    fn elements(&self, row: &[Chunk]) -> Vec<f64> {
        let one = |i: u32| number(self.p.dtype, row[(i / CHUNK) as usize][(i % CHUNK) as usize]);
        (0..ROW).map(one).collect()
    }

    /// Each warp loads 16 rows of its own lanes.
    fn load_sums(
        &mut self,
        to: Fragment,
        (from, row, col): (Accumulator, u32, &Index),
        depth: Size,
        s: &mut Shared,
    ) -> Step {
        let (p, cols) = (self.p, self.p.fragment(to).cols);
        if self.value(depth) <= 0 {
            self.warps.iter_mut().for_each(|w| w.fill(p, to, 0.0));
            return Ok(());
        }
        s.has_fenced()?;
        s.is_multiplied(from)?;
        let atom = p.atom().ok_or("no matrix instruction")?;
        let sums = &s.sums[from.0 as usize];
        for w in 0..self.warps.len() {
            let at = self.warps[w].place;
            let (first, col) = (at.0 * WARP_LANES + row, self.position(col, at) as u32);
            let mut own = Vec::new();
            for lane in 0..p.arch.lanes() {
                for beside in 0..cols / atom.n {
                    own.extend((0..atom.sum.elements()).map(|e| {
                        let (row, within) = atom.sum.at(lane, e);
                        sums.data[((first + row) * sums.cols + col + beside * atom.n + within) as usize]
                    }));
                }
            }
            self.warps[w].sums[to.0 as usize] = own;
        }
        Ok(())
    }
}

/// The products of two operands, in groups of the depth of an instruction: each is added up exactly and rounded once.
fn multiply(sums: &mut Sums, (left, right): (&Elements, &Elements), set: bool) -> Step {
    if right.len() != sums.cols as usize {
        return Err("another number of columns than the accumulator has".to_owned());
    }
    for (row, a) in sums.data.chunks_mut(right.len()).zip(left) {
        for (sum, b) in row.iter_mut().zip(right) {
            let before = if set { 0.0 } else { *sum };
            let depth = DEPTH as usize;
            *sum = a.chunks(depth).zip(b.chunks(depth)).fold(before, |sum, (a, b)| {
                let products = a.iter().zip(b).map(|(a, b)| a * b);
                (f64::from(sum) + products.sum::<f64>()) as f32
            });
        }
    }
    Ok(())
}

impl Shared {
    /// Whether the team that runs has a fence behind its waits.
    fn has_fenced(&mut self) -> Step {
        match self.team().waited {
            true => Err("tensor memory is used with no fence.tensor behind a wait".to_owned()),
            false => Ok(()),
        }
    }

    /// Whether the team that runs knows that a group of multiplications is done.
    fn knows(&self, group: u64) -> bool {
        let (heard, multiplier) = (self.teams[self.present].heard, self.teams.last());
        multiplier.and_then(|m| m.done.get(group as usize - 1)).is_some_and(|&arrived| arrived < heard)
    }

    /// Whether the team that runs may load an accumulator.
    fn is_multiplied(&self, of: Accumulator) -> Step {
        match self.sums[of.0 as usize].last {
            None => Err(format!("d{} is loaded before anything is multiplied", of.0)),
            Some(group) if !self.knows(group) => {
                Err(format!("d{} is loaded, and it is not known that its multiplications are done", of.0))
            }
            Some(_) => Ok(()),
        }
    }

    /// The arrival that the oldest of the multiplications under way makes at a barrier; whether there is one.
    pub(super) fn deliver_commit(&mut self, at: (Barrier, u32)) -> Step<bool> {
        let Some(first) = self.commits.iter().position(|commit| commit.barrier == at) else {
            return Ok(false);
        };
        let group = self.commits.remove(first).group as usize;
        let number = self.teams.len() - 1;
        let multiplier = &mut self.teams[number];
        let before = multiplier.arrived;
        multiplier.done.resize(multiplier.done.len().max(group), before);
        multiplier.arrived = before + 1;
        self.phases(at).arriving = Some((number, before + 1));
        self.arrive(at, 1, 0)?;
        Ok(true)
    }

    /// Tensor memory is freed behind the roles: consumers have to know that nothing is multiplied into it any more.
    pub(super) fn freed(&mut self) -> Step {
        self.present = 0;
        let last = self.sums.iter().filter_map(|sums| sums.last).max();
        match last.is_none_or(|group| self.knows(group)) {
            true => Ok(()),
            false => {
                Err("tensor memory is freed, and it is not known that multiplications are done".to_owned())
            }
        }
    }
}
