//! Linear models: a matmul with the coefficients.

use super::{Cx, Nodes, features, no_strings, post_transform, rows, table, winners};
use crate::ops::{Entry, ml};
use rlx_ir::op::BinaryOp as B;
use rlx_ir::{Error, NodeId, Op};

pub(in crate::ops) const OPS: &[Entry] =
    &[ml("LinearClassifier", linear_classifier), ml("LinearRegressor", linear_regressor)];

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

/// Labels are chosen by the scores before the transform, which keeps their order.
fn linear_classifier(cx: Cx) -> Nodes {
    no_strings(cx, &["classlabels_strings"])?;
    let labels = cx.attrs.required("classlabels_ints", cx.attrs.ints("classlabels_ints")?)?;
    let y = scores(cx, None)?;
    let classes = cx.shape_of(y).dim(1).as_static();
    if classes != Some(labels.len()) {
        return Err(cx.unsupported(format!("{} labels for {classes:?} rows of coefficients", labels.len())));
    }
    let transform = cx.attrs.text("post_transform", "NONE")?;
    Ok(vec![winners(cx, y, labels)?, post_transform(cx, y, transform)?])
}
