//! Random decoders with caches that grow: keys and values put behind those of past runs, masks and positions computed of how many
//! those are, in the forms that exporters write.

use super::random_bindings;
use crate::dim::{Dim, DimBinding, Extent, sym};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::{Activation, BinaryOp, CmpOp, MaskKind, Op, Predicate, ReduceOp, Unseen};
use crate::oracle::Bindings;
use crate::shape::Shape;
use crate::tensor::Value;
use crate::testing::Gen;

/// How many rows the tables of positions and masks have.
const TABLE: usize = 12;

/// A random decoder whose caches grow by the symbol [`sym::PAST_SEQ`], and values for it after several numbers of past rows: each
/// number with its values. With the new rows there are never more than 12.
pub fn random_decoder(seed: u64) -> (Graph, Vec<(usize, Bindings)>) {
    let mut g = Gen::new(seed ^ 0x00DE_C0DE);
    let (batch, seq) = (g.size(1..=2), g.size(1..=3));
    let dim = if g.chance(0.5) { Dim::Dynamic(sym::SEQ) } else { Dim::Static(seq) };
    let (key_heads, group, size) = (g.size(1..=2), g.size(1..=2), g.pick(&[2usize, 4]));
    let mut decoder = Decoder {
        graph: Graph::new("decoder"),
        g,
        batch: Dim::Static(batch),
        seq: dim,
        keys: Dim::from(Extent::sym(sym::PAST_SEQ) + dim.extent()),
        heads: key_heads * group,
        key_heads,
        size,
        caches: Vec::new(),
    };
    if let Err(e) = decoder.build() {
        decoder.graph.keep_fault(e);
    }
    let graph = decoder.graph;
    let bindings = [0, 1, 4, TABLE - seq].map(|past| {
        let mut dims = DimBinding::batch_seq(batch, seq);
        dims.set(sym::PAST_SEQ, past);
        let mut bindings = random_bindings(&graph, &dims, seed + past as u64);
        // Each query sees itself, most of them more.
        let mut g = Gen::new(seed ^ past as u64);
        let seen = (0..batch * (past + seq)).map(|i| i128::from(i % (past + seq) >= past || g.chance(0.7)));
        let mask = Value::int(DType::I64, &[batch, past + seq], seen.collect());
        bindings.set_input("attention_mask", mask);
        (past, bindings)
    });
    (graph, bindings.to_vec())
}

/// The values of `bindings` for a graph of the same inputs, some of which have more rows: what is missing holds any numbers.
pub fn lengthened(graph: &Graph, bindings: &Bindings, seed: u64) -> Bindings {
    let (mut all, mut g) = (bindings.clone(), Gen::new(seed));
    for node in graph.inputs() {
        let Op::Input { name } = &node.op else { continue };
        let Some(value) = bindings.input(name) else { continue };
        let pairs = node.shape.dims().iter().zip(&value.dims);
        let want: Vec<usize> = pairs.map(|(d, &have)| d.as_static().unwrap_or(have)).collect();
        if want == value.dims {
            continue;
        }
        let mut longer = g.value(node.shape.dtype(), &want, -3.0..3.0);
        overlay(&mut longer, value);
        all.set_input(name.clone(), longer);
    }
    all
}

/// Puts `part` at the beginning of every dimension of `whole`.
fn overlay(whole: &mut Value, part: &Value) {
    let index = |dims: &[usize], mut flat: usize| {
        let mut index = vec![0; dims.len()];
        for (i, &d) in dims.iter().enumerate().rev() {
            (index[i], flat) = (flat % d, flat / d);
        }
        index
    };
    for flat in 0..part.dims.iter().product() {
        let place = index(&part.dims, flat).iter().zip(&whole.dims).fold(0, |at, (&i, &d)| at * d + i);
        match (&mut whole.elements, &part.elements) {
            (crate::tensor::Elements::Float(to), crate::tensor::Elements::Float(from)) => {
                to[place] = from[flat]
            }
            (crate::tensor::Elements::Int(to), crate::tensor::Elements::Int(from)) => to[place] = from[flat],
            _ => {}
        }
    }
}

struct Decoder {
    g: Gen,
    graph: Graph,
    batch: Dim,
    seq: Dim,
    /// How many keys there are: those of past runs and the new ones.
    keys: Dim,
    heads: usize,
    key_heads: usize,
    size: usize,
    caches: Vec<NodeId>,
}

impl Decoder {
    fn add(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        self.graph.try_add(op, inputs)
    }

    fn reshape(&mut self, x: NodeId, to: &[Dim]) -> Result<NodeId> {
        self.add(Op::Reshape { to: to.to_vec() }, &[x])
    }

    fn count(&mut self, to: Dim) -> Result<NodeId> {
        self.add(Op::Iota { to: vec![to], axis: 0, dtype: DType::I64 }, &[])
    }

    fn number(&mut self, value: f64, dtype: DType) -> Result<NodeId> {
        self.graph.try_scalar(value, dtype)
    }

    fn compare(&mut self, f: CmpOp, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.add(Op::Compare(f), &[a, b])
    }

    fn past(&self) -> Extent {
        Extent::sym(sym::PAST_SEQ)
    }

    fn width(&self) -> usize {
        self.heads * self.size
    }

    fn build(&mut self) -> Result<()> {
        let width = Dim::Static(self.width());
        let x = self.graph.input("x", Shape::from_dims(&[self.batch, self.seq, width], DType::F32));
        let mask = Shape::from_dims(&[self.batch, self.keys], DType::I64);
        let mask = self.graph.input("attention_mask", mask);
        let mut x = self.positioned(x, mask)?;
        let mask = self.mask(mask)?;
        for layer in 0..self.g.size(1..=2) {
            let y = self.layer(x, mask, layer)?;
            x = self.add(Op::Binary(BinaryOp::Add), &[x, y])?;
        }
        let mut outputs = vec![x];
        outputs.extend(&self.caches);
        self.graph.set_outputs(outputs);
        Ok(())
    }

    /// The positions of the new rows, `[seq]` or `[batch, seq]`.
    fn positions(&mut self, mask: NodeId) -> Result<NodeId> {
        let (past, seq) = (self.past(), self.seq);
        match self.g.size(0..=3) {
            // A part of one count over everything.
            0 => {
                let all = self.count(self.keys)?;
                self.add(Op::Slice { starts: vec![past], steps: vec![1], to: vec![seq] }, &[all])
            }
            // The number of past rows as the last of a count, added to a count.
            1 => {
                let all = self.count(Dim::from(past + 1))?;
                let one = Op::Slice { starts: vec![past], steps: vec![1], to: vec![Dim::Static(1)] };
                let (last, own) = (self.add(one, &[all])?, self.count(seq)?);
                self.add(Op::Binary(BinaryOp::Add), &[own, last])
            }
            // How many rows are not masked before each.
            2 => {
                let op = Op::Cumulative { op: ReduceOp::Sum, axis: 1, exclusive: false, reverse: false };
                let (sums, one) = (self.add(op, &[mask])?, self.number(1.0, DType::I64)?);
                let places = self.add(Op::Binary(BinaryOp::Sub), &[sums, one])?;
                let part = Op::Slice {
                    starts: vec![Extent::Const(0), past],
                    steps: vec![1, 1],
                    to: vec![self.batch, seq],
                };
                self.add(part, &[places])
            }
            // How many are not masked in all.
            _ => {
                let sum = Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keep_dim: true };
                let (all, one) = (self.add(sum, &[mask])?, self.number(1.0, DType::I64)?);
                let last = self.add(Op::Binary(BinaryOp::Sub), &[all, one])?;
                self.add(Op::Expand { to: vec![self.batch, seq] }, &[last])
            }
        }
    }

    fn positioned(&mut self, x: NodeId, mask: NodeId) -> Result<NodeId> {
        let places = self.positions(mask)?;
        let table = self.graph.param("positions", Shape::new(&[TABLE, self.width()], DType::F32));
        let rows = self.add(Op::Gather { axis: 0 }, &[table, places])?;
        self.add(Op::Binary(BinaryOp::Add), &[x, rows])
    }

    /// Which keys the queries see, as bools `[batch or 1, 1, seq, keys]`.
    fn seen(&mut self, mask: NodeId) -> Result<NodeId> {
        let (one, seq, keys, past) = (Dim::Static(1), self.seq, self.keys, self.past());
        let causal = match self.g.size(0..=2) {
            0 => {
                let (column, row) = (self.count(keys)?, self.count(seq)?);
                let all = self.count(Dim::from(past + 1))?;
                let last = Op::Slice { starts: vec![past], steps: vec![1], to: vec![one] };
                let last = self.add(last, &[all])?;
                let row = self.add(Op::Binary(BinaryOp::Add), &[row, last])?;
                let (row, column) = (self.reshape(row, &[seq, one])?, self.reshape(column, &[one, keys])?);
                self.compare(CmpOp::Le, column, row)?
            }
            1 => {
                let value = self.number(1.0, DType::F32)?;
                let ones = self.add(Op::Expand { to: vec![seq, keys] }, &[value])?;
                let upper = self.add(Op::Trilu { upper: true, k: past + 1 }, &[ones])?;
                let zero = self.number(0.0, DType::F32)?;
                self.compare(CmpOp::Eq, upper, zero)?
            }
            _ => {
                let table = self.triangle()?;
                let starts = vec![past, Extent::Const(0)];
                self.add(Op::Slice { starts, steps: vec![1, 1], to: vec![seq, keys] }, &[table])?
            }
        };
        let causal = self.reshape(causal, &[one, one, seq, keys])?;
        if self.g.chance(0.3) {
            return Ok(causal);
        }
        let zero = self.number(0.0, DType::I64)?;
        let given = self.compare(CmpOp::Ne, mask, zero)?;
        let given = if self.g.chance(0.5) { self.picked(given)? } else { given };
        let given = self.reshape(given, &[self.batch, one, one, keys])?;
        self.add(Op::Binary(BinaryOp::And), &[given, causal])
    }

    /// A table of which places see which.
    fn triangle(&mut self) -> Result<NodeId> {
        let seen = (0..TABLE * TABLE).map(|i| i % TABLE <= i / TABLE);
        self.graph.try_constant(Value::bools(&[TABLE, TABLE], seen).to_const())
    }

    /// The mask element by element, by indices of batch and key.
    fn picked(&mut self, mask: NodeId) -> Result<NodeId> {
        let (one, keys, batch) = (Dim::Static(1), self.keys, self.batch);
        let (rows, columns) = (self.count(batch)?, self.count(keys)?);
        let rows = self.reshape(rows, &[batch, one, one])?;
        let rows = self.add(Op::Expand { to: vec![batch, keys, one] }, &[rows])?;
        let columns = self.reshape(columns, &[one, keys, one])?;
        let columns = self.add(Op::Expand { to: vec![batch, keys, one] }, &[columns])?;
        let indices = self.add(Op::Concat { axis: 2 }, &[rows, columns])?;
        self.add(Op::GatherNd { batch_dims: 0 }, &[mask, indices])
    }

    /// A mask as bools, or as numbers to be added.
    fn mask(&mut self, mask: NodeId) -> Result<NodeId> {
        let seen = self.seen(mask)?;
        if self.g.chance(0.4) {
            return Ok(seen);
        }
        let low = if self.g.chance(0.5) { f64::NEG_INFINITY } else { f64::from(f32::MIN) };
        let (zero, low) = (self.number(0.0, DType::F32)?, self.number(low, DType::F32)?);
        self.add(Op::Where, &[seen, zero, low])
    }

    fn layer(&mut self, x: NodeId, mask: NodeId, layer: usize) -> Result<NodeId> {
        let (heads, key_heads, size) = (self.heads, self.key_heads, self.size);
        let q = self.projected(x, &format!("small.q{layer}"), heads * size)?;
        let k = self.projected(x, &format!("small.k{layer}"), key_heads * size)?;
        let v = self.projected(x, &format!("small.v{layer}"), key_heads * size)?;
        let q = self.split(q, heads, self.seq)?;
        // Rows in front of heads, or heads in front of rows.
        let rows_first = self.g.chance(0.3);
        let (k, v) = (
            self.cached(k, rows_first, format!("key{layer}"))?,
            self.cached(v, rows_first, format!("value{layer}"))?,
        );
        let y = if self.g.chance(0.5) {
            self.attention(q, k, v, mask)?
        } else {
            self.written_out(q, k, v, mask)?
        };
        let y = self.add(Op::Transpose { perm: vec![0, 2, 1, 3] }, &[y])?;
        let y = self.reshape(y, &[self.batch, self.seq, Dim::Static(heads * size)])?;
        self.projected(y, &format!("small.o{layer}"), heads * size)
    }

    fn projected(&mut self, x: NodeId, name: &str, to: usize) -> Result<NodeId> {
        let w = self.graph.param(name, Shape::new(&[self.width(), to], DType::F32));
        self.add(Op::MatMul, &[x, w])
    }

    fn split(&mut self, x: NodeId, heads: usize, rows: Dim) -> Result<NodeId> {
        let x = self.reshape(x, &[self.batch, rows, Dim::Static(heads), Dim::Static(self.size)])?;
        self.add(Op::Transpose { perm: vec![0, 2, 1, 3] }, &[x])
    }

    /// New rows behind those of a cache, as `[batch, heads, keys, size]`.
    fn cached(&mut self, new: NodeId, rows_first: bool, name: String) -> Result<NodeId> {
        let (past, heads, size) =
            (Dim::Dynamic(sym::PAST_SEQ), Dim::Static(self.key_heads), Dim::Static(self.size));
        if rows_first {
            let width = Dim::Static(self.key_heads * self.size);
            let before = self.graph.input(name, Shape::from_dims(&[self.batch, past, width], DType::F32));
            let all = self.add(Op::Concat { axis: 1 }, &[before, new])?;
            self.caches.push(all);
            return self.split(all, self.key_heads, self.keys);
        }
        let new = self.split(new, self.key_heads, self.seq)?;
        let before = self.graph.input(name, Shape::from_dims(&[self.batch, heads, past, size], DType::F32));
        let all = self.add(Op::Concat { axis: 2 }, &[before, new])?;
        self.caches.push(all);
        Ok(all)
    }

    fn attention(&mut self, q: NodeId, k: NodeId, v: NodeId, mask: NodeId) -> Result<NodeId> {
        let kind = self.g.pick(&[MaskKind::None, MaskKind::Causal, MaskKind::Custom, MaskKind::Custom]);
        let (num_heads, head_dim) = (self.heads, self.size);
        let windows = if kind == MaskKind::Causal { &[None, None, Some(1), Some(3)][..] } else { &[None] };
        let (window, scale, unseen) = (self.g.pick(windows), None, Unseen::Zero);
        let op = Op::Attention { num_heads, head_dim, mask: kind, window, scale, unseen };
        let inputs = [q, k, v, mask];
        self.add(op, if kind == MaskKind::Custom { &inputs } else { &inputs[..3] })
    }

    fn written_out(&mut self, q: NodeId, k: NodeId, v: NodeId, mask: NodeId) -> Result<NodeId> {
        let (k, v) = (self.repeated(k)?, self.repeated(v)?);
        let k = self.add(Op::Transpose { perm: vec![0, 1, 3, 2] }, &[k])?;
        let k = if self.g.chance(0.3) {
            let scale = self.number(0.5, DType::F32)?;
            self.add(Op::Binary(BinaryOp::Mul), &[k, scale])?
        } else {
            k
        };
        let mut scores = self.add(Op::MatMul, &[q, k])?;
        if self.g.chance(0.5) {
            let scale = self.number(0.5, DType::F32)?;
            scores = self.add(Op::Binary(BinaryOp::Mul), &[scores, scale])?;
        }
        scores = if self.graph.shape(mask).dtype() == DType::Bool {
            let low = self.number(f64::NEG_INFINITY, DType::F32)?;
            self.add(Op::Where, &[mask, scores, low])?
        } else {
            self.add(Op::Binary(BinaryOp::Add), &[scores, mask])?
        };
        let axis = self.g.pick(&[-1, 3]);
        let mut weights = self.add(Op::Softmax { axis }, &[scores])?;
        if self.g.chance(0.3) {
            let is_nan = self.add(Op::Predicate(Predicate::IsNan), &[weights])?;
            let zero = self.number(0.0, DType::F32)?;
            weights = self.add(Op::Where, &[is_nan, zero, weights])?;
        } else if self.g.chance(0.2) {
            // Something that makes of zeros what is not zero.
            weights = self.add(Op::Activation(Activation::Cos), &[weights])?;
        }
        let v = if self.g.chance(0.2) { self.add(Op::Activation(Activation::Tanh), &[v])? } else { v };
        self.add(Op::MatMul, &[weights, v])
    }

    /// Each key head for the query heads that share it.
    fn repeated(&mut self, x: NodeId) -> Result<NodeId> {
        let group = self.heads / self.key_heads;
        if group == 1 {
            return Ok(x);
        }
        let (batch, keys, size) = (self.batch, self.keys, Dim::Static(self.size));
        let (heads, group) = (Dim::Static(self.key_heads), Dim::Static(group));
        let x = self.reshape(x, &[batch, heads, Dim::Static(1), keys, size])?;
        let x = self.add(Op::Expand { to: vec![batch, heads, group, keys, size] }, &[x])?;
        self.reshape(x, &[batch, Dim::Static(self.heads), keys, size])
    }
}
