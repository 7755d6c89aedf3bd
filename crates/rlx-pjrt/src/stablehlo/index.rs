//! Gathers and scatters. Indices are checked by the program: StableHLO would move one that is out of range to the nearest element.

use rlx_ir::op::ScatterOp;
use rlx_ir::{DType, Graph, Node, Op, Result};

use super::dtypes::{computes, no};
use super::writer::{Check, Type, Val, Writer, array, list};

/// Why there is no text for an op of this family, if there is none.
pub(super) fn rejects(op: &Op, of: &[DType]) -> Option<String> {
    let indices = match op {
        Op::UpdateSlice { .. } => of[2],
        _ => of[1],
    };
    if !matches!(indices, DType::I32 | DType::I64) {
        return no("indices are i32 or i64");
    }
    let reduction = match op {
        Op::ScatterElements { reduction, .. } | Op::ScatterNd { reduction } => *reduction,
        _ => ScatterOp::Set,
    };
    if reduction.joins_in_f32(of[0]) {
        return no("its updates are joined in f32");
    }
    let reduces = reduction != ScatterOp::Set;
    if of[0].bits() < 8 || reduces && (!computes(of[0]) || of[0] == DType::Bool) {
        return no("it is not computed in");
    }
    None
}

/// Whether an op looks at indices that may be out of range.
pub(super) fn checks(op: &Op) -> bool {
    matches!(
        op,
        Op::Gather { .. }
            | Op::GatherElements { .. }
            | Op::GatherNd { .. }
            | Op::ScatterElements { .. }
            | Op::ScatterNd { .. }
            | Op::UpdateSlice { .. }
    )
}

/// Writes a node of this family.
pub(super) fn write(w: &mut Writer, node: &Node, graph: &Graph, x: &[Val]) -> Result<Option<Val>> {
    Ok(Some(match &node.op {
        Op::Gather { axis } => {
            let size = w.ty(x[0]).dims[*axis];
            let indices = checked(w, node, graph, x[1], *axis, size)?;
            take(w, x[0], indices, *axis)
        }
        Op::GatherElements { axis } => {
            let size = w.ty(x[0]).dims[*axis];
            let indices = checked(w, node, graph, x[1], *axis, size)?;
            let places = own_places(w, indices, *axis);
            let rank = w.ty(x[0]).dims.len();
            pick(w, x[0], places, rank)
        }
        Op::GatherNd { batch_dims } => {
            let (places, depth) = rows(w, node, graph, x[0], x[1], *batch_dims)?;
            pick(w, x[0], places, depth)
        }
        Op::ScatterElements { axis, reduction } => {
            let size = w.ty(x[0]).dims[*axis];
            let indices = checked(w, node, graph, x[1], *axis, size)?;
            let places = own_places(w, indices, *axis);
            let rank = w.ty(x[0]).dims.len();
            scatter(w, x[0], places, x[2], rank, *reduction)?
        }
        Op::ScatterNd { reduction } => {
            let (places, depth) = rows(w, node, graph, x[0], x[1], 0)?;
            scatter(w, x[0], places, x[2], depth, *reduction)?
        }
        Op::UpdateSlice { axis } => update(w, node, graph, x, *axis)?,
        _ => return Ok(None),
    }))
}

/// Indices as i32 counted from the start of an axis; those out of range are noted in the program's fault record.
fn checked(
    w: &mut Writer,
    node: &Node,
    graph: &Graph,
    indices: Val,
    axis: usize,
    size: usize,
) -> Result<Val> {
    let ty = w.ty(indices).clone();
    let (zero, count) = (w.number(&ty, 0.0), w.number(&ty, size as f64));
    let negative = w.compare("LT", indices, zero);
    let from_end = w.map("add", &[indices, count]);
    let counted = w.select(negative, from_end, indices);
    let (low, high) = (w.compare("LT", counted, zero), w.compare("GE", counted, count));
    let outside = w.map("or", &[low, high]);
    note(w, node, graph, indices, outside, axis, size)?;
    let within = w.select(outside, zero, counted);
    Ok(w.convert(within, DType::I32))
}

/// Notes the first index that is out of range, if none was before.
fn note(
    w: &mut Writer,
    node: &Node,
    graph: &Graph,
    indices: Val,
    outside: Val,
    axis: usize,
    size: usize,
) -> Result<()> {
    let Some(before) = w.fault else { return Ok(()) };
    w.checks.push(Check { node: node.describe(), origin: graph.origins().label(node.origin), axis, size });
    let number = w.checks.len();
    let wide = w.convert(indices, DType::I64);
    let (ty, scalar) = (w.ty(wide).clone(), Type::scalar(DType::I64));
    let none = w.splat(&ty, &i64::MIN.to_le_bytes());
    let bad = w.select(outside, wide, none);
    let all: Vec<usize> = (0..ty.dims.len()).collect();
    let least = w.splat(&scalar, &i64::MIN.to_le_bytes());
    let worst = w.reduce("maximum", bad, least, &all)?;
    let any = w.compare("NE", worst, least);
    let one = w.reshape(worst, &[1]);
    let number = w.number(&Type::new(DType::I64, &[1]), number as f64);
    let record = w.concat(&[number, one], 0);
    let pair = Type::new(DType::I64, &[2]);
    let (any, none) = (w.broadcast(any, &[2]), w.number(&pair, 0.0));
    let first = w.slice(before, &[0], &[1], &[1]);
    let first = w.broadcast_along(first, &[0], &[2]);
    let clean = w.compare("EQ", first, none);
    let now = w.map("and", &[any, clean]);
    w.fault = Some(w.select(now, record, before));
    Ok(())
}

/// Whole slices of a table along an axis, by indices that are in range.
pub(super) fn take(w: &mut Writer, table: Val, indices: Val, axis: usize) -> Val {
    let (from, at) = (w.dims(table), w.dims(indices));
    let dims: Vec<usize> = [&from[..axis], &at[..], &from[axis + 1..]].concat();
    let mut sizes = from.clone();
    sizes[axis] = 1;
    let offsets: Vec<usize> = (0..axis).chain(axis + at.len()..dims.len()).collect();
    let numbers = format!(
        "offset_dims = {}, collapsed_slice_dims = [{axis}], start_index_map = [{axis}], index_vector_dim = {}",
        list(&offsets),
        at.len()
    );
    gather(w, table, indices, &numbers, &sizes, dims)
}

/// The slices that rows of places address: each the first `depth` dimensions.
fn pick(w: &mut Writer, x: Val, places: Val, depth: usize) -> Val {
    let (from, mut at) = (w.dims(x), w.dims(places));
    at.pop();
    let dims = [&at[..], &from[depth..]].concat();
    let sizes = [&vec![1; depth][..], &from[depth..]].concat();
    let addressed: Vec<usize> = (0..depth).collect();
    let offsets: Vec<usize> = (at.len()..dims.len()).collect();
    let numbers = format!(
        "offset_dims = {}, collapsed_slice_dims = {}, start_index_map = {}, index_vector_dim = {}",
        list(&offsets),
        list(&addressed),
        list(&addressed),
        at.len()
    );
    gather(w, x, places, &numbers, &sizes, dims)
}

fn gather(w: &mut Writer, x: Val, indices: Val, numbers: &str, sizes: &[usize], dims: Vec<usize>) -> Val {
    let ty = Type { dtype: w.dtype(x), dims };
    if ty.elements() == 0 || w.ty(x).elements() == 0 {
        return w.number(&ty, 0.0);
    }
    let attributes = format!(
        "dimension_numbers = #stablehlo.gather<{numbers}>, slice_sizes = {}, indices_are_sorted = false",
        array(sizes)
    );
    w.op("gather", &[x, indices], &attributes, ty)
}

/// A row for each index: its own position, with the index in the place of an axis.
fn own_places(w: &mut Writer, indices: Val, axis: usize) -> Val {
    let ty = w.ty(indices).clone();
    let column = [&ty.dims[..], &[1]].concat();
    let part = |w: &mut Writer, d: usize| {
        let at = if d == axis { indices } else { w.iota(&ty, d) };
        w.reshape(at, &column)
    };
    let parts: Vec<Val> = (0..ty.dims.len()).map(|d| part(w, d)).collect();
    w.concat(&parts, ty.dims.len())
}

/// The rows of indices of `GatherNd` and `ScatterNd`, each checked, behind the places of their batch.
fn rows(
    w: &mut Writer,
    node: &Node,
    graph: &Graph,
    x: Val,
    indices: Val,
    batch: usize,
) -> Result<(Val, usize)> {
    let (from, dims) = (w.dims(x), w.dims(indices));
    let (outer, depth) = (dims.len() - 1, dims[dims.len() - 1]);
    let mut column = dims.clone();
    column[outer] = 1;
    let mut parts = Vec::with_capacity(batch + depth);
    for d in 0..batch {
        parts.push(w.iota(&Type::new(DType::I32, &column), d));
    }
    for k in 0..depth {
        let (mut low, mut high) = (vec![0; dims.len()], dims.clone());
        (low[outer], high[outer]) = (k, k + 1);
        let one = w.slice(indices, &low, &high, &vec![1; dims.len()]);
        parts.push(checked(w, node, graph, one, batch + k, from[batch + k])?);
    }
    if parts.is_empty() {
        column[outer] = 0;
        return Ok((w.number(&Type::new(DType::I32, &column), 0.0), 0));
    }
    Ok((w.concat(&parts, outer), batch + depth))
}

/// `x` with updates at places. Of several that replace one element the last one does, whatever the order in which a device
/// scatters: the greatest number of an update is found first.
fn scatter(
    w: &mut Writer,
    x: Val,
    places: Val,
    updates: Val,
    depth: usize,
    reduction: ScatterOp,
) -> Result<Val> {
    if w.ty(updates).elements() == 0 || w.ty(x).elements() == 0 {
        return Ok(x);
    }
    let op = match reduction {
        ScatterOp::Set => return set(w, x, places, updates, depth),
        ScatterOp::Add => "add",
        ScatterOp::Mul => "multiply",
        ScatterOp::Max => "maximum",
        ScatterOp::Min => "minimum",
        _ => return Err(rlx_ir::Error::new(rlx_ir::ErrorKind::Unsupported, "StableHLO has no such scatter")),
    };
    joined(w, x, places, updates, depth, op)
}

fn joined(w: &mut Writer, x: Val, places: Val, updates: Val, depth: usize, op: &str) -> Result<Val> {
    let ty = w.ty(x).clone();
    let scalar = Type::scalar(ty.dtype);
    let body = w.region(&[scalar.clone(), scalar], |w, v| Ok(vec![w.map(op, v)]))?;
    let outer = w.ty(places).dims.len() - 1;
    let windows: Vec<usize> = (outer..w.ty(updates).dims.len()).collect();
    let addressed: Vec<usize> = (0..depth).collect();
    let attributes = format!(
        "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {}, inserted_window_dims = {}, \
         scatter_dims_to_operand_dims = {}, index_vector_dim = {outer}>, indices_are_sorted = false, \
         unique_indices = false",
        list(&windows),
        list(&addressed),
        list(&addressed)
    );
    Ok(w.ops("scatter", &[x, places, updates], &attributes, &[body], &[ty])[0])
}

fn set(w: &mut Writer, x: Val, places: Val, updates: Val, depth: usize) -> Result<Val> {
    let (ty, of) = (w.ty(x).clone(), w.ty(updates).clone());
    let line = Type::new(DType::I32, &[of.elements()]);
    let numbers = w.iota(&line, 0);
    let numbers = w.reshape(numbers, &of.dims);
    let none = w.number(&ty.with(DType::I32), -1.0);
    let last = joined(w, none, places, numbers, depth, "maximum")?;
    let flat = w.reshape(updates, &[of.elements()]);
    let zero = w.number(&ty.with(DType::I32), 0.0);
    let any = w.compare("GE", last, zero);
    let source = w.map("maximum", &[last, zero]);
    let found = take(w, flat, source, 0);
    Ok(w.select(any, found, x))
}

/// A range of an axis replaced: one for all, or one for each element of dimension 0.
fn update(w: &mut Writer, node: &Node, graph: &Graph, x: &[Val], axis: usize) -> Result<Val> {
    let (base, part) = (w.dims(x[0]), w.dims(x[1]));
    let (size, width) = (base[axis], part[axis]);
    let ty = w.ty(x[2]).clone();
    // The update must end within `x`, too.
    let (zero, count) = (w.number(&ty, 0.0), w.number(&ty, size as f64));
    let last = w.number(&ty, size as f64 - width as f64);
    let negative = w.compare("LT", x[2], zero);
    let from_end = w.map("add", &[x[2], count]);
    let start = w.select(negative, from_end, x[2]);
    let (low, high) = (w.compare("LT", start, zero), w.compare("GT", start, last));
    let outside = w.map("or", &[low, high]);
    note(w, node, graph, x[2], outside, axis, size)?;
    let start = w.convert(start, DType::I32);
    if ty.elements() == 1 && (ty.dims.is_empty() || base[0] == 1 || axis == 0) {
        return Ok(placed(w, x[0], x[1], start, axis));
    }
    let starts = w.reshape(start, &[ty.elements()]);
    let row = |w: &mut Writer, v: Val, i: usize| {
        let (mut low, mut high) = (vec![0; w.ty(v).dims.len()], w.dims(v));
        (low[0], high[0]) = (i, i + 1);
        let steps = vec![1; low.len()];
        w.slice(v, &low, &high, &steps)
    };
    let each = |w: &mut Writer, i: usize| {
        let (base, part, at) = (row(w, x[0], i), row(w, x[1], i), row(w, starts, i));
        placed(w, base, part, at, axis)
    };
    let rows: Vec<Val> = (0..base[0]).map(|i| each(w, i)).collect();
    Ok(if rows.is_empty() { x[0] } else { w.concat(&rows, 0) })
}

fn placed(w: &mut Writer, x: Val, part: Val, start: Val, axis: usize) -> Val {
    let ty = w.ty(x).clone();
    let (start, zero) = (w.reshape(start, &[]), w.number(&Type::scalar(DType::I32), 0.0));
    let starts = (0..ty.dims.len()).map(|d| if d == axis { start } else { zero });
    let inputs: Vec<Val> = [x, part].into_iter().chain(starts).collect();
    w.op("dynamic_update_slice", &inputs, "", ty)
}
