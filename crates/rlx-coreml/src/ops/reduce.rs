//! Reductions, running sums, extremes.

use rlx_ir::op::{ArgOp, ReduceOp};
use rlx_ir::ops::attr::NamedVariant;

use super::context::{Ctx, MAX_RANK, held, reshaped};
use crate::mil::{Mil, Tensor, Type};

/// The operand with its own dimensions, and the axes.
fn operand(ctx: &Ctx<'_>) -> Mil<Tensor> {
    if ctx.given[0].dims.len() > MAX_RANK {
        return Err(format!("tensors have at most {MAX_RANK} dimensions"));
    }
    Ok(ctx.x(0))
}

/// `Reduce`.
pub fn reduce(ctx: &mut Ctx<'_>, op: ReduceOp, axes: &[usize]) -> Mil<Tensor> {
    let x = operand(ctx)?;
    let (ty, out) = ctx.held_out()?;
    if axes.is_empty() {
        return Ok(reshaped(ctx.b, &x, &out));
    }
    let name = match (op, ty) {
        (_, Type::Bool) => return Err("MIL does not reduce bools".to_string()),
        (ReduceOp::Mean, Type::I32) => return Err("MIL's mean of integers is not truncated".to_string()),
        (ReduceOp::Sum, _) => "reduce_sum",
        (ReduceOp::Mean, _) => "reduce_mean",
        (ReduceOp::Max, _) => "reduce_max",
        (ReduceOp::Min, _) => "reduce_min",
        (ReduceOp::Prod, _) => "reduce_prod",
        _ => return Err(format!("MIL has no {}", op.name())),
    };
    ctx.fits()?;
    // The axes stay, and go by a reshape, so that there always is a dimension.
    let kept: Vec<usize> =
        x.dims.iter().enumerate().map(|(axis, &d)| if axes.contains(&axis) { 1 } else { d }).collect();
    let (axes, keep) = (ctx.b.ints(axes), ctx.b.flag(true));
    let inputs = [("x", (&x).into()), ("axes", (&axes).into()), ("keep_dims", (&keep).into())];
    let result = ctx.b.op(name, &inputs, ty, &kept);
    Ok(reshaped(ctx.b, &result, &out))
}

/// `Cumulative`.
pub fn cumulative(
    ctx: &mut Ctx<'_>,
    op: ReduceOp,
    axis: usize,
    exclusive: bool,
    reverse: bool,
) -> Mil<Tensor> {
    let x = operand(ctx)?;
    if op != ReduceOp::Sum || x.ty == Type::Bool {
        return Err(format!("MIL has no running {} of {}", op.name(), ctx.given[0].dtype));
    }
    ctx.fits()?;
    let axis = ctx.b.int(axis);
    let (exclusive, reverse) = (ctx.b.flag(exclusive), ctx.b.flag(reverse));
    let inputs = [
        ("x", (&x).into()),
        ("axis", (&axis).into()),
        ("exclusive", (&exclusive).into()),
        ("reverse", (&reverse).into()),
    ];
    Ok(ctx.b.op("cumsum", &inputs, x.ty, &x.dims))
}

/// `ArgReduce`.
pub fn arg_reduce(ctx: &mut Ctx<'_>, op: ArgOp, axis: usize, last: bool) -> Mil<Tensor> {
    let x = operand(ctx)?;
    if x.ty == Type::Bool {
        return Err("MIL does not order bools".to_string());
    }
    let name = match op {
        ArgOp::Max => "reduce_argmax",
        ArgOp::Min => "reduce_argmin",
        _ => return Err(format!("MIL has no arg-{}", op.name())),
    };
    let size = x.dims[axis];
    // Of equal elements MIL takes the first; the last one is the first of the reversed.
    let x = if last {
        let axes = ctx.b.ints(&[axis]);
        ctx.b.op("reverse", &[("x", (&x).into()), ("axes", (&axes).into())], x.ty, &x.dims)
    } else {
        x
    };
    let mut kept = x.dims.clone();
    kept[axis] = 1;
    let (axis, keep) = (ctx.b.int(axis), ctx.b.flag(true));
    let inputs = [("x", (&x).into()), ("axis", (&axis).into()), ("keep_dims", (&keep).into())];
    let found = ctx.b.op(name, &inputs, Type::I32, &kept);
    let found = if last {
        let end = ctx.b.int(size - 1);
        ctx.binary("sub", &end, &found, Type::I32, &kept)
    } else {
        found
    };
    let (_, out) = ctx.held_out()?;
    Ok(reshaped(ctx.b, &found, &out))
}

/// `TopK`: values and places.
pub fn top_k(ctx: &mut Ctx<'_>, axis: usize, largest: bool, sorted: bool) -> Mil<Vec<Tensor>> {
    let x = operand(ctx)?;
    if x.ty == Type::Bool {
        return Err("MIL does not order bools".to_string());
    }
    let dims = held(ctx.out());
    let (k, axis) = (ctx.b.int(dims[axis]), ctx.b.int(axis));
    let (ascending, sort) = (ctx.b.flag(!largest), ctx.b.flag(sorted));
    let indices = ctx.b.flag(true);
    let inputs = [
        ("x", (&x).into()),
        ("k", (&k).into()),
        ("axis", (&axis).into()),
        ("ascending", (&ascending).into()),
        ("sort", (&sort).into()),
        ("return_indices", (&indices).into()),
    ];
    Ok(ctx.b.op_many("topk", &inputs, &[(x.ty, dims.clone()), (Type::I32, dims)]))
}
