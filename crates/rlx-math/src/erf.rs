//! The error function and its inverse.

use crate::exp::exp;
use crate::lanes::{Lanes, polynomial};
use crate::log::log;

/// The error function: near zero an odd polynomial; beyond 475/512, 1 − exp(polynomial).
#[inline(always)]
pub fn erf<L: Lanes>(l: L, x: L::F) -> L::F {
    let t = l.abs(x);
    let z = l.mul(x, x);
    let mut r = l.mul_add(l.splat(-1.728_534_7e-5), t, l.splat(3.831_972e-4));
    let u = l.mul_add(l.splat(-3.883_964_4e-3), t, l.splat(2.425_462_2e-2));
    r = l.mul_add(r, z, u);
    r = l.mul_add(r, t, l.splat(-1.067_778_8e-1));
    r = l.mul_add(r, t, l.splat(-6.348_467e-1));
    r = l.mul_add(r, t, l.splat(-1.287_175_1e-1));
    r = l.mul_add(r, t, l.neg(t));
    let far = l.copysign(l.sub(l.splat(1.0), exp(l, r)), x);
    // Past 4 the result is 1, and the polynomial would overflow to NaN at infinity.
    let far = l.select(l.lt(l.splat(4.0), t), l.copysign(l.splat(1.0), x), far);

    let r = polynomial(
        l,
        z,
        [-5.967_617e-4, 4.991_194e-3, -2.676_813_5e-2, 1.128_199_2e-1, -3.761_253_4e-1, 1.283_791_7e-1],
    );
    let near = l.mul_add(r, x, x);
    l.select(l.lt(l.splat(0.927_734_4), t), far, near)
}

/// The inverse of the error function: ±∞ at ±1, NaN beyond.
///
/// x times a polynomial in w = −log(1 − x²) or, for w ≥ 5, in √w: the single-precision approximation of M. Giles,
/// "Approximating the erfinv function", GPU Computing Gems Jade Edition, 2011 (preprint 2010), with his coefficients.
#[inline(always)]
pub fn erfinv<L: Lanes>(l: L, x: L::F) -> L::F {
    let (a, one) = (l.abs(x), l.splat(1.0));
    let w = l.neg(log(l, l.mul(l.sub(one, a), l.add(one, a))));
    let central = polynomial(
        l,
        l.sub(w, l.splat(2.5)),
        [
            2.810_226_4e-8,
            3.432_739_4e-7,
            -3.523_387_7e-6,
            -4.391_506_5e-6,
            2.185_808_7e-4,
            -1.253_725e-3,
            -4.177_681_6e-3,
            2.466_407_3e-1,
            1.501_409_4,
        ],
    );
    // √w would be that of a negative number where x is beyond 1 or rounding leaves −0.
    let root = l.sqrt(l.max_raw(l.zero(), w));
    let tail = polynomial(
        l,
        l.sub(root, l.splat(3.0)),
        [
            -2.002_142_6e-4,
            1.009_505_6e-4,
            1.349_343_2e-3,
            -3.673_428_4e-3,
            5.739_507_7e-3,
            -7.622_461e-3,
            9.438_870_5e-3,
            1.001_674,
            2.832_976_8,
        ],
    );
    let y = l.mul(l.select(l.lt(w, l.splat(5.0)), central, tail), x);
    let y = l.select(l.eq(a, one), l.copysign(l.splat(f32::INFINITY), x), y);
    l.select(l.lt(one, a), l.splat(f32::NAN), y)
}
