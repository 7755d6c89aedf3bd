//! A recurrent layer of a fixed, small number of steps as that many copies of its step.

use super::Layer;
use crate::dim::{Dim, Extent};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::{CmpOp, GateFunction, Op, RecurrentCell};
use crate::tensor::Value;

/// More steps than this would make a graph that is mostly copies.
const MOST_STEPS: usize = 64;

/// The results, unrolled; `None` when the number of steps is open, 0, or large.
pub(super) fn unrolled(layer: &Layer<'_>, inputs: &[NodeId], g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
    let steps = g.try_shape(*inputs.first()?).ok()?.dims().first()?.as_static()?;
    (1..=MOST_STEPS).contains(&steps).then(|| unroll(layer, inputs, steps, g))
}

/// What the steps share.
struct Unrolled<'a> {
    layer: &'a Layer<'a>,
    inputs: &'a [NodeId],
    dtype: DType,
    hidden: usize,
}

fn unroll(layer: &Layer<'_>, inputs: &[NodeId], steps: usize, g: &mut Graph) -> Result<Vec<NodeId>> {
    let at = &layer.operands;
    let shape = g.try_shape(inputs[at.h])?.clone();
    let hidden = shape.dim(1).as_static().unwrap_or(0);
    let cx = Unrolled { layer, inputs, dtype: shape.dtype(), hidden };
    let batch = g.try_shape(inputs[0])?.dim(1);
    let (mut h, mut c) = (inputs[at.h], at.c.map(|c| inputs[c]));
    let mut states: Vec<Option<NodeId>> = vec![None; steps];
    for t in layer.order(steps) {
        let x = cx.at_step(g, t, batch)?;
        let (mut next, mut cell) = cx.step(g, x, h, c)?;
        let mut y = next;
        if let Some(lengths) = at.lengths {
            let running = cx.running(g, inputs[lengths], t, batch)?;
            let zero = g.try_scalar(0.0, cx.dtype)?;
            y = g.try_where(running, next, zero)?;
            next = g.try_where(running, next, h)?;
            cell = match (cell, c) {
                (Some(new), Some(old)) => Some(g.try_where(running, new, old)?),
                _ => None,
            };
        }
        states[t] = Some(g.try_reshape_to(y, &[Dim::Static(1), batch, Dim::Static(hidden)])?);
        (h, c) = (next, cell);
    }
    let states: Vec<NodeId> = states.into_iter().flatten().collect();
    let mut results = vec![g.try_concat(&states, 0)?, h];
    results.extend(c);
    Ok(results)
}

impl Unrolled<'_> {
    fn scalar(&self, g: &mut Graph, value: f32) -> Result<NodeId> {
        g.try_scalar(f64::from(value), self.dtype)
    }

    /// Step `t` of `x`, `[batch, gates·hidden]`.
    fn at_step(&self, g: &mut Graph, t: usize, batch: Dim) -> Result<NodeId> {
        let x = g.try_narrow(self.inputs[0], 0, t, 1)?;
        let wide = Dim::Static(self.layer.cell.gates() * self.hidden);
        g.try_reshape_to(x, &[batch, wide])
    }

    /// Which rows have a step `t`, `[batch, 1]`.
    fn running(&self, g: &mut Graph, lengths: NodeId, t: usize, batch: Dim) -> Result<NodeId> {
        let t = g.try_constant(Value::int(DType::I32, &[], vec![t as i128]).to_const())?;
        let running = g.try_compare(CmpOp::Lt, t, lengths)?;
        g.try_reshape_to(running, &[batch, Dim::Static(1)])
    }

    /// Gate number `k` of the columns of `x`.
    fn gate(&self, g: &mut Graph, x: NodeId, k: usize) -> Result<NodeId> {
        let dims = g.try_shape(x)?.dims().to_vec();
        let (mut starts, mut to) = (vec![Extent::Const(0); dims.len()], dims);
        if let (Some(start), Some(to)) = (starts.last_mut(), to.last_mut()) {
            (*start, *to) = (Dim::Static(k * self.hidden).extent(), Dim::Static(self.hidden));
        }
        let steps = vec![1; to.len()];
        g.try_emit(Op::Slice { starts, steps, to }, &[x])
    }

    fn clipped(&self, g: &mut Graph, x: NodeId) -> Result<NodeId> {
        let Some(most) = self.layer.clip else { return Ok(x) };
        let (low, high) = (self.scalar(g, -most)?, self.scalar(g, most)?);
        let x = g.try_maximum(x, low)?;
        g.try_minimum(x, high)
    }

    fn function(&self, g: &mut Graph, f: usize, x: NodeId) -> Result<NodeId> {
        use crate::ops::Activation as A;
        match self.layer.functions[f] {
            GateFunction::Sigmoid => g.try_sigmoid(x),
            GateFunction::Tanh => g.try_tanh(x),
            GateFunction::Relu => g.try_relu(x),
            GateFunction::Softplus => g.try_act(A::Softplus, x),
            GateFunction::LeakyRelu { alpha } => {
                let (alpha, zero) = (self.scalar(g, alpha)?, self.scalar(g, 0.0)?);
                let below = g.try_compare(CmpOp::Lt, x, zero)?;
                let scaled = g.try_mul(x, alpha)?;
                g.try_where(below, scaled, x)
            }
            GateFunction::HardSigmoid { alpha, beta } => {
                let (alpha, beta) = (self.scalar(g, alpha)?, self.scalar(g, beta)?);
                let (zero, one) = (self.scalar(g, 0.0)?, self.scalar(g, 1.0)?);
                let y = g.try_mul(x, alpha)?;
                let y = g.try_add_(y, beta)?;
                let y = g.try_maximum(y, zero)?;
                g.try_minimum(y, one)
            }
        }
    }

    /// The function of a clipped gate.
    fn open(&self, g: &mut Graph, f: usize, x: NodeId) -> Result<NodeId> {
        let x = self.clipped(g, x)?;
        self.function(g, f, x)
    }

    /// `(1 − z) ⊙ n + z ⊙ h`.
    fn mixed(&self, g: &mut Graph, z: NodeId, n: NodeId, h: NodeId) -> Result<NodeId> {
        let one = self.scalar(g, 1.0)?;
        let rest = g.try_sub(one, z)?;
        let (fresh, kept) = (g.try_mul(rest, n)?, g.try_mul(z, h)?);
        g.try_add_(fresh, kept)
    }

    /// The next state and cell.
    fn step(
        &self,
        g: &mut Graph,
        x: NodeId,
        h: NodeId,
        c: Option<NodeId>,
    ) -> Result<(NodeId, Option<NodeId>)> {
        let s = g.try_mm(h, self.inputs[1])?;
        let of = |i: Option<usize>| i.map(|i| self.inputs[i]);
        let at = &self.layer.operands;
        match (self.layer.cell, of(at.candidate_weights), of(at.candidate_bias), c) {
            (RecurrentCell::Gru, Some(weights), ..) => Ok((self.gru(g, x, s, h, weights)?, None)),
            (RecurrentCell::GruLinear, _, Some(bias), _) => Ok((self.gru_linear(g, x, s, h, bias)?, None)),
            (RecurrentCell::Lstm, .., Some(c)) => {
                let (h, c) = self.lstm(g, x, s, c)?;
                Ok((h, Some(c)))
            }
            _ => {
                let sum = g.try_add_(x, s)?;
                Ok((self.open(g, 0, sum)?, None))
            }
        }
    }

    fn gru(&self, g: &mut Graph, x: NodeId, s: NodeId, h: NodeId, weights: NodeId) -> Result<NodeId> {
        let mut gates = [x; 2];
        for (k, gate) in gates.iter_mut().enumerate() {
            let (a, b) = (self.gate(g, x, k)?, self.gate(g, s, k)?);
            let sum = g.try_add_(a, b)?;
            *gate = self.open(g, 0, sum)?;
        }
        let reset = g.try_mul(gates[1], h)?;
        let product = g.try_mm(reset, weights)?;
        let from = self.gate(g, x, 2)?;
        let sum = g.try_add_(from, product)?;
        let n = self.open(g, 1, sum)?;
        self.mixed(g, gates[0], n, h)
    }

    fn gru_linear(&self, g: &mut Graph, x: NodeId, s: NodeId, h: NodeId, bias: NodeId) -> Result<NodeId> {
        let mut gates = [x; 2];
        for (k, gate) in gates.iter_mut().enumerate() {
            let (a, b) = (self.gate(g, x, k)?, self.gate(g, s, k)?);
            let sum = g.try_add_(a, b)?;
            *gate = self.open(g, 0, sum)?;
        }
        let product = self.gate(g, s, 2)?;
        let product = g.try_add_(product, bias)?;
        let reset = g.try_mul(gates[1], product)?;
        let from = self.gate(g, x, 2)?;
        let sum = g.try_add_(from, reset)?;
        let n = self.open(g, 1, sum)?;
        self.mixed(g, gates[0], n, h)
    }

    /// `x + s`, gate `k`, seeing the cell if it does.
    fn seeing(&self, g: &mut Graph, sum: NodeId, k: usize, c: NodeId) -> Result<NodeId> {
        let gate = self.gate(g, sum, k)?;
        let Some(i) = self.layer.operands.peepholes else { return Ok(gate) };
        let weights = self.gate(g, self.inputs[i], k)?;
        let seen = g.try_mul(weights, c)?;
        g.try_add_(gate, seen)
    }

    fn lstm(&self, g: &mut Graph, x: NodeId, s: NodeId, c: NodeId) -> Result<(NodeId, NodeId)> {
        let sum = g.try_add_(x, s)?;
        let i = self.seeing(g, sum, 0, c)?;
        let i = self.open(g, 0, i)?;
        let f = if self.layer.coupled {
            let one = self.scalar(g, 1.0)?;
            g.try_sub(one, i)?
        } else {
            let f = self.seeing(g, sum, 2, c)?;
            self.open(g, 0, f)?
        };
        let new = self.gate(g, sum, 3)?;
        let new = self.open(g, 1, new)?;
        let (kept, fresh) = (g.try_mul(f, c)?, g.try_mul(i, new)?);
        let c = g.try_add_(kept, fresh)?;
        let o = self.seeing(g, sum, 1, c)?;
        let o = self.open(g, 0, o)?;
        let shown = self.function(g, 2, c)?;
        Ok((g.try_mul(o, shown)?, c))
    }
}
