//! The activations of networks: formulas of other functions, for which a device may have its own code.

use crate::exp::half_exp2;
use crate::lanes::{Lanes, polynomial};
use crate::table::{Approximation, Function, of};

/// `A` of `x`: the device's own where it is to be used, else the approximation.
#[inline(always)]
fn call<A: Approximation, L: Lanes>(l: L, f: Function, x: L::F) -> L::F {
    match l.native(f, x) {
        Some(y) => y,
        None => A::lanes(l, x),
    }
}

/// e^−|x|, which does not overflow.
#[inline(always)]
fn decayed<L: Lanes>(l: L, x: L::F) -> L::F {
    call::<of::Exp, L>(l, Function::Exp, l.neg(l.abs(x)))
}

/// 1 / (1 + e⁻ˣ).
#[inline(always)]
pub fn sigmoid<L: Lanes>(l: L, x: L::F) -> L::F {
    // e / (1 + e) keeps the small results below zero accurate.
    let e = decayed(l, x);
    let one = l.splat(1.0);
    l.div(l.select(l.lt(x, l.zero()), e, one), l.add(one, e))
}

/// x · sigmoid(x).
#[inline(always)]
pub fn silu<L: Lanes>(l: L, x: L::F) -> L::F {
    l.mul(x, sigmoid(l, x))
}

/// log(1 + eˣ) = max(x, 0) + log(1 + e^−|x|).
#[inline(always)]
pub fn softplus<L: Lanes>(l: L, x: L::F) -> L::F {
    let one = l.splat(1.0);
    let e = decayed(l, x);
    let u = l.add(one, e);
    // log u loses what rounding 1 + e lost; adding (e − (u − 1)) / u puts it back.
    let lost = l.sub(e, l.sub(u, one));
    let log = l.add(call::<of::Log, L>(l, Function::Log, u), l.div(lost, u));
    l.add(l.max_raw(l.zero(), x), log)
}

/// x / (1 + |x|).
#[inline(always)]
pub fn softsign<L: Lanes>(l: L, x: L::F) -> L::F {
    l.div(x, l.add(l.splat(1.0), l.abs(x)))
}

/// x · tanh(log(1 + eˣ)).
#[inline(always)]
pub fn mish<L: Lanes>(l: L, x: L::F) -> L::F {
    l.mul(x, call::<of::Tanh, L>(l, Function::Tanh, softplus(l, x)))
}

/// x · Φ(x) = x/2 · (1 + erf(x/√2)), by the device's own error function; else max(x, 0) − |x| · Φ(−|x|).
#[inline(always)]
pub fn gelu<L: Lanes>(l: L, x: L::F) -> L::F {
    match l.native(Function::Erf, l.mul(x, l.constant(std::f64::consts::FRAC_1_SQRT_2))) {
        Some(e) => {
            let half = l.mul(x, l.splat(0.5));
            l.mul_add(half, e, half)
        }
        None => {
            // From 11.5 on Φ(−|x|) is 0, and |x| · 0 is too where x is positive; −∞ · 0 is NaN, as by the formula. The raw operations keep
            // a NaN in `x`.
            let reach = l.splat(11.5);
            let a = l.max_raw(l.neg(x), l.min_raw(reach, x));
            l.neg_mul_add(a, normal_tail(l, l.min_raw(reach, a)), l.max_raw(l.zero(), x))
        }
    }
}

/// Φ(−a) = ½ · 2^(−a·q(a)) for a in [0, 11.5]. The polynomial q is the best where an error of Φ(−a) counts relative to Φ(a), as it does in
/// max(x, 0) − a·Φ(−a) for positive x, and 1/100,000 as much relative to Φ(−a) itself, which has three digits up to 6.
#[inline(always)]
fn normal_tail<L: Lanes>(l: L, a: L::F) -> L::F {
    let r = polynomial(
        l,
        a,
        [
            -1.558_675_6e-6,
            2.551_993e-5,
            -1.283_158_2e-4,
            -2.554_917_3e-4,
            7.189_243e-3,
            -5.256_305_6e-2,
            -4.591_925_7e-1,
            -1.151_106_4,
        ],
    );
    half_exp2(l, l.mul(r, a))
}

/// 2·√(2/π).
const SLOPE: f64 = 1.595_769_121_605_730_8;

/// x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))).
#[inline(always)]
pub fn gelu_tanh<L: Lanes>(l: L, x: L::F) -> L::F {
    // (1 + tanh u) / 2 = sigmoid(2u).
    let z = l.mul(x, x);
    let p = l.mul_add(z, l.constant(0.044_715 * SLOPE), l.constant(SLOPE));
    l.mul(x, sigmoid(l, l.mul(x, p)))
}

/// `min(max(x, lo), hi)`; NaN stays NaN.
#[inline(always)]
pub fn clip<L: Lanes>(l: L, x: L::F, lo: f32, hi: f32) -> L::F {
    // The raw operations return their second operand on NaN, which is always `x` here.
    l.min_raw(l.splat(hi), l.max_raw(l.splat(lo), x))
}

/// x · min(max(x/6 + 1/2, 0), 1).
#[inline(always)]
pub fn hard_swish<L: Lanes>(l: L, x: L::F) -> L::F {
    l.mul(x, clip(l, l.mul_add(x, l.constant(1.0 / 6.0), l.splat(0.5)), 0.0, 1.0))
}
