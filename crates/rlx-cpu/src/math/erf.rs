//! The error function and GELU.

use super::exp::{exp, sigmoid};
use crate::simd::Simd;

/// The error function, to 1 ULP.
///
/// Near zero an odd polynomial; beyond 475/512, 1 − exp(polynomial).
#[inline(always)]
pub fn erf<S: Simd>(s: S, x: S::F) -> S::F {
    let t = s.abs(x);
    let z = s.mul(x, x);
    let mut r = s.mul_add(s.splat(-1.728_534_7e-5), t, s.splat(3.831_972e-4));
    let u = s.mul_add(s.splat(-3.883_964_4e-3), t, s.splat(2.425_462_2e-2));
    r = s.mul_add(r, z, u);
    r = s.mul_add(r, t, s.splat(-1.067_778_8e-1));
    r = s.mul_add(r, t, s.splat(-6.348_467e-1));
    r = s.mul_add(r, t, s.splat(-1.287_175_1e-1));
    r = s.mul_add(r, t, s.neg(t));
    let far = s.copysign(s.sub(s.splat(1.0), exp(s, r)), x);
    // Past 4 the result is 1, and the polynomial would overflow to NaN at infinity.
    let far = s.select(s.lt(s.splat(4.0), t), s.copysign(s.splat(1.0), x), far);

    let mut r = s.splat(-5.967_617e-4);
    r = s.mul_add(r, z, s.splat(4.991_194e-3));
    r = s.mul_add(r, z, s.splat(-2.676_813_5e-2));
    r = s.mul_add(r, z, s.splat(1.128_199_2e-1));
    r = s.mul_add(r, z, s.splat(-3.761_253_4e-1));
    r = s.mul_add(r, z, s.splat(1.283_791_7e-1));
    let near = s.mul_add(r, x, x);
    s.select(s.lt(s.splat(0.927_734_4), t), far, near)
}

/// x · Φ(x) = x/2 · (1 + erf(x/√2)), to an absolute error of 4e-7.
#[inline(always)]
pub fn gelu<S: Simd>(s: S, x: S::F) -> S::F {
    let half = s.mul(x, s.splat(0.5));
    let e = erf(s, s.mul(x, s.splat(std::f32::consts::FRAC_1_SQRT_2)));
    s.mul_add(half, e, half)
}

/// x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))), to an absolute error of 6e-7.
#[inline(always)]
pub fn gelu_tanh<S: Simd>(s: S, x: S::F) -> S::F {
    // (1 + tanh u) / 2 = sigmoid(2u); 1.5957692 = 2·√(2/π).
    let z = s.mul(x, x);
    let p = s.mul_add(z, s.splat(0.044_715 * 1.595_769_2), s.splat(1.595_769_2));
    s.mul(x, sigmoid(s, s.mul(x, p)))
}
