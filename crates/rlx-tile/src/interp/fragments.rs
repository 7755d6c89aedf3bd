//! The registers of a warp's lanes: `ldmatrix` and matrix instructions.

use half::{bf16, f16};
use rlx_ir::DType;
use rlx_kernel::interp::Counters;

use super::shared::{self, Chunks, Step};
use crate::atom::{Atom, BLOCK, LANES, Lanes};
use crate::ir::{Fragment, Program, Role, Tile};

const WARP: usize = LANES as usize;

/// A warp.
pub struct Warp {
    /// Its row and column in the workgroup.
    pub place: (u32, u32),
    /// Sums of each fragment: those of lane 0, then of lane 1, …; empty before the first use.
    sums: Vec<Vec<f32>>,
    /// Registers of each fragment of operands, likewise; a register is two elements, the first in the low half.
    registers: Vec<Vec<u32>>,
}

/// Where a fragment is loaded from.
pub struct Source {
    pub tile: Tile,
    pub stage: u32,
    pub row: u32,
    pub col: u32,
    pub depth_rows: bool,
    /// The number of the warp's first lane in the workgroup.
    pub lane: usize,
}

/// An element of 16 bits as a number.
fn number(dtype: DType, bits: u16) -> f64 {
    match dtype {
        DType::F16 => f16::from_bits(bits).to_f64(),
        _ => bf16::from_bits(bits).to_f64(),
    }
}

/// Sums that a lane has of a fragment.
pub fn sums_of_lane(rows: u32, cols: u32) -> usize {
    (rows * cols / LANES) as usize
}

impl Warp {
    pub fn new(p: &Program, row: u32, col: u32) -> Self {
        let n = p.fragments.len();
        Warp { place: (row, col), sums: vec![Vec::new(); n], registers: vec![Vec::new(); n] }
    }

    pub fn zero(&mut self, p: &Program, f: Fragment) {
        let decl = p.fragment(f);
        self.sums[f.0 as usize] = vec![0.0; sums_of_lane(decl.rows, decl.cols) * WARP];
    }

    /// The sum number `index` of a lane.
    pub fn sum(&self, f: Fragment, lane: usize, index: usize) -> Step<f32> {
        let sums = &self.sums[f.0 as usize];
        let of_lane = sums.len() / WARP;
        sums.get(lane * of_lane + index)
            .copied()
            .ok_or_else(|| format!("f{} is stored before it is set", f.0))
    }

    /// Loads a fragment by `ldmatrix.x4`, which loads four matrices of 8 × 8 elements: lane `8·i + r` says where row `r` of matrix `i` is, and gets
    /// elements `2·(lane mod 4)` and the next of row `lane / 4` of each matrix (`.trans`: of its transpose).
    pub fn load(
        &mut self,
        p: &Program,
        to: Fragment,
        from: &Source,
        memory: &mut Chunks,
        count: &mut Counters,
    ) -> Step {
        let (decl, tile) = (p.fragment(to), p.tile(from.tile));
        let (across, along) = (decl.rows / BLOCK, decl.cols / BLOCK);
        let blocks = (across * along) as usize;
        let mut registers = vec![0u32; blocks * 4 * WARP];
        let as_stored = (decl.role == Role::Left) != from.depth_rows;
        for block in 0..blocks {
            let (i, j) = (block as u32 / along * BLOCK, block as u32 % along * BLOCK);
            // A right fragment's blocks are depth × columns.
            let stored_so = match decl.role {
                Role::Right => from.depth_rows,
                _ => !from.depth_rows,
            };
            let (row, col) = if stored_so { (i, j) } else { (j, i) };
            let mut chunks = [None; WARP];
            let mut rows = [[0u16; 8]; WARP];
            for lane in 0..LANES {
                let (third, fourth) = ((lane >> 3 & 1) * 8, (lane >> 4) * 8);
                let (down, right) = if as_stored { (third, fourth) } else { (fourth, third) };
                let at = (from.row + row + lane % 8 + down, from.col + col + right);
                let chunk = memory.at(from.tile, tile.chunk_at(from.stage, at.0, at.1));
                chunks[lane as usize] = Some(chunk);
                rows[lane as usize] = memory.read(chunk, from.lane + lane as usize)?;
            }
            shared::count(count, &chunks);
            for lane in 0..WARP {
                for matrix in 0..4 {
                    let (r, c) = (lane / 4, 2 * (lane % 4));
                    let of = |r: usize, c: usize| u32::from(rows[8 * matrix + r][c]);
                    let (low, high) =
                        if from.depth_rows { (of(c, r), of(c + 1, r)) } else { (of(r, c), of(r, c + 1)) };
                    registers[(lane * blocks + block) * 4 + matrix] = low | high << 16;
                }
            }
        }
        self.registers[to.0 as usize] = registers;
        Ok(())
    }

    pub fn mma(&mut self, p: &Program, sum: Fragment, left: Fragment, right: Fragment) -> Step {
        let atom = p.atom().ok_or("no matrix instruction")?;
        let (s, l) = (p.fragment(sum), p.fragment(left));
        let (rows, cols, depth) = (s.rows / atom.m, s.cols / atom.n, l.cols / BLOCK);
        let per_lane = sums_of_lane(s.rows, s.cols);
        let mut sums = std::mem::take(&mut self.sums[sum.0 as usize]);
        let (a, b) = (&self.registers[left.0 as usize], &self.registers[right.0 as usize]);
        if sums.is_empty() || a.is_empty() || b.is_empty() {
            return Err("a matrix instruction with an operand that was not set".to_string());
        }
        let (a_lane, b_lane) = (a.len() / WARP, b.len() / WARP);
        for d in 0..depth {
            for step in 0..atom.steps() {
                for i in 0..rows {
                    let block = (i * depth + d) * 4;
                    let of = atom.left_registers(step);
                    let matrix = gather(atom, &atom.left, (a, a_lane), block + of.start);
                    for j in 0..cols {
                        let block = (d * (cols / 2) + j / 2) * 4;
                        let of = atom.right_registers(j % 2, step);
                        let other = gather(atom, &atom.right, (b, b_lane), block + of.start);
                        multiply(atom, &matrix, &other, &mut sums, per_lane, (i * cols + j) as usize * 4);
                    }
                }
            }
        }
        self.sums[sum.0 as usize] = sums;
        Ok(())
    }
}

/// A matrix of at most 16 × 16.
type Matrix = [[f64; 16]; 16];

/// The operand of a matrix instruction, from the lanes' registers `first..`.
fn gather(atom: &Atom, layout: &Lanes, (registers, of_lane): (&[u32], usize), first: u32) -> Matrix {
    let mut matrix = [[0.0; 16]; 16];
    for lane in 0..LANES {
        for element in 0..layout.elements() {
            let register = registers[lane as usize * of_lane + (first + element / 2) as usize];
            let (row, col) = layout.at(lane, element);
            matrix[row as usize][col as usize] =
                number(atom.dtype, (register >> (16 * (element % 2))) as u16);
        }
    }
    matrix
}

fn multiply(atom: &Atom, left: &Matrix, right: &Matrix, sums: &mut [f32], per_lane: usize, first: usize) {
    for lane in 0..LANES {
        for element in 0..atom.sum.elements() {
            let (row, col) = atom.sum.at(lane, element);
            let products = (0..atom.k as usize).map(|k| left[row as usize][k] * right[k][col as usize]);
            let sum = &mut sums[lane as usize * per_lane + first + element as usize];
            *sum = (f64::from(*sum) + products.sum::<f64>()) as f32;
        }
    }
}
