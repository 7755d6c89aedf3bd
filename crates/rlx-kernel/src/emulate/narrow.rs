//! Elements of less than 32 bits in `u32` words, and half precision by bit arithmetic.

use rlx_ir::DType;

use crate::build::Builder;
use crate::ir::{Buffer, Cmp, Ty, UnOp, Value};

/// The word an element is in, and how far its lowest bit is from the word's.
fn place(b: &mut Builder, dtype: DType, index: Value) -> (Value, Value) {
    let bits = dtype.bits() as u32;
    let per_word = 32 / bits;
    let word = b.shr(index, per_word.trailing_zeros());
    let last = b.int(per_word as i32 - 1);
    let within = b.and(index, last);
    let within = b.bitcast(Ty::U32, within);
    (word, b.shl(within, bits.trailing_zeros()))
}

fn low_bits(dtype: DType) -> u32 {
    (1 << dtype.bits()) - 1
}

/// Loads an element.
pub(super) fn load(b: &mut Builder, buffer: Buffer, dtype: DType, index: Value) -> Value {
    let (word, shift) = place(b, dtype, index);
    let word = b.load(buffer, word);
    let bits = b.binary(crate::ir::BinOp::Shr, word, shift);
    let mask = b.word(low_bits(dtype));
    let bits = b.and(bits, mask);
    value(b, dtype, bits)
}

/// The two elements of 16 bits that a word is.
pub(super) fn pair(b: &mut Builder, dtype: DType, word: Value) -> [Value; 2] {
    let mask = b.word(low_bits(dtype));
    let [low, high] = [b.and(word, mask), b.shr(word, 16)];
    [low, high].map(|bits| value(b, dtype, bits))
}

/// What the bits of an element mean; all others are 0.
pub(super) fn value(b: &mut Builder, dtype: DType, bits: Value) -> Value {
    match dtype {
        DType::F16 => from_half(b, bits),
        DType::BF16 => {
            let up = b.shl(bits, 16);
            b.bitcast(Ty::F32, up)
        }
        DType::Bool => b.convert(Ty::Bool, bits),
        DType::I2 | DType::I4 | DType::I8 | DType::I16 => {
            let unused = 32 - dtype.bits() as u32;
            let up = b.shl(bits, unused);
            let signed = b.bitcast(Ty::I32, up);
            b.shr(signed, unused)
        }
        _ => bits,
    }
}

/// The bits of an element; all others are 0.
pub(super) fn bits(b: &mut Builder, dtype: DType, value: Value) -> Value {
    let bits = match b.ty(value) {
        Ty::F32 if dtype == DType::F16 => to_half(b, value),
        Ty::F32 => to_brain(b, value),
        Ty::Bool => b.convert(Ty::U32, value),
        _ => b.bitcast(Ty::U32, value),
    };
    let mask = b.word(low_bits(dtype));
    b.and(bits, mask)
}

/// Stores an element, leaving its neighbours alone.
pub(super) fn store(b: &mut Builder, buffer: Buffer, dtype: DType, index: Value, value: Value) {
    let bits = bits(b, dtype, value);
    let (word, shift) = place(b, dtype, index);
    let mask = b.word(low_bits(dtype));
    let shl = crate::ir::BinOp::Shl;
    let (bits, mask) = (b.binary(shl, bits, shift), b.binary(shl, mask, shift));
    b.merge_bits(buffer, word, mask, bits);
}

/// An `f32` rounded to half or brain precision.
pub(super) fn rounded(b: &mut Builder, op: UnOp, x: Value) -> Value {
    if op == UnOp::RoundF16 {
        let half = to_half(b, x);
        return from_half(b, half);
    }
    let bits = to_brain(b, x);
    let up = b.shl(bits, 16);
    b.bitcast(Ty::F32, up)
}

/// The 16 bits of an `f32` in bfloat16, ties to even.
fn to_brain(b: &mut Builder, x: Value) -> Value {
    let bits = b.bitcast(Ty::U32, x);
    let top = b.shr(bits, 16);
    let one = b.word(1);
    let odd = b.and(top, one);
    let almost = b.word(0x7FFF);
    let up = b.add(bits, almost);
    let up = b.add(up, odd);
    let rounded = b.shr(up, 16);
    let quiet = b.word(0x40);
    let nan = b.or(top, quiet);
    let (mask, infinity) = (b.word(0x7FFF_FFFF), b.word(0x7F80_0000));
    let magnitude = b.and(bits, mask);
    let is_nan = b.gt(magnitude, infinity);
    b.select(is_nan, nan, rounded)
}

/// The 16 bits of an `f32` in binary16, ties to even.
fn to_half(b: &mut Builder, x: Value) -> Value {
    let bits = b.bitcast(Ty::U32, x);
    let mask = b.word(0x7FFF_FFFF);
    let magnitude = b.and(bits, mask);
    let high = b.shr(bits, 16);
    let sign_bit = b.word(0x8000);
    let sign = b.and(high, sign_bit);
    // Normal numbers: round the 13 bits that go, and move the exponent's bias from 127 to 15.
    let kept = b.shr(magnitude, 13);
    let one = b.word(1);
    let odd = b.and(kept, one);
    let almost = b.word(0xFFF);
    let up = b.add(magnitude, almost);
    let up = b.add(up, odd);
    let bias = b.word(112 << 23);
    let normal = b.sub(up, bias);
    let normal = b.shr(normal, 13);
    // Subnormal ones: at 1/2, a unit in the last place of binary32 is the smallest binary16.
    let (half, half_bits) = (b.number(Ty::F32, 0.5), b.word(0x3F00_0000));
    let small = b.bitcast(Ty::F32, magnitude);
    let small = b.add(small, half);
    let small = b.bitcast(Ty::U32, small);
    let small = b.sub(small, half_bits);
    let least_normal = b.word(0x3880_0000);
    let is_small = b.lt(magnitude, least_normal);
    let v = b.select(is_small, small, normal);
    let (too_large, infinity, nan) = (b.word(0x4780_0000), b.word(0x7C00), b.word(0x7E00));
    let is_large = b.ge(magnitude, too_large);
    let v = b.select(is_large, infinity, v);
    let infinite = b.word(0x7F80_0000);
    let is_nan = b.compare(Cmp::Gt, magnitude, infinite);
    let v = b.select(is_nan, nan, v);
    b.or(v, sign)
}

/// The `f32` of 16 bits of binary16.
fn from_half(b: &mut Builder, half: Value) -> Value {
    let (rest_mask, sign_bit) = (b.word(0x7FFF), b.word(0x8000));
    let rest = b.and(half, rest_mask);
    let sign = b.and(half, sign_bit);
    let sign = b.shl(sign, 16);
    let bias = b.word(112 << 23);
    let moved = b.shl(rest, 13);
    let normal = b.add(moved, bias);
    let special = b.add(normal, bias);
    let infinity = b.word(0x7C00);
    let is_special = b.ge(rest, infinity);
    let v = b.select(is_special, special, normal);
    let count = b.convert(Ty::F32, rest);
    let least = b.number(Ty::F32, 5.960_464_477_539_063e-8);
    let small = b.mul(count, least);
    let small = b.bitcast(Ty::U32, small);
    let least_normal = b.word(0x400);
    let is_small = b.lt(rest, least_normal);
    let v = b.select(is_small, small, v);
    let v = b.or(v, sign);
    b.bitcast(Ty::F32, v)
}
