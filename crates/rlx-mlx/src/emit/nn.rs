//! Softmax, norms, attention and products by quantised weights: MLX's own kernels (`mlx.core.fast`, `quantized_matmul`).

use rlx_ir::op::{MaskKind, Unseen};
use rlx_ir::{DType, Graph, Node, Op, Result};

use super::elementwise;
use crate::program::{Builder, Code, Val, real, unsupported, word};

/// The sizes of blocks that MLX multiplies by, the largest first.
const GROUPS: [usize; 3] = [128, 64, 32];

fn axis_of(axis: i32, rank: usize) -> usize {
    if axis < 0 { (rank as i64 + i64::from(axis)).max(0) as usize } else { axis as usize }
}

pub(super) fn softmax(b: &mut Builder<'_>, x: Val, axis: i32) -> Val {
    let (dtype, dims) = (b.dtype(x), b.dims(x).to_vec());
    if dims.contains(&0) {
        return x;
    }
    b.op(Code::Softmax, &[x], &[word(axis_of(axis, dims.len()))], dtype, &dims)
}

/// Layer and RMS norm: rows of `axis..`, with factors (and terms) of a row's own dimensions.
pub(super) fn norm(b: &mut Builder<'_>, code: Code, x: &[Val], axis: i32, eps: f32) -> Val {
    let (dtype, dims) = (b.dtype(x[0]), b.dims(x[0]).to_vec());
    if dims.contains(&0) {
        return x[0];
    }
    let first = axis_of(axis, dims.len());
    let rows: usize = dims[..first].iter().product();
    let len: usize = dims[first..].iter().product();
    let mut operands = vec![b.reshape(x[0], &[rows, len])];
    operands.extend(x[1..].iter().map(|&v| b.reshape(v, &[len])));
    let y = b.op(code, &operands, &[real(eps)], dtype, &[rows, len]);
    b.reshape(y, &dims)
}

/// `[B, S, H·D]` as `[B, H, S, D]`; the other layout is that already.
fn heads_first(b: &mut Builder<'_>, x: Val, size: usize) -> Val {
    let dims = b.dims(x).to_vec();
    if dims.len() == 4 {
        return x;
    }
    let x = b.reshape(x, &[dims[0], dims[1], dims[2] / size, size]);
    b.transpose(x, &[0, 2, 1, 3])
}

pub(super) fn attention(b: &mut Builder<'_>, op: &Op, x: &[Val]) -> Result<Val> {
    let Op::Attention { num_heads, head_dim, mask, window: None, scale, unseen } = op else {
        return unsupported("no attention without a window");
    };
    let (dtype, rank) = (b.dtype(x[0]), b.dims(x[0]).len());
    let scale = scale.unwrap_or((1.0 / (*head_dim as f64).sqrt()) as f32);
    let q = heads_first(b, x[0], *head_dim);
    let k = heads_first(b, x[1], *head_dim);
    let shared = b.dims(k)[1];
    let size = if b.dims(x[2]).len() == 4 { b.dims(x[2])[3] } else { b.dims(x[2])[2] / shared };
    let v = heads_first(b, x[2], size);
    let (batch, queries, keys) = (b.dims(q)[0], b.dims(q)[2], b.dims(k)[2]);
    let out = [batch, *num_heads, queries, size];
    if keys == 0 || out.contains(&0) {
        let zero = b.scalar(dtype, 0.0);
        let dims = if rank == 4 { out.to_vec() } else { vec![batch, queries, num_heads * size] };
        return Ok(b.full(zero, &dims));
    }
    let mut operands = vec![q, k, v];
    let mut seen = None;
    if *mask == MaskKind::Custom {
        let (bias, allowed) = additive(b, x[3], dtype);
        let mut dims = vec![1; 4 - b.dims(bias).len()];
        dims.extend(b.dims(bias));
        let bias = b.reshape(bias, &dims);
        let mut full = dims.clone();
        (full[2], full[3]) = (queries, keys);
        operands.push(b.broadcast_to(bias, &full));
        let allowed = b.reshape(allowed, &dims);
        let allowed = b.broadcast_to(allowed, &full);
        seen = Some(b.reduce(Code::Any, allowed, &[3], true));
    }
    let attrs = [real(scale), i64::from(*mask == MaskKind::Causal)];
    let mut y = b.op(Code::Attention, &operands, &attrs, dtype, &out);
    if let Some(seen) = seen {
        // What MLX gives where nothing may be seen differs between its kernels.
        let nothing = b.scalar(dtype, if *unseen == Unseen::Zero { 0.0 } else { f64::NAN });
        y = b.select(seen, y, nothing);
    }
    if rank == 4 {
        return Ok(y);
    }
    let y = b.transpose(y, &[0, 2, 1, 3]);
    Ok(b.reshape(y, &[batch, queries, num_heads * size]))
}

/// A mask as what is added to the scores, and where it lets something be seen.
fn additive(b: &mut Builder<'_>, mask: Val, dtype: DType) -> (Val, Val) {
    let never = b.scalar(dtype, f64::NEG_INFINITY);
    if b.dtype(mask) == DType::Bool {
        let zero = b.scalar(dtype, 0.0);
        return (b.select(mask, zero, never), mask);
    }
    let allowed = b.compare(Code::NotEqual, mask, never);
    (mask, allowed)
}

/// How MLX would take blocks of `size`: its groups are no larger than a block.
pub(crate) fn group_of(size: usize) -> Option<usize> {
    GROUPS.into_iter().find(|group| size.is_multiple_of(*group))
}

/// Rows by quantised weights. MLX's weights are `scale · q + bias` with unsigned `q`, in words of 32 bits, the lowest bits first.
pub(super) fn matmul_blocks(b: &mut Builder<'_>, x: &[Val], node: &Node, graph: &Graph) -> Result<Val> {
    let weights = &graph.node(node.inputs[1]).shape;
    let (Some(dims), Some(out)) = (weights.static_dims(), node.shape.static_dims()) else {
        return unsupported("blocks of unknown size");
    };
    let (&[columns, blocks, size], dtype, float) = (&dims[..], weights.dtype(), b.dtype(x[0])) else {
        return unsupported(format!("weights {weights}"));
    };
    let (Some(group), bits) = (group_of(size), dtype.bits()) else {
        return unsupported(format!("blocks of {size}"));
    };
    let width = blocks * size;
    let depth = b.dims(x[0]).last().copied().unwrap_or(0);
    let rows: usize = b.dims(x[0]).iter().take(out.len() - 1).product();
    if rows == 0 || columns == 0 || width == 0 {
        let zero = b.scalar(float, 0.0);
        return Ok(b.full(zero, &out));
    }
    // What is behind the row's end counts nothing.
    let (input, zero) = (b.reshape(x[0], &[rows, depth]), b.scalar(float, 0.0));
    let input = b.pad(input, zero, &[0, 0], &[0, width - depth]);
    let bytes = columns * width * bits / 8;
    let quantised = b.reshape(x[1], &[bytes]);
    let mut quantised = b.view_as(quantised, DType::U8, vec![bytes]);
    let mut offset = 0.0;
    if dtype.is_signed_int() {
        // Two's complement plus half the range is the highest bit turned over.
        let highest = if bits == 4 { 0x88 } else { 0x80 };
        let highest = b.int(DType::U8, highest);
        quantised = b.binary(Code::BitwiseXor, quantised, highest);
        offset = f64::from(1 << (bits - 1));
    }
    let words = b.reshape(quantised, &[columns, width * bits / 8]);
    let words = b.view_as(words, DType::U32, vec![columns, width * bits / 32]);
    let scale = x[2];
    let scale32 = b.astype(scale, DType::F32);
    let mut zero_point = b.scalar(DType::F32, offset);
    if let Some(&zero) = x.get(3) {
        let zero = b.astype(zero, DType::F32);
        zero_point = b.binary(Code::Add, zero, zero_point);
    }
    let bias = b.binary(Code::Multiply, scale32, zero_point);
    let bias = b.unary(Code::Negative, bias);
    let grouped = |b: &mut Builder<'_>, param: Val| {
        let param = elementwise::cast(b, param, float, &[blocks, columns]);
        let param = b.transpose(param, &[1, 0]);
        let param = b.reshape(param, &[columns, blocks, 1]);
        let param = b.broadcast_to(param, &[columns, blocks, size / group]);
        let param = b.reshape(param, &[columns, width / group]);
        b.op(Code::Contiguous, &[param], &[], float, &[columns, width / group])
    };
    let (scale, bias) = (grouped(b, scale32), grouped(b, bias));
    let attrs = [word(group), word(bits)];
    let y = b.op(Code::QuantizedMatMul, &[input, words, scale, bias], &attrs, float, &[rows, columns]);
    Ok(b.reshape(y, &out))
}
