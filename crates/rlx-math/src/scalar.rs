//! One f32 at a time.

use crate::lanes::Lanes;

/// One lane in plain Rust, with multiply and add rounded separately: what a device without anything special computes, to
/// the bit.
///
/// ```
/// use rlx_math::{Scalar, exp};
/// assert_eq!(exp(Scalar, 1.0), std::f32::consts::E);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scalar;

/// Writes each listed method as one expression.
macro_rules! methods {
    ($($name:ident($($a:ident: $t:ty),*) -> $r:ty = $e:expr;)*) => {
        $(#[inline(always)]
        fn $name(self, $($a: $t),*) -> $r {
            $e
        })*
    };
}

impl Lanes for Scalar {
    type F = f32;
    type I = i32;
    type M = bool;
    const FUSED: bool = false;

    methods! {
        splat(x: f32) -> f32 = x;
        add(a: f32, b: f32) -> f32 = a + b;
        sub(a: f32, b: f32) -> f32 = a - b;
        mul(a: f32, b: f32) -> f32 = a * b;
        div(a: f32, b: f32) -> f32 = a / b;
        mul_add(a: f32, b: f32, c: f32) -> f32 = a * b + c;
        neg_mul_add(a: f32, b: f32, c: f32) -> f32 = c - a * b;
        sqrt(a: f32) -> f32 = a.sqrt();
        min_raw(a: f32, b: f32) -> f32 = if a < b { a } else { b };
        max_raw(a: f32, b: f32) -> f32 = if a > b { a } else { b };
        round(a: f32) -> f32 = a.round_ties_even();
        floor(a: f32) -> f32 = a.floor();
        ceil(a: f32) -> f32 = a.ceil();
        trunc(a: f32) -> f32 = a.trunc();
        lt(a: f32, b: f32) -> bool = a < b;
        le(a: f32, b: f32) -> bool = a <= b;
        eq(a: f32, b: f32) -> bool = a == b;
        select(m: bool, a: f32, b: f32) -> f32 = if m { a } else { b };
        mask_and(a: bool, b: bool) -> bool = a & b;
        mask_or(a: bool, b: bool) -> bool = a | b;
        mask_not(a: bool) -> bool = !a;
        splat_i(x: i32) -> i32 = x;
        to_int(a: f32) -> i32 = a as i32;
        from_int(a: i32) -> f32 = a as f32;
        bits(a: f32) -> i32 = a.to_bits() as i32;
        from_bits(a: i32) -> f32 = f32::from_bits(a as u32);
        add_i(a: i32, b: i32) -> i32 = a.wrapping_add(b);
        sub_i(a: i32, b: i32) -> i32 = a.wrapping_sub(b);
        and_i(a: i32, b: i32) -> i32 = a & b;
        or_i(a: i32, b: i32) -> i32 = a | b;
        xor_i(a: i32, b: i32) -> i32 = a ^ b;
        eq_i(a: i32, b: i32) -> bool = a == b;
        // Two factors reach every exponent without overflowing on the way; only the last rounds.
        scale2(a: f32, n: f32) -> f32 = {
            let n = n as i32;
            let half = n >> 1;
            a * pow2(half) * pow2(n - half)
        };
    }

    #[inline(always)]
    fn shl_i<const N: i32>(self, a: i32) -> i32 {
        a << N
    }
    #[inline(always)]
    fn shr_i<const N: i32>(self, a: i32) -> i32 {
        a >> N
    }
}

/// `2ⁿ` for −126 ≤ n ≤ 127.
#[inline(always)]
fn pow2(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) << 23) as u32)
}
