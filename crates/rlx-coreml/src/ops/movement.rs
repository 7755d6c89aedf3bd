//! Movement: other dimensions, another order, parts, borders, repetitions.

use rlx_ir::Extent;
use rlx_ir::op::PadMode;
use rlx_ir::ops::attr::NamedVariant;

use super::context::{Ctx, MAX_RANK, cast, expanded, held, reshaped};
use crate::mil::{Arg, Builder, Elements, Mil, Tensor, Type};

/// Why a movement with more dimensions is not there.
fn too_many() -> String {
    format!("tensors have at most {MAX_RANK} dimensions")
}

/// `Reshape`.
pub fn reshape(ctx: &mut Ctx<'_>) -> Mil<Tensor> {
    let (x, out) = (ctx.x(0), held(ctx.out()));
    Ok(reshaped(ctx.b, &x, &out))
}

/// `Transpose`: dimensions that stay neighbours are moved as one, and those of 1 not at all.
pub fn transpose(ctx: &mut Ctx<'_>, perm: &[usize]) -> Mil<Tensor> {
    let (x, dims, out) = (ctx.x(0), ctx.given[0].dims.clone(), held(ctx.out()));
    let moved: Vec<usize> = perm.iter().copied().filter(|&axis| dims[axis] != 1).collect();
    // Runs of axes that follow each other before and after, in the result's order: first axis and size.
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut previous: Option<usize> = None;
    for &axis in &moved {
        let follows = previous.is_some_and(|p| p < axis && (p + 1..axis).all(|between| dims[between] == 1));
        match runs.last_mut() {
            Some(run) if follows => run.1 *= dims[axis],
            _ => runs.push((axis, dims[axis])),
        }
        previous = Some(axis);
    }
    if runs.len() <= 1 {
        return Ok(reshaped(ctx.b, &x, &out));
    }
    if runs.len() > MAX_RANK {
        return Err(too_many());
    }
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by_key(|&i| runs[i].0);
    let before: Vec<usize> = order.iter().map(|&i| runs[i].1).collect();
    let after: Vec<usize> = runs.iter().map(|run| run.1).collect();
    let mut places = vec![0; runs.len()];
    order.iter().enumerate().for_each(|(at, &run)| places[run] = at);
    // Where nothing was merged, the dimensions stay as they are.
    let (before, after, places) =
        if dims.len() <= MAX_RANK && runs.len() == moved.len() && moved.len() == dims.len() {
            (dims.clone(), out.clone(), perm.to_vec())
        } else {
            (before, after, places)
        };
    let x = reshaped(ctx.b, &x, &before);
    let order = ctx.b.ints(&places);
    let result = ctx.b.op("transpose", &[("x", (&x).into()), ("perm", (&order).into())], x.ty, &after);
    Ok(reshaped(ctx.b, &result, &out))
}

/// `Expand`.
pub fn expand(ctx: &mut Ctx<'_>) -> Mil<Tensor> {
    let (given, out) = (ctx.given[0].dims.clone(), ctx.out().to_vec());
    let x = ctx.x(0);
    if out.len() <= MAX_RANK {
        return Ok(expanded(ctx.b, &x, &held(&out)));
    }
    // Neighbours that are all repeated, or all not, are merged.
    let padded = [vec![1; out.len() - given.len()], given].concat();
    let axes: Vec<usize> = (0..out.len()).filter(|&axis| out[axis] != 1).collect();
    let repeated = |axis: usize| padded[axis] != out[axis];
    let (mut from, mut to) = (Vec::<usize>::new(), Vec::<usize>::new());
    for axes in axes.chunk_by(|&a, &b| repeated(a) == repeated(b)) {
        from.push(axes.iter().map(|&axis| padded[axis]).product());
        to.push(axes.iter().map(|&axis| out[axis]).product());
    }
    if to.len() > MAX_RANK {
        return Err(too_many());
    }
    let (from, to) = (held(&from), held(&to));
    let x = reshaped(ctx.b, &x, &from);
    let result = expanded(ctx.b, &x, &to);
    Ok(reshaped(ctx.b, &result, &held(&out)))
}

/// Elements `start + i·step` of one value with at most five dimensions; steps are positive.
pub fn sliced(b: &mut Builder, x: &Tensor, starts: &[usize], steps: &[usize], dims: &[usize]) -> Tensor {
    if x.dims == dims {
        return x.clone();
    }
    let ends: Vec<usize> =
        starts.iter().zip(steps).zip(dims).map(|((&s, &step), &n)| s + (n - 1) * step + 1).collect();
    let (begin, end, stride) = (b.ints(starts), b.ints(&ends), b.ints(steps));
    let inputs =
        [("x", x.into()), ("begin", (&begin).into()), ("end", (&end).into()), ("stride", (&stride).into())];
    b.op("slice_by_index", &inputs, x.ty, dims)
}

/// `Slice`: what runs backwards is reversed first.
pub fn slice(ctx: &mut Ctx<'_>, starts: &[Extent], steps: &[i64]) -> Mil<Tensor> {
    let (given, out) = (ctx.given[0].dims.clone(), ctx.out().to_vec());
    let mut x = ctx.x(0);
    let mut starts: Vec<usize> = numbers(starts)?;
    let mut steps = steps.to_vec();
    // What is beyond five dimensions must be merged with whole neighbours.
    let (mut from, mut to) = (given.clone(), out.clone());
    if given.len() > MAX_RANK {
        let whole = |axis: usize| given[axis] == out[axis] && steps[axis] == 1;
        let axes: Vec<usize> = (0..given.len()).collect();
        let size = |axes: &[usize], dims: &[usize]| axes.iter().map(|&axis| dims[axis]).product::<usize>();
        let part = |axes: &[usize]| (size(axes, &given), size(axes, &out), starts[axes[0]], steps[axes[0]]);
        let mut merged: Vec<(usize, usize, usize, i64)> =
            axes.chunk_by(|&a, &b| whole(a) && whole(b)).map(part).collect();
        merged.retain(|&(n, ..)| n != 1);
        if merged.len() > MAX_RANK {
            return Err(too_many());
        }
        from = held(&merged.iter().map(|m| m.0).collect::<Vec<_>>());
        to = held(&merged.iter().map(|m| m.1).collect::<Vec<_>>());
        starts = merged.iter().map(|m| m.2).collect();
        steps = merged.iter().map(|m| m.3).collect();
        x = reshaped(ctx.b, &x, &from);
    }
    if starts.is_empty() {
        return Ok(reshaped(ctx.b, &x, &held(&out)));
    }
    let backwards: Vec<usize> = (0..from.len()).filter(|&axis| steps[axis] < 0).collect();
    if !backwards.is_empty() {
        let axes = ctx.b.ints(&backwards);
        x = ctx.b.op("reverse", &[("x", (&x).into()), ("axes", (&axes).into())], x.ty, &x.dims);
        for axis in backwards {
            starts[axis] = from[axis] - 1 - starts[axis];
        }
    }
    let steps: Vec<usize> = steps.iter().map(|s| s.unsigned_abs() as usize).collect();
    let result = sliced(ctx.b, &x, &starts, &steps, &to);
    Ok(reshaped(ctx.b, &result, &held(&out)))
}

fn numbers(extents: &[Extent]) -> Mil<Vec<usize>> {
    let number = |e: &Extent| e.as_const().and_then(|v| usize::try_from(v).ok());
    extents.iter().map(|e| number(e).ok_or_else(|| "a dimension is no number".to_string())).collect()
}

/// `Concat`.
pub fn concat(ctx: &mut Ctx<'_>, axis: usize) -> Mil<Tensor> {
    let (ty, out) = ctx.held_out()?;
    let mut values = ctx.ins.clone();
    let (mut dims, mut at) = (out.clone(), axis);
    if ctx.out().len() > MAX_RANK {
        let (before, after) = (ctx.out()[..axis].iter().product(), ctx.out()[axis + 1..].iter().product());
        let sizes: Vec<usize> = ctx.given.iter().map(|given| given.dims[axis]).collect();
        (dims, at) = (vec![before, sizes.iter().sum(), after], 1);
        let pairs = values.iter().zip(&sizes);
        values = pairs.map(|(x, &n)| reshaped(ctx.b, x, &[before, n, after])).collect();
    }
    let result = joined(ctx.b, &values, at, ty, &dims);
    Ok(reshaped(ctx.b, &result, &out))
}

/// Values one behind another.
fn joined(b: &mut Builder, values: &[Tensor], axis: usize, ty: Type, dims: &[usize]) -> Tensor {
    if let [only] = values {
        return only.clone();
    }
    let (axis, no) = (b.int(axis), b.flag(false));
    let inputs = [("values", Arg::Many(values)), ("axis", (&axis).into()), ("interleave", (&no).into())];
    b.op("concat", &inputs, ty, dims)
}

/// `Tile`.
pub fn tile(ctx: &mut Ctx<'_>) -> Mil<Tensor> {
    let (x, given, out) = (ctx.x(0), ctx.given[0].dims.clone(), ctx.out().to_vec());
    if out.len() > MAX_RANK {
        return Err(too_many());
    }
    if given == out {
        return Ok(x);
    }
    let reps: Vec<usize> = out.iter().zip(&given).map(|(o, g)| o / g).collect();
    let reps = ctx.b.ints(&reps);
    Ok(ctx.b.op("tile", &[("x", (&x).into()), ("reps", (&reps).into())], x.ty, &held(&out)))
}

/// `Pad`: a border of one number is joined to the value, any other is picked from it, axis by axis.
pub fn pad(ctx: &mut Ctx<'_>, before: &[Extent], after: &[Extent], mode: PadMode) -> Mil<Tensor> {
    let given = ctx.given[0].dims.clone();
    if given.len() > MAX_RANK {
        return Err(too_many());
    }
    let (before, after) = (numbers(before)?, numbers(after)?);
    let mut x = ctx.x(0);
    let filling = match (mode, ctx.ins.get(1)) {
        (PadMode::Constant, Some(value)) => Some(value.clone()),
        (PadMode::Constant, None) => Some(ctx.b.number(x.ty, 0.0)),
        _ => None,
    };
    for axis in 0..given.len() {
        if before[axis] + after[axis] == 0 {
            continue;
        }
        x = match &filling {
            Some(value) => bordered(ctx.b, &x, value, axis, before[axis], after[axis]),
            None => {
                let picks = border_indices(mode, given[axis], before[axis], after[axis])?;
                picked(ctx.b, &x, axis, picks)
            }
        };
    }
    let (_, out) = ctx.held_out()?;
    Ok(reshaped(ctx.b, &x, &out))
}

/// A border of one number along one axis.
fn bordered(b: &mut Builder, x: &Tensor, value: &Tensor, axis: usize, before: usize, after: usize) -> Tensor {
    let mut values = Vec::new();
    for (size, front) in [(before, true), (after, false)] {
        if size > 0 {
            let mut dims = x.dims.clone();
            dims[axis] = size;
            let border = expanded(b, value, &dims);
            values.push((front, border));
        }
    }
    let mut list: Vec<Tensor> = values.iter().filter(|(front, _)| *front).map(|(_, t)| t.clone()).collect();
    list.push(x.clone());
    list.extend(values.into_iter().filter(|(front, _)| !*front).map(|(_, t)| t));
    let mut dims = x.dims.clone();
    dims[axis] += before + after;
    joined(b, &list, axis, x.ty, &dims)
}

/// Which element is at each position of a padded axis.
fn border_indices(mode: PadMode, size: usize, before: usize, after: usize) -> Mil<Vec<usize>> {
    let n = size as i64;
    let index = |at: i64| match mode {
        PadMode::Edge => Ok(at.clamp(0, n - 1)),
        PadMode::Wrap => Ok(at.rem_euclid(n)),
        PadMode::Reflect => {
            // There and back again, neither end twice.
            let period = (2 * (n - 1)).max(1);
            let at = at.rem_euclid(period);
            Ok(if at < n { at } else { period - at })
        }
        _ => Err(format!("MIL has no {} border", mode.name())),
    };
    (-(before as i64)..n + after as i64).map(|at| index(at).map(|i| i as usize)).collect()
}

/// Slices of a value along an axis, in the order of known indices.
fn picked(b: &mut Builder, x: &Tensor, axis: usize, indices: Vec<usize>) -> Tensor {
    let mut dims = x.dims.clone();
    dims[axis] = indices.len();
    let indices = b.ints(&indices);
    let (axis, batch, no) = (b.int(axis), b.int(0), b.flag(false));
    let ty = x.ty;
    // MIL gathers no bools.
    let x = if ty == Type::Bool { cast(b, x, Type::I32) } else { x.clone() };
    let inputs = [
        ("x", (&x).into()),
        ("indices", (&indices).into()),
        ("axis", (&axis).into()),
        ("batch_dims", (&batch).into()),
        ("validate_indices", (&no).into()),
    ];
    let result = b.op("gather", &inputs, x.ty, &dims);
    cast(b, &result, ty)
}

/// `Iota`.
pub fn iota(ctx: &mut Ctx<'_>, axis: usize) -> Mil<Tensor> {
    let (ty, out) = ctx.held_out()?;
    if ty == Type::Bool || ctx.out().is_empty() {
        return Err("MIL counts no bools".to_string());
    }
    ctx.fits()?;
    let dims = ctx.out().to_vec();
    let line = count(ctx.b, dims[axis]);
    let line = cast(ctx.b, &line, ty);
    let (before, after): (usize, usize) = (dims[..axis].iter().product(), dims[axis + 1..].iter().product());
    let line = reshaped(ctx.b, &line, &[1, dims[axis], 1]);
    let all = expanded(ctx.b, &line, &[before, dims[axis], after]);
    Ok(reshaped(ctx.b, &all, &out))
}

/// `0, 1, …`, so many.
pub fn count(b: &mut Builder, size: usize) -> Tensor {
    let end = b.int(size);
    let start = b.int(0);
    let step = b.constant(Elements::Ints(vec![1]), &[]);
    let inputs = [("end", (&end).into()), ("start", (&start).into()), ("step", (&step).into())];
    b.op("range_1d", &inputs, Type::I32, &[size])
}
