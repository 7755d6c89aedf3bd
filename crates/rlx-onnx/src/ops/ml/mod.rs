//! Classical machine learning (`ai.onnx.ml`, what `skl2onnx` writes) as ordinary tensor ops.
//!
//! Every op becomes matmuls, comparisons and gathers over all rows at once; the graph has no ops of this domain.
//!
//! | file | ops |
//! |---|---|
//! | [`features`] | scaling, imputing, encoding and selecting of columns |
//! | [`linear`] | linear classifiers and regressors |
//! | [`svm`] | support vector regression |
//! | [`trees`] | trees and forests, level by level |
//!
//! Strings and maps are not tensors: ops that make or need them are errors whose hint says how to export without.

pub(super) mod features;
pub(super) mod linear;
pub(super) mod svm;
pub(super) mod trees;

use crate::import::NodeCx;
use rlx_ir::op::{Activation as A, ArgOp};
use rlx_ir::{DType, Error, NodeId, Op, Value};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

/// What to do instead of exporting an op that makes or takes what is no tensor.
pub(super) fn hint(op: &str) -> Option<&'static str> {
    Some(match op {
        "ZipMap" => {
            "maps are no tensors: export the probabilities as one, to_onnx(model, X, options={id(model): {\"zipmap\": False}})"
        }
        "CategoryMapper" | "CastMap" | "DictVectorizer" => {
            "strings and maps are no tensors: encode them as numbers before the exported part of the pipeline"
        }
        _ => return None,
    })
}

/// An error where the attribute `name`, which would hold strings, is there.
fn no_strings(cx: &NodeCx<'_, '_>, names: &[&str]) -> Result<(), Error> {
    match names.iter().find(|name| cx.attrs.has(name)) {
        Some(name) => Err(cx
            .unsupported(format!("{name}: strings"))
            .with_hint("encode labels and categories as integers before fitting, e.g. by LabelEncoder().fit_transform(y)")),
        None => Ok(()),
    }
}

/// The numbers of an attribute that is a list of floats, or under the name `NAME_as_tensor` a tensor of doubles.
fn numbers(cx: &NodeCx<'_, '_>, name: &str) -> Result<Option<Vec<f64>>, Error> {
    if let Some(tensor) = cx.attrs.tensor(&format!("{name}_as_tensor"))? {
        return Ok(Some(cx.importer.file.tensor(tensor)?.to_const()?.try_value()?.to_f64()));
    }
    Ok(cx.attrs.floats(name)?.map(|list| list.iter().map(|&x| f64::from(x)).collect()))
}

/// A constant matrix or vector of floats, rounded to the type.
fn table(cx: Cx, dtype: DType, dims: &[usize], values: Vec<f64>) -> NodeId {
    cx.constant(Value::float(dtype, dims, values))
}

/// Operand 0 as a matrix of f32, or of f64 where it is one; a vector is one row.
fn rows(cx: Cx) -> Result<NodeId, Error> {
    let shape = cx.shape(0)?;
    let x = cx.x(0)?;
    let to = if shape.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let x = cx.cast(x, to)?;
    match shape.rank() {
        1 => cx.unsqueeze(x, &[0]),
        2 => Ok(x),
        _ => Err(cx.malformed(format!("{shape} is no matrix of rows and features"))),
    }
}

/// How many features a row has.
fn features(cx: &NodeCx<'_, '_>, x: NodeId) -> Result<usize, Error> {
    let dim = cx.shape_of(x).dim(1);
    dim.as_static().ok_or_else(|| cx.open_dimension(format!("{dim} features")))
}

/// Scores `[N, E]` as the op's `post_transform` gives them out.
fn post_transform(cx: Cx, scores: NodeId, name: &str) -> Result<NodeId, Error> {
    match name {
        "NONE" => Ok(scores),
        "LOGISTIC" => cx.activation(A::Sigmoid, scores),
        "SOFTMAX" => cx.add(Op::Softmax { axis: -1 }, &[scores]),
        other => Err(cx.bad_attr("post_transform", other)),
    }
}

/// The label of the largest score of each row; of equal ones the first.
fn winners(cx: Cx, scores: NodeId, labels: &[i64]) -> Result<NodeId, Error> {
    let best = cx.add(Op::ArgReduce { op: ArgOp::Max, axis: 1, keep_dim: false, last: false }, &[scores])?;
    if labels.iter().enumerate().all(|(i, &label)| label == i as i64) {
        return Ok(best);
    }
    let labels = labels.iter().map(|&l| i128::from(l)).collect::<Vec<_>>();
    let table = cx.constant(Value::int(DType::I64, &[labels.len()], labels));
    cx.add(Op::Gather { axis: 0 }, &[table, best])
}
