//! Matrix multiplication.

use super::context::{Ctx, MAX_RANK, reshaped};
use crate::mil::{Mil, Tensor, Type};

/// `MatMul`: vectors as matrices, leading dimensions broadcast; beyond five dimensions only where the batches are the same.
pub fn matmul(ctx: &mut Ctx<'_>) -> Mil<Tensor> {
    let (ty, out) = ctx.held_out()?;
    if ty == Type::Bool {
        return Err("MIL multiplies no bools".to_string());
    }
    ctx.fits()?;
    let (mut x, mut y) = (ctx.given[0].dims.clone(), ctx.given[1].dims.clone());
    if x.len() == 1 {
        x.insert(0, 1);
    }
    if y.len() == 1 {
        y.push(1);
    }
    if x.len().max(y.len()) > MAX_RANK {
        let batch = |dims: &[usize]| dims[..dims.len() - 2].to_vec();
        let merge = |dims: &[usize]| {
            let (batch, matrix) = dims.split_at(dims.len() - 2);
            [&[batch.iter().product()], matrix].concat()
        };
        if batch(&x) != batch(&y)
            && batch(&x).iter().product::<usize>() != 1
            && batch(&y).iter().product::<usize>() != 1
        {
            return Err(format!("tensors have at most {MAX_RANK} dimensions"));
        }
        (x, y) = (merge(&x), merge(&y));
    }
    // Of one rank: Core ML's broadcasting is best known so.
    let rank = x.len().max(y.len());
    x.splice(0..0, vec![1; rank - x.len()]);
    y.splice(0..0, vec![1; rank - y.len()]);
    let mut dims: Vec<usize> = x.iter().zip(&y).take(rank - 2).map(|(&a, &b)| a.max(b)).collect();
    dims.extend([x[rank - 2], y[rank - 1]]);
    let (left, right) = (ctx.x(0), ctx.x(1));
    let (left, right) = (reshaped(ctx.b, &left, &x), reshaped(ctx.b, &right, &y));
    let no = ctx.b.flag(false);
    let inputs = [
        ("x", (&left).into()),
        ("y", (&right).into()),
        ("transpose_x", (&no).into()),
        ("transpose_y", (&no).into()),
    ];
    let product = ctx.b.op("matmul", &inputs, ty, &dims);
    Ok(reshaped(ctx.b, &product, &out))
}
