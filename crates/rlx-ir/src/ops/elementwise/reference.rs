//! Reference semantics of the elementwise functions, on one element.

use std::cmp::Ordering;

use crate::dtype::{DType, DTypeClass};
use crate::ops::{Activation, BinaryOp, CmpOp};

/// `f(x)` for an integer or bool; functions of floats only never come here.
pub(super) fn activation_int(f: Activation, x: i128, dtype: DType) -> i128 {
    use Activation as A;
    match f {
        A::Neg => -x,
        A::Abs => x.abs(),
        A::Sign => x.signum(),
        A::Relu => x.max(0),
        A::Not => i128::from(x == 0),
        A::BitNot => match (dtype.class(), dtype.int_range()) {
            (DTypeClass::Unsigned, Some((_, max))) => max - x,
            _ => !x,
        },
        _ => x,
    }
}

/// `f(a, b)` in `f64`.
pub(super) fn binary_f64(f: BinaryOp, a: f64, b: f64) -> f64 {
    use BinaryOp as B;
    match f {
        B::Add => a + b,
        B::Sub => a - b,
        B::Mul => a * b,
        B::Div => a / b,
        B::Max => {
            if a.is_nan() || b.is_nan() {
                f64::NAN
            } else {
                a.max(b)
            }
        }
        B::Min => {
            if a.is_nan() || b.is_nan() {
                f64::NAN
            } else {
                a.min(b)
            }
        }
        B::Pow => a.powf(b),
        B::Mod => {
            let r = a % b;
            if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
        }
        B::Rem => a % b,
        B::Atan2 => a.atan2(b),
        // The dtype rule keeps these from floats.
        B::And | B::Or | B::Xor | B::BitAnd | B::BitOr | B::BitXor | B::Shl | B::Shr => f64::NAN,
    }
}

/// `f(a, b)` for integers or bools; the caller wraps the result.
pub(super) fn binary_int(f: BinaryOp, a: i128, b: i128, dtype: DType) -> i128 {
    use BinaryOp as B;
    let bits = dtype.bits() as i128;
    match f {
        B::Add => a + b,
        B::Sub => a - b,
        B::Mul => a.wrapping_mul(b),
        B::Div => a.checked_div(b).unwrap_or(0),
        B::Max => a.max(b),
        B::Min => a.min(b),
        B::Pow => power(a, b, dtype),
        B::Mod => match a.checked_rem(b) {
            Some(r) if r != 0 && (r < 0) != (b < 0) => r + b,
            Some(r) => r,
            None => 0,
        },
        B::Rem => a.checked_rem(b).unwrap_or(0),
        B::And | B::BitAnd => a & b,
        B::Or | B::BitOr => a | b,
        B::Xor | B::BitXor => a ^ b,
        B::Shl => {
            if (0..bits).contains(&b) {
                a << b
            } else {
                0
            }
        }
        B::Shr => {
            if (0..bits).contains(&b) {
                a >> b
            } else {
                0
            }
        }
        // The dtype rule keeps this from integers.
        B::Atan2 => 0,
    }
}

/// `aᵇ` modulo the width of `dtype`; a negative exponent gives what truncation leaves.
fn power(a: i128, b: i128, dtype: DType) -> i128 {
    if b < 0 {
        return match a {
            1 => 1,
            -1 if b % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut base, mut exponent, mut out) = (a, b, 1i128);
    while exponent > 0 {
        if exponent & 1 == 1 {
            out = crate::tensor::wrap_int(dtype, out.wrapping_mul(base));
        }
        base = crate::tensor::wrap_int(dtype, base.wrapping_mul(base));
        exponent >>= 1;
    }
    out
}

/// Whether the comparison holds for an ordering; `None` is unordered (a NaN).
pub(super) fn compare(f: CmpOp, ordering: Option<Ordering>) -> bool {
    match f {
        CmpOp::Eq => ordering == Some(Ordering::Equal),
        CmpOp::Ne => ordering != Some(Ordering::Equal),
        CmpOp::Lt => ordering == Some(Ordering::Less),
        CmpOp::Le => matches!(ordering, Some(Ordering::Less | Ordering::Equal)),
        CmpOp::Gt => ordering == Some(Ordering::Greater),
        CmpOp::Ge => matches!(ordering, Some(Ordering::Greater | Ordering::Equal)),
    }
}

/// A float as an integer of `to`: truncated, saturating, NaN to 0; bool is `≠ 0`.
pub(super) fn float_to_int(x: f64, to: DType) -> i128 {
    match (to, to.int_range()) {
        (DType::Bool, _) => i128::from(x != 0.0),
        (_, Some((min, max))) => (x as i128).clamp(min, max),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remainders_differ_in_sign() {
        assert_eq!(binary_int(BinaryOp::Mod, -7, 3, DType::I32), 2);
        assert_eq!(binary_int(BinaryOp::Rem, -7, 3, DType::I32), -1);
        assert_eq!(binary_f64(BinaryOp::Mod, -7.5, 2.0), 0.5);
        assert_eq!(binary_int(BinaryOp::Div, 7, 0, DType::I32), 0);
    }

    #[test]
    fn powers_wrap_around() {
        let most = i128::from(u64::MAX);
        assert_eq!(power(most, 2, DType::U64), 1);
        assert_eq!(power(most, 3, DType::U64), most);
        assert_eq!(power(3, 41, DType::I64), i128::from(3i64.wrapping_pow(41)));
    }
}
