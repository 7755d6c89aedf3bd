//! A matmul by weights that are quantised in blocks, as language models are stored with 4 or 8 bits for each weight.
//!
//! The weights of each column are small integers in blocks of equal size along the depth; each block has a scale and may have
//! a zero point: `y = x · Wᵀ` with `W[j, i] = (w[j, b, i mod size] − zero[b, j]) · scale[b, j]` and `b = ⌊i / size⌋`. An element of
//! `W` is rounded to the type of `x`, as `Dequantize` rounds it. The last block may be longer than what is left of the
//! depth; what is beyond it counts for nothing.
//!
//! The op stands for `Dequantize` followed by `MatMul`, which it decomposes into. A device that claims it keeps the
//! weights as they are: nothing of their size in floats is ever in memory.
//!
//! [`Op::DynamicMatMulBlocks`] is the same with rows of 8 bits, so that a device may multiply integers: in each block of a row, as long as the weights',
//! `x` is replaced by `round(x · (127 / m)) · (m / 127)`, where `m` is the largest magnitude there, at least 2⁻¹⁰⁰. Quotients and the first product are rounded to f32
//! (f64 for f64), that product then to the nearest integer, ties to even: what ONNX Runtime and llama.cpp do. A block with an infinity or NaN makes all results of its row
//! NaN. It decomposes into this and `MatMulBlocks`.

use smallvec::smallvec;

use crate::dim::{Dim, Extent};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::def::{Arity, OpDef, Ranges, dtype_error};
use crate::ops::linalg::MatMulDef;
use crate::ops::{Activation, BinaryOp, Op, OpKind, PadMode, ReduceOp};
use crate::shape::{Shape, Shapes};
use crate::tensor::{Value, round_float};

use super::rows::wide;

#[cfg(feature = "testing")]
use crate::{
    dtype::DType,
    testing::{Case, Gen},
};

/// [`Op::MatMulBlocks`] and [`Op::DynamicMatMulBlocks`].
pub struct MatMulBlocksDef;

/// The largest integer that a row's element becomes.
const LARGEST: f64 = 127.0;

/// What a block's largest magnitude counts as at least, 2⁻¹⁰⁰: the factor of a smaller one would be infinite.
const LEAST: f64 = 1.0 / (1u128 << 100) as f64;

/// The dimensions of the weights: columns, blocks of each, elements of a block, and the depth that is used.
fn sizes(kind: OpKind, inputs: &[&Shape]) -> Result<[usize; 4]> {
    let fixed = |d: &Dim| d.as_static();
    let sizes: Option<Vec<usize>> = inputs[1].dims().iter().map(fixed).collect();
    let depth = inputs[0].dims().last().and_then(fixed);
    let mismatch = || {
        let message = format!("{kind} of {} by {}", inputs[0], inputs[1]);
        Error::new(ErrorKind::Shape, message)
            .with_hint("the weights are [columns, blocks, elements of a block], enough of them for each row")
    };
    let (Some(&[columns, blocks, size]), Some(depth)) = (sizes.as_deref(), depth) else {
        return Err(mismatch());
    };
    let width = blocks.checked_mul(size).ok_or_else(mismatch)?;
    if depth > width || depth + size <= width {
        return Err(mismatch());
    }
    Ok([columns, blocks, size, depth])
}

/// Rows of `depth` elements, quantised and dequantised in blocks of `size`.
fn quantized_rows(x: &Value, depth: usize, size: usize) -> Result<Value> {
    let float = wide(x.dtype);
    let mut rows = x.floats()?.to_vec();
    for block in rows.chunks_mut(depth.max(1)).flat_map(|row| row.chunks_mut(size.max(1))) {
        let is_odd = block.iter().any(|x| !x.is_finite());
        let most = block.iter().fold(LEAST, |most, x| most.max(x.abs()));
        let most = if is_odd { f64::NAN } else { most };
        let (factor, scale) = (round_float(float, LARGEST / most), round_float(float, most / LARGEST));
        for x in block {
            *x = round_float(float, *x * factor).round_ties_even() * scale;
        }
    }
    Ok(Value::float(x.dtype, &x.dims, rows).rounded())
}

/// As [`quantized_rows`], of ops.
fn quantize_rows(g: &mut Graph, x: NodeId, [blocks, size, depth]: [usize; 3]) -> Result<NodeId> {
    let shape = g.try_shape(x)?.clone();
    let (float, lead) = (wide(shape.dtype()), shape.rank() - 1);
    let mut y = g.try_cast(x, float)?;
    if blocks * size != depth {
        let before = vec![Extent::Const(0); lead + 1];
        let mut after = before.clone();
        after[lead] = Extent::Const((blocks * size - depth) as i64);
        y = g.try_add(Op::Pad { before, after, mode: PadMode::Constant }, &[y])?;
    }
    let mut apart = shape.dims()[..lead].to_vec();
    apart.extend([blocks, size].map(Dim::Static));
    y = g.try_reshape_to(y, &apart)?;
    let magnitudes = g.try_act(Activation::Abs, y)?;
    let most =
        g.try_add(Op::Reduce { op: ReduceOp::Max, axes: vec![lead + 1], keep_dim: true }, &[magnitudes])?;
    let [least, largest] = [LEAST, LARGEST].map(|x| g.constant(Value::float(float, &[], vec![x]).to_const()));
    let most = g.try_add(Op::Binary(BinaryOp::Max), &[most, least])?;
    let (factor, scale) = (g.try_div(largest, most)?, g.try_div(most, largest)?);
    y = g.try_mul(y, factor)?;
    y = g.try_act(Activation::Round, y)?;
    y = g.try_mul(y, scale)?;
    let mut whole = shape.dims().to_vec();
    whole[lead] = Dim::Static(blocks * size);
    y = g.try_reshape_to(y, &whole)?;
    let slice = Op::Slice {
        starts: vec![Extent::Const(0); lead + 1],
        steps: vec![1; lead + 1],
        to: shape.dims().to_vec(),
    };
    y = g.try_add(slice, &[y])?;
    g.try_cast(y, shape.dtype())
}

impl OpDef for MatMulBlocksDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Between(3, 4)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        let (x, w, kind) = (inputs[0], inputs[1], op.kind());
        for float in [0, 2, 3].into_iter().filter_map(|i| inputs.get(i)) {
            if !float.dtype().is_float() {
                return Err(dtype_error(kind, float, "floats"));
            }
        }
        if !w.dtype().is_int() || w.dtype().bits() > 8 {
            return Err(dtype_error(kind, w, "integers of at most 8 bits"));
        }
        let [columns, blocks, ..] = sizes(kind, inputs)?;
        if let Some(param) = inputs[2..].iter().find(|p| p.dims() != [blocks, columns].map(Dim::Static)) {
            let message = format!("{kind} of {x} by {w}: {param} for scales or zero points");
            let hint = format!("they are [{blocks}, {columns}], one for each block of each column");
            return Err(Error::new(ErrorKind::Shape, message).with_hint(hint));
        }
        let mut dims = x.dims().to_vec();
        if let Some(last) = dims.last_mut() {
            *last = Dim::Static(columns);
        }
        Ok(smallvec![x.with_dims(dims)])
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        let shapes: Vec<Shape> = inputs.iter().map(|v| v.shape()).collect();
        let [columns, blocks, size, depth] = sizes(op.kind(), &shapes.iter().collect::<Vec<_>>())?;
        let (w, scale) = (inputs[1].ints()?, inputs[2].floats()?);
        let zero = inputs.get(3).map(|z| z.floats()).transpose()?;
        let mut weights = Vec::with_capacity(depth.saturating_mul(columns));
        for i in 0..depth {
            for j in 0..columns {
                let param = i / size * columns + j;
                let q = w[j * blocks * size + i] as f64;
                weights.push((q - zero.as_ref().map_or(0.0, |z| z[param])) * scale[param]);
            }
        }
        let weights = Value::float(inputs[0].dtype, &[depth, columns], weights).rounded();
        match op {
            Op::DynamicMatMulBlocks => {
                let rows = quantized_rows(inputs[0], depth, size)?;
                MatMulDef.reference(&Op::MatMul, &[&rows, &weights], results)
            }
            _ => MatMulDef.reference(&Op::MatMul, &[inputs[0], &weights], results),
        }
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let mut build = || {
            let shapes = inputs.iter().map(|&id| g.try_shape(id).cloned()).collect::<Result<Vec<_>>>()?;
            let [columns, blocks, size, depth] = sizes(op.kind(), &shapes.iter().collect::<Vec<_>>())?;
            if *op == Op::DynamicMatMulBlocks {
                let mut inputs = inputs.to_vec();
                inputs[0] = quantize_rows(g, inputs[0], [blocks, size, depth])?;
                return Ok(vec![g.try_add(Op::MatMulBlocks, &inputs)?]);
            }
            let float = wide(shapes[2].dtype());
            let along = |g: &mut Graph, param: NodeId| {
                let param = g.try_cast(param, float)?;
                let param = g.try_transpose(param, &[1, 0])?;
                g.try_reshape_to(param, &[columns, blocks, 1].map(Dim::Static))
            };
            let mut w = g.try_cast(inputs[1], float)?;
            if let Some(&zero) = inputs.get(3) {
                let zero = along(g, zero)?;
                w = g.try_sub(w, zero)?;
            }
            let scale = along(g, inputs[2])?;
            let w = g.try_mul(w, scale)?;
            let w = g.try_cast(w, shapes[0].dtype())?;
            let w = g.try_reshape_to(w, &[columns, blocks * size].map(Dim::Static))?;
            let to = [columns, depth].map(Dim::Static).to_vec();
            let slice = Op::Slice { starts: vec![Extent::Const(0); 2], steps: vec![1; 2], to };
            let w = g.try_add(slice, &[w])?;
            let w = g.try_transpose(w, &[1, 0])?;
            Ok(vec![g.try_add(Op::MatMul, &[inputs[0], w])?])
        };
        Some(build())
    }

    fn flops(&self, _: &Op, inputs: &[&Shape], results: &[Shape]) -> f64 {
        let k = inputs[0].dims().last().and_then(|d| d.as_static()).unwrap_or(0);
        2.0 * k as f64 * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, kind: OpKind, g: &mut Gen) -> Case {
        let (size, blocks, columns) = (g.pick(&[2, 4, 5, 16, 32]), g.size(1..=4), g.size(1..=60));
        let depth = blocks * size - g.size(0..=size - 1);
        let dtype = g.dtype_where(|d| d.is_float() && d.bits() >= 16);
        let to = g.pick(&[DType::U4, DType::I4, DType::U8, DType::I8]);
        let mut x = g.dims(0..=2, 1..=4);
        x.push(depth);
        let params = [blocks, columns];
        let scale: Vec<f64> = (0..blocks * columns).map(|_| g.pick(&[0.125, 0.25, 0.5])).collect();
        let mut inputs = vec![
            g.value(dtype, &x, -1.0..1.0),
            g.value(to, &[columns, blocks, size], -8.0..15.0),
            Value::float(dtype, &params, scale),
        ];
        if g.chance(0.6) {
            let zero = (0..blocks * columns).map(|_| g.size(0..=9) as f64).collect();
            inputs.push(Value::float(dtype, &params, zero));
        }
        let op = if kind == OpKind::MatMulBlocks { Op::MatMulBlocks } else { Op::DynamicMatMulBlocks };
        Case::new(op, inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::oracle::evaluate_op;

    #[test]
    fn each_block_has_its_own_scale_and_zero_point() {
        // Two columns, two blocks of two elements, of which three are used.
        let w = Value::int(DType::U4, &[2, 2, 2], vec![1, 2, 3, 15, 5, 6, 7, 15]);
        let x = Value::float(DType::F32, &[3], vec![1.0, 1.0, 1.0]);
        let scale = Value::float(DType::F32, &[2, 2], vec![1.0, 2.0, 10.0, 20.0]);
        let zero = Value::float(DType::F32, &[2, 2], vec![0.0, 5.0, 1.0, 0.0]);
        let y = evaluate_op(&Op::MatMulBlocks, &[&x, &w, &scale, &zero], &[]).unwrap();
        assert_eq!(y[0].to_f64(), [1.0 + 2.0 + 20.0, 0.0 + 2.0 + 140.0]);
        let y = evaluate_op(&Op::MatMulBlocks, &[&x, &w, &scale], &[]).unwrap();
        assert_eq!(y[0].to_f64(), [1.0 + 2.0 + 30.0, 10.0 + 12.0 + 140.0]);
        // Five elements do not fit into two blocks of two, and two leave one block over.
        for depth in [2, 5] {
            let x = Value::float(DType::F32, &[depth], vec![1.0; depth]);
            assert!(evaluate_op(&Op::MatMulBlocks, &[&x, &w, &scale], &[]).is_err());
        }
    }

    #[test]
    fn rows_are_quantised_in_blocks_of_their_own() {
        // Blocks of two elements: in the first, 1 is 1/127 of the largest and 0.4 of that becomes 0; the second is 0; the third has one element.
        let x = Value::float(DType::F32, &[5], vec![127.0, 0.4, 0.0, 0.0, -3.0]);
        let w = Value::int(DType::I8, &[1, 3, 2], vec![1, 1, 1, 1, 1, 9]);
        let scale = Value::float(DType::F32, &[3, 1], vec![1.0, 1.0, 2.0]);
        let y = |x: &Value| evaluate_op(&Op::DynamicMatMulBlocks, &[x, &w, &scale], &[]).unwrap()[0].to_f64();
        assert_eq!(y(&x), [127.0 - 6.0]);
        for odd in [f64::NAN, f64::INFINITY] {
            assert!(y(&Value::float(DType::F32, &[5], vec![1.0, odd, 0.0, 0.0, 1.0]))[0].is_nan());
        }
    }
}
