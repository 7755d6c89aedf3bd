//! `FlexAttention` of the preview domain: attention whose scores and weights subgraphs of the model change.
//!
//! `y = prob_mod(softmax(score_mod(√scale·q · (√scale·k)ᵀ))) · v`. Scores are widened before the first subgraph sees them, and stay
//! wide up to the result.

use super::{Cx, Heads, Nodes, repeat_heads, same_type};
use crate::tensor;
use rlx_ir::op::{BinaryOp as B, MaskKind, Unseen};
use rlx_ir::{DType, Error, NodeId, Op};

pub(super) fn flex_attention(cx: Cx) -> Nodes {
    let ranks = [cx.rank(0)?, cx.rank(1)?, cx.rank(2)?];
    if ranks != [4; 3] || !same_type(cx)? {
        let message = format!("operands of the dimensions {ranks:?}; each has 4, and all have one type");
        return Err(cx.malformed(message));
    }
    let heads = Heads::read(cx)?;
    let (dtype, wide) = (cx.dtype(0)?, softmax_type(cx)?);
    let scale = cx.attrs.float_opt("scale")?;
    let modified = cx.attrs.has("score_mod") || cx.attrs.has("prob_mod");
    if !modified && wide == dtype {
        let (num_heads, head_dim) = (heads.query_heads, heads.size);
        let op = Op::Attention {
            num_heads,
            head_dim,
            mask: MaskKind::None,
            window: None,
            scale,
            unseen: Unseen::Nan,
        };
        return Ok(vec![cx.add(op, &[heads.q, heads.k, heads.v])?]);
    }
    let root = scale.map_or(1.0 / (heads.size as f64).sqrt(), f64::from).sqrt();
    let times = heads.query_heads / heads.key_heads;
    let (k, v) = (repeat_heads(cx, times, heads.k)?, repeat_heads(cx, times, heads.v)?);
    let q = cx.with_scalar(B::Mul, heads.q, root)?;
    let k = cx.with_scalar(B::Mul, k, root)?;
    let k = cx.transpose(k, &[0, 1, 3, 2])?;
    let scores = cx.add(Op::MatMul, &[q, k])?;
    let scores = cx.cast(scores, wide)?;
    let scores = modified_by(cx, "score_mod", scores)?;
    let weights = cx.add(Op::Softmax { axis: 3 }, &[scores])?;
    let weights = modified_by(cx, "prob_mod", weights)?;
    let v = cx.cast(v, wide)?;
    let y = cx.add(Op::MatMul, &[weights, v])?;
    Ok(vec![cx.cast(y, dtype)?])
}

/// What scores and weights are computed in: f32 at least, unless the model says.
fn softmax_type(cx: Cx) -> Result<DType, Error> {
    let dtype = match cx.attrs.int_opt("softmax_precision")? {
        Some(code) => tensor::dtype(i32::try_from(code).unwrap_or(0))?,
        None if cx.dtype(0)? == DType::F64 => DType::F64,
        None => DType::F32,
    };
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => Ok(dtype),
        other => Err(cx.bad_attr("softmax_precision", other)),
    }
}

/// The tensor after the subgraph of this name, which keeps its shape and type.
fn modified_by(cx: Cx, name: &str, x: NodeId) -> Result<NodeId, Error> {
    if !cx.attrs.has(name) {
        return Ok(x);
    }
    let graph = cx.attrs.graph(name)?;
    let slot = cx.importer.node_slot(x);
    let outputs = cx.importer.inlined(graph, &[slot])?;
    let &[y] = &outputs[..] else {
        return Err(cx.malformed(format!("{name} has {} outputs; it has one", outputs.len())));
    };
    let y = cx.importer.materialize(y)?;
    let (before, after) = (cx.shape_of(x), cx.shape_of(y));
    if before != after {
        return Err(cx.malformed(format!("{name} makes {after} of {before}; it keeps shape and type")));
    }
    Ok(y)
}
