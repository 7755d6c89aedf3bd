//! Probabilities of classes from those of all pairs of them.
//!
//! The second method of Wu, Lin and Weng, "Probability Estimates for Multi-class Classification by Pairwise Coupling" (2004), as
//! LIBSVM and ONNX Runtime iterate it: at most 100 times, and for each row until its error is below 0.005 / classes. With
//! `r[i][j]` the probability of `i` among `i` and `j`:
//!
//! ```text
//! Q[t][t] = Σⱼ r[j][t]²    Q[t][j] = −r[j][t]·r[t][j]    minimise pᵀQp with Σ p = 1
//! ```

use super::Cx;
use rlx_ir::op::{Activation as A, BinaryOp as B, Body, CmpOp, ReduceOp};
use rlx_ir::{DType, Dim, Error, Graph, NodeId, Op, Shape, Value};
use std::sync::Arc;

const MOST_ITERATIONS: i128 = 100;

/// `[N, C]` from the pairs `[N, C·(C−1)/2]`, of each the probability of the first class.
pub(super) fn coupled(cx: Cx, pairs: NodeId, classes: usize) -> Result<NodeId, Error> {
    let (dtype, rows) = (cx.shape_of(pairs).dtype(), cx.shape_of(pairs).dim(0));
    let q = quadratic_form(cx, pairs, classes)?;
    let start = cx.scalar(dtype, 1.0 / classes as f64);
    let start = cx.expand(start, vec![rows, classes.into()])?;
    let limit = cx.constant(Value::int(DType::I64, &[], vec![MOST_ITERATIONS]));
    let on = cx.constant(Value::bools(&[], [true]));
    cx.importer.visit_many(classes.saturating_mul(16))?;
    let body = iteration(rows, classes, dtype)?;
    let op = Op::Loop {
        body: Arc::new(Body { graph: body }),
        trips: Dim::Static(0),
        count: None,
        carried: 1,
        scanned: 0,
    };
    let looped = cx.importer.push(op, &[limit, on, start, q])?;
    cx.importer.graph.result(looped, 0)
}

/// `Q`, `[N, C, C]`.
fn quadratic_form(cx: Cx, pairs: NodeId, classes: usize) -> Result<NodeId, Error> {
    let (dtype, rows) = (cx.shape_of(pairs).dtype(), cx.shape_of(pairs).dim(0));
    let count = classes * (classes - 1) / 2;
    let (one, zero) = (cx.scalar(dtype, 1.0), cx.scalar(dtype, 0.0));
    let others = cx.binary(B::Sub, one, pairs)?;
    let none = cx.expand(zero, vec![rows, 1usize.into()])?;
    let all = cx.add(Op::Concat { axis: 1 }, &[pairs, others, none])?;
    // Column of the pair (i, j), of its opposite, or of the zeros on the diagonal.
    let column = |i: usize, j: usize| {
        let (a, b) = (i.min(j), i.max(j));
        let pair = a * (2 * classes - a - 1) / 2 + (b.max(a + 1) - a - 1);
        (if i == j { 2 * count } else { pair + if i < j { 0 } else { count } }) as i128
    };
    let r = matrix(cx, all, classes, &column)?;
    let transposed = matrix(cx, all, classes, &|i, j| column(j, i))?;
    let product = cx.binary(B::Mul, r, transposed)?;
    let squares = cx.binary(B::Mul, transposed, transposed)?;
    let diagonal = cx.reduce(squares, ReduceOp::Sum, &[2], true)?;
    let unit = (0..classes * classes).map(|k| if k / classes == k % classes { 1.0 } else { 0.0 }).collect();
    let unit = cx.constant(Value::float(dtype, &[classes, classes], unit));
    let diagonal = cx.binary(B::Mul, diagonal, unit)?;
    cx.binary(B::Sub, diagonal, product)
}

/// Columns of `all` as a matrix for each row.
fn matrix(cx: Cx, all: NodeId, classes: usize, at: &dyn Fn(usize, usize) -> i128) -> Result<NodeId, Error> {
    let rows = cx.shape_of(all).dim(0);
    let places = (0..classes * classes).map(|k| at(k / classes, k % classes)).collect();
    let places = cx.constant(Value::int(DType::I64, &[classes * classes], places));
    let flat = cx.add(Op::Gather { axis: 1 }, &[all, places])?;
    cx.reshape(flat, vec![rows, classes.into(), classes.into()])
}

/// The body of the loop: the probabilities one iteration further, of rows that have not converged.
fn iteration(rows: Dim, classes: usize, dtype: DType) -> Result<Graph, Error> {
    let mut g = Graph::new("coupling");
    let (square, vector) = ([rows, classes.into(), classes.into()], [rows, classes.into()]);
    g.input("iteration", Shape::scalar(DType::I64));
    let on = g.input("on", Shape::scalar(DType::Bool));
    let old = g.input("p", Shape::from_dims(&vector, dtype));
    let q = g.input("q", Shape::from_dims(&square, dtype));
    let mut build = Build { g: &mut g, dtype };
    let wide = build.add(Op::Reshape { to: vec![rows, 1usize.into(), classes.into()] }, &[old])?;
    let products = build.binary(B::Mul, q, wide)?;
    let mut qp = build.sum(products, 2, false)?;
    let terms = build.binary(B::Mul, old, qp)?;
    let mut total = build.sum(terms, 1, true)?;
    let error = build.binary(B::Sub, qp, total)?;
    let error = build.add(Op::Activation(A::Abs), &[error])?;
    let error = build.add(Op::Reduce { op: ReduceOp::Max, axes: vec![1], keep_dim: true }, &[error])?;
    let bound = build.scalar(0.005 / classes as f64);
    let active = build.add(Op::Compare(CmpOp::Ge), &[error, bound])?;
    let (mut p, one, two) = (old, build.scalar(1.0), build.scalar(2.0));
    for t in 0..classes {
        let row = build.slice(q, 1, t, rows, classes)?;
        let row = build.add(Op::Reshape { to: vector.to_vec() }, &[row])?;
        let own = build.slice(row, 1, t, rows, classes)?;
        let qp_t = build.slice(qp, 1, t, rows, classes)?;
        let distance = build.binary(B::Sub, total, qp_t)?;
        let step = build.binary(B::Div, distance, own)?;
        let scale = build.binary(B::Add, step, one)?;
        // (pQp + step·(step·Q[t][t] + 2·Qp[t])) / (1 + step)²
        let (bent, twice) = (build.binary(B::Mul, step, own)?, build.binary(B::Mul, qp_t, two)?);
        let gain = build.binary(B::Add, bent, twice)?;
        let gain = build.binary(B::Mul, step, gain)?;
        total = build.binary(B::Add, total, gain)?;
        total = build.binary(B::Div, total, scale)?;
        total = build.binary(B::Div, total, scale)?;
        let along = build.binary(B::Mul, step, row)?;
        qp = build.binary(B::Add, qp, along)?;
        qp = build.binary(B::Div, qp, scale)?;
        let here = (0..classes).map(|i| if i == t { 1.0 } else { 0.0 }).collect();
        let here = build.g.constant(Value::float(dtype, &[classes], here).to_const());
        let here = build.binary(B::Mul, step, here)?;
        p = build.binary(B::Add, p, here)?;
        p = build.binary(B::Div, p, scale)?;
    }
    let p = build.add(Op::Where, &[active, p, old])?;
    g.set_outputs(vec![on, p]);
    Ok(g)
}

/// Adds nodes to the body.
struct Build<'a> {
    g: &'a mut Graph,
    dtype: DType,
}

impl Build<'_> {
    fn add(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId, Error> {
        self.g.try_add(op, inputs)
    }

    fn binary(&mut self, f: B, a: NodeId, b: NodeId) -> Result<NodeId, Error> {
        self.add(Op::Binary(f), &[a, b])
    }

    fn sum(&mut self, x: NodeId, axis: usize, keep_dim: bool) -> Result<NodeId, Error> {
        self.add(Op::Reduce { op: ReduceOp::Sum, axes: vec![axis], keep_dim }, &[x])
    }

    fn scalar(&mut self, x: f64) -> NodeId {
        self.g.constant(Value::float(self.dtype, &[], vec![x]).rounded().to_const())
    }

    /// Index `at` of the second dimension, which stays with size 1.
    fn slice(
        &mut self,
        x: NodeId,
        axis: usize,
        at: usize,
        rows: Dim,
        classes: usize,
    ) -> Result<NodeId, Error> {
        let rank = self.g.shape(x).rank();
        let mut to = vec![rows, 1usize.into()];
        to.extend((2..rank).map(|_| Dim::from(classes)));
        let starts =
            (0..rank).map(|i| rlx_ir::Extent::Const(if i == axis { at as i64 } else { 0 })).collect();
        self.add(Op::Slice { starts, steps: vec![1; rank], to }, &[x])
    }
}
