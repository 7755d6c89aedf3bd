//! The 8- and 4-bit floating-point formats, by their definition.
//!
//! One generic decoder of (exponent bits, mantissa bits, bias, special values) covers the FP8 formats of
//! "FP8 Formats for Deep Learning" (2022), their FNUZ variants, and OCP's FP4 E2M1. Encoding looks the number up among the
//! at most 128 magnitudes, so it rounds to the nearest by construction, and ties to even. OCP's E8M0, the powers of two
//! without a sign, has code of its own.

use crate::dtype::DType;

/// A small float format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    /// The largest magnitude code that is a finite number.
    max_code: u8,
    has_infinity: bool,
    /// No negative zero: the code `0x80` is the only NaN.
    unsigned_zero: bool,
    has_nan: bool,
}

impl Format {
    /// The format of `dtype`, if it is one of these.
    pub(crate) fn of(dtype: DType) -> Option<Format> {
        let f = |exponent_bits, mantissa_bits, bias, max_code, has_infinity, unsigned_zero, has_nan| {
            Some(Format {
                exponent_bits,
                mantissa_bits,
                bias,
                max_code,
                has_infinity,
                unsigned_zero,
                has_nan,
            })
        };
        match dtype {
            DType::F8E4M3FN => f(4, 3, 7, 0x7E, false, false, true),
            DType::F8E4M3FNUZ => f(4, 3, 8, 0x7F, false, true, true),
            DType::F8E5M2 => f(5, 2, 15, 0x7B, true, false, true),
            DType::F8E5M2FNUZ => f(5, 2, 16, 0x7F, false, true, true),
            DType::F4E2M1 => f(2, 1, 1, 0x7, false, false, false),
            _ => None,
        }
    }

    /// [`DType::F8E8M0`]: the power of two of a code.
    pub(crate) fn decode_power(code: u8) -> f64 {
        if code == 0xFF { f64::NAN } else { 2f64.powi(i32::from(code) - 127) }
    }

    /// The power of two nearest to the magnitude of `x`, of two the larger; what is smaller than all is the smallest, and
    /// what is half a step above the largest is NaN, as infinity is.
    pub(crate) fn encode_power(x: f64) -> u8 {
        let x = x.abs();
        first(0xFF, |code| x < 1.5 * Self::decode_power(code))
    }

    fn sign_bit(self) -> u8 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    fn magnitude(self, code: u8) -> f64 {
        let mantissa = f64::from(code & ((1 << self.mantissa_bits) - 1));
        let exponent = i32::from(code >> self.mantissa_bits);
        let unit = 2f64.powi(-(self.mantissa_bits as i32));
        if exponent == 0 {
            mantissa * unit * 2f64.powi(1 - self.bias)
        } else {
            (1.0 + mantissa * unit) * 2f64.powi(exponent - self.bias)
        }
    }

    /// The value of a code.
    pub(crate) fn decode(self, code: u8) -> f64 {
        let negative = code & self.sign_bit() != 0;
        let low = code & (self.sign_bit() - 1);
        if self.unsigned_zero && negative && low == 0 {
            return f64::NAN;
        }
        let magnitude = match low {
            l if l <= self.max_code => self.magnitude(l),
            l if self.has_infinity && l == self.max_code + 1 => f64::INFINITY,
            _ => f64::NAN,
        };
        if negative { -magnitude } else { magnitude }
    }

    /// The code nearest to `x`, ties to even; beyond the largest finite value: infinity where the
    /// format has one, else NaN, else the largest finite value.
    pub(crate) fn encode(self, x: f64) -> u8 {
        let sign = if x.is_sign_negative() { self.sign_bit() } else { 0 };
        let nan = if self.unsigned_zero { self.sign_bit() } else { self.sign_bit() - 1 };
        if x.is_nan() {
            return if self.has_nan { nan } else { 0 };
        }
        // Far beyond the largest number, differences from all of them would be equal.
        let greatest = self.magnitude(self.max_code);
        let x = x.abs().min(2.0 * greatest);
        // It is the last magnitude that is not above `x`, or the one after; that of code 0 is 0.
        let above = first(self.max_code + 1, |code| self.magnitude(code) > x).max(1);
        let mut best = above - 1;
        if above <= self.max_code {
            let (old, new) = (x - self.magnitude(best), self.magnitude(above) - x);
            if new < old || (new == old && above.is_multiple_of(2)) {
                best = above;
            }
        }
        // Half a step beyond the largest value rounds up to the next power that is not there.
        let step = greatest - self.magnitude(self.max_code - 1);
        let beyond = x >= greatest + step / 2.0 && (x > greatest + step / 2.0 || self.max_code % 2 == 1);
        if beyond && self.has_infinity {
            return sign | (self.max_code + 1);
        }
        if beyond && self.has_nan {
            return if self.unsigned_zero { nan } else { sign | nan };
        }
        if self.unsigned_zero && best == 0 { 0 } else { sign | best }
    }
}

/// The first code below `end` of which `holds` is true, as it is of all that follow; `end` if there is none.
fn first(end: u8, holds: impl Fn(u8) -> bool) -> u8 {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Gen;

    #[test]
    fn known_values() {
        let e4m3 = Format::of(DType::F8E4M3FN).unwrap();
        assert_eq!(e4m3.decode(0x7E), 448.0);
        assert!(e4m3.decode(0x7F).is_nan());
        assert_eq!(e4m3.encode(1.0), 0x38);
        let e5m2 = Format::of(DType::F8E5M2).unwrap();
        assert_eq!(e5m2.decode(0x7B), 57344.0);
        assert_eq!(e5m2.decode(0x7C), f64::INFINITY);
        let fnuz = Format::of(DType::F8E4M3FNUZ).unwrap();
        assert_eq!(fnuz.decode(0x7F), 240.0);
        assert!(fnuz.decode(0x80).is_nan());
        let fp4 = Format::of(DType::F4E2M1).unwrap();
        let values: Vec<f64> = (0..8).map(|c| fp4.decode(c)).collect();
        assert_eq!(values, [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        assert_eq!([fp4.encode(1e17), fp4.encode(f64::NEG_INFINITY)], [0x7, 0xF]);
    }

    #[test]
    fn the_nearest_magnitude_is_found_and_ties_go_to_even() {
        let g = &mut Gen::new(1);
        for dtype in [DType::F8E4M3FN, DType::F8E4M3FNUZ, DType::F8E5M2, DType::F8E5M2FNUZ, DType::F4E2M1] {
            let f = Format::of(dtype).unwrap();
            let of = |code: u8| f.magnitude(code);
            let ties = (1..=f.max_code).map(|code| (of(code - 1) + of(code)) / 2.0);
            let random: Vec<f64> = g.value(DType::F64, &[500], -1.0..1.0).to_f64();
            for x in ties.chain(random.iter().map(|x| x * 1.01 * of(f.max_code))).map(f64::abs) {
                let mut best = 0;
                for code in 1..=f.max_code {
                    let (old, new) = ((x - of(best)).abs(), (x - of(code)).abs());
                    if new < old || (new == old && code % 2 == 0) {
                        best = code;
                    }
                }
                assert_eq!(f.encode(x), best, "{dtype} {x}");
            }
        }
    }

    #[test]
    fn powers_of_two_are_the_nearest() {
        for code in 0..=0xFE {
            assert_eq!(Format::encode_power(Format::decode_power(code)), code);
        }
        let cases =
            [(0.0, 0), (1.0, 127), (1.49, 127), (1.5, 128), (-3.0, 129), (1.5 * 2f64.powi(127), 0xFF)];
        for (x, code) in cases {
            assert_eq!(Format::encode_power(x), code, "{x}");
        }
        assert!(Format::decode_power(Format::encode_power(f64::NAN)).is_nan());
    }

    #[test]
    fn every_finite_code_survives_the_round_trip() {
        for dtype in [DType::F8E4M3FN, DType::F8E4M3FNUZ, DType::F8E5M2, DType::F8E5M2FNUZ, DType::F4E2M1] {
            let f = Format::of(dtype).unwrap();
            for code in 0..=(f.sign_bit() | (f.sign_bit() - 1)) {
                let x = f.decode(code);
                if x.is_finite() {
                    assert_eq!(f.encode(x), code, "{dtype} {code:#x}");
                }
            }
        }
    }
}
