//! Norms: shift and scale elements by statistics of their row.
//!
//! | op | row | formula |
//! |---|---|---|
//! | [`Op::LayerNorm`] (Ba et al. 2016; ONNX `LayerNormalization`) | dimensions `axis..` | `(x − μ) / √(σ² + ε) · γ + β` |
//! | [`Op::RmsNorm`] (Zhang & Sennrich 2019; ONNX `RMSNormalization`) | dimensions `axis..` | `x / √(mean(x²) + ε) · γ` |
//! | [`Op::GroupNorm`] (Wu & He 2018; ONNX `GroupNormalization`) | the channels of a group and all that follows | as layer norm, γ and β for each channel |
//! | [`Op::BatchNorm`] (Ioffe & Szegedy 2015; ONNX `BatchNormalization`, inference) | one channel | `(x − mean) / √(var + ε) · γ + β`, all four given |
//!
//! `μ` is the mean and `σ²` the mean of `(x − μ)²` (not the unbiased variance).

use smallvec::smallvec;

use super::rows::{Rows, check_float, check_onto, widened};
use crate::dim::{Dim, Extent};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::def::{Arity, OpDef, Ranges};
use crate::ops::{Op, OpKind, attrs};
use crate::oracle::{broadcast_offsets, for_each_index};
use crate::shape::{Shape, Shapes, always_broadcasts, normalize_axis};
use crate::tensor::Value;

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// `(row − μ) / √(σ² + ε)`.
fn standardized(row: &[f64], eps: f32) -> Vec<f64> {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    row.iter().map(|x| (x - mean) / (variance + f64::from(eps)).sqrt()).collect()
}

/// `y·γ (+ β)`, both broadcast onto `dims`.
fn affine(dims: &[usize], mut y: Vec<f64>, gamma: &Value, beta: Option<&Value>) -> Result<Vec<f64>> {
    let scale = gamma.floats()?;
    y.iter_mut().zip(broadcast_offsets(&gamma.dims, dims)).for_each(|(y, at)| *y *= scale[at]);
    if let Some(beta) = beta {
        let shift = beta.floats()?;
        y.iter_mut().zip(broadcast_offsets(&beta.dims, dims)).for_each(|(y, at)| *y += shift[at]);
    }
    Ok(y)
}

/// The axes `axis..rank`, as reductions take them.
fn trailing(axis: i32, rank: usize) -> Result<Vec<i32>> {
    let first = normalize_axis(axis.into(), rank)?;
    Ok((first..rank).map(|a| a as i32).collect())
}

/// `x / √(mean(x²) + ε)` over `axes`.
fn scale_to_unit(g: &mut Graph, x: NodeId, axes: &[i32], eps: f32) -> Result<NodeId> {
    let square = g.try_mul(x, x)?;
    let mean = g.try_mean(square, axes, true)?;
    let eps = g.try_scalar(eps.into(), g.try_shape(x)?.dtype())?;
    let shifted = g.try_add_(mean, eps)?;
    let deviation = g.try_sqrt(shifted)?;
    g.try_div(x, deviation)
}

/// `x − μ` over `axes`.
fn center(g: &mut Graph, x: NodeId, axes: &[i32]) -> Result<NodeId> {
    let mean = g.try_mean(x, axes, true)?;
    g.try_sub(x, mean)
}

/// [`Op::LayerNorm`].
pub struct LayerNormDef;

impl OpDef for LayerNormDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Between(2, 3)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => LayerNorm { axis });
        check_float(OpKind::LayerNorm, inputs[0])?;
        inputs[0].axis((*axis).into())?;
        for (what, shape) in ["gamma", "beta"].into_iter().zip(&inputs[1..]) {
            check_onto(OpKind::LayerNorm, inputs[0], what, shape)?;
        }
        Ok(smallvec![inputs[0].clone()])
    }

    fn holds_for_all(&self, _: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        always_broadcasts(&inputs[1..], inputs[0].dims())
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => LayerNorm { axis, eps });
        let x = inputs[0];
        let rows = Rows::of(&x.dims, normalize_axis((*axis).into(), x.dims.len())?, x.dims.len());
        let y = rows.map(x.floats()?, |row| standardized(row, *eps));
        Ok(vec![Value::float(x.dtype, &x.dims, affine(&x.dims, y, inputs[1], inputs.get(2).copied())?)])
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let Op::LayerNorm { axis, eps } = *op else { return None };
        let mut build = || {
            let (dtype, rank) = (g.try_shape(inputs[0])?.dtype(), g.try_shape(inputs[0])?.rank());
            let axes = trailing(axis, rank)?;
            let wide = widened(g, inputs)?;
            let centered = center(g, wide[0], &axes)?;
            let y = scale_to_unit(g, centered, &axes, eps)?;
            let mut y = g.try_mul(y, wide[1])?;
            if let Some(&beta) = wide.get(2) {
                y = g.try_add_(y, beta)?;
            }
            Ok(vec![g.try_cast(y, dtype)?])
        };
        Some(build())
    }

    fn flops(&self, _: &Op, _: &[&Shape], results: &[Shape]) -> f64 {
        8.0 * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let (axis, x, gamma) = random_rows(g);
        let beta = g.value(gamma.dtype, &gamma.dims, -1.0..1.0);
        let inputs = if g.chance(0.7) { vec![x, gamma, beta] } else { vec![x, gamma] };
        Case::new(Op::LayerNorm { axis, eps: 1e-3 }, inputs)
    }
}

/// An axis, an input, and a γ that is as large as the row.
#[cfg(feature = "testing")]
fn random_rows(g: &mut Gen) -> (i32, Value, Value) {
    let dims = g.dims(1..=4, 1..=9);
    let rank = dims.len();
    let first = g.size(0..=rank - 1);
    let axis = if g.chance(0.5) { first as i32 } else { first as i32 - rank as i32 };
    let dtype = g.dtype_where(|d| d.is_float());
    (axis, g.value(dtype, &dims, -3.0..3.0), g.value(dtype, &dims[first..], -1.0..1.0))
}

/// [`Op::RmsNorm`].
pub struct RmsNormDef;

impl OpDef for RmsNormDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(2)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => RmsNorm { axis });
        check_float(OpKind::RmsNorm, inputs[0])?;
        inputs[0].axis((*axis).into())?;
        check_onto(OpKind::RmsNorm, inputs[0], "gamma", inputs[1])?;
        Ok(smallvec![inputs[0].clone()])
    }

    fn holds_for_all(&self, _: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        always_broadcasts(&inputs[1..], inputs[0].dims())
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => RmsNorm { axis, eps });
        let x = inputs[0];
        let rows = Rows::of(&x.dims, normalize_axis((*axis).into(), x.dims.len())?, x.dims.len());
        let y = rows.map(x.floats()?, |row| {
            let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
            row.iter().map(|x| x / (mean + f64::from(*eps)).sqrt()).collect()
        });
        Ok(vec![Value::float(x.dtype, &x.dims, affine(&x.dims, y, inputs[1], None)?)])
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let Op::RmsNorm { axis, eps } = *op else { return None };
        let mut build = || {
            let (dtype, rank) = (g.try_shape(inputs[0])?.dtype(), g.try_shape(inputs[0])?.rank());
            let wide = widened(g, inputs)?;
            let y = scale_to_unit(g, wide[0], &trailing(axis, rank)?, eps)?;
            let y = g.try_mul(y, wide[1])?;
            Ok(vec![g.try_cast(y, dtype)?])
        };
        Some(build())
    }

    fn flops(&self, _: &Op, _: &[&Shape], results: &[Shape]) -> f64 {
        5.0 * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let (axis, x, gamma) = random_rows(g);
        Case::new(Op::RmsNorm { axis, eps: 1e-3 }, vec![x, gamma])
    }
}

/// The parameters of a norm with one value for each channel: their names, element type and length.
fn check_channels(kind: OpKind, x: &Shape, names: &[&str], params: &[&Shape]) -> Result<()> {
    check_float(kind, x)?;
    let reject = |message: String| Err(Error::new(ErrorKind::Shape, format!("{kind} of {x}: {message}")));
    if x.rank() < 2 {
        return reject("the input needs a batch and a channel dimension".to_string());
    }
    for (what, shape) in names.iter().zip(params) {
        let differs = matches!((x.dim(1), shape.dims()), (Dim::Static(c), [Dim::Static(n)]) if c != *n);
        if shape.rank() != 1 || differs {
            return reject(format!("{what} {shape} is not one value for each of {} channels", x.dim(1)));
        }
        if shape.dtype() != x.dtype() {
            let message = format!("{kind} of {x} with {what} {shape}: element types differ");
            return Err(Error::new(ErrorKind::DType, message).with_hint("insert a Cast"));
        }
    }
    Ok(())
}

/// A `[C]` value as `[C, 1, …]`: it broadcasts onto the channels of a tensor of this rank.
fn for_channels(value: &Value, rank: usize) -> Value {
    let mut dims = vec![1; rank - 1];
    dims[0] = value.len();
    value.with_dims(&dims)
}

/// As [`for_channels`], in a graph.
fn spread(g: &mut Graph, param: NodeId, rank: usize) -> Result<NodeId> {
    let mut dims = vec![Dim::Static(1); rank - 1];
    dims[0] = g.try_shape(param)?.dim(0);
    g.try_reshape_to(param, &dims)
}

/// [`Op::GroupNorm`].
pub struct GroupNormDef;

impl OpDef for GroupNormDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(3)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => GroupNorm { groups });
        check_channels(OpKind::GroupNorm, inputs[0], &["gamma", "beta"], &inputs[1..])?;
        let channels = inputs[0].dim(1);
        if *groups == 0 || channels.as_static().is_some_and(|c| c % groups != 0) {
            let message =
                format!("GroupNorm of {}: {groups} groups do not divide {channels} channels", inputs[0]);
            return Err(Error::new(ErrorKind::Shape, message));
        }
        Ok(smallvec![inputs[0].clone()])
    }

    fn holds_for_all(&self, _: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        inputs[0].dim(1).is_static() && inputs[1..].iter().all(|s| s.dims() == [inputs[0].dim(1)])
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => GroupNorm { groups, eps });
        let x = inputs[0];
        let grouped = [x.dims[0] * groups, x.dims[1..].iter().product::<usize>() / groups];
        let y = Rows::of(&grouped, 1, 2).map(x.floats()?, |row| standardized(row, *eps));
        let [gamma, beta] = [1, 2].map(|i| for_channels(inputs[i], x.dims.len()));
        Ok(vec![Value::float(x.dtype, &x.dims, affine(&x.dims, y, &gamma, Some(&beta))?)])
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let Op::GroupNorm { groups, eps } = *op else { return None };
        let mut build = || {
            let shape = g.try_shape(inputs[0])?.clone();
            let wide = widened(g, inputs)?;
            let per_sample = shape.dims()[1..].iter().fold(Extent::Const(1), |n, &d| n * d);
            let grouped = [shape.dim(0), Dim::Static(groups), Dim::from(per_sample.floor_div(groups as i64))];
            let rows = g.try_reshape_to(wide[0], &grouped)?;
            let centered = center(g, rows, &[2])?;
            let unit = scale_to_unit(g, centered, &[2], eps)?;
            let unit = g.try_reshape_to(unit, shape.dims())?;
            let (gamma, beta) = (spread(g, wide[1], shape.rank())?, spread(g, wide[2], shape.rank())?);
            let scaled = g.try_mul(unit, gamma)?;
            let y = g.try_add_(scaled, beta)?;
            Ok(vec![g.try_cast(y, shape.dtype())?])
        };
        Some(build())
    }

    fn flops(&self, _: &Op, _: &[&Shape], results: &[Shape]) -> f64 {
        8.0 * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let groups = g.size(1..=3);
        let channels = groups * g.size(1..=3);
        let mut dims = vec![g.size(1..=3), channels];
        // A group of one element is all shift and no scale: its norm is a cancellation.
        let least = if channels == groups { 2 } else { 1 };
        dims.extend((0..g.size(1..=2)).map(|_| g.size(least..=4)));
        let dtype = g.dtype_where(|d| d.is_float());
        let param = |g: &mut Gen| g.value(dtype, &[channels], -1.0..1.0);
        let inputs = vec![g.value(dtype, &dims, -3.0..3.0), param(g), param(g)];
        Case::new(Op::GroupNorm { groups, eps: 1e-3 }, inputs)
    }
}

/// [`Op::BatchNorm`].
pub struct BatchNormDef;

impl OpDef for BatchNormDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(5)
    }

    fn infer(&self, _: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        let names = ["gamma", "beta", "mean", "variance"];
        check_channels(OpKind::BatchNorm, inputs[0], &names, &inputs[1..])?;
        Ok(smallvec![inputs[0].clone()])
    }

    fn holds_for_all(&self, _: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        inputs[1..].iter().all(|s| s.dims() == [inputs[0].dim(1)])
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => BatchNorm { eps });
        let x = inputs[0];
        let per_channel = inputs[1..].iter().map(|v| v.floats()).collect::<Result<Vec<_>>>()?;
        let [gamma, beta, mean, variance] = [0, 1, 2, 3].map(|i| per_channel[i]);
        let v = x.floats()?;
        let mut out = Vec::with_capacity(v.len());
        for_each_index(&x.dims, |index| {
            let c = index[1];
            let unit = (v[out.len()] - mean[c]) / (variance[c] + f64::from(*eps)).sqrt();
            out.push(unit * gamma[c] + beta[c]);
        });
        Ok(vec![Value::float(x.dtype, &x.dims, out)])
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let Op::BatchNorm { eps } = *op else { return None };
        let mut build = || {
            let (dtype, rank) = (g.try_shape(inputs[0])?.dtype(), g.try_shape(inputs[0])?.rank());
            let wide = widened(g, inputs)?;
            // Everything that depends on parameters alone comes first: it is computed once, not every run.
            let eps = g.try_scalar(eps.into(), g.try_shape(wide[0])?.dtype())?;
            let variance = g.try_add_(wide[4], eps)?;
            let deviation = g.try_sqrt(variance)?;
            let scale = g.try_div(wide[1], deviation)?;
            let (scale, mean) = (spread(g, scale, rank)?, spread(g, wide[3], rank)?);
            let beta = spread(g, wide[2], rank)?;
            let centered = g.try_sub(wide[0], mean)?;
            let scaled = g.try_mul(centered, scale)?;
            let y = g.try_add_(scaled, beta)?;
            Ok(vec![g.try_cast(y, dtype)?])
        };
        Some(build())
    }

    fn flops(&self, _: &Op, _: &[&Shape], results: &[Shape]) -> f64 {
        2.0 * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(2..=5, 1..=4);
        let dtype = g.dtype_where(|d| d.is_float());
        let param = |g: &mut Gen| g.value(dtype, &dims[1..2], -1.0..1.0);
        let inputs = vec![
            g.value(dtype, &dims, -3.0..3.0),
            param(g),
            param(g),
            param(g),
            g.value(dtype, &dims[1..2], 0.25..2.0),
        ];
        Case::new(Op::BatchNorm { eps: 1e-3 }, inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, oracle::evaluate_op};

    fn floats(dims: &[usize], v: &[f64]) -> Value {
        Value::float(DType::F64, dims, v.to_vec())
    }

    #[test]
    fn norms_by_hand() {
        let (x, one) = (floats(&[1, 2], &[3.0, 5.0]), floats(&[2], &[1.0, 2.0]));
        let y = evaluate_op(&Op::LayerNorm { axis: -1, eps: 0.0 }, &[&x, &one], &[]).unwrap();
        assert_eq!(y[0].to_f64(), [-1.0, 2.0]);
        let x = floats(&[1, 2], &[3.0, -3.0]);
        let y = evaluate_op(&Op::RmsNorm { axis: 1, eps: 0.0 }, &[&x, &one], &[]).unwrap();
        assert_eq!(y[0].to_f64(), [1.0, -2.0]);
        let zero = floats(&[2], &[0.0, 10.0]);
        let y = evaluate_op(&Op::BatchNorm { eps: 3.0 }, &[&x, &one, &zero, &zero, &one], &[]).unwrap();
        assert_eq!(y[0].to_f64()[0], 1.5);
    }

    #[test]
    fn parameters_must_fit() {
        let x = Shape::new(&[2, 4, 3], DType::F32);
        let bad = Shape::new(&[5], DType::F32);
        let e = LayerNormDef.infer(&Op::LayerNorm { axis: -1, eps: 0.0 }, &[&x, &bad], &[]).unwrap_err();
        assert!(e.to_string().contains("gamma [5] f32"), "{e}");
        let op = Op::GroupNorm { groups: 3, eps: 0.0 };
        let four = Shape::new(&[4], DType::F32);
        assert!(GroupNormDef.infer(&op, &[&x, &four, &four], &[]).is_err());
    }
}
