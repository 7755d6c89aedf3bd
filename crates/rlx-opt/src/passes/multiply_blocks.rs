//! Matmuls by dequantised blocks of weights, computed from the quantised weights.
//!
//! Matches: a matmul in f32, f16 or bf16 whose right operand is fixed and the transpose of [`Op::Dequantize`] of `[n·blocks, size]` integers
//! with a scale for each row, seen as `[n, blocks·size]` and perhaps cut to the depth; that is what 4-bit and 8-bit weights of
//! language models are imported as. Makes: [`Op::MatMulBlocks`], where the device claims it.
//!
//! Left alone, the weights are dequantised once, by the init program, into eight or four times the memory, all of which
//! a matmul of few rows has to read. So the op pays wherever there is a kernel: with many rows, its conversion of each
//! weight is shared by all of them.
//!
//! Legal to the last bit: the same floats are multiplied in the same order, so it does not depend on the numerics. A precision that makes a matmul one of
//! 16 bits casts weights that were dequantised to f32: the op rounds once what was rounded twice then, so that is done under [`Numerics::Fast`] alone.
//!
//! ```text
//! %4 = Dequantize(%1, %2, %3) {axis=0, to=f32} : [6, 32] f32
//! %5 = Reshape(%4) {to=[3, 64]} : [3, 64] f32
//! %6 = Transpose(%5) {perm=[1, 0]} : [64, 3] f32
//! %7 = MatMul(%0, %6) : [2, 3] f32
//! →
//! %9 = MatMulBlocks(%0, %4, %6, %8) : [2, 3] f32
//! ```

use rlx_ir::{DType, Dim, Extent, Graph, Node, NodeId, Op, Result};

use crate::Numerics;

use crate::passes::legalize::runs_natively;
use crate::passes::simplify::Simplifier;
use crate::pipeline::PassContext;

/// Runs the pass.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] when a rewritten op is rejected.
pub fn run(graph: &Graph, context: &PassContext<'_>) -> Result<Graph> {
    let dequantizes = |n: &Node| matches!(n.op, Op::Dequantize { axis: Some(0), to } if is_multiplied(to));
    if !graph.nodes().iter().any(dequantizes) {
        return Ok(graph.clone());
    }
    let mut s = Simplifier::new(graph, context);
    for node in graph.nodes() {
        s.begin(node);
        let made = if node.op == Op::MatMul { multiplied(node, &mut s, context)? } else { None };
        match made.filter(|&id| *s.graph().shape(id) == node.shape) {
            Some(id) => s.rewriter().replace(node.id, id),
            None => s.node(node)?,
        }
    }
    Ok(s.finish(context.options.dce))
}

/// The types whose matmuls have such weights.
fn is_multiplied(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// What is cast from f32 to `to`, or the node itself.
fn uncast(s: &Simplifier<'_>, id: NodeId, to: DType) -> NodeId {
    match s.op(id) {
        Op::Cast { .. } if s.dtype(id) == to && s.dtype(s.input(id, 0)) == DType::F32 => s.input(id, 0),
        _ => id,
    }
}

/// Weights in blocks.
struct Blocks {
    /// The dequantisation, of `[columns·blocks, size]`.
    dequantize: NodeId,
    columns: usize,
    blocks: usize,
    size: usize,
}

/// The blocks that `id` is the dequantisation of, as the right operand of a matmul of `to`; casts to that type are between them where `casts` says so.
fn blocks(s: &mut Simplifier<'_>, id: NodeId, to: DType, casts: bool) -> Option<Blocks> {
    let before = |s: &Simplifier<'_>, id: NodeId| if casts { uncast(s, id, to) } else { id };
    let id = before(s, id);
    let fixed = |dims: &[Dim]| dims.iter().map(|d| d.as_static()).collect::<Option<Vec<_>>>();
    if *s.op(id) != (Op::Transpose { perm: vec![1, 0] }) || !s.is_fixed(id) {
        return None;
    }
    let mut from = before(s, s.input(id, 0));
    let &[columns, depth] = fixed(s.dims(from))?.as_slice() else { return None };
    if let Op::Slice { starts, steps, .. } = s.op(from) {
        let whole = starts.iter().all(|&at| at == Extent::Const(0)) && steps.iter().all(|&step| step == 1);
        from = before(s, whole.then(|| s.input(from, 0))?);
    }
    let &[rows, width] = fixed(s.dims(from))?.as_slice() else { return None };
    if let Op::Reshape { .. } = s.op(from) {
        from = before(s, s.input(from, 0));
    }
    let &[count, size] = fixed(s.dims(from))?.as_slice() else { return None };
    let dequantizes = matches!(s.op(from), Op::Dequantize { axis: Some(0), to: made }
        if *made == to || casts && *made == DType::F32);
    let blocks = width.checked_div(size)?;
    let fits = rows == columns && blocks * size == width && count == columns * blocks;
    // The last block may be longer than the depth, no more.
    let ends = depth <= width && depth + size > width;
    (dequantizes && fits && ends).then_some(Blocks { dequantize: from, columns, blocks, size })
}

/// `id` as floats of this type. What moves its elements comes after the cast: elements of less than a byte are hard to move.
fn floats(s: &mut Simplifier<'_>, id: NodeId, to: DType) -> Result<NodeId> {
    match s.op(id).clone() {
        op @ (Op::Reshape { .. } | Op::Expand { .. } | Op::Slice { .. } | Op::Transpose { .. }) => {
            let from = s.input(id, 0);
            let from = floats(s, from, to)?;
            s.build(op, &[from])
        }
        _ => s.build(Op::Cast { to }, &[id]),
    }
}

fn multiplied(node: &Node, s: &mut Simplifier<'_>, context: &PassContext<'_>) -> Result<Option<NodeId>> {
    let [x, w] = [0, 1].map(|i| s.rewriter().new_id(node.inputs[i]));
    let dtype = node.shape.dtype();
    let casts = dtype != DType::F32 && context.options.numerics == Numerics::Fast;
    if !is_multiplied(dtype) {
        return Ok(None);
    }
    let Some(b) = blocks(s, w, dtype, casts) else { return Ok(None) };
    let operands = s.graph().node(b.dequantize).inputs.clone();
    let [columns, blocks, size] = [b.columns, b.blocks, b.size].map(Dim::Static);
    let mut inputs = vec![x, s.reshape(operands[0], vec![columns, blocks, size])?];
    for &param in &operands[1..] {
        // Zero points are small enough for any float; scales stay what they are, unless all is computed in f32.
        let is_scale = s.dtype(param).is_float() && dtype != DType::F32;
        let param = floats(s, param, if is_scale { s.dtype(param) } else { dtype })?;
        let param = s.reshape(param, vec![columns, blocks])?;
        inputs.push(s.transpose(param, vec![1, 0])?);
    }
    let y = s.rewriter().emit(Op::MatMulBlocks, &inputs)?;
    Ok(runs_natively(s.graph().node(y), s.graph(), context).then_some(y))
}
