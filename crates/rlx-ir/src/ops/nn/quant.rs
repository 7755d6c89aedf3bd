//! Quantisation to small integers and back (ONNX `QuantizeLinear`, `DequantizeLinear`).
//!
//! `quantize(x) = saturate(round(x / scale) + zero_point)` and `dequantize(q) = (q − zero_point) · scale`, with
//! rounding to nearest even. The quotient is rounded to f32 (f64 for f64 inputs) before it is rounded to an
//! integer: that is what arithmetic in that type gives, and it decides ties. Scale and zero point are one
//! value for the whole tensor or, with an `axis`, one for each index along it. NaN quantises as 0.

use smallvec::smallvec;

use super::rows::wide;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::def::{Arity, OpDef, Ranges, dtype_error};
use crate::ops::{Activation, Op, OpKind, attrs};
use crate::oracle::for_each_index;
use crate::shape::{Shape, Shapes};
use crate::tensor::{Value, round_float};

#[cfg(feature = "testing")]
use crate::{
    tensor::Elements,
    testing::{Case, Gen},
};

/// The types there is quantisation to: integers of at most 16 bits.
fn is_quantized(dtype: DType) -> bool {
    dtype.is_int() && dtype.bits() <= 16
}

/// Scale (a float) and zero point (of type `quantized`): scalars, or one value for each index along `axis`.
fn check_params(kind: OpKind, axis: Option<usize>, inputs: &[&Shape], quantized: DType) -> Result<()> {
    let x = inputs[0];
    if !inputs[1].dtype().is_float() {
        return Err(dtype_error(kind, inputs[1], "a float scale"));
    }
    if let Some(zero) = inputs.get(2)
        && zero.dtype() != quantized
    {
        return Err(dtype_error(kind, zero, &format!("a zero point of {quantized}")));
    }
    if axis.is_some_and(|a| a >= x.rank()) {
        return Err(Error::new(ErrorKind::Shape, format!("{kind} of {x}: there is no axis {axis:?}")));
    }
    for (what, shape) in ["scale", "zero point"].into_iter().zip(&inputs[1..]) {
        let fits = match (axis, shape.dims()) {
            (None, dims) => dims.iter().all(|&d| d == Dim::Static(1)) && dims.len() <= 1,
            (Some(axis), [n]) => !(n.is_static() && x.dim(axis).is_static() && *n != x.dim(axis)),
            _ => false,
        };
        if !fits {
            let want = axis.map_or("a single value".to_string(), |a| format!("[{}]", x.dim(a)));
            let message = format!("{kind} of {x}: the {what} {shape} must be {want}");
            return Err(Error::new(ErrorKind::Shape, message));
        }
    }
    Ok(())
}

/// The axis along which scales and zero points differ.
fn axis_of(op: &Op) -> Option<usize> {
    match op {
        Op::Quantize { axis, .. } | Op::Dequantize { axis, .. } => *axis,
        _ => None,
    }
}

/// Whether scale and zero point fit for all values of the symbols.
fn params_always_fit(axis: Option<usize>, inputs: &[&Shape]) -> bool {
    axis.is_none_or(|axis| inputs[1..].iter().all(|p| p.dims() == [inputs[0].dim(axis)]))
}

/// Calls `f` with each element's position and that of its scale and zero point.
fn for_each_element(dims: &[usize], axis: Option<usize>, mut f: impl FnMut(usize, usize)) {
    let mut at = 0;
    for_each_index(dims, |index| {
        f(at, axis.map_or(0, |a| index[a]));
        at += 1;
    });
}

fn zero_points(inputs: &[&Value]) -> Result<Option<Vec<f64>>> {
    Ok(inputs.get(2).map(|z| z.to_f64()))
}

/// A scale or zero point with the dimensions to broadcast along `axis` of a tensor of `rank`.
fn along(g: &mut Graph, param: NodeId, axis: Option<usize>, rank: usize) -> Result<NodeId> {
    let mut dims = Vec::new();
    if let Some(axis) = axis {
        dims = vec![Dim::Static(1); rank - axis];
        dims[0] = g.try_shape(param)?.dim(0);
    }
    g.try_reshape_to(param, &dims)
}

/// [`Op::Quantize`].
pub struct QuantizeDef;

impl OpDef for QuantizeDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Between(2, 3)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Quantize { axis, to });
        if !inputs[0].dtype().is_float() {
            return Err(dtype_error(OpKind::Quantize, inputs[0], "floats"));
        }
        if !is_quantized(*to) {
            let message = format!("Quantize of {} to {to}: only to integers of at most 16 bits", inputs[0]);
            return Err(Error::new(ErrorKind::DType, message));
        }
        check_params(OpKind::Quantize, *axis, inputs, *to)?;
        Ok(smallvec![inputs[0].with_dtype(*to)])
    }

    fn holds_for_all(&self, op: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        params_always_fit(axis_of(op), inputs)
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Quantize { axis, to });
        let (x, scale, zero) = (inputs[0].floats()?, inputs[1].floats()?, zero_points(inputs)?);
        let quotient_type = wide(inputs[0].dtype);
        let (low, high) = to.int_range().unwrap_or((0, 0));
        let mut out = Vec::with_capacity(x.len());
        for_each_element(&inputs[0].dims, *axis, |at, param| {
            let quotient = round_float(quotient_type, x[at] / scale[param]).round_ties_even();
            let shifted = quotient + zero.as_ref().map_or(0.0, |z| z[param]);
            // `as` saturates, and NaN becomes 0.
            out.push((shifted as i128).clamp(low, high));
        });
        Ok(vec![Value::int(*to, &inputs[0].dims, out)])
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let Op::Quantize { axis, to } = *op else { return None };
        let mut build = || {
            let shape = g.try_shape(inputs[0])?.clone();
            let float = wide(shape.dtype());
            let (x, scale) = (g.try_cast(inputs[0], float)?, g.try_cast(inputs[1], float)?);
            let scale = along(g, scale, axis, shape.rank())?;
            let quotient = g.try_div(x, scale)?;
            let mut y = g.try_act(Activation::Round, quotient)?;
            if let Some(&zero) = inputs.get(2) {
                let zero = g.try_cast(zero, float)?;
                let zero = along(g, zero, axis, shape.rank())?;
                y = g.try_add_(y, zero)?;
            }
            let (low, high) = to.int_range().unwrap_or((0, 0));
            let (low, high) = (g.try_scalar(low as f64, float)?, g.try_scalar(high as f64, float)?);
            let y = g.try_maximum(y, low)?;
            let y = g.try_minimum(y, high)?;
            Ok(vec![g.try_cast(y, to)?])
        };
        Some(build())
    }

    fn flops(&self, _: &Op, _: &[&Shape], results: &[Shape]) -> f64 {
        5.0 * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let (axis, dims, params) = random_params(g);
        let dtype = g.dtype_where(|d| d.is_float());
        let to = g.pick(QUANTIZED);
        // Scales are powers of two and inputs no half of them: no ties.
        let scale = powers_of_two(g, dtype, &params);
        let mut inputs = vec![g.untied_value(dtype, &dims), scale];
        if let Elements::Float(v) = &mut inputs[0].elements {
            v.iter_mut().for_each(|x| *x += 0.0625);
        }
        if g.chance(0.6) {
            inputs.push(g.value(to, &params, -5.0..5.0));
        }
        Case::new(Op::Quantize { axis, to }, inputs)
    }
}

#[cfg(feature = "testing")]
const QUANTIZED: &[DType] =
    &[DType::I8, DType::U8, DType::I16, DType::U16, DType::I4, DType::U4, DType::I2, DType::U2];

#[cfg(feature = "testing")]
fn random_params(g: &mut Gen) -> (Option<usize>, Vec<usize>, Vec<usize>) {
    let dims = g.dims(1..=4, 1..=5);
    let axis = g.chance(0.5).then(|| g.size(0..=dims.len() - 1));
    let params = match axis {
        Some(axis) => vec![dims[axis]],
        None if g.chance(0.5) => vec![1],
        None => vec![],
    };
    (axis, dims, params)
}

#[cfg(feature = "testing")]
fn powers_of_two(g: &mut Gen, dtype: DType, dims: &[usize]) -> Value {
    let n = dims.iter().product();
    Value::float(dtype, dims, (0..n).map(|_| g.pick(&[0.25, 0.5, 1.0, 2.0])).collect())
}

/// [`Op::Dequantize`].
pub struct DequantizeDef;

impl OpDef for DequantizeDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Between(2, 3)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Dequantize { axis, to });
        let x = inputs[0].dtype();
        if !is_quantized(x) && x != DType::I32 {
            return Err(dtype_error(OpKind::Dequantize, inputs[0], "integers of at most 16 bits, or i32"));
        }
        if !to.is_float() {
            return Err(Error::new(
                ErrorKind::DType,
                format!("Dequantize of {} to {to}: only to floats", inputs[0]),
            ));
        }
        check_params(OpKind::Dequantize, *axis, inputs, x)?;
        Ok(smallvec![inputs[0].with_dtype(*to)])
    }

    fn holds_for_all(&self, op: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        params_always_fit(axis_of(op), inputs)
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Dequantize { axis, to });
        let (x, scale, zero) = (inputs[0].to_f64(), inputs[1].floats()?, zero_points(inputs)?);
        let mut out = Vec::with_capacity(x.len());
        for_each_element(&inputs[0].dims, *axis, |at, param| {
            out.push((x[at] - zero.as_ref().map_or(0.0, |z| z[param])) * scale[param]);
        });
        Ok(vec![Value::float(*to, &inputs[0].dims, out)])
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let Op::Dequantize { axis, to } = *op else { return None };
        let mut build = || {
            let shape = g.try_shape(inputs[0])?.clone();
            let float = wide(g.try_shape(inputs[1])?.dtype());
            let float = if to == DType::F64 { to } else { float };
            // The difference of two integers of `n` bits needs one more: exact in the wider integer.
            let whole = if shape.dtype() == DType::I32 { DType::I64 } else { DType::I32 };
            let mut x = inputs[0];
            if let Some(&zero) = inputs.get(2) {
                x = g.try_cast(x, whole)?;
                let zero = g.try_cast(zero, whole)?;
                let zero = along(g, zero, axis, shape.rank())?;
                x = g.try_sub(x, zero)?;
            }
            let x = g.try_cast(x, float)?;
            let scale = g.try_cast(inputs[1], float)?;
            let scale = along(g, scale, axis, shape.rank())?;
            let y = g.try_mul(x, scale)?;
            Ok(vec![g.try_cast(y, to)?])
        };
        Some(build())
    }

    fn flops(&self, _: &Op, _: &[&Shape], results: &[Shape]) -> f64 {
        2.0 * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let (axis, dims, params) = random_params(g);
        let to = g.dtype_where(|d| d.is_float());
        let from = if g.chance(0.2) { DType::I32 } else { g.pick(QUANTIZED) };
        let mut inputs = vec![g.value(from, &dims, -100.0..100.0), powers_of_two(g, to, &params)];
        if g.chance(0.6) {
            inputs.push(g.value(from, &params, -5.0..5.0));
        }
        Case::new(Op::Dequantize { axis, to }, inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::evaluate_op;

    #[test]
    fn ties_go_to_even_and_the_range_saturates() {
        let x = Value::float(DType::F32, &[5], vec![1.0, 3.0, -900.0, 900.0, f64::NAN]);
        let scale = Value::float(DType::F32, &[], vec![2.0]);
        let zero = Value::int(DType::I8, &[], vec![1]);
        let op = Op::Quantize { axis: None, to: DType::I8 };
        let y = evaluate_op(&op, &[&x, &scale, &zero], &[]).unwrap();
        assert_eq!(y[0].to_f64(), [1.0, 3.0, -128.0, 127.0, 0.0]);
        let op = Op::Dequantize { axis: None, to: DType::F32 };
        let back = evaluate_op(&op, &[&y[0], &scale, &zero], &[]).unwrap();
        assert_eq!(back[0].to_f64(), [0.0, 4.0, -258.0, 252.0, -2.0]);
    }

    #[test]
    fn each_index_of_an_axis_has_its_own_scale() {
        let x = Value::int(DType::U8, &[2, 2], vec![1, 2, 3, 4]);
        let scale = Value::float(DType::F32, &[2], vec![1.0, 10.0]);
        let run = |axis| {
            let op = Op::Dequantize { axis: Some(axis), to: DType::F32 };
            evaluate_op(&op, &[&x, &scale], &[]).unwrap()[0].to_f64()
        };
        assert_eq!(run(0), [1.0, 2.0, 30.0, 40.0]);
        assert_eq!(run(1), [1.0, 20.0, 3.0, 40.0]);
        let op = Op::Dequantize { axis: None, to: DType::F32 };
        assert!(DequantizeDef.infer(&op, &[&x.shape(), &scale.shape()], &[]).is_err());
    }
}
