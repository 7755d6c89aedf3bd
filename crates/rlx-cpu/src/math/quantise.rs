//! Quantisation of vectors: `saturate(round(x / scale) + zero)`, ties to even, NaN as 0, to the bit.
//!
//! A division takes about as long as everything else together, so the quotient is a product with the reciprocal first. That
//! is off by less than 2⁻²² of itself, which matters only next to the middle between two integers: a vector with such
//! an element (and with one that is no number) is divided after all.
//!
//! ```
//! use rlx_cpu::math::Quantiser;
//! let q = Quantiser::new(0.5, 10.0, 0.0, 255.0);
//! assert_eq!([0.24, 0.25, 0.75, -9.0, 1e9, f32::NAN].map(|x| q.one(x)), [10, 10, 12, 0, 255, 0]);
//! ```

use super::fixed_point::FixedLinear;
use crate::simd::{LANES, Simd, before_line};

/// A scale, a zero point and a range of integers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantiser {
    pub(super) scale: f32,
    inverse: f32,
    pub(super) zero: f32,
    pub(super) low: f32,
    pub(super) high: f32,
    /// How far a quotient may be from its integer to be sure of that.
    sure: f32,
}

impl Quantiser {
    /// Integers `smallest ..= high`, of which `zero` stands for 0 and neighbours are `scale` apart.
    pub fn new(scale: f32, zero: f32, low: f32, high: f32) -> Quantiser {
        // Quotients beyond the range saturate either way.
        let largest = high - low + zero.abs() + 2.0;
        let ordinary = (2.0f32.powi(-100)..2.0f32.powi(100)).contains(&scale.abs());
        let sure = if ordinary { 0.5 - largest * 2.0f32.powi(-21) } else { -1.0 };
        Quantiser { scale, inverse: 1.0 / scale, zero, low, high, sure }
    }

    /// Whether it makes bytes, by an ordinary scale.
    pub(super) fn makes_bytes(&self) -> bool {
        // So that no number between the bounds is more than 256 steps from 0.
        let range = self.high.max(self.zero) - self.low.min(self.zero);
        self.sure >= 0.0 && self.low >= -128.0 && self.high <= 255.0 && range <= 255.0
    }

    /// One element.
    pub fn one(&self, x: f32) -> i32 {
        let y = (x / self.scale).round_ties_even() + self.zero;
        if y.is_nan() { 0 } else { y.clamp(self.low, self.high) as i32 }
    }

    /// The quantiser of `x` held between `lo` and `hi`, where its range says the same: quantising keeps the order of numbers, and what is no
    /// number has to become 0.
    pub fn clipped(&self, lo: f32, hi: f32) -> Option<Quantiser> {
        let (low, high) = (self.one(lo) as f32, self.one(hi) as f32);
        let ordinary = self.scale > 0.0 && self.sure >= 0.0;
        let same = ordinary && lo <= hi && low <= 0.0 && 0.0 <= high;
        same.then_some(Quantiser { low, high, ..*self })
    }

    /// Sixteen elements.
    #[inline(always)]
    pub fn vector<S: Simd>(&self, s: S, x: S::F) -> S::I {
        let quotient = s.mul(x, s.splat(self.inverse));
        let y = s.round(quotient);
        let sure = s.le(s.abs(s.sub(quotient, y)), s.splat(self.sure));
        let zero = s.splat(self.zero);
        let y = if s.mask_bits(sure) == u16::MAX {
            s.add(y, zero)
        } else {
            let y = s.add(s.round(s.div(x, s.splat(self.scale))), zero);
            s.select(s.is_nan(y), s.zero(), y)
        };
        s.to_int(s.min_raw(s.max_raw(y, s.splat(self.low)), s.splat(self.high)))
    }

    /// `n` elements to bytes: four vectors at a time in fixed point (half as many instructions as [`vector`](Quantiser::vector)), and by that where
    /// fixed point does not decide.
    ///
    /// # Safety
    /// `x` must be readable and `out` writable for `n` elements; the range must be one of bytes.
    #[inline(always)]
    pub(crate) unsafe fn bytes<S: Simd>(&self, s: S, x: *const f32, out: *mut u8, n: usize) {
        let mut i = before_line(x, n);
        // SAFETY: the caller's promise; i + the elements of each step ≤ n.
        unsafe {
            if i > 0 {
                s.store_bytes(out, i, self.vector(s, s.load_n(x, i)));
            }
            if let Some(fixed) = FixedLinear::new(s, self, s.splat(1.0), s.zero()) {
                while i + 4 * LANES <= n {
                    let (from, to) = (x.add(i), out.add(i));
                    let mut numbers = [[s.to_int(s.zero()); 2]; 2];
                    for (v, number) in numbers.as_flattened_mut().iter_mut().enumerate() {
                        *number = fixed.vector(s, s.load(from.add(v * LANES)));
                    }
                    if fixed.doubts(s, numbers[0]) | fixed.doubts(s, numbers[1]) {
                        for v in 0..4 {
                            let exact = self.vector(s, s.load(from.add(v * LANES)));
                            s.store_bytes(to.add(v * LANES), LANES, exact);
                        }
                    } else {
                        fixed.store(s, [to, to.add(LANES)], numbers[0]);
                        fixed.store(s, [to.add(2 * LANES), to.add(3 * LANES)], numbers[1]);
                    }
                    i += 4 * LANES;
                }
            }
            while i < n {
                let lanes = (n - i).min(LANES);
                s.store_bytes(out.add(i), lanes, self.vector(s, s.load_upto(x.add(i), lanes)));
                i += lanes;
            }
        }
    }
}

/// What bytes stand for: `(q − zero) · scale`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dequantiser {
    /// What one step stands for.
    pub scale: f32,
    /// The byte that stands for 0.
    pub zero: i32,
    /// Whether the bytes are i8 rather than u8.
    pub signed: bool,
}

impl Dequantiser {
    /// Sixteen elements.
    #[inline(always)]
    pub fn vector<S: Simd>(&self, s: S, q: S::I) -> S::F {
        s.mul(s.from_int(s.sub_i(q, s.splat_i(self.zero))), s.splat(self.scale))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, Kernel};
    use crate::simd::LANES;
    use crate::testing::Rng;

    struct Run<'a>(&'a Quantiser, &'a [f32; LANES]);

    impl Kernel for Run<'_> {
        type Output = [i32; LANES];
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> [i32; LANES] {
            let y = self.0.vector(s, s.from_array(self.1));
            s.to_array(s.from_int(y)).map(|x| x as i32)
        }
    }

    struct Bytes<'a>(&'a Quantiser, &'a [f32]);

    impl Kernel for Bytes<'_> {
        type Output = Vec<u8>;
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Vec<u8> {
            let mut out = vec![0; self.1.len()];
            // SAFETY: both are as long as that.
            unsafe { self.0.bytes(s, self.1.as_ptr(), out.as_mut_ptr(), out.len()) };
            out
        }
    }

    /// Four vectors at a time in fixed point and what is left, with numbers that it does not decide and with none.
    #[test]
    fn bytes_are_those_of_single_elements() {
        let (mut rng, specials) =
            (Rng::new(78), [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-45, 3e38]);
        for round in 0..20_000 {
            let (low, high) = [(0.0, 255.0), (-128.0, 127.0)][round % 2];
            let zero = (low + rng.uniform(0.0, 1.0) * (high - low)).round();
            let scale = match round % 7 {
                0 => 2.0f32.powi(rng.below(250) as i32 - 125),
                1 => f32::from_bits(1 + rng.below(1 << 20) as u32),
                2 => -0.37,
                _ => rng.uniform(1e-4, 3.0),
            };
            let q = Quantiser::new(scale, zero, low, high);
            let x: Vec<f32> = (0..rng.below(9 * LANES))
                .map(|_| match rng.below(round % 60 + 2) {
                    0 => specials[rng.below(specials.len())],
                    1 => {
                        let middle = (low - zero + rng.uniform(-0.1, 1.1) * (high - low)).round() + 0.5;
                        f32::from_bits(((middle * scale).to_bits() as i64 + rng.below(7) as i64 - 3) as u32)
                    }
                    _ => rng.uniform(-300.0, 300.0) * scale,
                })
                .collect();
            let want: Vec<u8> = x.iter().map(|&x| q.one(x) as u8).collect();
            for isa in Isa::available() {
                assert_eq!(isa.run(Bytes(&q, &x)), want, "{q:?} {x:?} {isa}");
            }
        }
    }

    #[test]
    fn vectors_round_as_division_does_next_to_every_middle() {
        let (mut rng, mut held_any) = (Rng::new(77), false);
        let ranges = [(0.0, 255.0), (-128.0, 127.0), (0.0, 65535.0), (-32768.0, 32767.0)];
        for round in 0..20_000 {
            let (low, high) = ranges[round % 4];
            let zero = (low + rng.uniform(0.0, 1.0) * (high - low)).round();
            let scale = match round % 7 {
                0 => 2.0f32.powi(rng.below(250) as i32 - 125),
                1 => f32::from_bits(1 + rng.below(1 << 20) as u32),
                2 => -0.37,
                3 => f32::INFINITY,
                _ => rng.uniform(1e-4, 3.0),
            };
            let q = Quantiser::new(scale, zero, low, high);
            let middle = |rng: &mut Rng| {
                let x = (low - zero + rng.uniform(-0.1, 1.1) * (high - low)).round() + 0.5;
                f32::from_bits(((x * scale).to_bits() as i64 + rng.below(7) as i64 - 3) as u32)
            };
            let x: [f32; LANES] = std::array::from_fn(|i| match i {
                0 => [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0][round / 4 % 4],
                1..=3 => rng.uniform(-300.0, 300.0) * scale,
                _ => middle(&mut rng),
            });
            let want = x.map(|x| q.one(x));
            let (lo, hi) = (rng.uniform(-200.0, 100.0) * scale, rng.uniform(0.0, 200.0) * scale);
            if let Some(clipped) = q.clipped(lo, hi) {
                let held = x.map(|x| q.one(if x.is_nan() { x } else { x.clamp(lo, hi) }));
                assert_eq!(x.map(|x| clipped.one(x)), held, "{q:?} {x:?} {lo} {hi}");
                held_any = true;
            }
            for isa in Isa::available() {
                assert_eq!(isa.run(Run(&q, &x)), want, "{q:?} {x:?} {isa}");
            }
        }
        assert!(held_any);
    }
}
