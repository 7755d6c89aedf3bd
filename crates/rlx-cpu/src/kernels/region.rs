//! Regions: elementwise nodes alone, or behind an anchor.
//!
//! The anchor's own kernel runs the region: a matmul or convolution applies what its epilogue can
//! express before it writes an element; for the rest, the region's tile program follows in place. A norm or a quantisation before a
//! matmul is computed for some rows at a time ([`producer`]), two matmuls of the same rows whose results are multiplied are
//! computed side by side ([`matmul_pair`]), an attention takes keys and values from the table that a gather would pick them from
//! ([`attention`]), and a gather picks from what another one would pick along the axis beside its own
//! ([`gather_pair`]). What two gathers pick is interpolated as it is picked ([`interpolation`]). The smallest and the largest elements are found
//! together ([`extremes`]), and squares are summed as they are computed ([`squares`]).

use std::sync::Arc;

use rlx_ir::op::{BinaryOp, Body, CmpOp};
use rlx_ir::{DType, Graph, Node, NodeId, Op, OpKind, Result};
use rlx_opt::Claim;

use super::elementwise::Elementwise;
use super::elementwise::instr::as_unary;
use super::elementwise::program::{self, TileProgram};
use super::matmul_pair::{self, Paired};
use super::producer::{self, Producer};
use super::requantise::{self, ByteSpec};
use super::{
    CompileCx, StepKernel, attention, conv, extremes, gather_pair, integer, interpolation, matmul,
    matmul_blocks, no_kernel, squares,
};
use crate::gemm::{BinaryOp as Joint, IN_PLACE_DEPTH};
use crate::math::Unary;

/// The kinds that may anchor a region.
pub(crate) fn can_anchor(kind: OpKind) -> bool {
    let multiplies =
        matches!(kind, OpKind::MatMul | OpKind::MatMulInteger | OpKind::Conv | OpKind::ConvInteger);
    multiplies || matmul_blocks::KINDS.contains(&kind)
}

/// What an epilogue of a matmul does, by the region's inputs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EpilogueSpec {
    pub(crate) alpha: f32,
    pub(crate) bias: Option<usize>,
    /// Which input, how, and whether after the activation.
    pub(crate) combine: Option<(usize, Joint, bool)>,
    pub(crate) activation: Option<Unary>,
}

/// A region as its anchor's kernel sees it.
#[derive(Debug, Clone)]
pub(crate) struct Anchored {
    /// The anchor in the body.
    pub(crate) anchor: NodeId,
    /// Which of the region's inputs are the anchor's; where a producer makes the first one, the rows that it reads.
    pub(crate) inputs: Vec<usize>,
    /// What makes the anchor's rows, if that is in the region.
    pub(crate) producer: Option<Producer>,
    /// The elementwise nodes.
    pub(crate) program: Arc<TileProgram>,
    /// Whether the anchor's result is itself a result of the region, among others.
    pub(crate) keeps_anchor: bool,
    /// All of them as an epilogue, if one can express them.
    pub(crate) epilogue: Option<EpilogueSpec>,
    /// All of them as the epilogue of an integer anchor, if one can express them.
    pub(crate) bytes: Option<ByteSpec>,
}

impl EpilogueSpec {
    /// Nothing.
    pub(crate) const NONE: EpilogueSpec =
        EpilogueSpec { alpha: 1.0, bias: None, combine: None, activation: None };
}

/// What is inside a region.
enum Form {
    Elementwise(TileProgram),
    Anchored(Box<Anchored>),
    Paired(Paired),
    Attention(attention::Reads),
    Gathers(gather_pair::Pair),
    Between(interpolation::Between),
    Extremes(extremes::Extremes),
    Squares(Box<dyn StepKernel>),
}

/// Whether a node of a body is neither a border nor elementwise.
fn is_anchor(node: &Node) -> bool {
    !node.op.is_pointwise() && !matches!(node.op, Op::Input { .. } | Op::Constant { .. })
}

/// The anchor of a region's body, if it has one: the first, of a pair.
pub(crate) fn anchor_of(body: &Graph) -> Option<&Node> {
    let anchors = || body.nodes().iter().filter(|n| is_anchor(n));
    let attends = |n: &&Node| matches!(n.op, Op::Attention { .. });
    anchors()
        .find(|n| can_anchor(n.op.kind()))
        .or_else(|| anchors().find(attends))
        .or_else(|| anchors().next())
}

/// Where anchors, and producers before them, read input number `input` of a region: each with the number of its own input.
pub(crate) fn readers(body: &Graph, input: usize) -> impl Iterator<Item = (&Node, usize)> {
    let id = body.inputs().nth(input).map(|n| n.id);
    let before = anchor_of(body).and_then(|anchor| producer::node_of(body, anchor)).map(|n| n.id);
    let all = body.nodes().iter().filter(move |n| is_anchor(n) || Some(n.id) == before);
    all.flat_map(|n| n.inputs.iter().enumerate().map(move |(own, &i)| (n, own, i)))
        .filter(move |&(.., i)| Some(i) == id)
        .map(|(n, own, _)| (n, own))
}

/// For each input of the anchor, which of the body's inputs it is; where a producer makes its rows, what that reads.
fn anchor_inputs(body: &Graph, anchor: &Node, producer: Option<&Producer>) -> Option<Vec<usize>> {
    let inputs: Vec<NodeId> = body.inputs().map(|n| n.id).collect();
    let own = anchor.inputs.iter().enumerate().map(|(at, id)| match producer {
        Some(producer) if at == 0 => Some(producer.rows()),
        _ => inputs.iter().position(|i| i == id),
    });
    own.collect()
}

fn form(body: &Body) -> std::result::Result<Form, String> {
    let graph = &body.graph;
    let first = graph.outputs.first().ok_or("a region without results")?;
    let space = graph.shape(*first);
    if graph.outputs.iter().any(|&id| graph.shape(id).dims() != space.dims()) {
        return Err("the results of a region have different dimensions".into());
    }
    // Packed elements are read by matmuls alone.
    let packed = |id: &NodeId| graph.shape(*id).dtype().is_packed();
    let by_blocks = |n: &Node| matmul_blocks::KINDS.contains(&n.op.kind());
    if graph.nodes().iter().any(|n| !by_blocks(n) && n.inputs.iter().any(packed)) {
        return Err("packed elements are read in no region".into());
    }
    let Some(anchor) = anchor_of(graph) else {
        return Ok(Form::Elementwise(program::of_body(graph, None)?));
    };
    if let Some(pair) = gather_pair::Pair::of(graph) {
        return Ok(Form::Gathers(pair));
    }
    if let Some(between) = interpolation::Between::of(graph) {
        return Ok(Form::Between(between));
    }
    if let Some(extremes) = extremes::Extremes::of(graph) {
        return Ok(Form::Extremes(extremes));
    }
    if let Some(kernel) = squares::kernel(graph) {
        return Ok(Form::Squares(kernel));
    }
    if matches!(anchor.op, Op::Attention { .. }) {
        return attention::reads(graph, anchor).map(Form::Attention);
    }
    let producer = producer::of(graph, anchor)?;
    let before = producer::node_of(graph, anchor).map(|n| n.id);
    let anchors = graph.nodes().iter().filter(|n| is_anchor(n) && Some(n.id) != before).count();
    if anchors == 2 && anchor.op == Op::MatMul {
        return Ok(Form::Paired(matmul_pair::of(graph, producer)?));
    }
    if anchors > 1 || !can_anchor(anchor.op.kind()) {
        return Err(format!("no kernel computes {} with other ops in one region", anchor.op.kind()));
    }
    if let Claim::No(why) = super::claim(anchor, graph) {
        return Err(why);
    }
    if matches!(anchor.op, Op::Conv { .. }) && !conv::anchors(anchor, graph) {
        return Err("this form of convolution anchors no region".into());
    }
    if anchor.shape.dims() != space.dims() {
        return Err("the region's results are larger than its anchor's".into());
    }
    let inputs = anchor_inputs(graph, anchor, producer.as_ref());
    let inputs = inputs.ok_or("something is computed before the anchor")?;
    let program = Arc::new(program::of_body(graph, Some(anchor.id))?);
    let keeps_anchor = graph.outputs.len() > 1 && graph.outputs.contains(&anchor.id);
    let epilogue = epilogue(graph, anchor);
    let integers = anchor.shape.dtype() == DType::I32;
    let bytes = integers.then(|| requantise::of_region(graph, anchor)).flatten();
    let anchor = anchor.id;
    let region = Anchored { anchor, inputs, producer, program, keeps_anchor, epilogue, bytes };
    Ok(Form::Anchored(Box::new(region)))
}

/// Whether a region's result may be written over its input number `input`: elementwise, or the operand that a matmul's epilogue
/// combines with each sum just before it is stored.
pub(crate) fn writes_in_place(body: &Graph, input: usize) -> bool {
    let is_input = |id: &NodeId| matches!(body.node(*id).op, Op::Input { .. });
    if body.outputs.iter().any(is_input) {
        return false;
    }
    let Some(anchor) = anchor_of(body) else { return true };
    let own = readers(body, input).next().is_some();
    let combined = epilogue(body, anchor).and_then(|spec| spec.combine);
    !own && combined.is_some_and(|(i, _, after)| i == input && !after) && is_one_block(anchor, body)
}

/// Whether the matmul adds up each result in one block, so that it needs no partial sums in the place of the result.
fn is_one_block(anchor: &Node, body: &Graph) -> bool {
    let operand = |i: usize| body.shape(anchor.inputs[i]).dims();
    let depth = match &anchor.op {
        Op::MatMul => operand(0).last().and_then(|d| d.as_static()),
        // All of a filter.
        Op::Conv { .. } => operand(1)[1..].iter().try_fold(1usize, |n, d| n.checked_mul(d.as_static()?)),
        _ => None,
    };
    depth.is_some_and(|depth| depth <= IN_PLACE_DEPTH)
}

/// Whether a region can be run.
pub(crate) fn claim(node: &Node, _: &Graph) -> Claim {
    let Op::Region { body } = &node.op else { return Claim::No("it is no region".into()) };
    match form(body) {
        Ok(_) => Claim::Native,
        Err(why) => Claim::No(why),
    }
}

/// The kernel of a region.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let op = cx.node().op.clone();
    let Op::Region { body } = &op else { return Err(no_kernel(&op, "it is no region")) };
    match form(body).map_err(|why| no_kernel(&op, &why))? {
        Form::Elementwise(program) => Ok(Box::new(Elementwise::new(Arc::new(program)))),
        Form::Paired(pair) => Ok(matmul_pair::kernel(pair)),
        Form::Gathers(pair) => Ok(gather_pair::kernel(pair)),
        Form::Between(between) => Ok(interpolation::kernel(between)),
        Form::Extremes(of) => Ok(extremes::kernel(of)),
        Form::Squares(kernel) => Ok(kernel),
        Form::Attention(reads) => {
            let attention = anchor_of(&body.graph).map_or(&op, |anchor| &anchor.op);
            attention::kernel(cx, attention, reads)
        }
        Form::Anchored(region) => {
            let region = *region;
            let anchor = body.graph.node(region.anchor);
            match &anchor.op {
                Op::MatMul => Ok(matmul::anchored(anchor.shape.dtype(), region)),
                Op::MatMulInteger => Ok(integer::anchored(region)),
                Op::MatMulBlocks | Op::DynamicMatMulBlocks => {
                    Ok(matmul_blocks::anchored(cx.isa, &anchor.op, region))
                }
                Op::Conv { .. } => conv::anchored(anchor, &body.graph, region),
                Op::ConvInteger { .. } => conv::integer::anchored(anchor, &body.graph, region),
                other => Err(no_kernel(other, "it anchors no region")),
            }
        }
    }
}

/// The region's elementwise nodes as an epilogue: a chain from the anchor to the only result.
fn epilogue(body: &Graph, anchor: &Node) -> Option<EpilogueSpec> {
    let &[result] = body.outputs.as_slice() else { return None };
    epilogue_until(body, anchor, |at| at == result).map(|(spec, _)| spec)
}

/// The nodes behind the anchor as an epilogue, as far as the first that `ends`; and that one.
pub(super) fn epilogue_until(
    body: &Graph,
    anchor: &Node,
    ends: impl Fn(NodeId) -> bool,
) -> Option<(EpilogueSpec, NodeId)> {
    // Epilogues compute in f32 and round like the ops they stand for.
    if !matmul::is_packed(anchor.shape.dtype()) {
        return None;
    }
    // A convolution's own bias takes the place of one.
    let biased = anchor.inputs.len() != 2 && !matmul_blocks::KINDS.contains(&anchor.op.kind());
    let dtype = anchor.shape.dtype();
    let chain = Chain { body, dims: anchor.shape.dims(), dtype, biased };
    let (mut spec, mut at) = (EpilogueSpec::NONE, anchor.id);
    while !ends(at) {
        at = match chain.leaky_rectifier(at) {
            Some((alpha, _, last)) => {
                chain.activate(&mut spec, Unary::LeakyRelu { alpha })?;
                last
            }
            None => {
                let user = chain.only_user(at)?;
                chain.extend(&mut spec, user, at)?;
                user.id
            }
        };
    }
    Some((spec, at))
}

/// The function `f` with its results bounded, if that is a function too.
pub(super) fn clipped(f: Option<Unary>, by: BinaryOp, bound: f32) -> Option<Unary> {
    let (lo, hi) = match f {
        None => (f32::NEG_INFINITY, f32::INFINITY),
        Some(Unary::Relu) => (0.0, f32::INFINITY),
        Some(Unary::Clip { lo, hi }) => (lo, hi),
        Some(_) => return None,
    };
    match by {
        _ if bound.is_nan() => None,
        BinaryOp::Max => Some(Unary::Clip { lo: lo.max(bound), hi: hi.max(bound) }),
        BinaryOp::Min => Some(Unary::Clip { lo: lo.min(bound), hi: hi.min(bound) }),
        _ => None,
    }
}

/// Nodes in a row, each of which uses the one before.
pub(super) struct Chain<'g> {
    pub(super) body: &'g Graph,
    /// Dimensions of all of them, and their element type.
    pub(super) dims: &'g [rlx_ir::Dim],
    pub(super) dtype: DType,
    /// Whether the anchor has a bias of its own.
    pub(super) biased: bool,
}

impl<'g> Chain<'g> {
    /// The node that alone uses `at`.
    pub(super) fn only_user(&self, at: NodeId) -> Option<&'g Node> {
        let mut users = self.body.nodes().iter().filter(|n| n.inputs.contains(&at));
        users.next().filter(|_| users.next().is_none())
    }

    /// Adds a function to the epilogue, if there is room for it.
    fn activate(&self, spec: &mut EpilogueSpec, function: Unary) -> Option<()> {
        let free = spec.activation.is_none() && spec.combine.is_none_or(|(_, _, after)| !after);
        spec.activation = Some(function);
        free.then_some(())
    }

    /// The slope below zero, the nodes between and the last node of a leaky rectifier that alone uses `at`: `where(x < 0, α·x, x)`.
    pub(super) fn leaky_rectifier(&self, at: NodeId) -> Option<(f32, [NodeId; 2], NodeId)> {
        let body = self.body;
        let users = || body.nodes().iter().filter(|n| n.inputs.contains(&at));
        let user = |op: Op| users().find(|n| n.op == op);
        let number = |id: NodeId| match &body.node(id).op {
            Op::Constant { data } if body.shape(id).rank() <= self.dims.len() => {
                let &[x] = data.value().to_f64().as_slice() else { return None };
                Some(x as f32)
            }
            _ => None,
        };
        let scaled = user(Op::Binary(BinaryOp::Mul))?;
        let (below, chosen) = (user(Op::Compare(CmpOp::Lt))?, user(Op::Where)?);
        let &[a, b] = scaled.inputs.as_slice() else { return None };
        let alpha = number(if a == at { b } else { a })?;
        let &[x, zero] = below.inputs.as_slice() else { return None };
        let parts = [below.id, scaled.id];
        let within = |&id: &NodeId| {
            self.only_user(id).is_some_and(|n| n.id == chosen.id) && !body.outputs.contains(&id)
        };
        let is_one = users().count() == 3
            && parts.iter().all(within)
            && x == at
            && number(zero) == Some(0.0)
            && chosen.inputs == [below.id, scaled.id, at]
            && chosen.shape.dtype() == self.dtype;
        is_one.then_some((alpha, parts, chosen.id))
    }

    /// Adds one node to the epilogue, if there is room for it.
    pub(super) fn extend(&self, spec: &mut EpilogueSpec, user: &Node, at: NodeId) -> Option<()> {
        let body = self.body;
        if let Some(unary) = as_unary(&user.op) {
            return self.activate(spec, unary);
        }
        let (Op::Binary(f), &[a, b]) = (&user.op, user.inputs.as_slice()) else { return None };
        let other = body.node(if a == at { b } else { a });
        if user.shape.dtype() != self.dtype || a == b {
            return None;
        }
        if let (BinaryOp::Max | BinaryOp::Min, Op::Constant { data }) = (f, &other.op) {
            let &[bound] = data.value().to_f64().as_slice() else { return None };
            let free =
                spec.combine.is_none_or(|(_, _, after)| !after) && other.shape.rank() <= self.dims.len();
            spec.activation = Some(clipped(spec.activation, *f, bound as f32)?);
            return free.then_some(());
        }
        let fresh =
            !self.biased && spec.bias.is_none() && spec.combine.is_none() && spec.activation.is_none();
        if let (BinaryOp::Mul, Op::Constant { data }) = (f, &other.op) {
            let &[alpha] = data.value().to_f64().as_slice() else { return None };
            let free = fresh && spec.alpha == 1.0 && other.shape.rank() <= self.dims.len();
            spec.alpha = alpha as f32;
            return free.then_some(());
        }
        let index = body.inputs().position(|n| n.id == other.id)?;
        let (&last, lead) = other.shape.dims().split_last()?;
        let one = rlx_ir::Dim::Static(1);
        let per_column = Some(&last) == self.dims.last() && lead.iter().all(|&d| d == one);
        match f {
            BinaryOp::Add if per_column && fresh => spec.bias = Some(index),
            BinaryOp::Add | BinaryOp::Mul if other.shape.dims() == self.dims && spec.combine.is_none() => {
                let joint = if *f == BinaryOp::Add { Joint::Add } else { Joint::Mul };
                spec.combine = Some((index, joint, spec.activation.is_some()));
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::Function;
    use rlx_ir::{GraphExt, Shape};

    #[test]
    fn a_leaky_rectifier_is_one_function() {
        let rectified = |swapped: bool, keeps_scaled: bool| {
            let mut g = Graph::new("leaky");
            let [x, w] = ["x", "w"].map(|name| g.input(name, Shape::new(&[4, 4], DType::F32)));
            let y = g.try_add(Op::MatMul, &[x, w]).unwrap();
            let (alpha, zero) = (g.scalar(0.1, DType::F32), g.scalar(0.0, DType::F32));
            let below = g.try_add(Op::Compare(CmpOp::Lt), &[y, zero]).unwrap();
            let scaled = g.try_add(Op::Binary(BinaryOp::Mul), &[alpha, y]).unwrap();
            let (a, b) = if swapped { (y, scaled) } else { (scaled, y) };
            let chosen = g.try_add(Op::Where, &[below, a, b]).unwrap();
            let outputs = if keeps_scaled { vec![chosen, scaled] } else { vec![chosen] };
            g.set_outputs(outputs);
            let anchor = g.node(y);
            epilogue_until(&g, anchor, |at| at == chosen).and_then(|(spec, _)| spec.activation)
        };
        assert_eq!(rectified(false, false), Some(Unary::LeakyRelu { alpha: 0.1 }));
        assert_eq!(rectified(true, false), None);
        assert_eq!(rectified(false, true), None);
    }

    #[test]
    fn bounds_join_to_one_function() {
        let clip = |lo, hi| Some(Unary::Clip { lo, hi });
        let inf = f32::INFINITY;
        assert_eq!(clipped(None, BinaryOp::Max, 0.0), clip(0.0, inf));
        assert_eq!(clipped(clipped(None, BinaryOp::Max, 0.0), BinaryOp::Min, 6.0), clip(0.0, 6.0));
        assert_eq!(clipped(Some(Unary::Relu), BinaryOp::Min, 6.0), clip(0.0, 6.0));
        // The second bound wins over the first.
        assert_eq!(clipped(clip(0.0, 6.0), BinaryOp::Max, 7.0), clip(7.0, 7.0));
        assert_eq!(clipped(clip(0.0, 6.0), BinaryOp::Min, -1.0), clip(-1.0, -1.0));
        assert_eq!(clipped(Some(Unary::Function(Function::Tanh)), BinaryOp::Min, 0.5), None);
        assert_eq!(clipped(None, BinaryOp::Max, f32::NAN), None);
    }
}
