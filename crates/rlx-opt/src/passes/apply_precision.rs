//! Runs chosen ops in a shorter float type.
//!
//! Matches: ops on f32 that the [`PrecisionPolicy`](crate::PrecisionPolicy) names, where the device has a kernel for the shorter type.
//! Makes: casts in front of them and behind them; neighbours that both run short keep their values short, and
//! movement follows what it moves: of each value that was made long again, the short one is remembered, however many reshapes,
//! slices and concatenations are between it and what reads it. Inputs, outputs and parameters keep the types they are declared with, and so does
//! what is computed from parameters alone, once: weights into which a batch norm is folded are rounded once, behind that. Casts of them are part of the
//! init program. What does not survive in the type stays f32 (`range.rs`); masks beyond its
//! range become its largest numbers. A batch norm with fixed statistics computes in f32 and rounds once. The mixed policies leave f32 what the device would not do faster
//! ([`Target::gain`](crate::Target::gain)). Legal because the caller asked for that precision.
//!
//! ```text
//! %2 = MatMul(%0, %1) : [2, 3] f32      →      %2 = Cast(%0) {to=f16} : [2, 4] f16
//!                                              %3 = Cast(%1) {to=f16} : [4, 3] f16
//!                                              %4 = MatMul(%2, %3) : [2, 3] f16
//!                                              %5 = Cast(%4) {to=f32} : [2, 3] f32
//! ```

mod range;

use rlx_ir::op::BinaryOp;
use rlx_ir::{DType, Graph, Node, NodeId, Op, OpKind, Result, Shape, Value};

use crate::facts;
use crate::options::Numerics;
use crate::passes::fold_batch_norm::{affine, has_fixed_statistics};
use crate::passes::legalize::{needs_no_kernel, runs_natively};
use crate::passes::simplify::Simplifier;
use crate::pipeline::PassContext;
use crate::precision::Policy;
use crate::target::Gain;

/// Runs the pass.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] when the rewritten op is rejected.
pub fn run(graph: &Graph, context: &PassContext<'_>) -> Result<Graph> {
    let policy = Policy::of(context.options);
    if policy.is_long() {
        return Ok(graph.clone());
    }
    let long = range::long_nodes(graph, context.options, &|op| policy.dtype(op));
    let fixed = facts::fixed_nodes(graph);
    let mut s = Simplifier::new(graph, context);
    let mut shorts = Shorts::with_capacity(graph.len());
    let fast = context.options.numerics == Numerics::Fast;
    let folds =
        |node: &Node| fast && node.op.kind() == OpKind::BatchNorm && has_fixed_statistics(node, &fixed);
    for node in graph.nodes() {
        s.begin(node);
        let at = node.id.index();
        let shortens = node.shape.dtype() == DType::F32 && !long[at] && !fixed[at];
        if let Some(result) = result_of_short(node, &shorts, &mut s)? {
            let long =
                if s.dtype(result) == node.shape.dtype() { result } else { made_long(result, &mut s)? };
            s.rewriter().replace(node.id, long);
            shorts.push(Some(result));
            continue;
        }
        // What such a norm reads and writes is as short as a factor's.
        let factor = folds(node).then_some(Op::Binary(BinaryOp::Mul));
        let short = match policy.dtype(factor.as_ref().unwrap_or(&node.op)).filter(|_| shortens) {
            Some(_) if needs_no_kernel(&node.op) => moved(node, &shorts, &mut s)?,
            Some(dtype) => match policy.gain(node, graph, dtype, context.target) {
                Gain::Bytes if !reads_short(node, dtype, &shorts, &s) => None,
                Gain::Nothing(_) => None,
                Gain::Time | Gain::Bytes if folds(node) => norm(node, Some(dtype), &shorts, &mut s)?,
                Gain::Time | Gain::Bytes => shortened(node, dtype, &shorts, &mut s, context)?,
            },
            None => None,
        };
        let long = match short {
            Some(short) => Some(made_long(short, &mut s)?),
            None if folds(node) => norm(node, None, &shorts, &mut s)?,
            None => None,
        };
        match long.filter(|&id| *s.graph().shape(id) == node.shape) {
            Some(id) => {
                s.rewriter().replace(node.id, id);
                shorts.push(short);
            }
            None => {
                s.node(node)?;
                shorts.push(None);
            }
        }
    }
    Ok(s.finish(context.options.dce))
}

/// For each old node, the new value in a shorter type that it is, made long again. The cast between the two cannot be looked up in the
/// graph: the simplifier moves it in front of the movement of the short value.
type Shorts = Vec<Option<NodeId>>;

fn made_long(short: NodeId, s: &mut Simplifier<'_>) -> Result<NodeId> {
    s.build(Op::Cast { to: DType::F32 }, &[short])
}

/// A further result of an op that runs short.
fn result_of_short(node: &Node, shorts: &Shorts, s: &mut Simplifier<'_>) -> Result<Option<NodeId>> {
    let Op::Result { index } = node.op else { return Ok(None) };
    let Some(of) = shorts[node.inputs[0].index()] else { return Ok(None) };
    s.rewriter().emit(Op::Result { index }, &[of]).map(Some)
}

/// Whether an operand of the old `node` has the type already.
fn reads_short(node: &Node, dtype: DType, shorts: &Shorts, s: &Simplifier<'_>) -> bool {
    node.inputs.iter().any(|old| shorts[old.index()].is_some_and(|short| s.dtype(short) == dtype))
}

/// The op on short inputs; none when the device has no kernel for that.
fn shortened(
    node: &Node,
    dtype: DType,
    shorts: &Shorts,
    s: &mut Simplifier<'_>,
    context: &PassContext<'_>,
) -> Result<Option<NodeId>> {
    let borders =
        matches!(node.op, Op::Input { .. } | Op::Param { .. } | Op::Cast { .. } | Op::Custom { .. });
    let odd =
        matches!(node.op, Op::Quantize { .. } | Op::Dequantize { .. } | Op::Region { .. } | Op::Iota { .. });
    if borders || odd || node.inputs.is_empty() || !node.op.bodies().is_empty() {
        return Ok(None);
    }
    let mut inputs = Vec::with_capacity(node.inputs.len());
    for &old in &node.inputs {
        inputs.push(in_type(old, dtype, shorts, s)?);
    }
    if s.infer(&node.op, &inputs).is_err() {
        // The op is not for this type.
        return Ok(None);
    }
    let short = s.rewriter().emit(node.op.clone(), &inputs)?;
    let made = s.graph().node(short);
    let fits = s.dtype(short) == dtype && gives(made, node, dtype);
    Ok((fits && runs_natively(made, s.graph(), context)).then_some(short))
}

/// What the old `id` is in the new graph, in the short type if it is f32.
fn in_type(old: NodeId, dtype: DType, shorts: &Shorts, s: &mut Simplifier<'_>) -> Result<NodeId> {
    let id = s.rewriter().new_id(old);
    match shorts[old.index()].filter(|&short| s.dtype(short) == dtype) {
        Some(short) => Ok(short),
        None if s.dtype(id) == DType::F32 => short_input(id, dtype, s),
        None => Ok(id),
    }
}

/// A batch norm with fixed statistics as a factor and a summand for each channel. They are f32, and so is the product, whatever type is
/// read and written: a norm is one op, and rounds once.
fn norm(
    node: &Node,
    short: Option<DType>,
    shorts: &Shorts,
    s: &mut Simplifier<'_>,
) -> Result<Option<NodeId>> {
    let Op::BatchNorm { eps } = node.op else { return Ok(None) };
    let factors = affine(s, node, eps)?;
    let Some(dtype) = short else {
        let x = s.rewriter().new_id(node.inputs[0]);
        return factors.of_channels(s, x).map(Some);
    };
    let x = in_type(node.inputs[0], dtype, shorts, s)?;
    let x = made_long(x, s)?;
    let y = factors.of_channels(s, x)?;
    s.build(Op::Cast { to: dtype }, &[y]).map(Some)
}

/// Whether `short` has the results of `long`, of which those of f32 may be of `dtype`: what reads any of them finds it.
fn gives(short: &Node, long: &Node, dtype: DType) -> bool {
    let fits = |(short, long): (&Shape, &Shape)| {
        let shortened = short.dtype() == dtype && long.dtype() == DType::F32;
        short.dims() == long.dims() && (shortened || short.dtype() == long.dtype())
    };
    short.results().len() == long.results().len() && short.results().iter().zip(long.results()).all(fits)
}

/// `id` in the short type. Finite constants beyond its range (masks, see [`range`]) become its largest numbers: they are
/// written with the smallest f32, which would become −∞, and 0 · −∞ is NaN.
fn short_input(id: NodeId, dtype: DType, s: &mut Simplifier<'_>) -> Result<NodeId> {
    let (_, most) = range::normal_range(dtype);
    let within = facts::constant(s.graph(), id).and_then(|data| {
        let values = data.value().to_f64();
        let beyond = |x: f64| x.is_finite() && x.abs() > most;
        values.iter().any(|&x| beyond(x)).then(|| {
            let values = values.iter().map(|&x| if beyond(x) { most.copysign(x) } else { x }).collect();
            Value::float(DType::F32, data.dims(), values).to_const()
        })
    });
    let id = match within {
        Some(data) => s.constant(data)?,
        None => id,
    };
    s.build(Op::Cast { to: dtype }, &[id])
}

/// Movement of what is short, or was made long by a cast of the model: the short value is moved.
fn moved(node: &Node, shorts: &Shorts, s: &mut Simplifier<'_>) -> Result<Option<NodeId>> {
    let mut inputs = Vec::with_capacity(node.inputs.len());
    for &old in &node.inputs {
        let id = s.rewriter().new_id(old);
        match s.op(id) {
            _ if shorts[old.index()].is_some() => inputs.extend(shorts[old.index()]),
            Op::Cast { .. } if s.dtype(s.input(id, 0)).is_float() => inputs.push(s.input(id, 0)),
            _ => return Ok(None),
        }
    }
    let one_type = inputs.windows(2).all(|w| s.dtype(w[0]) == s.dtype(w[1]));
    if inputs.is_empty() || !one_type {
        return Ok(None);
    }
    s.build(node.op.clone(), &inputs).map(Some)
}
