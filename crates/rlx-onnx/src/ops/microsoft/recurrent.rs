//! `DynamicQuantizeLSTM`: an LSTM whose inputs and states are quantised by their own range at every step.
//!
//! The product of the inputs is one for all steps. The steps are a loop, because each quantises the state before it.

use crate::import::NodeCx;
use crate::ops::quant::{Quantized, along, integer_matmul, quantize_by_range};
use crate::ops::{Entry, microsoft};
use rlx_ir::op::{Activation as A, BinaryOp as B, Body};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op, Shape, Value};
use std::sync::Arc;

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(in crate::ops) const OPS: &[Entry] = &[microsoft("DynamicQuantizeLSTM", lstm)];

const BIAS: usize = 3;
const LENGTHS: usize = 4;
const STATE: usize = 5;
const CELL: usize = 6;
const PEEPHOLES: usize = 7;
const INPUT_SCALE: usize = 8;
const STATE_SCALE: usize = 10;

/// The dimensions of a layer.
struct Layer {
    steps: Dim,
    batch: Dim,
    hidden: usize,
}

/// `X, W, R, B, sequence_lens, initial_h, initial_c, P`, then scale and zero point of W and of R.
fn lstm(cx: Cx) -> Nodes {
    let (x, weights, recurrent) = (cx.shape(0)?, cx.shape(1)?, cx.shape(2)?);
    let (&[steps, batch, _], &[Dim::Static(directions), _, _], &[_, hidden, _]) =
        (x.dims(), weights.dims(), recurrent.dims())
    else {
        return Err(cx.malformed(format!("an LSTM of {x} with {weights} and {recurrent}")));
    };
    let hidden = hidden.as_static().ok_or_else(|| cx.open_dimension("a state of symbolic size"))?;
    if hidden > i32::MAX as usize / 8 {
        return Err(cx.malformed(format!("a state of {hidden}")));
    }
    let layer = Layer { steps, batch, hidden };
    layer.check(cx)?;
    let reversed: &[bool] = match cx.attrs.text("direction", "forward")? {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return Err(cx.bad_attr("direction", other)),
    };
    if directions != reversed.len() {
        return Err(cx.malformed(format!("weights {weights} for {} directions", reversed.len())));
    }
    let x = cx.x(0)?;
    let (input, scale) = quantize_by_range(cx, x)?;
    let mut results = [Vec::new(), Vec::new(), Vec::new()];
    for (d, &reverse) in reversed.iter().enumerate() {
        let found = layer.direction(cx, input, scale, d, reverse)?;
        results.iter_mut().zip(found).for_each(|(list, value)| list.push(value));
    }
    let stack = |cx: &mut NodeCx<'_, '_>, parts: &[NodeId], axis: usize| {
        let parts = parts.iter().map(|&p| cx.unsqueeze(p, &[axis])).collect::<Nodes>()?;
        if let [one] = parts[..] { Ok(one) } else { cx.add(Op::Concat { axis }, &parts) }
    };
    let [all, state, cell] = results;
    Ok(vec![stack(cx, &all, 1)?, stack(cx, &state, 0)?, stack(cx, &cell, 0)?])
}

impl Layer {
    /// What is not built.
    fn check(&self, cx: Cx) -> Result<(), Error> {
        if cx.has(PEEPHOLES) {
            return Err(cx.unsupported("peepholes"));
        }
        let whole = |n: i64| self.steps.as_static().is_some_and(|s| n == s as i64);
        if cx.has(LENGTHS) && !cx.numbers(LENGTHS)?.into_iter().all(whole) {
            return Err(cx.unsupported("sequences of several lengths"));
        }
        if cx.attrs.flag("input_forget", false)? {
            return Err(cx.bad_attr("input_forget", 1));
        }
        let clip = cx.attrs.float("clip", 0.0)?;
        if clip != 0.0 {
            return Err(cx.bad_attr("clip", clip));
        }
        let usual = ["Sigmoid", "Tanh", "Tanh"];
        let names = cx.attrs.texts("activations")?.unwrap_or_default();
        let differs = |(i, name): (usize, &&str)| !name.eq_ignore_ascii_case(usual[i % 3]);
        match names.iter().enumerate().find(|&pair| differs(pair)) {
            Some((_, name)) => Err(cx.bad_attr("activations", name)),
            None => Ok(()),
        }
    }

    /// Direction `d` of an operand, without that dimension.
    fn of_direction(&self, cx: Cx, operand: usize, d: usize) -> Result<NodeId, Error> {
        let (x, shape) = (cx.x(operand)?, cx.shape(operand)?);
        if shape.rank() == 0 || shape.dim(0).as_static().is_none_or(|n| n <= d) {
            return Err(cx.malformed(format!("operand {operand}, {shape}, has no direction {d}")));
        }
        let part = cx.slice_axis(x, 0, Dim::Static(d).extent(), Extent::Const(1))?;
        cx.reshape(part, shape.dims()[1..].to_vec())
    }

    /// A scale or zero point of direction `d`: one, or one for each column.
    fn parameter(&self, cx: Cx, operand: usize, d: usize) -> Result<NodeId, Error> {
        let v = self.of_direction(cx, operand, d)?;
        if cx.shape_of(v).rank() == 0 { cx.reshape(v, vec![Dim::Static(1)]) } else { Ok(v) }
    }

    /// The state or cell before the first step.
    fn first(&self, cx: Cx, operand: usize, d: usize) -> Result<NodeId, Error> {
        if cx.has(operand) {
            return self.of_direction(cx, operand, d);
        }
        let zero = cx.scalar(DType::F32, 0.0);
        cx.expand(zero, vec![self.batch, Dim::Static(self.hidden)])
    }

    /// All steps, the last state and the last cell of one direction.
    fn direction(
        &self,
        cx: Cx,
        input: Quantized,
        scale: NodeId,
        d: usize,
        reverse: bool,
    ) -> Result<[NodeId; 3], Error> {
        let weights = Quantized {
            x: self.of_direction(cx, 1, d)?,
            zero: Some(self.parameter(cx, INPUT_SCALE + 1, d)?),
        };
        let own = self.parameter(cx, INPUT_SCALE, d)?;
        let mut gates = scaled_product(cx, input, weights, scale, own)?;
        if cx.has(BIAS) {
            let both = self.of_direction(cx, BIAS, d)?;
            if cx.shape_of(both).rank() != 1 {
                return Err(cx.malformed(format!("a bias {}", cx.shape(BIAS)?)));
            }
            let width = Dim::Static(4 * self.hidden).extent();
            let of_input = cx.slice_axis(both, 0, Extent::Const(0), width)?;
            let of_state = cx.slice_axis(both, 0, width, width)?;
            let bias = cx.binary(B::Add, of_input, of_state)?;
            gates = cx.binary(B::Add, gates, bias)?;
        }
        gates = if reverse { backwards(cx, gates)? } else { gates };
        let operands = [
            self.first(cx, STATE, d)?,
            self.first(cx, CELL, d)?,
            gates,
            self.of_direction(cx, 2, d)?,
            self.parameter(cx, STATE_SCALE, d)?,
            self.parameter(cx, STATE_SCALE + 1, d)?,
        ];
        let body = self.step(cx, &operands)?;
        let limit = cx.extent(self.steps.extent())?;
        let mut inputs = vec![limit, cx.constant(Value::bools(&[], [true]))];
        inputs.extend(operands);
        let op = Op::Loop { body: Arc::new(body), trips: self.steps, count: None, carried: 2, scanned: 1 };
        let node = cx.importer.push(op, &inputs)?;
        let mut result = |i: usize| cx.importer.graph.result(node, i);
        let (state, cell, all) = (result(0)?, result(1)?, result(2)?);
        Ok([if reverse { backwards(cx, all)? } else { all }, state, cell])
    }

    /// One step: number, condition, state, cell, the input's part of the gates, then weights, scale and zero point.
    fn step(&self, cx: Cx, operands: &[NodeId; 6]) -> Result<Body, Error> {
        let mut shapes = vec![Shape::scalar(DType::I64), Shape::scalar(DType::Bool)];
        for (i, &x) in operands.iter().enumerate() {
            let shape = cx.shape_of(x);
            shapes.push(if i == 2 { shape.with_dims(shape.dims()[1..].to_vec()) } else { shape });
        }
        let (proto, opset, hidden) = (cx.proto, cx.opset, self.hidden);
        let graph = cx.importer.made_body("step", &shapes, |importer, own| {
            let mut cx = NodeCx::new(importer, proto, opset, Vec::new());
            let &[_, condition, state, cell, gates, weights, scale, zero] = own else {
                return Err(cx.malformed("a step with other inputs than it has"));
            };
            let weights = Quantized { x: weights, zero: Some(zero) };
            let [state, cell] = stepped(&mut cx, [state, cell, gates], weights, scale, hidden)?;
            Ok(vec![condition, state, cell, state])
        })?;
        Ok(Body { graph })
    }
}

/// The exact product of integers times both scales.
fn scaled_product(
    cx: Cx,
    a: Quantized,
    b: Quantized,
    scale_a: NodeId,
    scale_b: NodeId,
) -> Result<NodeId, Error> {
    let product = integer_matmul(cx, a, b)?;
    let rank = cx.shape_of(product).rank();
    let scale_b = along(cx, scale_b, rank, rank.saturating_sub(1))?;
    let scale = cx.binary(B::Mul, scale_a, scale_b)?;
    let product = cx.cast(product, DType::F32)?;
    cx.binary(B::Mul, product, scale)
}

/// State and cell after a step; the gates are input, output, forget and candidate.
fn stepped(
    cx: Cx,
    [state, cell, gates]: [NodeId; 3],
    weights: Quantized,
    scale: NodeId,
    hidden: usize,
) -> Result<[NodeId; 2], Error> {
    let (quantized, own) = quantize_by_range(cx, state)?;
    let recurrent = scaled_product(cx, quantized, weights, own, scale)?;
    let gates = cx.binary(B::Add, gates, recurrent)?;
    let mut parts = [gates; 4];
    for (i, part) in parts.iter_mut().enumerate() {
        let gate = cx.slice_axis(gates, 1, Dim::Static(i * hidden).extent(), Dim::Static(hidden).extent())?;
        *part = cx.activation(if i == 3 { A::Tanh } else { A::Sigmoid }, gate)?;
    }
    let [input, output, forget, candidate] = parts;
    let kept = cx.binary(B::Mul, forget, cell)?;
    let new = cx.binary(B::Mul, input, candidate)?;
    let cell = cx.binary(B::Add, kept, new)?;
    let shown = cx.activation(A::Tanh, cell)?;
    Ok([cx.binary(B::Mul, output, shown)?, cell])
}

/// The first dimension backwards.
fn backwards(cx: Cx, x: NodeId) -> Result<NodeId, Error> {
    let shape = cx.shape_of(x);
    let (mut starts, mut steps) = (vec![Extent::Const(0); shape.rank()], vec![1; shape.rank()]);
    (starts[0], steps[0]) = (shape.dim(0).extent() - 1, -1);
    cx.add(Op::Slice { starts, steps, to: shape.dims().to_vec() }, &[x])
}
