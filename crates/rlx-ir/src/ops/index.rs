//! Indexing: reading and writing at positions that are data, and tensors made of positions.

mod gather;
mod positions;
mod scatter;
mod update;

pub use gather::{GatherDef, GatherElementsDef, GatherNdDef};
pub(in crate::ops) use positions::count_from;
pub use positions::{IotaDef, OneHotDef, TriluDef};
pub use scatter::{ScatterElementsDef, ScatterNdDef};
pub use update::UpdateSliceDef;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::OpKind;
use crate::ops::def::dtype_error;
use crate::oracle::{strided_offsets, strides};
use crate::shape::Shape;
use crate::tensor::Value;

/// Indices are i32 or i64.
fn check_indices(kind: OpKind, indices: &Shape) -> Result<()> {
    match indices.dtype() {
        DType::I32 | DType::I64 => Ok(()),
        _ => Err(dtype_error(kind, indices, "indices of i32 or i64").with_hint("insert a Cast")),
    }
}

fn check_axis(kind: OpKind, axis: usize, x: &Shape) -> Result<()> {
    if axis < x.rank() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Shape, format!("{kind} along axis {axis} of {x}, which has no such axis")))
}

/// The place that `index` means in a dimension of `size`.
fn resolve_index(index: i128, size: usize) -> Result<usize> {
    let place = if index < 0 { index + size as i128 } else { index };
    if (0..size as i128).contains(&place) {
        return Ok(place as usize);
    }
    Err(Error::new(ErrorKind::Value, format!("index {index} is outside a dimension of {size}")))
}

/// Whether the indices of an elementwise gather or scatter are within `x` in all dimensions but `axis`.
fn check_within(kind: OpKind, axis: usize, x: &Shape, indices: &Shape) -> Result<()> {
    check_indices(kind, indices)?;
    check_axis(kind, axis, x)?;
    let fits = |i: usize| match (x.dim(i), indices.dim(i)) {
        (Dim::Static(have), Dim::Static(want)) => i == axis || want <= have,
        _ => true,
    };
    if x.rank() == indices.rank() && (0..x.rank()).all(fits) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Shape, format!("{kind} along axis {axis} of {x} by indices {indices}"))
        .with_hint("the ranks must be equal, and the indices no larger except along the axis"))
}

/// For each index of an elementwise gather or scatter, the position in `x` it means.
fn element_places(x_dims: &[usize], axis: usize, indices: &Value) -> Result<Vec<usize>> {
    let mut steps = strides(x_dims);
    let along = std::mem::replace(&mut steps[axis], 0) as usize;
    let lines = strided_offsets(&indices.dims, 0, &steps);
    lines
        .iter()
        .zip(indices.ints()?)
        .map(|(&p, &i)| Ok(p + resolve_index(i, x_dims[axis])? * along))
        .collect()
}

/// How many dimensions of `x`, from `batch_dims` on, the rows of `indices` address: the indices' last
/// dimension.
fn addressed_dims(kind: OpKind, x: &Shape, indices: &Shape, batch_dims: usize) -> Result<usize> {
    check_indices(kind, indices)?;
    let reject =
        |why: &str| Error::new(ErrorKind::Shape, format!("{kind} of {x} by indices {indices}: {why}"));
    let Some(&last) = indices.dims().last() else {
        return Err(reject("the indices need a dimension"));
    };
    if batch_dims >= indices.rank() || batch_dims >= x.rank() {
        return Err(reject("there are not that many batch dimensions"));
    }
    let count = last.as_static().ok_or_else(|| reject("their last dimension must be fixed"))?;
    if count == 0 || count > x.rank() - batch_dims {
        return Err(reject("their last dimension must be from 1 to the number of dimensions to address"));
    }
    Ok(count)
}

/// For each row of `indices`, the position of the first element of the slice it addresses, and how many
/// elements each slice has.
fn slice_places(x_dims: &[usize], indices: &Value, batch_dims: usize) -> Result<(Vec<usize>, usize)> {
    let Some((&count, row_dims)) = indices.dims.split_last() else {
        return Err(Error::new(ErrorKind::Internal, "indices without a dimension"));
    };
    let (batch, rows) = row_dims.split_at(batch_dims);
    let own = strides(x_dims);
    let batches = strided_offsets(batch, 0, &own[..batch_dims]);
    let rows: usize = rows.iter().product();
    let mut places = Vec::with_capacity(batches.len() * rows);
    let mut addresses = indices.ints()?.chunks_exact(count);
    for start in batches {
        for address in addresses.by_ref().take(rows) {
            let mut place = start;
            for (i, &index) in address.iter().enumerate() {
                place += resolve_index(index, x_dims[batch_dims + i])? * own[batch_dims + i] as usize;
            }
            places.push(place);
        }
    }
    Ok((places, x_dims[batch_dims + count..].iter().product()))
}

#[cfg(test)]
mod tests;
