//! Elementary functions in `f32`, written out.
//!
//! Those of one argument are [`rlx_math`]'s; what is here are those of two, made of them.

use std::cell::RefCell;
use std::f64::consts;

use rlx_math::{Approximation, Visitor, of};

use super::lanes::Emit;
use crate::build::Builder;
use crate::ir::{BinOp, MathFn, Ty, UnOp, Value};
use crate::schedule::elementwise::is_nan;

fn n(b: &mut Builder, v: f64) -> Value {
    b.number(Ty::F32, v)
}

/// The magnitude with the sign of another value.
fn with_sign(b: &mut Builder, magnitude: Value, sign: Value) -> Value {
    let (m, s) = (b.bitcast(Ty::U32, magnitude), b.bitcast(Ty::U32, sign));
    let top = b.word(0x8000_0000);
    let s = b.and(s, top);
    let v = b.xor(m, s);
    b.bitcast(Ty::F32, v)
}

/// `A` of a number, written out to the last step.
fn plain<A: Approximation>(b: &mut Builder, x: Value) -> Value {
    let b = RefCell::new(b);
    A::lanes(Emit::new(&b, Ty::F32, false), x)
}

/// Writes `A(x)` of an f32 out; NaN stays NaN also where a device takes arithmetic to have none.
///
/// It is what [`emulate`](super::emulate) does with [`UnOp::Math`], for any approximation.
///
/// ```
/// use rlx_ir::DType;
/// use rlx_kernel::{build::Builder, emulate, ir::Access};
/// let mut b = Builder::new("exp", 64);
/// let x = b.buffer("x", DType::F32, Access::Read);
/// let i = b.global_id();
/// let v = b.load(x, i);
/// let y = emulate::expand::<rlx_math::of::Exp>(&mut b, v);
/// assert_ne!(y, v);
/// ```
pub fn expand<A: Approximation>(b: &mut Builder, x: Value) -> Value {
    guarded::<A>(b, x, false)
}

fn guarded<A: Approximation>(b: &mut Builder, x: Value, library: bool) -> Value {
    let ty = b.ty(x);
    let nan = is_nan(b, x);
    let zero = b.number(ty, 0.0);
    let number = b.select(nan, zero, x);
    let y = {
        let b = RefCell::new(&mut *b);
        A::lanes(Emit::new(&b, ty, library), number)
    };
    b.select(nan, x, y)
}

/// A function that the device has not, written out.
struct Expand<'b> {
    b: &'b mut Builder,
    x: Value,
    library: bool,
}

impl Visitor for Expand<'_> {
    type Output = Value;
    fn visit<A: Approximation>(self) -> Value {
        guarded::<A>(self.b, self.x, self.library)
    }
}

/// `f(x)`; `library` says whether the device has a good library, for the functions in a formula.
pub(super) fn unary(b: &mut Builder, f: MathFn, x: Value, library: bool) -> Value {
    f.visit(Expand { b, x, library })
}

/// `f(x, y)`.
pub(super) fn binary(b: &mut Builder, op: BinOp, x: Value, y: Value) -> Value {
    match op {
        BinOp::Pow => pow(b, x, y),
        BinOp::Atan2 => atan2(b, x, y),
        _ => fmod(b, x, y),
    }
}

fn pow(b: &mut Builder, x: Value, y: Value) -> Value {
    let a = b.unary(UnOp::Abs, x);
    let l = plain::<of::Log>(b, a);
    let product = b.mul(y, l);
    let m = plain::<of::Exp>(b, product);
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
    let a = plain::<of::Atan>(b, ratio);
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
