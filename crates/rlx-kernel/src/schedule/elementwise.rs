//! Elementwise ops on one element: the instructions each becomes.
//!
//! Every result is rounded to the op's element type before the next op sees it: half precision by rounding,
//! narrow integers by wrapping, so that casts, floors and comparisons decide as they should.

use rlx_ir::op::{Activation, BinaryOp, CmpOp, Predicate};
use rlx_ir::ops::attr::NamedVariant;
use rlx_ir::{DType, DTypeClass, Op};

use super::{Scheduled, reject, small_floats};
use crate::build::Builder;
use crate::ir::{BinOp, Cmp, Const, MathFn, Ty, UnOp, Value};

/// Whether elements of `dtype` can be computed with (not only moved).
pub fn computes(dtype: DType) -> bool {
    match dtype.class() {
        DTypeClass::Float => dtype.bits() >= 16,
        DTypeClass::Complex => false,
        _ => true,
    }
}

/// The result of elementwise `op` on `args`; `from` is the element type of the last operand, `to` the
/// result's.
///
/// # Errors
/// An op or element type without instructions.
pub fn apply(b: &mut Builder, op: &Op, args: &[Value], from: DType, to: DType) -> Scheduled<Value> {
    // Of 8 bits there are casts alone; one from f64 would round twice.
    let casts = matches!(op, Op::Cast { .. }) && from != DType::F64;
    let is_cast = |dtype| casts && small_floats::is_small(dtype);
    for dtype in [from, to] {
        if !computes(dtype) && !is_cast(dtype) {
            return reject(format!("{} of {dtype}", op.kind()));
        }
    }
    let value = match (op, args) {
        (Op::Activation(f), &[x]) if from.is_float() => activation(b, *f, x)?,
        (Op::Activation(f), &[x]) => activation_int(b, *f, x),
        (Op::Binary(f), &[x, y]) if from.is_float() => binary_float(b, *f, x, y)?,
        (Op::Binary(f), &[x, y]) if from == DType::Bool => binary_bool(b, *f, x, y)?,
        (Op::Binary(f), &[x, y]) => binary_int(b, *f, x, y, from)?,
        (Op::Compare(f), &[x, y]) => compare(b, *f, x, y)?,
        (Op::Predicate(f), &[x]) => predicate(b, *f, x)?,
        (Op::Where, &[c, x, y]) => b.select(c, x, y),
        (Op::Cast { .. }, &[x]) => return Ok(cast(b, x, from, to)),
        _ => return reject(format!("{} has no instructions", op.kind())),
    };
    Ok(narrowed(b, value, to))
}

/// A value as its element type holds it.
pub(crate) fn narrowed(b: &mut Builder, v: Value, dtype: DType) -> Value {
    match dtype {
        DType::F16 => b.unary(UnOp::RoundF16, v),
        DType::BF16 => b.unary(UnOp::RoundBF16, v),
        _ if dtype.is_int() && dtype.bits() < 32 => {
            let bits = dtype.bits() as u32;
            if dtype.is_signed_int() {
                let up = b.shl(v, 32 - bits);
                b.shr(up, 32 - bits)
            } else {
                let mask = b.word((1 << bits) - 1);
                b.and(v, mask)
            }
        }
        _ => v,
    }
}

/// A value as an element of another type.
pub(crate) fn cast(b: &mut Builder, x: Value, from: DType, to: DType) -> Value {
    if small_floats::is_small(from) {
        let wide = small_floats::widened(b, x, from);
        return cast(b, wide, DType::F32, to);
    }
    if small_floats::is_small(to) {
        let wide = cast(b, x, from, DType::F32);
        return small_floats::nearest(b, wide, to);
    }
    let ty = Ty::of(to);
    if from.is_float() && to.is_int() && to.bits() < 32 {
        // Saturating, not wrapping.
        let wide = b.convert(ty, x);
        let (min, max) = to.int_range().unwrap_or((0, 0));
        let (low, high) = (b.constant(Const::int(ty, min as i64)), b.constant(Const::int(ty, max as i64)));
        let v = b.max(wide, low);
        return b.min(v, high);
    }
    let v = b.convert(ty, x);
    if from == to { v } else { narrowed(b, v, to) }
}

/// Whether a float is not a number, decided by its bits: a device may take arithmetic to have none.
pub(crate) fn is_nan(b: &mut Builder, x: Value) -> Value {
    if b.ty(x) == Ty::F64 {
        return b.ne(x, x);
    }
    let (magnitude, infinity) = magnitude_bits(b, x);
    b.gt(magnitude, infinity)
}

fn magnitude_bits(b: &mut Builder, x: Value) -> (Value, Value) {
    let bits = b.bitcast(Ty::U32, x);
    let (mask, infinity) = (b.word(0x7FFF_FFFF), b.word(0x7F80_0000));
    (b.and(bits, mask), infinity)
}

/// The greater or lesser of two floats; NaN when either is.
pub(crate) fn float_choice(b: &mut Builder, op: BinOp, x: Value, y: Value) -> Value {
    let best = b.binary(op, x, y);
    let (x_nan, y_nan) = (is_nan(b, x), is_nan(b, y));
    let v = b.select(y_nan, y, best);
    b.select(x_nan, x, v)
}

fn activation(b: &mut Builder, f: Activation, x: Value) -> Scheduled<Value> {
    use Activation as A;
    let ty = b.ty(x);
    let (zero, one) = (b.number(ty, 0.0), b.number(ty, 1.0));
    Ok(match f {
        A::Sqrt => b.unary(UnOp::Sqrt, x),
        A::Neg => b.neg(x),
        A::Abs => b.unary(UnOp::Abs, x),
        A::Round => b.unary(UnOp::Round, x),
        A::Floor => b.unary(UnOp::Floor, x),
        A::Ceil => b.unary(UnOp::Ceil, x),
        A::Trunc => b.unary(UnOp::Trunc, x),
        A::Recip => b.div(one, x),
        A::Rsqrt => {
            let root = b.unary(UnOp::Sqrt, x);
            b.div(one, root)
        }
        A::Relu => {
            let (positive, nan) = (b.gt(x, zero), is_nan(b, x));
            let keep = b.or(positive, nan);
            b.select(keep, x, zero)
        }
        A::Sign => {
            let minus = b.number(ty, -1.0);
            let (positive, negative) = (b.gt(x, zero), b.lt(x, zero));
            let v = b.select(negative, minus, x);
            b.select(positive, one, v)
        }
        other => match MathFn::named(other.name()) {
            Some(f) => b.math(f, x),
            None => return reject(format!("Activation.{other} of floats")),
        },
    })
}

fn activation_int(b: &mut Builder, f: Activation, x: Value) -> Value {
    use Activation as A;
    let ty = b.ty(x);
    if ty == Ty::Bool {
        return if f == A::Not { b.not(x) } else { x };
    }
    let zero = b.constant(Const::int(ty, 0));
    match f {
        A::Neg => b.neg(x),
        A::BitNot => b.not(x),
        A::Abs if ty.is_signed() => {
            let (negative, minus) = (b.lt(x, zero), b.neg(x));
            b.select(negative, minus, x)
        }
        A::Relu if ty.is_signed() => b.max(x, zero),
        A::Sign => {
            let (one, minus) = (b.constant(Const::int(ty, 1)), b.constant(Const::int(ty, -1)));
            let positive = b.gt(x, zero);
            let v = if ty.is_signed() {
                let negative = b.lt(x, zero);
                b.select(negative, minus, zero)
            } else {
                zero
            };
            b.select(positive, one, v)
        }
        _ => x,
    }
}

fn binary_float(b: &mut Builder, f: BinaryOp, x: Value, y: Value) -> Scheduled<Value> {
    use BinaryOp as B;
    let ty = b.ty(x);
    Ok(match f {
        B::Add => b.add(x, y),
        B::Sub => b.sub(x, y),
        B::Mul => b.mul(x, y),
        B::Div => b.div(x, y),
        B::Max => float_choice(b, BinOp::Max, x, y),
        B::Min => float_choice(b, BinOp::Min, x, y),
        B::Pow => b.binary(BinOp::Pow, x, y),
        B::Rem => b.binary(BinOp::Fmod, x, y),
        B::Atan2 => b.binary(BinOp::Atan2, x, y),
        B::Mod => {
            let r = b.binary(BinOp::Fmod, x, y);
            let zero = b.number(ty, 0.0);
            with_sign_of_divisor(b, r, y, zero)
        }
        other => return reject(format!("Binary.{other} of floats")),
    })
}

/// A remainder moved to the side of its divisor.
fn with_sign_of_divisor(b: &mut Builder, r: Value, y: Value, zero: Value) -> Value {
    let (there, r_below, y_below) = (b.ne(r, zero), b.lt(r, zero), b.lt(y, zero));
    let differs = b.xor(r_below, y_below);
    let moves = b.and(there, differs);
    let moved = b.add(r, y);
    b.select(moves, moved, r)
}

fn binary_bool(b: &mut Builder, f: BinaryOp, x: Value, y: Value) -> Scheduled<Value> {
    use BinaryOp as B;
    Ok(match f {
        B::And | B::Min => b.and(x, y),
        B::Or | B::Max => b.or(x, y),
        B::Xor => b.xor(x, y),
        other => return reject(format!("Binary.{other} of bools")),
    })
}

fn binary_int(b: &mut Builder, f: BinaryOp, x: Value, y: Value, dtype: DType) -> Scheduled<Value> {
    use BinaryOp as B;
    let ty = b.ty(x);
    let zero = b.constant(Const::int(ty, 0));
    Ok(match f {
        B::Add => b.add(x, y),
        B::Sub => b.sub(x, y),
        B::Mul => b.mul(x, y),
        B::Max => b.max(x, y),
        B::Min => b.min(x, y),
        B::BitAnd => b.and(x, y),
        B::BitOr => b.or(x, y),
        B::BitXor => b.xor(x, y),
        B::Div => divided(b, BinOp::Div, x, y),
        B::Rem => divided(b, BinOp::Rem, x, y),
        B::Mod => {
            let r = divided(b, BinOp::Rem, x, y);
            if ty.is_signed() { with_sign_of_divisor(b, r, y, zero) } else { r }
        }
        B::Shl | B::Shr => {
            let width = b.constant(Const::int(ty, dtype.bits() as i64));
            let last = b.constant(Const::int(ty, dtype.bits() as i64 - 1));
            let inside = b.lt(y, width);
            let by = b.min(y, last);
            let by = b.convert(Ty::U32, by);
            let v = b.binary(if f == B::Shl { BinOp::Shl } else { BinOp::Shr }, x, by);
            b.select(inside, v, zero)
        }
        B::Pow => power(b, x, y, dtype),
        other => return reject(format!("Binary.{other} of integers")),
    })
}

/// Quotient or remainder with a divisor that may be 0 (then 0 results) or overflow (then it wraps).
fn divided(b: &mut Builder, op: BinOp, x: Value, y: Value) -> Value {
    let ty = b.ty(x);
    let (zero, one) = (b.constant(Const::int(ty, 0)), b.constant(Const::int(ty, 1)));
    let by_zero = b.eq(y, zero);
    let safe = b.select(by_zero, one, y);
    if !ty.is_signed() {
        let v = b.binary(op, x, safe);
        return b.select(by_zero, zero, v);
    }
    // Division by −1 is negation, also of the smallest value, which wraps.
    let minus = b.constant(Const::int(ty, -1));
    let by_minus = b.eq(y, minus);
    let safe = b.select(by_minus, one, safe);
    let v = b.binary(op, x, safe);
    let negated = if op == BinOp::Div { b.neg(x) } else { zero };
    let v = b.select(by_minus, negated, v);
    b.select(by_zero, zero, v)
}

/// `xʸ` by squaring, wrapping; a negative exponent gives what truncation leaves.
fn power(b: &mut Builder, x: Value, y: Value, dtype: DType) -> Value {
    let ty = b.ty(x);
    let (zero, one) = (b.constant(Const::int(ty, 0)), b.constant(Const::int(ty, 1)));
    let (base, rest, out) = (b.var(x), b.var(y), b.var(one));
    let bits = b.int(dtype.bits() as i32);
    b.for_each(bits, |b, _| {
        let (now, square, left) = (b.get(out), b.get(base), b.get(rest));
        let odd = b.and(left, one);
        let odd = b.ne(odd, zero);
        let more = b.mul(now, square);
        let next = b.select(odd, more, now);
        b.set(out, next);
        let squared = b.mul(square, square);
        b.set(base, squared);
        let half = b.shr(left, 1);
        b.set(rest, half);
    });
    let result = b.get(out);
    if !ty.is_signed() {
        return result;
    }
    // 1⁻ⁿ is 1, (−1)⁻ⁿ is (−1)ⁿ, anything else is 0.
    let minus = b.constant(Const::int(ty, -1));
    let low = b.and(y, one);
    let odd = b.ne(low, zero);
    let alternating = b.select(odd, minus, one);
    let (is_one, is_minus) = (b.eq(x, one), b.eq(x, minus));
    let v = b.select(is_minus, alternating, zero);
    let v = b.select(is_one, one, v);
    let negative = b.lt(y, zero);
    b.select(negative, v, result)
}

fn compare(b: &mut Builder, f: CmpOp, x: Value, y: Value) -> Scheduled<Value> {
    let (x, y) = match b.ty(x) {
        Ty::Bool => (b.convert(Ty::U32, x), b.convert(Ty::U32, y)),
        _ => (x, y),
    };
    let op = match f {
        CmpOp::Eq => Cmp::Eq,
        CmpOp::Ne => Cmp::Ne,
        CmpOp::Lt => Cmp::Lt,
        CmpOp::Le => Cmp::Le,
        CmpOp::Gt => Cmp::Gt,
        CmpOp::Ge => Cmp::Ge,
        other => return reject(format!("Compare.{other}")),
    };
    Ok(b.compare(op, x, y))
}

fn predicate(b: &mut Builder, f: Predicate, x: Value) -> Scheduled<Value> {
    if f == Predicate::IsNan {
        return Ok(is_nan(b, x));
    }
    let ty = b.ty(x);
    let (plus, minus) = (b.number(ty, f64::INFINITY), b.number(ty, f64::NEG_INFINITY));
    let (x, plus, minus) = if ty == Ty::F32 {
        (b.bitcast(Ty::U32, x), b.bitcast(Ty::U32, plus), b.bitcast(Ty::U32, minus))
    } else {
        (x, plus, minus)
    };
    let (is_plus, is_minus) = (b.eq(x, plus), b.eq(x, minus));
    Ok(match f {
        Predicate::IsInf => b.or(is_plus, is_minus),
        Predicate::IsPosInf => is_plus,
        Predicate::IsNegInf => is_minus,
        other => return reject(format!("Predicate.{other}")),
    })
}
