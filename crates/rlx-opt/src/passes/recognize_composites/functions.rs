//! Functions of one element, and softmax.

use std::f64::consts::{FRAC_1_SQRT_2, PI};
use std::sync::LazyLock;

use rlx_ir::op::{Activation as A, BinaryOp as B, ReduceOp};
use rlx_ir::{Node, NodeId, Op, Result};

use super::View;
use crate::matcher::{Pattern, act, add, any, binary, either, mul, named, product, reduce, value};
use crate::passes::simplify::Simplifier;

/// `x·½(1 + erf(x/√2))`
static GELU: LazyLock<Pattern> = LazyLock::new(|| {
    let erf = act(A::Erf, product([any("x")], FRAC_1_SQRT_2));
    product([any("x"), add(erf, value(1.0))], 0.5)
});

/// `x·½(1 + tanh(√(2/π)·(x + 0.044715·x³)))`, also with x taken out of the bracket.
static GELU_APPROX: LazyLock<Pattern> = LazyLock::new(|| {
    let x = || any("x");
    let square = || product([x(), x()], 0.044715);
    let cube =
        either([product([x(), x(), x()], 0.044715), product([binary(B::Pow, x(), value(3.0))], 0.044715)]);
    let factor = (2.0 / PI).sqrt();
    let inner =
        either([product([add(x(), cube)], factor), product([x(), add(square(), value(1.0))], factor)]);
    product([x(), add(act(A::Tanh, inner), value(1.0))], 0.5)
});

/// `x·sigmoid(x)`, `x / (1 + e⁻ˣ)`
static SILU: LazyLock<Pattern> = LazyLock::new(|| {
    either([mul(any("x"), act(A::Sigmoid, any("x"))), binary(B::Div, any("x"), one_plus_exp())])
});

/// `1 / (1 + e⁻ˣ)`
static SIGMOID: LazyLock<Pattern> = LazyLock::new(|| act(A::Recip, one_plus_exp()));

fn one_plus_exp() -> Pattern {
    add(act(A::Exp, act(A::Neg, any("x"))), value(1.0))
}

/// `e / Σe` with `e = exp(x − max x)`
static SOFTMAX: LazyLock<Pattern> = LazyLock::new(|| {
    let shifted = binary(B::Sub, any("x"), named("most", reduce(ReduceOp::Max, any("x"))));
    let sum = || named("sum", reduce(ReduceOp::Sum, any("e")));
    let exp = || named("e", act(A::Exp, shifted.clone()));
    either([binary(B::Div, exp(), sum()), mul(exp(), act(A::Recip, sum()))])
});

/// What stands for a function of one element, or a softmax, written out.
pub(super) fn recognize(view: &View<'_>, node: &Node, s: &mut Simplifier<'_>) -> Result<Option<NodeId>> {
    if !matches!(node.op, Op::Binary(B::Mul | B::Div) | Op::Activation(A::Recip)) {
        return Ok(None);
    }
    let functions: [(&Pattern, A); 4] =
        [(&GELU, A::Gelu), (&GELU_APPROX, A::GeluApprox), (&SILU, A::Silu), (&SIGMOID, A::Sigmoid)];
    for (pattern, f) in functions {
        if let Some(found) = view.find(pattern, node) {
            let x = s.rewriter().new_id(found.node("x"));
            return s.build(Op::Activation(f), &[x]).map(Some);
        }
    }
    softmax(view, node, s)
}

fn softmax(view: &View<'_>, node: &Node, s: &mut Simplifier<'_>) -> Result<Option<NodeId>> {
    let Some(found) = view.find(&SOFTMAX, node) else { return Ok(None) };
    let axes = |name: &str| match &view.node(found.node(name)).op {
        Op::Reduce { axes, .. } => axes.clone(),
        _ => Vec::new(),
    };
    let (most, sum) = (axes("most"), axes("sum"));
    let [axis] = sum[..] else { return Ok(None) };
    if most != sum {
        return Ok(None);
    }
    let x = s.rewriter().new_id(found.node("x"));
    // Counted from the end, as most are written.
    let axis = axis as i32 - node.shape.rank() as i32;
    s.build(Op::Softmax { axis }, &[x]).map(Some)
}
