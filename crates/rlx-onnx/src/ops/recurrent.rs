//! Recurrent layers: RNN, GRU, LSTM.
//!
//! The matmul of the input with its weights, for all time steps at once, becomes an ordinary `MatMul` with the biases added,
//! followed by one `Recurrent` for each direction. With `layout` 1 the result of that matmul is transposed.

use super::{Entry, nodes};
use crate::import::NodeCx;
use rlx_ir::op::{BinaryOp as B, GateFunction, RecurrentCell};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] = &[
    nodes("RNN", |cx| layer(cx, RecurrentCell::Rnn)),
    nodes("GRU", gru),
    nodes("LSTM", |cx| layer(cx, RecurrentCell::Lstm)),
];

fn gru(cx: Cx) -> Nodes {
    let linear = cx.attrs.flag("linear_before_reset", false)?;
    layer(cx, if linear { RecurrentCell::GruLinear } else { RecurrentCell::Gru })
}

/// What all directions share.
struct Layer {
    cell: RecurrentCell,
    hidden: usize,
    /// Whether the batch comes first.
    batch_first: bool,
    steps: Dim,
    batch: Dim,
    dtype: DType,
}

/// The operands as the format numbers them.
const BIAS: usize = 3;
const LENGTHS: usize = 4;
const PEEPHOLES: usize = 7;

fn layer(cx: Cx, cell: RecurrentCell) -> Nodes {
    let layer = Layer::read(cx, cell)?;
    let reversed: &[bool] = match cx.attrs.text("direction", "forward")? {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return Err(cx.bad_attr("direction", other)),
    };
    if cx.shape(1)?.dim(0) != Dim::Static(reversed.len()) {
        return Err(cx.malformed(format!("weights {} for {} directions", cx.shape(1)?, reversed.len())));
    }
    let functions = functions(cx, cell, reversed.len())?;
    let mut results: Vec<Vec<NodeId>> = vec![Vec::new(); if cell == RecurrentCell::Lstm { 3 } else { 2 }];
    for (d, &reverse) in reversed.iter().enumerate() {
        let own = functions[d * cell.functions()..][..cell.functions()].to_vec();
        let values = layer.direction(cx, d, reverse, own)?;
        results.iter_mut().zip(values).for_each(|(list, value)| list.push(value));
    }
    results.iter().enumerate().map(|(i, list)| layer.stacked(cx, i, list)).collect()
}

/// The functions that the attributes name, those of one direction after the other; each takes the next alpha and beta.
fn functions(cx: Cx, cell: RecurrentCell, directions: usize) -> Result<Vec<GateFunction>, Error> {
    let usual: &[&str] = match cell {
        RecurrentCell::Rnn => &["Tanh"],
        RecurrentCell::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        _ => &["Sigmoid", "Tanh"],
    };
    let usual: Vec<&str> = usual.iter().copied().cycle().take(usual.len() * directions).collect();
    let names = cx.attrs.texts("activations")?.unwrap_or(usual.clone());
    if names.len() != usual.len() {
        return Err(cx.malformed(format!("{} activations, where {} are needed", names.len(), usual.len())));
    }
    let mut alphas = cx.attrs.floats("activation_alpha")?.unwrap_or_default().iter().copied();
    let mut betas = cx.attrs.floats("activation_beta")?.unwrap_or_default().iter().copied();
    let mut all = Vec::with_capacity(names.len());
    for name in names {
        all.push(match name.to_ascii_lowercase().as_str() {
            "sigmoid" => GateFunction::Sigmoid,
            "tanh" => GateFunction::Tanh,
            "relu" => GateFunction::Relu,
            "softplus" => GateFunction::Softplus,
            "leakyrelu" => GateFunction::LeakyRelu { alpha: alphas.next().unwrap_or(0.01) },
            "hardsigmoid" => GateFunction::HardSigmoid {
                alpha: alphas.next().unwrap_or(0.2),
                beta: betas.next().unwrap_or(0.5),
            },
            _ => return Err(cx.bad_attr("activations", name)),
        });
    }
    Ok(all)
}

impl Layer {
    fn read(cx: Cx, cell: RecurrentCell) -> Result<Layer, Error> {
        let (x, r) = (cx.shape(0)?, cx.shape(2)?);
        let wanted = |s: &rlx_ir::Shape| s.rank() == 3;
        if !wanted(&x) || !wanted(&r) || !wanted(&cx.shape(1)?) {
            return Err(cx.malformed(format!("operands {x}, {}, {r} of other ranks than 3", cx.shape(1)?)));
        }
        let declared = cx.attrs.int_opt("hidden_size")?;
        let hidden = r.dim(2).as_static().filter(|&h| declared.is_none_or(|d| d == h as i64));
        let Some(hidden) = hidden else {
            return Err(cx.malformed(format!("hidden_size {declared:?} with recurrent weights {r}")));
        };
        let batch_first = cx.attrs.flag("layout", false)?;
        let (steps, batch) = if batch_first { (x.dim(1), x.dim(0)) } else { (x.dim(0), x.dim(1)) };
        Ok(Layer { cell, hidden, batch_first, steps, batch, dtype: x.dtype() })
    }

    /// Elements `from..to` of dimension `axis`.
    fn part(&self, cx: Cx, x: NodeId, axis: usize, from: usize, to: usize) -> Result<NodeId, Error> {
        let shape = cx.shape_of(x);
        if axis >= shape.rank() || shape.dim(axis).as_static().is_none_or(|n| n < to) {
            return Err(cx.malformed(format!("{shape} has no elements {from} to {to} along axis {axis}")));
        }
        let (mut starts, mut dims) = (vec![Extent::Const(0); shape.rank()], shape.dims().to_vec());
        (starts[axis], dims[axis]) = (Dim::Static(from).extent(), Dim::Static(to - from));
        cx.add(Op::Slice { starts, steps: vec![1; shape.rank()], to: dims }, &[x])
    }

    /// Direction `d` of an operand whose dimension `axis` is the direction, without that dimension.
    fn of_direction(&self, cx: Cx, operand: usize, axis: usize, d: usize) -> Result<NodeId, Error> {
        let x = cx.x(operand)?;
        let x = self.part(cx, x, axis, d, d + 1)?;
        let mut dims = cx.shape_of(x).dims().to_vec();
        dims.remove(axis);
        cx.reshape(x, dims)
    }

    /// Weights `[gates·hidden, k]` as `[k, gates·hidden]`.
    fn weights(&self, cx: Cx, operand: usize, d: usize) -> Result<NodeId, Error> {
        let w = self.of_direction(cx, operand, 0, d)?;
        cx.transpose(w, &[1, 0])
    }

    /// The bias added to the input's matmul, and the separate candidate bias of a linear GRU.
    fn bias(&self, cx: Cx, d: usize) -> Result<(Option<NodeId>, Option<NodeId>), Error> {
        let linear = self.cell == RecurrentCell::GruLinear;
        let (n, all) = (self.hidden, self.hidden * self.cell.gates());
        if !cx.has(BIAS) {
            let zero = cx.scalar(self.dtype, 0.0);
            let own = if linear { Some(cx.expand(zero, vec![Dim::Static(n)])?) } else { None };
            return Ok((None, own));
        }
        let both = self.of_direction(cx, BIAS, 0, d)?;
        let of_input = self.part(cx, both, 0, 0, all)?;
        if !linear {
            let of_state = self.part(cx, both, 0, all, 2 * all)?;
            return Ok((Some(cx.binary(B::Add, of_input, of_state)?), None));
        }
        let gates = self.part(cx, both, 0, 0, 2 * n)?;
        let of_state = self.part(cx, both, 0, all, all + 2 * n)?;
        let gates = cx.binary(B::Add, gates, of_state)?;
        let candidate = self.part(cx, both, 0, 2 * n, all)?;
        let joined = cx.add(Op::Concat { axis: 0 }, &[gates, candidate])?;
        Ok((Some(joined), Some(self.part(cx, both, 0, all + 2 * n, 2 * all)?)))
    }

    /// The matmul of all steps' inputs, `[steps, batch, gates·hidden]`, and the candidate's separate bias.
    fn input(&self, cx: Cx, d: usize) -> Result<(NodeId, Option<NodeId>), Error> {
        let (x, w) = (cx.x(0)?, self.weights(cx, 1, d)?);
        let product = cx.add(Op::MatMul, &[x, w])?;
        let (bias, own) = self.bias(cx, d)?;
        let sum = match bias {
            Some(bias) => cx.binary(B::Add, product, bias)?,
            None => product,
        };
        let sum = if self.batch_first { cx.transpose(sum, &[1, 0, 2])? } else { sum };
        Ok((sum, own))
    }

    /// The first state or cell, zeros when it is left out.
    fn first(&self, cx: Cx, operand: usize, d: usize) -> Result<NodeId, Error> {
        if cx.has(operand) {
            return self.of_direction(cx, operand, usize::from(self.batch_first), d);
        }
        let zero = cx.scalar(self.dtype, 0.0);
        cx.expand(zero, vec![self.batch, Dim::Static(self.hidden)])
    }

    /// One direction: every step's state, the last state and, of an LSTM, the last cell.
    fn direction(&self, cx: Cx, d: usize, reverse: bool, functions: Vec<GateFunction>) -> Nodes {
        let lstm = self.cell == RecurrentCell::Lstm;
        let (x, candidate_bias) = self.input(cx, d)?;
        let r = self.weights(cx, 2, d)?;
        let mut inputs = vec![x, r];
        if self.cell == RecurrentCell::Gru {
            let n = self.hidden;
            inputs[1] = self.part(cx, r, 1, 0, 2 * n)?;
            inputs.push(self.part(cx, r, 1, 2 * n, 3 * n)?);
        }
        inputs.extend(candidate_bias);
        inputs.push(self.first(cx, 5, d)?);
        if lstm {
            inputs.push(self.first(cx, 6, d)?);
        }
        let peepholes = lstm && cx.has(PEEPHOLES);
        if peepholes {
            inputs.push(self.of_direction(cx, PEEPHOLES, 0, d)?);
        }
        // Lengths that are all of the steps say nothing.
        let whole = |n: i64| self.steps.as_static().is_some_and(|s| n == s as i64);
        let lengths = cx.has(LENGTHS) && !cx.numbers(LENGTHS).is_ok_and(|all| all.into_iter().all(whole));
        if lengths {
            let given = cx.x(LENGTHS)?;
            inputs.push(cx.cast(given, DType::I32)?);
        }
        let op = Op::Recurrent {
            cell: self.cell,
            functions,
            clip: cx.attrs.float_opt("clip")?.filter(|&clip| clip != 0.0),
            coupled: lstm && cx.attrs.flag("input_forget", false)?,
            reverse,
            peepholes,
            lengths,
        };
        cx.add_many(op, &inputs, if lstm { 3 } else { 2 })
    }

    /// Result `i` of all directions: `[steps, directions, batch, hidden]`, or a state's `[directions, batch, hidden]`.
    fn stacked(&self, cx: Cx, i: usize, parts: &[NodeId]) -> Result<NodeId, Error> {
        let axis = usize::from(i == 0);
        let parts = parts.iter().map(|&p| cx.unsqueeze(p, &[axis])).collect::<Nodes>()?;
        let whole = if let [one] = parts[..] { one } else { cx.add(Op::Concat { axis }, &parts)? };
        match (self.batch_first, i) {
            (false, _) => Ok(whole),
            (true, 0) => cx.transpose(whole, &[2, 0, 1, 3]),
            (true, _) => cx.transpose(whole, &[1, 0, 2]),
        }
    }
}
