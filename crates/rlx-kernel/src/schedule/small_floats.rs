//! Numbers of 8 bits: what casts make of them, by integers.
//!
//! In kernels, an element of one of these types is its code, a `u32`. They are moved and cast; models compute in other types, between casts.
//!
//! The formats are those of "FP8 Formats for Deep Learning" (Micikevicius et al. 2022), their variants without a negative zero, and OCP's E8M0 ("OCP Microscaling
//! Formats (MX) Specification" 1.0), which has the powers of two. Numbers are rounded to the nearest, ties to even; what is beyond the largest one is infinity where the
//! format has it, otherwise NaN. Of powers of two, ties become the larger.

use rlx_ir::DType;

use crate::build::Builder;
use crate::ir::{Cmp, Ty, UnOp, Value};

/// A format of 8 bits: a sign, an exponent, and a mantissa.
#[derive(Debug, Clone, Copy)]
struct Format {
    mantissa_bits: u32,
    bias: u32,
    /// The greatest code without a sign that is a number.
    most: u32,
    /// Whether the code behind it is infinity.
    has_infinity: bool,
    /// Whether the code of a negative zero is NaN, the only one.
    unsigned_zero: bool,
}

const SIGN: u32 = 0x80;
const INFINITY: u32 = 0x7F80_0000;
/// The bits of an f32 behind its exponent.
const MANTISSA: u32 = 23;
/// What is added to the exponent of an f32.
const BIAS: u32 = 127;

/// Whether elements of this type are such numbers.
pub(super) fn is_small(dtype: DType) -> bool {
    dtype == DType::F8E8M0 || format(dtype).is_some()
}

fn format(dtype: DType) -> Option<Format> {
    let of = |mantissa_bits, bias, most, has_infinity, unsigned_zero| {
        Some(Format { mantissa_bits, bias, most, has_infinity, unsigned_zero })
    };
    match dtype {
        DType::F8E4M3FN => of(3, 7, 0x7E, false, false),
        DType::F8E4M3FNUZ => of(3, 8, 0x7F, false, true),
        DType::F8E5M2 => of(2, 15, 0x7B, true, false),
        DType::F8E5M2FNUZ => of(2, 16, 0x7F, false, true),
        _ => None,
    }
}

/// The f32 that a code of this type is.
pub(super) fn widened(b: &mut Builder, code: Value, from: DType) -> Value {
    let bits = match format(from) {
        Some(format) => format.bits(b, code),
        None => power_bits(b, code),
    };
    b.bitcast(Ty::F32, bits)
}

/// The code of the number of this type that is nearest to an f32.
pub(super) fn nearest(b: &mut Builder, x: Value, to: DType) -> Value {
    match format(to) {
        Some(format) => format.code(b, x),
        None => nearest_power(b, x),
    }
}

/// A choice by the comparison of a value with a number.
fn choose(b: &mut Builder, (x, op, than): (Value, Cmp, u32), then: Value, otherwise: Value) -> Value {
    let than = b.word(than);
    let holds = b.compare(op, x, than);
    b.select(holds, then, otherwise)
}

fn and(b: &mut Builder, x: Value, mask: u32) -> Value {
    let mask = b.word(mask);
    b.and(x, mask)
}

fn plus(b: &mut Builder, x: Value, number: u32) -> Value {
    let number = b.word(number);
    b.add(x, number)
}

impl Format {
    /// `2ⁿ` times a number below the least that has an exponent is its code.
    fn scale(self) -> f64 {
        f64::from(1 << (self.bias - 1 + self.mantissa_bits))
    }

    /// The bits of an f32 that has the value of a code.
    fn bits(self, b: &mut Builder, code: Value) -> Value {
        let (size, sign) = (and(b, code, SIGN - 1), and(b, code, SIGN));
        let shifted = b.shl(size, MANTISSA - self.mantissa_bits);
        let normal = plus(b, shifted, (BIAS - self.bias) << MANTISSA);
        // Small ones are integers times a power of two: an f32 of such bits would be without an exponent, which a device may take for 0.
        let (integer, unit) = (b.convert(Ty::F32, size), b.number(Ty::F32, 1.0 / self.scale()));
        let small = b.mul(integer, unit);
        let small = b.bitcast(Ty::U32, small);
        let number = choose(b, (size, Cmp::Lt, 1 << self.mantissa_bits), small, normal);
        let (infinity, nan) = (b.word(INFINITY), b.word(INFINITY | 1 << (MANTISSA - 1)));
        let beyond =
            if self.has_infinity { choose(b, (size, Cmp::Eq, self.most + 1), infinity, nan) } else { nan };
        let found = choose(b, (size, Cmp::Gt, self.most), beyond, number);
        let moved = b.shl(sign, 24);
        let signed = b.or(found, moved);
        if self.unsigned_zero { choose(b, (code, Cmp::Eq, SIGN), nan, signed) } else { signed }
    }

    /// The code nearest to an f32.
    fn code(self, b: &mut Builder, x: Value) -> Value {
        let bits = b.bitcast(Ty::U32, x);
        let (size, top) = (and(b, bits, 0x7FFF_FFFF), b.shr(bits, 24));
        let sign = and(b, top, SIGN);
        let dropped = MANTISSA - self.mantissa_bits;
        // To the nearest: half of what is dropped is added, and a tie goes up where the last bit that is kept is odd.
        let kept = b.shr(size, dropped);
        let odd = and(b, kept, 1);
        let up = plus(b, odd, (1 << (dropped - 1)) - 1);
        let rounded = b.add(size, up);
        let rounded = b.shr(rounded, dropped);
        let less = b.word((BIAS - self.bias) << self.mantissa_bits);
        let normal = b.sub(rounded, less);
        let (positive, scale) = (b.bitcast(Ty::F32, size), b.number(Ty::F32, self.scale()));
        // What is large is not looked at, and may be too large for an integer.
        let least = (BIAS + 1 - self.bias) << MANTISSA;
        let zero = b.number(Ty::F32, 0.0);
        let positive = choose(b, (size, Cmp::Lt, least), positive, zero);
        let small = b.mul(positive, scale);
        let small = b.unary(UnOp::Round, small);
        let small = b.convert(Ty::U32, small);
        let code = choose(b, (size, Cmp::Lt, least), small, normal);
        let signed = b.or(code, sign);
        let nan = b.word(if self.unsigned_zero { SIGN } else { SIGN - 1 });
        let beyond = match (self.has_infinity, self.unsigned_zero) {
            (true, _) => {
                let infinity = b.word(self.most + 1);
                b.or(infinity, sign)
            }
            (false, true) => nan,
            (false, false) => b.or(nan, sign),
        };
        let found = choose(b, (code, Cmp::Gt, self.most), beyond, signed);
        let found = if self.unsigned_zero { choose(b, (code, Cmp::Eq, 0), code, found) } else { found };
        choose(b, (size, Cmp::Gt, INFINITY), nan, found)
    }
}

/// The bits of the power of two of a code. The least is below the numbers of f32 that have an exponent.
fn power_bits(b: &mut Builder, code: Value) -> Value {
    let power = b.shl(code, MANTISSA);
    let (least, nan) = (b.word(1 << (MANTISSA - 1)), b.word(INFINITY | 1 << (MANTISSA - 1)));
    let number = choose(b, (code, Cmp::Eq, 0), least, power);
    choose(b, (code, Cmp::Eq, 0xFF), nan, number)
}

/// The code of the power of two nearest to a number's size; of infinity and NaN, that of NaN.
fn nearest_power(b: &mut Builder, x: Value) -> Value {
    let bits = b.bitcast(Ty::U32, x);
    let size = and(b, bits, 0x7FFF_FFFF);
    let up = plus(b, size, 1 << (MANTISSA - 1));
    let (code, most, zero) = (b.shr(up, MANTISSA), b.word(0xFF), b.word(0));
    let code = b.min(code, most);
    // Below one and a half of the least, of which f32 has the bits of a fraction.
    choose(b, (size, Cmp::Lt, 3 << (MANTISSA - 2)), zero, code)
}
