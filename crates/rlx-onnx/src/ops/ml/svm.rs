//! Support vector regression: the kernel of every row with every support vector, then a matmul with their weights.

use super::{Cx, Nodes, features, numbers, post_transform, rows, table};
use crate::ops::{Entry, ml};
use rlx_ir::op::{Activation as A, BinaryOp as B, CmpOp, ReduceOp};
use rlx_ir::{DType, Error, NodeId, Op};

pub(in crate::ops) const OPS: &[Entry] = &[ml("SVMRegressor", svm_regressor)];

/// `k(x, v)` of each row with each of `count` vectors: `[N, count]`.
fn kernel(cx: Cx, x: NodeId, vectors: Vec<f64>, count: usize) -> Result<NodeId, Error> {
    let width = vectors.len() / count.max(1);
    let dtype = cx.shape_of(x).dtype();
    let params = numbers(cx, "kernel_params")?.unwrap_or_default();
    let param = |i: usize| params.get(i).copied().unwrap_or(0.0);
    let name = cx.attrs.text("kernel_type", "LINEAR")?;
    if name == "RBF" {
        // The differences themselves: squares of large coordinates would cancel.
        let rows = cx.unsqueeze(x, &[1])?;
        let vectors = table(cx, dtype, &[1, count, width], vectors);
        let difference = cx.binary(B::Sub, rows, vectors)?;
        let square = cx.binary(B::Mul, difference, difference)?;
        let distance = cx.reduce(square, ReduceOp::Sum, &[2], false)?;
        let scaled = cx.with_scalar(B::Mul, distance, -param(0))?;
        return cx.activation(A::Exp, scaled);
    }
    let transposed = (0..vectors.len()).map(|i| vectors[i % count * width + i / count]).collect();
    let vectors = table(cx, dtype, &[width, count], transposed);
    let product = cx.add(Op::MatMul, &[x, vectors])?;
    if name == "LINEAR" {
        return Ok(product);
    }
    let scaled = cx.with_scalar(B::Mul, product, param(0))?;
    let shifted = cx.with_scalar(B::Add, scaled, param(1))?;
    match name {
        "POLY" => cx.with_scalar(B::Pow, shifted, param(2)),
        "SIGMOID" => cx.activation(A::Tanh, shifted),
        other => Err(cx.bad_attr("kernel_type", other)),
    }
}

fn svm_regressor(cx: Cx) -> Nodes {
    let x = rows(cx)?;
    let (width, dtype) = (features(cx, x)?, cx.shape_of(x).dtype());
    let coefficients = numbers(cx, "coefficients")?;
    let coefficients = cx.attrs.required("coefficients", coefficients)?;
    let rho = numbers(cx, "rho")?.and_then(|r| r.first().copied()).unwrap_or(0.0);
    let supports = usize::try_from(cx.attrs.int("n_supports", 0)?).unwrap_or(0);
    // Without support vectors the coefficients are the one vector that rows are multiplied by.
    let vectors =
        if supports > 0 { numbers(cx, "support_vectors")?.unwrap_or_default() } else { coefficients.clone() };
    let count = supports.max(1);
    let weights = if supports > 0 { coefficients } else { vec![1.0] };
    if count.checked_mul(width) != Some(vectors.len()) || weights.len() != count {
        let message = format!(
            "{} numbers in {count} vectors with {} weights, for {width} features",
            vectors.len(),
            weights.len()
        );
        return Err(cx.malformed(message));
    }
    let near = kernel(cx, x, vectors, count)?;
    let weights = table(cx, dtype, &[count, 1], weights);
    let y = cx.add(Op::MatMul, &[near, weights])?;
    let mut y = cx.with_scalar(B::Add, y, rho)?;
    if cx.attrs.flag("one_class", false)? {
        let (zero, one, minus) = (cx.scalar(dtype, 0.0), cx.scalar(dtype, 1.0), cx.scalar(dtype, -1.0));
        let inside = cx.compare(CmpOp::Gt, y, zero)?;
        y = cx.select(inside, one, minus)?;
    }
    let y = cx.cast(y, DType::F32)?;
    let transform = cx.attrs.text("post_transform", "NONE")?;
    Ok(vec![post_transform(cx, y, transform)?])
}
