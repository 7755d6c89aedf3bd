//! Softmax and its logarithm (ONNX `Softmax`, `LogSoftmax` from opset 13 on: along one axis).
//!
//! `softmax(x)ᵢ = exp(xᵢ − m) / Σⱼ exp(xⱼ − m)` and `log_softmax(x)ᵢ = xᵢ − m − ln Σⱼ exp(xⱼ − m)` with
//! `m = maxⱼ xⱼ`, which changes nothing and keeps the exponentials from overflowing. A row of −∞ alone has no
//! distribution: NaN.

use smallvec::smallvec;

use super::rows::{Rows, check_float, widened};
use crate::error::Result;
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::def::{Arity, OpDef, Ranges};
use crate::ops::{Op, OpKind, ReduceOp, attrs};
use crate::shape::{Shape, Shapes, normalize_axis};
use crate::tensor::Value;

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// `xᵢ − m` of a row, and `Σⱼ exp(xⱼ − m)`.
fn shifted(row: &[f64]) -> (Vec<f64>, f64) {
    let largest = row
        .iter()
        .fold(f64::NEG_INFINITY, |m, &x| if m.is_nan() || x.is_nan() { f64::NAN } else { m.max(x) });
    let shifted: Vec<f64> = row.iter().map(|x| x - largest).collect();
    let sum = shifted.iter().map(|x| x.exp()).sum();
    (shifted, sum)
}

fn infer(kind: OpKind, axis: i32, x: &Shape) -> Result<Shapes> {
    check_float(kind, x)?;
    x.axis(axis.into())?;
    Ok(smallvec![x.clone()])
}

fn along(axis: i32, x: &Value, f: impl Fn(&[f64]) -> Vec<f64>) -> Result<Vec<Value>> {
    let axis = normalize_axis(axis.into(), x.dims.len())?;
    let rows = Rows::of(&x.dims, axis, axis + 1);
    Ok(vec![Value::float(x.dtype, &x.dims, rows.map(x.floats()?, f))])
}

/// `x − m` and `Σ exp(x − m)` along `axis`.
fn shift_and_sum(g: &mut Graph, x: NodeId, axis: i32) -> Result<(NodeId, NodeId, NodeId)> {
    let largest = g.try_reduce(x, ReduceOp::Max, &[axis], true)?;
    let shifted = g.try_sub(x, largest)?;
    let exp = g.try_exp(shifted)?;
    let sum = g.try_sum(exp, &[axis], true)?;
    Ok((shifted, exp, sum))
}

fn decompose(g: &mut Graph, x: NodeId, axis: i32, logarithm: bool) -> Result<Vec<NodeId>> {
    let dtype = g.try_shape(x)?.dtype();
    let x = widened(g, &[x])?[0];
    let (shifted, exp, sum) = shift_and_sum(g, x, axis)?;
    let y = if logarithm {
        let ln = g.try_ln(sum)?;
        g.try_sub(shifted, ln)?
    } else {
        g.try_div(exp, sum)?
    };
    Ok(vec![g.try_cast(y, dtype)?])
}

#[cfg(feature = "testing")]
fn generate(g: &mut Gen, op: impl FnOnce(i32) -> Op) -> Case {
    let dims = g.dims(1..=4, 1..=7);
    let rank = dims.len() as i64;
    let axis = g.int(-rank..=rank - 1) as i32;
    let dtype = g.dtype_where(|d| d.is_float());
    Case::new(op(axis), vec![g.value(dtype, &dims, -4.0..4.0)])
}

/// [`Op::Softmax`].
pub struct SoftmaxDef;

impl OpDef for SoftmaxDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Softmax { axis });
        infer(OpKind::Softmax, *axis, inputs[0])
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Softmax { axis });
        along(*axis, inputs[0], |row| {
            let (shifted, sum) = shifted(row);
            shifted.iter().map(|x| x.exp() / sum).collect()
        })
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let Op::Softmax { axis } = op else { return None };
        Some(decompose(g, inputs[0], *axis, false))
    }

    fn flops(&self, _: &Op, _: &[&Shape], results: &[Shape]) -> f64 {
        5.0 * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        generate(g, |axis| Op::Softmax { axis })
    }
}

/// [`Op::LogSoftmax`].
pub struct LogSoftmaxDef;

impl OpDef for LogSoftmaxDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => LogSoftmax { axis });
        infer(OpKind::LogSoftmax, *axis, inputs[0])
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => LogSoftmax { axis });
        along(*axis, inputs[0], |row| {
            let (shifted, sum) = shifted(row);
            shifted.iter().map(|x| x - sum.ln()).collect()
        })
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let Op::LogSoftmax { axis } = op else { return None };
        Some(decompose(g, inputs[0], *axis, true))
    }

    fn flops(&self, _: &Op, _: &[&Shape], results: &[Shape]) -> f64 {
        5.0 * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        generate(g, |axis| Op::LogSoftmax { axis })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, oracle::evaluate_op};

    #[test]
    fn large_values_do_not_overflow_and_no_distribution_is_nan() {
        let run = |v: &[f64]| {
            let x = Value::float(DType::F32, &[1, v.len()], v.to_vec());
            evaluate_op(&Op::Softmax { axis: -1 }, &[&x], &[]).unwrap()[0].to_f64()
        };
        assert_eq!(run(&[1e30, 1e30]), [0.5, 0.5]);
        assert_eq!(run(&[f64::NEG_INFINITY, 3.0]), [0.0, 1.0]);
        assert!(run(&[f64::NEG_INFINITY; 2])[0].is_nan());
        let rejected = SoftmaxDef.infer(&Op::Softmax { axis: 2 }, &[&Shape::new(&[2, 3], DType::F32)], &[]);
        assert!(rejected.unwrap_err().to_string().contains("[2, 3] f32"));
    }
}
