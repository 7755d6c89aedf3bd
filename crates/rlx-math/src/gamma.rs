//! The gamma function, its logarithm, and the derivative of that.
//!
//! All three go by the recurrence Γ(x + 1) = x·Γ(x) to an interval where a minimax polynomial is accurate; the logarithm and
//! the derivative take Stirling's series (DLMF 5.11.1 and 5.11.2) for large arguments, and reflect negative ones (DLMF 5.5.3
//! and 5.5.4). x less an integer is exact wherever it is used, so no step of the recurrence loses more than one rounding.

use crate::lanes::{Lanes, polynomial};
use crate::log::log;
use crate::trig::sin_pi;

/// Whether a lane is an integer below zero, or −∞.
#[inline(always)]
fn is_negative_integer<L: Lanes>(l: L, x: L::F) -> L::M {
    l.mask_and(l.lt(x, l.zero()), l.eq(x, l.floor(x)))
}

/// The gamma function: ±∞ at ±0, NaN at the other poles and at −∞.
///
/// Γ(2 + f) for f in [0, 1] by a polynomial of degree eight, times or divided by the factors between `x` and 2 + f.
#[inline(always)]
pub fn gamma<L: Lanes>(l: L, x: L::F) -> L::F {
    let (one, two, three) = (l.splat(1.0), l.splat(2.0), l.splat(3.0));
    let down = l.lt(x, two);
    // How far the first factor is beyond 2, on the side away from it; factors are taken while that is positive.
    let first = l.select(down, x, l.sub(x, one));
    let distance = l.select(down, l.sub(two, x), l.sub(x, three));
    let steps = l.max_raw(l.zero(), l.ceil(distance));
    let step = l.select(down, one, l.splat(-1.0));
    let f = l.sub(l.add(x, l.mul(steps, step)), two);
    let base = polynomial(
        l,
        f,
        [
            7.977_22e-4,
            -1.583_565_8e-3,
            1.034_051_1e-2,
            6.897_959e-5,
            7.416_293e-2,
            8.158_969e-2,
            4.118_393_7e-1,
            4.227_843_6e-1,
            1.0,
        ],
    );
    // Two products, because 1/Γ of the smallest results has more than f32 holds.
    let (p, factor, distance) = factors(l, first, distance, step, 24);
    let (q, _, _) = factors(l, factor, distance, step, 24);
    let y = l.select(down, l.div(l.div(base, p), q), l.mul(l.mul(base, p), q));
    let y = l.select(l.lt(l.splat(36.0), x), l.splat(f32::INFINITY), y);
    let y = l.select(l.lt(x, l.splat(-46.0)), l.zero(), y);
    l.select(is_negative_integer(l, x), l.splat(f32::NAN), y)
}

/// The product of up to `count` factors, each `step` from the one before it, while `distance` is positive; and the factor
/// and the distance after them.
#[inline(always)]
fn factors<L: Lanes>(l: L, first: L::F, distance: L::F, step: L::F, count: u32) -> (L::F, L::F, L::F) {
    let one = l.splat(1.0);
    let (mut product, mut factor, mut distance) = (one, first, distance);
    let mut i = 0;
    while i < count {
        product = l.select(l.lt(l.zero(), distance), l.mul(product, factor), product);
        factor = l.add(factor, step);
        distance = l.sub(distance, one);
        i += 1;
    }
    (product, factor, distance)
}

/// log |Γ(x)|: +∞ at the poles and at ±∞.
#[inline(always)]
pub fn lgamma<L: Lanes>(l: L, x: L::F) -> L::F {
    let (a, half) = (l.abs(x), l.splat(0.5));
    let next_to_zero = l.lt(a, half);
    let (near, product, below) = lgamma_near(l, x);
    // log Γ = (a − ½)·(log a − 1) + (log 2π − 1)/2 + 1/12a − …, from 8 on.
    let large = l.le(l.splat(8.0), a);
    let logarithm = log(l, l.select(large, a, product));
    let inverse = l.div(l.splat(1.0), a);
    let series = polynomial(l, l.mul(inverse, inverse), [7.936_508e-4, -2.777_777_8e-3, 8.333_333_6e-2]);
    let constant = l.mul_add(series, inverse, l.splat(0.418_938_52));
    let far = l.mul_add(l.sub(a, half), l.sub(logarithm, l.splat(1.0)), constant);
    let near = l.select(below, l.sub(near, logarithm), l.add(near, logarithm));
    let y = l.select(large, far, near);
    // Γ(x)·Γ(−x) = −π / (x·sin πx).
    let sine = l.abs(sin_pi(l, l.sub(a, l.round(a))));
    let mirrored = l.sub(log(l, l.div(l.splat(std::f32::consts::PI), l.mul(a, sine))), y);
    let reflected = l.mask_and(l.lt(x, l.zero()), l.mask_not(next_to_zero));
    let y = l.select(reflected, mirrored, y);
    let infinite = l.mask_or(l.eq(a, l.splat(f32::INFINITY)), is_negative_integer(l, x));
    l.select(l.mask_or(infinite, l.eq(a, l.zero())), l.splat(f32::INFINITY), y)
}

/// log Γ(2 + z) for |x| below 8, z its distance from 2 after the recurrence; the factors of the recurrence; and whether
/// they divide. Below ½ the argument keeps its sign, so that nothing need be reflected there.
#[inline(always)]
fn lgamma_near<L: Lanes>(l: L, x: L::F) -> (L::F, L::F, L::M) {
    let (a, one) = (l.abs(x), l.splat(1.0));
    let (mut product, mut rest) = (one, a);
    let mut i = 0;
    while i < 6 {
        let next = l.sub(rest, one);
        let more = l.lt(l.splat(1.5), next);
        product = l.select(more, l.mul(product, next), product);
        rest = l.select(more, next, rest);
        i += 1;
    }
    let below = l.lt(a, l.splat(1.25));
    let next_to_zero = l.lt(a, l.splat(0.5));
    let z = l.select(below, l.sub(a, one), l.sub(rest, l.splat(2.0)));
    let z = l.select(next_to_zero, x, z);
    let divisor = l.select(next_to_zero, l.mul(a, l.add(one, x)), a);
    let q = polynomial(
        l,
        z,
        [
            -1.319_028_8e-4,
            6.593_522e-5,
            -1.776_155_6e-4,
            5.343_561e-4,
            -1.200_899_1e-3,
            2.885_304e-3,
            -7.385_001_5e-3,
            2.058_120_4e-2,
            -6.735_231e-2,
            3.224_670_3e-1,
            4.227_843_3e-1,
        ],
    );
    (l.mul(z, q), l.select(below, divisor, product), below)
}

/// Where ψ(1 + z) is zero, in two parts.
const ROOT: [f32; 2] = [4.616_321_3e-1, 1.243_815e-8];

/// The digamma function ψ, the derivative of log Γ: ∓∞ at ±0, NaN at the other poles and at −∞.
///
/// From 6 on by Stirling's series. Below, ψ(1 + z) for z in [0, 1] as z less the root times a polynomial (as in Boost's
/// `digamma.hpp`), so that it is accurate next to the root, and the recurrence ψ(x + 1) = ψ(x) + 1/x.
#[inline(always)]
pub fn digamma<L: Lanes>(l: L, x: L::F) -> L::F {
    let (a, one) = (l.abs(x), l.splat(1.0));
    let inverse = l.div(one, a);
    let square = l.mul(inverse, inverse);
    let series = polynomial(l, square, [-4.166_667e-3, 3.968_254e-3, -8.333_333e-3, 8.333_333_6e-2]);
    let tail = l.mul_add(series, square, l.mul(inverse, l.splat(0.5)));
    let far = l.sub(log(l, a), tail);

    let (near, below) = digamma_near(l, a);
    let negative = l.lt(x, l.zero());
    let y = l.select(l.le(l.splat(6.0), a), far, near);
    // ψ(a) = ψ(1 + a) − 1/a; of a negative argument it is ψ(1 + a) that is reflected.
    let y = l.select(l.mask_and(below, l.mask_not(negative)), l.sub(y, inverse), y);
    let next = l.select(below, y, l.add(y, inverse));
    let r = l.sub(a, l.round(a));
    let sine = sin_pi(l, r);
    let cosine = sin_pi(l, l.sub(l.splat(0.5), l.abs(r)));
    let cotangent = l.div(l.mul(l.splat(std::f32::consts::PI), cosine), sine);
    let y = l.select(negative, l.add(next, cotangent), y);
    let y = l.select(l.eq(x, l.splat(f32::INFINITY)), x, y);
    let y = l.select(l.eq(a, l.zero()), l.neg(l.copysign(l.splat(f32::INFINITY), x)), y);
    l.select(is_negative_integer(l, x), l.splat(f32::NAN), y)
}

/// ψ(a) for `a` in [1, 6), and ψ(1 + a) below; and whether it is below.
#[inline(always)]
fn digamma_near<L: Lanes>(l: L, a: L::F) -> (L::F, L::M) {
    let one = l.splat(1.0);
    let (mut sum, mut rest) = (l.zero(), a);
    let mut i = 0;
    while i < 5 {
        let next = l.sub(rest, one);
        let more = l.le(one, next);
        sum = l.select(more, l.add(sum, l.div(one, next)), sum);
        rest = l.select(more, next, rest);
        i += 1;
    }
    let below = l.lt(a, one);
    let z = l.select(below, a, l.sub(rest, one));
    let r = polynomial(
        l,
        z,
        [
            1.111_891_8e-2,
            -7.197_87e-2,
            2.157_965_7e-1,
            -4.079_427_7e-1,
            5.679_436e-1,
            -6.554_935_6e-1,
            6.914_993e-1,
            -7.137_435_7e-1,
            7.524_198e-1,
            -8.546_922e-1,
            1.250_380_2,
        ],
    );
    let from_root = l.sub(l.sub(z, l.splat(ROOT[0])), l.splat(ROOT[1]));
    (l.mul_add(from_root, r, sum), below)
}
