//! Linear models: a matmul with the coefficients.

use super::{Cx, Labels, Nodes, Slots, both_scores, features, post_transform, rows, table, winner};
use crate::ops::{Entry, any_ml, ml};
use rlx_ir::op::{BinaryOp as B, CmpOp};
use rlx_ir::{DType, Error, NodeId, Op};

pub(in crate::ops) const OPS: &[Entry] =
    &[any_ml("LinearClassifier", linear_classifier), ml("LinearRegressor", linear_regressor)];

/// `X·Wᵀ + b` with one row of `coefficients` for each result.
fn scores(cx: Cx, results: Option<usize>) -> Result<NodeId, Error> {
    let x = rows(cx)?;
    let (width, dtype) = (features(cx, x)?, cx.shape_of(x).dtype());
    let coefficients = cx.attrs.required("coefficients", cx.attrs.floats("coefficients")?)?;
    let results = results.unwrap_or(coefficients.len() / width.max(1));
    if width == 0 || results == 0 || results.checked_mul(width) != Some(coefficients.len()) {
        let message =
            format!("{} coefficients for {width} features and {results} results", coefficients.len());
        return Err(cx.malformed(message));
    }
    // Transposed here, so that the matmul can use them directly.
    let matrix = (0..width * results).map(|i| f64::from(coefficients[i % results * width + i / results]));
    let w = table(cx, dtype, &[width, results], matrix.collect());
    let y = cx.add(Op::MatMul, &[x, w])?;
    let Some(intercepts) = cx.attrs.floats("intercepts")?.filter(|b| !b.is_empty()) else { return Ok(y) };
    if intercepts.len() != results {
        return Err(cx.malformed(format!("{} intercepts for {results} results", intercepts.len())));
    }
    let b = table(cx, dtype, &[results], intercepts.iter().map(|&x| f64::from(x)).collect());
    cx.binary(B::Add, y, b)
}

fn linear_regressor(cx: Cx) -> Nodes {
    let targets = usize::try_from(cx.attrs.int("targets", 1)?).map_err(|_| cx.malformed("targets < 0"))?;
    let y = scores(cx, Some(targets))?;
    let transform = cx.attrs.text("post_transform", "NONE")?;
    Ok(vec![post_transform(cx, y, transform)?])
}

/// Labels are chosen by the scores before the transform, which keeps their order. One score of two classes is the second
/// one's; as ONNX Runtime has it, the first one's share is the rest.
fn linear_classifier(cx: Cx) -> Slots {
    let labels = Labels::read(cx, "classlabels_ints", "classlabels_strings")?;
    let mut y = scores(cx, None)?;
    let classes = cx.shape_of(y).dim(1).as_static();
    let transform = cx.attrs.text("post_transform", "NONE")?;
    let single = classes == Some(1) && labels.len() == 2;
    if !single && classes != Some(labels.len()) {
        return Err(cx.unsupported(format!("{} labels for {classes:?} rows of coefficients", labels.len())));
    }
    let (label, scores) = if single {
        let zero = cx.scalar(cx.shape_of(y).dtype(), 0.0);
        let second = cx.compare(CmpOp::Gt, y, zero)?;
        let rows = cx.shape_of(y).dim(0);
        let second = cx.reshape(second, vec![rows])?;
        // Any softmax of one score is left out.
        y = if transform == "LOGISTIC" { post_transform(cx, y, transform)? } else { y };
        (cx.cast(second, DType::I64)?, both_scores(cx, y, true)?)
    } else {
        (winner(cx, y)?, post_transform(cx, y, transform)?)
    };
    let label = labels.at(cx, label)?;
    Ok(vec![label, cx.importer.node_slot(scores)])
}
