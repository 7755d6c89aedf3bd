//! Functions of the mathematical library in `f32`, as polynomials.
//!
//! Ranges are reduced as Moshier's Cephes library does, with its coefficients; errors are a few units in the
//! last place of the result or, near zeros of the function, of 1. The remainder is exact while the quotient
//! is below 2²².

use std::f64::consts;

use crate::build::Builder;
use crate::ir::{BinOp, MathFn, Ty, UnOp, Value};
use crate::schedule::elementwise::is_nan;

fn n(b: &mut Builder, v: f64) -> Value {
    b.number(Ty::F32, v)
}

/// `((c₀·x + c₁)·x + …)`.
fn polynomial(b: &mut Builder, x: Value, coefficients: &[f64]) -> Value {
    let mut sum = n(b, coefficients[0]);
    for &c in &coefficients[1..] {
        let (scaled, c) = (b.mul(sum, x), n(b, c));
        sum = b.add(scaled, c);
    }
    sum
}

/// `a·b + c`.
fn muladd(b: &mut Builder, x: Value, y: Value, z: Value) -> Value {
    let p = b.mul(x, y);
    b.add(p, z)
}

/// The magnitude with the sign of another value.
fn with_sign(b: &mut Builder, magnitude: Value, sign: Value) -> Value {
    let (m, s) = (b.bitcast(Ty::U32, magnitude), b.bitcast(Ty::U32, sign));
    let top = b.word(0x8000_0000);
    let s = b.and(s, top);
    let v = b.xor(m, s);
    b.bitcast(Ty::F32, v)
}

/// `f(x)`.
pub(super) fn unary(b: &mut Builder, f: MathFn, x: Value) -> Value {
    match f {
        MathFn::Exp => exp(b, x),
        MathFn::Log => log(b, x),
        MathFn::Sin => sine(b, x, 0),
        MathFn::Cos => sine(b, x, 1),
        MathFn::Tan => {
            let (s, c) = (sine(b, x, 0), sine(b, x, 1));
            b.div(s, c)
        }
        MathFn::Atan => atan(b, x),
        MathFn::Asin => asin(b, x),
        MathFn::Acos => {
            let (a, right) = (asin(b, x), n(b, consts::FRAC_PI_2));
            b.sub(right, a)
        }
        MathFn::Sinh | MathFn::Cosh => {
            let (e, half, one) = (exp(b, x), n(b, 0.5), n(b, 1.0));
            let inverse = b.div(one, e);
            let v = if f == MathFn::Sinh { b.sub(e, inverse) } else { b.add(e, inverse) };
            b.mul(v, half)
        }
        MathFn::Tanh => {
            let a = b.unary(UnOp::Abs, x);
            let (two, one) = (n(b, -2.0), n(b, 1.0));
            let e = b.mul(a, two);
            let e = exp(b, e);
            let (up, down) = (b.sub(one, e), b.add(one, e));
            let v = b.div(up, down);
            with_sign(b, v, x)
        }
        MathFn::Asinh => asinh(b, x),
        MathFn::Acosh => {
            let one = n(b, 1.0);
            let (less, more) = (b.sub(x, one), b.add(x, one));
            let square = b.mul(less, more);
            let root = b.unary(UnOp::Sqrt, square);
            let sum = b.add(x, root);
            log(b, sum)
        }
        MathFn::Atanh => {
            let (one, half) = (n(b, 1.0), n(b, 0.5));
            let (up, down) = (b.add(one, x), b.sub(one, x));
            let q = b.div(up, down);
            let l = log(b, q);
            b.mul(l, half)
        }
        MathFn::Erf => erf(b, x),
    }
}

/// `f(x, y)`.
pub(super) fn binary(b: &mut Builder, op: BinOp, x: Value, y: Value) -> Value {
    match op {
        BinOp::Pow => pow(b, x, y),
        BinOp::Atan2 => atan2(b, x, y),
        _ => fmod(b, x, y),
    }
}

fn exp(b: &mut Builder, x: Value) -> Value {
    let nan = is_nan(b, x);
    let (zero, least, most) = (n(b, 0.0), n(b, -104.0), n(b, 89.0));
    let v = b.select(nan, zero, x);
    let v = b.max(v, least);
    let v = b.min(v, most);
    let per_octave = n(b, consts::LOG2_E);
    let octaves = b.mul(v, per_octave);
    let octaves = b.unary(UnOp::Round, octaves);
    // ln 2 in two parts, the first exact in few bits.
    let (high, low) = (n(b, -0.693_359_375), n(b, 2.121_944_4e-4));
    let r = muladd(b, octaves, high, v);
    let r = muladd(b, octaves, low, r);
    let p = polynomial(
        b,
        r,
        &[
            1.987_569_15e-4,
            1.398_199_950_7e-3,
            8.333_451_907_3e-3,
            4.166_579_589_4e-2,
            1.666_666_545_9e-1,
            0.5,
        ],
    );
    let square = b.mul(r, r);
    let y = muladd(b, p, square, r);
    let one = n(b, 1.0);
    let y = b.add(y, one);
    // Two steps, so that neither power of two leaves the range.
    let octaves = b.convert(Ty::I32, octaves);
    let first = b.shr(octaves, 1);
    let second = b.sub(octaves, first);
    let y = scaled(b, y, first);
    let y = scaled(b, y, second);
    b.select(nan, x, y)
}

/// `x · 2^by`.
fn scaled(b: &mut Builder, x: Value, by: Value) -> Value {
    let bias = b.int(127);
    let exponent = b.add(by, bias);
    let bits = b.shl(exponent, 23);
    let factor = b.bitcast(Ty::F32, bits);
    b.mul(x, factor)
}

fn log(b: &mut Builder, x: Value) -> Value {
    let (least_normal, up) = (n(b, f64::from(f32::MIN_POSITIVE)), n(b, 8_388_608.0));
    let small = b.lt(x, least_normal);
    let grown = b.mul(x, up);
    let v = b.select(small, grown, x);
    let bits = b.bitcast(Ty::U32, v);
    let exponent = b.shr(bits, 23);
    let exponent = b.bitcast(Ty::I32, exponent);
    let (plain, lifted) = (b.int(126), b.int(149));
    let bias = b.select(small, lifted, plain);
    let exponent = b.sub(exponent, bias);
    let (fraction, half) = (b.word(0x7F_FFFF), b.word(0x3F00_0000));
    let m = b.and(bits, fraction);
    let m = b.or(m, half);
    let m = b.bitcast(Ty::F32, m);
    // m in √½..√2, less 1.
    let root = n(b, consts::FRAC_1_SQRT_2);
    let low = b.lt(m, root);
    let step = b.convert(Ty::I32, low);
    let exponent = b.sub(exponent, step);
    let twice = b.add(m, m);
    let m = b.select(low, twice, m);
    let one = n(b, 1.0);
    let m = b.sub(m, one);
    let e = b.convert(Ty::F32, exponent);
    let p = polynomial(
        b,
        m,
        &[
            7.037_683_629_2e-2,
            -1.151_461_031_0e-1,
            1.167_699_874_0e-1,
            -1.242_014_084_6e-1,
            1.424_932_278_7e-1,
            -1.666_805_766_5e-1,
            2.000_071_476_5e-1,
            -2.499_999_399_3e-1,
            3.333_333_117_4e-1,
        ],
    );
    let z = b.mul(m, m);
    let y = b.mul(m, z);
    let y = b.mul(y, p);
    let (low_ln, high_ln, minus_half) = (n(b, -2.121_944_4e-4), n(b, 0.693_359_375), n(b, -0.5));
    let y = muladd(b, e, low_ln, y);
    let y = muladd(b, z, minus_half, y);
    let y = b.add(m, y);
    let y = muladd(b, e, high_ln, y);
    log_at_the_ends(b, x, y)
}

/// `y = ln x` inside of the range; at its ends 0 gives −∞, ∞ itself, what is below 0 or NaN gives NaN.
fn log_at_the_ends(b: &mut Builder, x: Value, y: Value) -> Value {
    let (zero, infinity, minus) = (n(b, 0.0), n(b, f64::INFINITY), n(b, f64::NEG_INFINITY));
    let not = n(b, f64::NAN);
    let positive = b.gt(x, zero);
    let y = b.select(positive, y, not);
    let is_zero = b.eq(x, zero);
    let y = b.select(is_zero, minus, y);
    let is_infinite = b.eq(x, infinity);
    b.select(is_infinite, infinity, y)
}

/// The sine of `x` and `quarters` right angles.
fn sine(b: &mut Builder, x: Value, quarters: i32) -> Value {
    let per_quarter = n(b, consts::FRAC_2_PI);
    let turns = b.mul(x, per_quarter);
    let turns = b.unary(UnOp::Round, turns);
    // π/2 in three parts.
    let mut r = x;
    for part in [-1.570_312_5, -4.837_512_969_970_703e-4, -7.549_789_954_891_882e-8] {
        let part = n(b, part);
        r = muladd(b, turns, part, r);
    }
    let z = b.mul(r, r);
    let s = polynomial(b, z, &[-1.951_529_589_1e-4, 8.332_160_873_6e-3, -1.666_665_461_1e-1]);
    let s = b.mul(s, z);
    let s = muladd(b, s, r, r);
    let c =
        polynomial(b, z, &[2.443_315_711_809_948e-5, -1.388_731_625_493_765e-3, 4.166_664_568_298_827e-2]);
    let c = b.mul(c, z);
    let (minus_half, one) = (n(b, -0.5), n(b, 1.0));
    let c = b.add(c, minus_half);
    let c = muladd(b, c, z, one);
    let quarter = b.convert(Ty::I32, turns);
    let more = b.int(quarters);
    let quarter = b.add(quarter, more);
    let (first, second, zero) = (b.int(1), b.int(2), b.int(0));
    let odd = b.and(quarter, first);
    let odd = b.ne(odd, zero);
    let v = b.select(odd, c, s);
    let far = b.and(quarter, second);
    let far = b.ne(far, zero);
    let minus = b.neg(v);
    b.select(far, minus, v)
}

fn atan(b: &mut Builder, x: Value) -> Value {
    let a = b.unary(UnOp::Abs, x);
    let (one, minus, zero) = (n(b, 1.0), n(b, -1.0), n(b, 0.0));
    let (eighth, three_eighths) = (n(b, 0.414_213_562_373_095), n(b, 2.414_213_562_373_095));
    let (large, middle) = (b.gt(a, three_eighths), b.gt(a, eighth));
    let inverse = b.div(minus, a);
    let (less, more) = (b.sub(a, one), b.add(a, one));
    let turned = b.div(less, more);
    let v = b.select(middle, turned, a);
    let v = b.select(large, inverse, v);
    let (right, half) = (n(b, consts::FRAC_PI_2), n(b, consts::FRAC_PI_4));
    let start = b.select(middle, half, zero);
    let start = b.select(large, right, start);
    let z = b.mul(v, v);
    let p = polynomial(
        b,
        z,
        &[8.053_744_495_38e-2, -1.387_768_560_32e-1, 1.997_771_064_78e-1, -3.333_294_915_39e-1],
    );
    let p = b.mul(p, z);
    let p = muladd(b, p, v, v);
    let y = b.add(start, p);
    with_sign(b, y, x)
}

fn asin(b: &mut Builder, x: Value) -> Value {
    let one = n(b, 1.0);
    let (less, more) = (b.sub(one, x), b.add(one, x));
    let square = b.mul(less, more);
    let root = b.unary(UnOp::Sqrt, square);
    let tangent = b.div(x, root);
    atan(b, tangent)
}

fn asinh(b: &mut Builder, x: Value) -> Value {
    let a = b.unary(UnOp::Abs, x);
    let (one, far, ln2) = (n(b, 1.0), n(b, 1e9), n(b, consts::LN_2));
    let square = muladd(b, a, a, one);
    let root = b.unary(UnOp::Sqrt, square);
    let sum = b.add(a, root);
    let is_far = b.gt(a, far);
    let argument = b.select(is_far, a, sum);
    let l = log(b, argument);
    let more = b.add(l, ln2);
    let y = b.select(is_far, more, l);
    with_sign(b, y, x)
}

/// Near 0 by its series, beyond by 7.1.26 of Abramowitz and Stegun (error below 1.5e-7).
fn erf(b: &mut Builder, x: Value) -> Value {
    let a = b.unary(UnOp::Abs, x);
    let z = b.mul(a, a);
    let series = polynomial(b, z, &[-1.0 / 1320.0, 1.0 / 216.0, -1.0 / 42.0, 0.1, -1.0 / 3.0, 1.0]);
    let scale = n(b, consts::FRAC_2_SQRT_PI);
    let near = b.mul(series, a);
    let near = b.mul(near, scale);
    let (one, p) = (n(b, 1.0), n(b, 0.327_591_1));
    let d = muladd(b, a, p, one);
    let t = b.div(one, d);
    let sum =
        polynomial(b, t, &[1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592, 0.0]);
    let minus = b.neg(z);
    let e = exp(b, minus);
    let tail = b.mul(sum, e);
    let far = b.sub(one, tail);
    // Beyond every float's reach: infinity times 0 has no place here.
    let (half, end) = (n(b, 0.5), n(b, 4.0));
    let (is_near, is_end) = (b.lt(a, half), b.gt(a, end));
    let y = b.select(is_near, near, far);
    let y = b.select(is_end, one, y);
    with_sign(b, y, x)
}

fn pow(b: &mut Builder, x: Value, y: Value) -> Value {
    let a = b.unary(UnOp::Abs, x);
    let l = log(b, a);
    let product = b.mul(y, l);
    let m = exp(b, product);
    let (zero, half, one, not) = (n(b, 0.0), n(b, 0.5), n(b, 1.0), n(b, f64::NAN));
    let whole = b.unary(UnOp::Floor, y);
    let is_whole = b.eq(whole, y);
    let halved = b.mul(y, half);
    let floor = b.unary(UnOp::Floor, halved);
    let odd = b.ne(floor, halved);
    let minus = b.neg(m);
    let signed = b.select(odd, minus, m);
    let signed = b.select(is_whole, signed, not);
    let negative = b.lt(x, zero);
    let v = b.select(negative, signed, m);
    let none = b.eq(y, zero);
    let v = b.select(none, one, v);
    let unit = b.eq(x, one);
    b.select(unit, one, v)
}

fn fmod(b: &mut Builder, x: Value, y: Value) -> Value {
    let q = b.div(x, y);
    let q = b.unary(UnOp::Trunc, q);
    let p = b.mul(q, y);
    let r = b.sub(x, p);
    // The quotient may have been rounded up, or down: one step back puts it right.
    let (size, zero) = (b.unary(UnOp::Abs, y), n(b, 0.0));
    let step = with_sign(b, size, x);
    let (r_below, x_below, there) = (b.lt(r, zero), b.lt(x, zero), b.ne(r, zero));
    let crossed = b.xor(r_below, x_below);
    let crossed = b.and(crossed, there);
    let back = b.add(r, step);
    let r = b.select(crossed, back, r);
    let far = b.unary(UnOp::Abs, r);
    let too_far = b.ge(far, size);
    let less = b.sub(r, step);
    let r = b.select(too_far, less, r);
    let infinity = n(b, f64::INFINITY);
    let (endless, dividend) = (b.eq(size, infinity), b.unary(UnOp::Abs, x));
    let finite = b.lt(dividend, infinity);
    let whole = b.and(endless, finite);
    b.select(whole, x, r)
}

/// The angle of the point (`x`, `y`): the first argument is the ordinate.
fn atan2(b: &mut Builder, y: Value, x: Value) -> Value {
    let (p, q) = (b.unary(UnOp::Abs, y), b.unary(UnOp::Abs, x));
    let (low, high) = (b.min(p, q), b.max(p, q));
    let (zero, one) = (n(b, 0.0), n(b, 1.0));
    let (origin, tied) = (b.eq(high, zero), b.eq(p, q));
    let ratio = b.div(low, high);
    let ratio = b.select(tied, one, ratio);
    let ratio = b.select(origin, zero, ratio);
    let a = atan(b, ratio);
    let (right, straight) = (n(b, consts::FRAC_PI_2), n(b, consts::PI));
    let steep = b.gt(p, q);
    let rest = b.sub(right, a);
    let a = b.select(steep, rest, a);
    let bits = b.bitcast(Ty::I32, x);
    let none = b.int(0);
    let left = b.lt(bits, none);
    let rest = b.sub(straight, a);
    let a = b.select(left, rest, a);
    let a = with_sign(b, a, y);
    let (y_nan, x_nan) = (is_nan(b, y), is_nan(b, x));
    let a = b.select(x_nan, x, a);
    b.select(y_nan, y, a)
}
