//! Matmuls and determinants.

use super::{Entry, nodes};
use crate::import::NodeCx;
use rlx_ir::op::BinaryOp;
use rlx_ir::{Error, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] = &[nodes("Det", det), nodes("MatMul", matmul), nodes("Gemm", gemm)];

fn det(cx: Cx) -> Nodes {
    let x = cx.x(0)?;
    Ok(vec![cx.add(Op::Det, &[x])?])
}

fn matmul(cx: Cx) -> Nodes {
    let (a, b) = (cx.x(0)?, cx.x(1)?);
    Ok(vec![cx.add(Op::MatMul, &[a, b])?])
}

/// `α·A′·B′ + β·C`, A′ and B′ transposed if requested; factors of 1 add no nodes.
pub(super) fn gemm(cx: Cx) -> Nodes {
    let (alpha, beta) = (cx.attrs.float("alpha", 1.0)?, cx.attrs.float("beta", 1.0)?);
    let (mut a, mut b) = (cx.x(0)?, cx.x(1)?);
    if cx.attrs.flag("transA", false)? {
        a = cx.transpose(a, &[1, 0])?;
    }
    if cx.attrs.flag("transB", false)? {
        b = cx.transpose(b, &[1, 0])?;
    }
    let mut y = cx.add(Op::MatMul, &[a, b])?;
    if alpha != 1.0 {
        y = cx.with_scalar(BinaryOp::Mul, y, f64::from(alpha))?;
    }
    let Some(mut c) = cx.x_opt(2)? else { return Ok(vec![y]) };
    if beta != 1.0 {
        c = cx.with_scalar(BinaryOp::Mul, c, f64::from(beta))?;
    }
    Ok(vec![cx.binary(BinaryOp::Add, y, c)?])
}
