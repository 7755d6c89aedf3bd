//! The cube root.

use crate::lanes::{Lanes, polynomial};

/// 2⁰, 2^⅓ and 2^⅔.
const ROOTS: [f32; 3] = [1.0, 1.259_921, 1.587_401_1];

/// The cube root, odd: |x| = m·2^(3q + r) with m in [1, 2); a polynomial for ∛m, a factor for r, and one step of Newton's
/// iteration on m·2ʳ.
#[inline(always)]
pub fn cbrt<L: Lanes>(l: L, x: L::F) -> L::F {
    let a = l.abs(x);
    // The smallest numbers are taken eight powers of eight up.
    let tiny = l.lt(a, l.splat(f32::MIN_POSITIVE));
    let scaled = l.bits(l.select(tiny, l.mul(a, l.splat(16_777_216.0)), a));
    let m = l.or_i(l.and_i(scaled, l.splat_i(0x7F_FFFF)), l.splat_i(0x3F80_0000));
    let e = l.from_int(l.sub_i(l.shr_i::<23>(scaled), l.splat_i(127)));
    // (e − 1) / 3 is within a third of q.
    let q = l.round(l.mul(l.sub(e, l.splat(1.0)), l.splat(1.0 / 3.0)));
    let r = l.sub(e, l.mul(q, l.splat(3.0)));

    let y = polynomial(
        l,
        l.from_bits(m),
        [5.348_553e-3, -5.038_658_5e-2, 2.027_773_9e-1, -4.692_29e-1, 8.381_603e-1, 4.733_306_2e-1],
    );
    let factor = l.select(l.lt(r, l.splat(0.5)), l.splat(ROOTS[0]), l.splat(ROOTS[1]));
    let factor = l.select(l.lt(l.splat(1.5), r), l.splat(ROOTS[2]), factor);
    let y = l.mul(y, factor);
    let m = l.from_bits(l.add_i(m, l.shl_i::<23>(l.to_int(r))));
    let excess = l.sub(y, l.div(m, l.mul(y, y)));
    let y = l.neg_mul_add(excess, l.splat(1.0 / 3.0), y);

    let y = l.from_bits(l.add_i(l.bits(y), l.shl_i::<23>(l.to_int(q))));
    let y = l.select(tiny, l.mul(y, l.splat(1.0 / 256.0)), y);
    // Zero, infinity and NaN are their own roots.
    let ordinary = l.mask_and(l.lt(l.zero(), a), l.lt(a, l.splat(f32::INFINITY)));
    l.select(ordinary, l.copysign(y, x), x)
}
