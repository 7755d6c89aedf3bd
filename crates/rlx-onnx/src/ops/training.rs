//! The optimisers of `ai.onnx.preview.training`: one step of Adagrad, Adam, and gradient descent with momentum, as the
//! formulas of their definitions.
//!
//! Operands are the learning rate, the number of steps so far, then for any number of tensors: all tensors, all gradients, and
//! each kind of state. Results are all new tensors and each kind of new state.

use super::{Entry, nodes};
use crate::import::NodeCx;
use rlx_ir::op::{Activation as A, BinaryOp as B, CmpOp};
use rlx_ir::{DType, Error, NodeId};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

const fn training(op: &'static str, emit: fn(&mut NodeCx<'_, '_>) -> Nodes) -> Entry {
    Entry { domain: "ai.onnx.preview.training", ..nodes(op, emit) }
}

pub(super) const OPS: &[Entry] =
    &[training("Adagrad", adagrad), training("Adam", adam), training("Momentum", momentum)];

/// One tensor with its gradient and state.
struct Tensor<'a> {
    x: NodeId,
    /// The gradient, with that of the regularisation.
    gradient: NodeId,
    state: &'a [NodeId],
}

/// Applies `step` to every tensor, which gives the new tensor and the new state. `kinds` is how many tensors of state each has.
fn each(cx: Cx, kinds: usize, step: impl Fn(Cx, &Tensor<'_>) -> Nodes) -> Nodes {
    let all = cx.all()?;
    let tensors = all.len().saturating_sub(2);
    let count = tensors / (2 + kinds);
    if count == 0 || tensors % (2 + kinds) != 0 {
        return Err(cx.malformed(format!(
            "{} operands: a rate, a count, and {} for each tensor",
            all.len(),
            2 + kinds
        )));
    }
    let regular = f64::from(cx.attrs.float("norm_coefficient", 0.0)?);
    let mut found = vec![Vec::with_capacity(count); 1 + kinds];
    for i in 0..count {
        let own = |kind: usize| all[2 + kind * count + i];
        let state: Vec<NodeId> = (0..kinds).map(|kind| own(2 + kind)).collect();
        let pull = cx.with_scalar(B::Mul, own(0), regular)?;
        let gradient = cx.binary(B::Add, pull, own(1))?;
        let new = step(cx, &Tensor { x: own(0), gradient, state: &state })?;
        found.iter_mut().zip(new).for_each(|(list, id)| list.push(id));
    }
    Ok(found.concat())
}

/// A scalar operand as a number of the tensors' type.
fn scalar(cx: Cx, i: usize, dtype: DType) -> Result<NodeId, Error> {
    let x = cx.x(i)?;
    let x = cx.cast(x, dtype)?;
    cx.reshape(x, vec![])
}

/// Whether this is not the first step.
fn later(cx: Cx) -> Result<NodeId, Error> {
    let steps = scalar(cx, 1, DType::I64)?;
    let zero = cx.scalar(DType::I64, 0.0);
    cx.compare(CmpOp::Gt, steps, zero)
}

/// `a·x + b·y`
fn mixed(cx: Cx, a: f64, x: NodeId, b: f64, y: NodeId) -> Result<NodeId, Error> {
    let (x, y) = (cx.with_scalar(B::Mul, x, a)?, cx.with_scalar(B::Mul, y, b)?);
    cx.binary(B::Add, x, y)
}

fn adagrad(cx: Cx) -> Nodes {
    let (decay, epsilon) = (cx.attrs.float("decay_factor", 0.0)?, cx.attrs.float("epsilon", 1e-6)?);
    each(cx, 1, |cx, t| {
        let dtype = cx.shape_of(t.x).dtype();
        let (rate, steps) = (scalar(cx, 0, dtype)?, scalar(cx, 1, dtype)?);
        let slowed = cx.with_scalar(B::Mul, steps, f64::from(decay))?;
        let slowed = cx.with_scalar(B::Add, slowed, 1.0)?;
        let rate = cx.binary(B::Div, rate, slowed)?;
        let square = cx.binary(B::Mul, t.gradient, t.gradient)?;
        let squares = cx.binary(B::Add, t.state[0], square)?;
        let root = cx.activation(A::Sqrt, squares)?;
        let root = cx.with_scalar(B::Add, root, f64::from(epsilon))?;
        let step = cx.binary(B::Mul, rate, t.gradient)?;
        let step = cx.binary(B::Div, step, root)?;
        Ok(vec![cx.binary(B::Sub, t.x, step)?, squares])
    })
}

fn adam(cx: Cx) -> Nodes {
    let (alpha, beta) = (f64::from(cx.attrs.float("alpha", 0.9)?), f64::from(cx.attrs.float("beta", 0.999)?));
    let epsilon = f64::from(cx.attrs.float("epsilon", 1e-6)?);
    let after = f64::from(cx.attrs.float("norm_coefficient_post", 0.0)?);
    each(cx, 2, |cx, t| {
        let dtype = cx.shape_of(t.x).dtype();
        let first = mixed(cx, alpha, t.state[0], 1.0 - alpha, t.gradient)?;
        let square = cx.binary(B::Mul, t.gradient, t.gradient)?;
        let second = mixed(cx, beta, t.state[1], 1.0 - beta, square)?;
        let root = cx.activation(A::Sqrt, second)?;
        let root = cx.with_scalar(B::Add, root, epsilon)?;
        let rate = corrected(cx, [alpha, beta], dtype)?;
        let step = cx.binary(B::Div, first, root)?;
        let step = cx.binary(B::Mul, rate, step)?;
        let x = cx.binary(B::Sub, t.x, step)?;
        Ok(vec![cx.with_scalar(B::Mul, x, 1.0 - after)?, first, second])
    })
}

/// The learning rate times `√(1 − βᵗ) / (1 − αᵗ)`; as it is in the first step.
fn corrected(cx: Cx, [alpha, beta]: [f64; 2], dtype: DType) -> Result<NodeId, Error> {
    let (rate, steps) = (scalar(cx, 0, dtype)?, scalar(cx, 1, dtype)?);
    let rest = |cx: Cx, base: f64| {
        let base = cx.scalar(dtype, base);
        let power = cx.binary(B::Pow, base, steps)?;
        let one = cx.scalar(dtype, 1.0);
        cx.binary(B::Sub, one, power)
    };
    let (second, first) = (rest(cx, beta)?, rest(cx, alpha)?);
    let second = cx.activation(A::Sqrt, second)?;
    let raised = cx.binary(B::Mul, rate, second)?;
    let raised = cx.binary(B::Div, raised, first)?;
    let later = later(cx)?;
    cx.select(later, raised, rate)
}

fn momentum(cx: Cx) -> Nodes {
    let required = |name: &str| cx.attrs.required(name, cx.attrs.float_opt(name)?).map(f64::from);
    let (alpha, beta) = (required("alpha")?, required("beta")?);
    let nesterov = match cx.attrs.text("mode", "standard")? {
        "standard" => false,
        "nesterov" => true,
        other => return Err(cx.malformed(format!("mode = \"{other}\""))),
    };
    each(cx, 1, |cx, t| {
        let dtype = cx.shape_of(t.x).dtype();
        let (later, beta, one) = (later(cx)?, cx.scalar(dtype, beta), cx.scalar(dtype, 1.0));
        let weight = cx.select(later, beta, one)?;
        let kept = cx.with_scalar(B::Mul, t.state[0], alpha)?;
        let new = cx.binary(B::Mul, weight, t.gradient)?;
        let velocity = cx.binary(B::Add, kept, new)?;
        let mut step = velocity;
        if nesterov {
            step = cx.with_scalar(B::Mul, velocity, alpha)?;
            step = cx.binary(B::Add, t.gradient, step)?;
        }
        let rate = scalar(cx, 0, dtype)?;
        let step = cx.binary(B::Mul, rate, step)?;
        Ok(vec![cx.binary(B::Sub, t.x, step)?, velocity])
    })
}
