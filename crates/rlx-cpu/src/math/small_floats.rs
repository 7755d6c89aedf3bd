//! Floats of a byte or less: decoding and rounding by their bits.
//!
//! The formats are those of "FP8 Formats for Deep Learning" (2022) with their FNUZ variants, and OCP's E2M1 and E8M0.

use rlx_ir::DType;

/// Where the bits of f32 are.
const FRACTION: u32 = 23;
const BIAS: i32 = 127;
const SIGN: u32 = 1 << 31;
const INFINITY: u32 = 0x7F80_0000;

/// A format: a code is a sign (unless it is a power of two alone), an exponent and a fraction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SmallFloat {
    exponent: u32,
    fraction: u32,
    bias: i32,
    /// The largest code without a sign that is a number.
    max: u8,
    infinity: bool,
    nan: bool,
    /// There is no negative zero: its code is the only NaN.
    unsigned_zero: bool,
}

impl SmallFloat {
    pub(crate) const E4M3FN: Self = Self::new(4, 3, 7, 0x7E);
    pub(crate) const E4M3FNUZ: Self = Self { unsigned_zero: true, ..Self::new(4, 3, 8, 0x7F) };
    pub(crate) const E5M2: Self = Self { infinity: true, ..Self::new(5, 2, 15, 0x7B) };
    pub(crate) const E5M2FNUZ: Self = Self { unsigned_zero: true, ..Self::new(5, 2, 16, 0x7F) };
    pub(crate) const E2M1: Self = Self { nan: false, ..Self::new(2, 1, 1, 0x7) };

    const fn new(exponent: u32, fraction: u32, bias: i32, max: u8) -> Self {
        SmallFloat { exponent, fraction, bias, max, infinity: false, nan: true, unsigned_zero: false }
    }

    const fn sign(self) -> u8 {
        1 << (self.exponent + self.fraction)
    }

    /// The number of a code.
    #[inline(always)]
    pub(crate) fn decode(self, code: u8) -> f32 {
        let (negative, low) = (code & self.sign() != 0, code & (self.sign() - 1));
        if self.unsigned_zero && negative && low == 0 {
            return f32::NAN;
        }
        let magnitude = if low > self.max {
            if self.infinity && low == self.max + 1 { f32::INFINITY } else { f32::NAN }
        } else {
            let (exponent, fraction) = (low >> self.fraction, u32::from(low) & ((1 << self.fraction) - 1));
            if exponent == 0 {
                // A multiple of the smallest number, which is a power of two.
                let unit = BIAS + 1 - self.bias - self.fraction as i32;
                fraction as f32 * f32::from_bits((unit as u32) << FRACTION)
            } else {
                let exponent = (i32::from(exponent) + BIAS - self.bias) as u32;
                f32::from_bits(exponent << FRACTION | fraction << (FRACTION - self.fraction))
            }
        };
        if negative { -magnitude } else { magnitude }
    }

    /// The nearest code, ties to even; beyond the largest number infinity, else NaN, else the largest number, whichever the
    /// format has.
    #[inline(always)]
    pub(crate) fn encode(self, x: f32) -> u8 {
        let nan = if self.unsigned_zero { self.sign() } else { self.sign() - 1 };
        if x.is_nan() {
            return if self.nan { nan } else { 0 };
        }
        let sign = if x.to_bits() & SIGN != 0 { self.sign() } else { 0 };
        let bits = x.to_bits() & !SIGN;
        let exponent = (bits >> FRACTION) as i32 - BIAS + self.bias;
        // Subnormal numbers of f32 are less than half of any code.
        let whole = if bits >> FRACTION == 0 { 0 } else { bits & ((1 << FRACTION) - 1) | 1 << FRACTION };
        let drop = (FRACTION - self.fraction) as i32 + if exponent < 1 { 1 - exponent } else { 0 };
        let code = if bits >= INFINITY || exponent > 64 {
            u32::MAX
        } else if drop > FRACTION as i32 + 1 {
            0
        } else {
            let (kept, rest, half) = (whole >> drop, whole & ((1 << drop) - 1), 1u32 << (drop - 1));
            let up = u32::from(rest > half || (rest == half && kept & 1 == 1));
            kept + up + if exponent > 1 { (exponent as u32 - 1) << self.fraction } else { 0 }
        };
        match code {
            0 if self.unsigned_zero => 0,
            code if code <= u32::from(self.max) => sign | code as u8,
            _ if self.infinity => sign | (self.max + 1),
            _ if self.nan => {
                if self.unsigned_zero {
                    nan
                } else {
                    sign | nan
                }
            }
            _ => sign | self.max,
        }
    }
}

/// The power of two of an E8M0 code.
pub(crate) fn power_of_two(code: u8) -> f32 {
    match code {
        0xFF => f32::NAN,
        0 => f32::from_bits(1 << (FRACTION - 1)),
        code => f32::from_bits(u32::from(code) << FRACTION),
    }
}

/// The E8M0 code of the power of two nearest to the magnitude of `x`, of two the larger; NaN from half a step beyond the
/// largest on.
pub(crate) fn nearest_power_of_two(x: f32) -> u8 {
    let bits = x.to_bits() & !SIGN;
    let half = 1 << (FRACTION - 1);
    match bits >> FRACTION {
        0xFF => 0xFF,
        // From three quarters of the smallest normal number on that is nearer than its half.
        0 => u8::from(bits >= half + half / 2),
        exponent => exponent as u8 + u8::from(bits & half != 0),
    }
}

/// The format of a type, if it is one of these.
pub(crate) fn format(dtype: DType) -> Option<SmallFloat> {
    Some(match dtype {
        DType::F8E4M3FN => SmallFloat::E4M3FN,
        DType::F8E4M3FNUZ => SmallFloat::E4M3FNUZ,
        DType::F8E5M2 => SmallFloat::E5M2,
        DType::F8E5M2FNUZ => SmallFloat::E5M2FNUZ,
        DType::F4E2M1 => SmallFloat::E2M1,
        _ => return None,
    })
}

/// f64 as the f32 next to it, to odd where it is between two: rounded once more, to fewer bits, it gives what f64 gives at
/// once.
#[inline(always)]
pub(crate) fn to_odd(x: f64) -> f32 {
    let y = x as f32;
    if f64::from(y) == x || !y.is_finite() || y.to_bits() & 1 == 1 {
        // Beyond f32 the shorter types are beyond their ranges, too.
        return y;
    }
    // The neighbour on the other side of x is odd.
    let away = f64::from(y).abs() < x.abs();
    f32::from_bits(if away { y.to_bits() + 1 } else { y.to_bits().wrapping_sub(1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::tensor::round_float;

    const ALL: [DType; 5] =
        [DType::F8E4M3FN, DType::F8E4M3FNUZ, DType::F8E5M2, DType::F8E5M2FNUZ, DType::F4E2M1];

    /// Numbers of every exponent, and around every code and every middle between two.
    fn numbers() -> Vec<f64> {
        let mut found: Vec<f64> = (0..=0xFFFFu32).map(|high| f64::from(f32::from_bits(high << 16))).collect();
        for format in ALL.map(|d| format(d).unwrap()) {
            let codes: Vec<f64> =
                (0..=255u8).map(|c| f64::from(format.decode(c))).filter(|x| x.is_finite()).collect();
            for (&a, &b) in codes.iter().zip(&codes[1..]) {
                let middle = (a + b) / 2.0;
                found.extend([
                    a,
                    middle,
                    middle * (1.0 + 1e-12),
                    middle * (1.0 - 1e-12),
                    middle * (1.0 + 1e-7),
                ]);
            }
        }
        found
    }

    #[test]
    fn every_number_rounds_as_the_reference_rounds_it() {
        for x in numbers() {
            let odd = to_odd(x);
            for dtype in ALL {
                let f = format(dtype).unwrap();
                let (got, want) = (f64::from(f.decode(f.encode(odd))), round_float(dtype, x));
                assert!(
                    got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                    "{dtype} {x:e}: {got} {want}"
                );
            }
            let (got, want) =
                (f64::from(power_of_two(nearest_power_of_two(odd))), round_float(DType::F8E8M0, x));
            assert!(got == want || got.is_nan() && want.is_nan(), "{x:e}: {got} {want}");
            let half = half::f16::from_f32(odd).to_f64();
            assert!(half == round_float(DType::F16, x) || half.is_nan(), "{x:e}");
        }
    }
}
