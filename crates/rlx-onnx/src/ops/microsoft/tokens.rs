//! Padding of tokens and the biases of their distances.

use crate::import::NodeCx;
use crate::ops::{Entry, data, microsoft};
use rlx_ir::op::{Activation as A, BinaryOp as B, CmpOp, ReduceOp, ScatterOp};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op, Value};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(in crate::ops) const OPS: &[Entry] = &[
    microsoft("GatedRelativePositionBias", gated_relative_position_bias),
    microsoft("RelativePositionBias", relative_position_bias),
    microsoft("RemovePadding", remove_padding),
    microsoft("RestorePadding", restore_padding),
];

fn product(dims: &[Dim]) -> Extent {
    dims.iter().fold(Extent::Const(1), |n, d| n * d.extent())
}

fn count(cx: Cx, length: Dim) -> Result<NodeId, Error> {
    cx.add(Op::Iota { to: vec![length], axis: 0, dtype: DType::I64 }, &[])
}

/// `input` `[batch, length, hidden]` and the number of tokens in each row: all tokens behind each other, the places of
/// tokens and then of padding, where each row begins, and the longest row.
fn remove_padding(cx: Cx) -> Nodes {
    let (x, shape, lengths) = (cx.x(0)?, cx.shape(0)?, cx.x(1)?);
    let &[batch, length, hidden] = shape.dims() else { return Err(cx.malformed(format!("tokens {shape}"))) };
    let lengths = cx.cast(lengths, DType::I64)?;
    let column = count(cx, length)?;
    let ends = cx.unsqueeze(lengths, &[1])?;
    let kept = cx.compare(CmpOp::Lt, column, ends)?;
    let all = Dim::from(product(&[batch, length]));
    let flat = cx.reshape(kept, vec![all])?;
    let found = data::fresh(cx);
    let places = cx.add(Op::NonZero { count: found }, &[flat])?;
    let places = cx.reshape(places, vec![found])?;
    let rows = cx.reshape(x, vec![all, hidden])?;
    let tokens = cx.add(Op::Gather { axis: 0 }, &[rows, places])?;
    // Padding sorts behind all tokens.
    let place = count(cx, all)?;
    let total = cx.extent(all.extent())?;
    let behind = cx.binary(B::Add, place, total)?;
    let key = cx.select(flat, place, behind)?;
    let top = Op::TopK { k: all, axis: 0, largest: false, sorted: true };
    let order = cx.add_many(top, &[key], 2)?[1];
    let order = cx.reshape(order, vec![batch, length])?;
    let order = cx.cast(order, DType::I32)?;
    let sums = Op::Cumulative { op: ReduceOp::Sum, axis: 0, exclusive: false, reverse: false };
    let sums = cx.add(sums, &[lengths])?;
    let zero = cx.scalar(DType::I64, 0.0);
    let zero = cx.expand(zero, vec![Dim::Static(1)])?;
    let starts = cx.add(Op::Concat { axis: 0 }, &[zero, sums])?;
    let starts = cx.cast(starts, DType::I32)?;
    let longest = cx.reduce(lengths, ReduceOp::Max, &[0], true)?;
    let longest = cx.cast(longest, DType::I32)?;
    Ok(vec![tokens, order, starts, longest])
}

/// Tokens put back to their places, zeros elsewhere.
fn restore_padding(cx: Cx) -> Nodes {
    let (x, shape, order, places) = (cx.x(0)?, cx.shape(0)?, cx.x(1)?, cx.shape(1)?);
    let (&[tokens, hidden], &[batch, length]) = (shape.dims(), places.dims()) else {
        return Err(cx.malformed(format!("tokens {shape} with places {places}")));
    };
    let all = Dim::from(product(&[batch, length]));
    let order = cx.reshape(order, vec![all])?;
    let order = cx.slice_axis(order, 0, Extent::Const(0), tokens.extent())?;
    let order = cx.unsqueeze(order, &[1])?;
    let zero = cx.scalar(shape.dtype(), 0.0);
    let zeros = cx.expand(zero, vec![all, hidden])?;
    let y = cx.add(Op::ScatterNd { reduction: ScatterOp::Set }, &[zeros, order, x])?;
    Ok(vec![cx.reshape(y, vec![batch, length, hidden])?])
}

/// Buckets of distances up to this many are told apart.
const MOST_BUCKETS: usize = 1 << 12;

/// `bias_table, query_length, key_length`: the bias of T5, of a bucket for each distance. The table holds all buckets of
/// a head behind each other.
fn relative_position_bias(cx: Cx) -> Nodes {
    let (table, shape) = (cx.x(0)?, cx.shape(0)?);
    let [Some(buckets), Some(heads)] = [0, 1].map(|i| shape.dims().get(i).and_then(|d| d.as_static())) else {
        return Err(cx.malformed(format!("a table {shape}")));
    };
    let both = cx.attrs.flag("is_bidirectional", false)?;
    let far = cx.attrs.required("max_distance", cx.attrs.int_opt("max_distance")?)?;
    let half = if both { buckets / 2 } else { buckets };
    let near = half / 2;
    if near == 0 || buckets > MOST_BUCKETS || far <= near as i64 || far > i64::from(i32::MAX) {
        return Err(cx.malformed(format!("{buckets} buckets for distances up to {far}")));
    }
    let one = |cx: &NodeCx<'_, '_>, i: usize| match cx.extents(i)?[..] {
        [e] => crate::ops::movement::to_dim(cx, e),
        _ => Err(cx.malformed(format!("operand {i} must have one element"))),
    };
    let (queries, keys) = (one(cx, 1)?, one(cx, 2)?);
    let (row, column) = (count(cx, queries)?, count(cx, keys)?);
    let row = cx.unsqueeze(row, &[1])?;
    let ahead = cx.binary(B::Sub, column, row)?;
    let distance = if both {
        cx.activation(A::Abs, ahead)?
    } else {
        let back = cx.binary(B::Sub, row, column)?;
        cx.with_scalar(B::Max, back, 0.0)?
    };
    let mut bucket = bucket_of(cx, distance, near, half, far)?;
    if both {
        let zero = cx.scalar(DType::I64, 0.0);
        let after = cx.compare(CmpOp::Gt, ahead, zero)?;
        let after = cx.cast(after, DType::I64)?;
        let after = cx.with_scalar(B::Mul, after, half as f64)?;
        bucket = cx.binary(B::Add, bucket, after)?;
    }
    let table = cx.reshape(table, vec![Dim::Static(heads), Dim::Static(buckets)])?;
    let y = cx.add(Op::Gather { axis: 1 }, &[table, bucket])?;
    Ok(vec![cx.unsqueeze(y, &[0])?])
}

/// Near distances have a bucket each, those beyond share buckets that grow with the logarithm: a distance is in as many
/// buckets further as there are buckets that begin at or before it.
fn bucket_of(cx: Cx, distance: NodeId, near: usize, half: usize, far: i64) -> Result<NodeId, Error> {
    let shared = half - near;
    let place = |d: i64| {
        let ratio = (d as f32 / near as f32).ln() / (far as f32 / near as f32).ln();
        (ratio * shared as f32) as usize
    };
    // The first distance of each shared bucket, as f32 arithmetic finds it.
    let mut firsts = Vec::with_capacity(shared);
    for bucket in 1..shared {
        let (mut low, mut high) = (near as i64, far);
        while low < high {
            let middle = low + (high - low) / 2;
            (low, high) = if place(middle) >= bucket { (low, middle) } else { (middle + 1, high) };
        }
        firsts.push(i128::from(low));
    }
    let small = cx.with_scalar(B::Min, distance, near as f64)?;
    if firsts.is_empty() {
        return Ok(small);
    }
    let firsts = cx.constant(Value::int(DType::I64, &[firsts.len()], firsts));
    let apart = cx.unsqueeze(distance, &[2])?;
    let begun = cx.compare(CmpOp::Ge, apart, firsts)?;
    let begun = cx.cast(begun, DType::I64)?;
    let begun = cx.reduce(begun, ReduceOp::Sum, &[2], false)?;
    cx.binary(B::Add, small, begun)
}

/// `query_layer, query_bias, rel_pos, weight, bias, eco_a`: the bias of WavLM, gated by the queries.
fn gated_relative_position_bias(cx: Cx) -> Nodes {
    if cx.has(6) {
        return Err(cx.unsupported("token_offset: queries without padding"));
    }
    let heads = cx.attrs.required("num_heads", cx.attrs.int_opt("num_heads")?)?;
    let shape = cx.shape(0)?;
    let &[batch, length, width] = shape.dims() else { return Err(cx.malformed(format!("queries {shape}"))) };
    if heads < 1 {
        return Err(cx.malformed(format!("num_heads = {heads}")));
    }
    let size = Dim::from(width.extent().floor_div(heads));
    let heads = Dim::from(Extent::Const(heads));
    let (q, bias, weight) = (cx.x(0)?, cx.x(1)?, cx.x(3)?);
    let q = cx.binary(B::Add, q, bias)?;
    let q = cx.reshape(q, vec![batch, length, heads, size])?;
    let q = cx.transpose(q, &[0, 2, 1, 3])?;
    let gates = cx.add(Op::MatMul, &[q, weight])?;
    let bias = cx.x(4)?;
    let gates = cx.binary(B::Add, gates, bias)?;
    let Some(&all) = cx.shape_of(gates).dims().last() else { return Err(cx.malformed("no gates")) };
    let half = Dim::from(all.extent().floor_div(2));
    let gates = cx.reshape(gates, vec![batch, heads, length, Dim::Static(2), half])?;
    let gates = cx.reduce(gates, ReduceOp::Sum, &[4], false)?;
    let gates = cx.activation(A::Sigmoid, gates)?;
    let u = cx.slice_axis(gates, 3, Extent::Const(0), Extent::Const(1))?;
    let r = cx.slice_axis(gates, 3, Extent::Const(1), Extent::Const(1))?;
    let (eco, rel) = (cx.x(5)?, cx.x(2)?);
    let r = cx.binary(B::Mul, r, eco)?;
    let r = cx.with_scalar(B::Sub, r, 1.0)?;
    let u = cx.binary(B::Mul, u, r)?;
    let u = cx.with_scalar(B::Add, u, 2.0)?;
    Ok(vec![cx.binary(B::Mul, u, rel)?])
}
