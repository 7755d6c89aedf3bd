//! `GridSample` and `AffineGrid`, in any number of spatial dimensions.

use super::{Cx, Nodes, count, position_type, sample, size_of};
use rlx_ir::op::{BinaryOp as B, Outside, SampleMode};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op};

/// Values of `x` `[N, C, …]` at the positions of a grid `[N, P…, D]`, whose coordinates run from −1 to 1, the last dimension's first.
pub(super) fn grid_sample(cx: Cx) -> Nodes {
    let align = cx.attrs.flag("align_corners", false)?;
    let mode = match cx.attrs.text("mode", "linear")? {
        "linear" | "bilinear" => SampleMode::Linear,
        "nearest" => SampleMode::Nearest,
        "cubic" | "bicubic" => SampleMode::Cubic,
        other => return Err(cx.malformed(format!("mode = \"{other}\""))),
    };
    let outside = match cx.attrs.text("padding_mode", "zeros")? {
        "zeros" => Outside::Zeros,
        "border" => Outside::Border,
        "reflection" if align => Outside::ReflectCentres,
        "reflection" => Outside::ReflectEdges,
        other => return Err(cx.malformed(format!("padding_mode = \"{other}\""))),
    };
    let (shape, grid_shape) = (cx.shape(0)?, cx.shape(1)?);
    let spatial = shape.dims().get(2..).unwrap_or_default().to_vec();
    let coordinates = grid_shape.dims().last().and_then(|d| d.as_static());
    if spatial.is_empty() || coordinates != Some(spatial.len()) || grid_shape.rank() < 2 {
        return Err(cx.malformed(format!("a grid {grid_shape} for {shape}")));
    }
    let (x, grid) = (cx.x(0)?, cx.x(1)?);
    let grid = cx.cast(grid, position_type(grid_shape.dtype()))?;
    let mut positions = Vec::with_capacity(spatial.len());
    for (i, &size) in spatial.iter().enumerate() {
        let coordinate = part(cx, grid, spatial.len() - 1 - i)?;
        positions.push(in_pixels(cx, coordinate, size, align)?);
    }
    Ok(vec![sample(cx, (mode, outside), x, &positions)?])
}

/// Number `i` of the last dimension.
fn part(cx: Cx, grid: NodeId, i: usize) -> Result<NodeId, Error> {
    let shape = cx.shape_of(grid);
    let last = shape.rank() - 1;
    let one = cx.slice_axis(grid, last, Extent::Const(i as i64), Extent::Const(1))?;
    cx.reshape(one, shape.dims()[..last].to_vec())
}

/// A coordinate from −1 to 1 as a position: these are the centres of the outermost elements, or their outer edges.
fn in_pixels(cx: Cx, coordinate: NodeId, size: Dim, align: bool) -> Result<NodeId, Error> {
    let size = size_of(cx, size, cx.shape_of(coordinate).dtype())?;
    let from_zero = cx.with_scalar(B::Add, coordinate, 1.0)?;
    if align {
        let half = cx.with_scalar(B::Div, from_zero, 2.0)?;
        let last = cx.with_scalar(B::Sub, size, 1.0)?;
        return cx.binary(B::Mul, half, last);
    }
    let scaled = cx.binary(B::Mul, from_zero, size)?;
    let scaled = cx.with_scalar(B::Sub, scaled, 1.0)?;
    cx.with_scalar(B::Div, scaled, 2.0)
}

/// The grid of an affine transformation: `theta · (x, y, …, 1)` at every position of an image of the given size.
pub(super) fn affine_grid(cx: Cx) -> Nodes {
    let align = cx.attrs.flag("align_corners", false)?;
    let (shape, size) = (cx.shape(0)?, cx.extents(1)?);
    let spatial: Vec<Dim> =
        size.iter().skip(2).map(|&e| super::super::movement::to_dim(cx, e)).collect::<Result<_, _>>()?;
    let rank = spatial.len();
    let fits = shape.rank() == 3
        && [(1, rank), (2, rank + 1)].iter().all(|&(i, want)| shape.dim(i).as_static() == Some(want));
    if rank == 0 || !fits {
        return Err(
            cx.malformed(format!("a transformation {shape} for an image of {} dimensions", size.len()))
        );
    }
    let dtype = position_type(shape.dtype());
    let mut columns = Vec::with_capacity(rank + 1);
    for (axis, &dim) in spatial.iter().enumerate().rev() {
        let along = coordinate(cx, dim, axis, rank, dtype, align)?;
        columns.push(whole(cx, along, &spatial)?);
    }
    let one = cx.scalar(dtype, 1.0);
    columns.push(whole(cx, one, &spatial)?);
    let points = cx.add(Op::Concat { axis: 1 }, &columns)?;
    let theta = cx.x(0)?;
    let theta = cx.cast(theta, dtype)?;
    let theta = cx.transpose(theta, &[0, 2, 1])?;
    let grid = cx.add(Op::MatMul, &[points, theta])?;
    let to = [shape.dim(0)].into_iter().chain(spatial).chain([Dim::Static(rank)]).collect();
    let grid = cx.reshape(grid, to)?;
    Ok(vec![cx.cast(grid, shape.dtype())?])
}

/// The coordinates of the elements along one dimension, from −1 to 1; of a single element with aligned corners, 0.
fn coordinate(
    cx: Cx,
    dim: Dim,
    axis: usize,
    rank: usize,
    dtype: DType,
    align: bool,
) -> Result<NodeId, Error> {
    let at = count(cx, dim, axis, rank, dtype)?;
    if align && dim == Dim::Static(1) {
        return Ok(at);
    }
    let size = size_of(cx, dim, dtype)?;
    let (over, under) = if align {
        (cx.with_scalar(B::Mul, at, 2.0)?, cx.with_scalar(B::Sub, size, 1.0)?)
    } else {
        let double = cx.with_scalar(B::Mul, at, 2.0)?;
        (cx.with_scalar(B::Add, double, 1.0)?, size)
    };
    let scaled = cx.binary(B::Div, over, under)?;
    cx.with_scalar(B::Sub, scaled, 1.0)
}

/// One column with a number for every position.
fn whole(cx: Cx, x: NodeId, spatial: &[Dim]) -> Result<NodeId, Error> {
    let x = cx.expand(x, spatial.to_vec())?;
    let points = spatial.iter().fold(Extent::Const(1), |n, d| n * d.extent());
    cx.reshape(x, vec![Dim::from(points), Dim::Static(1)])
}
