//! Softmax and layer norm. The other norms are made of reductions by their decomposition.

use super::context::{Ctx, MAX_RANK};
use crate::mil::{Mil, Tensor};

fn axis_of(axis: i32, rank: usize) -> usize {
    if axis < 0 { (axis + rank as i32) as usize } else { axis as usize }
}

fn operand(ctx: &Ctx<'_>) -> Mil<Tensor> {
    if ctx.out().len() > MAX_RANK {
        return Err(format!("tensors have at most {MAX_RANK} dimensions"));
    }
    Ok(ctx.x(0))
}

/// `Softmax`.
pub fn softmax(ctx: &mut Ctx<'_>, axis: i32) -> Mil<Tensor> {
    let x = operand(ctx)?;
    let axis = ctx.b.int(axis_of(axis, x.dims.len()));
    Ok(ctx.b.op("softmax", &[("x", (&x).into()), ("axis", (&axis).into())], x.ty, &x.dims))
}

/// `LayerNorm`: the statistics by MIL's, then scale and shift, which may be computed.
pub fn layer_norm(ctx: &mut Ctx<'_>, axis: i32, eps: f32) -> Mil<Tensor> {
    let x = operand(ctx)?;
    let dims = x.dims.clone();
    let first = axis_of(axis, dims.len());
    let axes = ctx.b.ints(&(first..dims.len()).collect::<Vec<_>>());
    let eps = ctx.b.number(x.ty, eps);
    let inputs = [("x", (&x).into()), ("axes", (&axes).into()), ("epsilon", (&eps).into())];
    let row = &dims[first..];
    if ctx.ins[1..].iter().all(|t| t.fixed && t.dims == row) {
        let mut inputs = inputs.to_vec();
        inputs.extend(["gamma", "beta"].into_iter().zip(ctx.ins[1..].iter().map(Into::into)));
        let inputs = inputs;
        return Ok(ctx.b.op("layer_norm", &inputs, x.ty, &dims));
    }
    let mut result = ctx.b.op("layer_norm", &inputs, x.ty, &dims);
    for (op, index) in [("mul", 1), ("add", 2)].into_iter().take(ctx.ins.len() - 1) {
        let operand = ctx.x(index);
        result = ctx.binary(op, &result, &operand, x.ty, &dims);
    }
    Ok(result)
}
