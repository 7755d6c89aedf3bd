//! The registers of a warp's lanes: loads of operands and matrix instructions.

use half::{bf16, f16};
use rlx_ir::DType;
use rlx_kernel::interp::Counters;

use super::shared::{self, Chunks, Step};
use crate::atom::{Atom, Lanes, Loading};
use crate::ir::{Fragment, Program, Role, Tile};
use crate::layout::CHUNK;

/// A warp.
pub struct Warp {
    pub(super) lanes: usize,
    /// Its row and column in the workgroup.
    pub place: (u32, u32),
    /// Sums or rows of each fragment: those of lane 0, then of lane 1, …; empty before the first use.
    pub(super) sums: Vec<Vec<f32>>,
    /// Registers of each fragment of operands, likewise; a register is an f32, or two elements, the first in the low half.
    pub(super) registers: Vec<Vec<u32>>,
}

/// Where a fragment is loaded from.
pub struct Source {
    pub tile: Tile,
    pub stage: u32,
    pub row: u32,
    pub col: u32,
    pub depth_rows: bool,
    pub of_sums: bool,
    /// The number of the warp's first lane in the workgroup.
    pub lane: usize,
}

/// An element as a number; of those of 16 bits, the low half counts.
pub(super) fn number(dtype: DType, bits: u32) -> f64 {
    match dtype {
        DType::F32 => f64::from(f32::from_bits(bits)),
        DType::F16 => f16::from_bits(bits as u16).to_f64(),
        _ => bf16::from_bits(bits as u16).to_f64(),
    }
}

/// Sums that a lane has of a fragment, or rows.
pub(super) fn sums_of_lane(p: &Program, f: Fragment) -> usize {
    let decl = p.fragment(f);
    if let (Role::Rows, Some(atom)) = (decl.role, p.atom()) {
        return (decl.rows / atom.m * atom.sum.rows()) as usize;
    }
    (decl.rows * decl.cols / p.arch.lanes()) as usize
}

impl Warp {
    pub fn new(p: &Program, row: u32, col: u32) -> Self {
        let n = p.fragments.len();
        Warp {
            lanes: p.arch.lanes() as usize,
            place: (row, col),
            sums: vec![Vec::new(); n],
            registers: vec![Vec::new(); n],
        }
    }

    pub fn fill(&mut self, p: &Program, f: Fragment, x: f32) {
        self.sums[f.0 as usize] = vec![x; sums_of_lane(p, f) * self.lanes];
    }

    /// The sum number `index` of a lane.
    pub fn sum(&self, f: Fragment, lane: usize, index: usize) -> Step<f32> {
        let sums = &self.sums[f.0 as usize];
        let of_lane = sums.len() / self.lanes;
        sums.get(lane * of_lane + index)
            .copied()
            .ok_or_else(|| format!("f{} is stored before it is set", f.0))
    }

    /// Loads a fragment, block by block, as the architecture does.
    pub fn load(
        &mut self,
        p: &Program,
        to: Fragment,
        from: &Source,
        memory: &mut Chunks,
        count: &mut Counters,
    ) -> Step {
        let atom = p.atom().ok_or("no matrix instruction")?;
        let decl = p.fragment(to);
        // Rows and columns of a block; those of a right operand are depth × columns.
        let (rows, cols) = match decl.role {
            Role::Right => (atom.depth, atom.block),
            _ => (atom.block, atom.depth),
        };
        let (across, along) = (decl.rows / rows, decl.cols / cols);
        // Whether the tile's rows are the operand's.
        let as_declared = (decl.role == Role::Right) == from.depth_rows;
        let (blocks, n) = ((across * along) as usize, atom.block_registers() as usize);
        let mut registers = vec![0u32; blocks * n * self.lanes];
        for block in 0..blocks {
            let (i, j) = (block as u32 / along * rows, block as u32 % along * cols);
            let (i, j) = if as_declared { (i, j) } else { (j, i) };
            let corner = (from.row + i, from.col + j);
            let mut set = |lane: usize, register: usize, bits: u32| {
                registers[(lane * blocks + block) * n + register] = bits;
            };
            match &atom.loading {
                Loading::Dealt => {
                    let by_rows = (decl.role == Role::Left) != from.depth_rows;
                    load_matrices(p, from, (corner, by_rows), (memory, count), &mut set)?;
                }
                Loading::Own(own) => {
                    let own = atom.chained.as_ref().filter(|_| from.of_sums).unwrap_or(own);
                    load_own(p, from, (corner, own), (memory, count), &mut set)?;
                }
                Loading::Matrix => {
                    let layout = if decl.role == Role::Right { &atom.right } else { &atom.left };
                    let how = (corner, layout, !as_declared, atom.packed());
                    load_matrix(p, from, how, (memory, count), &mut set)?;
                }
            }
        }
        self.registers[to.0 as usize] = registers;
        Ok(())
    }

    pub fn mma(&mut self, p: &Program, sum: Fragment, left: Fragment, right: Fragment) -> Step {
        let atom = p.atom().ok_or("no matrix instruction")?;
        let (s, l) = (p.fragment(sum), p.fragment(left));
        let (rows, cols, depth) = (s.rows / atom.m, s.cols / atom.n, l.cols / atom.depth);
        let per_lane = sums_of_lane(p, sum);
        let mut sums = std::mem::take(&mut self.sums[sum.0 as usize]);
        let (a, b) = (&self.registers[left.0 as usize], &self.registers[right.0 as usize]);
        if sums.is_empty() || a.is_empty() || b.is_empty() {
            return Err("a matrix instruction with an operand that was not set".to_string());
        }
        let (a_lane, b_lane) = (a.len() / self.lanes, b.len() / self.lanes);
        let (n, halves, of_sum) = (atom.block_registers(), atom.halves(), atom.sum.elements());
        for d in 0..depth {
            for step in 0..atom.steps() {
                for i in 0..rows {
                    let block = (i * depth + d) * n;
                    let of = atom.left_registers(step);
                    let matrix = gather(atom, &atom.left, (a, a_lane), block + of.start);
                    for j in 0..cols {
                        let block = (d * (cols / halves) + j / halves) * n;
                        let of = atom.right_registers(j % halves, step);
                        let other = gather(atom, &atom.right, (b, b_lane), block + of.start);
                        let first = ((i * cols + j) * of_sum) as usize;
                        multiply(atom, &matrix, &other, &mut sums, per_lane, first);
                    }
                }
            }
        }
        self.sums[sum.0 as usize] = sums;
        Ok(())
    }
}

impl Warp {
    /// `sum += left · right` over the depth of one instruction, with the operands that `wgmma` takes from workgroup memory: elements (row, depth) of
    /// the warp's 16 rows, and (depth, column).
    pub fn mma_of(
        &mut self,
        p: &Program,
        sum: Fragment,
        left: &dyn Fn(u32, u32) -> u32,
        right: &dyn Fn(u32, u32) -> u32,
    ) -> Step {
        let atom = p.atom().ok_or("no matrix instruction")?;
        self.multiplied(p, sum, &matrix(atom, left), right)
    }

    fn multiplied(
        &mut self,
        p: &Program,
        sum: Fragment,
        left: &Matrix,
        right: &dyn Fn(u32, u32) -> u32,
    ) -> Step {
        let atom = p.atom().ok_or("no matrix instruction")?;
        let per_lane = sums_of_lane(p, sum);
        let sums = &mut self.sums[sum.0 as usize];
        if sums.is_empty() {
            return Err("a matrix instruction with an operand that was not set".to_string());
        }
        for j in 0..p.fragment(sum).cols / atom.n {
            let b = matrix(atom, &|k, c| if c < atom.n { right(k, j * atom.n + c) } else { 0 });
            multiply(atom, left, &b, sums, per_lane, (j * atom.sum.elements()) as usize);
        }
        Ok(())
    }
}

impl Warp {
    /// The same with the left operand in registers, of which the instruction takes the blocks of the depth number `step`.
    pub fn mma_left(
        &mut self,
        p: &Program,
        sum: Fragment,
        (left, step): (Fragment, u32),
        right: &dyn Fn(u32, u32) -> u32,
    ) -> Step {
        let atom = p.atom().ok_or("no matrix instruction")?;
        let registers = &self.registers[left.0 as usize];
        let first = step * atom.block_registers() + atom.left_registers(0).start;
        if registers.is_empty() {
            return Err("a matrix instruction with an operand that was not set".to_string());
        }
        let a = gather(atom, &atom.left, (registers, registers.len() / self.lanes), first);
        self.multiplied(p, sum, &a, right)
    }
}

/// Workgroup memory, and what is counted of its accesses.
type Memory<'m> = (&'m mut Chunks, &'m mut Counters);

/// A register of two elements of 16 bits.
pub(super) fn pair(low: u32, high: u32) -> u32 {
    low | high << 16
}

/// A block by `ldmatrix.x4`, which loads four matrices of 8 × 8 elements: lane `8·i + r` says where row `r` of matrix `i` is, and gets
/// elements `2·(lane mod 4)` and the next of row `lane / 4` of each matrix (`.trans`: of its transpose). The second matrix is below the first
/// where lanes go by rows, else beside it.
fn load_matrices(
    p: &Program,
    from: &Source,
    (corner, by_rows): ((u32, u32), bool),
    (memory, count): Memory,
    set: &mut dyn FnMut(usize, usize, u32),
) -> Step {
    const WARP: usize = 32;
    let tile = p.tile(from.tile);
    let mut chunks = [0; WARP];
    let mut rows = [[0; CHUNK as usize]; WARP];
    for lane in 0..WARP as u32 {
        let (third, fourth) = ((lane >> 3 & 1) * 8, (lane >> 4) * 8);
        let (down, right) = if by_rows { (third, fourth) } else { (fourth, third) };
        let at = (corner.0 + lane % 8 + down, corner.1 + right);
        let chunk = memory.at(from.tile, tile.chunk_at(from.stage, at.0, at.1));
        chunks[lane as usize] = chunk;
        rows[lane as usize] = memory.read(chunk, from.lane + lane as usize)?;
    }
    shared::count_reads(count, &chunks);
    for lane in 0..WARP {
        for matrix in 0..4 {
            let (r, c) = (lane / 4, 2 * (lane % 4));
            let of = |r: usize, c: usize| rows[8 * matrix + r][c];
            match from.depth_rows {
                true => set(lane, matrix, pair(of(c, r), of(c + 1, r))),
                false => set(lane, matrix, pair(of(r, c), of(r, c + 1))),
            }
        }
    }
    Ok(())
}

/// A block that each lane loads its elements of: whole chunks where the tile's rows run across the depth, which makes the depth's elements
/// neighbours, else one element after the other.
fn load_own(
    p: &Program,
    from: &Source,
    (corner, own): ((u32, u32), &Lanes),
    (memory, count): Memory,
    set: &mut dyn FnMut(usize, usize, u32),
) -> Step {
    let tile = p.tile(from.tile);
    let lanes = p.arch.lanes();
    let mut elements = vec![vec![0; own.elements() as usize]; lanes as usize];
    let together = if from.depth_rows { 1 } else { CHUNK };
    for first in (0..own.elements()).step_by(together as usize) {
        let mut accesses = Vec::new();
        for lane in 0..lanes {
            let (across, depth) = own.at(lane, first);
            let (down, right) = if from.depth_rows { (depth, across) } else { (across, depth) };
            let at = (corner.0 + down, corner.1 + right);
            let chunk = memory.at(from.tile, tile.chunk_at(from.stage, at.0, at.1));
            let data = memory.read(chunk, from.lane + lane as usize)?;
            let (to, within) = (first as usize, (at.1 % CHUNK) as usize);
            let n = together as usize;
            elements[lane as usize][to..to + n].copy_from_slice(&data[within..within + n]);
            accesses.push((chunk, within));
        }
        match from.depth_rows {
            true => shared::count_elements(count, &accesses),
            false => shared::count_reads(count, &accesses.iter().map(|a| a.0).collect::<Vec<_>>()),
        }
    }
    for (lane, elements) in elements.iter().enumerate() {
        elements.chunks(2).enumerate().for_each(|(i, pair)| set(lane, i, self::pair(pair[0], pair[1])));
    }
    Ok(())
}

/// A matrix that the whole warp loads (`simdgroup_load`, `coopLoad`), transposed where the tile's rows are not the operand's; `layout` says which elements each lane gets.
fn load_matrix(
    p: &Program,
    from: &Source,
    (corner, layout, transposed, packed): ((u32, u32), &Lanes, bool, u32),
    (memory, count): Memory,
    set: &mut dyn FnMut(usize, usize, u32),
) -> Step {
    let tile = p.tile(from.tile);
    for lane in 0..p.arch.lanes() {
        let mut element = |e: u32| {
            let (row, col) = layout.at(lane, e);
            let (down, right) = if transposed { (col, row) } else { (row, col) };
            let at = (corner.0 + down, corner.1 + right);
            let chunk = memory.at(from.tile, tile.chunk_at(from.stage, at.0, at.1));
            Ok::<u32, String>(memory.read(chunk, from.lane + lane as usize)?[(at.1 % tile.chunk()) as usize])
        };
        for register in 0..layout.elements() / packed {
            let bits = match packed {
                1 => element(register)?,
                _ => pair(element(2 * register)?, element(2 * register + 1)?),
            };
            set(lane as usize, register as usize, bits);
        }
    }
    // The warp reads the matrix's rows once, whichever lanes get them.
    let first = memory.at(from.tile, tile.chunk_at(from.stage, corner.0, corner.1));
    let chunks: Vec<usize> = match tile.matrices {
        true => (first..first + tile.matrix_chunks() as usize).collect(),
        false => {
            let (size, stride) = (layout.side() as usize, tile.stride() as usize);
            let column = |chunk: usize| (0..size).map(move |row| first + row * stride + chunk);
            (0..size / tile.chunk() as usize).flat_map(column).collect()
        }
    };
    shared::count_reads(count, &chunks);
    Ok(())
}

/// A matrix of at most 16 × 16.
type Matrix = [[f64; 16]; 16];

/// A matrix of elements.
fn matrix(atom: &Atom, f: &dyn Fn(u32, u32) -> u32) -> Matrix {
    std::array::from_fn(|i| std::array::from_fn(|j| number(atom.dtype, f(i as u32, j as u32))))
}

/// The operand of a matrix instruction, from the lanes' registers `first..`.
fn gather(atom: &Atom, layout: &Lanes, (registers, of_lane): (&[u32], usize), first: u32) -> Matrix {
    let mut matrix = [[0.0; 16]; 16];
    for lane in 0..atom.arch.lanes() {
        for element in 0..layout.elements() {
            let register = registers[lane as usize * of_lane + (first + element / atom.packed()) as usize];
            let (row, col) = layout.at(lane, element);
            matrix[row as usize][col as usize] =
                number(atom.dtype, register >> (16 * (element % atom.packed())));
        }
    }
    matrix
}

fn multiply(atom: &Atom, left: &Matrix, right: &Matrix, sums: &mut [f32], per_lane: usize, first: usize) {
    for lane in 0..atom.arch.lanes() {
        for element in 0..atom.sum.elements() {
            let (row, col) = atom.sum.at(lane, element);
            let products = (0..atom.k as usize).map(|k| left[row as usize][k] * right[k][col as usize]);
            let sum = &mut sums[lane as usize * per_lane + first + element as usize];
            *sum = (f64::from(*sum) + products.sum::<f64>()) as f32;
        }
    }
}
