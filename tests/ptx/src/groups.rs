//! Instructions of sm_90a: barriers in memory, bulk and tensor copies, multiplications of warp groups.

use crate::Result;
use crate::parse::{Address, Half, Operand, Reg};
use crate::tensor::{ROW, swizzled};
use crate::tensor_ops::TensorOp;

/// What such an instruction does.
#[derive(Debug, Clone)]
pub enum GroupOp {
    /// `mbarrier.init`.
    Init { at: Address, arrivals: Operand },
    /// `mbarrier.arrive`, with the bytes of `expect_tx`.
    Arrive { at: Address, bytes: Operand },
    /// `mbarrier.try_wait.parity`, which here waits until the phase has ended.
    Wait { d: Reg, at: Address, parity: Operand },
    /// `fence.mbarrier_init`.
    FenceBarriers,
    /// `fence.proxy.async`.
    FenceMemory,
    /// `cp.async.bulk` from global to workgroup memory.
    Copy { to: Address, from: Address, bytes: Operand, barrier: Address },
    /// `cp.async.bulk.tensor`: the box of a map at these indices.
    CopyTensor { to: Address, map: Address, indices: Vec<Operand>, barrier: Address },
    /// `cp.async.bulk.tensor….im2col`: places of a map of windows from these indices on, each `offsets` away.
    CopyWindows { to: Address, map: Address, indices: Vec<Operand>, offsets: Vec<Operand>, barrier: Address },
    /// `prefetch.tensormap`.
    PrefetchMap { map: Address },
    /// `prefetch.global`, of memory that is there.
    Prefetch { at: Address },
    /// `wgmma.fence`.
    FenceSums,
    /// `wgmma.mma_async`.
    Multiply(Box<Multiply>),
    /// `wgmma.commit_group`.
    Commit,
    /// `wgmma.wait_group`.
    WaitGroups(usize),
    /// `setmaxnreg`.
    SetRegisters,
    /// `tcgen05`.
    Tensor(TensorOp),
}

/// A multiplication of 64 rows over a depth of 16.
#[derive(Debug, Clone)]
pub struct Multiply {
    pub half: Half,
    pub d: Vec<Reg>,
    pub a: Left,
    pub b: Operand,
    /// Neighbours of the right operand are along the columns, not the depth.
    pub columns: bool,
    /// Whether it adds to the sums; if not, it sets them.
    pub add: Operand,
}

/// The left operand of a multiplication.
#[derive(Debug, Clone)]
pub enum Left {
    /// A matrix descriptor.
    Memory(Operand),
    /// The registers of each lane; they may not change until the multiplication is done.
    Registers(Vec<Reg>),
}

impl GroupOp {
    /// Whether the lanes of a warp do it together.
    pub fn of_warp(&self) -> bool {
        use GroupOp::{Commit, FenceSums, Multiply, SetRegisters, WaitGroups};
        match self {
            FenceSums | Multiply(_) | Commit | WaitGroups(_) | SetRegisters => true,
            GroupOp::Tensor(op) => op.of_warp(),
            _ => false,
        }
    }

    /// Registers that it reads or writes, but for sums.
    pub fn registers(&self, all: &mut Vec<Reg>) {
        let mut operands = |operands: &[Operand]| {
            all.extend(operands.iter().filter_map(|o| if let Operand::Reg(r) = o { Some(*r) } else { None }));
        };
        match self {
            GroupOp::Init { at, arrivals: other }
            | GroupOp::Arrive { at, bytes: other }
            | GroupOp::Wait { at, parity: other, .. } => operands(&[at.base, *other]),
            GroupOp::Copy { to, from, bytes, barrier } => {
                operands(&[to.base, from.base, *bytes, barrier.base]);
            }
            GroupOp::CopyTensor { to, map, indices, barrier } => {
                operands(&[to.base, map.base, barrier.base]);
                operands(indices);
            }
            GroupOp::CopyWindows { to, map, indices, offsets, barrier } => {
                operands(&[to.base, map.base, barrier.base]);
                operands(indices);
                operands(offsets);
            }
            GroupOp::PrefetchMap { map: at } | GroupOp::Prefetch { at } => operands(&[at.base]),
            GroupOp::Tensor(op) => operands(&op.operands()),
            GroupOp::Multiply(m) => {
                operands(&[m.b, m.add]);
                match &m.a {
                    Left::Memory(a) => operands(&[*a]),
                    // Several multiplications may read the same ones.
                    Left::Registers(_) => {}
                }
            }
            _ => {}
        }
        if let GroupOp::Wait { d, .. } = self {
            all.push(*d);
        }
    }

    /// The instruction of a name in parts; `None` where it is none of these. The functions read an operand, an address, registers.
    pub fn parse(
        parts: &[&str],
        o: &[&str],
        operand: &dyn Fn(&str) -> Result<Operand>,
        address: &dyn Fn(&str) -> Result<Address>,
        regs: &dyn Fn(&str) -> Result<Vec<Reg>>,
    ) -> Option<Result<GroupOp>> {
        if let Some(op) = TensorOp::parse(parts, o, operand, address, regs) {
            return Some(op.map(GroupOp::Tensor));
        }
        let op = match (parts, o) {
            (["mbarrier", "init", "shared::cta", "b64"], [at, n]) => {
                address(at).and_then(|at| Ok(GroupOp::Init { at, arrivals: operand(n)? }))
            }
            (["mbarrier", "arrive", "shared::cta", "b64"], ["_", at]) => {
                address(at).map(|at| GroupOp::Arrive { at, bytes: Operand::Bits(0) })
            }
            (["mbarrier", "arrive", "expect_tx", "shared::cta", "b64"], ["_", at, n]) => {
                address(at).and_then(|at| Ok(GroupOp::Arrive { at, bytes: operand(n)? }))
            }
            (["mbarrier", "try_wait", "parity", "shared::cta", "b64"], [d, at, parity]) => regs(d)
                .and_then(|d| Ok(GroupOp::Wait { d: d[0], at: address(at)?, parity: operand(parity)? })),
            (["fence", "mbarrier_init", "release", "cluster"], []) => Ok(GroupOp::FenceBarriers),
            (["fence", "proxy", "async"] | ["fence", "proxy", "async", "shared::cta"], []) => {
                Ok(GroupOp::FenceMemory)
            }
            (
                ["cp", "async", "bulk", "shared::cluster", "global", "mbarrier::complete_tx::bytes"],
                [to, from, n, barrier],
            ) => address(to).and_then(|to| {
                let (from, barrier) = (address(from)?, address(barrier)?);
                Ok(GroupOp::Copy { to, from, bytes: operand(n)?, barrier })
            }),
            (
                [
                    "cp",
                    "async",
                    "bulk",
                    "tensor",
                    dims,
                    "shared::cluster",
                    "global",
                    mode @ ..,
                    "mbarrier::complete_tx::bytes",
                ],
                [to, from, barrier, offsets @ ..],
            ) if matches!((mode, offsets), ([], []) | (["im2col"], [_])) => address(to).and_then(|to| {
                let ((map, indices), barrier) = (boxed(from, operand, address)?, address(barrier)?);
                if *dims != format!("{}d", indices.len()) {
                    return Err(format!("a tensor copy of {dims} with {} indices", indices.len()));
                }
                Ok(match offsets {
                    [] => GroupOp::CopyTensor { to, map, indices, barrier },
                    [offsets, ..] => {
                        let offsets = braced(offsets, operand)?;
                        GroupOp::CopyWindows { to, map, indices, offsets, barrier }
                    }
                })
            }),
            (["prefetch", "global", "L2"], [at]) => address(at).map(|at| GroupOp::Prefetch { at }),
            (["prefetch", "tensormap"], [map]) => address(map).map(|map| GroupOp::PrefetchMap { map }),
            (["wgmma", "fence", "sync", "aligned"], []) => Ok(GroupOp::FenceSums),
            (["wgmma", "commit_group", "sync", "aligned"], []) => Ok(GroupOp::Commit),
            (["setmaxnreg", "inc" | "dec", "sync", "aligned", "u32"], [n]) => match n.parse::<u32>() {
                Ok(n) if n.is_multiple_of(8) && (24..=256).contains(&n) => Ok(GroupOp::SetRegisters),
                _ => Err(format!("setmaxnreg to {n:?}, no multiple of 8 from 24 to 256")),
            },
            (["wgmma", "wait_group", "sync", "aligned"], [n]) => {
                n.parse().map(GroupOp::WaitGroups).map_err(|_| format!("wgmma.wait_group of {n:?}"))
            }
            // Both operands as they are, the left one in registers, or with neighbours along the depth.
            (
                ["wgmma", "mma_async", "sync", "aligned", shape, "f32", ty, same],
                [d, a, b, add, "1", "1", rows @ .., columns @ ("0" | "1")],
            ) if ty == same && matches!(rows, [] | ["0"]) => regs(d).and_then(|d| {
                let half = match *ty {
                    "f16" => Half::F16,
                    "bf16" => Half::BF16,
                    _ => return Err(format!("wgmma of {ty} is not known here")),
                };
                if *shape != format!("m64n{}k16", d.len() * 2) || !d.len().is_multiple_of(4) {
                    return Err(format!("wgmma of {shape} with {} registers", d.len()));
                }
                let a = match rows {
                    [] => Left::Registers(regs(a)?),
                    _ => Left::Memory(operand(a)?),
                };
                if matches!(&a, Left::Registers(a) if a.len() != 4) {
                    return Err("wgmma with a left operand of other than 4 registers".to_owned());
                }
                let (b, add) = (operand(b)?, operand(add)?);
                let columns = *columns == "1";
                Ok(GroupOp::Multiply(Box::new(Multiply { half, d, a, b, columns, add })))
            }),
            _ => return None,
        };
        Some(op)
    }
}

/// Operands in braces: `{%rs1, %rs2}`.
fn braced(text: &str, operand: &dyn Fn(&str) -> Result<Operand>) -> Result<Vec<Operand>> {
    let inner = text.strip_prefix('{').and_then(|t| t.strip_suffix('}'));
    let inner = inner.ok_or_else(|| format!("the list {text:?} is not understood"))?;
    inner.split(',').map(|o| operand(o.trim())).collect()
}

/// A map and the indices of a box: `[%rd1, {%r1, %r2}]`.
fn boxed(
    text: &str,
    operand: &dyn Fn(&str) -> Result<Operand>,
    address: &dyn Fn(&str) -> Result<Address>,
) -> Result<(Address, Vec<Operand>)> {
    let wrong = || format!("the box {text:?} is not understood");
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix("}]")).ok_or_else(wrong)?;
    let (map, indices) = inner.split_once('{').ok_or_else(wrong)?;
    let map = address(&format!("[{}]", map.trim().trim_end_matches(',').trim()))?;
    Ok((map, indices.split(',').map(|i| operand(i.trim())).collect::<Result<_>>()?))
}

/// A matrix in workgroup memory, as its descriptor has it ("Matrix Descriptor Format"). Without a swizzle it is core matrices of 8 rows of 16 bytes, one
/// row behind the other; with that of 128 bytes, of 8 rows of 128 bytes.
#[derive(Debug, Clone, Copy)]
pub struct Matrix {
    first: u64,
    /// The "leading dimension byte offset": to the next elements of a row, where a core matrix has not all of them.
    along: u64,
    /// The "stride dimension byte offset": to the next 8 rows.
    down: u64,
    swizzled: bool,
}

impl Matrix {
    pub fn of(descriptor: u64) -> Result<Matrix> {
        let bytes = |first: u32| (descriptor >> first & 0x3fff) << 4;
        let swizzle = descriptor >> 62;
        if swizzle > 1 || descriptor >> 49 & 7 != 0 {
            return Err(format!(
                "the matrix descriptor {descriptor:#x} has a swizzle, which is not known here"
            ));
        }
        Ok(Matrix { first: bytes(0), along: bytes(16), down: bytes(32), swizzled: swizzle == 1 })
    }

    /// The same as `tcgen05` has it ("Shared memory descriptor"), with the swizzle of 128 bytes alone.
    pub fn of_tensor(descriptor: u64) -> Result<Matrix> {
        let bytes = |first: u32| (descriptor >> first & 0x3fff) << 4;
        // Bits 46 to 48 are 1, those of a base offset, of a mode and of nothing 0, and 61 to 63 say which swizzle.
        if descriptor >> 46 != 1 | 2 << 15 {
            return Err(format!("the shared memory descriptor {descriptor:#x} is not understood"));
        }
        Ok(Matrix { first: bytes(0), along: bytes(16), down: bytes(32), swizzled: true })
    }

    /// Where the 8 elements of a row from `depth` on are, of a depth of 16.
    pub fn chunk(&self, row: u64, depth: u64) -> u64 {
        match self.swizzled {
            true => swizzled(self.first + row / 8 * self.down + row % 8 * ROW as u64 + depth * 2),
            false => self.first + row / 8 * self.down + depth / 8 * self.along + row % 8 * 16,
        }
    }

    /// Where 8 columns from `col` on are, of a right operand whose neighbours are along the columns.
    pub fn columns(&self, depth: u64, col: u64) -> Result<u64> {
        let rows = self.first + depth / 8 * self.down + depth % 8 * ROW as u64;
        match self.swizzled {
            true => Ok(swizzled(rows + col / 64 * self.along + col % 64 * 2)),
            false => Err("columns of core matrices without a swizzle are not known here".to_owned()),
        }
    }
}
