//! Ops that rearrange elements.

use super::{Entry, moves, nodes};
use crate::import::NodeCx;
use rlx_ir::ops::movement::resolve_reshape_extents;
use rlx_ir::shape::{broadcast, normalize_axis};
use rlx_ir::{Dim, Error, Extent, NodeId, Shape};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] = &[
    nodes("DepthToSpace", depth_to_space),
    moves("Expand", expand),
    moves("Flatten", flatten),
    moves("Reshape", reshape),
    nodes("SpaceToDepth", space_to_depth),
    moves("Squeeze", squeeze),
    moves("Transpose", transpose),
    moves("Unsqueeze", unsqueeze),
];

/// As a dimension; a negative number is an error.
pub(super) fn to_dim(cx: &NodeCx<'_, '_>, e: Extent) -> Result<Dim, Error> {
    match e.as_const() {
        Some(c) if c < 0 => Err(cx.malformed(format!("a dimension of {c}"))),
        _ => Ok(Dim::from(e)),
    }
}

/// Distinct axes of a tensor of this rank, counted from either end.
pub(super) fn axes_of(cx: &NodeCx<'_, '_>, axes: &[i64], rank: usize) -> Result<Vec<usize>, Error> {
    let found = axes.iter().map(|&a| normalize_axis(a, rank)).collect::<Result<Vec<_>, _>>()?;
    let distinct: std::collections::BTreeSet<_> = found.iter().collect();
    if distinct.len() == found.len() {
        Ok(found)
    } else {
        Err(cx.malformed(format!("axes {axes:?} name one twice")))
    }
}

fn reshape(cx: Cx) -> Nodes {
    let target = match cx.attrs.ints("shape")? {
        Some(shape) if cx.opset < 5 => shape.iter().map(|&n| Extent::Const(n)).collect(),
        _ => cx.found_extents(1)?,
    };
    let to = resolve_reshape_extents(&cx.shape(0)?, &target, cx.attrs.flag("allowzero", false)?)?;
    let x = cx.x(0)?;
    Ok(vec![cx.reshape(x, to)?])
}

fn flatten(cx: Cx) -> Nodes {
    let (shape, axis) = (cx.shape(0)?, cx.attrs.int("axis", 1)?);
    let axis = if axis == shape.rank() as i64 { shape.rank() } else { shape.axis(axis)? };
    let product = |dims: &[Dim]| Dim::from(dims.iter().fold(Extent::Const(1), |n, d| n * d.extent()));
    let to = vec![product(&shape.dims()[..axis]), product(&shape.dims()[axis..])];
    let x = cx.x(0)?;
    Ok(vec![cx.reshape(x, to)?])
}

fn squeeze(cx: Cx) -> Nodes {
    let shape = cx.shape(0)?;
    let drop = match cx.numbers_or_attr(1, "axes")? {
        Some(axes) => axes_of(cx, &axes, shape.rank())?,
        None => (0..shape.rank()).filter(|&i| shape.dim(i) == Dim::Static(1)).collect(),
    };
    if let Some(&i) = drop.iter().find(|&&i| shape.dim(i).as_static().is_some_and(|d| d != 1)) {
        return Err(cx.malformed(format!("dimension {i} of {shape} is not 1")));
    }
    let to = (0..shape.rank()).filter(|i| !drop.contains(i)).map(|i| shape.dim(i)).collect();
    let x = cx.x(0)?;
    Ok(vec![cx.reshape(x, to)?])
}

fn unsqueeze(cx: Cx) -> Nodes {
    let axes = cx.numbers_or_attr(1, "axes")?;
    let axes = cx.attrs.required("axes", axes)?;
    let axes = axes_of(cx, &axes, cx.rank(0)? + axes.len())?;
    let x = cx.x(0)?;
    Ok(vec![cx.unsqueeze(x, &axes)?])
}

fn transpose(cx: Cx) -> Nodes {
    let rank = cx.rank(0)?;
    let perm = match cx.attrs.ints("perm")? {
        Some(perm) => axes_of(cx, perm, rank)?,
        None => (0..rank).rev().collect(),
    };
    if perm.len() != rank {
        return Err(cx.malformed(format!("perm {perm:?} for {}", cx.shape(0)?)));
    }
    let x = cx.x(0)?;
    Ok(vec![cx.transpose(x, &perm)?])
}

/// The target broadcasts with the operand: a 1 in it keeps the operand's dimension.
fn expand(cx: Cx) -> Nodes {
    let (shape, target) = (cx.shape(0)?, cx.found_extents(1)?);
    let target = target.into_iter().map(|e| to_dim(cx, e)).collect::<Result<Vec<_>, _>>()?;
    let to = broadcast(&[&shape, &Shape::from_dims(&target, shape.dtype())])?;
    let x = cx.x(0)?;
    Ok(vec![cx.expand(x, to)?])
}

/// The block size, and the operand's four dimensions.
fn blocks(cx: &NodeCx<'_, '_>) -> Result<(i64, [Extent; 4]), Error> {
    let size = cx.attrs.int_opt("blocksize")?;
    let size = cx.attrs.required("blocksize", size)?;
    let shape = cx.shape(0)?;
    let &[n, c, h, w] = shape.dims() else {
        return Err(cx.malformed(format!("{shape} has not 4 dimensions")));
    };
    if !(1..=1 << 16).contains(&size) {
        return Err(cx.malformed(format!("blocksize = {size}")));
    }
    Ok((size, [n, c, h, w].map(Dim::extent)))
}

fn depth_to_space(cx: Cx) -> Nodes {
    let (size, [n, c, h, w]) = blocks(cx)?;
    let depth = c.floor_div(size * size);
    let s = Extent::Const(size);
    let (apart, perm) = match cx.attrs.text("mode", "DCR")? {
        "DCR" => ([n, s, s, depth, h, w], [0, 3, 4, 1, 5, 2]),
        "CRD" => ([n, depth, s, s, h, w], [0, 1, 4, 2, 5, 3]),
        other => return Err(cx.malformed(format!("mode = \"{other}\""))),
    };
    let x = cx.x(0)?;
    let x = cx.reshape(x, apart.map(Dim::from).to_vec())?;
    let x = cx.transpose(x, &perm)?;
    Ok(vec![cx.reshape(x, [n, depth, h * size, w * size].map(Dim::from).to_vec())?])
}

fn space_to_depth(cx: Cx) -> Nodes {
    let (size, [n, c, h, w]) = blocks(cx)?;
    let (s, rows, columns) = (Extent::Const(size), h.floor_div(size), w.floor_div(size));
    let x = cx.x(0)?;
    let x = cx.reshape(x, [n, c, rows, s, columns, s].map(Dim::from).to_vec())?;
    let perm = match cx.attrs.text("mode", "DCR")? {
        "DCR" => [0, 3, 5, 1, 2, 4],
        "CRD" => [0, 1, 3, 5, 2, 4],
        other => return Err(cx.malformed(format!("mode = \"{other}\""))),
    };
    let x = cx.transpose(x, &perm)?;
    Ok(vec![cx.reshape(x, [n, c * size * size, rows, columns].map(Dim::from).to_vec())?])
}
