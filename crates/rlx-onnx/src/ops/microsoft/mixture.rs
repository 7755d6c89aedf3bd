//! `MoE` and `QMoE`: each token goes through the experts that a router chooses for it.
//!
//! The rows of all tokens and choices are multiplied by their experts' matrices (`GroupedMatMul`).

use super::blocks::{Bits, Blocks};
use crate::import::NodeCx;
use crate::ops::{Entry, microsoft};
use rlx_ir::op::{Activation as A, BinaryOp as B, ReduceOp};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(in crate::ops) const OPS: &[Entry] = &[microsoft("MoE", mixture), microsoft("QMoE", quantized)];

/// The three layers: weights `[experts, k, n]` and a bias `[experts, n]` each; the third may be missing.
type Layers = [Option<(NodeId, Option<NodeId>)>; 3];

/// `input, router_probs`, then weights and bias of each layer.
fn mixture(cx: Cx) -> Nodes {
    let mut layers: Layers = [None; 3];
    for (layer, at) in layers.iter_mut().zip([2, 4, 6]) {
        if let Some(w) = cx.x_opt(at)? {
            let w = transposed(cx, w)?;
            *layer = Some((w, cx.x_opt(at + 1)?));
        }
    }
    let whole = cx.attrs.flag("normalize_routing_weights", false)?;
    build(cx, layers, None, whole)
}

/// `input, router_probs`, then weights, scales and bias of each layer, then their zero points, and `router_weights`.
fn quantized(cx: Cx) -> Nodes {
    let kind = cx.attrs.text("quant_type", "int")?;
    if kind != "int" {
        return Err(cx.bad_attr("quant_type", kind));
    }
    if cx.attrs.int("weights_prepacked", -1)? == 1 {
        return Err(cx.bad_attr("weights_prepacked", 1));
    }
    let names = ["fc1_expert_weight_bits", "fc2_expert_weight_bits", "fc3_expert_weight_bits"];
    let usual = cx.attrs.int("expert_weight_bits", 4)?;
    let mut layers: Layers = [None; 3];
    for (i, layer) in layers.iter_mut().enumerate() {
        let at = 2 + 3 * i;
        if cx.has(at) {
            let bits = Bits::read(cx, names[i], usual)?;
            let w = dequantized(cx, at, 11 + i, bits)?;
            *layer = Some((transposed(cx, w)?, cx.x_opt(at + 2)?));
        }
    }
    let weights = cx.x_opt(14)?;
    // ONNX Runtime's shares are of one in all whatever the attribute says, unless they come from elsewhere.
    let whole = weights.is_none() || cx.attrs.flag("normalize_routing_weights", false)?;
    build(cx, layers, weights, whole)
}

/// Weights `[experts, n, k]` as floats.
fn dequantized(cx: Cx, at: usize, zeros: usize, bits: Bits) -> Result<NodeId, Error> {
    let shape = cx.shape(at)?;
    let Some(&[experts, n, bytes]) =
        shape.static_dims().as_deref().and_then(|d| <&[usize; 3]>::try_from(d).ok())
    else {
        return Err(cx.malformed(format!("experts {shape}, not [experts, n, k]")));
    };
    let overflow = || rlx_ir::Error::new(rlx_ir::ErrorKind::Malformed, format!("experts {shape}"));
    let depth = bytes.checked_mul(bits.in_byte()).filter(|&k| k > 0).ok_or_else(overflow)?;
    let rows = experts.checked_mul(n).ok_or_else(overflow)?;
    let size = match usize::try_from(cx.attrs.int("block_size", 0)?) {
        Ok(0) | Err(_) => depth,
        Ok(size) => size,
    };
    let blocks = Blocks { rows, depth, size, bits, packed: at, scales: at + 1, zeros, to: cx.dtype(0)? };
    let floats = blocks.floats(cx)?;
    cx.reshape(floats, vec![Dim::Static(experts), Dim::Static(n), Dim::Static(depth)])
}

fn transposed(cx: Cx, w: NodeId) -> Result<NodeId, Error> {
    if cx.shape_of(w).rank() != 3 {
        return Err(cx.malformed(format!("experts {}, not [experts, n, k]", cx.shape_of(w))));
    }
    cx.transpose(w, &[0, 2, 1])
}

/// `whole`: whether the shares of a token's experts are of one in all.
fn build(cx: Cx, layers: Layers, weights: Option<NodeId>, whole: bool) -> Nodes {
    if cx.attrs.flag("use_sparse_mixer", false)? {
        return Err(cx.bad_attr("use_sparse_mixer", 1));
    }
    let [Some(first), Some(second), third] = layers else {
        return Err(cx.malformed("experts without layers"));
    };
    let (x, shape) = (cx.x(0)?, cx.shape(0)?);
    let Some((&hidden, lead)) = shape.dims().split_last() else { return Err(cx.malformed("no tokens")) };
    let tokens = Dim::from(lead.iter().fold(Extent::Const(1), |n, d| n * d.extent()));
    let rows = cx.reshape(x, vec![tokens, Dim::Static(1), hidden])?;
    let (chosen, shares) = route(cx, tokens, weights, whole)?;
    let inner = layer(cx, rows, chosen, first)?;
    let inner = match third {
        Some(third) => {
            let linear = layer(cx, rows, chosen, third)?;
            if cx.attrs.text("activation_type", "relu")? == "swiglu" {
                swiglu(cx, inner, linear)?
            } else {
                let gate = activated(cx, inner)?;
                cx.binary(B::Mul, gate, linear)?
            }
        }
        None => activated(cx, inner)?,
    };
    let each = layer(cx, inner, chosen, second)?;
    let shares = cx.unsqueeze(shares, &[2])?;
    let shares = cx.cast(shares, shape.dtype())?;
    let weighted = cx.binary(B::Mul, each, shares)?;
    let sum = cx.reduce(weighted, ReduceOp::Sum, &[1], false)?;
    Ok(vec![cx.reshape(sum, shape.dims().to_vec())?])
}

/// The experts of every token and their shares, `[tokens, k]`: the largest of the softmax.
fn route(cx: Cx, tokens: Dim, weights: Option<NodeId>, whole: bool) -> Result<(NodeId, NodeId), Error> {
    let (router, shape) = (cx.x(1)?, cx.shape(1)?);
    let k = usize::try_from(cx.attrs.int("k", 1)?).ok().filter(|&k| k > 0);
    let k = k.ok_or_else(|| cx.malformed("k < 1"))?;
    let Some(&experts) = shape.dims().last() else { return Err(cx.malformed("no experts")) };
    let router = cx.reshape(router, vec![tokens, experts])?;
    let router = cx.cast(router, DType::F32)?;
    let shares = cx.add(Op::Softmax { axis: 1 }, &[router])?;
    let top = Op::TopK { k: Dim::Static(k), axis: 1, largest: true, sorted: true };
    let best = cx.add_many(top, &[shares], 2)?;
    let mut shares = best[0];
    if let Some(weights) = weights {
        let weights = cx.reshape(weights, vec![tokens, experts])?;
        shares = cx.add(Op::GatherElements { axis: 1 }, &[weights, best[1]])?;
    }
    if whole {
        let sum = cx.reduce(shares, ReduceOp::Sum, &[1], true)?;
        shares = cx.binary(B::Div, shares, sum)?;
    }
    Ok((best[1], shares))
}

/// Rows times the matrices of their experts, and the experts' bias: `[tokens, k, n]`.
fn layer(cx: Cx, rows: NodeId, chosen: NodeId, (w, bias): (NodeId, Option<NodeId>)) -> Result<NodeId, Error> {
    let y = cx.add(Op::GroupedMatMul, &[rows, w, chosen])?;
    let Some(bias) = bias else { return Ok(y) };
    let bias = cx.add(Op::Gather { axis: 0 }, &[bias, chosen])?;
    cx.binary(B::Add, y, bias)
}

fn activated(cx: Cx, x: NodeId) -> Result<NodeId, Error> {
    match cx.attrs.text("activation_type", "relu")? {
        "relu" => cx.activation(A::Relu, x),
        "gelu" => cx.activation(A::GeluApprox, x),
        "silu" => cx.activation(A::Silu, x),
        "identity" => Ok(x),
        "swiglu" => {
            let (gate, linear) = halves(cx, x)?;
            swiglu(cx, gate, linear)
        }
        other => Err(cx.bad_attr("activation_type", other)),
    }
}

/// Gate and linear part of one product: in turn, or one behind the other.
fn halves(cx: Cx, x: NodeId) -> Result<(NodeId, NodeId), Error> {
    let shape = cx.shape_of(x);
    let &[tokens, k, width] = shape.dims() else {
        return Err(cx.malformed(format!("{shape} has no halves")));
    };
    let half = width.extent().floor_div(2);
    match cx.attrs.int("swiglu_fusion", 0)? {
        1 => {
            let pairs = cx.reshape(x, vec![tokens, k, Dim::from(half), Dim::Static(2)])?;
            let gate = cx.slice_axis(pairs, 3, Extent::Const(0), Extent::Const(1))?;
            let linear = cx.slice_axis(pairs, 3, Extent::Const(1), Extent::Const(1))?;
            let to = vec![tokens, k, Dim::from(half)];
            Ok((cx.reshape(gate, to.clone())?, cx.reshape(linear, to)?))
        }
        2 => Ok((cx.slice_axis(x, 2, Extent::Const(0), half)?, cx.slice_axis(x, 2, half, half)?)),
        other => Err(cx.bad_attr("swiglu_fusion", other)),
    }
}

/// `g·sigmoid(α·g)·(l + β)`, both clamped to a limit if there is one.
fn swiglu(cx: Cx, mut gate: NodeId, mut linear: NodeId) -> Result<NodeId, Error> {
    let alpha = f64::from(cx.attrs.float("activation_alpha", 1.0)?);
    let beta = f64::from(cx.attrs.float("activation_beta", 0.0)?);
    if let Some(limit) = cx.attrs.float_opt("swiglu_limit")? {
        gate = cx.with_scalar(B::Min, gate, f64::from(limit))?;
        linear = cx.with_scalar(B::Min, linear, f64::from(limit))?;
        linear = cx.with_scalar(B::Max, linear, f64::from(-limit))?;
    }
    let turned = cx.with_scalar(B::Mul, gate, alpha)?;
    let turned = cx.activation(A::Sigmoid, turned)?;
    let gate = cx.binary(B::Mul, gate, turned)?;
    let linear = cx.with_scalar(B::Add, linear, beta)?;
    cx.binary(B::Mul, gate, linear)
}
