//! Classical machine learning (`ai.onnx.ml`, what `skl2onnx` writes) as ordinary tensor ops.
//!
//! Every op becomes ordinary tensor ops over all rows at once: matmuls, squared distances, ensembles of trees.
//!
//! | file | ops |
//! |---|---|
//! | [`features`] | scaling, imputing, encoding and selecting of columns |
//! | [`linear`] | linear classifiers and regressors |
//! | [`svm`] | support vector machines |
//! | [`maps`] | maps of keys to values, as tensors with a column for each key |
//! | [`trees`] | trees and forests |
//!
//! Labels and categories may be strings: codes in a table, as [`crate::import::held`] has it.

mod coupling;
pub(super) mod features;
pub(super) mod linear;
pub(super) mod maps;
pub(super) mod svm;
pub(super) mod trees;

use super::strings::words;
use crate::import::{NodeCx, SlotId};
use rlx_ir::op::{Activation as A, ArgOp, BinaryOp as B, CmpOp, ReduceOp};
use rlx_ir::{DType, Error, NodeId, Op, Value};
use std::rc::Rc;

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;
type Slots = Result<Vec<SlotId>, Error>;

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
        // What is 0 stays 0.
        "SOFTMAX_ZERO" => {
            let dtype = cx.shape_of(scores).dtype();
            let size = cx.activation(A::Abs, scores)?;
            let bound = cx.scalar(dtype, 1e-7);
            let there = cx.compare(CmpOp::Gt, size, bound)?;
            let max = cx.reduce(scores, ReduceOp::Max, &[1], true)?;
            let below = cx.binary(B::Sub, scores, max)?;
            let e = cx.activation(A::Exp, below)?;
            let zero = cx.scalar(dtype, 0.0);
            let e = cx.select(there, e, zero)?;
            let sum = cx.reduce(e, ReduceOp::Sum, &[1], true)?;
            let any = cx.compare(CmpOp::Gt, sum, zero)?;
            let one = cx.scalar(dtype, 1.0);
            let sum = cx.select(any, sum, one)?;
            cx.binary(B::Div, e, sum)
        }
        // The quantile of the normal distribution.
        "PROBIT" => {
            let twice = cx.with_scalar(B::Mul, scores, 2.0)?;
            let centred = cx.with_scalar(B::Sub, twice, 1.0)?;
            let y = cx.activation(A::Erfinv, centred)?;
            cx.with_scalar(B::Mul, y, std::f64::consts::SQRT_2)
        }
        other => Err(cx.bad_attr("post_transform", other)),
    }
}

/// The labels of a classifier.
pub(super) enum Labels {
    Ints(Vec<i64>),
    Strings(Vec<Rc<str>>),
}

impl Labels {
    /// Those of the attributes with these names, one of which is given.
    fn read(cx: &NodeCx<'_, '_>, ints: &str, strings: &str) -> Result<Labels, Error> {
        if let Some(list) = words(cx, strings)?.filter(|list| !list.is_empty()) {
            return Ok(Labels::Strings(list));
        }
        Ok(Labels::Ints(cx.attrs.required(ints, cx.attrs.ints(ints)?)?.to_vec()))
    }

    fn len(&self) -> usize {
        match self {
            Labels::Ints(list) => list.len(),
            Labels::Strings(list) => list.len(),
        }
    }

    /// The label at each place.
    fn at(&self, cx: Cx, place: NodeId) -> Result<SlotId, Error> {
        match self {
            Labels::Strings(list) => cx.labelled(place, list),
            Labels::Ints(list) => {
                let mut y = cx.cast(place, DType::I64)?;
                if list.iter().enumerate().any(|(i, &label)| label != i as i64) {
                    y = cx.by_code(y, list.clone())?;
                }
                Ok(cx.importer.node_slot(y))
            }
        }
    }
}

/// The place of the largest score of each row; of equal ones the first.
fn winner(cx: Cx, scores: NodeId) -> Result<NodeId, Error> {
    cx.add(Op::ArgReduce { op: ArgOp::Max, axis: 1, keep_dim: false, last: false }, &[scores])
}

/// The two scores of a binary classifier that has one: `1 − s` and `s`, or `−s` and `s`.
fn both_scores(cx: Cx, score: NodeId, shares: bool) -> Result<NodeId, Error> {
    let dtype = cx.shape_of(score).dtype();
    let other = if shares {
        let one = cx.scalar(dtype, 1.0);
        cx.binary(B::Sub, one, score)?
    } else {
        cx.activation(A::Neg, score)?
    };
    cx.add(Op::Concat { axis: 1 }, &[other, score])
}
