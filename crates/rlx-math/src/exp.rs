//! The exponential and the hyperbolic functions.
//!
//! The argument is reduced as Cody and Waite do ("Software Manual for the Elementary Functions", 1980): x = n·ln 2 + f with
//! ln 2 in two parts, of which the first is short enough that n times it is exact.

use crate::lanes::{Lanes, polynomial};
use crate::tanh_table;

/// ln 2 with enough trailing zeros that n·LN2_HI is exact for |n| < 2⁹ …
pub(crate) const LN2_HI: f32 = 6.931_457_5e-1;
/// … and the rest of it.
pub(crate) const LN2_LO: f32 = 1.428_606_8e-6;

/// `x = n·ln 2 + f` with |f| ≤ ln 2 / 2: `(n, f)`.
#[inline(always)]
fn reduced<L: Lanes>(l: L, x: L::F) -> (L::F, L::F) {
    let n = l.round(l.mul(x, l.splat(std::f32::consts::LOG2_E)));
    let f = l.neg_mul_add(n, l.splat(LN2_HI), x);
    (n, l.neg_mul_add(n, l.splat(LN2_LO), f))
}

/// eˣ: e^f by a minimax polynomial of degree six, times 2ⁿ.
#[inline(always)]
pub fn exp<L: Lanes>(l: L, x: L::F) -> L::F {
    // Beyond these bounds the result is 0 or ∞ already. The raw operations keep a NaN in `x`.
    exp_within(l, l.max_raw(l.splat(-105.0), l.min_raw(l.splat(90.0), x)))
}

/// [`exp`] of arguments from −105 to 90.
#[inline(always)]
fn exp_within<L: Lanes>(l: L, x: L::F) -> L::F {
    let (n, f) = reduced(l, x);
    let r = polynomial(
        l,
        f,
        [1.378_059_4e-3, 8.373_124_5e-3, 4.166_953_6e-2, 1.666_647_2e-1, 4.999_998_5e-1, 1.0, 1.0],
    );
    l.scale2(r, n)
}

/// eˣ for x up to 80, and 0 from where it is hardly above the denormal numbers: for weights of a softmax, beside whose largest, 1, those are
/// nothing. To compute a denormal number, and a product with one, takes Intel's processors more than a hundred cycles.
#[inline(always)]
pub fn exp_normal<L: Lanes>(l: L, x: L::F) -> L::F {
    // Some thousandths above ln 2⁻¹²⁶: what is computed for smaller arguments, too, must not be denormal.
    let smallest = l.splat(-87.33);
    l.select(l.lt(x, smallest), l.zero(), exp_within(l, l.max_raw(smallest, x)))
}

/// [`exp_normal`] with sixteen bits, for results that are rounded to half as many: 2^f by a minimax polynomial of degree four, times 2ⁿ. No relative
/// error is larger than 2⁻¹⁶.
#[inline(always)]
pub fn exp_short<L: Lanes>(l: L, x: L::F) -> L::F {
    let smallest = l.splat(-125.99);
    let x = l.mul(x, l.splat(std::f32::consts::LOG2_E));
    // The raw operation keeps a NaN in `x`.
    let within = l.max_raw(smallest, x);
    let n = l.round(within);
    let r = polynomial(
        l,
        l.sub(within, n),
        [9.570_102e-3, 5.591_786_3e-2, 2.402_474_4e-1, 6.931_218e-1, 9.999_993e-1],
    );
    l.select(l.lt(x, smallest), l.zero(), l.scale2(r, n))
}

/// Half of 2ˣ for x in [−200, 126].
#[inline(always)]
pub(crate) fn half_exp2<L: Lanes>(l: L, x: L::F) -> L::F {
    let n = l.round(x);
    half_exp2_of(l, n, l.sub(x, n))
}

/// Half of 2^(n + f) for an integer n and |f| ≤ 1/2: half of 2^f by a minimax polynomial of degree six, times 2ⁿ.
#[inline(always)]
fn half_exp2_of<L: Lanes>(l: L, n: L::F, f: L::F) -> L::F {
    let r = polynomial(
        l,
        f,
        [7.676_681e-5, 6.699_437e-4, 4.809_219e-3, 2.775_166_2e-2, 1.201_132_4e-1, 3.465_736e-1, 0.5],
    );
    l.scale2(r, n)
}

/// eˣ − 1, also where eˣ is next to 1: 2ⁿ·(e^f − 1) + (2ⁿ − 1), as in fdlibm's `s_expm1.c`.
#[inline(always)]
pub fn expm1<L: Lanes>(l: L, x: L::F) -> L::F {
    // Beyond these bounds the result is −1 or ∞ already. The raw operations keep a NaN in `x`.
    let v = l.max_raw(l.splat(-18.0), l.min_raw(l.splat(89.0), x));
    let (n, f) = reduced(l, v);
    let p = polynomial(l, f, [1.394_653e-3, 8.366_631e-3, 4.166_628e-2, 1.666_654_2e-1, 0.5]);
    let p = l.mul_add(l.mul(f, f), p, f);
    // Half of the result, so that n = 128 has its power of two.
    let half_power = l.from_bits(l.shl_i::<23>(l.add_i(l.to_int(n), l.splat_i(126))));
    let half = l.mul_add(p, half_power, l.sub(half_power, l.splat(0.5)));
    // Halving would take a digit of the smallest numbers, whose result is themselves.
    let tiny = l.lt(l.abs(x), l.splat(f32::EPSILON / 4.0));
    l.select(tiny, x, l.add(half, half))
}

/// The hyperbolic tangent by pieces of polynomials, where `l` looks numbers up.
#[inline(always)]
fn tanh_by_table<L: Lanes>(l: L, x: L::F) -> Option<L::F> {
    // The raw operations keep a NaN.
    let a = l.min_raw(l.splat(tanh_table::FAR), l.abs(x));
    let piece = l.shr_i::<{ tanh_table::BELOW_PIECE }>(l.bits(l.max_raw(l.splat(tanh_table::NEAR), a)));
    let [centres, tangents, coefficients @ ..] = &tanh_table::TABLE;
    let t = l.sub(a, l.look_up(centres, piece)?);
    let [first, second, third, fourth, fifth] = coefficients;
    let y = l.mul_add(l.look_up(fifth, piece)?, t, l.look_up(fourth, piece)?);
    let y = l.mul_add(y, t, l.look_up(third, piece)?);
    let y = l.mul_add(y, t, l.look_up(second, piece)?);
    let y = l.mul_add(y, t, l.look_up(first, piece)?);
    Some(l.copysign(l.mul_add(y, t, l.look_up(tangents, piece)?), x))
}

/// The hyperbolic tangent: an odd polynomial near zero, 1 − 1 / (e^2|x| / 2 + 1/2) beyond; pieces of polynomials where lanes look
/// numbers up.
#[inline(always)]
pub fn tanh<L: Lanes>(l: L, x: L::F) -> L::F {
    if let Some(y) = tanh_by_table(l, x) {
        return y;
    }
    let a = l.abs(x);
    // From 20 on the result is ±1. The raw operation keeps a NaN in `x`.
    let within = l.min_raw(l.splat(20.0), a);
    let to_base_2 = l.constant(2.0 * std::f64::consts::LOG2_E);
    let n = l.round(l.mul(within, to_base_2));
    let half_power = half_exp2_of(l, n, l.mul_add(within, to_base_2, l.neg(n)));
    let one = l.splat(1.0);
    let far = l.sub(one, l.div(one, l.add(half_power, l.splat(0.5))));
    let z = l.mul(x, x);
    let r = polynomial(l, z, [-5.138_658e-3, 2.009_196_6e-2, -5.355_886e-2, 1.332_911_1e-1, -3.333_319_3e-1]);
    let near = l.mul_add(l.mul(r, z), a, a);
    l.copysign(l.select(l.lt(a, l.splat(0.7)), near, far), x)
}

/// Half of e^a, also where e^a itself is too large: (e^(a/2) / 2) · e^(a/2).
#[inline(always)]
fn half_exp<L: Lanes>(l: L, a: L::F) -> L::F {
    let root = exp(l, l.mul(a, l.splat(0.5)));
    l.mul(l.mul(root, l.splat(0.5)), root)
}

/// From here on e^−a changes no digit of e^a.
const FAR: f32 = 9.5;

/// The hyperbolic sine: (t + t / (t + 1)) / 2 with t = e^|x| − 1, as in fdlibm's `e_sinh.c`.
#[inline(always)]
pub fn sinh<L: Lanes>(l: L, x: L::F) -> L::F {
    let a = l.abs(x);
    let t = expm1(l, l.min_raw(l.splat(FAR), a));
    let near = l.mul(l.add(t, l.div(t, l.add(t, l.splat(1.0)))), l.splat(0.5));
    // Half of twice the smallest numbers is not always themselves.
    let near = l.select(l.lt(a, l.splat(1e-4)), a, near);
    l.copysign(l.select(l.lt(a, l.splat(FAR)), near, half_exp(l, a)), x)
}

/// The hyperbolic cosine: (e^|x| + e^−|x|) / 2.
#[inline(always)]
pub fn cosh<L: Lanes>(l: L, x: L::F) -> L::F {
    let a = l.abs(x);
    let e = exp(l, l.min_raw(l.splat(FAR), a));
    let half = l.splat(0.5);
    let near = l.add(l.mul(e, half), l.div(half, e));
    l.select(l.lt(a, l.splat(FAR)), near, half_exp(l, a))
}
