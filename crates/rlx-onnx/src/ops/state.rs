//! Layers that carry a state from one call to the next: `CausalConvWithState`, `LinearAttention`.

use super::{Entry, nodes};
use crate::import::NodeCx;
use rlx_ir::op::{Activation as A, BinaryOp as B, Body, DataFormat, PadMode};
use rlx_ir::{DType, Dim, Error, Extent, Graph, NodeId, Op, Shape, Value};
use std::sync::Arc;

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] =
    &[nodes("CausalConvWithState", causal_conv), nodes("LinearAttention", linear_attention)];

/// A convolution of each channel with what came before it: `x` `[N, C, L]`, weights `[C, 1, k]`. The state is the last `k − 1`
/// elements, zeros in the beginning.
fn causal_conv(cx: Cx) -> Nodes {
    let (shape, weights) = (cx.shape(0)?, cx.shape(1)?);
    if shape.rank() != 3 || weights.rank() != 3 {
        return Err(cx.malformed(format!("weights {weights} for {shape}")));
    }
    let (Some(channels), Some(taps @ 1..)) = (weights.dim(0).as_static(), weights.dim(2).as_static()) else {
        return Err(cx.open_dimension(format!("weights {weights}")));
    };
    let silu = match cx.attrs.text("activation", "none")? {
        "none" => false,
        "silu" | "swish" => true,
        other => return Err(cx.malformed(format!("activation = \"{other}\""))),
    };
    let (x, kept) = (cx.x(0)?, Extent::Const(taps as i64 - 1));
    let x = match cx.x_opt(3)? {
        Some(before) => cx.add(Op::Concat { axis: 2 }, &[before, x])?,
        None => {
            let none = vec![Extent::Const(0); 3];
            cx.pad(&[x], vec![Extent::Const(0), Extent::Const(0), kept], none, PadMode::Constant)?
        }
    };
    let op = Op::Conv {
        strides: vec![1],
        pads: vec![0, 0],
        dilations: vec![1],
        groups: channels,
        format: DataFormat::ChannelsFirst,
    };
    let operands: Vec<NodeId> = [x, cx.x(1)?].into_iter().chain(cx.x_opt(2)?).collect();
    let mut y = cx.add(op, &operands)?;
    if silu {
        y = cx.activation(A::Silu, y)?;
    }
    let state = cx.slice_axis(x, 2, shape.dim(2).extent(), kept)?;
    Ok(vec![y, state])
}

/// How the state of a linear attention changes with each element of a sequence.
#[derive(Clone, Copy)]
struct Rule {
    /// Whether it decays.
    gated: bool,
    /// Whether only what the state does not give already is written.
    delta: bool,
}

/// `S ← e^g·S + k ⊗ v` and `y = scale·qᵀ·S` for each element of a sequence (see [`Rule`]), as a loop over it, in f32. Operands have
/// their heads in the last dimension, as `[B, T, H·D]`; the state is `[B, H, Dₖ, Dᵥ]`.
fn linear_attention(cx: Cx) -> Nodes {
    let rule = match cx.attrs.text("update_rule", "gated_delta")? {
        "linear" => Rule { gated: false, delta: false },
        "gated" => Rule { gated: true, delta: false },
        "delta" => Rule { gated: false, delta: true },
        "gated_delta" => Rule { gated: true, delta: true },
        other => return Err(cx.malformed(format!("update_rule = \"{other}\""))),
    };
    if cx.has(4) != rule.gated || cx.has(5) != rule.delta {
        return Err(cx.malformed("the update rule and the operands decay and beta do not fit together"));
    }
    let count = |name: &str| {
        let heads = cx.attrs.required(name, cx.attrs.int_opt(name)?)?;
        usize::try_from(heads)
            .ok()
            .filter(|&h| h > 0)
            .ok_or_else(|| cx.malformed(format!("{name} = {heads}")))
    };
    let (query_heads, heads) = (count("q_num_heads")?, count("kv_num_heads")?);
    if query_heads % heads != 0 {
        return Err(cx.malformed(format!("{query_heads} query heads for {heads} key heads")));
    }
    let shape = cx.shape(0)?;
    let dtype = shape.dtype();
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let group = query_heads / heads;
    // Steps in front: [T, B, H, rows, columns].
    let q = steps(cx, 0, heads, &[group, 0], wide)?;
    let k = steps(cx, 1, heads, &[0, 1], wide)?;
    let v = steps(cx, 2, heads, &[1, 0], wide)?;
    let (key, value) = (cx.shape_of(k).dim(3), cx.shape_of(v).dim(4));
    let mut scanned = vec![q, k, v];
    if rule.gated {
        scanned.push(steps(cx, 4, heads, &[0, 1], wide)?);
    }
    if rule.delta {
        let own = if cx.shape(5)?.dims().last() == Some(&Dim::Static(1)) { 1 } else { heads };
        scanned.push(steps(cx, 5, own, &[1, 0], wide)?);
    }
    let batch = shape.dim(0);
    let (state, state_type) = match cx.x_opt(3)? {
        Some(state) => (cx.cast(state, wide)?, cx.dtype(3)?),
        None => {
            let zero = cx.scalar(wide, 0.0);
            (cx.expand(zero, vec![batch, Dim::Static(heads), key, value])?, dtype)
        }
    };
    let size = key.as_static().ok_or_else(|| cx.open_dimension("a symbolic head size"))?;
    let scale = match cx.attrs.float("scale", 0.0)? {
        0.0 => 1.0 / (size as f64).sqrt(),
        given => f64::from(given),
    };
    let scanned_shapes: Vec<Shape> = scanned.iter().map(|&x| cx.shape_of(x)).collect();
    let body = body(rule, &cx.shape_of(state), &scanned_shapes, scale)?;
    let trips = shape.dim(1);
    let mut inputs = vec![cx.extent(trips.extent())?, cx.constant(Value::bools(&[], [true])), state];
    let op = Op::Loop {
        body: Arc::new(Body { graph: body }),
        trips,
        count: None,
        carried: 1,
        scanned: scanned.len(),
    };
    inputs.extend(scanned);
    let node = cx.importer.push(op, &inputs)?;
    let (state, y) = (cx.importer.graph.result(node, 0)?, cx.importer.graph.result(node, 1)?);
    // [T, B, H, group, Dᵥ] → [B, T, H·group·Dᵥ]
    let y = cx.transpose(y, &[1, 0, 2, 3, 4])?;
    let y = cx.reshape(y, vec![batch, trips, Dim::from(value.extent() * query_heads as i64)])?;
    Ok(vec![cx.cast(y, dtype)?, cx.cast(state, state_type)?])
}

/// Operand `i`, `[B, T, H·…]`, as `[T, B, H, rows, columns]`; the one of rows and columns that is given as 0 is what is left.
fn steps(cx: Cx, i: usize, heads: usize, matrix: &[usize; 2], dtype: DType) -> Result<NodeId, Error> {
    let shape = cx.shape(i)?;
    let &[batch, length, width] = shape.dims() else {
        return Err(cx.malformed(format!("operand {i}, {shape}, has not 3 dimensions")));
    };
    let known: usize = heads * matrix.iter().filter(|&&n| n > 0).product::<usize>();
    let left = Dim::from(width.extent().floor_div(known as i64));
    let dim = |n: usize| if n == 0 { left } else { Dim::Static(n) };
    let x = cx.x(i)?;
    let x = cx.cast(x, dtype)?;
    let x = cx.reshape(x, vec![batch, length, Dim::Static(heads), dim(matrix[0]), dim(matrix[1])])?;
    cx.transpose(x, &[1, 0, 2, 3, 4])
}

/// What one element does.
fn body(rule: Rule, state: &Shape, scanned: &[Shape], scale: f64) -> Result<Graph, Error> {
    let mut graph = Graph::new("step");
    graph.input("iteration", Shape::scalar(DType::I64));
    let condition = graph.input("condition", Shape::scalar(DType::Bool));
    let mut s = graph.input("state", state.clone());
    let own: Vec<NodeId> = (0..scanned.len())
        .map(|i| graph.input(format!("x{i}"), scanned[i].with_dims(scanned[i].dims()[1..].to_vec())))
        .collect();
    let (q, k, mut v) = (own[0], own[1], own[2]);
    let mut add = |op: Op, inputs: &[NodeId]| graph.try_add(op, inputs);
    let row = Op::Transpose { perm: vec![0, 1, 3, 2] };
    if let Some(&decay) = own.get(3).filter(|_| rule.gated) {
        let factor = add(Op::Activation(A::Exp), &[decay])?;
        s = add(Op::Binary(B::Mul), &[s, factor])?;
    }
    if rule.delta {
        let known = add(row, &[k])?;
        let known = add(Op::MatMul, &[known, s])?;
        v = add(Op::Binary(B::Sub), &[v, known])?;
        if let Some(&rate) = own.last() {
            v = add(Op::Binary(B::Mul), &[rate, v])?;
        }
    }
    let written = add(Op::Binary(B::Mul), &[k, v])?;
    s = add(Op::Binary(B::Add), &[s, written])?;
    let y = add(Op::MatMul, &[q, s])?;
    let factor = graph.constant(Value::float(state.dtype(), &[], vec![scale]).rounded().to_const());
    let y = graph.try_add(Op::Binary(B::Mul), &[y, factor])?;
    graph.set_outputs(vec![condition, s, y]);
    Ok(graph)
}
