//! Classification losses.

use super::{Entry, nodes};
use crate::import::NodeCx;
use rlx_ir::op::{Activation as A, BinaryOp as B, CmpOp, ReduceOp};
use rlx_ir::{DType, Dim, Error, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] = &[
    nodes("NegativeLogLikelihoodLoss", negative_log_likelihood),
    nodes("SoftmaxCrossEntropyLoss", softmax_cross_entropy),
];

fn negative_log_likelihood(cx: Cx) -> Nodes {
    let x = cx.x(0)?;
    Ok(vec![likelihood_loss(cx, x)?])
}

fn softmax_cross_entropy(cx: Cx) -> Nodes {
    let x = cx.x(0)?;
    let log = cx.add(Op::LogSoftmax { axis: 1 }, &[x])?;
    Ok(vec![likelihood_loss(cx, log)?, log])
}

/// `−wₜ·xₜ` for each target class `t`: reduced as a sum, a mean over the weights, or not at all.
fn likelihood_loss(cx: Cx, x: NodeId) -> Result<NodeId, Error> {
    let target = cx.x(1)?;
    let mut target = cx.cast(target, DType::I64)?;
    let dtype = cx.shape_of(x).dtype();
    let dims = cx.shape_of(target).dims().to_vec();
    let mut counted = None;
    if let Some(ignored) = cx.attrs.int_opt("ignore_index")? {
        let (ignored, zero) = (cx.scalar(DType::I64, ignored as f64), cx.scalar(DType::I64, 0.0));
        let kept = cx.compare(CmpOp::Ne, target, ignored)?;
        target = cx.select(kept, target, zero)?;
        counted = Some(kept);
    }
    let index = cx.unsqueeze(target, &[1])?;
    let picked = cx.add(Op::GatherElements { axis: 1 }, &[x, index])?;
    let picked = cx.reshape(picked, dims.clone())?;
    let mut loss = cx.activation(A::Neg, picked)?;
    let weights = example_weights(cx, target, counted, &dims, dtype)?;
    if let Some(weights) = weights {
        loss = cx.binary(B::Mul, loss, weights)?;
    }
    let axes: Vec<usize> = (0..dims.len()).collect();
    match (cx.attrs.text("reduction", "mean")?, weights) {
        ("none", _) => Ok(loss),
        ("sum", _) => cx.reduce(loss, ReduceOp::Sum, &axes, false),
        ("mean", None) => cx.reduce(loss, ReduceOp::Mean, &axes, false),
        ("mean", Some(weights)) => {
            let (total, weight) = (
                cx.reduce(loss, ReduceOp::Sum, &axes, false)?,
                cx.reduce(weights, ReduceOp::Sum, &axes, false)?,
            );
            cx.binary(B::Div, total, weight)
        }
        (other, _) => Err(cx.malformed(format!("reduction = \"{other}\""))),
    }
}

/// The weight of each example: its class's, and 0 where it is ignored. `None` when all are 1.
fn example_weights(
    cx: Cx,
    target: NodeId,
    counted: Option<NodeId>,
    dims: &[Dim],
    dtype: DType,
) -> Result<Option<NodeId>, Error> {
    let mut weights = match cx.x_opt(2)? {
        Some(classes) => Some(cx.add(Op::Gather { axis: 0 }, &[classes, target])?),
        None => None,
    };
    if let Some(counted) = counted {
        let (one, zero) = (cx.scalar(dtype, 1.0), cx.scalar(dtype, 0.0));
        let present = weights.unwrap_or(one);
        let chosen = cx.select(counted, present, zero)?;
        weights = Some(cx.expand(chosen, dims.to_vec())?);
    }
    Ok(weights)
}
