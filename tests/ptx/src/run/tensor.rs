//! Runs the instructions of sm_100a.

use super::Group;
use crate::Result;
use crate::groups::Matrix;
use crate::parse::{Instr, Op};
use crate::tensor_memory::LANES;
use crate::tensor_ops::{Shape, TensorOp};
use crate::warp::{self, WARP};

impl Group<'_> {
    /// Does what a thread does for itself.
    pub(super) fn tensor_op(&mut self, t: usize, op: &TensorOp) -> Result {
        let thread = t as u32;
        match op {
            TensorOp::Fence { after: true } => self.shared.beside.fence_after_wait(thread),
            TensorOp::Fence { after: false } => {
                let loads = !self.threads[t].loading.is_empty();
                self.tensor.fence(t, self.shared.beside.own(thread), loads);
            }
            TensorOp::Commit { at } => {
                let at = self.shared.barrier_at(self.shared_address(t, *at))?;
                self.shared.beside.commit_tensor(at, self.tensor.begun, thread)?;
            }
            TensorOp::Multiply { to, a, b, how, add } => {
                let shape = Shape::of(self.value(t, *how) as u32)?;
                let [a, b] = [self.value(t, *a), self.value(t, *b)];
                let (to, add) = (self.shared_address(t, *to) as u32, self.value(t, *add) != 0);
                self.multiply_tensor(t, (to, shape, add), Matrix::of_tensor(a)?, Matrix::of_tensor(b)?)?;
            }
            _ => return Err("an instruction of a warp in one thread".to_owned()),
        }
        Ok(())
    }

    /// `tcgen05.mma`, which is done at once; others know it later.
    fn multiply_tensor(
        &mut self,
        t: usize,
        (to, shape, add): (u32, Shape, bool),
        a: Matrix,
        b: Matrix,
    ) -> Result {
        let first = self.tensor.multiply(to, shape.cols, add, t, &self.shared.beside)?;
        let rows = self.rows_for_tensor(t, a, LANES)?;
        let cols = match shape.columns {
            true => self.columns_for_tensor(t, b, shape.cols)?,
            false => self.rows_for_tensor(t, b, shape.cols)?,
        };
        for (lane, row) in rows.iter().enumerate() {
            for (i, col) in cols.iter().enumerate() {
                let cell = self.tensor.cell(lane, first + i);
                let before = if add { f32::from_bits(*cell) } else { 0.0 };
                *cell = warp::dot(shape.half, row, col, before).to_bits();
            }
        }
        Ok(())
    }

    /// Rows of a matrix, each 16 elements.
    fn rows_for_tensor(&mut self, t: usize, m: Matrix, rows: usize) -> Result<Vec<[u16; 16]>> {
        let mut all = vec![[0u16; 16]; rows];
        for (row, to) in all.iter_mut().enumerate() {
            for (half, to) in to.chunks_mut(8).enumerate() {
                to.copy_from_slice(&self.chunk_for_tensor(t, m.chunk(row as u64, 8 * half as u64))?);
            }
        }
        Ok(all)
    }

    /// The same of columns that neighbours are along.
    fn columns_for_tensor(&mut self, t: usize, m: Matrix, cols: usize) -> Result<Vec<[u16; 16]>> {
        let mut all = vec![[0u16; 16]; cols];
        for depth in 0..16 {
            for (eight, to) in all.chunks_mut(8).enumerate() {
                let chunk = self.chunk_for_tensor(t, m.columns(depth as u64, 8 * eight as u64)?)?;
                to.iter_mut().zip(chunk).for_each(|(col, element)| col[depth] = element);
            }
        }
        Ok(all)
    }

    fn chunk_for_tensor(&mut self, t: usize, at: u64) -> Result<[u16; 8]> {
        let bytes = self.shared.multiplied_by_tensor(at, t as u32, self.tensor.begun)?;
        Ok(std::array::from_fn(|i| u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]])))
    }

    /// Does what the lanes of a warp do together.
    pub(super) fn tensor_of_warp(&mut self, first: usize, op: &TensorOp) -> Result {
        let all = first..first + WARP;
        let beside = &self.shared.beside;
        let operands = op.operands();
        if all.clone().any(|t| operands.iter().any(|&o| self.value(t, o) != self.value(first, o))) {
            return Err("the lanes of a warp have different addresses in tensor memory".to_owned());
        }
        match op {
            TensorOp::Allocate { at, columns } => {
                let columns = self.value(first, *columns) as usize;
                let address = self.tensor.allocate(columns, first)?;
                let at = self.shared_address(first, *at);
                self.shared.store(at, &address.to_le_bytes(), first as u32)?;
            }
            TensorOp::GiveUp => self.tensor.give_up(),
            TensorOp::Free { address, columns } => {
                let (address, columns) =
                    (self.value(first, *address) as u32, self.value(first, *columns) as usize);
                self.tensor.free(address, columns, first, beside)?;
            }
            TensorOp::Load { d, from } => {
                let address = self.shared_address(first, *from) as u32;
                // 8 columns for each 4 registers.
                let (lane, column) = self.tensor.load(address, 2 * d.len(), first, beside)?;
                for t in all {
                    let within = t - first;
                    for (i, &d) in d.iter().enumerate() {
                        // "Matrix fragments for shape .16x256b": as those of `wgmma`'s matrix D.
                        let row = lane + within / 4 + 8 * (i / 2 % 2);
                        let bits = *self.tensor.cell(row, column + i / 4 * 8 + within % 4 * 2 + i % 2);
                        self.set(t, d, u64::from(bits));
                        self.threads[t].loading.push(d);
                    }
                }
            }
            TensorOp::WaitLoads => all.for_each(|t| self.threads[t].loading.clear()),
            _ => return Err("an instruction of one thread in a warp".to_owned()),
        }
        Ok(())
    }

    /// Whether an instruction leaves registers alone whose loads nobody waited for.
    pub(super) fn leaves_loaded(&mut self, t: usize, instr: &Instr) -> Result {
        let loading = &self.threads[t].loading;
        if loading.is_empty() {
            return Ok(());
        }
        if let Op::Move { d, a } = instr.op {
            // The assembler has one register for both.
            let (of, to) = (loading.contains(&a), loading.contains(&d));
            if of && !to {
                self.threads[t].loading.push(d);
            }
            return if to { Err("a register is written whose load is under way".to_owned()) } else { Ok(()) };
        }
        let mut registers = instr.op.registers();
        registers.extend(instr.guard.map(|g| g.0));
        match registers.iter().any(|r| loading.contains(r)) {
            true => Err("a register is used whose load from tensor memory is under way".to_owned()),
            false => Ok(()),
        }
    }
}
