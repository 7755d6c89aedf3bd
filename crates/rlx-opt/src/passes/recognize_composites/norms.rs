//! Layer norm and RMS norm.

use std::sync::LazyLock;

use rlx_ir::op::{Activation as A, BinaryOp as B, ReduceOp};
use rlx_ir::{Dim, Node, NodeId, Op, Result, Shape, Value};

use super::View;
use crate::matcher::{Match, Pattern, act, add, any, binary, either, mul, named, number, reduce};
use crate::passes::simplify::Simplifier;

/// `d / √(mean(d²) + eps)`
fn over_root(d: Pattern) -> Pattern {
    let mean = named("mean_square", reduce(ReduceOp::Mean, mul(any("d"), any("d"))));
    let variance = add(mean, number("eps"));
    let d = || named("d", d.clone());
    either([
        binary(B::Div, d(), act(A::Sqrt, variance.clone())),
        mul(d(), act(A::Rsqrt, variance.clone())),
        mul(d(), act(A::Recip, act(A::Sqrt, variance))),
    ])
}

/// Without gamma, with gamma, with gamma and beta.
fn with_gamma_and_beta(core: Pattern) -> [Pattern; 3] {
    let scaled = mul(core.clone(), any("gamma"));
    [add(scaled.clone(), any("beta")), scaled, core]
}

static LAYER_NORM: LazyLock<[Pattern; 3]> = LazyLock::new(|| {
    let centred = binary(B::Sub, any("x"), named("mean", reduce(ReduceOp::Mean, any("x"))));
    with_gamma_and_beta(over_root(centred))
});

static RMS_NORM: LazyLock<[Pattern; 3]> = LazyLock::new(|| with_gamma_and_beta(over_root(any("x"))));

/// What stands for a norm written out.
pub(super) fn recognize(view: &View<'_>, node: &Node, s: &mut Simplifier<'_>) -> Result<Option<NodeId>> {
    if !matches!(node.op, Op::Binary(B::Add | B::Mul | B::Div)) {
        return Ok(None);
    }
    for (i, pattern) in LAYER_NORM.iter().enumerate() {
        if let Some(found) = view.find(pattern, node) {
            return layer_norm(view, node, s, &found, i == 0, i < 2);
        }
    }
    for (i, pattern) in RMS_NORM.iter().enumerate().skip(1) {
        if let Some(found) = view.find(pattern, node) {
            return rms_norm(view, node, s, &found, i < 2);
        }
    }
    Ok(None)
}

/// The first of the last dimensions that a reduction goes over; none if it goes over others.
fn trailing_axis(view: &View<'_>, reduce: NodeId) -> Option<usize> {
    let node = view.node(reduce);
    let Op::Reduce { axes, .. } = &node.op else { return None };
    let first = *axes.first()?;
    axes.iter().copied().eq(first..node.shape.rank()).then_some(first)
}

/// Whether gamma and beta leave the shape of what is normalised as it is.
fn keeps_shape(view: &View<'_>, found: &Match, node: &Node) -> bool {
    node.shape.dtype().is_float() && view.graph.shape(found.node("x")) == &node.shape
}

/// `id` with the dimensions of the normalised part, if it broadcasts over the others.
fn affine(s: &mut Simplifier<'_>, id: NodeId, of: &Shape, axis: usize) -> Result<Option<NodeId>> {
    let want = of.dims()[axis..].to_vec();
    let have = s.dims(id).to_vec();
    let own: Vec<Dim> = have.iter().copied().skip(have.len().saturating_sub(want.len())).collect();
    let leading = have.len() - own.len();
    if s.dtype(id) != of.dtype() || own != want || have[..leading].iter().any(|&d| d != Dim::Static(1)) {
        return Ok(None);
    }
    s.reshape(id, want).map(Some)
}

/// A norm without a gamma is made one whose gamma are ones where a row has so many elements at most: they take memory.
const MOST_ONES: usize = 1 << 20;

/// Ones, where a norm has no gamma.
fn ones(s: &mut Simplifier<'_>, of: &Shape, axis: usize) -> Result<Option<NodeId>> {
    let Some(dims) = of.dims()[axis..].iter().map(|d| d.as_static()).collect::<Option<Vec<usize>>>() else {
        return Ok(None);
    };
    let count = Shape::new(&dims, of.dtype()).num_elements();
    let Some(count) = count.filter(|&count| count <= MOST_ONES) else { return Ok(None) };
    s.constant(Value::float(of.dtype(), &dims, vec![1.0; count]).to_const()).map(Some)
}

fn layer_norm(
    view: &View<'_>,
    node: &Node,
    s: &mut Simplifier<'_>,
    found: &Match,
    has_beta: bool,
    has_gamma: bool,
) -> Result<Option<NodeId>> {
    let axis = trailing_axis(view, found.node("mean"));
    let Some((axis, eps)) = axis.zip(found.number("eps")) else { return Ok(None) };
    if trailing_axis(view, found.node("mean_square")) != Some(axis) || !keeps_shape(view, found, node) {
        return Ok(None);
    }
    let x = s.rewriter().new_id(found.node("x"));
    let Some(mut inputs) = gamma(s, found, &node.shape, axis, has_gamma)?.map(|gamma| vec![x, gamma]) else {
        return Ok(None);
    };
    if has_beta {
        let beta = s.rewriter().new_id(found.node("beta"));
        match affine(s, beta, &node.shape, axis)? {
            Some(beta) => inputs.push(beta),
            None => return Ok(None),
        }
    }
    let axis = axis as i32 - node.shape.rank() as i32;
    s.build(Op::LayerNorm { axis, eps: eps as f32 }, &inputs).map(Some)
}

fn gamma(
    s: &mut Simplifier<'_>,
    found: &Match,
    of: &Shape,
    axis: usize,
    has_gamma: bool,
) -> Result<Option<NodeId>> {
    if !has_gamma {
        return ones(s, of, axis);
    }
    let gamma = s.rewriter().new_id(found.node("gamma"));
    affine(s, gamma, of, axis)
}

fn rms_norm(
    view: &View<'_>,
    node: &Node,
    s: &mut Simplifier<'_>,
    found: &Match,
    has_gamma: bool,
) -> Result<Option<NodeId>> {
    let axis = trailing_axis(view, found.node("mean_square"));
    let Some((axis, eps)) = axis.zip(found.number("eps")) else { return Ok(None) };
    if !keeps_shape(view, found, node) {
        return Ok(None);
    }
    let x = s.rewriter().new_id(found.node("x"));
    let Some(gamma) = gamma(s, found, &node.shape, axis, has_gamma)? else { return Ok(None) };
    let axis = axis as i32 - node.shape.rank() as i32;
    s.build(Op::RmsNorm { axis, eps: eps as f32 }, &[x, gamma]).map(Some)
}
