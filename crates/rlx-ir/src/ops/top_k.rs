//! Order: where the extreme elements along an axis are.

use std::cmp::Ordering;

use smallvec::smallvec;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, NodeId};
use crate::ops::def::{Arity, OpDef, Ranges};
use crate::ops::elementwise::{Takes, static_dims};
use crate::ops::{ArgOp, Op, OpKind, attrs, parts};
use crate::oracle::around;
use crate::shape::{Shape, Shapes};
use crate::sort::sort_by;
use crate::tensor::{Elements, Value};

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

fn check(kind: OpKind, axis: usize, x: &Shape) -> Result<()> {
    Takes::NumbersAndBools.check(kind, x)?;
    if axis < x.rank() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Shape, format!("{kind} along axis {axis} of {x}, which has no such axis")))
}

/// Compares two elements of `x`; NaN is greater than any number.
fn compare(x: &Value, i: usize, j: usize) -> Ordering {
    match &x.elements {
        Elements::Float(v) => v[i].partial_cmp(&v[j]).unwrap_or_else(|| v[i].is_nan().cmp(&v[j].is_nan())),
        Elements::Int(v) => v[i].cmp(&v[j]),
    }
}

fn is_nan(x: &Value, i: usize) -> bool {
    matches!(&x.elements, Elements::Float(v) if v[i].is_nan())
}

/// The lines along `axis`: for each, the positions of its elements.
fn lines(dims: &[usize], axis: usize) -> impl Iterator<Item = Vec<usize>> {
    let (outer, size, inner) = around(dims, axis);
    (0..outer * inner).map(move |line| {
        let start = line / inner * size * inner + line % inner;
        (0..size).map(|i| start + i * inner).collect()
    })
}

/// [`Op::ArgReduce`].
pub struct ArgReduceDef;

impl OpDef for ArgReduceDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => ArgReduce { axis, keep_dim });
        let x = inputs[0];
        check(OpKind::ArgReduce, *axis, x)?;
        if x.dim(*axis) == Dim::Static(0) {
            let message = format!("ArgReduce along axis {axis} of {x}, which has no elements");
            return Err(Error::new(ErrorKind::Shape, message));
        }
        let mut dims = x.dims().to_vec();
        if *keep_dim {
            dims[*axis] = Dim::Static(1);
        } else {
            dims.remove(*axis);
        }
        Ok(smallvec![Shape::from_dims(&dims, DType::I64)])
    }

    fn holds_for_all(&self, op: &Op, inputs: &[&Shape], range: Ranges<'_>) -> bool {
        matches!(op, Op::ArgReduce { axis, .. } if inputs[0].dim(*axis).extent().range(range).min > 0)
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => ArgReduce { op, axis, last });
        let x = inputs[0];
        let better = |i: usize, than: usize| match (is_nan(x, i), is_nan(x, than)) {
            (true, true) => *last,
            (a, b) if a != b => a,
            _ => match (compare(x, i, than), op) {
                (Ordering::Equal, _) => *last,
                (Ordering::Greater, ArgOp::Max) | (Ordering::Less, ArgOp::Min) => true,
                _ => false,
            },
        };
        let best = |line: Vec<usize>| {
            (1..line.len()).fold(0, |best, i| if better(line[i], line[best]) { i } else { best }) as i128
        };
        let found = lines(&x.dims, *axis).map(best).collect();
        Ok(vec![Value::int(DType::I64, &static_dims(&results[0])?, found)])
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], graph: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        parts::arg_reduce(op, inputs[0], graph)
    }

    fn flops(&self, _: &Op, inputs: &[&Shape], _: &[Shape]) -> f64 {
        inputs[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(1..=4, 1..=3);
        let axis = g.size(0..=dims.len() - 1);
        let dtype = g.dtype_where(|d| Takes::Numbers.accepts(d) && d.bits() >= 8);
        let x = g.distinct_value(dtype, &dims);
        let op = Op::ArgReduce { op: g.variant(), axis, keep_dim: g.chance(0.5), last: g.chance(0.5) };
        Case::new(op, vec![x])
    }
}

/// [`Op::TopK`].
pub struct TopKDef;

impl OpDef for TopKDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => TopK { k, axis });
        let x = inputs[0];
        check(OpKind::TopK, *axis, x)?;
        if let (Some(k), Some(size)) = (k.as_static(), x.dim(*axis).as_static())
            && k > size
        {
            let message = format!("TopK of {x}: axis {axis} has no {k} elements");
            return Err(Error::new(ErrorKind::Shape, message));
        }
        let mut dims = x.dims().to_vec();
        dims[*axis] = *k;
        let values = x.with_dims(dims);
        Ok(smallvec![values.clone(), values.with_dtype(DType::I64)])
    }

    fn holds_for_all(&self, op: &Op, inputs: &[&Shape], range: Ranges<'_>) -> bool {
        let Op::TopK { k, axis, .. } = op else { return false };
        (inputs[0].dim(*axis).extent() - k.extent()).range(range).min >= 0
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => TopK { axis, largest });
        let (x, dims) = (inputs[0], static_dims(&results[0])?);
        let (outer, k, inner) = around(&dims, *axis);
        let (mut from, mut found) = (vec![0; outer * k * inner], vec![0i128; outer * k * inner]);
        for (line, places) in lines(&x.dims, *axis).enumerate() {
            let mut order: Vec<usize> = (0..places.len()).collect();
            // A stable sort keeps equal elements in the order of their positions.
            sort_by(&mut order, |&i, &j| {
                let ordering = compare(x, places[i], places[j]);
                if *largest { ordering.reverse() } else { ordering }
            });
            for (rank, &i) in order.iter().take(k).enumerate() {
                let to = (line / inner * k + rank) * inner + line % inner;
                (from[to], found[to]) = (places[i], i as i128);
            }
        }
        Ok(vec![x.pick(&dims, &from), Value::int(DType::I64, &dims, found)])
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], graph: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        parts::top_k(op, inputs[0], graph)
    }

    fn flops(&self, _: &Op, inputs: &[&Shape], _: &[Shape]) -> f64 {
        inputs[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let mut dims = g.dims(1..=3, 1..=4);
        let axis = g.size(0..=dims.len() - 1);
        dims[axis] = g.size(1..=9);
        let dtype = g.dtype_where(|d| Takes::Numbers.accepts(d));
        let x = g.distinct_value(dtype, &dims);
        let k = Dim::Static(g.size(0..=dims[axis]));
        let op = Op::TopK { k, axis, largest: g.chance(0.5), sorted: g.chance(0.7) };
        Case::new(op, vec![x])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::evaluate_op;

    fn arg(op: ArgOp, last: bool, values: &[f64]) -> i128 {
        let x = Value::float(DType::F32, &[values.len()], values.to_vec());
        let op = Op::ArgReduce { op, axis: 0, keep_dim: false, last };
        evaluate_op(&op, &[&x], &[]).unwrap()[0].ints().unwrap()[0]
    }

    #[test]
    fn the_first_nan_wins_and_of_equals_the_first_or_the_last() {
        let nan = f64::NAN;
        for op in [ArgOp::Max, ArgOp::Min] {
            assert_eq!(arg(op, false, &[1.0, nan, 5.0, nan]), 1);
            assert_eq!(arg(op, true, &[1.0, nan, 5.0, nan]), 3);
        }
        assert_eq!(arg(ArgOp::Max, false, &[1.0, 3.0, 3.0]), 1);
        assert_eq!(arg(ArgOp::Max, true, &[1.0, 3.0, 3.0]), 2);
        assert_eq!(arg(ArgOp::Min, true, &[1.0, 1.0, 3.0]), 1);
    }

    #[test]
    fn an_axis_without_elements_has_no_greatest() {
        let x = Shape::new(&[2, 0], DType::F32);
        let op = |axis| Op::ArgReduce { op: ArgOp::Max, axis, keep_dim: true, last: false };
        assert!(ArgReduceDef.infer(&op(1), &[&x], &[]).is_err());
        let none = ArgReduceDef.infer(&op(0), &[&x], &[]).unwrap();
        assert_eq!(none[0], Shape::new(&[1, 0], DType::I64));
    }

    #[test]
    fn equal_elements_come_in_the_order_of_their_positions() {
        let x = Value::float(DType::F32, &[5], vec![2.0, 7.0, 2.0, f64::NAN, 7.0]);
        let top = |largest, k| {
            let op = Op::TopK { k: Dim::Static(k), axis: 0, largest, sorted: true };
            evaluate_op(&op, &[&x], &[]).unwrap()[1].ints().unwrap().to_vec()
        };
        assert_eq!(top(true, 4), [3, 1, 4, 0]);
        assert_eq!(top(false, 3), [0, 2, 1]);
        let op = Op::TopK { k: Dim::Static(6), axis: 0, largest: true, sorted: true };
        assert!(evaluate_op(&op, &[&x], &[]).is_err());
    }
}
