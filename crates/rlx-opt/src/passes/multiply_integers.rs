//! Matmuls and convolutions of dequantised operands, computed in integers.
//!
//! Matches: a matmul or convolution in f32 whose operands are both [`Op::Dequantize`] of 8-bit integers (seen
//! through transposes, and reshapes where one scale serves all), the left with one scale, the right with one or one for
//! each column or output channel, when the device claims the integer form; that is the form (`QDQ`) in which quantised
//! models are usually exported. Makes: the exact integer matmul, converted and multiplied by both scales; a bias is
//! added behind. Quantising the result again is left as it is. Behind such products, the largest elements of windows are found among the integers, too.
//!
//! Legal within rounding error, so only under [`Numerics::Fast`]: the float matmul rounds every term and every sum,
//! this one is exact before the scales. Sums of more terms than i32 can hold are left alone.
//!
//! ```text
//! %4 = Dequantize(%0, %1, %2) {axis=none, to=f32} : [2, 4] f32
//! %5 = Dequantize(%3, %1) {axis=none, to=f32} : [4, 3] f32
//! %6 = MatMul(%4, %5) : [2, 3] f32
//! →
//! %5 = MatMulInteger(%0, %3, %2, %4) : [2, 3] i32
//! %6 = Cast(%5) {to=f32} : [2, 3] f32
//! %8 = Binary.Mul(%6, %7) : [2, 3] f32
//! ```

use rlx_ir::op::{BinaryOp, PoolKind};
use rlx_ir::{DType, Dim, Graph, Node, NodeId, Op, Result};

use crate::options::Numerics;
use crate::passes::legalize::runs_natively;
use crate::passes::simplify::Simplifier;
use crate::pipeline::PassContext;

/// Terms of a sum up to which no matmul of bytes with zero points leaves i32: 255 · 255 · 33,000 < 2³¹.
const MOST_TERMS: usize = 33_000;

/// Runs the pass.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] when a rewritten op is rejected.
pub fn run(graph: &Graph, context: &PassContext<'_>) -> Result<Graph> {
    let dequantizes = graph.nodes().iter().any(|n| matches!(n.op, Op::Dequantize { .. }));
    if context.options.numerics != Numerics::Fast || !dequantizes {
        return Ok(graph.clone());
    }
    let mut s = Simplifier::new(graph, context);
    // Whether bytes are multiplied: where they are not, images become floats anyway, and a device that cannot store single bytes
    // writes floats faster.
    let mut multiplies = false;
    for node in graph.nodes() {
        s.begin(node);
        let made = match &node.op {
            Op::MatMul => product(node, &mut s, context)?,
            Op::Conv { .. } => convolution(node, &mut s, context)?,
            Op::Pool { kind: PoolKind::Max, .. } if multiplies => largest(node, &mut s, context)?,
            _ => None,
        };
        multiplies |= made.is_some();
        match made.filter(|&id| *s.graph().shape(id) == node.shape) {
            Some(id) => s.rewriter().replace(node.id, id),
            None => s.node(node)?,
        }
    }
    Ok(s.finish(true))
}

/// Integers that an operand is made of.
struct Quantized {
    x: NodeId,
    scale: NodeId,
    zero: NodeId,
    /// The dimension of `x` each index of which has its own scale.
    axis: Option<usize>,
}

/// The integers that `id` is the dequantisation of; movement in between is done to them.
fn quantized(s: &mut Simplifier<'_>, id: NodeId) -> Result<Option<Quantized>> {
    match s.op(id).clone() {
        Op::Dequantize { axis, to: DType::F32 } => {
            let inputs = s.graph().node(id).inputs.clone();
            let dtype = s.dtype(inputs[0]);
            if !matches!(dtype, DType::I8 | DType::U8) || s.dtype(inputs[1]) != DType::F32 {
                return Ok(None);
            }
            let zero = match (inputs.get(2), axis) {
                (Some(&zero), Some(_)) => zero,
                (Some(&zero), None) => s.reshape(zero, vec![])?,
                (None, _) => s.scalar(dtype, 0.0)?,
            };
            let scale = if axis.is_some() { inputs[1] } else { s.reshape(inputs[1], vec![])? };
            Ok(Some(Quantized { x: inputs[0], scale, zero, axis }))
        }
        Op::Transpose { perm } => {
            let from = s.input(id, 0);
            let Some(q) = quantized(s, from)? else { return Ok(None) };
            let axis = q.axis.and_then(|axis| perm.iter().position(|&p| p == axis));
            Ok(Some(Quantized { x: s.transpose(q.x, perm)?, axis, ..q }))
        }
        Op::Reshape { to } => {
            let from = s.input(id, 0);
            match quantized(s, from)? {
                Some(q) if q.axis.is_none() => Ok(Some(Quantized { x: s.reshape(q.x, to)?, ..q })),
                _ => Ok(None),
            }
        }
        _ => Ok(None),
    }
}

/// Both operands of a node, the left with one scale, the right with one or one for each index of `columns`.
fn operands(node: &Node, s: &mut Simplifier<'_>, columns: usize) -> Result<Option<[Quantized; 2]>> {
    if node.shape.dtype() != DType::F32 {
        return Ok(None);
    }
    let [left, right] = [0, 1].map(|i| s.rewriter().new_id(node.inputs[i]));
    let Some(a) = quantized(s, left)?.filter(|a| a.axis.is_none()) else { return Ok(None) };
    let fits = |b: &Quantized| b.axis.is_none_or(|axis| axis == columns);
    let Some(b) = quantized(s, right)?.filter(fits) else { return Ok(None) };
    Ok(Some([a, b]))
}

/// Whether so many terms stay within i32.
fn few(terms: impl IntoIterator<Item = Dim>) -> bool {
    let count = terms.into_iter().try_fold(1usize, |n, d| n.checked_mul(d.as_static()?));
    count.is_some_and(|n| n <= MOST_TERMS)
}

fn product(node: &Node, s: &mut Simplifier<'_>, context: &PassContext<'_>) -> Result<Option<NodeId>> {
    let right = s.rewriter().new_id(node.inputs[1]);
    let (rank, left) = (s.dims(right).len(), s.rewriter().new_id(node.inputs[0]));
    if rank < 2 || s.dims(left).len() < 2 || !few(s.dims(left).last().copied()) {
        return Ok(None);
    }
    let Some([a, b]) = operands(node, s, rank - 1)? else { return Ok(None) };
    let y = s.build(Op::MatMulInteger, &[a.x, b.x, a.zero, b.zero])?;
    if !runs_natively(s.graph().node(y), s.graph(), context) {
        return Ok(None);
    }
    let scale = s.build(Op::Binary(BinaryOp::Mul), &[a.scale, b.scale])?;
    scaled(s, y, scale).map(Some)
}

/// `y` as f32 times the scales.
fn scaled(s: &mut Simplifier<'_>, y: NodeId, scale: NodeId) -> Result<NodeId> {
    let y = s.build(Op::Cast { to: DType::F32 }, &[y])?;
    s.build(Op::Binary(BinaryOp::Mul), &[y, scale])
}

fn convolution(node: &Node, s: &mut Simplifier<'_>, context: &PassContext<'_>) -> Result<Option<NodeId>> {
    let Op::Conv { strides, pads, dilations, groups, format } = &node.op else { return Ok(None) };
    let weights = s.rewriter().new_id(node.inputs[1]);
    if !few(s.dims(weights)[1..].to_vec()) {
        return Ok(None);
    }
    let Some([x, w]) = operands(node, s, 0)? else { return Ok(None) };
    let (strides, pads, dilations) = (strides.clone(), pads.clone(), dilations.clone());
    let op = Op::ConvInteger { strides, pads, dilations, groups: *groups, format: *format };
    let y = s.build(op, &[x.x, w.x, x.zero, w.zero])?;
    if !runs_natively(s.graph().node(y), s.graph(), context) {
        return Ok(None);
    }
    // A vector of one number for each output channel, along the channels of the result.
    let (rank, channels) = (node.shape.rank(), format.channel_axis(node.shape.rank()));
    let along = |s: &mut Simplifier<'_>, v: NodeId| {
        let mut to = vec![Dim::Static(1); rank - channels];
        to[0] = node.shape.dim(channels);
        s.reshape(v, to)
    };
    let mut scale = s.build(Op::Binary(BinaryOp::Mul), &[x.scale, w.scale])?;
    if w.axis.is_some() {
        scale = along(s, scale)?;
    }
    let y = scaled(s, y, scale)?;
    let Some(&bias) = node.inputs.get(2) else { return Ok(Some(y)) };
    let bias = s.rewriter().new_id(bias);
    let bias = along(s, bias)?;
    s.build(Op::Binary(BinaryOp::Add), &[y, bias]).map(Some)
}

/// The largest of dequantised integers is the largest integer, dequantised: a scale above 0 keeps their order.
fn largest(node: &Node, s: &mut Simplifier<'_>, context: &PassContext<'_>) -> Result<Option<NodeId>> {
    let Op::Pool { kernel, pads, dilations, ceil_mode, .. } = &node.op else { return Ok(None) };
    // A window of padding alone is −∞, for which no integer stands.
    let inside = pads.iter().zip(kernel.iter().cycle()).all(|(pad, size)| pad < size);
    if !inside || *ceil_mode || dilations.iter().any(|&d| d != 1) || node.shape.dtype() != DType::F32 {
        return Ok(None);
    }
    let x = s.rewriter().new_id(node.inputs[0]);
    let Some(x) = quantized(s, x)?.filter(|x| x.axis.is_none()) else { return Ok(None) };
    if !s.uniform(x.scale).is_some_and(|scale| scale > 0.0 && scale.is_finite()) {
        return Ok(None);
    }
    let y = s.build(node.op.clone(), &[x.x])?;
    if !runs_natively(s.graph().node(y), s.graph(), context) {
        return Ok(None);
    }
    s.build(Op::Dequantize { axis: None, to: DType::F32 }, &[y, x.scale, x.zero]).map(Some)
}
