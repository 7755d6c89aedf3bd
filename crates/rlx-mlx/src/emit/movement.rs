//! Borders and counting; other movement is one operation of MLX.

use rlx_ir::op::PadMode;
use rlx_ir::{DType, Error, ErrorKind, Extent, Result};

use super::elementwise;
use crate::program::{Builder, Val, unsupported};

/// Extents that are numbers.
pub(super) fn numbers(extents: &[Extent]) -> Result<Vec<i64>> {
    let open = |e: &Extent| Error::new(ErrorKind::Dimension, format!("{e} has no value"));
    extents.iter().map(|e| e.as_const().ok_or_else(|| open(e))).collect()
}

/// The place in a dimension of `size` elements that `place` of a border stands for.
fn source(place: i64, size: i64, mode: PadMode) -> Result<i64> {
    Ok(match mode {
        PadMode::Constant | PadMode::Edge => place.clamp(0, size - 1),
        PadMode::Wrap => place.rem_euclid(size),
        PadMode::Reflect if size == 1 => 0,
        PadMode::Reflect => {
            let place = place.rem_euclid(2 * (size - 1));
            place.min(2 * (size - 1) - place)
        }
        _ => return unsupported(format!("a border of {mode:?}")),
    })
}

/// `x[0]` with a border; a constant one holds `x[1]`, or 0.
pub(super) fn pad(
    b: &mut Builder<'_>,
    x: &[Val],
    before: &[i64],
    after: &[i64],
    mode: PadMode,
) -> Result<Val> {
    let dtype = b.dtype(x[0]);
    if mode == PadMode::Constant {
        let value = match x.get(1) {
            Some(&value) => b.reshape(value, &[]),
            None if dtype.is_float() => b.scalar(dtype, 0.0),
            None => b.int(dtype, 0),
        };
        let lengths = |list: &[i64]| list.iter().map(|&n| n.max(0) as usize).collect::<Vec<_>>();
        return Ok(b.pad(x[0], value, &lengths(before), &lengths(after)));
    }
    let mut padded = x[0];
    for (axis, (&before, &after)) in before.iter().zip(after).enumerate() {
        let size = b.dims(padded)[axis] as i64;
        if (before, after) == (0, 0) {
            continue;
        }
        let places = (-before..size + after).map(|place| source(place, size, mode));
        let places = places.collect::<Result<Vec<_>>>()?;
        let places = b.numbers(&places);
        padded = b.take(padded, places, axis);
    }
    Ok(padded)
}

/// Counts from 0 along `axis`.
pub(super) fn iota(b: &mut Builder<'_>, dims: &[usize], axis: usize, dtype: DType) -> Val {
    let row = b.arange(dims[axis]);
    let row = elementwise::cast(b, row, dtype, &[dims[axis]]);
    along(b, row, axis, dims)
}

/// A vector along `axis` of these dimensions.
pub(super) fn along(b: &mut Builder<'_>, row: Val, axis: usize, dims: &[usize]) -> Val {
    let mut shape = vec![1; dims.len()];
    shape[axis] = dims[axis];
    let row = b.reshape(row, &shape);
    b.broadcast_to(row, dims)
}
