//! Support vector machines: the kernel of every row with every support vector, then a matmul with their weights.
//!
//! A classifier of `C` classes has a score for each pair of them, which is a vote for one of the two.

use super::{Cx, Labels, Nodes, Slots, both_scores, features, numbers, post_transform, rows, table, winner};
use crate::ops::{Entry, any_ml, ml};
use rlx_ir::op::{Activation as A, BinaryOp as B, CmpOp};
use rlx_ir::{DType, Error, NodeId, Op};

pub(in crate::ops) const OPS: &[Entry] =
    &[any_ml("SVMClassifier", svm_classifier), ml("SVMRegressor", svm_regressor)];

/// `k(x, v)` of each row with each of `count` vectors: `[N, count]`.
fn kernel(cx: Cx, x: NodeId, vectors: Vec<f64>, count: usize) -> Result<NodeId, Error> {
    let width = vectors.len() / count.max(1);
    let dtype = cx.shape_of(x).dtype();
    let params = numbers(cx, "kernel_params")?.unwrap_or_default();
    let param = |i: usize| params.get(i).copied().unwrap_or(0.0);
    let name = cx.attrs.text("kernel_type", "LINEAR")?;
    let columns = (0..vectors.len()).map(|i| vectors[i % count * width + i / count]).collect();
    let columns = table(cx, dtype, &[width, count], columns);
    if name == "RBF" {
        let distance = cx.add(Op::SquaredDistances, &[x, columns])?;
        let scaled = cx.with_scalar(B::Mul, distance, -param(0))?;
        return cx.activation(A::Exp, scaled);
    }
    let product = cx.add(Op::MatMul, &[x, columns])?;
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

/// The scores of all pairs of classes, `[N, C·(C−1)/2]`: pair `(i, j)` sums the vectors of `i` by row `j − 1` of the
/// coefficients, and those of `j` by row `i`.
fn pair_scores(cx: Cx, x: NodeId, per_class: &[usize], rho: &[f64]) -> Result<NodeId, Error> {
    let (width, dtype, classes) = (features(cx, x)?, cx.shape_of(x).dtype(), per_class.len());
    let count = per_class.iter().try_fold(0usize, |n, &c| n.checked_add(c));
    let count = count.ok_or_else(|| cx.malformed("vectors_per_class overflows"))?;
    let vectors = numbers(cx, "support_vectors")?.unwrap_or_default();
    let coefficients = numbers(cx, "coefficients")?.unwrap_or_default();
    let pairs = classes * classes.saturating_sub(1) / 2;
    let rows = count.checked_mul(classes.saturating_sub(1));
    let fits =
        count > 0 && count.checked_mul(width) == Some(vectors.len()) && rows == Some(coefficients.len());
    if !fits || rho.len() != pairs {
        let lengths = [vectors.len(), coefficients.len(), rho.len()];
        return Err(cx.malformed(format!(
            "{lengths:?} numbers for {count} vectors of {width} features, {pairs} pairs"
        )));
    }
    let near = kernel(cx, x, vectors, count)?;
    let starts: Vec<usize> = (0..classes).map(|c| per_class[..c].iter().sum()).collect();
    let mut weights = cx.importer.zeros(count, pairs)?;
    let mut pair = 0;
    for i in 0..classes {
        for j in i + 1..classes {
            for (class, row) in [(i, j - 1), (j, i)] {
                for v in starts[class]..starts[class] + per_class[class] {
                    weights[v * pairs + pair] = coefficients[row * count + v];
                }
            }
            pair += 1;
        }
    }
    let weights = table(cx, dtype, &[count, pairs], weights);
    let y = cx.add(Op::MatMul, &[near, weights])?;
    let rho = table(cx, dtype, &[pairs], rho.to_vec());
    cx.binary(B::Add, y, rho)
}

/// For each pair, the classes it is of: the first wins where the score is above 0. Votes `[N, C]`.
fn votes(cx: Cx, scores: NodeId, classes: usize) -> Result<NodeId, Error> {
    let pairs = classes * (classes - 1) / 2;
    let mut ways = [vec![0.0; pairs * classes], vec![0.0; pairs * classes]];
    let mut pair = 0;
    for i in 0..classes {
        for j in i + 1..classes {
            ways[0][pair * classes + i] = 1.0;
            ways[1][pair * classes + j] = 1.0;
            pair += 1;
        }
    }
    let dtype = cx.shape_of(scores).dtype();
    let zero = cx.scalar(dtype, 0.0);
    let first = cx.compare(CmpOp::Gt, scores, zero)?;
    let second = cx.activation(A::Not, first)?;
    let mut sum: Option<NodeId> = None;
    for (won, way) in [first, second].into_iter().zip(ways) {
        let won = cx.cast(won, dtype)?;
        let way = table(cx, dtype, &[pairs, classes], way);
        let part = cx.add(Op::MatMul, &[won, way])?;
        sum = Some(if let Some(other) = sum { cx.binary(B::Add, other, part)? } else { part });
    }
    sum.ok_or_else(|| cx.malformed("no pairs"))
}

/// `1 / (1 + e^(a·s + b))` of each pair's score, kept away from 0 and 1.
fn pair_probabilities(cx: Cx, scores: NodeId, a: Vec<f64>, b: Vec<f64>) -> Result<NodeId, Error> {
    let (dtype, pairs) = (cx.shape_of(scores).dtype(), a.len());
    let a = table(cx, dtype, &[pairs], a.into_iter().map(|v| -v).collect());
    let b = table(cx, dtype, &[pairs], b.into_iter().map(|v| -v).collect());
    let y = cx.binary(B::Mul, scores, a)?;
    let y = cx.binary(B::Add, y, b)?;
    let y = cx.activation(A::Sigmoid, y)?;
    let y = cx.with_scalar(B::Max, y, 1e-7)?;
    cx.with_scalar(B::Min, y, 1.0 - 1e-7)
}

fn svm_classifier(cx: Cx) -> Slots {
    let labels = Labels::read(cx, "classlabels_ints", "classlabels_strings")?;
    let x = rows(cx)?;
    let per_class = cx.attrs.ints("vectors_per_class")?.unwrap_or_default();
    let per_class = per_class.iter().map(|&n| usize::try_from(n).ok()).collect::<Option<Vec<_>>>();
    let per_class = per_class.ok_or_else(|| cx.malformed("vectors_per_class < 0"))?;
    let rho = numbers(cx, "rho")?.unwrap_or_default();
    let transform = cx.attrs.text("post_transform", "NONE")?;
    let classes = labels.len();
    if per_class.is_empty() {
        return linear_scores(cx, x, &labels, &rho, transform);
    }
    if classes < 2 || classes != per_class.len() {
        return Err(cx.unsupported(format!("{classes} labels for vectors of {} classes", per_class.len())));
    }
    cx.importer.spend(classes.saturating_mul(classes))?;
    let scores = pair_scores(cx, x, &per_class, &rho)?;
    let (a, b) = (numbers(cx, "prob_a")?.unwrap_or_default(), numbers(cx, "prob_b")?.unwrap_or_default());
    // As in ONNX Runtime and LIBSVM, the label has the most votes, not the highest probability.
    let place = votes(cx, scores, classes)?;
    let place = winner(cx, place)?;
    let mut y = scores;
    if !a.is_empty() {
        if a.len() != rho.len() || b.len() != rho.len() {
            return Err(cx.malformed(format!("{} and {} numbers for {} pairs", a.len(), b.len(), rho.len())));
        }
        let pairs = pair_probabilities(cx, scores, a, b)?;
        y = super::coupling::coupled(cx, pairs, classes)?;
    } else if classes == 2 {
        y = both_scores(cx, scores, transform.starts_with("SOFTMAX"))?;
    }
    let done = a_softmax_of_one(classes, transform) && numbers(cx, "prob_a")?.unwrap_or_default().is_empty();
    let y = cx.cast(y, DType::F32)?;
    let y = if done { y } else { post_transform(cx, y, transform)? };
    Ok(vec![labels.at(cx, place)?, cx.importer.node_slot(y)])
}

/// As ONNX Runtime has it, a softmax of the one score of two classes is their shares.
fn a_softmax_of_one(classes: usize, transform: &str) -> bool {
    classes == 2 && transform.starts_with("SOFTMAX")
}

/// Without support vectors: one row of coefficients for each class.
fn linear_scores(cx: Cx, x: NodeId, labels: &Labels, rho: &[f64], transform: &str) -> Slots {
    let (width, classes) = (features(cx, x)?, labels.len());
    let coefficients = numbers(cx, "coefficients")?.unwrap_or_default();
    if classes == 0 || width.checked_mul(classes) != Some(coefficients.len()) || rho.is_empty() {
        let message = format!("{} coefficients of {classes} classes, {width} features", coefficients.len());
        return Err(cx.malformed(message));
    }
    let y = kernel(cx, x, coefficients, classes)?;
    let y = cx.with_scalar(B::Add, y, rho[0])?;
    let place = winner(cx, y)?;
    let y = cx.cast(y, DType::F32)?;
    let y = post_transform(cx, y, transform)?;
    Ok(vec![labels.at(cx, place)?, cx.importer.node_slot(y)])
}
