//! Ops that read an image between its pixels: `GridSample`, `AffineGrid`, `DeformConv`.
//!
//! All come down to [`Op::GridSample`]: positions in pixels go in, interpolated values come out.

mod deform;
mod grid;

use super::{Entry, microsoft, nodes};
use crate::import::NodeCx;
use rlx_ir::op::{Outside, SampleMode};
use rlx_ir::{DType, Dim, Error, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] = &[
    nodes("AffineGrid", grid::affine_grid),
    nodes("DeformConv", deform::deform_conv),
    nodes("GridSample", grid::grid_sample),
    microsoft("GridSample", grid::grid_sample),
];

/// A dimension as a number of type `dtype`, of one element.
fn size_of(cx: Cx, dim: Dim, dtype: DType) -> Result<NodeId, Error> {
    match dim.as_static() {
        Some(size) => Ok(cx.scalar(dtype, size as f64)),
        None => {
            let size = cx.extent(dim.extent())?;
            cx.cast(size, dtype)
        }
    }
}

/// Counts along dimension `axis` of a tensor of `rank` dimensions, the others being 1.
fn count(cx: Cx, dim: Dim, axis: usize, rank: usize, dtype: DType) -> Result<NodeId, Error> {
    let mut to = vec![Dim::Static(1); rank];
    to[axis] = dim;
    let count = cx.add(Op::Iota { to, axis, dtype: DType::I64 }, &[])?;
    cx.cast(count, dtype)
}

/// The type that positions are computed in: f32, unless the operands are f64.
fn position_type(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The values of `x` at positions in pixels, one tensor for each spatial dimension. What is no float is interpolated as floats, and truncated.
fn sample(
    cx: Cx,
    (mode, outside): (SampleMode, Outside),
    x: NodeId,
    positions: &[NodeId],
) -> Result<NodeId, Error> {
    let Some(&first) = positions.first() else {
        return Err(cx.malformed(format!("positions of no coordinates in {}", cx.shape_of(x))));
    };
    let dtype = cx.shape_of(x).dtype();
    let as_is = dtype.is_float() || mode == SampleMode::Nearest;
    let x = if as_is { x } else { cx.cast(x, cx.shape_of(first).dtype())? };
    let inputs: Vec<NodeId> = [x].into_iter().chain(positions.iter().copied()).collect();
    let y = cx.add(Op::GridSample { mode, outside }, &inputs)?;
    cx.cast(y, dtype)
}
