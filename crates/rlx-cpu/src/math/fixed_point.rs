//! Quantising a linear function of integers in fixed point, to the bit of the f32 that it stands for.
//!
//! What a quantised net does behind each sum of products takes a dozen steps on floats, each rounded: `q(float(n) · scale + bias)`,
//! then `q(float(bytes) + float(others))` by [`Dequantiser`]s. Only the last rounding, to an integer, loses more than a
//! few 2⁻²⁴ of the numbers it is done on. So the whole is one multiply-add of factors found before, with [`FRACTION`] bits
//! behind the point and ½ added: the byte is what stands before the point. That is off by less than some ε, which matters only
//! where what is behind the point is next to 0; ε is added too, so that those bits are below 2ε just there. Such a vector is
//! *in doubt*, and its bytes have to be computed the long way.
//!
//! In units of 2⁻²⁴ (v: the value in steps of the bytes, at most 256 where no bound cuts it off; b: the largest magnitude of what is added up to v):
//!
//! * A chain on floats rounds its terms (|v| + b for a product, b for both of two), their sum and its quotient by the step (|v| each): off by
//!   3·|v| + b at most.
//! * Fixed point rounds its factors (|v| + b, or b for two), the quotient of a bias by the step (b), the zero point with ½ (256), the sum that the
//!   multiply-adds begin with (b + 256), the first multiply-add of two (b + 256; there is no bias then) and the last (256): off by
//!   |v| + 3·b + 768 at most, or 3·b + 1024.
//!
//! Together that is less than 1800 + 4·b. Beyond the bounds both grow, by less than what is compared.

use super::quantise::{Dequantiser, Quantiser};
use crate::simd::{LANES, Simd};

/// Bits behind the point.
const FRACTION: i32 = 16;
const ONE: f32 = (1 << FRACTION) as f32;

/// Numbers that leave products with integers finite.
const ORDINARY: f32 = (1u64 << 60) as f32;

/// The largest ε: with a greater one, too many vectors would be in doubt.
const MOST_MARGIN: f32 = 512.0;

/// ε for terms of this size, in the lowest bits: a unit of 2⁻²⁴ is 2⁻⁸ of them, and one is for the rounding to a fixed-point number.
fn margin(terms: f32) -> f32 {
    ((1800.0 + 4.0 * terms) * 2.0f32.powi(FRACTION - 24)).ceil() + 1.0
}

/// Whether no lane is beyond ± `most`, and all are numbers.
#[inline(always)]
fn within<S: Simd>(s: S, x: S::F, most: f32) -> bool {
    s.mask_bits(s.le(s.abs(x), s.splat(most))) == u16::MAX
}

/// Of which fixed-point numbers bytes are made: what is before the point, between two bounds.
///
/// The bounds are applied to integers, which takes less than on floats. A float that is too large for a fixed-point number, or NaN, is converted to the
/// largest one, or to one with nothing behind the point, which is in doubt.
#[derive(Debug, Clone, Copy)]
struct Bounded {
    low: i32,
    high: i32,
    /// 2ε.
    doubt: i32,
}

impl Bounded {
    /// Those of a quantiser to bytes, and what its zero point, ½ and ε make.
    #[inline(always)]
    fn of<S: Simd>(s: S, q: &Quantiser, terms: S::F) -> Option<(Bounded, f32)> {
        if !q.makes_bytes() {
            return None;
        }
        let margin = margin(s.reduce_max(s.abs(terms)));
        if margin.is_nan() || margin > MOST_MARGIN {
            return None;
        }
        let bounded = Bounded { low: q.low as i32, high: q.high as i32, doubt: (2.0 * margin) as i32 };
        Some((bounded, (q.zero + 0.5) * ONE + margin))
    }

    #[inline(always)]
    fn doubts<S: Simd>(&self, s: S, fixed: [S::I; 2]) -> bool {
        const { assert!(FRACTION == 16, "what is behind the point is the lower half") }
        s.any_lower_half_below(fixed, s.splat_i(self.doubt))
    }

    #[inline(always)]
    fn bytes<S: Simd>(&self, s: S, fixed: S::I) -> S::I {
        s.min_i(s.max_i(s.shr_i::<FRACTION>(fixed), s.splat_i(self.low)), s.splat_i(self.high))
    }

    /// # Safety
    /// Sixteen bytes must be writable at each place.
    #[inline(always)]
    unsafe fn store<S: Simd>(&self, s: S, to: [*mut u8; 2], fixed: [S::I; 2]) {
        const { assert!(FRACTION == 16, "what is before the point is the upper half") }
        // SAFETY: the caller's promise.
        unsafe { s.store_upper_halves(to, fixed, [self.low as i16, self.high as i16]) }
    }
}

/// What all fixed-point numbers have.
macro_rules! bounded {
    ($name:ident) => {
        impl $name {
            /// Whether any of these fixed-point numbers is in doubt.
            #[inline(always)]
            pub(crate) fn doubts<S: Simd>(&self, s: S, fixed: [S::I; 2]) -> bool {
                self.bounded.doubts(s, fixed)
            }

            /// Their bytes.
            #[inline(always)]
            pub(crate) fn bytes<S: Simd>(&self, s: S, fixed: S::I) -> S::I {
                self.bounded.bytes(s, fixed)
            }

            /// Writes the bytes of two vectors.
            ///
            /// # Safety
            /// Sixteen bytes must be writable at each place.
            #[inline(always)]
            pub(crate) unsafe fn store<S: Simd>(&self, s: S, to: [*mut u8; 2], fixed: [S::I; 2]) {
                // SAFETY: the caller's promise.
                unsafe { self.bounded.store(s, to, fixed) }
            }
        }
    };
}
bounded!(FixedLinear);
bounded!(FixedSum);

/// `q(n · scale + bias)` of sixteen lanes: n is an integer as f32, or any number where `scale` is 1 and there is no bias. (Numbers in memory, which instructions read from there where registers are few.)
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct FixedLinear {
    factor: [f32; LANES],
    start: [f32; LANES],
    bounded: Bounded,
}

impl FixedLinear {
    /// `None` where a number is too large or too small.
    #[inline(always)]
    pub(crate) fn new<S: Simd>(s: S, q: &Quantiser, scale: S::F, bias: S::F) -> Option<FixedLinear> {
        let step = s.splat(q.scale);
        let (factor, terms) = (s.mul(s.div(scale, step), s.splat(ONE)), s.div(bias, step));
        let (bounded, start) = Bounded::of(s, q, terms)?;
        let ordinary = [factor, scale, bias].iter().all(|&x| within(s, x, ORDINARY));
        let start = s.add(s.mul(terms, s.splat(ONE)), s.splat(start));
        ordinary.then_some(FixedLinear { factor: s.to_array(factor), start: s.to_array(start), bounded })
    }

    /// Those of four vectors by one quantiser, in the [order of quarters](Simd::quarters).
    #[inline(always)]
    pub(crate) fn quarters<S: Simd>(s: S, of: [&FixedLinear; 4]) -> [FixedLinear; 4] {
        let [a, b, c, d] = of;
        let factors = s.quarters([
            s.from_array(&a.factor),
            s.from_array(&b.factor),
            s.from_array(&c.factor),
            s.from_array(&d.factor),
        ]);
        let starts = s.quarters([
            s.from_array(&a.start),
            s.from_array(&b.start),
            s.from_array(&c.start),
            s.from_array(&d.start),
        ]);
        // In doubt is what is in doubt by any of them.
        let doubt = a.bounded.doubt.max(b.bounded.doubt).max(c.bounded.doubt).max(d.bounded.doubt);
        let mut out = [FixedLinear { bounded: Bounded { doubt, ..a.bounded }, ..*a }; 4];
        for (v, out) in out.iter_mut().enumerate() {
            (out.factor, out.start) = (s.to_array(factors[v]), s.to_array(starts[v]));
        }
        out
    }

    /// Whether a fixed-point number is in doubt.
    pub(crate) fn is_in_doubt(&self, fixed: i32) -> bool {
        fixed & 0xffff < self.bounded.doubt
    }

    /// Writes the bytes of four vectors in the [order of quarters](Simd::quarters).
    ///
    /// # Safety
    /// 64 bytes must be writable.
    #[inline(always)]
    pub(crate) unsafe fn store_quad<S: Simd>(&self, s: S, to: *mut u8, fixed: [S::I; 4]) {
        // SAFETY: the caller's promise.
        unsafe { s.store_quad(to, fixed, [self.bounded.low as i16, self.bounded.high as i16]) }
    }

    /// Fixed-point numbers.
    #[inline(always)]
    pub(crate) fn vector<S: Simd>(&self, s: S, n: S::F) -> S::I {
        s.to_int(s.mul_add(n, s.from_array(&self.factor), s.from_array(&self.start)))
    }
}

/// `q(own(bytes) + other(bytes))`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FixedSum {
    own: f32,
    other: f32,
    start: f32,
    bounded: Bounded,
}

impl FixedSum {
    /// `None` where a number is too large or too small.
    #[inline(always)]
    pub(crate) fn new<S: Simd>(
        s: S,
        q: &Quantiser,
        own: &Dequantiser,
        other: &Dequantiser,
    ) -> Option<FixedSum> {
        let factors = [own.scale / q.scale, other.scale / q.scale];
        let terms = 255.0 * (factors[0].abs() + factors[1].abs());
        let (bounded, start) = Bounded::of(s, q, s.splat(terms))?;
        let zeros =
            f64::from(own.zero) * f64::from(factors[0]) + f64::from(other.zero) * f64::from(factors[1]);
        let start = f64::from(start) - zeros * f64::from(ONE);
        let ordinary = own.scale.abs() < ORDINARY && other.scale.abs() < ORDINARY;
        ordinary.then_some(FixedSum {
            own: factors[0] * ONE,
            other: factors[1] * ONE,
            start: start as f32,
            bounded,
        })
    }

    /// Fixed-point numbers.
    #[inline(always)]
    pub(crate) fn vector<S: Simd>(&self, s: S, own: S::I, other: S::I) -> S::I {
        let x = s.mul_add(s.from_int(other), s.splat(self.other), s.splat(self.start));
        s.to_int(s.mul_add(s.from_int(own), s.splat(self.own), x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, Kernel};
    use crate::testing::Rng;

    /// Bytes as numbers, and whether each is in doubt.
    type Made = Option<([f32; LANES], [bool; LANES])>;

    /// Asks for one lane after the other, as both vectors by turns: the other numbers are halves.
    #[inline(always)]
    fn made<S: Simd>(s: S, of: &Bounded, fixed: S::I) -> Made {
        let doubts = |fixed| of.doubts(s, fixed);
        let half = s.splat_i(1 << (FRACTION - 1));
        let numbers = s.to_array(s.from_bits(fixed));
        let alone = std::array::from_fn(|i| {
            let mut lanes = s.to_array(s.from_bits(half));
            lanes[i] = numbers[i];
            let vector = s.bits(s.from_array(&lanes));
            let both = [doubts([vector, half]), doubts([half, vector])];
            assert_eq!(both[0], both[1], "lane {i}");
            both[0]
        });
        assert_eq!(doubts([fixed, fixed]), alone.contains(&true));
        let bytes = of.bytes(s, fixed);
        let mut stored = [[0u8; LANES]; 2];
        let [a, b] = &mut stored;
        // SAFETY: both have room for sixteen bytes.
        unsafe { of.store(s, [a.as_mut_ptr(), b.as_mut_ptr()], [fixed, half]) };
        let bytes = s.to_array(s.from_int(bytes));
        assert_eq!(stored[0], bytes.map(|byte| byte as i32 as u8));
        assert_eq!(stored[1], [0.clamp(of.low, of.high) as u8; LANES]);
        Some((bytes, alone))
    }

    struct Linear<'a>(&'a Quantiser, &'a [f32; LANES], &'a [f32; LANES], &'a [f32; LANES]);

    impl Kernel for Linear<'_> {
        type Output = Made;
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Made {
            let [n, scale, bias] = [s.from_array(self.1), s.from_array(self.2), s.from_array(self.3)];
            let linear = FixedLinear::new(s, self.0, scale, bias)?;
            made(s, &linear.bounded, linear.vector(s, n))
        }
    }

    struct Sum<'a>(&'a Quantiser, [&'a Dequantiser; 2], [&'a [f32; LANES]; 2]);

    impl Kernel for Sum<'_> {
        type Output = Made;
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Made {
            let [own, other] = self.2.map(|x| s.to_int(s.from_array(x)));
            let sum = FixedSum::new(s, self.0, self.1[0], self.1[1])?;
            made(s, &sum.bounded, sum.vector(s, own, other))
        }
    }

    /// Asserts that what is not in doubt is what is wanted; how many were not, and how many vectors were made.
    #[track_caller]
    fn check(made: Made, want: &[i32; LANES], what: &str) -> [usize; 2] {
        let Some((bytes, doubt)) = made else { return [0; 2] };
        for i in (0..LANES).filter(|&i| !doubt[i]) {
            assert_eq!(bytes[i] as i32, want[i], "{what}, lane {i}");
        }
        [doubt.iter().filter(|&&doubt| !doubt).count(), 1]
    }

    fn quantiser(rng: &mut Rng, round: usize) -> Quantiser {
        let (low, high) = [(0.0, 255.0), (-128.0, 127.0)][round % 2];
        let zero = (low + rng.uniform(0.0, 1.0) * (high - low)).round();
        let q = Quantiser::new(2.0f32.powf(rng.uniform(-12.0, 4.0)), zero, low, high);
        match round % 3 {
            0 => q.clipped(0.0, q.scale * rng.uniform(0.0, 300.0)).unwrap_or(q),
            _ => q,
        }
    }

    #[test]
    fn linear_functions_give_the_bytes_of_floats_next_to_every_middle() {
        let (mut rng, mut sure) = (Rng::new(78), [0, 0]);
        for round in 0..20_000 {
            let q = quantiser(&mut rng, round);
            let largest = 2.0f32.powi(rng.below(30) as i32);
            let bias: [f32; LANES] = std::array::from_fn(|_| rng.uniform(-9.0, 9.0).powi(3) * q.scale);
            let mut scale = [0.0f32; LANES];
            let n = std::array::from_fn(|i| {
                let n = (rng.uniform(-1.0, 1.0) * largest).round();
                // What makes n the middle between two bytes, or nearly so.
                let middle = q.low - q.zero + rng.uniform(-0.2, 1.2) * 255.0;
                let value = (middle.round() + 0.5) * q.scale - bias[i];
                let near =
                    f32::from_bits(((value / n.max(1.0)).to_bits() as i64 + rng.below(5) as i64 - 2) as u32);
                scale[i] = if i % 4 == 0 { rng.uniform(-200.0, 200.0) * q.scale / largest } else { near };
                n
            });
            let want = std::array::from_fn(|i| q.one(n[i] * scale[i] + bias[i]));
            for isa in Isa::available() {
                let what = format!("{q:?} {n:?} {scale:?} {bias:?} {isa}");
                let made = check(isa.run(Linear(&q, &n, &scale, &bias)), &want, &what);
                sure = [sure[0] + made[0], sure[1] + made[1]];
            }
        }
        assert!(sure[1] > 30_000 && sure[0] > 3 * sure[1], "{sure:?}");
    }

    #[test]
    fn sums_of_bytes_give_the_bytes_of_floats() {
        let (mut rng, mut sure) = (Rng::new(79), [0, 0]);
        for round in 0..20_000 {
            let q = quantiser(&mut rng, round);
            let mut dequantiser = |signed: bool| {
                let zero = rng.below(256) as i32 - if signed { 128 } else { 0 };
                // Often a simple ratio, which makes ties.
                let ratio =
                    if round % 5 == 0 { [0.5, 0.25, 1.5][rng.below(3)] } else { rng.uniform(0.01, 3.0) };
                Dequantiser { scale: q.scale * ratio, zero, signed }
            };
            let both = [dequantiser(round % 2 == 1), dequantiser(round / 2 % 2 == 1)];
            let bytes = both
                .map(|d| std::array::from_fn(|_| rng.below(256) as f32 - if d.signed { 128.0 } else { 0.0 }));
            let float = |d: &Dequantiser, x: f32| (x - d.zero as f32) * d.scale;
            let want =
                std::array::from_fn(|i| q.one(float(&both[0], bytes[0][i]) + float(&both[1], bytes[1][i])));
            for isa in Isa::available() {
                let run = Sum(&q, both.each_ref(), bytes.each_ref());
                let made = check(isa.run(run), &want, &format!("{q:?} {both:?} {bytes:?} {isa}"));
                sure = [sure[0] + made[0], sure[1] + made[1]];
            }
        }
        assert!(sure[1] > 30_000 && sure[0] > 10 * sure[1], "{sure:?}");
    }

    #[test]
    fn what_is_too_large_is_left_to_floats() {
        let q = Quantiser::new(0.5, 3.0, 0.0, 255.0);
        let isa = Isa::detect();
        let (n, one) = ([5.0; LANES], [1.0; LANES]);
        for odd in [f32::NAN, f32::INFINITY, 1e30, -1e30] {
            let mut with = one;
            with[9] = odd;
            assert!(isa.run(Linear(&q, &n, &with, &one)).is_none(), "a scale of {odd}");
            assert!(isa.run(Linear(&q, &n, &one, &with)).is_none(), "a bias of {odd}");
        }
        let words = Quantiser::new(0.5, 3.0, 0.0, 65535.0);
        assert!(isa.run(Linear(&words, &n, &one, &one)).is_none());
        assert!(isa.run(Linear(&q, &n, &one, &one)).is_some());
    }
}
