//! Reductions: one number for all elements along some axes, and the running results on the way there.

use smallvec::smallvec;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, NodeId};
use crate::ops::def::{Arity, OpDef, Ranges};
use crate::ops::elementwise::{Takes, static_dims};
use crate::ops::{Op, OpKind, ReduceOp, attrs, parts};
use crate::oracle::{around, strided_offsets, strides};
use crate::shape::{Shape, Shapes};
use crate::tensor::{Elements, Value, wrap_int};

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

fn takes(op: ReduceOp) -> Takes {
    match op {
        ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Prod => Takes::Numbers,
        ReduceOp::Max | ReduceOp::Min => Takes::NumbersAndBools,
    }
}

/// What no floats reduce to, before a mean's division.
fn identity_f64(op: ReduceOp) -> f64 {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => 0.0,
        ReduceOp::Prod => 1.0,
        ReduceOp::Max => f64::NEG_INFINITY,
        ReduceOp::Min => f64::INFINITY,
    }
}

/// What no integers reduce to.
fn identity_int(op: ReduceOp, dtype: DType) -> i128 {
    let (min, max) = dtype.int_range().unwrap_or((0, 0));
    match op {
        ReduceOp::Sum | ReduceOp::Mean => 0,
        ReduceOp::Prod => 1,
        ReduceOp::Max => min,
        ReduceOp::Min => max,
    }
}

/// Two floats reduced to one; the mean is still a sum.
pub(super) fn join_f64(op: ReduceOp, a: f64, b: f64) -> f64 {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => a + b,
        ReduceOp::Prod => a * b,
        ReduceOp::Max | ReduceOp::Min if a.is_nan() || b.is_nan() => f64::NAN,
        ReduceOp::Max => a.max(b),
        ReduceOp::Min => a.min(b),
    }
}

/// Two integers reduced to one; the mean is still a sum. Sums of `i64` stay far from overflow here,
/// products are wrapped each time.
pub(super) fn join_int(op: ReduceOp, a: i128, b: i128, dtype: DType) -> i128 {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => a + b,
        ReduceOp::Prod => wrap_int(dtype, a.wrapping_mul(b)),
        ReduceOp::Max => a.max(b),
        ReduceOp::Min => a.min(b),
    }
}

/// [`Op::Reduce`].
pub struct ReduceDef;

impl OpDef for ReduceDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Reduce { op, axes, keep_dim });
        let x = inputs[0];
        takes(*op).check(OpKind::Reduce, x)?;
        let ascending = axes.windows(2).all(|w| w[0] < w[1]);
        if !ascending || axes.last().is_some_and(|&a| a >= x.rank()) {
            let message =
                format!("Reduce of {x} over axes {axes:?}: they must be ascending and below the rank");
            return Err(Error::new(ErrorKind::Shape, message));
        }
        let kept = |(i, &d): (usize, &Dim)| match (axes.contains(&i), *keep_dim) {
            (false, _) => Some(d),
            (true, true) => Some(Dim::Static(1)),
            (true, false) => None,
        };
        Ok(smallvec![x.with_each_dim(x.dims().iter().enumerate().filter_map(kept))])
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Reduce { op, axes });
        let (x, dims) = (inputs[0], static_dims(&results[0])?);
        let own = strides(&x.dims);
        let part = |inside: bool| -> Vec<usize> {
            let chosen = (0..x.dims.len()).filter(|i| axes.contains(i) == inside);
            let (sizes, steps): (Vec<usize>, Vec<i64>) = chosen.map(|i| (x.dims[i], own[i])).unzip();
            strided_offsets(&sizes, 0, &steps)
        };
        let (starts, offsets) = (part(false), part(true));
        let count = offsets.len();
        let elements = match &x.elements {
            Elements::Float(v) => {
                let total = |&start: &usize| {
                    offsets.iter().fold(identity_f64(*op), |sum, o| join_f64(*op, sum, v[start + o]))
                };
                let mean = |sum: f64| if *op == ReduceOp::Mean { sum / count as f64 } else { sum };
                Elements::Float(starts.iter().map(total).map(mean).collect())
            }
            Elements::Int(v) => {
                let total = |&start: &usize| {
                    let first = identity_int(*op, x.dtype);
                    offsets.iter().fold(first, |sum, o| join_int(*op, sum, v[start + o], x.dtype))
                };
                let mean = |sum: i128| if *op == ReduceOp::Mean { sum / count.max(1) as i128 } else { sum };
                Elements::Int(starts.iter().map(total).map(mean).collect())
            }
        };
        Ok(vec![Value { dtype: x.dtype, dims, elements }])
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], graph: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        parts::reduce(op, inputs[0], graph)
    }

    fn flops(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> f64 {
        match op {
            Op::Reduce { axes, .. } if !axes.is_empty() => inputs[0].num_elements().unwrap_or(0) as f64,
            _ => 0.0,
        }
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let op = g.variant();
        let dims = g.dims(0..=4, 1..=6);
        let axes = (0..dims.len()).filter(|_| g.chance(0.5)).collect();
        let dtype = g.dtype_where(|d| takes(op).accepts(d));
        // Products stay within the range of f16; those of integers wrap.
        let range = if op == ReduceOp::Prod && dtype.is_float() { 0.875..1.125 } else { -3.0..3.0 };
        let x = g.value(dtype, &dims, range);
        Case::new(Op::Reduce { op, axes, keep_dim: g.chance(0.5) }, vec![x])
    }
}

/// [`Op::Cumulative`].
pub struct CumulativeDef;

/// `x` with each element replaced by what it and those before it along the axis reduce to.
fn running<T: Copy>(
    x: &[T],
    (outer, size, inner): (usize, usize, usize),
    (exclusive, reverse): (bool, bool),
    identity: T,
    join: impl Fn(T, T) -> T,
) -> Vec<T> {
    let mut out = x.to_vec();
    for line in 0..outer * inner {
        let mut so_far = identity;
        for i in 0..size {
            let i = if reverse { size - 1 - i } else { i };
            let place = (line / inner * size + i) * inner + line % inner;
            let next = join(so_far, x[place]);
            out[place] = if exclusive { so_far } else { next };
            so_far = next;
        }
    }
    out
}

impl OpDef for CumulativeDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Cumulative { op, axis });
        if *op == ReduceOp::Mean {
            return Err(Error::new(ErrorKind::Unsupported, "Cumulative has no running mean"));
        }
        takes(*op).check(OpKind::Cumulative, inputs[0])?;
        if *axis >= inputs[0].rank() {
            let message = format!("Cumulative along axis {axis} of {}, which has no such axis", inputs[0]);
            return Err(Error::new(ErrorKind::Shape, message));
        }
        Ok(smallvec![inputs[0].clone()])
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Cumulative { op, axis, exclusive, reverse });
        let x = inputs[0];
        let (sizes, how) = (around(&x.dims, *axis), (*exclusive, *reverse));
        let elements = match &x.elements {
            Elements::Float(v) => {
                Elements::Float(running(v, sizes, how, identity_f64(*op), |a, b| join_f64(*op, a, b)))
            }
            Elements::Int(v) => {
                let first = identity_int(*op, x.dtype);
                Elements::Int(running(v, sizes, how, first, |a, b| join_int(*op, a, b, x.dtype)))
            }
        };
        Ok(vec![Value { dtype: x.dtype, dims: x.dims.clone(), elements }])
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], graph: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        parts::cumulative(op, inputs[0], graph)
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let op = g.pick(&[ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min]);
        let dims = g.dims(1..=4, 1..=6);
        let axis = g.size(0..=dims.len() - 1);
        let dtype = g.dtype_where(|d| takes(op).accepts(d));
        let range = if op == ReduceOp::Prod && dtype.is_float() { 0.5..1.5 } else { -3.0..3.0 };
        let x = g.value(dtype, &dims, range);
        let (exclusive, reverse) = (g.chance(0.5), g.chance(0.5));
        Case::new(Op::Cumulative { op, axis, exclusive, reverse }, vec![x])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::evaluate_op;

    fn reduce(op: ReduceOp, x: &Value) -> Value {
        let op = Op::Reduce { op, axes: (0..x.dims.len()).collect(), keep_dim: false };
        evaluate_op(&op, &[x], &[]).unwrap().remove(0)
    }

    #[test]
    fn nan_wins_wherever_it_stands() {
        for values in [vec![f64::NAN, 1.0, 2.0], vec![1.0, f64::NAN, 2.0], vec![1.0, 2.0, f64::NAN]] {
            let x = Value::float(DType::F32, &[3], values);
            for op in [ReduceOp::Max, ReduceOp::Min, ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Prod] {
                assert!(reduce(op, &x).to_f64()[0].is_nan(), "{op}");
            }
        }
    }

    #[test]
    fn no_elements_reduce_to_the_identity() {
        let none = Value::float(DType::F32, &[0], vec![]);
        assert_eq!(reduce(ReduceOp::Sum, &none).to_f64(), [0.0]);
        assert_eq!(reduce(ReduceOp::Prod, &none).to_f64(), [1.0]);
        assert_eq!(reduce(ReduceOp::Max, &none).to_f64(), [f64::NEG_INFINITY]);
        assert_eq!(reduce(ReduceOp::Min, &none).to_f64(), [f64::INFINITY]);
        assert!(reduce(ReduceOp::Mean, &none).to_f64()[0].is_nan());
        let none = Value::int(DType::I8, &[0], vec![]);
        assert_eq!(reduce(ReduceOp::Max, &none).ints().unwrap(), [-128]);
        assert_eq!(reduce(ReduceOp::Min, &none).ints().unwrap(), [127]);
        assert_eq!(reduce(ReduceOp::Mean, &none).ints().unwrap(), [0]);
        let kept = Value::float(DType::F32, &[2, 0], vec![]);
        let op = Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keep_dim: true };
        let sums = evaluate_op(&op, &[&kept], &[]).unwrap().remove(0);
        assert_eq!((sums.dims.as_slice(), sums.to_f64()), (&[2, 1][..], vec![0.0, 0.0]));
    }

    #[test]
    fn integer_means_truncate_and_sums_wrap() {
        let x = Value::int(DType::I32, &[2], vec![-3, 0]);
        assert_eq!(reduce(ReduceOp::Mean, &x).ints().unwrap(), [-1]);
        let x = Value::int(DType::U8, &[2], vec![200, 100]);
        assert_eq!(reduce(ReduceOp::Sum, &x).ints().unwrap(), [44]);
        assert_eq!(reduce(ReduceOp::Mean, &x).ints().unwrap(), [150]);
    }

    #[test]
    fn no_axes_change_nothing() {
        let x = Value::float(DType::F32, &[2], vec![1.0, f64::INFINITY]);
        let op = Op::Reduce { op: ReduceOp::Mean, axes: vec![], keep_dim: false };
        assert_eq!(evaluate_op(&op, &[&x], &[]).unwrap()[0], x);
        let op = Op::Reduce { op: ReduceOp::Sum, axes: vec![0, 0], keep_dim: false };
        assert!(evaluate_op(&op, &[&x], &[]).is_err());
    }

    #[test]
    fn running_sums_in_all_four_ways() {
        let x = Value::int(DType::I32, &[3], vec![1, 2, 4]);
        let go = |exclusive, reverse| {
            let op = Op::Cumulative { op: ReduceOp::Sum, axis: 0, exclusive, reverse };
            evaluate_op(&op, &[&x], &[]).unwrap()[0].ints().unwrap().to_vec()
        };
        assert_eq!(go(false, false), [1, 3, 7]);
        assert_eq!(go(true, false), [0, 1, 3]);
        assert_eq!(go(false, true), [7, 6, 4]);
        assert_eq!(go(true, true), [6, 4, 0]);
        let op = Op::Cumulative { op: ReduceOp::Mean, axis: 0, exclusive: false, reverse: false };
        assert_eq!(evaluate_op(&op, &[&x], &[]).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
