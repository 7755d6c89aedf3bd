//! The logarithm and the inverse hyperbolic functions.

use crate::exp::{LN2_HI, LN2_LO};
use crate::lanes::Lanes;

/// `x = m·2ᵉ` with m in [2/3, 4/3): `(m, e)`; for positive finite `x`.
#[inline(always)]
fn split<L: Lanes>(l: L, x: L::F) -> (L::F, L::F) {
    let tiny = l.lt(x, l.splat(f32::MIN_POSITIVE));
    let scaled = l.select(tiny, l.mul(x, l.splat(8_388_608.0)), x);
    let e0 = l.select(tiny, l.splat(-23.0), l.zero());
    let two_thirds = l.splat_i(0x3f2a_aaab);
    let e = l.shr_i::<23>(l.sub_i(l.bits(scaled), two_thirds));
    let m = l.from_bits(l.sub_i(l.bits(scaled), l.shl_i::<23>(e)));
    (m, l.add(l.from_int(e), e0))
}

/// log m of a number m in [2/3, 4/3), given m − 1, in two parts: the smaller one, and m − 1 itself.
#[inline(always)]
fn near_one<L: Lanes>(l: L, m: L::F) -> L::F {
    let z = l.mul(m, m);
    let mut r = l.splat(-0.130_310_06);
    let mut t = l.splat(0.140_869_14);
    r = l.mul_add(r, z, l.splat(-0.121_483_51));
    t = l.mul_add(t, z, l.splat(0.139_814_85));
    r = l.mul_add(r, z, l.splat(-0.166_846_13));
    t = l.mul_add(t, z, l.splat(0.200_120_35));
    r = l.mul_add(r, z, l.splat(-0.249_996_2));
    r = l.mul_add(t, m, r);
    r = l.mul_add(r, m, l.splat(0.333_331_97));
    r = l.mul_add(r, m, l.splat(-0.5));
    l.mul(r, z)
}

/// The natural logarithm; −∞ at zero, NaN below.
///
/// x = m·2ᵉ with m in [2/3, 4/3), and log m by a minimax polynomial in m − 1.
#[inline(always)]
pub fn log<L: Lanes>(l: L, x: L::F) -> L::F {
    let (m, e) = split(l, x);
    let m = l.sub(m, l.splat(1.0));
    // The exponent's part goes in as high and low, so that an unfused product is exact too.
    let mut r = l.mul_add(e, l.splat(LN2_LO), near_one(l, m));
    r = l.add(r, m);
    r = l.mul_add(e, l.splat(LN2_HI), r);
    log_special(l, x, r)
}

/// The values of the logarithm where the exponent is not that of a positive finite number.
#[inline(always)]
fn log_special<L: Lanes>(l: L, x: L::F, r: L::F) -> L::F {
    let inf = l.splat(f32::INFINITY);
    let r = l.select(l.lt(x, inf), r, x);
    let r = l.select(l.lt(x, l.zero()), l.splat(f32::NAN), r);
    l.select(l.eq(x, l.zero()), l.splat(f32::NEG_INFINITY), r)
}

/// log(1 + x), also where 1 + x is rounded to 1; −∞ at −1, NaN below.
///
/// u = 1 + x loses c = x − (u − 1), and log(1 + x) = log u + c/u to first order (fdlibm's `s_log1p.c`).
#[inline(always)]
pub fn log1p<L: Lanes>(l: L, x: L::F) -> L::F {
    let one = l.splat(1.0);
    let u = l.add(one, x);
    let lost = l.select(l.lt(x, one), l.sub(x, l.sub(u, one)), l.sub(one, l.sub(u, x)));
    let (m, e) = split(l, u);
    let m = l.sub(m, one);
    // The correction goes in with the small parts, before the large one is added.
    let mut r = l.add(near_one(l, m), l.div(lost, u));
    r = l.mul_add(e, l.splat(LN2_LO), r);
    r = l.add(r, m);
    r = l.mul_add(e, l.splat(LN2_HI), r);
    let r = log_special(l, u, r);
    // Also of −0, and of numbers so small that the division underflows.
    l.select(l.lt(l.abs(x), l.splat(f32::EPSILON / 4.0)), x, r)
}

/// From here on the square of a number hides the 1 beside it.
const FAR: f32 = 8192.0;

/// log(2a) for large `a`.
#[inline(always)]
fn log_twice<L: Lanes>(l: L, a: L::F) -> L::F {
    l.add(log(l, a), l.splat(std::f32::consts::LN_2))
}

/// The inverse hyperbolic sine: log(1 + (|x| + x² / (1 + √(x² + 1)))), as in fdlibm's `s_asinh.c`.
#[inline(always)]
pub fn asinh<L: Lanes>(l: L, x: L::F) -> L::F {
    let (a, one) = (l.abs(x), l.splat(1.0));
    let small = l.min_raw(l.splat(FAR), a);
    let square = l.mul(small, small);
    let root = l.sqrt(l.add(square, one));
    let near = log1p(l, l.add(small, l.div(square, l.add(one, root))));
    l.copysign(l.select(l.lt(a, l.splat(FAR)), near, log_twice(l, a)), x)
}

/// The inverse hyperbolic cosine: log(1 + (t + √(2t + t²))) with t = x − 1; NaN below 1.
#[inline(always)]
pub fn acosh<L: Lanes>(l: L, x: L::F) -> L::F {
    let one = l.splat(1.0);
    let t = l.sub(l.max_raw(one, l.min_raw(l.splat(FAR), x)), one);
    let root = l.sqrt(l.mul(t, l.add(t, l.splat(2.0))));
    let near = log1p(l, l.add(t, root));
    let y = l.select(l.lt(x, l.splat(FAR)), near, log_twice(l, x));
    l.select(l.lt(x, one), l.splat(f32::NAN), y)
}

/// The inverse hyperbolic tangent: log(1 + 2|x| / (1 − |x|)) / 2; ±∞ at ±1, NaN beyond.
#[inline(always)]
pub fn atanh<L: Lanes>(l: L, x: L::F) -> L::F {
    let a = l.abs(x);
    let q = l.div(l.add(a, a), l.sub(l.splat(1.0), a));
    let y = l.mul(log1p(l, q), l.splat(0.5));
    // Half of twice the smallest numbers is not always themselves.
    let y = l.select(l.lt(a, l.splat(1e-4)), a, y);
    l.copysign(y, x)
}
