//! Attention as ONNX Runtime's optimiser and its model builders write it.
//!
//! Every op here brings its operands to queries, keys and values, says what may be seen and what is added to the scores
//! ([`core::Core`]), and becomes an ordinary `Attention`, so that every device has it. Caches are longer tensors whose
//! next rows are replaced (`UpdateSlice`), or the rows before put in front of the new ones (`Concat`).
//!
//! | file | ops |
//! |---|---|
//! | [`core`] | what they share: masks, the scores, joining heads |
//! | [`buffer`] | caches that are one buffer for all steps, and the texts of a beam search in them |
//! | [`grouped`] | `GroupQueryAttention`, `SparseAttention`: heads of keys shared, caches with a length for each row |
//! | [`multi_head`] | `MultiHeadAttention`, `DecoderMaskedMultiHeadAttention` |
//! | [`fused`] | `Attention`, `DecoderMaskedSelfAttention`, `QAttention`: with the product that makes queries, keys and values |
//! | [`packed`] | `PackedAttention`, `PackedMultiHeadAttention`: the tokens of all sequences in one list |

mod buffer;
mod core;
mod fused;
mod grouped;
mod multi_head;
mod packed;
mod sparse;

use crate::import::NodeCx;
use crate::ops::{Entry, microsoft};
use rlx_ir::{DType, Dim, Error, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(in crate::ops) const OPS: &[Entry] = &[
    microsoft("Attention", fused::attention),
    microsoft("DecoderMaskedMultiHeadAttention", multi_head::decoder),
    microsoft("DecoderMaskedSelfAttention", fused::decoder),
    microsoft("GroupQueryAttention", grouped::group_query),
    microsoft("MultiHeadAttention", multi_head::multi_head),
    microsoft("PackedAttention", packed::attention),
    microsoft("PackedMultiHeadAttention", packed::multi_head),
    microsoft("QAttention", fused::quantized),
    microsoft("RotaryEmbedding", rotary_embedding),
    microsoft("SparseAttention", sparse::sparse),
];

/// A number of heads, which an attribute gives.
fn heads(cx: &NodeCx<'_, '_>, name: &str) -> Result<usize, Error> {
    let count = cx.attrs.required(name, cx.attrs.int_opt(name)?)?;
    usize::try_from(count)
        .ok()
        .filter(|&n| n > 0 && n <= i32::MAX as usize)
        .ok_or_else(|| cx.malformed(format!("{name} = {count}")))
}

/// A dimension that has to be a number, such as the size of all heads.
fn fixed(cx: &NodeCx<'_, '_>, dim: Dim, what: &str) -> Result<usize, Error> {
    dim.as_static().ok_or_else(|| cx.open_dimension(format!("{what} of size {dim}")))
}

/// `width` in equal parts.
fn parts(cx: &NodeCx<'_, '_>, width: usize, count: usize) -> Result<usize, Error> {
    if count == 0 || width == 0 || !width.is_multiple_of(count) {
        return Err(cx.malformed(format!("{width} elements for {count} heads")));
    }
    Ok(width / count)
}

/// The scale attribute; 0 means the usual one.
fn scale(cx: &NodeCx<'_, '_>) -> Result<Option<f32>, Error> {
    Ok(cx.attrs.float_opt("scale")?.filter(|&s| s != 0.0))
}

/// `[batch, length, heads·size]` as `[batch, heads, length, size]`; what has four dimensions stays.
fn split(cx: Cx, x: NodeId, heads: usize) -> Result<NodeId, Error> {
    let shape = cx.shape_of(x);
    let &[batch, length, width] = shape.dims() else { return Ok(x) };
    let size = parts(cx, fixed(cx, width, "heads")?, heads)?;
    let x = cx.reshape(x, vec![batch, length, Dim::Static(heads), Dim::Static(size)])?;
    cx.transpose(x, &[0, 2, 1, 3])
}

/// The inverse of [`split`].
fn join(cx: Cx, x: NodeId) -> Result<NodeId, Error> {
    let shape = cx.shape_of(x);
    let &[batch, heads, length, size] = shape.dims() else { return Ok(x) };
    let x = cx.transpose(x, &[0, 2, 1, 3])?;
    cx.reshape(x, vec![batch, length, Dim::from(heads.extent() * size.extent())])
}

/// Counts 0, 1, … along one dimension.
fn count(cx: Cx, length: Dim) -> Result<NodeId, Error> {
    cx.add(Op::Iota { to: vec![length], axis: 0, dtype: DType::I64 }, &[])
}

/// Heads turned by the angles of their positions `[batch, length]` (i64), rows of the tables.
fn rotate(cx: Cx, x: NodeId, size: usize, tables: [NodeId; 2], interleaved: bool) -> Result<NodeId, Error> {
    let half = cx.shape_of(tables[0]).dims().last().and_then(|d| d.as_static());
    let half = half.ok_or_else(|| cx.open_dimension("a table of angles of symbolic size"))?;
    let n_rot = half.checked_mul(2).filter(|&n| n <= size);
    let n_rot = n_rot.ok_or_else(|| cx.malformed(format!("{half} angles for heads of {size}")))?;
    let op = Op::Rope { head_dim: size, n_rot, interleaved };
    cx.add(op, &[x, tables[0], tables[1]])
}

/// Rows of both tables (operands `first` and the one after it) for every position.
fn angles(cx: Cx, first: usize, positions: NodeId) -> Result<[NodeId; 2], Error> {
    let (cos, sin) = (cx.x(first)?, cx.x(first + 1)?);
    if cx.shape_of(cos).rank() != 2 || cx.shape_of(sin).rank() != 2 {
        return Err(cx.malformed("tables of angles are [positions, angles]"));
    }
    let cos = cx.add(Op::Gather { axis: 0 }, &[cos, positions])?;
    let sin = cx.add(Op::Gather { axis: 0 }, &[sin, positions])?;
    Ok([cos, sin])
}

/// Positions are one for each token, or the first one's alone.
fn rotary_embedding(cx: Cx) -> Nodes {
    if cx.attrs.flag("is_packed_batching", false)? {
        return Err(cx.bad_attr("is_packed_batching", 1));
    }
    let factor = cx.attrs.float("scale", 1.0)?;
    if factor != 1.0 {
        return Err(cx.bad_attr("scale", factor));
    }
    let (shape, x) = (cx.shape(0)?, cx.x(0)?);
    let (batch, length, size) = match *shape.dims() {
        [batch, length, width] => {
            let width = fixed(cx, width, "heads")?;
            let given = cx.attrs.int("num_heads", 0)?;
            let size = match usize::try_from(given).ok().filter(|&n| n > 0) {
                Some(heads) => parts(cx, width, heads)?,
                // Without a number of heads all elements of a head are turned.
                None => match cx.shape(2)?.dims().last().and_then(|d| d.as_static()) {
                    Some(half) => half.saturating_mul(2),
                    None => return Err(cx.open_dimension("a table of angles of symbolic size")),
                },
            };
            (batch, length, size)
        }
        [batch, _, length, size] => (batch, length, fixed(cx, size, "heads")?),
        _ => return Err(cx.malformed(format!("heads of {shape}"))),
    };
    let mut positions = cx.x(1)?;
    if cx.rank(1)? < 2 {
        let first = cx.reshape(positions, vec![Dim::Static(1), Dim::Static(1)])?;
        let steps = count(cx, length)?;
        let all = cx.binary(rlx_ir::op::BinaryOp::Add, first, steps)?;
        positions = cx.expand(all, vec![batch, length])?;
    }
    let tables = angles(cx, 2, positions)?;
    let interleaved = cx.attrs.flag("interleaved", false)?;
    Ok(vec![rotate(cx, x, size, tables, interleaved)?])
}
