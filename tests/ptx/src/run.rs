//! Runs kernels: workgroups one after the other, threads until each waits.

mod groups;
mod tensor;

use crate::memory::Memory;
use crate::parse::{Address, Instr, Module, Op, Operand, Special};
use crate::shared::Shared;
use crate::tensor_memory::TensorMemory;
use crate::{Result, warp};

/// What a kernel is launched with.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Workgroups in each direction.
    pub grid: [u32; 3],
    /// Threads of a workgroup.
    pub threads: u32,
    /// Values of the parameters; of one that is given by value, the address of its bytes.
    pub parameters: Vec<u64>,
    /// Bytes of workgroup memory beside those that the kernel declares.
    pub shared: usize,
}

/// More instructions than a test's kernel has in one thread: a loop without end is an error.
const MOST_STEPS: u64 = 1 << 32;

/// Runs a kernel.
///
/// # Errors
/// What a device would not do, or would do another time otherwise; with the line of the text and the thread.
pub fn run(module: &Module, launch: &Launch, memory: &mut Memory) -> Result {
    if launch.parameters.len() != module.parameters.len() {
        let (given, wanted) = (launch.parameters.len(), module.parameters.len());
        return Err(format!("{given} parameters for a kernel of {wanted}"));
    }
    let [x, y, z] = launch.grid;
    for group in 0..x * y * z {
        let at = [group % x, group / x % y, group / (x * y)];
        let mut running = Group {
            module,
            launch,
            at,
            shared: Shared::new(module.shared_bytes + launch.shared, launch.threads),
            threads: (0..launch.threads).map(|_| Thread::new(module)).collect(),
            tensor: TensorMemory::new(launch.threads),
        };
        running.run(memory).map_err(|e| format!("workgroup {at:?}: {e}"))?;
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    /// At an instruction of the whole warp.
    AwaitsWarp,
    AtBarrier,
    /// At a wait for the barrier in memory at this address.
    AwaitsPhase(usize),
    Done,
}

struct Thread {
    registers: Vec<u64>,
    /// The next instruction.
    pc: usize,
    steps: u64,
    state: State,
    /// Registers that were set since the last `wgmma.fence`, but for those of multiplications.
    touched: Vec<bool>,
    /// The last multiplications that change each register.
    busy: Vec<u32>,
    /// The last ones that read each as a left operand.
    held: Vec<u32>,
    /// Registers that loads from tensor memory set which nobody waited for.
    loading: Vec<usize>,
}

impl Thread {
    fn new(module: &Module) -> Self {
        let n = module.registers;
        let (registers, touched, busy, held) = (vec![0; n], vec![false; n], vec![0; n], vec![0; n]);
        let loading = Vec::new();
        Thread { registers, pc: 0, steps: 0, state: State::Runs, touched, busy, held, loading }
    }
}

/// One workgroup under way.
struct Group<'a> {
    module: &'a Module,
    launch: &'a Launch,
    at: [u32; 3],
    shared: Shared,
    threads: Vec<Thread>,
    tensor: TensorMemory,
}

impl Group<'_> {
    fn run(&mut self, memory: &mut Memory) -> Result {
        loop {
            let mut moved = false;
            for t in 0..self.threads.len() {
                moved |= self.thread(t, memory)?;
            }
            for first in (0..self.threads.len()).step_by(warp::WARP) {
                moved |= self.warp(first)?;
            }
            if moved {
                continue;
            }
            if self.threads.iter().all(|t| t.state == State::Done) {
                return self.ended();
            }
            if !self.threads.iter().all(|t| t.state == State::AtBarrier) {
                if self.deliver()? {
                    continue;
                }
                return Err(self.stuck());
            }
            self.shared.barrier();
            self.threads.iter_mut().for_each(|t| t.state = State::Runs);
        }
    }

    /// Runs a thread until it waits; whether it did anything.
    fn thread(&mut self, t: usize, memory: &mut Memory) -> Result<bool> {
        if matches!(self.threads[t].state, State::AwaitsPhase(_)) {
            self.threads[t].state = State::Runs;
        }
        let mut moved = false;
        while self.threads[t].state == State::Runs {
            let module = self.module;
            let Some(instr) = module.code.get(self.threads[t].pc) else {
                return Err(format!("thread {t} runs beyond the end"));
            };
            self.threads[t].steps += 1;
            if self.threads[t].steps > MOST_STEPS {
                return Err(format!("thread {t} does not end"));
            }
            self.step(t, instr, memory).map_err(|e| format!("line {}, thread {t}: {e}", instr.line))?;
            moved |= !matches!(self.threads[t].state, State::AwaitsPhase(_));
        }
        Ok(moved)
    }

    fn value(&self, t: usize, operand: Operand) -> u64 {
        match operand {
            Operand::Reg(r) => self.threads[t].registers[r],
            Operand::Bits(bits) => bits,
            Operand::Special(special) => u64::from(match special {
                Special::Thread => t as u32,
                Special::Threads => self.launch.threads,
                Special::Lane => (t % warp::WARP) as u32,
                Special::Group(i) => self.at[i],
                Special::Groups(i) => self.launch.grid[i],
            }),
        }
    }

    fn address(&self, t: usize, at: Address) -> u64 {
        self.value(t, at.base).wrapping_add_signed(at.offset)
    }

    /// An address in workgroup memory has 32 bits, and what is added to it wraps there.
    fn shared_address(&self, t: usize, at: Address) -> u64 {
        u64::from(self.address(t, at) as u32)
    }

    fn set(&mut self, t: usize, d: usize, bits: u64) {
        self.threads[t].registers[d] = bits;
        self.threads[t].touched[d] = true;
    }

    fn step(&mut self, t: usize, instr: &Instr, memory: &mut Memory) -> Result {
        let holds = |(p, not): (usize, bool)| (self.threads[t].registers[p] != 0) != not;
        if !instr.guard.is_none_or(holds) {
            self.threads[t].pc += 1;
            return Ok(());
        }
        self.leaves_sums(t, instr)?;
        self.leaves_loaded(t, instr)?;
        match &instr.op {
            Op::Branch(to) => {
                self.threads[t].pc = *to;
                return Ok(());
            }
            Op::Return => {
                self.threads[t].state = State::Done;
                return Ok(());
            }
            Op::LoadMatrices { .. } | Op::Mma { .. } | Op::Shuffle { .. } => {
                self.threads[t].state = State::AwaitsWarp;
                return Ok(());
            }
            Op::Group(op) if op.of_warp() => {
                self.threads[t].state = State::AwaitsWarp;
                return Ok(());
            }
            Op::Group(op) => {
                if !self.group_op(t, op, memory)? {
                    return Ok(());
                }
            }
            Op::Barrier => self.threads[t].state = State::AtBarrier,
            Op::Value { f, d, a } => {
                let made = f(a.map(|a| self.value(t, a))).ok_or("a result that PTX leaves open")?;
                self.set(t, *d, made);
            }
            Op::Move { d, a } => {
                let (bits, busy) = (self.threads[t].registers[*a], self.threads[t].busy[*a]);
                self.set(t, *d, bits);
                self.threads[t].busy[*d] = busy;
            }
            Op::Pack { d, a } => {
                let [low, high] = a.map(|a| self.value(t, a) & 0xffff);
                self.set(t, *d, low | high << 16);
            }
            Op::Unpack { d, a } => {
                let bits = self.value(t, *a);
                self.set(t, d[0], bits & 0xffff);
                self.set(t, d[1], bits >> 16 & 0xffff);
            }
            Op::Parameter { d, number } => self.set(t, *d, self.launch.parameters[*number]),
            Op::Load { shared, bytes, d, at } => self.load(t, *shared, (*bytes, d), *at, memory)?,
            Op::Store { shared, bytes, a, at } => self.store(t, *shared, (*bytes, a), *at, memory)?,
            Op::Copy { bytes, to, from, read } => {
                let read = read.map_or(*bytes, |r| self.value(t, r) as u32 as usize);
                let mut data = match read {
                    0 => Vec::new(),
                    _ if read > *bytes => return Err(format!("a copy of {bytes} bytes reads {read}")),
                    _ => memory.load(self.address(t, *from), read)?.to_vec(),
                };
                data.resize(*bytes, 0);
                self.shared.begin_copy(self.shared_address(t, *to), data, t as u32)?;
            }
            Op::Commit => self.shared.commit(t as u32),
            Op::Wait(n) => self.shared.wait(*n, t as u32),
        }
        self.threads[t].pc += 1;
        Ok(())
    }

    fn load(
        &mut self,
        t: usize,
        shared: bool,
        (bytes, d): (usize, &[usize]),
        at: Address,
        memory: &Memory,
    ) -> Result {
        let n = bytes * d.len();
        let all = match shared {
            true => self.shared.load(self.shared_address(t, at), n, t as u32)?,
            false => memory.load(self.address(t, at), n)?,
        };
        let values: Vec<u64> = all.chunks(bytes).map(little_endian).collect();
        d.iter().zip(values).for_each(|(&d, value)| self.set(t, d, value));
        Ok(())
    }

    fn store(
        &mut self,
        t: usize,
        shared: bool,
        (bytes, a): (usize, &[Operand]),
        at: Address,
        memory: &mut Memory,
    ) -> Result {
        let data: Vec<u8> =
            a.iter().flat_map(|&a| self.value(t, a).to_le_bytes().into_iter().take(bytes)).collect();
        match shared {
            true => self.shared.store(self.shared_address(t, at), &data, t as u32),
            false => memory.store(self.address(t, at), &data),
        }
    }

    /// Does the instruction of a warp that all its lanes wait for; whether there is one.
    fn warp(&mut self, first: usize) -> Result<bool> {
        let lanes = first..(first + warp::WARP).min(self.threads.len());
        let waits = |t: usize| self.threads[t].state == State::AwaitsWarp;
        let later = |t: usize| matches!(self.threads[t].state, State::AwaitsPhase(_));
        if !lanes.clone().any(waits) || lanes.clone().any(later) {
            return Ok(false);
        }
        let pc = lanes.clone().find(|&t| waits(t)).map_or(0, |t| self.threads[t].pc);
        let instr = &self.module.code[pc];
        let together = lanes.clone().all(|t| waits(t) && self.threads[t].pc == pc);
        if !together || lanes.len() < warp::WARP {
            return Err(format!("line {}: not all lanes of the warp of thread {first} are here", instr.line));
        }
        let mut went_on = lanes.len();
        let done = match &instr.op {
            Op::Group(op) => self.group_of_warp(first, op).map(|n| went_on = n),
            Op::Shuffle { xor, d, a, lane, among } => {
                let part = |t: usize| among.map(|a| self.value(t, a) as u32) != [31, u32::MAX];
                if lanes.clone().any(part) {
                    return Err(format!("line {}: a shuffle among part of a warp", instr.line));
                }
                let of = |t: usize| self.value(t, *a);
                let given: Vec<u64> = lanes.clone().map(of).collect();
                for (own, t) in lanes.clone().enumerate() {
                    let lane = self.value(t, *lane) as usize ^ if *xor { own } else { 0 };
                    self.set(t, *d, given[lane % warp::WARP]);
                }
                Ok(())
            }
            Op::LoadMatrices { trans, d, at } => self.load_matrices(first, *trans, d, *at),
            Op::Mma { half, k, d, a, b, c } => {
                let registers = |operands: &[Operand]| -> Vec<Vec<u32>> {
                    let of = |t: usize| operands.iter().map(|&o| self.value(t, o) as u32).collect();
                    lanes.clone().map(of).collect()
                };
                let (a, b, c) = (registers(a), registers(b), registers(c));
                for (lane, c) in c.iter().enumerate() {
                    let sums = std::array::from_fn(|i| f32::from_bits(c[i]));
                    let sums = warp::mma(*half, *k, lane, &a, &b, sums);
                    for (&d, sum) in d.iter().zip(sums) {
                        self.set(first + lane, d, u64::from(sum.to_bits()));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        };
        done.map_err(|e| format!("line {}, warp of thread {first}: {e}", instr.line))?;
        for thread in &mut self.threads[first..first + went_on] {
            (thread.state, thread.pc) = (State::Runs, pc + 1);
        }
        Ok(went_on > 0)
    }

    /// Lane `8·i + r` has the address of row `r` of matrix `i`.
    fn load_matrices(&mut self, first: usize, trans: bool, d: &[usize], at: Address) -> Result {
        for (i, &d) in d.iter().enumerate() {
            let mut rows = [[0u16; 8]; 8];
            for (r, row) in rows.iter_mut().enumerate() {
                let t = first + 8 * i + r;
                let address = self.shared_address(t, at);
                let bytes = self.shared.load(address, 16, t as u32)?;
                row.iter_mut().zip(bytes.chunks(2)).for_each(|(x, pair)| *x = little_endian(pair) as u16);
            }
            for lane in 0..warp::WARP {
                let register = warp::matrix_register(&rows, lane, trans);
                self.set(first + lane, d, u64::from(register));
            }
        }
        Ok(())
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b))
}
