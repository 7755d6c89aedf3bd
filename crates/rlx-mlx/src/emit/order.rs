//! Where the extreme elements along an axis are.
//!
//! Floats are compared as integers of the same order ([`key`]), with NaN above all: MLX's own comparisons of NaN differ between its
//! devices. Equal elements are told apart by their place, which is part of the key where there is room for it.

use rlx_ir::DType;
use rlx_ir::op::ArgOp;

use super::movement::along;
use crate::program::{Builder, Code, Val};

/// Integers in the order of the elements, NaN above all: i64 where the elements have 64 bits, else of at most 33 bits.
pub(super) fn key(b: &mut Builder<'_>, x: Val) -> Val {
    let dtype = b.dtype(x);
    let (bits, signed) = match dtype {
        DType::F64 => (DType::I64, x),
        DType::U64 => {
            let bits = b.view(x, DType::I64);
            let sign = b.int(DType::I64, i64::MIN.into());
            return b.binary(Code::BitwiseXor, bits, sign);
        }
        _ if dtype.is_float() => (DType::I32, b.astype(x, DType::F32)),
        _ => return b.astype(x, DType::I64),
    };
    // Both zeros are one.
    let float = b.dtype(signed);
    let zero = b.scalar(float, 0.0);
    let is_zero = b.compare(Code::Equal, signed, zero);
    let value = b.select(is_zero, zero, signed);
    let nan = b.question(Code::IsNan, value);
    let word = b.view(value, bits);
    let (_, most) = bits.int_range().unwrap_or((0, 0));
    let (nothing, magnitude) = (b.int(bits, 0), b.int(bits, most));
    let negative = b.compare(Code::Less, word, nothing);
    let flipped = b.binary(Code::BitwiseXor, word, magnitude);
    let ordered = b.select(negative, flipped, word);
    let ordered = b.select(nan, magnitude, ordered);
    b.astype(ordered, DType::I64)
}

/// Where the largest or smallest element is; NaN is more extreme than any number.
pub(super) fn place(b: &mut Builder<'_>, op: ArgOp, x: Val, axis: usize, keep: bool, last: bool) -> Val {
    let dims = b.dims(x).to_vec();
    let mut kept = dims.clone();
    if keep {
        kept[axis] = 1;
    } else {
        kept.remove(axis);
    }
    if kept.contains(&0) {
        return b.empty(DType::I64, &kept);
    }
    let mut keys = key(b, x);
    if op == ArgOp::Min {
        keys = b.unary(Code::BitwiseInvert, keys);
        if b.dtype(x).is_float() {
            let nan = b.question(Code::IsNan, x);
            let most = b.int(DType::I64, i64::MAX.into());
            keys = b.select(nan, most, keys);
        }
    }
    let best = b.reduce(Code::Max, keys, &[axis], true);
    let hit = b.compare(Code::Equal, keys, best);
    let row = b.arange(dims[axis]);
    let places = along(b, row, axis, &dims);
    let (none, code) = if last {
        (b.int(DType::I64, -1), Code::Max)
    } else {
        (b.int(DType::I64, i64::MAX.into()), Code::Min)
    };
    let places = b.select(hit, places, none);
    b.reduce(code, places, &[axis], keep)
}

/// The `k` largest or smallest elements in order, and where they are.
pub(super) fn top_k(b: &mut Builder<'_>, x: Val, k: usize, axis: usize, largest: bool) -> Vec<Val> {
    let dims = b.dims(x).to_vec();
    let mut kept = dims.clone();
    kept[axis] = k;
    if kept.contains(&0) {
        return vec![b.empty(b.dtype(x), &kept), b.empty(DType::I64, &kept)];
    }
    let mut keys = key(b, x);
    if largest {
        keys = b.unary(Code::BitwiseInvert, keys);
    }
    if b.dtype(x).bits() < 64 {
        // No two keys are equal, so that it does not matter whether sorting is stable. Those of u32 are moved to have room.
        if b.dtype(x) == DType::U32 {
            let half = b.int(DType::I64, 1 << 31);
            keys =
                if largest { b.binary(Code::Add, keys, half) } else { b.binary(Code::Subtract, keys, half) };
        }
        let up = b.int(DType::I64, 1 << 32);
        keys = b.binary(Code::Multiply, keys, up);
        let row = b.arange(dims[axis]);
        let places = along(b, row, axis, &dims);
        keys = b.binary(Code::Add, keys, places);
    }
    let order = b.op(Code::Argsort, &[keys], &[axis as i64], DType::U32, &dims);
    let order = b.narrow(order, axis, 0, k);
    let places = b.astype(order, DType::I64);
    let dtype = b.dtype(x);
    let values = b.op(Code::TakeAlongAxis, &[x, places], &[axis as i64], dtype, &kept);
    vec![values, places]
}
