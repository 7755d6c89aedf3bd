//! Runs the instructions of sm_90a.

use super::{Group, State};
use crate::Result;
use crate::asynchronous::CHUNK;
use crate::groups::{GroupOp, Left, Matrix, Multiply};
use crate::memory::Memory;
use crate::parse::{Instr, Op, Operand};
use crate::tensor::TensorMap;
use crate::tensor_ops::TensorOp;
use crate::warp::{self, WARP};

/// Threads of a warp group.
const GROUP: usize = 4 * WARP;

impl Group<'_> {
    /// Does what a thread does for itself; whether it goes on.
    pub(super) fn group_op(&mut self, t: usize, op: &GroupOp, memory: &Memory) -> Result<bool> {
        let thread = t as u32;
        match op {
            GroupOp::Init { at, arrivals } => {
                let arrivals = self.value(t, *arrivals) as u32;
                let at = self.shared.barrier_at(self.shared_address(t, *at))?;
                self.shared.beside.init(at, arrivals, thread)?;
            }
            GroupOp::Arrive { at, bytes } => {
                let bytes = self.value(t, *bytes) as u32;
                let at = self.shared.barrier_at(self.shared_address(t, *at))?;
                self.shared.beside.arrive(at, bytes, thread)?;
            }
            GroupOp::Wait { d, at, parity } => {
                let parity = self.value(t, *parity) as u32;
                let at = self.shared.barrier_at(self.shared_address(t, *at))?;
                if !self.shared.beside.try_wait(at, parity, thread)? {
                    self.threads[t].state = State::AwaitsPhase(at);
                    return Ok(false);
                }
                self.set(t, *d, 1);
            }
            GroupOp::FenceBarriers => self.shared.beside.fence_barriers(thread),
            GroupOp::FenceMemory => self.shared.fence(thread),
            GroupOp::Copy { to, from, bytes, barrier } => {
                let (bytes, from) = (self.value(t, *bytes) as u32 as usize, self.address(t, *from));
                if bytes == 0 || !bytes.is_multiple_of(CHUNK) {
                    return Err(format!("a bulk copy of {bytes} bytes, no multiple of {CHUNK}"));
                }
                let mut data = Vec::with_capacity(bytes.min(1 << 20));
                for chunk in (0..bytes).step_by(CHUNK) {
                    data.extend_from_slice(memory.load(from + chunk as u64, CHUNK)?);
                }
                let (to, barrier) = (self.shared_address(t, *to), self.shared_address(t, *barrier));
                self.shared.begin_bulk(to, data, barrier, thread)?;
            }
            GroupOp::CopyTensor { to, map, indices, barrier } => {
                let map = TensorMap::load(memory, self.address(t, *map))?;
                let indices: Vec<i32> = indices.iter().map(|&i| self.value(t, i) as i32).collect();
                let (to, barrier) = (self.shared_address(t, *to), self.shared_address(t, *barrier));
                let data = map.copied(memory, &indices, to)?;
                self.shared.begin_bulk(to, data, barrier, thread)?;
            }
            GroupOp::CopyWindows { to, map, indices, offsets, barrier } => {
                let map = TensorMap::load(memory, self.address(t, *map))?;
                let indices: Vec<i32> = indices.iter().map(|&i| self.value(t, i) as i32).collect();
                let offsets: Vec<u32> = offsets.iter().map(|&i| self.value(t, i) as u16 as u32).collect();
                let (to, barrier) = (self.shared_address(t, *to), self.shared_address(t, *barrier));
                let data = map.copied_windows(memory, (&indices, &offsets), to)?;
                self.shared.begin_bulk(to, data, barrier, thread)?;
            }
            GroupOp::PrefetchMap { map } => drop(TensorMap::load(memory, self.address(t, *map))?),
            GroupOp::Prefetch { at } => drop(memory.load(self.address(t, *at), 1)?),
            GroupOp::Tensor(op) => self.tensor_op(t, op)?,
            GroupOp::FenceSums
            | GroupOp::Multiply(_)
            | GroupOp::Commit
            | GroupOp::WaitGroups(_)
            | GroupOp::SetRegisters => {
                return Err("an instruction of a warp in one thread".to_owned());
            }
        }
        Ok(true)
    }

    /// Does what the lanes of a warp do together; so many threads went on.
    pub(super) fn group_of_warp(&mut self, first: usize, op: &GroupOp) -> Result<usize> {
        let warp = first / WARP;
        match op {
            GroupOp::FenceSums => {
                (first..first + WARP)
                    .for_each(|t| self.threads[t].touched.iter_mut().for_each(|x| *x = false));
            }
            GroupOp::Commit => self.shared.beside.commit(warp),
            GroupOp::WaitGroups(but) => self.shared.beside.wait(*but, warp),
            GroupOp::Multiply(m) => return self.multiply(first, m),
            GroupOp::Tensor(op) => self.tensor_of_warp(first, op)?,
            GroupOp::SetRegisters => return Ok(if self.group_is_here(first) { GROUP } else { 0 }),
            _ => return Err("an instruction of one thread in a warp".to_owned()),
        }
        Ok(WARP)
    }

    /// Whether all warps of the group that begins with this thread are at the same instruction.
    fn group_is_here(&self, first: usize) -> bool {
        let all = first..first + GROUP;
        let pc = self.threads[first].pc;
        let here = |t: &super::Thread| t.state == State::AwaitsWarp && t.pc == pc;
        let whole = first.is_multiple_of(GROUP) && all.end <= self.threads.len();
        whole && self.threads[all].iter().all(here)
    }

    /// `wgmma.mma_async`, once all warps of the group are there.
    fn multiply(&mut self, first: usize, m: &Multiply) -> Result<usize> {
        let all = first..first + GROUP;
        if !self.group_is_here(first) {
            return Ok(0);
        }
        let same = |o: Operand| all.clone().all(|t| self.value(t, o) == self.value(first, o));
        let same_left = if let Left::Memory(a) = m.a { same(a) } else { true };
        if !(same_left && same(m.b) && same(m.add)) {
            return Err("the threads of a warp group multiply different matrices".to_owned());
        }
        let b = Matrix::of(self.value(first, m.b))?;
        let add = self.value(first, m.add) != 0;
        let cols = m.d.len() * 2;
        for w in 0..GROUP / WARP {
            let lane0 = first + w * WARP;
            let group = self.shared.beside.multiply(lane0 / WARP);
            let rows = match &m.a {
                Left::Memory(a) => {
                    self.operand(Matrix::of(self.value(first, *a))?, 16 * w as u64, 16, lane0)?
                }
                Left::Registers(a) => self.left_of_registers(a, lane0, group)?,
            };
            let others = match m.columns {
                true => self.columns(b, cols as u64, lane0)?,
                false => self.operand(b, 0, cols as u64, lane0)?,
            };
            for lane in 0..WARP {
                let t = lane0 + lane;
                if m.d.iter().any(|&d| self.threads[t].touched[d]) {
                    return Err("sums that were set with no wgmma.fence before the multiplication".to_owned());
                }
                for (i, &d) in m.d.iter().enumerate() {
                    let before = if add { f32::from_bits(self.threads[t].registers[d] as u32) } else { 0.0 };
                    let sum = warp::group_sum(m.half, lane, i, &rows, &others, before);
                    self.threads[t].registers[d] = u64::from(sum.to_bits());
                    self.threads[t].busy[d] = group;
                }
            }
        }
        Ok(GROUP)
    }

    /// The 16 rows of a warp, each 16 elements, from its lanes' registers, which hold them from here on.
    fn left_of_registers(&mut self, a: &[usize], lane0: usize, group: u32) -> Result<Vec<[u16; 16]>> {
        let mut given = Vec::with_capacity(WARP);
        for thread in &mut self.threads[lane0..lane0 + WARP] {
            if a.iter().any(|&a| thread.touched[a]) {
                return Err(
                    "a left operand that was set with no wgmma.fence before the multiplication".to_owned()
                );
            }
            a.iter().for_each(|&a| thread.held[a] = group);
            given.push(a.iter().map(|&a| thread.registers[a] as u32).collect());
        }
        Ok((0..16).map(|row| warp::left_row(&given, row)).collect())
    }

    /// So many rows of a matrix, each 16 elements, as a warp reads them.
    fn operand(&mut self, m: Matrix, first: u64, rows: u64, lane0: usize) -> Result<Vec<[u16; 16]>> {
        let mut all = Vec::with_capacity(rows as usize);
        for row in first..first + rows {
            let mut elements = [0u16; 16];
            for (half, to) in elements.chunks_mut(8).enumerate() {
                let chunk =
                    self.shared.multiplied(m.chunk(row, 8 * half as u64), lane0 as u32, WARP as u32)?;
                to.iter_mut().zip(chunk.chunks(2)).for_each(|(x, b)| *x = u16::from_le_bytes([b[0], b[1]]));
            }
            all.push(elements);
        }
        Ok(all)
    }

    /// So many columns of a matrix whose neighbours are along them, each 16 elements.
    fn columns(&mut self, m: Matrix, cols: u64, lane0: usize) -> Result<Vec<[u16; 16]>> {
        let mut all = vec![[0u16; 16]; cols as usize];
        for depth in 0..16 {
            for col in (0..cols).step_by(8) {
                let at = m.columns(depth, col)?;
                let chunk = self.shared.multiplied(at, lane0 as u32, WARP as u32)?;
                let to = &mut all[col as usize..(col as usize + 8).min(cols as usize)];
                to.iter_mut()
                    .zip(chunk.chunks(2))
                    .for_each(|(x, b)| x[depth as usize] = u16::from_le_bytes([b[0], b[1]]));
            }
        }
        Ok(all)
    }

    /// Whether an instruction leaves the sums of multiplications that are under way alone.
    pub(super) fn leaves_sums(&self, t: usize, instr: &Instr) -> Result {
        if !self.shared.beside.multiplies(t / WARP) {
            return Ok(());
        }
        let done = self.shared.beside.done(t / WARP);
        if instr.op.written().iter().any(|&r| self.threads[t].held[r] > done) {
            return Err("a left operand is written while its multiplication is under way".to_owned());
        }
        if let Op::Move { d, a } = instr.op {
            // The assembler has one register for both, if what is written is no other sum that is under way.
            let (busy, registers) = (&self.threads[t].busy, &self.threads[t].registers);
            let same = busy[d] <= done || (busy[d], registers[d]) == (busy[a], registers[a]);
            return if same {
                Ok(())
            } else {
                Err("a sum is written while its multiplication is under way".to_owned())
            };
        }
        let mut registers = instr.op.registers();
        registers.extend(instr.guard.map(|g| g.0));
        match registers.iter().any(|&r| self.threads[t].busy[r] > done) {
            true => Err("a sum is used while its multiplication is under way".to_owned()),
            false => Ok(()),
        }
    }

    /// Lets copies arrive that threads wait for; whether there are any.
    pub(super) fn deliver(&mut self) -> Result<bool> {
        let awaited = |s: State| if let State::AwaitsPhase(at) = s { Some(at) } else { None };
        let mut barriers: Vec<usize> = self.threads.iter().filter_map(|t| awaited(t.state)).collect();
        barriers.sort_unstable();
        barriers.dedup();
        let mut any = false;
        for at in barriers {
            any |= self.shared.deliver(at)?;
        }
        Ok(any)
    }

    /// Why no thread can go on.
    pub(super) fn stuck(&self) -> String {
        let line = |t: &super::Thread| self.module.code.get(t.pc).map_or(0, |i| i.line);
        for (n, t) in self.threads.iter().enumerate() {
            if let State::AwaitsPhase(at) = t.state {
                let misses = self.shared.beside.misses(at);
                return format!("line {}, thread {n}: a deadlock: {misses}", line(t));
            }
        }
        match self.threads.iter().find(|t| t.state == State::AwaitsWarp) {
            Some(t) => format!("line {}: not all lanes of the warp group are here", line(t)),
            None => "a barrier that not all threads reach".to_owned(),
        }
    }

    /// Whether all is done when the threads are.
    pub(super) fn ended(&self) -> Result {
        self.tensor.ended()?;
        match self.shared.beside.under_way() {
            Some(what) => Err(format!("{what} is under way at the end")),
            None => Ok(()),
        }
    }
}

impl Op {
    /// Registers that an instruction reads or writes, but for the sums of a warp group.
    pub(super) fn registers(&self) -> Vec<usize> {
        let mut all = Vec::new();
        let mut operands = |operands: &[Operand]| {
            all.extend(operands.iter().filter_map(|o| if let Operand::Reg(r) = o { Some(*r) } else { None }));
        };
        match self {
            Op::Value { a, .. } => operands(a),
            Op::Move { a, .. } => operands(&[Operand::Reg(*a)]),
            Op::Pack { a, .. } => operands(a),
            Op::Unpack { a, .. } => operands(&[*a]),
            Op::Shuffle { a, lane, among, .. } => operands(&[*a, *lane, among[0], among[1]]),
            Op::Load { at, .. } | Op::LoadMatrices { at, .. } => operands(&[at.base]),
            Op::Store { a, at, .. } => {
                operands(a);
                operands(&[at.base]);
            }
            Op::Copy { to, from, read, .. } => {
                operands(&[to.base, from.base]);
                operands(read.as_slice());
            }
            Op::Mma { a, b, c, .. } => [a, b, c].into_iter().for_each(|o| operands(o)),
            Op::Group(op) => op.registers(&mut all),
            Op::Parameter { .. } | Op::Branch(_) | Op::Return | Op::Barrier | Op::Commit | Op::Wait(_) => {}
        }
        all.extend(self.written());
        all
    }

    /// Registers that an instruction writes, but for the sums of a warp group.
    fn written(&self) -> Vec<usize> {
        match self {
            Op::Value { d, .. }
            | Op::Move { d, .. }
            | Op::Pack { d, .. }
            | Op::Shuffle { d, .. }
            | Op::Parameter { d, .. }
            | Op::Group(GroupOp::Wait { d, .. }) => vec![*d],
            Op::Unpack { d, .. } => d.to_vec(),
            Op::Group(GroupOp::Tensor(TensorOp::Load { d, .. })) => d.clone(),
            Op::Load { d, .. } | Op::LoadMatrices { d, .. } | Op::Mma { d, .. } => d.clone(),
            _ => Vec::new(),
        }
    }
}
