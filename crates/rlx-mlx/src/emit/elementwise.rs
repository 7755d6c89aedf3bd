//! Functions of one, two or three elements, and conversions.

use rlx_ir::op::{Activation, BinaryOp, CmpOp, Predicate};
use rlx_ir::{DType, DTypeClass, Result};

use crate::program::{Builder, Code, Val, unsupported};

/// The type to compute functions of short floats in: rounded once, in the end.
pub(super) fn wide(dtype: DType) -> DType {
    if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype }
}

/// MLX's own function for `f`, where it has one.
fn own(f: Activation) -> Option<Code> {
    use Activation as A;
    Some(match f {
        A::Exp => Code::Exp,
        A::Expm1 => Code::Expm1,
        A::Log => Code::Log,
        A::Log1p => Code::Log1p,
        A::Sqrt => Code::Sqrt,
        A::Rsqrt => Code::Rsqrt,
        A::Recip => Code::Reciprocal,
        A::Neg => Code::Negative,
        A::Abs => Code::Abs,
        A::Sign => Code::Sign,
        A::Sin => Code::Sin,
        A::Cos => Code::Cos,
        A::Tan => Code::Tan,
        A::Asin => Code::Arcsin,
        A::Acos => Code::Arccos,
        A::Atan => Code::Arctan,
        A::Sinh => Code::Sinh,
        A::Cosh => Code::Cosh,
        A::Tanh => Code::Tanh,
        A::Asinh => Code::Arcsinh,
        A::Acosh => Code::Arccosh,
        A::Atanh => Code::Arctanh,
        A::Floor => Code::Floor,
        A::Ceil => Code::Ceil,
        A::Round => Code::Round,
        A::Erf => Code::Erf,
        A::Erfinv => Code::Erfinv,
        A::Sigmoid => Code::Sigmoid,
        A::Not => Code::LogicalNot,
        A::BitNot => Code::BitwiseInvert,
        _ => return None,
    })
}

/// Whether there is a program for `f` of elements of this type.
pub(crate) fn has_activation(f: Activation, dtype: DType) -> bool {
    use Activation as A;
    match f {
        A::Gamma | A::Lgamma | A::Digamma => false,
        A::Neg | A::Abs | A::Sign | A::Relu | A::Floor | A::Ceil | A::Round | A::Trunc => true,
        A::Sqrt | A::Rsqrt | A::Recip | A::Softsign | A::HardSwish => true,
        // MLX computes the others of doubles in single precision.
        _ => dtype != DType::F64,
    }
}

pub(super) fn activation(b: &mut Builder<'_>, f: Activation, x: Val) -> Val {
    let dtype = b.dtype(x);
    if !dtype.is_float() {
        return of_integers(b, f, x);
    }
    // What is exact in any type needs no wider one.
    if matches!(f, Activation::Neg | Activation::Abs | Activation::Relu) {
        return of_floats(b, f, x);
    }
    let x = b.astype(x, wide(dtype));
    let y = of_floats(b, f, x);
    b.astype(y, dtype)
}

fn of_integers(b: &mut Builder<'_>, f: Activation, x: Val) -> Val {
    let dtype = b.dtype(x);
    match f {
        Activation::Neg => {
            let zero = b.int(dtype, 0);
            b.binary(Code::Subtract, zero, x)
        }
        Activation::Abs | Activation::Sign if dtype.class() == DTypeClass::Unsigned => {
            if f == Activation::Abs {
                return x;
            }
            let one = b.int(dtype, 1);
            b.binary(Code::Minimum, x, one)
        }
        Activation::Relu => {
            let zero = b.int(dtype, 0);
            b.binary(Code::Maximum, x, zero)
        }
        Activation::Abs | Activation::Sign | Activation::Not | Activation::BitNot => match own(f) {
            Some(code) => b.unary(code, x),
            None => x,
        },
        // Rounding changes no integer.
        _ => x,
    }
}

/// `f` of floats of at least 32 bits (any float where `f` is exact).
fn of_floats(b: &mut Builder<'_>, f: Activation, x: Val) -> Val {
    use Activation as A;
    if let Some(code) = own(f) {
        let y = b.unary(code, x);
        if f == A::Sign {
            let nan = b.question(Code::IsNan, x);
            return b.select(nan, x, y);
        }
        return y;
    }
    let dtype = b.dtype(x);
    match f {
        A::Relu => {
            let zero = b.scalar(dtype, 0.0);
            let positive = b.compare(Code::Greater, x, zero);
            let nan = b.question(Code::IsNan, x);
            let stays = b.binary(Code::LogicalOr, positive, nan);
            b.select(stays, x, zero)
        }
        A::Trunc => truncated(b, x),
        A::Silu => {
            let gate = b.unary(Code::Sigmoid, x);
            b.binary(Code::Multiply, x, gate)
        }
        A::Gelu => {
            let scaled = times(b, x, std::f64::consts::FRAC_1_SQRT_2);
            let erf = b.unary(Code::Erf, scaled);
            let erf = plus(b, erf, 1.0);
            let half = times(b, x, 0.5);
            b.binary(Code::Multiply, half, erf)
        }
        A::GeluApprox => {
            let square = b.unary(Code::Square, x);
            let cube = times(b, square, 0.044_715);
            let factor = plus(b, cube, 1.0);
            let inner = b.binary(Code::Multiply, x, factor);
            let inner = times(b, inner, (2.0 / std::f64::consts::PI).sqrt());
            let tanh = b.unary(Code::Tanh, inner);
            let tanh = plus(b, tanh, 1.0);
            let half = times(b, x, 0.5);
            b.binary(Code::Multiply, half, tanh)
        }
        A::Softplus => softplus(b, x),
        A::Mish => {
            let inner = softplus(b, x);
            let tanh = b.unary(Code::Tanh, inner);
            b.binary(Code::Multiply, x, tanh)
        }
        A::Softsign => {
            let size = b.unary(Code::Abs, x);
            let size = plus(b, size, 1.0);
            b.binary(Code::Divide, x, size)
        }
        A::HardSwish => {
            let six = b.scalar(dtype, 6.0);
            let inner = b.binary(Code::Divide, x, six);
            let inner = plus(b, inner, 0.5);
            let (zero, one) = (b.scalar(dtype, 0.0), b.scalar(dtype, 1.0));
            let inner = b.binary(Code::Maximum, inner, zero);
            let inner = b.binary(Code::Minimum, inner, one);
            b.binary(Code::Multiply, x, inner)
        }
        A::Cbrt => {
            let size = b.unary(Code::Abs, x);
            let third = b.scalar(dtype, 1.0 / 3.0);
            let root = b.binary(Code::Power, size, third);
            let sign = b.unary(Code::Sign, x);
            b.binary(Code::Multiply, sign, root)
        }
        // The claim keeps the others away.
        _ => x,
    }
}

fn times(b: &mut Builder<'_>, x: Val, factor: f64) -> Val {
    let factor = b.scalar(b.dtype(x), factor);
    b.binary(Code::Multiply, x, factor)
}

fn plus(b: &mut Builder<'_>, x: Val, term: f64) -> Val {
    let term = b.scalar(b.dtype(x), term);
    b.binary(Code::Add, x, term)
}

/// `max(x, 0) + ln(1 + e^−|x|)`.
fn softplus(b: &mut Builder<'_>, x: Val) -> Val {
    let zero = b.scalar(b.dtype(x), 0.0);
    let positive = b.binary(Code::Maximum, x, zero);
    let size = b.unary(Code::Abs, x);
    let size = b.unary(Code::Negative, size);
    let rest = b.unary(Code::Exp, size);
    let rest = b.unary(Code::Log1p, rest);
    b.binary(Code::Add, positive, rest)
}

fn truncated(b: &mut Builder<'_>, x: Val) -> Val {
    let zero = b.scalar(b.dtype(x), 0.0);
    let negative = b.compare(Code::Less, x, zero);
    let (up, down) = (b.unary(Code::Ceil, x), b.unary(Code::Floor, x));
    b.select(negative, up, down)
}

pub(super) fn binary(b: &mut Builder<'_>, f: BinaryOp, x: Val, y: Val) -> Result<Val> {
    use BinaryOp as B;
    let dtype = b.dtype(x);
    let is_bool = dtype == DType::Bool;
    let code = match f {
        B::Add => Code::Add,
        B::Sub => Code::Subtract,
        B::Mul => Code::Multiply,
        B::And => Code::LogicalAnd,
        B::Or => Code::LogicalOr,
        B::Max if is_bool => Code::LogicalOr,
        B::Min if is_bool => Code::LogicalAnd,
        B::Xor => return Ok(b.compare(Code::NotEqual, x, y)),
        B::BitAnd => Code::BitwiseAnd,
        B::BitOr => Code::BitwiseOr,
        B::BitXor => Code::BitwiseXor,
        B::Shl | B::Shr => return Ok(shift(b, f, x, y)),
        B::Max => Code::Maximum,
        B::Min => Code::Minimum,
        B::Div | B::Mod | B::Rem | B::Pow if dtype.is_int() => return Ok(of_two_integers(b, f, x, y)),
        B::Div => Code::Divide,
        B::Pow | B::Atan2 | B::Mod | B::Rem => {
            let (x, y) = (b.astype(x, wide(dtype)), b.astype(y, wide(dtype)));
            let z = match f {
                B::Pow => b.binary(Code::Power, x, y),
                B::Atan2 => b.binary(Code::Arctan2, x, y),
                B::Mod => b.binary(Code::Remainder, x, y),
                _ => remainder_of_floats(b, x, y),
            };
            return Ok(b.astype(z, dtype));
        }
        _ => return unsupported(format!("{f:?} of two elements")),
    };
    if matches!(code, Code::Maximum | Code::Minimum) && dtype.is_float() {
        return Ok(extreme(b, code, x, y));
    }
    Ok(b.binary(code, x, y))
}

/// The greater or lesser, and NaN where either is: MLX's devices do not agree on that.
pub(super) fn extreme(b: &mut Builder<'_>, code: Code, x: Val, y: Val) -> Val {
    let best = b.binary(code, x, y);
    let (a, c) = (b.question(Code::IsNan, x), b.question(Code::IsNan, y));
    let nan = b.binary(Code::LogicalOr, a, c);
    let none = b.scalar(b.dtype(x), f64::NAN);
    b.select(nan, none, best)
}

/// C's `fmod`: MLX's remainder has the sign of the divisor, and of two positive numbers they are the same.
fn remainder_of_floats(b: &mut Builder<'_>, x: Val, y: Val) -> Val {
    let (a, c) = (b.unary(Code::Abs, x), b.unary(Code::Abs, y));
    let r = b.binary(Code::Remainder, a, c);
    let zero = b.scalar(b.dtype(x), 0.0);
    let negative = b.compare(Code::Less, x, zero);
    let minus = b.unary(Code::Negative, r);
    b.select(negative, minus, r)
}

/// A shift by less than the width, else 0.
fn shift(b: &mut Builder<'_>, f: BinaryOp, x: Val, y: Val) -> Val {
    let dtype = b.dtype(x);
    let (width, zero) = (b.int(dtype, dtype.bits() as i128), b.int(dtype, 0));
    let within = b.compare(Code::Less, y, width);
    let by = b.select(within, y, zero);
    let code = if f == BinaryOp::Shl { Code::LeftShift } else { Code::RightShift };
    let shifted = b.binary(code, x, by);
    b.select(within, shifted, zero)
}

/// The unsigned type of the same width.
fn unsigned(dtype: DType) -> DType {
    match dtype {
        DType::I8 => DType::U8,
        DType::I16 => DType::U16,
        DType::I32 => DType::U32,
        DType::I64 => DType::U64,
        other => other,
    }
}

/// The magnitude of an integer as an unsigned one, and whether it is negative.
fn magnitude(b: &mut Builder<'_>, x: Val) -> (Val, Option<Val>) {
    let dtype = b.dtype(x);
    if !dtype.is_signed_int() {
        return (x, None);
    }
    let zero = b.int(dtype, 0);
    let negative = b.compare(Code::Less, x, zero);
    let minus = b.binary(Code::Subtract, zero, x);
    let size = b.select(negative, minus, x);
    // The smallest number is its own negative, whose bits are its magnitude.
    (b.view(size, unsigned(dtype)), Some(negative))
}

/// Minus `x` where `negative` holds.
fn signed(b: &mut Builder<'_>, x: Val, negative: Option<Val>, dtype: DType) -> Val {
    let x = b.view(x, dtype);
    let Some(negative) = negative else { return x };
    let zero = b.int(dtype, 0);
    let minus = b.binary(Code::Subtract, zero, x);
    b.select(negative, minus, x)
}

/// Quotients, remainders and powers of integers. MLX divides as the processor does, which may stop at a zero.
fn of_two_integers(b: &mut Builder<'_>, f: BinaryOp, x: Val, y: Val) -> Val {
    let dtype = b.dtype(x);
    if f == BinaryOp::Pow {
        return power(b, x, y);
    }
    let ((n, n_negative), (d, d_negative)) = (magnitude(b, x), magnitude(b, y));
    let (zero, one) = (b.int(b.dtype(d), 0), b.int(b.dtype(d), 1));
    let nothing = b.compare(Code::Equal, d, zero);
    let safe = b.select(nothing, one, d);
    let quotient = b.binary(Code::FloorDivide, n, safe);
    if f == BinaryOp::Div {
        let quotient = b.select(nothing, zero, quotient);
        let negative = n_negative.zip(d_negative).map(|(n, d)| b.compare(Code::NotEqual, n, d));
        return signed(b, quotient, negative, dtype);
    }
    let product = b.binary(Code::Multiply, quotient, safe);
    let rest = b.binary(Code::Subtract, n, product);
    let rest = b.select(nothing, zero, rest);
    let rest = signed(b, rest, n_negative, dtype);
    let (BinaryOp::Mod, Some(n), Some(d)) = (f, n_negative, d_negative) else { return rest };
    // The sign of the divisor.
    let zero = b.int(dtype, 0);
    let (differ, some) = (b.compare(Code::NotEqual, n, d), b.compare(Code::NotEqual, rest, zero));
    let shifts = b.binary(Code::LogicalAnd, differ, some);
    let other = b.binary(Code::Add, rest, y);
    b.select(shifts, other, rest)
}

/// Powers by squaring, which wrap; of a negative exponent what truncation leaves.
fn power(b: &mut Builder<'_>, x: Val, y: Val) -> Val {
    let dtype = b.dtype(x);
    let (zero, one) = (b.int(dtype, 0), b.int(dtype, 1));
    let exponent = b.binary(Code::Maximum, y, zero);
    let bits = unsigned(dtype);
    let mut exponent = b.view(exponent, bits);
    let (lowest, nothing) = (b.int(bits, 1), b.int(bits, 0));
    let dims: Vec<usize> = {
        let both = b.binary(Code::Add, x, y);
        b.dims(both).to_vec()
    };
    let (mut base, mut out) = (x, b.full(one, &dims));
    for _ in 0..dtype.bits() {
        let odd = b.binary(Code::BitwiseAnd, exponent, lowest);
        let odd = b.compare(Code::NotEqual, odd, nothing);
        let more = b.binary(Code::Multiply, out, base);
        out = b.select(odd, more, out);
        base = b.binary(Code::Multiply, base, base);
        exponent = b.binary(Code::RightShift, exponent, lowest);
    }
    if !dtype.is_signed_int() {
        return out;
    }
    let negative = b.compare(Code::Less, y, zero);
    let (minus_one, low) = (b.int(dtype, -1), b.binary(Code::BitwiseAnd, y, one));
    let (is_one, is_minus) = (b.compare(Code::Equal, x, one), b.compare(Code::Equal, x, minus_one));
    let odd = b.compare(Code::Equal, low, one);
    let turned = b.select(odd, minus_one, one);
    let rest = b.select(is_minus, turned, zero);
    let rest = b.select(is_one, one, rest);
    b.select(negative, rest, out)
}

pub(super) fn compare(b: &mut Builder<'_>, f: CmpOp, x: Val, y: Val) -> Result<Val> {
    // Bools compare as 0 and 1.
    let (x, y) =
        if b.dtype(x) == DType::Bool { (b.astype(x, DType::U8), b.astype(y, DType::U8)) } else { (x, y) };
    let code = match f {
        CmpOp::Eq => Code::Equal,
        CmpOp::Ne => Code::NotEqual,
        CmpOp::Lt => Code::Less,
        CmpOp::Le => Code::LessEqual,
        CmpOp::Gt => Code::Greater,
        CmpOp::Ge => Code::GreaterEqual,
        _ => return unsupported(format!("{f:?} of two elements")),
    };
    Ok(b.compare(code, x, y))
}

pub(super) fn predicate(b: &mut Builder<'_>, f: Predicate, x: Val) -> Result<Val> {
    let code = match f {
        Predicate::IsNan => Code::IsNan,
        Predicate::IsInf => Code::IsInf,
        Predicate::IsPosInf => Code::IsPosInf,
        Predicate::IsNegInf => Code::IsNegInf,
        _ => return unsupported(format!("{f:?} of an element")),
    };
    Ok(b.question(code, x))
}

/// A conversion; `dims` are those of the elements, which packed ones do not have.
pub(super) fn cast(b: &mut Builder<'_>, x: Val, to: DType, dims: &[usize]) -> Val {
    let from = b.dtype(x);
    if from == to {
        return x;
    }
    if from.is_packed() {
        let x = unpack(b, x, dims);
        return cast(b, x, to, dims);
    }
    if to.is_packed() {
        let x = if from.is_float() { to_integers(b, x, to) } else { b.astype(x, to.in_whole_bytes()) };
        return pack(b, x, to, dims);
    }
    match (from.is_float(), to) {
        (_, DType::Bool) => {
            let zero = if from.is_float() { b.scalar(from, 0.0) } else { b.int(from, 0) };
            b.compare(Code::NotEqual, x, zero)
        }
        (true, _) if to.is_int() => to_integers(b, x, to),
        // MLX goes through f32, and would round twice. (Integers that f32 has not are infinite as f16.)
        (false, DType::BF16) if from.bits() > 16 => {
            let x = to_odd(b, x);
            b.astype(x, to)
        }
        (true, DType::F16 | DType::BF16) if from == DType::F64 => {
            let x = doubles_to_odd(b, x);
            b.astype(x, to)
        }
        _ => b.astype(x, to),
    }
}

/// Integers as f32 that round to the same short float: what is beyond 24 bits becomes one sticky bit.
fn to_odd(b: &mut Builder<'_>, x: Val) -> Val {
    let (size, negative) = magnitude(b, x);
    let (mut kept, mut factor) = (b.astype(size, DType::U64), b.scalar(DType::F32, 1.0));
    for shift in [32u32, 16, 8, 4, 2, 1] {
        let (limit, by) = (b.int(DType::U64, 1 << (23 + shift)), b.int(DType::U64, shift.into()));
        let large = b.compare(Code::GreaterEqual, kept, limit);
        let high = b.binary(Code::RightShift, kept, by);
        let back = b.binary(Code::LeftShift, high, by);
        let lost = b.compare(Code::NotEqual, back, kept);
        let sticky = b.astype(lost, DType::U64);
        let high = b.binary(Code::BitwiseOr, high, sticky);
        kept = b.select(large, high, kept);
        let up = b.scalar(DType::F32, f64::from(shift).exp2());
        let more = b.binary(Code::Multiply, factor, up);
        factor = b.select(large, more, factor);
    }
    let y = b.astype(kept, DType::F32);
    let y = b.binary(Code::Multiply, y, factor);
    let Some(negative) = negative else { return y };
    let minus = b.unary(Code::Negative, y);
    b.select(negative, minus, y)
}

/// Doubles as f32 that round to the same short float: towards zero, the last bit set where anything was lost.
fn doubles_to_odd(b: &mut Builder<'_>, x: Val) -> Val {
    let y = b.astype(x, DType::F32);
    let back = b.astype(y, DType::F64);
    let lost = b.compare(Code::NotEqual, back, x);
    let (size, whole) = (b.unary(Code::Abs, back), b.unary(Code::Abs, x));
    let above = b.compare(Code::Greater, size, whole);
    let (one, bits) = (b.int(DType::I32, 1), b.view(y, DType::I32));
    let less = b.binary(Code::Subtract, bits, one);
    let bits = b.select(above, less, bits);
    let odd = b.binary(Code::BitwiseOr, bits, one);
    let bits = b.select(lost, odd, bits);
    b.view(bits, DType::F32)
}

/// Floats truncated to integers of `to`, saturating, NaN as 0; packed types in whole bytes.
fn to_integers(b: &mut Builder<'_>, x: Val, to: DType) -> Val {
    let x = b.astype(x, wide(b.dtype(x)));
    let (dtype, within) = (b.dtype(x), to.in_whole_bytes());
    let (low, high) = to.int_range().unwrap_or((0, 1));
    let x = truncated(b, x);
    // Both powers of two, or one less: above what a float is compared with, everything saturates.
    let (top, bottom) = (b.scalar(dtype, (high + 1) as f64), b.scalar(dtype, low as f64));
    let above = b.compare(Code::GreaterEqual, x, top);
    let below = b.compare(Code::LessEqual, x, bottom);
    let nan = b.question(Code::IsNan, x);
    let outside = b.binary(Code::LogicalOr, above, below);
    let outside = b.binary(Code::LogicalOr, outside, nan);
    let zero = b.scalar(dtype, 0.0);
    let safe = b.select(outside, zero, x);
    let y = b.astype(safe, within);
    let (least, most) = (b.int(within, low), b.int(within, high));
    let y = b.select(below, least, y);
    b.select(above, most, y)
}

/// Packed elements in whole bytes: from a row of bytes, low bits first.
pub(super) fn unpack(b: &mut Builder<'_>, x: Val, dims: &[usize]) -> Val {
    let from = b.dtype(x);
    let (bits, per_byte) = (from.bits(), 8 / from.bits());
    let elements: usize = dims.iter().product();
    if elements == 0 {
        return b.empty(from.in_whole_bytes(), dims);
    }
    let bytes = elements.div_ceil(per_byte);
    let shifts: Vec<u8> = (0..per_byte).map(|i| (i * bits) as u8).collect();
    let shifts = b.constant(DType::U8, &[1, per_byte], &shifts);
    // The builder takes the bytes for what they hold until here.
    let column = b.view_as(x, DType::U8, vec![bytes]);
    let column = b.reshape(column, &[bytes, 1]);
    let mask = b.int(DType::U8, (1 << bits) - 1);
    let parts = b.binary(Code::RightShift, column, shifts);
    let parts = b.binary(Code::BitwiseAnd, parts, mask);
    let row = b.reshape(parts, &[bytes * per_byte]);
    let row = b.narrow(row, 0, 0, elements);
    let row = b.reshape(row, dims);
    if !from.is_signed_int() {
        return row;
    }
    // The sign bit moved up and back: (x ^ s) − s.
    let row = b.view(row, DType::I8);
    let sign = b.int(DType::I8, 1 << (bits - 1));
    let flipped = b.binary(Code::BitwiseXor, row, sign);
    b.binary(Code::Subtract, flipped, sign)
}

/// Whole bytes as packed elements: a row of bytes, low bits first.
fn pack(b: &mut Builder<'_>, x: Val, to: DType, dims: &[usize]) -> Val {
    let (bits, per_byte) = (to.bits(), 8 / to.bits());
    let elements: usize = dims.iter().product();
    let bytes = elements.div_ceil(per_byte);
    if elements == 0 {
        return b.empty(to, &[0]);
    }
    let row = b.view(x, DType::U8);
    let row = b.reshape(row, &[elements]);
    let zero = b.int(DType::U8, 0);
    let row = b.pad(row, zero, &[0], &[bytes * per_byte - elements]);
    let rows = b.reshape(row, &[bytes, per_byte]);
    let mask = b.int(DType::U8, (1 << bits) - 1);
    let rows = b.binary(Code::BitwiseAnd, rows, mask);
    let shifts: Vec<u8> = (0..per_byte).map(|i| (i * bits) as u8).collect();
    let shifts = b.constant(DType::U8, &[1, per_byte], &shifts);
    let rows = b.binary(Code::LeftShift, rows, shifts);
    let mut packed = b.narrow(rows, 1, 0, 1);
    for i in 1..per_byte {
        let part = b.narrow(rows, 1, i, i + 1);
        packed = b.binary(Code::BitwiseOr, packed, part);
    }
    let packed = b.reshape(packed, &[bytes]);
    b.view_as(packed, to, vec![bytes])
}
