//! Sine, cosine, tangent and their inverses.

use crate::lanes::{Lanes, polynomial};

/// Up to here three parts of π/2 reduce the argument accurately.
const LIMIT: f32 = 7.0e4;

/// π/2 in three parts, for a multiply-add that rounds once. The leading digits alone: each part is what the ones before
/// it leave.
#[allow(clippy::approx_constant)]
const FUSED_PARTS: [f32; 3] = [1.570_796, 3.139_164_7e-7, 5.390_302_5e-15];
/// π/2 in four parts of at most eleven bits but for the last, whose products with quotients below 2¹³ are exact (the first
/// two are those of Moshier's Cephes library, `sinf.c`).
const SEPARATE_PARTS: [f32; 4] = [1.570_312_5, 4.837_513e-4, 7.549_533_6e-8, 2.563_344e-12];

/// The sine.
#[inline(always)]
pub fn sin<L: Lanes>(l: L, x: L::F) -> L::F {
    // The reduction of −0 gives +0.
    l.select(l.eq(x, l.zero()), x, sin_quadrant(l, x, 0, f32::sin))
}

/// The cosine.
#[inline(always)]
pub fn cos<L: Lanes>(l: L, x: L::F) -> L::F {
    sin_quadrant(l, x, 1, f32::cos)
}

/// The tangent, as the quotient of sine and cosine.
#[inline(always)]
pub fn tan<L: Lanes>(l: L, x: L::F) -> L::F {
    let (sine, cosine, q) = sine_and_cosine(l, x);
    let odd = l.eq_i(l.and_i(q, l.splat_i(1)), l.splat_i(1));
    let y = l.div(l.select(odd, l.neg(cosine), sine), l.select(odd, sine, cosine));
    l.select(l.eq(x, l.zero()), x, y)
}

/// sin(x + shift·π/2); `exact` is the scalar function for arguments out of reach.
#[inline(always)]
fn sin_quadrant<L: Lanes>(l: L, x: L::F, shift: i32, exact: fn(f32) -> f32) -> L::F {
    // Without fused multiply-add the reduction loses the low bits: scalar code is better for every argument.
    let fast = if L::FUSED { l.lt(l.abs(x), l.splat(LIMIT)) } else { l.lt(x, x) };
    if let Some(y) = l.by_scalar_code(fast, x, exact) {
        return y;
    }
    let (sine, cosine, q) = sine_and_cosine(l, x);
    let q = l.add_i(q, l.splat_i(shift));
    let even = l.eq_i(l.and_i(q, l.splat_i(1)), l.splat_i(0));
    let v = l.select(even, sine, cosine);
    let sign = l.shl_i::<30>(l.and_i(q, l.splat_i(2)));
    l.from_bits(l.xor_i(l.bits(v), sign))
}

/// x less j times each part.
#[inline(always)]
fn less<L: Lanes, const N: usize>(l: L, x: L::F, j: L::F, parts: [f32; N]) -> L::F {
    let (mut r, mut i) = (x, 0);
    while i < N {
        r = l.neg_mul_add(j, l.splat(parts[i]), r);
        i += 1;
    }
    r
}

/// x = q·π/2 + r with |r| ≤ π/4: sin r and cos r by polynomials, and q.
#[inline(always)]
fn sine_and_cosine<L: Lanes>(l: L, x: L::F) -> (L::F, L::F, L::I) {
    let j = l.round(l.mul(x, l.splat(std::f32::consts::FRAC_2_PI)));
    let r = if L::FUSED { less(l, x, j, FUSED_PARTS) } else { less(l, x, j, SEPARATE_PARTS) };
    let z = l.mul(r, r);
    let p = polynomial(l, z, [2.865_679_6e-6, -1.985_599_2e-4, 8.333_386e-3, -1.666_666_7e-1]);
    let sine = l.mul_add(p, l.mul(r, z), r);
    let p = polynomial(l, z, [2.446_770_7e-5, -1.388_773e-3, 4.166_665_7e-2, -0.5]);
    let cosine = l.mul_add(p, z, l.splat(1.0));
    (sine, cosine, l.to_int(j))
}

/// The arc tangent, by the reduction and the polynomial of Moshier's Cephes library (`atanf.c`): beyond tan 3π/8 as
/// π/2 − atan(1/x), beyond tan π/8 as π/4 + atan((x − 1)/(x + 1)).
#[inline(always)]
pub fn atan<L: Lanes>(l: L, x: L::F) -> L::F {
    let (a, one) = (l.abs(x), l.splat(1.0));
    let large = l.lt(l.splat(2.414_213_7), a);
    let middle = l.lt(l.splat(0.414_213_57), a);
    let v = l.select(middle, l.div(l.sub(a, one), l.add(a, one)), a);
    let v = l.select(large, l.div(l.splat(-1.0), a), v);
    let start = l.select(middle, l.splat(std::f32::consts::FRAC_PI_4), l.zero());
    let start = l.select(large, l.splat(std::f32::consts::FRAC_PI_2), start);
    let z = l.mul(v, v);
    let p = polynomial(l, z, [8.053_744_6e-2, -1.387_768_5e-1, 1.997_771_1e-1, -3.333_295e-1]);
    let p = l.mul_add(l.mul(p, z), v, v);
    l.copysign(l.add(start, p), x)
}

/// asin v of a number in [0, ½], by the polynomial of Moshier's Cephes library (`asinf.c`); `z` is v².
#[inline(always)]
fn asin_near<L: Lanes>(l: L, v: L::F, z: L::F) -> L::F {
    let p = polynomial(l, z, [4.216_32e-2, 2.418_131e-2, 4.547_002_6e-2, 7.495_300_3e-2, 1.666_675_2e-1]);
    l.mul_add(l.mul(p, z), v, v)
}

/// |x| ≤ 1: whether it is beyond ½, and asin |x| or, beyond ½, asin √((1 − |x|)/2).
#[inline(always)]
fn asin_reduced<L: Lanes>(l: L, x: L::F) -> (L::M, L::F) {
    let a = l.abs(x);
    let far = l.lt(l.splat(0.5), a);
    let z = l.select(far, l.mul(l.sub(l.splat(1.0), a), l.splat(0.5)), l.mul(a, a));
    let v = l.select(far, l.sqrt(z), a);
    (far, asin_near(l, v, z))
}

/// NaN where |x| > 1, else `y`.
#[inline(always)]
fn within_one<L: Lanes>(l: L, x: L::F, y: L::F) -> L::F {
    l.select(l.lt(l.splat(1.0), l.abs(x)), l.splat(f32::NAN), y)
}

/// The arc sine: beyond ½ as π/2 − 2·asin √((1 − |x|)/2).
#[inline(always)]
pub fn asin<L: Lanes>(l: L, x: L::F) -> L::F {
    let (far, v) = asin_reduced(l, x);
    let y = l.select(far, l.sub(l.splat(std::f32::consts::FRAC_PI_2), l.add(v, v)), v);
    within_one(l, x, l.copysign(y, x))
}

/// The arc cosine: near 0 as π/2 − asin x, else as 2·asin √((1 − x)/2) or its supplement.
#[inline(always)]
pub fn acos<L: Lanes>(l: L, x: L::F) -> L::F {
    let (far, v) = asin_reduced(l, x);
    let negative = l.lt(x, l.zero());
    let twice = l.add(v, v);
    let beyond = l.select(negative, l.sub(l.splat(std::f32::consts::PI), twice), twice);
    let near = l.sub(l.splat(std::f32::consts::FRAC_PI_2), l.copysign(v, x));
    within_one(l, x, l.select(far, beyond, near))
}

/// sin(π·r) for |r| ≤ ½, by a minimax polynomial: odd and accurate next to 0.
#[inline(always)]
pub(crate) fn sin_pi<L: Lanes>(l: L, r: L::F) -> L::F {
    let z = l.mul(r, r);
    let p = polynomial(
        l,
        z,
        [-7.022_164_3e-3, 8.204_648e-2, -5.992_513_3e-1, 2.550_163_3, -5.167_712_7, std::f32::consts::PI],
    );
    l.mul(p, r)
}
