//! Movement: reshapes, transposes, slices, pads, concatenations, and what counts positions.

use rlx_ir::op::PadMode;
use rlx_ir::{DType, Extent, Node, Op, Result};

use super::dtypes::number;
use super::writer::{Type, Val, Writer, array, signed};

/// Why there is no text for a movement, if there is none.
pub(super) fn rejects(op: &Op, of: &[DType], to: DType) -> Option<String> {
    match op {
        Op::Iota { .. } if !super::dtypes::computes(to) || to == DType::Bool => {
            super::dtypes::no("it does not count")
        }
        _ if of.iter().all(|dtype| dtype.bits() >= 8) => None,
        _ => super::dtypes::no("packed elements are not moved"),
    }
}

/// Writes a node of this family.
pub(super) fn write(w: &mut Writer, node: &Node, x: &[Val]) -> Result<Option<Val>> {
    let ty = Type::of(&node.shape)?;
    Ok(Some(match &node.op {
        Op::Reshape { .. } => w.reshape(x[0], &ty.dims),
        Op::Transpose { perm } => w.transpose(x[0], perm),
        Op::Expand { .. } => w.broadcast(x[0], &ty.dims),
        Op::Slice { starts, steps, .. } => slice(w, x[0], starts, steps, &ty.dims)?,
        Op::Concat { axis } => w.concat(x, *axis),
        Op::Iota { axis, .. } => w.iota(&ty, *axis),
        Op::Pad { before, after, mode } => {
            let before = before.iter().map(|&e| number(e)).collect::<Result<Vec<i64>>>()?;
            let after = after.iter().map(|&e| number(e)).collect::<Result<Vec<i64>>>()?;
            match mode {
                PadMode::Constant => {
                    let scalar = Type::scalar(ty.dtype);
                    let border = match x.get(1) {
                        Some(&border) => w.reshape(border, &[]),
                        None => w.number(&scalar, 0.0),
                    };
                    pad(w, x[0], border, &before, &after, &ty.dims)
                }
                mode => mirrored(w, x[0], *mode, &before, &ty.dims),
            }
        }
        _ => return Ok(None),
    }))
}

/// A border of one value; a negative one takes elements away.
pub(super) fn pad(w: &mut Writer, x: Val, border: Val, before: &[i64], after: &[i64], dims: &[usize]) -> Val {
    let ty = Type::new(w.dtype(x), dims);
    let inside = vec![0; dims.len()];
    let attributes = format!(
        "edge_padding_low = {}, edge_padding_high = {}, interior_padding = {}",
        signed(before),
        signed(after),
        array(&inside)
    );
    w.op("pad", &[x, border], &attributes, ty)
}

fn slice(w: &mut Writer, x: Val, starts: &[Extent], steps: &[i64], to: &[usize]) -> Result<Val> {
    let (mut low, mut limits, mut strides, mut turned) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (axis, (&start, (&step, &count))) in starts.iter().zip(steps.iter().zip(to)).enumerate() {
        let (start, last) = (number(start)?, count.saturating_sub(1) as i64);
        let first = if step < 0 { start + last * step } else { start };
        let (first, stride) = (first.max(0), step.unsigned_abs().max(1) as usize);
        let size = w.ty(x).dims[axis];
        let first = (first as usize).min(size);
        low.push(first);
        limits.push(if count == 0 { first } else { first + last as usize * stride + 1 });
        strides.push(stride);
        if step < 0 {
            turned.push(axis);
        }
    }
    let part = w.slice(x, &low, &limits, &strides);
    Ok(if turned.is_empty() { part } else { reverse(w, part, &turned) })
}

pub(super) fn reverse(w: &mut Writer, x: Val, axes: &[usize]) -> Val {
    let ty = w.ty(x).clone();
    w.op("reverse", &[x], &format!("dimensions = {}", array(axes)), ty)
}

/// A border of the tensor's own elements, axis by axis.
fn mirrored(w: &mut Writer, x: Val, mode: PadMode, before: &[i64], to: &[usize]) -> Val {
    let mut value = x;
    for (axis, (&before, &count)) in before.iter().zip(to).enumerate() {
        let size = w.ty(value).dims[axis] as i64;
        if before == 0 && count as i64 == size {
            continue;
        }
        let source = |i: usize| {
            let at = i as i64 - before;
            match mode {
                PadMode::Reflect if size > 1 => {
                    let around = at.rem_euclid(2 * (size - 1));
                    around.min(2 * (size - 1) - around)
                }
                PadMode::Wrap => at.rem_euclid(size.max(1)),
                _ => at.clamp(0, (size - 1).max(0)),
            }
        };
        let places: Vec<i64> = (0..count).map(source).collect();
        let places = w.indices(&places);
        value = super::index::take(w, value, places, axis);
    }
    value
}
