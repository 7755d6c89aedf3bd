//! Ops whose results have a data-dependent dimension: `NonZero`, `Compress`, `NonMaxSuppression`, `Unique`.
//!
//! The dimension becomes a symbol that the node binds at run time (`rlx_ir::ops::data`), named after the output.

use super::{Entry, microsoft, nodes};
use crate::import::NodeCx;
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op, sym};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] = &[
    nodes("Compress", compress),
    nodes("NonMaxSuppression", non_max_suppression),
    nodes("NonZero", non_zero),
    nodes("Unique", unique),
    microsoft("Unique", first_seen),
];

/// A symbol for what this node counts, with a name that nothing in the graph, or around it, has yet.
pub(crate) fn fresh(cx: &NodeCx<'_, '_>) -> Dim {
    let base = cx.proto.output.first().map_or("result", String::as_str);
    let names =
        (1..).map(|i| if i == 1 { format!("count of {base}") } else { format!("count {i} of {base}") });
    let symbol = names.map(|name| sym::named(&name)).find(|&s| !cx.importer.mentions(s));
    Dim::Dynamic(symbol.unwrap_or_else(|| sym::named("count")))
}

fn non_zero(cx: Cx) -> Nodes {
    let (x, count) = (cx.x(0)?, fresh(cx));
    Ok(vec![cx.add(Op::NonZero { count }, &[x])?])
}

/// The slices along an axis (elements of the flattened tensor without one) whose condition holds.
fn compress(cx: Cx) -> Nodes {
    let (mut x, condition, count) = (cx.x(0)?, cx.x(1)?, fresh(cx));
    let axis = match cx.attrs.int_opt("axis")? {
        Some(axis) => cx.shape(0)?.axis(axis)?,
        None => {
            let elements = Dim::from(cx.shape_of(x).elements());
            x = cx.reshape(x, vec![elements])?;
            0
        }
    };
    if cx.shape_of(condition).rank() != 1 {
        return Err(cx.malformed(format!("the condition is {}, not a vector", cx.shape_of(condition))));
    }
    let places = cx.add(Op::NonZero { count }, &[condition])?;
    let places = cx.reshape(places, vec![count])?;
    Ok(vec![cx.add(Op::Gather { axis }, &[x, places])?])
}

/// The one element of operand `i`.
fn one(cx: Cx, i: usize) -> Result<f32, Error> {
    match cx.floats(i)?[..] {
        [x] => Ok(x as f32),
        _ => Err(cx.malformed(format!("operand {i} must have one element"))),
    }
}

fn non_max_suppression(cx: Cx) -> Nodes {
    let most = if cx.has(2) { cx.number(2)? } else { 0 };
    let overlap = if cx.has(3) { one(cx, 3)? } else { 0.0 };
    let score = if cx.has(4) { Some(one(cx, 4)?) } else { None };
    let centre = match cx.attrs.int("center_point_box", 0)? {
        0 => false,
        1 => true,
        other => return Err(cx.bad_attr("center_point_box", other)),
    };
    let (boxes, scores, count) = (cx.x(0)?, cx.x(1)?, fresh(cx));
    let op = Op::NonMaxSuppression { count, most: u64::try_from(most).unwrap_or(0), overlap, score, centre };
    let kept = cx.add(op, &[boxes, scores])?;
    Ok(vec![cx.cast(kept, DType::I64)?])
}

/// The distinct elements, or slices along an axis: where each is first, which of them each element is, and how often it occurs.
fn unique(cx: Cx) -> Nodes {
    let sorted = cx.attrs.flag("sorted", true)?;
    unique_in_order(cx, sorted)
}

/// ONNX Runtime's own: elements in the order in which they are first seen, without the places of those.
fn first_seen(cx: Cx) -> Nodes {
    let mut found = unique_in_order(cx, false)?;
    found.remove(1);
    Ok(found)
}

fn unique_in_order(cx: Cx, sorted: bool) -> Nodes {
    let shape = cx.shape(0)?;
    let mut x = cx.x(0)?;
    let axis = match cx.attrs.int_opt("axis")? {
        Some(axis) => shape.axis(axis)?,
        None => {
            x = cx.reshape(x, vec![Dim::from(shape.elements())])?;
            0
        }
    };
    let shape = cx.shape_of(x);
    let perm: Vec<usize> = [axis].into_iter().chain((0..shape.rank()).filter(|&i| i != axis)).collect();
    let rows = cx.transpose(x, &perm)?;
    let width = perm[1..].iter().fold(Extent::Const(1), |n, &i| n * shape.dim(i).extent());
    let rows = cx.reshape(rows, vec![shape.dim(axis), Dim::from(width)])?;
    let count = fresh(cx);
    let found = cx.add_many(Op::Unique { count, sorted }, &[rows], 3)?;
    let y = cx.add(Op::Gather { axis }, &[x, found[0]])?;
    Ok([y].into_iter().chain(found).collect())
}
