//! A matmul by weights that are quantised in blocks, as language models are stored with 4 or 8 bits for each weight.
//!
//! The weights of each column are small integers in blocks of equal size along the depth; each block has a scale and may have
//! a zero point: `y = x · Wᵀ` with `W[j, i] = (w[j, b, i mod size] − zero[b, j]) · scale[b, j]` and `b = ⌊i / size⌋`. An element of
//! `W` is rounded to the type of `x`, as `Dequantize` rounds it. The last block may be longer than what is left of the
//! depth; what is beyond it counts for nothing.
//!
//! The op stands for `Dequantize` followed by `MatMul`, which it decomposes into. A device that claims it keeps the
//! weights as they are: nothing of their size in floats is ever in memory.

use smallvec::smallvec;

use crate::dim::{Dim, Extent};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::def::{Arity, OpDef, Ranges, dtype_error};
use crate::ops::linalg::MatMulDef;
use crate::ops::{Op, OpKind};
use crate::shape::{Shape, Shapes};
use crate::tensor::Value;

#[cfg(feature = "testing")]
use crate::{
    dtype::DType,
    testing::{Case, Gen},
};

/// [`Op::MatMulBlocks`].
pub struct MatMulBlocksDef;

/// The dimensions of the weights: columns, blocks of each, elements of a block, and the depth that is used.
fn sizes(inputs: &[&Shape]) -> Result<[usize; 4]> {
    let fixed = |d: &Dim| d.as_static();
    let sizes: Option<Vec<usize>> = inputs[1].dims().iter().map(fixed).collect();
    let depth = inputs[0].dims().last().and_then(fixed);
    let mismatch = || {
        let message = format!("MatMulBlocks of {} by {}", inputs[0], inputs[1]);
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

impl OpDef for MatMulBlocksDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Between(3, 4)
    }

    fn infer(&self, _: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        let (x, w) = (inputs[0], inputs[1]);
        for float in [0, 2, 3].into_iter().filter_map(|i| inputs.get(i)) {
            if !float.dtype().is_float() {
                return Err(dtype_error(OpKind::MatMulBlocks, float, "floats"));
            }
        }
        if !w.dtype().is_int() || w.dtype().bits() > 8 {
            return Err(dtype_error(OpKind::MatMulBlocks, w, "integers of at most 8 bits"));
        }
        let [columns, blocks, ..] = sizes(inputs)?;
        if let Some(param) = inputs[2..].iter().find(|p| p.dims() != [blocks, columns].map(Dim::Static)) {
            let message = format!("MatMulBlocks of {x} by {w}: {param} for scales or zero points");
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

    fn reference(&self, _: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        let shapes: Vec<Shape> = inputs.iter().map(|v| v.shape()).collect();
        let [columns, blocks, size, depth] = sizes(&shapes.iter().collect::<Vec<_>>())?;
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
        MatMulDef.reference(&Op::MatMul, &[inputs[0], &weights], results)
    }

    fn decompose(&self, _: &Op, inputs: &[NodeId], g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let mut build = || {
            let shapes = inputs.iter().map(|&id| g.try_shape(id).cloned()).collect::<Result<Vec<_>>>()?;
            let [columns, blocks, size, depth] = sizes(&shapes.iter().collect::<Vec<_>>())?;
            let float = super::rows::wide(shapes[2].dtype());
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
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
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
        Case::new(Op::MatMulBlocks, inputs)
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
}
