//! Folds batch norms, and other factors known before a run, into the weights in front of them.
//!
//! Matches: a batch norm with fixed statistics, after a convolution or matmul with fixed weights, or
//! alone; a matmul with fixed weights times a fixed factor for each column. Makes: the same op with scaled
//! weights and bias, computed by graph algebra over the parameters, which becomes part of the init program. So
//! setting a parameter later is never forbidden. Legal within rounding error, so only under [`Numerics::Fast`].
//!
//! A norm alone becomes a factor and a summand for each channel. Under a precision policy `apply-precision` makes them, since the norm
//! is one op: it reads and writes the short type, computes in f32, and rounds once.
//!
//! ```text
//! %6 = Conv(%0, %1) : [1, 4, 5, 5] f32            %9 = Binary.Mul(…scale…) : [4] f32
//! %7 = BatchNorm(%6, %2, %3, %4, %5)       →      %10 = Binary.Mul(%1, %9 as [4, 1, 1, 1])
//!                                                 %11 = Binary.Sub(%3, %4 · %9)
//!                                                 %12 = Conv(%0, %10, %11) : [1, 4, 5, 5] f32
//! ```

use rlx_ir::op::{Activation, BinaryOp as B};
use rlx_ir::{Dim, Graph, Node, NodeId, Op, Result};

use crate::facts;
use crate::options::Numerics;
use crate::passes::simplify::Simplifier;
use crate::pipeline::PassContext;
use crate::precision::Policy;

/// How many sums between a matmul and its factor are looked through.
const MAX_DEPTH: usize = 4;

/// Runs the pass.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] when the folded op is rejected.
pub fn run(graph: &Graph, context: &PassContext<'_>) -> Result<Graph> {
    let factors = |node: &Node| matches!(node.op, Op::BatchNorm { .. } | Op::Binary(B::Mul));
    if context.options.numerics != Numerics::Fast || !graph.nodes().iter().any(factors) {
        return Ok(graph.clone());
    }
    let mut f = Folder {
        graph,
        uses: crate::rewrite::use_counts(graph),
        fixed: facts::fixed_nodes(graph),
        is_long: Policy::of(context.options).is_long(),
        s: Simplifier::new(graph, context),
    };
    for node in graph.nodes() {
        f.s.begin(node);
        let folded = match node.op {
            Op::BatchNorm { eps } => f.batch_norm(node, eps)?,
            Op::Binary(B::Mul) => f.factor(node)?,
            _ => None,
        };
        match folded.filter(|&id| *f.s.graph().shape(id) == node.shape) {
            Some(id) => f.s.rewriter().replace(node.id, id),
            None => f.s.node(node)?,
        }
    }
    Ok(f.s.finish(true))
}

/// Whether what a batch norm multiplies and adds is known before a run, and what it is applied to is not.
pub(super) fn has_fixed_statistics(node: &Node, fixed: &[bool]) -> bool {
    node.inputs[1..].iter().all(|id| fixed[id.index()]) && !fixed[node.inputs[0].index()]
}

/// `x · scale + shift`: what a batch norm with fixed statistics does to each channel.
pub(super) struct Affine {
    scale: NodeId,
    shift: NodeId,
}

/// What the batch norm `node` does.
pub(super) fn affine(s: &mut Simplifier<'_>, node: &Node, eps: f32) -> Result<Affine> {
    let [gamma, beta, mean, variance] = [1, 2, 3, 4].map(|i| s.rewriter().new_id(node.inputs[i]));
    let eps = s.scalar(s.dtype(variance), f64::from(eps))?;
    let root = s.build(Op::Binary(B::Add), &[variance, eps])?;
    let root = s.build(Op::Activation(Activation::Rsqrt), &[root])?;
    let scale = s.build(Op::Binary(B::Mul), &[gamma, root])?;
    let shift = s.build(Op::Binary(B::Mul), &[mean, scale])?;
    let shift = s.build(Op::Binary(B::Sub), &[beta, shift])?;
    Ok(Affine { scale, shift })
}

impl Affine {
    /// Applied to the channels of `x` `[N, C, …]`.
    pub(super) fn of_channels(&self, s: &mut Simplifier<'_>, x: NodeId) -> Result<NodeId> {
        let mut per_channel = vec![Dim::Static(1); s.dims(x).len().saturating_sub(1)];
        per_channel[0] = s.dims(x)[1];
        let scale = s.reshape(self.scale, per_channel.clone())?;
        let shift = s.reshape(self.shift, per_channel)?;
        let scaled = s.build(Op::Binary(B::Mul), &[x, scale])?;
        s.build(Op::Binary(B::Add), &[scaled, shift])
    }
}

struct Folder<'g> {
    graph: &'g Graph,
    uses: Vec<usize>,
    fixed: Vec<bool>,
    /// Whether nothing will be made shorter than it is.
    is_long: bool,
    s: Simplifier<'g>,
}

impl Folder<'_> {
    fn new_ids(&mut self, ids: &[NodeId]) -> Vec<NodeId> {
        ids.iter().map(|&id| self.s.rewriter().new_id(id)).collect()
    }

    fn binary(&mut self, f: B, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.s.build(Op::Binary(f), &[a, b])
    }

    /// `(x − mean) · scale + beta` with `scale = gamma / √(variance + eps)`.
    fn batch_norm(&mut self, node: &Node, eps: f32) -> Result<Option<NodeId>> {
        let x = node.inputs[0];
        if !has_fixed_statistics(node, &self.fixed) {
            return Ok(None);
        }
        let Affine { scale, shift } = affine(&mut self.s, node, eps)?;
        if let Some(folded) = self.scaled_convolution(x, scale, shift)? {
            return Ok(Some(folded));
        }
        if node.shape.rank() == 2
            && let Some(scaled) = self.scaled_columns(x, scale, MAX_DEPTH)?
        {
            return self.binary(B::Add, scaled, shift).map(Some);
        }
        if !self.is_long {
            return Ok(None);
        }
        let x = self.s.rewriter().new_id(x);
        Affine { scale, shift }.of_channels(&mut self.s, x).map(Some)
    }

    /// A convolution used here only, its weights scaled and its bias moved.
    fn scaled_convolution(&mut self, id: NodeId, scale: NodeId, shift: NodeId) -> Result<Option<NodeId>> {
        let conv = self.graph.node(id);
        let fixed = conv.inputs.iter().skip(1).all(|i| self.fixed[i.index()]);
        if !matches!(conv.op, Op::Conv { .. }) || !fixed || self.uses[id.index()] != 1 {
            return Ok(None);
        }
        let inputs = self.new_ids(&conv.inputs);
        let mut per_output = vec![Dim::Static(1); self.s.dims(inputs[1]).len()];
        per_output[0] = self.s.dims(inputs[1])[0];
        let factor = self.s.reshape(scale, per_output)?;
        let weights = self.binary(B::Mul, inputs[1], factor)?;
        let bias = match inputs.get(2) {
            Some(&bias) => {
                let scaled = self.binary(B::Mul, bias, scale)?;
                self.binary(B::Add, scaled, shift)?
            }
            None => shift,
        };
        self.s.build(conv.op.clone(), &[inputs[0], weights, bias]).map(Some)
    }

    /// `x·W` or `x·W + b`, used here only, times a fixed factor: `x·(W·f)` and `b·f`.
    fn scaled_columns(&mut self, id: NodeId, factor: NodeId, depth: usize) -> Result<Option<NodeId>> {
        let node = self.graph.node(id);
        if self.uses[id.index()] != 1 || node.inputs.len() != 2 || !self.fixed[node.inputs[1].index()] {
            return Ok(None);
        }
        match node.op {
            Op::MatMul if self.graph.shape(node.inputs[1]).rank() == 2 => {
                let inputs = self.new_ids(&node.inputs);
                let weights = self.binary(B::Mul, inputs[1], factor)?;
                self.s.build(Op::MatMul, &[inputs[0], weights]).map(Some)
            }
            Op::Binary(B::Add) if depth > 0 => {
                let Some(scaled) = self.scaled_columns(node.inputs[0], factor, depth - 1)? else {
                    return Ok(None);
                };
                let bias = self.s.rewriter().new_id(node.inputs[1]);
                let bias = self.binary(B::Mul, bias, factor)?;
                self.binary(B::Add, scaled, bias).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// A factor for all columns, or one for each.
    fn factor(&mut self, node: &Node) -> Result<Option<NodeId>> {
        let (x, factor) = (node.inputs[0], node.inputs[1]);
        let shape = self.graph.shape(factor);
        let columns =
            shape.rank() == 0 || (shape.rank() == 1 && shape.dims().last() == node.shape.dims().last());
        let float = node.shape.dtype().is_float();
        if !float || !columns || !self.fixed[factor.index()] || self.graph.shape(x) != &node.shape {
            return Ok(None);
        }
        let factor = self.s.rewriter().new_id(factor);
        self.scaled_columns(x, factor, MAX_DEPTH)
    }
}
