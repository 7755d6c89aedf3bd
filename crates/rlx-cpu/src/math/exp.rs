//! Exponential, logarithm and what is built on them.

use crate::simd::Simd;

/// eˣ, to 1 ULP.
///
/// x = n·ln 2 + f with |f| ≤ ln 2 / 2, and e^f by a polynomial of degree six.
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    // Beyond these bounds the result is 0 or ∞ already. The raw operations keep a NaN in `x`.
    let x = s.max_raw(s.splat(-105.0), s.min_raw(s.splat(90.0), x));
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    let f = s.neg_mul_add(n, s.splat(LN2_HI), x);
    let f = s.neg_mul_add(n, s.splat(LN2_LO), f);
    let mut r = s.splat(1.378_059_4e-3);
    r = s.mul_add(r, f, s.splat(8.373_124_5e-3));
    r = s.mul_add(r, f, s.splat(4.166_953_6e-2));
    r = s.mul_add(r, f, s.splat(1.666_647_2e-1));
    r = s.mul_add(r, f, s.splat(4.999_998_5e-1));
    r = s.mul_add(r, f, s.splat(1.0));
    r = s.mul_add(r, f, s.splat(1.0));
    s.scale2(r, n)
}

/// ln 2 with enough trailing zeros that n·LN2_HI is exact for |n| < 2⁹ …
const LN2_HI: f32 = 6.931_457_5e-1;
/// … and the rest of it.
const LN2_LO: f32 = 1.428_606_8e-6;

/// The natural logarithm, to 1 ULP; −∞ at zero, NaN below.
///
/// x = m·2ᵉ with m in [2/3, 4/3), and log m by a polynomial in m − 1.
#[inline(always)]
pub fn log<S: Simd>(s: S, x: S::F) -> S::F {
    let tiny = s.lt(x, s.splat(f32::MIN_POSITIVE));
    let scaled = s.select(tiny, s.mul(x, s.splat(8_388_608.0)), x);
    let e0 = s.select(tiny, s.splat(-23.0), s.zero());
    let two_thirds = s.splat_i(0x3f2a_aaab);
    let e = s.shr_i::<23>(s.sub_i(s.bits(scaled), two_thirds));
    let m = s.from_bits(s.sub_i(s.bits(scaled), s.shl_i::<23>(e)));
    let e = s.add(s.from_int(e), e0);
    let m = s.sub(m, s.splat(1.0));
    let z = s.mul(m, m);
    let mut r = s.splat(-0.130_310_06);
    let mut t = s.splat(0.140_869_14);
    r = s.mul_add(r, z, s.splat(-0.121_483_51));
    t = s.mul_add(t, z, s.splat(0.139_814_85));
    r = s.mul_add(r, z, s.splat(-0.166_846_13));
    t = s.mul_add(t, z, s.splat(0.200_120_35));
    r = s.mul_add(r, z, s.splat(-0.249_996_2));
    r = s.mul_add(t, m, r);
    r = s.mul_add(r, m, s.splat(0.333_331_97));
    r = s.mul_add(r, m, s.splat(-0.5));
    // The exponent's part goes in as high and low, so that an unfused product is exact too.
    r = s.mul_add(e, s.splat(LN2_LO), s.mul(r, z));
    r = s.add(r, m);
    r = s.mul_add(e, s.splat(LN2_HI), r);
    log_special(s, x, r)
}

/// The values of the logarithm where the exponent is not that of a positive finite number.
#[inline(always)]
fn log_special<S: Simd>(s: S, x: S::F, r: S::F) -> S::F {
    let inf = s.splat(f32::INFINITY);
    let r = s.select(s.lt(x, inf), r, x);
    let r = s.select(s.lt(x, s.zero()), s.splat(f32::NAN), r);
    s.select(s.eq(x, s.zero()), s.splat(f32::NEG_INFINITY), r)
}

/// 1 / (1 + e⁻ˣ), to 2.5 ULP.
#[inline(always)]
pub fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    // e^−|x| does not overflow, and e / (1 + e) keeps the small results below zero accurate.
    let e = exp(s, s.neg(s.abs(x)));
    let one = s.splat(1.0);
    s.div(s.select(s.lt(x, s.zero()), e, one), s.add(one, e))
}

/// x · sigmoid(x), to 3 ULP.
#[inline(always)]
pub fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    s.mul(x, sigmoid(s, x))
}

/// The hyperbolic tangent, to 1.5 ULP.
#[inline(always)]
pub fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let a = s.abs(x);
    let e = exp(s, s.add(a, a));
    let one = s.splat(1.0);
    let big = s.sub(one, s.div(s.splat(2.0), s.add(e, one)));
    let z = s.mul(x, x);
    let mut r = s.splat(-6.272_607_5e-3);
    r = s.mul_add(r, z, s.splat(2.107_025_4e-2));
    r = s.mul_add(r, z, s.splat(-5.385_186_5e-2));
    r = s.mul_add(r, z, s.splat(1.333_258_1e-1));
    r = s.mul_add(r, z, s.splat(-3.333_331_7e-1));
    // The sign is put back for zero, where an unfused sum loses it.
    let small = s.copysign(s.mul_add(s.mul(r, z), x, x), x);
    s.select(s.lt(a, s.splat(0.55)), small, s.copysign(big, x))
}

/// log(1 + eˣ), to 4 ULP: max(x, 0) + log(1 + e^−|x|).
#[inline(always)]
pub fn softplus<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    let e = exp(s, s.neg(s.abs(x)));
    let u = s.add(one, e);
    // log u loses what rounding 1 + e lost; adding (e − (u − 1)) / u puts it back.
    let lost = s.sub(e, s.sub(u, one));
    let l = s.add(log(s, u), s.div(lost, u));
    s.add(s.max_raw(s.zero(), x), l)
}
