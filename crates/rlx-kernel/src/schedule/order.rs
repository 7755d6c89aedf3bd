//! Orders of elements: which of two is wanted first, and numbers by which elements are sorted.

use crate::build::Builder;
use crate::ir::{Const, Ty, Value};

use super::elementwise;

/// Which of two elements is wanted first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    pub largest: bool,
    /// Whether NaN comes before all numbers; else it is the largest of them.
    pub nan_wins: bool,
    /// Whether the last of equal elements counts.
    pub last: bool,
}

impl Order {
    /// Whether `x` comes before `y`, ties left aside; and whether they tie.
    pub fn before(self, b: &mut Builder, x: Value, y: Value) -> (Value, Value) {
        let (x, y) = match b.ty(x) {
            Ty::Bool => (b.convert(Ty::U32, x), b.convert(Ty::U32, y)),
            _ => (x, y),
        };
        let (first, tied) = (if self.largest { b.gt(x, y) } else { b.lt(x, y) }, b.eq(x, y));
        if !b.ty(x).is_float() {
            return (first, tied);
        }
        let (x_nan, y_nan) = (elementwise::is_nan(b, x), elementwise::is_nan(b, y));
        let both = b.and(x_nan, y_nan);
        let wins = if self.nan_wins || self.largest { x_nan } else { y_nan };
        let one_nan = b.xor(x_nan, y_nan);
        let first = b.select(one_nan, wins, first);
        (first, b.or(tied, both))
    }

    /// A number that is smaller the sooner an element is wanted, and equal where elements tie. NaN is the largest of all numbers.
    pub fn key(self, b: &mut Builder, v: Value) -> Value {
        let ty = b.ty(v);
        let of = key_type(ty);
        let sign = b.constant(Const { ty: of, bits: 1 << (of.bits() - 1) });
        let ascending = match ty {
            Ty::Bool => b.convert(of, v),
            Ty::U32 | Ty::U64 => v,
            Ty::I32 | Ty::I64 => {
                let bits = b.bitcast(of, v);
                b.xor(bits, sign)
            }
            Ty::F32 | Ty::F64 => float_key(b, v, of, sign),
        };
        if self.largest { b.not(ascending) } else { ascending }
    }
}

/// The type of the keys of elements of a type.
pub(super) fn key_type(ty: Ty) -> Ty {
    if ty.bits() == 64 { Ty::U64 } else { Ty::U32 }
}

/// The greatest of keys.
pub(super) fn greatest_key(b: &mut Builder, ty: Ty) -> Value {
    b.constant(Const { ty, bits: u64::MAX >> (64 - ty.bits()) })
}

/// The bits of a float, of negative ones inverted, as a number that grows with it; both zeros are one, and so are all NaN.
fn float_key(b: &mut Builder, v: Value, of: Ty, sign: Value) -> Value {
    let infinity = if of == Ty::U64 { f64::INFINITY.to_bits() } else { u64::from(f32::INFINITY.to_bits()) };
    let (infinity, zero) =
        (b.constant(Const { ty: of, bits: infinity }), b.constant(Const { ty: of, bits: 0 }));
    let all = greatest_key(b, of);
    let unsigned = b.not(sign);
    let bits = b.bitcast(of, v);
    let magnitude = b.and(bits, unsigned);
    let is_zero = b.eq(magnitude, zero);
    let bits = b.select(is_zero, zero, bits);
    let is_negative = b.ge(bits, sign);
    let inverted = b.select(is_negative, all, sign);
    let key = b.xor(bits, inverted);
    let is_nan = b.gt(magnitude, infinity);
    b.select(is_nan, all, key)
}
