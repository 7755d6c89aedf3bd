//! What NVIDIA's assembler is told where it compiles a program of sm_80 for Blackwell: how many workgroups are to fit on a multiprocessor, and how far loops are
//! unrolled.
//!
//! Left alone, it stops there at fewer registers than a lane may have, so that more workgroups fit, and leaves values in local memory, even where workgroup
//! memory, of which it does not know what a launch gives, has no room for them. What is said here is measured on the committed table of
//! machine code, in which no program spills. Older architectures get the same machine code as without.

use crate::atom::Arch;
use crate::beside::Span;
use crate::ir::{Copy, Program, Role, Stmt};

use super::numbers::words;

/// Registers of a lane beside its fragments and what it copies: addresses, sizes, counters.
const BESIDE: u64 = 22;
/// Registers of an address.
const ADDRESS: u64 = 2;
/// So many chunks of a copy have addresses that are computed from one; of more, the assembler keeps each.
const FEW: u32 = 4;
/// Registers of an element that is copied alone: its value, its address, and whether it is inside.
const ALONE: u64 = ADDRESS + 2;
/// Registers of a multiprocessor.
const REGISTERS: u64 = 1 << 16;
/// Bytes of workgroup memory that a workgroup takes beside its own.
const RESERVED: u64 = 1 << 10;
/// Steps of a loop of known length that are unrolled at most: more have their addresses in registers at once.
const STEPS: u32 = 8;

/// What a multiprocessor has, by the least `__CUDA_ARCH__`.
struct Multiprocessor {
    version: u32,
    memory: u64,
    lanes: u64,
}

/// The least version first: of data centers, and of workstations.
const BLACKWELL: [Multiprocessor; 2] = [
    Multiprocessor { version: 1000, memory: 228 << 10, lanes: 2048 },
    Multiprocessor { version: 1200, memory: 100 << 10, lanes: 1536 },
];

/// The second argument of `__launch_bounds__`, behind a comma: nothing where nothing is said, 0 for an architecture of which nothing is said.
pub(super) fn workgroups(p: &Program) -> String {
    let [data_center, workstation] = BLACKWELL.each_ref().map(|gpu| at_once(p, gpu).unwrap_or(0));
    if p.arch != Arch::Sm80 || (data_center, workstation) == (0, 0) {
        return String::new();
    }
    let [first, second] = BLACKWELL.map(|gpu| gpu.version);
    match (data_center, workstation) {
        (0, n) => format!(", __CUDA_ARCH__ >= {second} ? {n} : 0"),
        (n, other) if n == other => format!(", __CUDA_ARCH__ >= {first} ? {n} : 0"),
        (n, other) => format!(", __CUDA_ARCH__ >= {second} ? {other} : __CUDA_ARCH__ >= {first} ? {n} : 0"),
    }
}

/// How many workgroups are to fit: as many as memory has room for, where registers suffice for them; then the assembler may use what is left. Where they do not,
/// it knows best, but for elements that wait in registers for their turn, which it does not foresee: with those, as many as registers suffice for.
fn at_once(p: &Program, gpu: &Multiprocessor) -> Option<u64> {
    let lanes = u64::from(p.workgroup());
    let waiting = waiting(p, &p.body)?;
    let by_registers = REGISTERS / (lanes * (BESIDE + held(p) + waiting));
    let by_memory = (gpu.memory / (p.shared_bytes() + RESERVED)).min(gpu.lanes / lanes);
    if by_memory <= by_registers { Some(by_memory) } else { (waiting > 0).then_some(by_registers.max(1)) }
}

/// Registers of a lane's fragments.
fn held(p: &Program) -> u64 {
    let Some(atom) = p.atom() else { return 0 };
    let of = |role, rows: u32, cols: u32| match role {
        Role::Sum => rows * cols / (atom.m * atom.n) * atom.sum.elements(),
        Role::Rows => rows / atom.m * atom.sum.rows(),
        _ => rows * cols / (atom.block * atom.depth) * atom.block_registers(),
    };
    p.fragments.iter().map(|f| u64::from(of(f.role, f.rows, f.cols))).sum()
}

/// Registers of copies that wait while others are multiplied; `None` where elements are copied one by one from places that windows or lists say, whose addresses
/// are computed again: there the assembler's own choice spills nothing.
fn waiting(p: &Program, stmts: &[Stmt]) -> Option<u64> {
    let of = |s: &Stmt| match s {
        Stmt::Fetch(_, copy) => of_copy(p, copy),
        Stmt::For { body, .. } => waiting(p, body),
        _ => Some(0),
    };
    stmts.iter().map(of).sum()
}

fn of_copy(p: &Program, copy: &Copy) -> Option<u64> {
    let tile = p.tile(copy.to);
    let (chunk, rounds) = (tile.chunk(), (tile.rows * tile.chunks()).div_ceil(p.workgroup()));
    let address = if rounds > FEW { ADDRESS } else { 0 };
    let of = |span, view| address + u64::from(words(span, chunk, p.view_dtype(view)));
    let own = match p.view(copy.from).vector {
        1 if p.views.iter().any(|v| v.window.is_some() || v.lookup.is_some()) => return None,
        1 => ALONE * u64::from(chunk),
        _ => of(Span::One, copy.from),
    };
    Some(u64::from(rounds) * (own + copy.with.iter().map(|b| of(b.span, b.view)).sum::<u64>()))
}

/// The directive before a loop of so many steps, a number that is known.
pub(super) fn unrolled(p: &Program, steps: u32) -> String {
    match p.arch == Arch::Sm80 && steps > STEPS {
        true => format!("#pragma unroll (__CUDA_ARCH__ >= {} ? {STEPS} : {steps})", BLACKWELL[0].version),
        false => "#pragma unroll".to_owned(),
    }
}
