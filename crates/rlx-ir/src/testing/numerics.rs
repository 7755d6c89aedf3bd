//! Random graphs in which a last bit decides: values that are rounded to integers or compared, rows of scores that a
//! mask forbids as a whole, NaN and infinities. What they give is the oracle's on every device that rounds as it should.

use std::sync::Arc;

use super::Gen;
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::{Activation as A, BinaryOp as B, Body, CmpOp, Op, Predicate, ReduceOp};
use crate::oracle::Bindings;
use crate::shape::Shape;
use crate::tensor::{Elements, Value};

/// A graph and what it is run with.
type Made = (Graph, Bindings);

/// Ops that every device rounds exactly, and integers made of their result: `DynamicQuantizeLinear`, quantisation by
/// computed scales, roundings, comparisons. Some are the body of an `If`.
///
/// # Panics
/// Never: the ops fit.
pub fn random_rounding_graph(seed: u64, size: usize) -> Made {
    let mut r = Gen::new(seed);
    let dims = r.dims(1..=3, 1..=12);
    let shape = Shape::new(&dims, DType::F32);
    let mut g = Graph::new("rounding");
    let x = g.input("x", shape.clone());
    let y = rounding(&mut r, &mut g, x, size).expect("the ops fit");
    g.set_outputs(vec![y]);
    let mut bindings = Bindings::default();
    bindings.set_input("x", uneven(&mut r, &dims));
    if !r.chance(0.3) {
        return (g, bindings);
    }
    bindings.set_input("flag", Value::bools(&[], [r.chance(0.5)]));
    let (mut outer, _, y) = chosen(&shape, g);
    outer.set_outputs(vec![y]);
    (outer, bindings)
}

/// A scale that is computed in the body of an `If` and quantises outside of it.
///
/// # Panics
/// Never: the ops fit.
pub fn random_scale_from_body(seed: u64) -> Made {
    let mut r = Gen::new(seed);
    let dims = r.dims(1..=2, 2..=9);
    let shape = Shape::new(&dims, DType::F32);
    let mut body = Graph::new("scale");
    let x = body.input("x", shape.clone());
    let scale = step_of_the_largest(&mut body, x).expect("the ops fit");
    body.set_outputs(vec![scale]);
    let (mut g, x, scale) = chosen(&shape, body);
    let y = g.try_emit(Op::Quantize { axis: None, to: DType::I8 }, &[x, scale]).expect("the ops fit");
    g.set_outputs(vec![y]);
    let mut bindings = Bindings::default();
    bindings.set_input("flag", Value::bools(&[], [true]));
    bindings.set_input("x", uneven(&mut r, &dims));
    (g, bindings)
}

/// Softmax, its logarithm, and maxima over rows of scores; see `scores`.
///
/// # Panics
/// Never: the ops fit.
pub fn random_masked_rows(seed: u64) -> Made {
    let mut r = Gen::new(seed);
    let dims = [r.size(1..=5), r.pick(&[1, 3, 15, 16, 17, 40])];
    let mut g = Graph::new("rows");
    let x = g.input("x", Shape::new(&dims, DType::F32));
    let y = masked_rows(&mut r, &mut g, x).expect("the ops fit");
    g.set_outputs(vec![y]);
    let mut bindings = Bindings::default();
    bindings.set_input("x", scores(&mut r, &dims));
    (g, bindings)
}

/// Attention as exporters write it out, with and without a guard against NaN, its mask added or choosing.
///
/// # Panics
/// Never: the ops fit.
pub fn random_masked_attention(seed: u64) -> Made {
    let mut r = Gen::new(seed);
    let mut made = (Graph::new("attention"), Bindings::default());
    let y = masked_attention(&mut r, &mut made).expect("the ops fit");
    made.0.set_outputs(vec![y]);
    made
}

fn scalar(g: &mut Graph, value: f64) -> Result<NodeId> {
    g.try_scalar(value, DType::F32)
}

/// `If(flag, x, x)` with both branches alike: the graph, its `x` and what it gives.
fn chosen(shape: &Shape, body: Graph) -> (Graph, NodeId, NodeId) {
    let mut g = Graph::new("choice");
    let (flag, x) = (g.input("flag", Shape::scalar(DType::Bool)), g.input("x", shape.clone()));
    let body = Arc::new(Body { graph: body });
    let op = Op::If { then: Arc::clone(&body), otherwise: body, count: None, chosen: false };
    let y = g.try_emit(op, &[flag, x, x]).expect("branches alike");
    (g, x, y)
}

/// Floats of many bits, or multiples of 1/8, which are next to ties.
fn uneven(r: &mut Gen, dims: &[usize]) -> Value {
    let mut value = r.value(DType::F32, dims, -4.0..4.0);
    if let (Elements::Float(v), true) = (&mut value.elements, r.chance(0.6)) {
        v.iter_mut().for_each(|x| *x += (r.bits() >> 40) as f64 / f64::from(1 << 24));
    }
    value.rounded()
}

/// Scores in which now and then whole rows are −∞, or an element is NaN or infinite.
fn scores(r: &mut Gen, dims: &[usize]) -> Value {
    let mut value = r.value(DType::F32, dims, -3.0..3.0);
    let (row, odd) = (dims.last().copied().unwrap_or(1).max(1), r.pick(&[0.0, 0.1]));
    if let Elements::Float(v) = &mut value.elements {
        for row in v.chunks_mut(row) {
            let forbidden = r.pick(&[0.0, 0.5, 1.0]);
            row.iter_mut().filter(|_| r.chance(forbidden)).for_each(|x| *x = f64::NEG_INFINITY);
        }
        for x in v {
            if r.chance(odd) {
                *x = r.pick(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
            }
        }
    }
    value
}

/// Steps of exact ops, and then a jump.
fn rounding(r: &mut Gen, g: &mut Graph, x: NodeId, size: usize) -> Result<NodeId> {
    let mut y = x;
    for _ in 0..r.size(0..=size.min(4)) {
        y = exact_step(r, g, y)?;
    }
    jump(r, g, y)
}

/// An op (or two) that every device rounds exactly.
fn exact_step(r: &mut Gen, g: &mut Graph, x: NodeId) -> Result<NodeId> {
    let c = scalar(g, r.pick(&[3.0, 7.0, 10.0, 127.0, 255.0, 0.1, 1.7, 0.003]))?;
    match r.size(0..=9) {
        0 | 1 => g.try_div(x, c),
        2 => g.try_mul(x, c),
        3 => g.try_add_(x, c),
        4 => {
            let (y, d) = (g.try_mul(x, c)?, scalar(g, r.pick(&[0.7, 3.3]))?);
            g.try_mul(y, d)
        }
        5 => {
            let largest = largest_magnitude(g, x)?;
            g.try_div(x, largest)
        }
        6 => {
            let y = g.try_act(A::Abs, x)?;
            g.try_act(A::Sqrt, y)
        }
        7 => g.try_act(A::Relu, x),
        8 => {
            let rank = g.try_shape(x)?.rank();
            g.try_transpose(x, &(0..rank).rev().collect::<Vec<usize>>())
        }
        _ => g.try_sub(c, x),
    }
}

fn all_axes(g: &Graph, x: NodeId) -> Result<Vec<i32>> {
    Ok((0..g.try_shape(x)?.rank() as i32).collect())
}

/// `max(|x|, 0.001)`
fn largest_magnitude(g: &mut Graph, x: NodeId) -> Result<NodeId> {
    let y = g.try_act(A::Abs, x)?;
    let y = g.try_reduce(y, ReduceOp::Max, &all_axes(g, x)?, false)?;
    let floor = scalar(g, 0.001)?;
    g.try_maximum(y, floor)
}

/// The largest magnitude as 127 steps.
fn step_of_the_largest(g: &mut Graph, x: NodeId) -> Result<NodeId> {
    let (largest, steps) = (largest_magnitude(g, x)?, scalar(g, 127.0)?);
    g.try_div(largest, steps)
}

/// ONNX's `DynamicQuantizeLinear`: integers, scale and zero point.
fn quantised_by_itself(g: &mut Graph, x: NodeId) -> Result<[NodeId; 3]> {
    let (zero, most, axes) = (scalar(g, 0.0)?, scalar(g, 255.0)?, all_axes(g, x)?);
    let high = g.try_reduce(x, ReduceOp::Max, &axes, false)?;
    let high = g.try_maximum(high, zero)?;
    let low = g.try_reduce(x, ReduceOp::Min, &axes, false)?;
    let low = g.try_minimum(low, zero)?;
    let range = g.try_sub(high, low)?;
    let scale = g.try_div(range, most)?;
    let point = g.try_div(low, scale)?;
    let point = g.try_act(A::Neg, point)?;
    let point = g.try_act(A::Round, point)?;
    let point = g.try_maximum(point, zero)?;
    let point = g.try_minimum(point, most)?;
    let point = g.try_cast(point, DType::U8)?;
    let y = g.try_emit(Op::Quantize { axis: None, to: DType::U8 }, &[x, scale, point])?;
    Ok([y, scale, point])
}

/// Integers (or bools) made of floats.
fn jump(r: &mut Gen, g: &mut Graph, x: NodeId) -> Result<NodeId> {
    match r.size(0..=6) {
        0..=2 => {
            let [y, scale, point] = quantised_by_itself(g, x)?;
            if r.chance(0.5) {
                return Ok(y);
            }
            let y = g.try_emit(Op::Dequantize { axis: None, to: DType::F32 }, &[y, scale, point])?;
            Ok(quantised_by_itself(g, y)?[0])
        }
        3 => {
            let scale = step_of_the_largest(g, x)?;
            g.try_emit(Op::Quantize { axis: None, to: DType::I8 }, &[x, scale])
        }
        4 => {
            let y = g.try_act(r.pick(&[A::Round, A::Floor, A::Ceil, A::Trunc]), x)?;
            g.try_cast(y, DType::I32)
        }
        5 => {
            let c = scalar(g, r.pick(&[0.25, 1.0 / 3.0, 0.0]))?;
            g.try_emit(Op::Compare(r.pick(&[CmpOp::Lt, CmpOp::Ge, CmpOp::Eq])), &[x, c])
        }
        _ => {
            let step = scalar(g, 0.1)?;
            let y = g.try_bin(B::Rem, x, step)?;
            let y = g.try_div(y, step)?;
            g.try_cast(y, DType::I32)
        }
    }
}

fn masked_rows(r: &mut Gen, g: &mut Graph, x: NodeId) -> Result<NodeId> {
    let axis = r.pick(&[0, 1]);
    match r.size(0..=4) {
        0 | 1 => g.try_sm(x, axis),
        2 => g.try_log_sm(x, axis),
        3 => g.try_reduce(x, r.pick(&[ReduceOp::Max, ReduceOp::Min]), &[axis], true),
        _ => {
            let largest = g.try_reduce(x, ReduceOp::Max, &[axis], true)?;
            let shifted = g.try_sub(x, largest)?;
            let exp = g.try_exp(shifted)?;
            let sum = g.try_sum(exp, &[axis], true)?;
            g.try_div(exp, sum)
        }
    }
}

/// An input with its value.
fn given((g, bindings): &mut Made, name: &str, value: Value) -> NodeId {
    let id = g.input(name, value.shape());
    bindings.set_input(name, value);
    id
}

/// Floats, one of them NaN now and then.
fn rarely_nan(r: &mut Gen, dims: &[usize]) -> Value {
    let mut value = r.value(DType::F32, dims, -1.0..1.0);
    if let (Elements::Float(v), true) = (&mut value.elements, r.chance(0.15)) {
        let at = r.size(0..=v.len() - 1);
        v[at] = f64::NAN;
    }
    value
}

fn masked_attention(r: &mut Gen, made: &mut Made) -> Result<NodeId> {
    let (batch, heads) = (r.size(1..=2), r.size(1..=2));
    let (queries, keys) = (r.size(1..=4), r.pick(&[1, 5, 16, 19]));
    let q = rarely_nan(r, &[batch, heads, queries, 4]);
    let q = given(made, "q", q);
    let k = rarely_nan(r, &[batch, heads, 4, keys]);
    let k = given(made, "k", k);
    let v = given(made, "v", r.value(DType::F32, &[batch, heads, keys, 3], -1.0..1.0));
    let y = made.0.try_mm(q, k)?;
    let half = scalar(&mut made.0, 0.5)?;
    let y = made.0.try_mul(y, half)?;
    let mask_dims = [batch, r.pick(&[1, heads]), queries, keys];
    let y = match r.size(0..=2) {
        0 => {
            let mask = given(made, "mask", scores(r, &mask_dims));
            made.0.try_add_(y, mask)?
        }
        1 => {
            let (allowed, count) = (r.pick(&[0.0, 0.5, 1.0]), mask_dims.iter().product());
            let allowed: Vec<bool> = (0..count).map(|_| r.chance(allowed)).collect();
            let mask = given(made, "mask", Value::bools(&mask_dims, allowed));
            let never = scalar(&mut made.0, f64::NEG_INFINITY)?;
            made.0.try_where(mask, y, never)?
        }
        _ => y,
    };
    let g = &mut made.0;
    let mut p = g.try_sm(y, -1)?;
    if r.chance(0.5) {
        let (none, zero) = (g.try_emit(Op::Predicate(Predicate::IsNan), &[p])?, scalar(g, 0.0)?);
        p = g.try_where(none, zero, p)?;
    }
    g.try_mm(p, v)
}
