//! Powers.

use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// xʸ, correctly rounded but for rare ties, with the special values of IEEE 754 `pow`.
///
/// Computed in f64; exponents that all equal a small constant take a short way.
#[inline(always)]
pub fn pow<S: Simd>(s: S, x: S::F, y: S::F) -> S::F {
    let all = s.to_array(y);
    let uniform = s.mask_bits(s.eq(y, s.splat(all[0]))) == u16::MAX;
    if uniform {
        match all[0] {
            1.0 => return x,
            2.0 => return s.mul(x, x),
            -1.0 => return s.div(s.splat(1.0), x),
            _ => {}
        }
    }
    let (most, lanes) = (s.splat(f32::MAX), s.to_array(x));
    let positive = s.mask_and(s.lt(s.zero(), x), s.le(x, most));
    let ordinary = s.mask_and(positive, s.le(s.abs(y), most));
    let powers =
        if s.mask_bits(ordinary) == u16::MAX { of_positive(&lanes, &all) } else { scalar(lanes, &all) };
    s.from_array(&powers)
}

#[inline(never)]
fn scalar(mut x: [f32; LANES], y: &[f32; LANES]) -> [f32; LANES] {
    for (x, &y) in x.iter_mut().zip(y) {
        *x = f64::from(*x).powf(f64::from(y)) as f32;
    }
    x
}

/// Powers of finite numbers above zero, 2^(y · log₂ x), in f64: before they are rounded to f32, they are right to some 2⁻⁴². No lane
/// takes another way than others, and nothing is fused, so that the compiler makes vectors of the loop and every instruction set has the same bits.
#[inline(always)]
fn of_positive(x: &[f32; LANES], y: &[f32; LANES]) -> [f32; LANES] {
    let mut powers = [0.0; LANES];
    for (power, (&x, &y)) in powers.iter_mut().zip(x.iter().zip(y)) {
        // Beyond these bounds the f32 is 0 or ∞ already.
        *power = exp2((f64::from(y) * log2(f64::from(x))).clamp(-1000.0, 1000.0)) as f32;
    }
    powers
}

/// Bits of the exponent of 1, and of √½.
const ONE: u64 = 1023 << 52;
const ROOT_HALF: u64 = std::f64::consts::FRAC_1_SQRT_2.to_bits();

/// The logarithm of a normal number: that of its power of two, and ln m = 2 · artanh((m − 1) / (m + 1)) for √½ ≤ m < √2 by its series.
#[inline(always)]
fn log2(x: f64) -> f64 {
    let bits = x.to_bits();
    // The exponent counted from √½, in its place and with its bias.
    let exponent = bits.wrapping_sub(ROOT_HALF).wrapping_add(ONE) & (0xfff << 52);
    let m = f64::from_bits(bits.wrapping_sub(exponent).wrapping_add(ONE));
    // A number below 2⁵² as the lowest digits of a float, which is the conversion that every instruction set has for vectors.
    const INTEGER: f64 = (1u64 << 52) as f64;
    let n = f64::from_bits(INTEGER.to_bits() | exponent >> 52) - (INTEGER + 1023.0);
    let t = (m - 1.0) / (m + 1.0);
    let z = t * t;
    let mut series = 1.0 / 21.0;
    for k in (0..10).rev() {
        series = series * z + 1.0 / f64::from(2 * k + 1);
    }
    n + 2.0 * std::f64::consts::LOG2_E * t * series
}

/// 2^p for |p| ≤ 1000: 2^f = e^(f · ln 2) with |f| ≤ ½ by its series, times 2ⁿ.
#[inline(always)]
fn exp2(p: f64) -> f64 {
    // The nearest integer is the lowest digits of this sum.
    const INTEGER: f64 = 1.5 * (1u64 << 52) as f64;
    let sum = p + INTEGER;
    let f = (p - (sum - INTEGER)) * std::f64::consts::LN_2;
    let mut series = 1.0;
    for k in (1..13).rev() {
        series = series * (f * (1.0 / f64::from(k))) + 1.0;
    }
    f64::from_bits(series.to_bits().wrapping_add(sum.to_bits() << 52))
}

struct Pow<'a> {
    x: &'a mut [f32],
    y: &'a [f32],
}

impl Kernel for Pow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut ys = self.y.chunks(LANES);
        for x in self.x.chunks_mut(LANES) {
            let Some(y) = ys.next() else { return };
            let n = x.len().min(y.len());
            // SAFETY: both chunks have at least `n` elements.
            unsafe {
                let r = pow(s, s.load_upto(x.as_ptr(), n), s.load_upto(y.as_ptr(), n));
                s.store_upto(x.as_mut_ptr(), n, r);
            }
        }
    }
}

/// `x[i] = x[i]^y[i]` over the shorter of the two.
pub fn pow_slices(isa: Isa, x: &mut [f32], y: &[f32]) {
    isa.run(Pow { x, y });
}
