//! What warp groups multiply: `wgmma`, of workgroup memory or of registers by workgroup memory.

use super::Group as Workgroup;
use super::groups::Shared;
use super::shared::{Chunk, Step};
use crate::group::{DEPTH, GROUP_ROWS, GROUP_WARPS, GroupTile, GroupTileDecl, ROW, WARP_ROWS};
use crate::ir::Fragment;
use crate::layout::CHUNK;

impl Workgroup<'_> {
    /// What a warp group begins to multiply: each warp the products of its 16 rows.
    pub(super) fn mma_group(
        &mut self,
        sum: Fragment,
        (left, row): (GroupTile, u32),
        (right, depth_rows): (GroupTile, bool),
        iteration: u32,
        s: &mut Shared,
    ) -> Step {
        s.team().fenced(sum)?;
        let p = self.p;
        let (a, b) = (p.group.tiles[left.0 as usize], p.group.tiles[right.0 as usize]);
        for w in 0..self.warps.len() {
            let number = w as u32;
            let first = row + number / GROUP_WARPS * GROUP_ROWS + number % GROUP_WARPS * WARP_ROWS;
            let rows = self.rows_of((left, a), iteration, (0, first..first + WARP_ROWS), s)?;
            let mut blocks = Vec::new();
            for block in 0..b.blocks {
                blocks.push(self.rows_of((right, b), iteration, (block, 0..b.rows), s)?);
            }
            let of = |all: &[Vec<Chunk>], row: u32, i: u32| {
                all[row as usize][(i / CHUNK) as usize][(i % CHUNK) as usize]
            };
            // A row is a depth, unless the right tile's rows run along it.
            let depth = if depth_rows { b.rows } else { ROW };
            for step in (0..depth).step_by(DEPTH as usize) {
                let left = |r, k| of(&rows, r, step + k);
                let right = |k: u32, c: u32| match depth_rows {
                    true => of(&blocks[(c / ROW) as usize], step + k, c % ROW),
                    false => of(&blocks[0], c, step + k),
                };
                self.warps[w].mma_of(p, sum, &left, &right)?;
            }
        }
        s.team().uses(sum);
        Ok(())
    }

    /// The same with the left operand in registers: those of each warp are its own.
    pub(super) fn mma_left(
        &mut self,
        sum: Fragment,
        left: Fragment,
        right: GroupTile,
        iteration: u32,
        s: &mut Shared,
    ) -> Step {
        s.team().fenced(sum)?;
        s.team().fenced(left)?;
        let p = self.p;
        let b = p.group.tiles[right.0 as usize];
        for w in 0..self.warps.len() {
            let mut blocks = Vec::new();
            for block in 0..b.blocks {
                blocks.push(self.rows_of((right, b), iteration, (block, 0..b.rows), s)?);
            }
            for step in 0..b.rows / DEPTH {
                let right = |k: u32, c: u32| {
                    let (row, col) = (step * DEPTH + k, c % ROW);
                    blocks[(c / ROW) as usize][row as usize][(col / CHUNK) as usize][(col % CHUNK) as usize]
                };
                self.warps[w].mma_left(p, sum, (left, step), &right)?;
            }
        }
        s.team().uses(sum);
        s.team().uses(left);
        Ok(())
    }

    /// Rows of a block of a tile, each in chunks in order, as matrix instructions read them: a chunk of 8 rows at a time.
    pub(super) fn rows_of(
        &mut self,
        (id, tile): (GroupTile, GroupTileDecl),
        iteration: u32,
        (block, rows): (u32, std::ops::Range<u32>),
        s: &mut Shared,
    ) -> Step<Vec<Vec<Chunk>>> {
        let mut all = vec![Vec::new(); rows.len()];
        for chunk in 0..ROW / CHUNK {
            let stage = iteration % tile.stages;
            let at = rows.clone().map(|row| s.at(id, tile.chunk_at(stage, block, row, chunk)));
            let column = s.read(at.collect(), &mut self.count)?;
            all.iter_mut().zip(column).for_each(|(row, chunk)| row.push(chunk));
        }
        Ok(all)
    }
}
