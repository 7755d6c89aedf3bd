//! Sine and cosine.

use crate::simd::{LANES, Simd};

/// Up to here three parts of π/2 reduce the argument accurately; beyond, each lane is done alone.
const LIMIT: f32 = 7.0e4;

/// The sine, to 1.5 ULP.
#[inline(always)]
pub fn sin<S: Simd>(s: S, x: S::F) -> S::F {
    // The reduction of −0 gives +0.
    s.select(s.eq(x, s.zero()), x, sin_quadrant(s, x, 0, f32::sin))
}

/// The cosine, to 1.5 ULP.
#[inline(always)]
pub fn cos<S: Simd>(s: S, x: S::F) -> S::F {
    sin_quadrant(s, x, 1, f32::cos)
}

/// sin(x + shift·π/2); `exact` is the scalar function for arguments out of reach.
#[inline(always)]
fn sin_quadrant<S: Simd>(s: S, x: S::F, shift: i32, exact: fn(f32) -> f32) -> S::F {
    let far = s.mask_bits(s.lt(s.abs(x), s.splat(LIMIT))) != u16::MAX;
    // Without fused multiply-add the reduction loses the low bits.
    if far || !S::FUSED {
        return lane_by_lane(s, x, exact);
    }
    let j = s.round(s.mul(x, s.splat(std::f32::consts::FRAC_2_PI)));
    let q = s.add_i(s.to_int(j), s.splat_i(shift));
    // The leading digits alone: the next lines subtract the rest.
    #[allow(clippy::approx_constant)]
    let r = s.neg_mul_add(j, s.splat(1.570_796), x);
    let r = s.neg_mul_add(j, s.splat(3.139_164_7e-7), r);
    let r = s.neg_mul_add(j, s.splat(5.390_302_5e-15), r);
    let z = s.mul(r, r);

    let mut p = s.splat(2.865_679_6e-6);
    p = s.mul_add(p, z, s.splat(-1.985_599_2e-4));
    p = s.mul_add(p, z, s.splat(8.333_386e-3));
    p = s.mul_add(p, z, s.splat(-1.666_666_7e-1));
    let sine = s.mul_add(p, s.mul(r, z), r);

    let mut p = s.splat(2.446_770_7e-5);
    p = s.mul_add(p, z, s.splat(-1.388_773e-3));
    p = s.mul_add(p, z, s.splat(4.166_665_7e-2));
    p = s.mul_add(p, z, s.splat(-0.5));
    let cosine = s.mul_add(p, z, s.splat(1.0));

    let even = s.eq_i(s.and_i(q, s.splat_i(1)), s.splat_i(0));
    let v = s.select(even, sine, cosine);
    let sign = s.shl_i::<30>(s.and_i(q, s.splat_i(2)));
    s.from_bits(s.xor_i(s.bits(v), sign))
}

#[cold]
#[inline(never)]
fn scalar(lanes: &mut [f32; LANES], exact: fn(f32) -> f32) {
    for v in lanes {
        *v = exact(*v);
    }
}

#[inline(always)]
fn lane_by_lane<S: Simd>(s: S, x: S::F, exact: fn(f32) -> f32) -> S::F {
    let mut lanes = s.to_array(x);
    scalar(&mut lanes, exact);
    s.from_array(&lanes)
}
