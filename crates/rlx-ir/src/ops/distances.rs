//! Distances between rows and columns: [`Op::SquaredDistances`], as support vector machines and nearest neighbours want them.
//!
//! ```text
//! %2 = SquaredDistances(%0, %1) : [12, 60] f32        # rows [12, 13], columns [13, 60]
//! ```
//!
//! It is a matmul with `(a − b)²` for `a · b`. Multiplying out, as `a² − 2ab + b²`, would make it one, but large coordinates that are close to each
//! other would cancel.

use smallvec::smallvec;

use crate::dim::Dim;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, NodeId};
use crate::ops::def::{Arity, OpDef, Ranges};
use crate::ops::elementwise::{Takes, same_dtype, static_dims};
use crate::ops::{BinaryOp, Op, OpKind, ReduceOp};
use crate::shape::{Shape, Shapes, agreed_dim};
use crate::tensor::Value;

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// [`Op::SquaredDistances`].
pub struct SquaredDistancesDef;

impl OpDef for SquaredDistancesDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(2)
    }

    fn infer(&self, _: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        let (rows, columns) = (inputs[0], inputs[1]);
        Takes::Floats.check(OpKind::SquaredDistances, rows)?;
        same_dtype(OpKind::SquaredDistances, rows, columns)?;
        match (rows.dims(), columns.dims()) {
            (&[n, k], &[l, m]) if agreed_dim(k, l).is_some() => Ok(smallvec![rows.with_dims(vec![n, m])]),
            _ => {
                let message = format!(
                    "SquaredDistances of rows {rows} and columns {columns}: they are [n, k] and [k, m]"
                );
                Err(Error::new(ErrorKind::Shape, message))
            }
        }
    }

    fn holds_for_all(&self, _: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        inputs[0].dims().last() == inputs[1].dims().first()
    }

    fn reference(&self, _: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        let dims = static_dims(&results[0])?;
        let (n, m, k) = (dims[0], dims[1], inputs[1].dims[0]);
        let (rows, columns) = (inputs[0].floats()?, inputs[1].floats()?);
        let square = |i: usize, j: usize, p: usize| (rows[i * k + p] - columns[p * m + j]).powi(2);
        let cells = (0..n).flat_map(|i| (0..m).map(move |j| (i, j)));
        let distances = cells.map(|(i, j)| (0..k).map(|p| square(i, j, p)).sum()).collect();
        Ok(vec![Value::float(inputs[0].dtype, &dims, distances)])
    }

    /// All differences at once, `[n, k, m]`.
    fn decompose(&self, _: &Op, inputs: &[NodeId], graph: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let mut build = || {
            let (n, k) = (graph.shape(inputs[0]).dim(0), graph.shape(inputs[0]).dim(1));
            let (l, m) = (graph.shape(inputs[1]).dim(0), graph.shape(inputs[1]).dim(1));
            let rows = graph.try_add(Op::Reshape { to: vec![n, k, Dim::Static(1)] }, &[inputs[0]])?;
            let columns = graph.try_add(Op::Reshape { to: vec![Dim::Static(1), l, m] }, &[inputs[1]])?;
            let difference = graph.try_add(Op::Binary(BinaryOp::Sub), &[rows, columns])?;
            let square = graph.try_add(Op::Binary(BinaryOp::Mul), &[difference, difference])?;
            let sum = Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keep_dim: false };
            Ok(vec![graph.try_add(sum, &[square])?])
        };
        Some(build())
    }

    fn flops(&self, _: &Op, inputs: &[&Shape], results: &[Shape]) -> f64 {
        let k = inputs[1].dims().first().and_then(|d| d.as_static()).unwrap_or(0);
        3.0 * k as f64 * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dtype = g.dtype_where(|d| d.is_float() && d.bits() >= 16);
        let (n, k, m) = (g.size(1..=20), g.size(0..=12), g.size(1..=70));
        Case::new(
            Op::SquaredDistances,
            vec![g.value(dtype, &[n, k], -1.0..1.0), g.value(dtype, &[k, m], -1.0..1.0)],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::oracle::evaluate_op;

    #[test]
    fn large_coordinates_do_not_cancel() {
        let rows = Value::float(DType::F32, &[2, 2], vec![4097.0, 0.0, 1.0, 2.0]);
        let columns = Value::float(DType::F32, &[2, 1], vec![4096.0, 3.0]);
        let y = evaluate_op(&Op::SquaredDistances, &[&rows, &columns], &[]).unwrap();
        assert_eq!((y[0].dims.clone(), y[0].to_f64()), (vec![2, 1], vec![10.0, 4095.0 * 4095.0 + 1.0]));
    }

    #[test]
    fn mismatches_name_both_shapes() {
        let s = |dims: &[usize]| Shape::new(dims, DType::F32);
        let error =
            SquaredDistancesDef.infer(&Op::SquaredDistances, &[&s(&[2, 3]), &s(&[4, 5])], &[]).unwrap_err();
        assert!(error.to_string().contains("rows [2, 3] f32 and columns [4, 5] f32"), "{error}");
    }
}
