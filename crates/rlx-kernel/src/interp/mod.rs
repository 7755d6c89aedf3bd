//! The interpreter: runs kernels on the CPU, checking what a device would not.
//!
//! The invocations of a workgroup run in step: each statement is done for all of them under a mask before the
//! next, so a barrier is where all of them are. Checked on the way: every access to a buffer is within its
//! binding, every barrier is reached by the whole workgroup and every exchange by the whole subgroup, no invocation reads workgroup memory that was
//! never written or that another one writes between the same two barriers, no two invocations of a dispatch
//! write one element, no division by zero. A kernel that passes here may still be wrong on a device, but not
//! for one of these reasons.
//!
//! How well a kernel uses a GPU's memory can be counted on the way: see [`count`](mod@count).

pub mod count;
mod exec;
mod memory;

pub use count::{Counters, Sample};
pub use exec::{Counted, Executable, Recorded, StepRun};
pub use memory::{Binding, Pools};

use rlx_ir::{Error, ErrorKind, Result};

use crate::eval;
use crate::ir::{BinOp, Buffer, Inst, Kernel, Shared, Stmt, Ty, Value};
use count::Counting;
use memory::{SharedCells, Users};

/// What a [`Stmt::Fail`] reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Which fault of the kernel: the axis.
    pub code: u32,
    /// The offending value.
    pub value: i32,
}

/// Runs `groups` workgroups of `kernel` on `pools` through `bindings`; gives the first fault reported.
///
/// # Errors
/// [`ErrorKind::Internal`] naming the kernel and the check that failed.
pub fn dispatch(
    kernel: &Kernel,
    groups: i64,
    uniforms: &[i32],
    bindings: &[Binding],
    pools: &mut Pools,
) -> Result<Option<Fault>> {
    let mut machine = Machine::new(kernel, uniforms, bindings, pools)?;
    machine.run(0..groups)?;
    Ok(machine.fault)
}

/// As [`dispatch`], of some workgroups by their numbers.
fn run(
    kernel: &Kernel,
    groups: &[i64],
    uniforms: &[i32],
    bindings: &[Binding],
    pools: &mut Pools,
) -> Result<Option<Fault>> {
    let mut machine = Machine::new(kernel, uniforms, bindings, pools)?;
    machine.run(groups.iter().copied())?;
    Ok(machine.fault)
}

/// Runs the workgroups of `sample` as [`dispatch`] does; gives what all of them ask of a GPU's memory.
///
/// # Errors
/// As [`dispatch`].
pub fn count(
    kernel: &Kernel,
    groups: i64,
    uniforms: &[i32],
    bindings: &[Binding],
    pools: &mut Pools,
    sample: Sample,
) -> Result<Counters> {
    let mut machine = Machine::new(kernel, uniforms, bindings, pools)?;
    machine.counting = Some(Counting::new(kernel));
    machine.run(sample.of(groups))?;
    Ok(machine.counting.map(|counting| counting.total(groups)).unwrap_or_default())
}

struct Machine<'a> {
    kernel: &'a Kernel,
    lanes: usize,
    group: i64,
    uniforms: &'a [i32],
    bindings: &'a [Binding],
    pools: &'a mut Pools,
    /// Bits of value `v` in lane `l`: `values[v * lanes + l]`.
    values: Vec<u64>,
    vars: Vec<u64>,
    shared: SharedCells,
    users: Vec<Users>,
    fault: Option<Fault>,
    /// Where somebody counts.
    counting: Option<Counting>,
}

/// An error of this kernel.
fn wrong(kernel: &Kernel, what: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("kernel {:?}: {what}", kernel.name))
}

/// What a statement may report: a message, which the caller puts into an [`Error`].
type Step = std::result::Result<(), String>;

impl<'a> Machine<'a> {
    /// # Errors
    /// Bindings that are not the kernel's.
    fn new(
        kernel: &'a Kernel,
        uniforms: &'a [i32],
        bindings: &'a [Binding],
        pools: &'a mut Pools,
    ) -> Result<Self> {
        if uniforms.len() != kernel.uniforms.len() || bindings.len() != kernel.buffers.len() {
            return Err(wrong(kernel, "wrong number of uniforms or bindings"));
        }
        for (b, decl) in bindings.iter().zip(&kernel.buffers) {
            pools.check(b).map_err(|e| wrong(kernel, &format!("buffer {}: {e}", decl.name)))?;
        }
        let lanes = kernel.workgroup as usize;
        Ok(Machine {
            kernel,
            lanes,
            group: 0,
            uniforms,
            bindings,
            pools,
            values: vec![0; kernel.values.len() * lanes],
            vars: vec![0; kernel.vars.len() * lanes],
            shared: SharedCells::new(&kernel.shared),
            users: kernel.buffers.iter().zip(bindings).map(|(d, b)| Users::new(d, b)).collect(),
            fault: None,
            counting: None,
        })
    }

    fn run(&mut self, groups: impl IntoIterator<Item = i64>) -> Result<()> {
        let (kernel, all) = (self.kernel, vec![true; self.lanes]);
        for group in groups {
            self.group = group;
            self.shared.reset();
            self.counting.iter_mut().for_each(Counting::begin);
            self.block(&kernel.body, &all).map_err(|e| wrong(kernel, &format!("workgroup {group}: {e}")))?;
            self.counting.iter_mut().for_each(Counting::end);
        }
        Ok(())
    }

    /// Counts an access to so many neighbouring elements of a buffer, each `bits` long.
    fn count_buffer(&mut self, buffer: Buffer, (bits, count): (usize, usize), index: Value, mask: &[bool]) {
        let Some(mut counting) = self.counting.take() else { return };
        let (bits, skew) = (bits as u64, self.bindings[buffer.index()].offset as u64 * 8);
        let at = |l: usize| {
            let index = u64::try_from(self.int_at(index, l)).unwrap_or(0);
            mask[l].then_some((skew + index * bits, bits * count as u64))
        };
        counting.buffer(&(0..mask.len()).map(at).collect::<Vec<_>>());
        self.counting = Some(counting);
    }

    /// Counts an access to workgroup memory.
    fn count_shared(&mut self, shared: Shared, index: Value, mask: &[bool]) {
        let Some(mut counting) = self.counting.take() else { return };
        let at = |l: usize| mask[l].then_some(u64::try_from(self.int_at(index, l)).unwrap_or(0));
        counting.shared(shared, &(0..mask.len()).map(at).collect::<Vec<_>>());
        self.counting = Some(counting);
    }

    fn at(&self, v: Value, lane: usize) -> u64 {
        self.values[v.index() * self.lanes + lane]
    }

    fn int_at(&self, v: Value, lane: usize) -> i32 {
        self.at(v, lane) as u32 as i32
    }

    fn ty(&self, v: Value) -> Ty {
        self.kernel.values[v.index()]
    }

    /// The invocation's number within the dispatch, for the race checks.
    fn invocation(&self, lane: usize) -> u32 {
        (self.group as u32).wrapping_mul(self.lanes as u32).wrapping_add(lane as u32)
    }

    fn block(&mut self, stmts: &[Stmt], mask: &[bool]) -> Step {
        stmts.iter().try_for_each(|s| self.stmt(s, mask))
    }

    fn stmt(&mut self, s: &Stmt, mask: &[bool]) -> Step {
        let lanes = move || (0..mask.len()).filter(move |&l| mask[l]);
        match s {
            Stmt::Let(v, inst) => return self.compute(*v, inst, mask),
            Stmt::LoadWide { values, buffer, index } => return self.load_wide(values, *buffer, *index, mask),
            Stmt::Set(var, v) => {
                for l in lanes() {
                    self.vars[var.index() * self.lanes + l] = self.at(*v, l);
                }
            }
            Stmt::Store { buffer, index, value } => {
                let dtype = self.kernel.buffers[buffer.index()].dtype;
                for l in lanes() {
                    let (i, bits, who) = (self.int_at(*index, l), self.at(*value, l), self.invocation(l));
                    let element = self.bindings[buffer.index()].element(i, dtype)?;
                    self.users[buffer.index()].write(element, who)?;
                    self.pools.store(&self.bindings[buffer.index()], element, dtype, bits);
                }
                self.count_buffer(*buffer, (dtype.bits(), 1), *index, mask);
            }
            Stmt::StoreWide { buffer, index, values } => {
                return self.store_wide(*buffer, *index, values, mask);
            }
            Stmt::StoreShared { shared, index, value } => {
                for l in lanes() {
                    self.shared.store(*shared, self.int_at(*index, l), self.at(*value, l), l)?;
                }
                self.count_shared(*shared, *index, mask);
            }
            Stmt::MergeBits { buffer, index, mask: bit_mask, bits } => {
                for l in lanes() {
                    let binding = &self.bindings[buffer.index()];
                    let (keep, put) = (!(self.at(*bit_mask, l) as u32), self.at(*bits, l) as u32);
                    if keep & put != 0 {
                        return Err("merged bits outside of their mask".to_string());
                    }
                    let element = binding.element(self.int_at(*index, l), rlx_ir::DType::U32)?;
                    let old = self.pools.load(binding, element, rlx_ir::DType::U32) as u32;
                    self.pools.store(binding, element, rlx_ir::DType::U32, u64::from(old & keep | put));
                }
                self.count_buffer(*buffer, (32, 1), *index, mask);
                if let Some(counting) = &mut self.counting {
                    counting.counters.atomics += 2 * mask.iter().filter(|&&active| active).count() as u64;
                }
            }
            Stmt::If { cond, then, otherwise } => {
                let holds: Vec<bool> = (0..self.lanes).map(|l| mask[l] && self.at(*cond, l) != 0).collect();
                if holds.contains(&true) {
                    self.block(then, &holds)?;
                }
                let fails: Vec<bool> = (0..self.lanes).map(|l| mask[l] && !holds[l]).collect();
                if fails.contains(&true) {
                    self.block(otherwise, &fails)?;
                }
            }
            Stmt::For { counter, from, to, step, body } => {
                return self.repeat((*counter, *from, *to, *step), body, mask);
            }
            Stmt::Barrier => {
                if mask.contains(&false) {
                    return Err("a barrier that not every invocation reaches".to_string());
                }
                self.shared.barrier();
                self.counting.iter_mut().for_each(|counting| counting.counters.barriers += 1);
            }
            Stmt::Fail { code, value } => {
                if let Some(l) = lanes().next() {
                    let value = self.int_at(*value, l);
                    self.fault.get_or_insert(Fault { code: *code, value });
                }
            }
        }
        Ok(())
    }

    fn load_wide(&mut self, values: &[Value], buffer: Buffer, index: Value, mask: &[bool]) -> Step {
        let (dtype, count) = (self.kernel.buffers[buffer.index()].dtype, values.len());
        for l in (0..mask.len()).filter(|&l| mask[l]) {
            let (first, who) = (self.first_of(buffer, index, (count, l))?, self.invocation(l));
            for (element, v) in (first..).zip(values) {
                self.users[buffer.index()].read(element, who)?;
                let binding = &self.bindings[buffer.index()];
                self.values[v.index() * self.lanes + l] = self.pools.load(binding, element, dtype);
            }
        }
        self.count_buffer(buffer, (dtype.bits(), count), index, mask);
        Ok(())
    }

    fn store_wide(&mut self, buffer: Buffer, index: Value, values: &[Value], mask: &[bool]) -> Step {
        let (dtype, count) = (self.kernel.buffers[buffer.index()].dtype, values.len());
        for l in (0..mask.len()).filter(|&l| mask[l]) {
            let (first, who) = (self.first_of(buffer, index, (count, l))?, self.invocation(l));
            for (element, &v) in (first..).zip(values) {
                self.users[buffer.index()].write(element, who)?;
                let bits = self.at(v, l);
                self.pools.store(&self.bindings[buffer.index()], element, dtype, bits);
            }
        }
        self.count_buffer(buffer, (dtype.bits(), count), index, mask);
        Ok(())
    }

    /// The first of `count` elements that a lane accesses together: all of them are there, and its number is a multiple of how many they are.
    fn first_of(&self, buffer: Buffer, index: Value, (count, lane): (usize, usize)) -> Result<usize, String> {
        let (dtype, index) = (self.kernel.buffers[buffer.index()].dtype, self.int_at(index, lane));
        let binding = &self.bindings[buffer.index()];
        binding.element(index.saturating_add(count as i32 - 1), dtype)?;
        let first = binding.element(index, dtype)?;
        if first % count != 0 {
            return Err(format!("{count} elements are accessed together from number {index} on"));
        }
        Ok(first)
    }

    fn repeat(
        &mut self,
        (counter, from, to, step): (Value, Value, Value, i32),
        body: &[Stmt],
        mask: &[bool],
    ) -> Step {
        let mut at: Vec<i64> = (0..self.lanes).map(|l| i64::from(self.int_at(from, l))).collect();
        let end: Vec<i64> = (0..self.lanes).map(|l| i64::from(self.int_at(to, l))).collect();
        loop {
            let active: Vec<bool> = (0..self.lanes).map(|l| mask[l] && at[l] < end[l]).collect();
            if !active.contains(&true) {
                return Ok(());
            }
            for (l, _) in active.iter().enumerate().filter(|&(_, &a)| a) {
                self.values[counter.index() * self.lanes + l] = u64::from(at[l] as u32);
            }
            self.counting.iter_mut().for_each(|counting| counting.iterate(&active));
            self.block(body, &active)?;
            at.iter_mut().for_each(|a| *a += i64::from(step));
        }
    }

    fn compute(&mut self, v: Value, inst: &Inst, mask: &[bool]) -> Step {
        let base = v.index() * self.lanes;
        let lanes = move || (0..mask.len()).filter(move |&l| mask[l]);
        match *inst {
            Inst::Const(c) => self.values[base..base + mask.len()].fill(c.bits),
            Inst::Uniform(i) => {
                let bits = u64::from(self.uniforms[i as usize] as u32);
                self.values[base..base + mask.len()].fill(bits);
            }
            Inst::LocalId => lanes().for_each(|l| self.values[base + l] = l as u64),
            Inst::GroupId => {
                let bits = u64::from(self.group as u32);
                self.values[base..base + mask.len()].fill(bits);
            }
            Inst::Get(var) => {
                lanes().for_each(|l| self.values[base + l] = self.vars[var.index() * self.lanes + l])
            }
            Inst::Unary(op, x) => {
                let ty = self.ty(x);
                lanes().for_each(|l| self.values[base + l] = eval::unary(op, ty, self.at(x, l)));
            }
            Inst::Binary(op, x, y) => {
                let ty = self.ty(x);
                if let Some(counting) = self.counting.as_mut()
                    && matches!(op, BinOp::Div | BinOp::Rem)
                    && ty.is_int()
                {
                    counting.divide(y, mask);
                }
                for l in lanes() {
                    let (p, q) = (self.at(x, l), self.at(y, l));
                    let undefined =
                        || format!("{op:?} of {} and {} has no value", eval::int(ty, p), eval::int(ty, q));
                    self.values[base + l] = eval::binary(op, ty, p, q).ok_or_else(undefined)?;
                }
            }
            Inst::Compare(op, x, y) => {
                let ty = self.ty(x);
                lanes().for_each(|l| {
                    self.values[base + l] = u64::from(eval::compare(op, ty, self.at(x, l), self.at(y, l)));
                });
            }
            Inst::Select(c, x, y) => lanes().for_each(|l| {
                self.values[base + l] = self.at(if self.at(c, l) != 0 { x } else { y }, l);
            }),
            Inst::Convert(to, x) => {
                let from = self.ty(x);
                lanes().for_each(|l| self.values[base + l] = eval::convert(to, from, self.at(x, l)));
            }
            Inst::Bitcast(_, x) => lanes().for_each(|l| self.values[base + l] = self.at(x, l)),
            Inst::Load(buffer, i) => {
                let dtype = self.kernel.buffers[buffer.index()].dtype;
                for l in lanes() {
                    let element = self.bindings[buffer.index()].element(self.int_at(i, l), dtype)?;
                    let who = self.invocation(l);
                    self.users[buffer.index()].read(element, who)?;
                    self.values[base + l] = self.pools.load(&self.bindings[buffer.index()], element, dtype);
                }
                self.count_buffer(buffer, (dtype.bits(), 1), i, mask);
            }
            Inst::LoadShared(s, i) => {
                for l in lanes() {
                    self.values[base + l] = self.shared.load(s, self.int_at(i, l), l)?;
                }
                self.count_shared(s, i, mask);
            }
            Inst::Fma(x, y, z) => {
                let ty = self.ty(x);
                lanes().for_each(|l| {
                    self.values[base + l] = eval::fma(ty, [x, y, z].map(|v| self.at(v, l)));
                });
            }
            Inst::ShuffleXor(x, bits) => {
                let subgroup = self.kernel.subgroup.unwrap_or(1) as usize;
                if mask.chunks(subgroup).any(|lanes| lanes.contains(&true) && lanes.contains(&false)) {
                    return Err("an exchange that not every invocation of a subgroup reaches".to_string());
                }
                for l in lanes() {
                    let other = l ^ bits as usize;
                    if other / subgroup != l / subgroup || other >= mask.len() {
                        return Err(format!("invocation {l} exchanges with {other}, of another subgroup"));
                    }
                    self.values[base + l] = self.at(x, other);
                }
                self.counting.iter_mut().for_each(|counting| counting.exchange(mask));
            }
        }
        Ok(())
    }
}
