//! Reductions and running ones. Short floats are added up as f32, integers as i64 and wrapped in the end, which is the same.

use rlx_ir::op::{BinaryOp, ReduceOp};
use rlx_ir::{DType, DTypeClass, Result};

use super::elementwise::{self, wide};
use crate::program::{Builder, Code, Val, unsupported};

/// What no elements reduce to.
fn identity(b: &mut Builder<'_>, op: ReduceOp, dtype: DType) -> Result<Val> {
    let (low, high) = dtype.int_range().unwrap_or((0, 0));
    let float = |b: &mut Builder<'_>, value: f64| b.scalar(dtype, value);
    Ok(match (op, dtype.is_float()) {
        (ReduceOp::Sum, true) => float(b, 0.0),
        (ReduceOp::Mean, true) => float(b, f64::NAN),
        (ReduceOp::Max, true) => float(b, f64::NEG_INFINITY),
        (ReduceOp::Min, true) => float(b, f64::INFINITY),
        (ReduceOp::Prod, true) => float(b, 1.0),
        (ReduceOp::Sum | ReduceOp::Mean, false) => b.int(dtype, 0),
        (ReduceOp::Max, false) => b.int(dtype, low),
        (ReduceOp::Min, false) => b.int(dtype, high),
        (ReduceOp::Prod, false) => b.int(dtype, 1),
        _ => return unsupported(format!("a reduction by {op:?}")),
    })
}

pub(super) fn reduce(b: &mut Builder<'_>, op: ReduceOp, x: Val, axes: &[usize], keep: bool) -> Result<Val> {
    let dtype = b.dtype(x);
    if axes.is_empty() {
        return Ok(x);
    }
    let count: usize = axes.iter().map(|&a| b.dims(x)[a]).product();
    let kept: Vec<usize> = {
        let dim = |(i, &d): (usize, &usize)| match (axes.contains(&i), keep) {
            (false, _) => Some(d),
            (true, true) => Some(1),
            (true, false) => None,
        };
        b.dims(x).iter().enumerate().filter_map(dim).collect()
    };
    if count == 0 || kept.contains(&0) {
        let value = identity(b, op, dtype)?;
        return Ok(b.full(value, &kept));
    }
    Ok(match op {
        ReduceOp::Max | ReduceOp::Min => extreme(b, op, x, axes, keep),
        ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Prod if dtype.is_float() => {
            let x = b.astype(x, wide(dtype));
            let code = if op == ReduceOp::Prod { Code::Prod } else { Code::Sum };
            let mut y = b.reduce(code, x, axes, keep);
            if op == ReduceOp::Mean {
                let count = b.scalar(wide(dtype), count as f64);
                y = b.binary(Code::Divide, y, count);
            }
            b.astype(y, dtype)
        }
        _ => {
            let word = if dtype == DType::U64 { DType::U64 } else { DType::I64 };
            let x = b.astype(x, word);
            let code = if op == ReduceOp::Prod { Code::Prod } else { Code::Sum };
            let mut y = b.reduce(code, x, axes, keep);
            if op == ReduceOp::Mean {
                let count = b.int(word, count as i128);
                y = elementwise::binary(b, BinaryOp::Div, y, count)?;
            }
            b.astype(y, dtype)
        }
    })
}

/// The largest or smallest element; NaN if any is.
pub(super) fn extreme(b: &mut Builder<'_>, op: ReduceOp, x: Val, axes: &[usize], keep: bool) -> Val {
    let dtype = b.dtype(x);
    if dtype == DType::Bool {
        return b.reduce(if op == ReduceOp::Max { Code::Any } else { Code::All }, x, axes, keep);
    }
    let code = if op == ReduceOp::Max { Code::Max } else { Code::Min };
    let best = b.reduce(code, x, axes, keep);
    if dtype.class() != DTypeClass::Float {
        return best;
    }
    let nan = b.question(Code::IsNan, x);
    let nan = b.reduce(Code::Any, nan, axes, keep);
    let none = b.scalar(dtype, f64::NAN);
    b.select(nan, none, best)
}

pub(super) fn cumulative(
    b: &mut Builder<'_>,
    op: ReduceOp,
    x: Val,
    axis: usize,
    exclusive: bool,
    reverse: bool,
) -> Result<Val> {
    let (dtype, dims) = (b.dtype(x), b.dims(x).to_vec());
    if dims.contains(&0) {
        return Ok(x);
    }
    let adds = matches!(op, ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Prod);
    let within = match dtype {
        DType::Bool => DType::I32,
        DType::U64 => DType::U64,
        _ if dtype.is_int() && adds => DType::I64,
        _ if adds => wide(dtype),
        _ => dtype,
    };
    let code = match op {
        ReduceOp::Sum | ReduceOp::Mean => Code::CumSum,
        ReduceOp::Prod => Code::CumProd,
        ReduceOp::Max => Code::CumMax,
        ReduceOp::Min => Code::CumMin,
        _ => return unsupported(format!("a running {op:?}")),
    };
    let wider = b.astype(x, within);
    let attrs = [axis as i64, i64::from(reverse), 1];
    let mut y = b.op(code, &[wider], &attrs, within, &dims);
    if !adds && dtype.is_float() {
        // NaN stays from where it is on.
        let nan = b.question(Code::IsNan, x);
        let nan = b.astype(nan, DType::I32);
        let seen = b.op(Code::CumSum, &[nan], &attrs, DType::I32, &dims);
        let zero = b.int(DType::I32, 0);
        let seen = b.compare(Code::Greater, seen, zero);
        let none = b.scalar(within, f64::NAN);
        y = b.select(seen, none, y);
    }
    let y =
        if dtype == DType::Bool { elementwise::cast(b, y, DType::Bool, &dims) } else { b.astype(y, dtype) };
    if !exclusive {
        return Ok(y);
    }
    // Without its own value: what the neighbour before has.
    let mut one = dims.clone();
    one[axis] = 1;
    let first = identity(b, op, dtype)?;
    let first = b.full(first, &one);
    Ok(if reverse {
        let rest = b.narrow(y, axis, 1, dims[axis]);
        b.concatenate(&[rest, first], axis)
    } else {
        let rest = b.narrow(y, axis, 0, dims[axis] - 1);
        b.concatenate(&[first, rest], axis)
    })
}
