//! A recurrent layer, step by step and row by row.

use super::Layer;
use crate::error::Result;
use crate::ops::{GateFunction, RecurrentCell};
use crate::tensor::Value;

fn apply(f: GateFunction, x: f64) -> f64 {
    match f {
        GateFunction::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        GateFunction::Tanh => x.tanh(),
        GateFunction::Relu => {
            if x > 0.0 || x.is_nan() {
                x
            } else {
                0.0
            }
        }
        GateFunction::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        GateFunction::LeakyRelu { alpha } => {
            if x < 0.0 {
                f64::from(alpha) * x
            } else {
                x
            }
        }
        GateFunction::HardSigmoid { alpha, beta } => {
            let y = f64::from(alpha) * x + f64::from(beta);
            if y.is_nan() { y } else { y.clamp(0.0, 1.0) }
        }
    }
}

/// `v · m`, of a vector and some columns of a row-major matrix.
fn product(v: &[f64], m: &[f64], columns: usize) -> Vec<f64> {
    let at = |j: usize| v.iter().enumerate().map(|(i, x)| x * m[i * columns + j]).sum();
    (0..columns).map(at).collect()
}

/// The operands as numbers.
struct Weights<'a> {
    r: &'a [f64],
    candidate: &'a [f64],
    candidate_bias: &'a [f64],
    peepholes: &'a [f64],
}

/// The results `y`, `h` and, of an LSTM, `c`.
pub(super) fn evaluate(layer: &Layer<'_>, inputs: &[&Value]) -> Result<Vec<Value>> {
    let at = &layer.operands;
    let floats = |i: Option<usize>| i.map_or(Ok(&[][..]), |i| inputs[i].floats());
    let weights = Weights {
        r: floats(Some(1))?,
        candidate: floats(at.candidate_weights)?,
        candidate_bias: floats(at.candidate_bias)?,
        peepholes: floats(at.peepholes)?,
    };
    let lengths = at.lengths.map(|i| inputs[i].ints()).transpose()?;
    let (x, dims) = (inputs[0].floats()?, &inputs[0].dims);
    let (steps, batch, wide) = (dims[0], dims[1], dims[2]);
    let hidden = inputs[at.h].dims[1];
    let (mut h, mut c) = (inputs[at.h].floats()?.to_vec(), floats(at.c)?.to_vec());
    let mut y = vec![0.0; steps * batch * hidden];
    for t in layer.order(steps) {
        for row in (0..batch).filter(|&row| lengths.is_none_or(|l| (t as i128) < l[row])) {
            let from = &x[(t * batch + row) * wide..][..wide];
            let states = row * hidden..(row + 1) * hidden;
            let cell = if c.is_empty() { &mut [][..] } else { &mut c[states.clone()] };
            let next = step(layer, &weights, from, &h[states.clone()], cell);
            y[(t * batch + row) * hidden..][..hidden].copy_from_slice(&next);
            h[states].copy_from_slice(&next);
        }
    }
    let dtype = inputs[0].dtype;
    let state = [batch, hidden];
    let mut results = vec![Value::float(dtype, &[steps, batch, hidden], y), Value::float(dtype, &state, h)];
    if at.c.is_some() {
        results.push(Value::float(dtype, &state, c));
    }
    Ok(results)
}

/// The next state of one row; an LSTM's cell is changed in place.
fn step(layer: &Layer<'_>, weights: &Weights<'_>, x: &[f64], h: &[f64], c: &mut [f64]) -> Vec<f64> {
    let n = h.len();
    let clipped = |v: f64| match layer.clip {
        Some(most) if v.abs() > f64::from(most) => f64::from(most).copysign(v),
        _ => v,
    };
    let gate = |f: usize, v: f64| apply(layer.functions[f], clipped(v));
    let product = |v: &[f64]| product(v, weights.r, n * layer.cell.gates_of_state());
    let s = product(h);
    match layer.cell {
        RecurrentCell::Rnn => (0..n).map(|j| gate(0, x[j] + s[j])).collect(),
        RecurrentCell::Gru => {
            let reset: Vec<f64> = (0..n).map(|j| gate(0, x[n + j] + s[n + j]) * h[j]).collect();
            let candidate = self::product(&reset, weights.candidate, n);
            let next = |j: usize| {
                let z = gate(0, x[j] + s[j]);
                (1.0 - z) * gate(1, x[2 * n + j] + candidate[j]) + z * h[j]
            };
            (0..n).map(next).collect()
        }
        RecurrentCell::GruLinear => {
            let next = |j: usize| {
                let (z, r) = (gate(0, x[j] + s[j]), gate(0, x[n + j] + s[n + j]));
                let candidate = gate(1, x[2 * n + j] + r * (s[2 * n + j] + weights.candidate_bias[j]));
                (1.0 - z) * candidate + z * h[j]
            };
            (0..n).map(next).collect()
        }
        RecurrentCell::Lstm => {
            let peephole = |k: usize, j: usize| weights.peepholes.get(k * n + j).copied().unwrap_or(0.0);
            let see = |k: usize, j: usize, c: f64| {
                if weights.peepholes.is_empty() { 0.0 } else { peephole(k, j) * c }
            };
            let next = |(j, c): (usize, &mut f64)| {
                let i = gate(0, x[j] + s[j] + see(0, j, *c));
                let f = if layer.coupled {
                    1.0 - i
                } else {
                    gate(0, x[2 * n + j] + s[2 * n + j] + see(2, j, *c))
                };
                *c = f * *c + i * gate(1, x[3 * n + j] + s[3 * n + j]);
                let o = gate(0, x[n + j] + s[n + j] + see(1, j, *c));
                o * apply(layer.functions[2], *c)
            };
            c.iter_mut().enumerate().map(next).collect()
        }
    }
}
