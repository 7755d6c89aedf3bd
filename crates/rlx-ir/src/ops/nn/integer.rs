//! Matmuls and convolutions of 8-bit integers, exact in i32 (ONNX `MatMulInteger`, `ConvInteger`).
//!
//! Both subtract the operands' zero points and compute with 32-bit integers, which wrap as every i32 does:
//! `y = Σ (a − a_zero) · (b − b_zero)`. The left operand has one zero point, the right one has one, or one for each
//! column (of a convolution: for each output channel). Around the input a convolution reads the zero point, that is 0.
//!
//! What multiplies in the meaning of quantised models is these ops; scales stand around them. Each is a composite: the
//! decomposition widens the operands, and a device whose processor multiplies bytes claims the op itself.

use super::conv::ConvDef;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::def::{Arity, OpDef, Ranges, dtype_error};
use crate::ops::linalg::MatMulDef;
use crate::ops::{Op, OpKind, attrs};
use crate::shape::{Shape, Shapes};
use crate::tensor::Value;

#[cfg(feature = "testing")]
use super::window::RandomWindow;
#[cfg(feature = "testing")]
use crate::ops::DataFormat;
#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// Operands of 8 bits, each with a zero point of its type: one value, on the right also one for each of `columns`.
fn check(kind: OpKind, inputs: &[&Shape], columns: Option<Dim>) -> Result<()> {
    for (operand, zero) in [(inputs[0], inputs[2]), (inputs[1], inputs[3])] {
        if !matches!(operand.dtype(), DType::I8 | DType::U8) {
            return Err(dtype_error(kind, operand, "integers of 8 bits"));
        }
        if zero.dtype() != operand.dtype() {
            return Err(dtype_error(kind, zero, &format!("a zero point of {}", operand.dtype())));
        }
    }
    let fits = |zero: &Shape, columns: Option<Dim>| match (zero.dims(), columns) {
        ([], _) => true,
        (&[n], Some(columns)) => n == columns || !(n.is_static() && columns.is_static()),
        _ => false,
    };
    if !fits(inputs[2], None) || !fits(inputs[3], columns) {
        let message =
            format!("{kind} of {} and {}: zero points {} and {}", inputs[0], inputs[1], inputs[2], inputs[3]);
        return Err(Error::new(ErrorKind::Shape, message)
            .with_hint("the left has one zero point, the right one or one for each column"));
    }
    Ok(())
}

/// The elements minus the zero point of each, as i32; `of` says which one an element has.
fn centred(x: &Value, zero: &Value, of: impl Fn(usize) -> usize) -> Result<Value> {
    let (elements, zeros) = (x.ints()?, zero.ints()?);
    let zero = |i: usize| if zeros.len() == 1 { zeros[0] } else { zeros[of(i)] };
    let differences = elements.iter().enumerate().map(|(i, &v)| v - zero(i)).collect();
    Ok(Value::int(DType::I32, &x.dims, differences))
}

/// As [`centred`], in the graph; `dims` are the dimensions in which a vector of zero points broadcasts.
fn centre(g: &mut Graph, x: NodeId, zero: NodeId, dims: &[Dim]) -> Result<NodeId> {
    let x = g.try_cast(x, DType::I32)?;
    let mut zero = g.try_cast(zero, DType::I32)?;
    if g.try_shape(zero)?.rank() == 1 {
        zero = g.try_reshape_to(zero, dims)?;
    }
    g.try_sub(x, zero)
}

/// [`Op::MatMulInteger`].
pub struct MatMulIntegerDef;

impl OpDef for MatMulIntegerDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(4)
    }

    fn infer(&self, _: &Op, inputs: &[&Shape], declared: &[Shape]) -> Result<Shapes> {
        let (a, b) = (inputs[0], inputs[1]);
        check(OpKind::MatMulInteger, inputs, if b.rank() > 1 { b.dims().last().copied() } else { None })?;
        MatMulDef.infer(&Op::MatMul, &[&a.with_dtype(DType::I32), &b.with_dtype(DType::I32)], declared)
    }

    fn holds_for_all(&self, _: &Op, inputs: &[&Shape], range: Ranges<'_>) -> bool {
        let columns = inputs[1].dims().last();
        (inputs[3].rank() == 0 || inputs[3].dims().last() == columns)
            && MatMulDef.holds_for_all(&Op::MatMul, &inputs[..2], range)
    }

    fn reference(&self, _: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        let columns = inputs[1].dims.last().copied().unwrap_or(1).max(1);
        let a = centred(inputs[0], inputs[2], |_| 0)?;
        let b = centred(inputs[1], inputs[3], |i| i % columns)?;
        MatMulDef.reference(&Op::MatMul, &[&a, &b], results)
    }

    fn decompose(&self, _: &Op, inputs: &[NodeId], g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let mut build = || {
            let a = centre(g, inputs[0], inputs[2], &[])?;
            let columns = g.try_shape(inputs[3])?.dims().to_vec();
            let b = centre(g, inputs[1], inputs[3], &columns)?;
            Ok(vec![g.try_add(Op::MatMul, &[a, b])?])
        };
        Some(build())
    }

    fn flops(&self, _: &Op, inputs: &[&Shape], results: &[Shape]) -> f64 {
        let k = inputs[0].dims().last().and_then(|d| d.as_static()).unwrap_or(0);
        2.0 * k as f64 * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let (m, k, n) = (g.size(1..=20), g.size(1..=40), g.size(1..=60));
        let batch = g.dims(0..=2, 1..=3);
        let mut a = batch.clone();
        a.extend([m, k]);
        // One matrix for all rows is what weights are.
        let mut b = if g.chance(0.6) { Vec::new() } else { batch };
        b.extend([k, n]);
        let inputs = quantized_operands(g, &a, &b, n);
        Case::new(Op::MatMulInteger, inputs)
    }
}

/// Two operands of any 8-bit types with their zero points.
#[cfg(feature = "testing")]
fn quantized_operands(g: &mut Gen, a: &[usize], b: &[usize], columns: usize) -> Vec<Value> {
    let mut bytes = |dims: &[usize], dtype: DType| match dtype {
        DType::U8 => g.value(dtype, dims, 0.0..255.0),
        _ => g.value(dtype, dims, -128.0..127.0),
    };
    let types = [DType::I8, DType::U8];
    let (x, w) = (bytes(a, types[a.len() % 2]), bytes(b, types[a.iter().sum::<usize>() % 2]));
    let zero_b: &[usize] = if (a.iter().sum::<usize>() / 2).is_multiple_of(2) { &[] } else { &[columns] };
    let (za, zb) = (bytes(&[], x.dtype), bytes(zero_b, w.dtype));
    vec![x, w, za, zb]
}

/// [`Op::ConvInteger`].
pub struct ConvIntegerDef;

/// The convolution of i32 that it is of the centred operands.
fn plain(op: &Op) -> Result<Op> {
    attrs!(op => ConvInteger { strides, pads, dilations, groups, format });
    let (strides, pads, dilations) = (strides.clone(), pads.clone(), dilations.clone());
    Ok(Op::Conv { strides, pads, dilations, groups: *groups, format: *format })
}

impl OpDef for ConvIntegerDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(4)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], declared: &[Shape]) -> Result<Shapes> {
        check(OpKind::ConvInteger, inputs, inputs[1].dims().first().copied())?;
        let wide = [inputs[0].with_dtype(DType::I32), inputs[1].with_dtype(DType::I32)];
        ConvDef.infer(&plain(op)?, &[&wide[0], &wide[1]], declared)
    }

    fn holds_for_all(&self, op: &Op, inputs: &[&Shape], range: Ranges<'_>) -> bool {
        let fits = inputs[3].rank() == 0 || inputs[3].dims().first() == inputs[1].dims().first();
        fits && plain(op).is_ok_and(|conv| ConvDef.holds_for_all(&conv, &inputs[..2], range))
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        let per_channel = inputs[1].dims[1..].iter().product::<usize>().max(1);
        let x = centred(inputs[0], inputs[2], |_| 0)?;
        let w = centred(inputs[1], inputs[3], |i| i / per_channel)?;
        ConvDef.reference(&plain(op)?, &[&x, &w], results)
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let mut build = || {
            let x = centre(g, inputs[0], inputs[2], &[])?;
            let weights = g.try_shape(inputs[1])?.clone();
            let mut dims = vec![Dim::Static(1); weights.rank()];
            dims[0] = weights.dim(0);
            let w = centre(g, inputs[1], inputs[3], &dims)?;
            Ok(vec![g.try_add(plain(op)?, &[x, w])?])
        };
        Some(build())
    }

    fn flops(&self, op: &Op, inputs: &[&Shape], results: &[Shape]) -> f64 {
        plain(op).map_or(0.0, |conv| ConvDef.flops(&conv, inputs, results))
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let spatial = g.pick(&[1, 2, 2, 2, 3]);
        let window = RandomWindow::new(g, spatial);
        let groups = g.pick(&[1, 1, 2, 3]);
        let (per_group, out_per_group) = (g.size(1..=6), g.size(1..=4));
        let format: DataFormat = g.variant();
        let x = format.arrange(g.size(1..=2), groups * per_group, &window.input);
        let mut w = vec![groups * out_per_group, per_group];
        w.extend(&window.kernel);
        let inputs = quantized_operands(g, &x, &w, groups * out_per_group);
        let RandomWindow { strides, pads, dilations, .. } = window;
        Case::new(Op::ConvInteger { strides, pads, dilations, groups, format }, inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::evaluate_op;

    fn bytes(dtype: DType, dims: &[usize], values: &[i128]) -> Value {
        Value::int(dtype, dims, values.to_vec())
    }

    #[test]
    fn extreme_bytes_multiply_exactly() {
        let a = bytes(DType::U8, &[1, 3], &[255, 255, 0]);
        let b = bytes(DType::I8, &[3, 2], &[-128, 127, -128, 127, 127, -128]);
        let zeros = [bytes(DType::U8, &[], &[0]), bytes(DType::I8, &[2], &[127, -128])];
        let y = evaluate_op(&Op::MatMulInteger, &[&a, &b, &zeros[0], &zeros[1]], &[]).unwrap();
        assert_eq!((y[0].dtype, y[0].ints().unwrap()), (DType::I32, &[-255 * 255 * 2, 255 * 255 * 2][..]));
    }

    #[test]
    fn zero_points_are_of_their_operands_type_and_number() {
        let s = |dims: &[usize], dtype| Shape::new(dims, dtype);
        let (a, b) = (s(&[4, 3], DType::U8), s(&[3, 5], DType::I8));
        let infer =
            |za: &Shape, zb: &Shape| MatMulIntegerDef.infer(&Op::MatMulInteger, &[&a, &b, za, zb], &[]);
        let scalar = s(&[], DType::U8);
        assert_eq!(infer(&scalar, &s(&[5], DType::I8)).unwrap()[..], [s(&[4, 5], DType::I32)]);
        assert!(infer(&scalar, &s(&[3], DType::I8)).is_err());
        assert!(infer(&scalar, &s(&[], DType::U8)).is_err());
        assert!(infer(&s(&[4], DType::U8), &s(&[], DType::I8)).is_err());
    }
}
