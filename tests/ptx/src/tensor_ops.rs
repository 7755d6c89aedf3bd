//! Instructions of sm_100a: `tcgen05`.

use crate::Result;
use crate::parse::{Address, Half, Operand, Reg};

/// What such an instruction does.
#[derive(Debug, Clone)]
pub enum TensorOp {
    /// `tcgen05.alloc`: so many columns, whose address is left in workgroup memory.
    Allocate { at: Address, columns: Operand },
    /// `tcgen05.relinquish_alloc_permit`.
    GiveUp,
    /// `tcgen05.dealloc`.
    Free { address: Operand, columns: Operand },
    /// `tcgen05.fence::before_thread_sync`, or `::after_thread_sync`.
    Fence { after: bool },
    /// `tcgen05.mma`, of f16 or bf16: which one, and the shape, the instruction descriptor says.
    Multiply { to: Address, a: Operand, b: Operand, how: Operand, add: Operand },
    /// `tcgen05.commit` to a barrier in memory.
    Commit { at: Address },
    /// `tcgen05.ld.16x256b`.
    Load { d: Vec<Reg>, from: Address },
    /// `tcgen05.wait::ld`.
    WaitLoads,
}

impl TensorOp {
    /// Whether the lanes of a warp do it together.
    pub fn of_warp(&self) -> bool {
        !matches!(self, TensorOp::Fence { .. } | TensorOp::Multiply { .. } | TensorOp::Commit { .. })
    }

    /// What it reads.
    pub fn operands(&self) -> Vec<Operand> {
        match self {
            TensorOp::Allocate { at, columns } => vec![at.base, *columns],
            TensorOp::Free { address, columns } => vec![*address, *columns],
            TensorOp::Multiply { to, a, b, how, add } => vec![to.base, *a, *b, *how, *add],
            TensorOp::Commit { at } => vec![at.base],
            TensorOp::Load { from, .. } => vec![from.base],
            TensorOp::GiveUp | TensorOp::Fence { .. } | TensorOp::WaitLoads => Vec::new(),
        }
    }

    /// The instruction of a name in parts; `None` where it is none of these. The functions read an operand, an address, registers.
    pub fn parse(
        parts: &[&str],
        o: &[&str],
        operand: &dyn Fn(&str) -> Result<Operand>,
        address: &dyn Fn(&str) -> Result<Address>,
        regs: &dyn Fn(&str) -> Result<Vec<Reg>>,
    ) -> Option<Result<TensorOp>> {
        let ["tcgen05", rest @ ..] = parts else { return None };
        let read = || match (rest, o) {
            (["alloc", "cta_group::1", "sync", "aligned", "shared::cta", "b32"], [at, n]) => {
                Ok(TensorOp::Allocate { at: address(at)?, columns: operand(n)? })
            }
            (["relinquish_alloc_permit", "cta_group::1", "sync", "aligned"], []) => Ok(TensorOp::GiveUp),
            (["dealloc", "cta_group::1", "sync", "aligned", "b32"], [at, n]) => {
                Ok(TensorOp::Free { address: operand(at)?, columns: operand(n)? })
            }
            (["fence::before_thread_sync"], []) => Ok(TensorOp::Fence { after: false }),
            (["fence::after_thread_sync"], []) => Ok(TensorOp::Fence { after: true }),
            (["mma", "cta_group::1", "kind::f16"], [to, a, b, how, add]) => Ok(TensorOp::Multiply {
                to: address(to)?,
                a: operand(a)?,
                b: operand(b)?,
                how: operand(how)?,
                add: operand(add)?,
            }),
            (["commit", "cta_group::1", "mbarrier::arrive::one", "shared::cluster", "b64"], [at]) => {
                Ok(TensorOp::Commit { at: address(at)? })
            }
            (["ld", "sync", "aligned", "16x256b", times, "b32"], [d, from]) => {
                let d = regs(d)?;
                let known = d.len().is_multiple_of(4) && (d.len() / 4).is_power_of_two() && d.len() <= 128;
                match known && *times == format!("x{}", d.len() / 4) {
                    true => Ok(TensorOp::Load { d, from: address(from)? }),
                    false => Err(format!("tcgen05.ld of {times} with {} registers", d.len())),
                }
            }
            (["wait::ld", "sync", "aligned"], []) => Ok(TensorOp::WaitLoads),
            _ => Err(format!("the instruction {:?} is not known here", parts.join("."))),
        };
        Some(read())
    }
}

/// What an instruction descriptor says ("Instruction descriptor", `.kind::f16`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub half: Half,
    /// Neighbours of the right operand are along the columns, not the depth.
    pub columns: bool,
    pub cols: usize,
}

impl Shape {
    pub fn of(descriptor: u32) -> Result<Shape> {
        let field = |first: u32, bits: u32| descriptor >> first & ((1 << bits) - 1);
        let half = match (field(7, 3), field(10, 3)) {
            (0, 0) => Half::F16,
            (1, 1) => Half::BF16,
            _ => return Err(format!("the types of {descriptor:#x} are not known here")),
        };
        let cols = 8 * field(17, 6);
        // Sums are f32, of 128 rows; nothing is sparse, saturated, negated, shifted, and the left operand has neighbours along the depth.
        let rest = descriptor & !(7 << 7 | 7 << 10 | 1 << 16 | 0x3f << 17);
        if rest != 1 << 4 | 8 << 24 || !cols.is_multiple_of(16) || !(16..=256).contains(&cols) {
            return Err(format!("the instruction descriptor {descriptor:#x} is not known here"));
        }
        Ok(Shape { half, columns: field(16, 1) == 1, cols: cols as usize })
    }
}
