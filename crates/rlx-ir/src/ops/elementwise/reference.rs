//! Reference semantics of the elementwise functions, on one element.

use std::cmp::Ordering;

use crate::dtype::{DType, DTypeClass};
use crate::ops::{Activation, BinaryOp, CmpOp};

/// `f(x)` in `f64`.
pub(super) fn activation_f64(f: Activation, x: f64) -> f64 {
    use Activation as A;
    match f {
        A::Gelu => x * 0.5 * erfc(-x / std::f64::consts::SQRT_2),
        A::GeluApprox => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        A::Silu => x * sigmoid(x),
        A::Relu => {
            if x > 0.0 || x.is_nan() {
                x
            } else {
                0.0
            }
        }
        A::Sigmoid => sigmoid(x),
        A::Tanh => x.tanh(),
        A::Exp => x.exp(),
        A::Log => x.ln(),
        A::Sqrt => x.sqrt(),
        A::Rsqrt => 1.0 / x.sqrt(),
        A::Neg => -x,
        A::Abs => x.abs(),
        A::Sin => x.sin(),
        A::Cos => x.cos(),
        A::Tan => x.tan(),
        A::Atan => x.atan(),
        A::Round => x.round_ties_even(),
        A::Floor => x.floor(),
        A::Ceil => x.ceil(),
        A::Trunc => x.trunc(),
        A::Sign => {
            if x == 0.0 || x.is_nan() {
                x
            } else {
                x.signum()
            }
        }
        A::Recip => 1.0 / x,
        A::Erf => erf(x),
        A::Asin => x.asin(),
        A::Acos => x.acos(),
        A::Sinh => x.sinh(),
        A::Cosh => x.cosh(),
        A::Asinh => x.asinh(),
        A::Acosh => x.acosh(),
        A::Atanh => x.atanh(),
        A::Softplus => softplus(x),
        A::Softsign => x / (1.0 + x.abs()),
        A::Mish => x * softplus(x).tanh(),
        A::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        // The dtype rule keeps these from floats.
        A::Not | A::BitNot => f64::NAN,
    }
}

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

fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 { 1.0 / (1.0 + (-x).exp()) } else { x.exp() / (1.0 + x.exp()) }
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p() + if x.is_nan() { x } else { 0.0 }
}

/// The error function by its Maclaurin series near 0 and by [`erfc`]'s continued fraction beyond
/// (Abramowitz and Stegun 7.1.6 and 7.1.14), to about 1e-15.
pub(super) fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.abs() > 3.0 {
        return (1.0 - erfc(x.abs())).copysign(x);
    }
    // 7.1.6: erf(x) = 2/√π · e^(−x²) · Σ 2ⁿ x^(2n+1) / (2n+1)!!
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > 1e-18 * sum.abs() {
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
}

/// `1 − erf(x)` without cancellation for large `x`.
fn erfc(x: f64) -> f64 {
    if x < 3.0 {
        return 1.0 - erf(x);
    }
    // 7.1.14: √π·e^(x²)·erfc(x) = 1/(x+ (1/2)/(x+ 1/(x+ (3/2)/(x+ …)))), from the far end.
    let fraction = (1..=60).rev().fold(0.0, |tail, k| f64::from(k) / 2.0 / (x + tail));
    (-x * x).exp() / (std::f64::consts::PI.sqrt() * (x + fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_at_known_points() {
        for (x, y) in [
            (0.5, 0.5204998778130465),
            (1.0, 0.8427007929497149),
            (2.5, 0.999593047982555),
            (3.5, 0.9999992569016276),
        ] {
            assert!((erf(x) - y).abs() < 1e-14, "{x}: {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert!((erfc(5.0) / 1.537_459_794_428_035e-12 - 1.0).abs() < 1e-12);
        assert_eq!(erf(0.0), 0.0);
    }

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
