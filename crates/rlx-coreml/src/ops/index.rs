//! Gathers and scatters.
//!
//! In the graph a negative index counts from the end and one out of range is an error. MIL takes indices from 0 on and reports others
//! when it is told to (`validate_indices`), so negative ones are moved first.

use rlx_ir::op::ScatterOp;
use rlx_ir::ops::attr::NamedVariant;

use super::context::{Ctx, MAX_RANK, cast, expanded, held, reshaped};
use super::movement;
use crate::mil::{Mil, Tensor, Type};

/// All with their own dimensions, at most five of them.
fn small(ctx: &Ctx<'_>) -> Mil<()> {
    let ranks = ctx.given.iter().chain(&ctx.results).map(|value| value.dims.len());
    if ranks.max().is_some_and(|rank| rank > MAX_RANK) {
        return Err(format!("tensors have at most {MAX_RANK} dimensions"));
    }
    Ok(())
}

/// Indices into a dimension of `size`, from 0 on.
fn from_zero(ctx: &mut Ctx<'_>, indices: &Tensor, operand: usize, size: usize) -> Tensor {
    if ctx.ranges[operand].low >= 0 {
        return indices.clone();
    }
    let negative = ctx.compare_number("less", indices, 0.0);
    let size = ctx.b.int(size);
    let moved = ctx.binary("add", indices, &size, Type::I32, &indices.dims);
    ctx.select(&negative, &moved, indices)
}

/// The value to gather from: MIL gathers no bools.
fn numbers(ctx: &mut Ctx<'_>, index: usize) -> Tensor {
    let x = ctx.x(index);
    if x.ty == Type::Bool { cast(ctx.b, &x, Type::I32) } else { x }
}

/// `Gather`.
pub fn gather(ctx: &mut Ctx<'_>, axis: usize) -> Mil<Tensor> {
    small(ctx)?;
    let (ty, out) = ctx.held_out()?;
    let indices = ctx.x(1);
    let x = numbers(ctx, 0);
    let dims = [&x.dims[..axis], &indices.dims, &x.dims[axis + 1..]].concat();
    if dims.len() > MAX_RANK {
        return Err(format!("tensors have at most {MAX_RANK} dimensions"));
    }
    let indices = from_zero(ctx, &indices, 1, x.dims[axis]);
    let (axis, batch, check) = (ctx.b.int(axis), ctx.b.int(0), ctx.b.flag(true));
    let inputs = [
        ("x", (&x).into()),
        ("indices", (&indices).into()),
        ("axis", (&axis).into()),
        ("batch_dims", (&batch).into()),
        ("validate_indices", (&check).into()),
    ];
    let result = ctx.b.op("gather", &inputs, x.ty, &dims);
    let result = reshaped(ctx.b, &result, &out);
    Ok(cast(ctx.b, &result, ty))
}

/// The part of `x` that indices of these dimensions can mean: all along `axis`, and as much as they have along the others.
fn corner(ctx: &mut Ctx<'_>, x: &Tensor, dims: &[usize], axis: usize) -> Tensor {
    let mut part = dims.to_vec();
    part[axis] = x.dims[axis];
    let rank = part.len();
    movement::sliced(ctx.b, x, &vec![0; rank], &vec![1; rank], &part)
}

/// `GatherElements`.
pub fn gather_elements(ctx: &mut Ctx<'_>, axis: usize) -> Mil<Tensor> {
    small(ctx)?;
    let (ty, out) = ctx.held_out()?;
    let indices = ctx.x(1);
    let x = numbers(ctx, 0);
    let x = corner(ctx, &x, &indices.dims, axis);
    let indices = from_zero(ctx, &indices, 1, x.dims[axis]);
    let (axis, check) = (ctx.b.int(axis), ctx.b.flag(true));
    let inputs = [
        ("x", (&x).into()),
        ("indices", (&indices).into()),
        ("axis", (&axis).into()),
        ("validate_indices", (&check).into()),
    ];
    let result = ctx.b.op("gather_along_axis", &inputs, x.ty, &indices.dims);
    let result = reshaped(ctx.b, &result, &out);
    Ok(cast(ctx.b, &result, ty))
}

/// Rows of indices into the dimensions `sizes`, from 0 on.
fn rows_from_zero(ctx: &mut Ctx<'_>, indices: &Tensor, operand: usize, sizes: &[usize]) -> Tensor {
    if ctx.ranges[operand].low >= 0 {
        return indices.clone();
    }
    let negative = ctx.compare_number("less", indices, 0.0);
    let sizes = ctx.b.ints(sizes);
    let moved = ctx.binary("add", indices, &sizes, Type::I32, &indices.dims);
    ctx.select(&negative, &moved, indices)
}

/// `GatherNd`.
pub fn gather_nd(ctx: &mut Ctx<'_>, batch_dims: usize) -> Mil<Tensor> {
    small(ctx)?;
    let (ty, out) = ctx.held_out()?;
    let indices = ctx.x(1);
    let x = numbers(ctx, 0);
    let depth = *indices.dims.last().ok_or("the indices have no rows")?;
    let dims = [&indices.dims[..indices.dims.len() - 1], &x.dims[batch_dims + depth..]].concat();
    if dims.is_empty() {
        // A row of its own, which goes by the last reshape.
        let indices = reshaped(ctx.b, &indices, &[1, depth]);
        let indices = rows_from_zero(ctx, &indices, 1, &x.dims[..depth]);
        let result = gathered_rows(ctx, &x, &indices, 0, &[1]);
        return Ok(cast(ctx.b, &result, ty));
    }
    let indices = rows_from_zero(ctx, &indices, 1, &x.dims[batch_dims..batch_dims + depth]);
    let result = gathered_rows(ctx, &x, &indices, batch_dims, &dims);
    let result = reshaped(ctx.b, &result, &out);
    Ok(cast(ctx.b, &result, ty))
}

fn gathered_rows(ctx: &mut Ctx<'_>, x: &Tensor, indices: &Tensor, batch: usize, dims: &[usize]) -> Tensor {
    let (batch, check) = (ctx.b.int(batch), ctx.b.flag(true));
    let inputs = [
        ("x", x.into()),
        ("indices", indices.into()),
        ("batch_dims", (&batch).into()),
        ("validate_indices", (&check).into()),
    ];
    ctx.b.op("gather_nd", &inputs, x.ty, dims)
}

fn mode(reduction: ScatterOp) -> Mil<&'static str> {
    Ok(match reduction {
        ScatterOp::Set => "update",
        ScatterOp::Add => "add",
        ScatterOp::Mul => "mul",
        ScatterOp::Max => "max",
        ScatterOp::Min => "min",
        _ => return Err(format!("MIL has no scatter by {}", reduction.name())),
    })
}

/// Whether sums of updates are sure to fit, and may be rounded one after the other.
fn scatters(ctx: &Ctx<'_>, reduction: ScatterOp) -> Mil<&'static str> {
    let dtype = ctx.results[0].dtype;
    if reduction.joins_in_f32(dtype) {
        return Err(format!("updates of {dtype} are joined in f32"));
    }
    if matches!(reduction, ScatterOp::Add | ScatterOp::Mul) {
        ctx.fits()?;
    }
    mode(reduction)
}

/// `ScatterElements`: into the part of the value that the indices can mean, where that is all of it.
pub fn scatter_elements(ctx: &mut Ctx<'_>, axis: usize, reduction: ScatterOp) -> Mil<Tensor> {
    small(ctx)?;
    let mode = scatters(ctx, reduction)?;
    let (ty, out) = ctx.held_out()?;
    let (x, updates) = (numbers(ctx, 0), numbers(ctx, 2));
    let indices = ctx.x(1);
    if (0..x.dims.len()).any(|i| i != axis && x.dims[i] != indices.dims[i]) {
        return Err("MIL scatters along whole dimensions only".to_string());
    }
    let indices = from_zero(ctx, &indices, 1, x.dims[axis]);
    let result = scattered(ctx, "scatter_along_axis", Some(axis), &x, &indices, &updates, mode);
    let result = reshaped(ctx.b, &result, &out);
    Ok(cast(ctx.b, &result, ty))
}

fn scattered(
    ctx: &mut Ctx<'_>,
    op: &str,
    axis: Option<usize>,
    x: &Tensor,
    indices: &Tensor,
    updates: &Tensor,
    mode: &str,
) -> Tensor {
    let (mode, check) = (ctx.b.text(mode), ctx.b.flag(true));
    let axis = axis.map(|axis| ctx.b.int(axis));
    let mut inputs = vec![
        ("data", x.into()),
        ("indices", indices.into()),
        ("updates", updates.into()),
        ("mode", (&mode).into()),
        ("validate_indices", (&check).into()),
    ];
    inputs.extend(axis.as_ref().map(|axis| ("axis", axis.into())));
    ctx.b.op(op, &inputs, x.ty, &x.dims)
}

/// `ScatterNd`.
pub fn scatter_nd(ctx: &mut Ctx<'_>, reduction: ScatterOp) -> Mil<Tensor> {
    small(ctx)?;
    let mode = scatters(ctx, reduction)?;
    let (ty, out) = ctx.held_out()?;
    let (x, mut updates, mut indices) = (numbers(ctx, 0), numbers(ctx, 2), ctx.x(1));
    let depth = *indices.dims.last().ok_or("the indices have no rows")?;
    if indices.dims.len() == 1 {
        // One row: MIL's updates have a dimension for the rows, too.
        indices = reshaped(ctx.b, &indices, &[1, depth]);
        let dims = [&[1], &x.dims[depth..]].concat();
        if dims.len() > MAX_RANK {
            return Err(format!("tensors have at most {MAX_RANK} dimensions"));
        }
        updates = reshaped(ctx.b, &updates, &dims);
    }
    let indices = rows_from_zero(ctx, &indices, 1, &x.dims[..depth]);
    let result = scattered(ctx, "scatter_nd", None, &x, &indices, &updates, mode);
    let result = reshaped(ctx.b, &result, &out);
    Ok(cast(ctx.b, &result, ty))
}

/// `UpdateSlice`: a scatter to the places that follow the start.
pub fn update_slice(ctx: &mut Ctx<'_>, axis: usize) -> Mil<Tensor> {
    small(ctx)?;
    let (ty, out) = ctx.held_out()?;
    let (x, updates, start) = (numbers(ctx, 0), numbers(ctx, 1), ctx.x(2));
    let start = from_zero(ctx, &start, 2, x.dims[axis]);
    let size = updates.dims[axis];
    let line = movement::count(ctx.b, size);
    let result = if start.len() == 1 {
        let start = reshaped(ctx.b, &start, &[1]);
        let places = ctx.binary("add", &line, &start, Type::I32, &[size]);
        scattered(ctx, "scatter", Some(axis), &x, &places, &updates, "update")
    } else {
        let rank = x.dims.len();
        let mut of_rows = vec![1; rank];
        of_rows[0] = start.len();
        let mut of_line = vec![1; rank];
        of_line[axis] = size;
        let (start, line) = (reshaped(ctx.b, &start, &of_rows), reshaped(ctx.b, &line, &of_line));
        let both: Vec<usize> = of_rows.iter().zip(&of_line).map(|(&a, &b)| a.max(b)).collect();
        let places = ctx.binary("add", &start, &line, Type::I32, &both);
        let places = expanded(ctx.b, &places, &updates.dims);
        scattered(ctx, "scatter_along_axis", Some(axis), &x, &places, &updates, "update")
    };
    debug_assert_eq!(result.dims, held(ctx.out()));
    let result = reshaped(ctx.b, &result, &out);
    Ok(cast(ctx.b, &result, ty))
}
