//! What each instruction computes on the bits of values: shared by the interpreters of kernels and of tile programs, and constant folding.
//! Operands have the types that [`crate::ir::type_of`] asks for.

use half::{bf16, f16};

use crate::ir::{BinOp, Cmp, Ty, UnOp};

fn f32_of(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn bits32(x: f32) -> u64 {
    u64::from(x.to_bits())
}

/// The bits of integer `x` wrapped into `ty`.
fn wrap(ty: Ty, x: i128) -> u64 {
    match ty {
        Ty::I32 | Ty::U32 => u64::from(x as u32),
        _ => x as u64,
    }
}

/// The integer that `bits` mean.
pub fn int(ty: Ty, bits: u64) -> i128 {
    match ty {
        Ty::I32 => i128::from(bits as u32 as i32),
        Ty::I64 => i128::from(bits as i64),
        Ty::Bool => i128::from(bits & 1),
        Ty::U32 => i128::from(bits as u32),
        _ => i128::from(bits),
    }
}

/// `op(v)`.
pub fn unary(op: UnOp, ty: Ty, v: u64) -> u64 {
    match (ty, op) {
        (Ty::Bool, _) => u64::from(v & 1 == 0),
        (Ty::F32, UnOp::RoundF16) => bits32(f16::from_f32(f32_of(v)).to_f32()),
        (Ty::F32, UnOp::RoundBF16) => bits32(bf16::from_f32(f32_of(v)).to_f32()),
        (Ty::F32, UnOp::Neg) => v ^ 0x8000_0000,
        (Ty::F32, UnOp::Abs) => v & 0x7FFF_FFFF,
        (Ty::F32, UnOp::Math(f)) => bits32((f.wide())(f64::from(f32_of(v))) as f32),
        (Ty::F32, _) => {
            let x = f32_of(v);
            bits32(match op {
                UnOp::Floor => x.floor(),
                UnOp::Ceil => x.ceil(),
                UnOp::Trunc => x.trunc(),
                UnOp::Round => x.round_ties_even(),
                _ => x.sqrt(),
            })
        }
        (Ty::F64, _) => {
            let x = f64::from_bits(v);
            match op {
                UnOp::Neg => -x,
                UnOp::Abs => x.abs(),
                UnOp::Floor => x.floor(),
                UnOp::Ceil => x.ceil(),
                UnOp::Trunc => x.trunc(),
                UnOp::Round => x.round_ties_even(),
                UnOp::Math(f) => (f.wide())(x),
                _ => x.sqrt(),
            }
            .to_bits()
        }
        (_, UnOp::Neg) => wrap(ty, -int(ty, v)),
        (_, UnOp::LeadingZeros) => u64::from((v as u32).leading_zeros()),
        _ => wrap(ty, !int(ty, v)),
    }
}

/// `op(a, b)`; `None` where the language gives it no value (a division by zero, a shift by the width).
pub fn binary(op: BinOp, ty: Ty, a: u64, b: u64) -> Option<u64> {
    Some(match ty {
        Ty::F32 => {
            let (x, y) = (f32_of(a), f32_of(b));
            bits32(match op {
                BinOp::Add => x + y,
                BinOp::Sub => x - y,
                BinOp::Mul => x * y,
                BinOp::Div => x / y,
                BinOp::Min => x.min(y),
                BinOp::Max => x.max(y),
                BinOp::Pow => x.powf(y),
                BinOp::Fmod => x % y,
                BinOp::Atan2 => x.atan2(y),
                _ => return None,
            })
        }
        Ty::F64 => {
            let (x, y) = (f64::from_bits(a), f64::from_bits(b));
            match op {
                BinOp::Add => x + y,
                BinOp::Sub => x - y,
                BinOp::Mul => x * y,
                BinOp::Div => x / y,
                BinOp::Min => x.min(y),
                BinOp::Max => x.max(y),
                BinOp::Pow => x.powf(y),
                BinOp::Fmod => x % y,
                BinOp::Atan2 => x.atan2(y),
                _ => return None,
            }
            .to_bits()
        }
        _ => return binary_int(op, ty, a, b),
    })
}

fn binary_int(op: BinOp, ty: Ty, a: u64, b: u64) -> Option<u64> {
    match op {
        BinOp::And => return Some(a & b),
        BinOp::Or => return Some(a | b),
        BinOp::Xor => return Some(a ^ b),
        BinOp::Shl | BinOp::Shr => {
            let by = b as u32;
            if by >= ty.bits() {
                return None;
            }
            let x = int(ty, a);
            return Some(wrap(ty, if op == BinOp::Shl { x << by } else { x >> by }));
        }
        _ => {}
    }
    let (x, y) = (int(ty, a), int(ty, b));
    let representable = |q: i128| (int(ty, wrap(ty, q)) == q).then_some(q);
    Some(wrap(
        ty,
        match op {
            BinOp::Add => x + y,
            BinOp::Sub => x - y,
            BinOp::Mul => x.wrapping_mul(y),
            BinOp::Div => representable(x.checked_div(y)?)?,
            BinOp::Rem => {
                representable(x.checked_div(y)?)?;
                x % y
            }
            BinOp::Min => x.min(y),
            BinOp::Max => x.max(y),
            _ => return None,
        },
    ))
}

/// `x·y + z` of floats, rounded once.
pub fn fma(ty: Ty, [x, y, z]: [u64; 3]) -> u64 {
    match ty {
        Ty::F64 => f64::from_bits(x).mul_add(f64::from_bits(y), f64::from_bits(z)).to_bits(),
        _ => bits32(f32_of(x).mul_add(f32_of(y), f32_of(z))),
    }
}

/// Whether the comparison holds.
pub fn compare(op: Cmp, ty: Ty, a: u64, b: u64) -> bool {
    let ordering = match ty {
        Ty::F32 => f32_of(a).partial_cmp(&f32_of(b)),
        Ty::F64 => f64::from_bits(a).partial_cmp(&f64::from_bits(b)),
        _ => Some(int(ty, a).cmp(&int(ty, b))),
    };
    match op {
        Cmp::Eq => ordering.is_some_and(|o| o.is_eq()),
        Cmp::Ne => !ordering.is_some_and(|o| o.is_eq()),
        Cmp::Lt => ordering.is_some_and(|o| o.is_lt()),
        Cmp::Le => ordering.is_some_and(|o| o.is_le()),
        Cmp::Gt => ordering.is_some_and(|o| o.is_gt()),
        Cmp::Ge => ordering.is_some_and(|o| o.is_ge()),
    }
}

/// `v` of type `from` as type `to`.
pub fn convert(to: Ty, from: Ty, v: u64) -> u64 {
    let float = match from {
        Ty::F32 => Some(f64::from(f32_of(v))),
        Ty::F64 => Some(f64::from_bits(v)),
        _ => None,
    };
    match (to, float) {
        (Ty::Bool, Some(x)) => u64::from(x != 0.0),
        (Ty::Bool, None) => u64::from(int(from, v) != 0),
        (Ty::F32, Some(x)) => bits32(x as f32),
        (Ty::F32, None) => bits32(int(from, v) as f32),
        (Ty::F64, Some(x)) => x.to_bits(),
        (Ty::F64, None) => (int(from, v) as f64).to_bits(),
        (Ty::I32, Some(x)) => u64::from(x as i32 as u32),
        (Ty::U32, Some(x)) => u64::from(x as u32),
        (Ty::I64, Some(x)) => x as i64 as u64,
        (Ty::U64, Some(x)) => x as u64,
        (_, None) => wrap(to, int(from, v)),
    }
}
