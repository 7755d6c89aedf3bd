//! Recurrent layers (ONNX `RNN`, `GRU`, `LSTM`): one direction of one layer.
//!
//! The product of all steps' inputs with the input weights is no part of the op: it is an ordinary matmul in
//! front of it, which is packed, fused and cast like any other. What is left is the part that cannot be done for all
//! steps at once: at each step, the product of the state with the recurrent weights and the functions of the gates.
//!
//! | cell | columns of `x` and `r` | a step |
//! |---|---|---|
//! | `Rnn` | h | `h = f(x + h·R)` |
//! | `Gru` | z, r; h in `rh` | `n = g(xₙ + (r ⊙ h)·Rₕ)`, `h = (1 − z) ⊙ n + z ⊙ h` |
//! | `GruLinear` | z, r, h | `n = g(xₙ + r ⊙ (h·Rₙ + bₙ))`, `h = (1 − z) ⊙ n + z ⊙ h` |
//! | `Lstm` | i, o, f, c | `c = f ⊙ c + i ⊙ g(x_c + h·R_c)`, `h = o ⊙ h(c)` |
//!
//! with the gates `z`, `r`, `i`, `o`, `f` each `f(x + h·R)`. [`Operands`] says where the inputs stand. A layer over
//! both directions is two such ops.

mod decompose;
mod reference;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, NodeId};
use crate::ops::def::{Arity, OpDef};
use crate::ops::nn::rows::check_float;
use crate::ops::{GateFunction, Op, OpKind, RecurrentCell};
use crate::shape::{Shape, Shapes, agreed_dim};
use crate::tensor::Value;

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// Which input of an [`Op::Recurrent`] is what. Input 0 is `x` `[steps, batch, gates·hidden]`, input 1 the
/// recurrent weights `r` `[hidden, gates·hidden]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operands {
    /// `Gru`: the weights `[hidden, hidden]` of the candidate, whose operand is the reset state.
    pub candidate_weights: Option<usize>,
    /// `GruLinear`: the bias `[hidden]` of the candidate, within the reset.
    pub candidate_bias: Option<usize>,
    /// The first state `[batch, hidden]`.
    pub h: usize,
    /// `Lstm`: the first cell `[batch, hidden]`.
    pub c: Option<usize>,
    /// `Lstm`: the weights `[3·hidden]` by which the gates i, o, f see the cell, if they do.
    pub peepholes: Option<usize>,
    /// The number of steps of each row of the batch, `[batch]` i32, if they differ.
    pub lengths: Option<usize>,
    /// How many inputs there are.
    pub count: usize,
}

impl Operands {
    /// The operands of an op with these attributes.
    pub fn new(cell: RecurrentCell, peepholes: bool, lengths: bool) -> Operands {
        let mut count = 2;
        let mut next = |there: bool| {
            count += usize::from(there);
            there.then_some(count - 1)
        };
        let candidate_weights = next(cell == RecurrentCell::Gru);
        let candidate_bias = next(cell == RecurrentCell::GruLinear);
        let h = next(true).unwrap_or(0);
        let c = next(cell == RecurrentCell::Lstm);
        let (peepholes, lengths) = (next(peepholes), next(lengths));
        Operands { candidate_weights, candidate_bias, h, c, peepholes, lengths, count }
    }
}

/// The attributes of an [`Op::Recurrent`].
#[derive(Debug, Clone, Copy)]
struct Layer<'a> {
    cell: RecurrentCell,
    functions: &'a [GateFunction],
    clip: Option<f32>,
    coupled: bool,
    reverse: bool,
    operands: Operands,
}

impl<'a> Layer<'a> {
    fn of(op: &'a Op) -> Result<Layer<'a>> {
        crate::ops::attrs!(op => Recurrent { cell, functions, clip, coupled, reverse, peepholes, lengths });
        Ok(Layer {
            cell: *cell,
            functions,
            clip: *clip,
            coupled: *coupled,
            reverse: *reverse,
            operands: Operands::new(*cell, *peepholes, *lengths),
        })
    }

    /// What no cell can be.
    fn check(&self) -> Result<()> {
        let wrong = |why: String| Err(Error::new(ErrorKind::InvalidGraph, why));
        if self.functions.len() != self.cell.functions() {
            let (want, found) = (self.cell.functions(), self.functions.len());
            return wrong(format!("{} has {want} functions, not {found}", self.cell));
        }
        let only_lstm = self.coupled || self.operands.peepholes.is_some();
        if only_lstm && self.cell != RecurrentCell::Lstm {
            return wrong(format!("{} has neither coupled gates nor peepholes", self.cell));
        }
        match self.clip {
            Some(clip) if clip.is_nan() || clip <= 0.0 => {
                wrong(format!("clip = {clip}, which is not positive"))
            }
            _ => Ok(()),
        }
    }

    /// The steps in the order in which they are computed.
    fn order(&self, steps: usize) -> Vec<usize> {
        if self.reverse { (0..steps).rev().collect() } else { (0..steps).collect() }
    }

    fn infer(&self, inputs: &[&Shape]) -> Result<Vec<Shape>> {
        self.check()?;
        let (x, first) = (inputs[0], inputs[self.operands.h]);
        check_float(OpKind::Recurrent, x)?;
        let shape_mismatch = |i: usize, want: &str| {
            let message = format!("input {i} of {} is {want}, not {}", self.cell, inputs[i]);
            Error::new(ErrorKind::Shape, message)
        };
        if x.rank() != 3 {
            return Err(shape_mismatch(0, "[steps, batch, gates·hidden]"));
        }
        let hidden = (first.rank() == 2).then(|| first.dim(1).as_static()).flatten();
        let Some(hidden) = hidden else {
            return Err(shape_mismatch(self.operands.h, "[batch, hidden], fixed"));
        };
        let gates = |n: usize| Dim::Static(hidden.saturating_mul(n));
        let (batch, one) = (x.dim(1), gates(1));
        let mut want = vec![
            (0, vec![x.dim(0), batch, gates(self.cell.gates())]),
            (1, vec![one, gates(self.cell.gates_of_state())]),
            (self.operands.h, vec![batch, one]),
        ];
        let more = [
            (self.operands.candidate_weights, vec![one, one]),
            (self.operands.candidate_bias, vec![one]),
            (self.operands.c, vec![batch, one]),
            (self.operands.peepholes, vec![gates(3)]),
        ];
        want.extend(more.into_iter().filter_map(|(i, dims)| Some((i?, dims))));
        for (i, dims) in &want {
            let shape = inputs[*i];
            let fits = shape.dtype() == x.dtype()
                && shape.rank() == dims.len()
                && shape.dims().iter().zip(dims).all(|(&a, &b)| agreed_dim(a, b).is_some());
            if !fits {
                return Err(shape_mismatch(*i, &x.with_dims(dims.clone()).to_string()));
            }
        }
        if let Some(i) = self.operands.lengths {
            let shape = inputs[i];
            let fits = shape.rank() == 1 && agreed_dim(shape.dim(0), batch).is_some();
            if !fits || shape.dtype() != DType::I32 {
                return Err(shape_mismatch(i, "[batch] i32"));
            }
        }
        let state = x.with_dims(vec![batch, one]);
        let mut results = vec![x.with_dims(vec![x.dim(0), batch, one]), state.clone()];
        if self.operands.c.is_some() {
            results.push(state);
        }
        Ok(results)
    }
}

/// [`Op::Recurrent`].
pub struct RecurrentDef;

impl OpDef for RecurrentDef {
    fn arity(&self, op: &Op) -> Arity {
        match Layer::of(op) {
            Ok(layer) => Arity::Exact(layer.operands.count),
            Err(_) => Arity::AtLeast(3),
        }
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        Layer::of(op)?.infer(inputs).map(Shapes::from)
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        reference::evaluate(&Layer::of(op)?, inputs)
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], graph: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let layer = Layer::of(op).ok()?;
        let sound = inputs.len() == layer.operands.count && layer.check().is_ok();
        if sound { decompose::unrolled(&layer, inputs, graph) } else { None }
    }

    fn flops(&self, op: &Op, inputs: &[&Shape], results: &[Shape]) -> f64 {
        let Op::Recurrent { cell, .. } = op else { return 0.0 };
        let states = results[0].num_elements().unwrap_or(0) as f64;
        let hidden = inputs[1].dims().first().and_then(|d| d.as_static()).unwrap_or(0) as f64;
        states * cell.gates() as f64 * (2.0 * hidden + 8.0)
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let cell: RecurrentCell = g.variant();
        let lstm = cell == RecurrentCell::Lstm;
        let (peepholes, lengths) = (lstm && g.chance(0.3), g.chance(0.3));
        let op = Op::Recurrent {
            cell,
            functions: (0..cell.functions()).map(|_| gate_function(g)).collect(),
            clip: if g.chance(0.2) { Some(0.5) } else { None },
            coupled: lstm && g.chance(0.3),
            reverse: g.chance(0.4),
            peepholes,
            lengths,
        };
        let (steps, batch, hidden) = (g.size(1..=5), g.size(1..=4), g.size(1..=20));
        let dtype = g.pick(&[DType::F32, DType::F32, DType::F64]);
        let operands = Operands::new(cell, peepholes, lengths);
        let (one, all) = (hidden, hidden * cell.gates());
        let dims = |i: usize| match i {
            0 => vec![steps, batch, all],
            1 => vec![one, hidden * cell.gates_of_state()],
            _ if Some(i) == operands.candidate_weights => vec![one, one],
            _ if Some(i) == operands.candidate_bias => vec![one],
            _ if Some(i) == operands.peepholes => vec![3 * hidden],
            _ => vec![batch, one],
        };
        let inputs = (0..operands.count).map(|i| match i {
            // Longer than there are steps, or none at all: both are allowed.
            _ if Some(i) == operands.lengths => {
                let n = (0..batch).map(|_| i128::from(g.int(-1..=steps as i64 + 1))).collect();
                Value::int(DType::I32, &[batch], n)
            }
            _ => g.value(dtype, &dims(i), -0.5..0.5),
        });
        let inputs = inputs.collect();
        Case::new(op, inputs)
    }
}

/// One without a corner: a relu that is near 0 by chance would differ by its whole slope.
#[cfg(feature = "testing")]
fn gate_function(g: &mut Gen) -> GateFunction {
    let all = [
        GateFunction::Sigmoid,
        GateFunction::Tanh,
        GateFunction::Softplus,
        GateFunction::Relu,
        GateFunction::LeakyRelu { alpha: 0.25 },
        GateFunction::HardSigmoid { alpha: 0.25, beta: 0.5 },
    ];
    if g.chance(0.6) { g.pick(&all[..2]) } else { g.pick(&all) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::evaluate_op;

    fn op(cell: RecurrentCell, lengths: bool, reverse: bool) -> Op {
        let functions = match cell {
            RecurrentCell::Lstm => vec![GateFunction::Sigmoid, GateFunction::Tanh, GateFunction::Tanh],
            RecurrentCell::Rnn => vec![GateFunction::Relu],
            _ => vec![GateFunction::Sigmoid, GateFunction::Tanh],
        };
        Op::Recurrent { cell, functions, clip: None, coupled: false, reverse, peepholes: false, lengths }
    }

    fn f32s(dims: &[usize], v: &[f64]) -> Value {
        Value::float(DType::F32, dims, v.to_vec())
    }

    #[test]
    fn sums_run_to_the_length_of_each_row() {
        // relu(x + h) adds up.
        let x = f32s(&[3, 2, 1], &[1.0, 10.0, 2.0, 20.0, 4.0, 40.0]);
        let (r, h) = (f32s(&[1, 1], &[1.0]), f32s(&[2, 1], &[100.0, 0.0]));
        let lengths = Value::int(DType::I32, &[2], vec![2, 3]);
        let run = |reverse| {
            let y =
                evaluate_op(&op(RecurrentCell::Rnn, true, reverse), &[&x, &r, &h, &lengths], &[]).unwrap();
            (y[0].to_f64(), y[1].to_f64())
        };
        assert_eq!(run(false), (vec![101.0, 10.0, 103.0, 30.0, 0.0, 70.0], vec![103.0, 70.0]));
        assert_eq!(run(true), (vec![103.0, 70.0, 102.0, 60.0, 0.0, 40.0], vec![103.0, 70.0]));
    }

    #[test]
    fn an_lstm_keeps_what_its_gates_let_through() {
        // i, o, f, c: the input gate shut, the others open.
        let x = f32s(&[1, 1, 4], &[-40.0, 40.0, 40.0, 1.0]);
        let (r, h, c) = (f32s(&[1, 4], &[0.0; 4]), f32s(&[1, 1], &[0.0]), f32s(&[1, 1], &[0.5]));
        let y = evaluate_op(&op(RecurrentCell::Lstm, false, false), &[&x, &r, &h, &c], &[]).unwrap();
        assert_eq!(y[2].to_f64(), [0.5]);
        assert!((y[0].to_f64()[0] - 0.5f64.tanh()).abs() < 1e-7);
    }

    #[test]
    fn mismatches_name_the_input_and_what_it_must_be() {
        let s = |dims: &[usize]| Shape::new(dims, DType::F32);
        let (x, r, h) = (s(&[5, 2, 9]), s(&[3, 9]), s(&[2, 3]));
        let linear = op(RecurrentCell::GruLinear, false, false);
        let infer = |op: &Op, bias: &Shape, h: &Shape| RecurrentDef.infer(op, &[&x, &r, bias, h], &[]);
        assert_eq!(infer(&linear, &s(&[3]), &h).unwrap()[..], [s(&[5, 2, 3]), s(&[2, 3])]);
        let error = infer(&linear, &s(&[4]), &h).unwrap_err().to_string();
        assert!(error.contains("input 2 of GruLinear is [3] f32, not [4] f32"), "{error}");
        assert!(infer(&linear, &s(&[3]), &s(&[3, 3])).is_err());
        let mut wrong = linear.clone();
        if let Op::Recurrent { functions, .. } = &mut wrong {
            functions.pop();
        }
        assert!(infer(&wrong, &s(&[3]), &h).unwrap_err().to_string().contains("2 functions"));
        if let Op::Recurrent { clip, functions, .. } = &mut wrong {
            functions.push(GateFunction::Tanh);
            *clip = Some(f32::NAN);
        }
        assert!(infer(&wrong, &s(&[3]), &h).is_err());
    }
}
