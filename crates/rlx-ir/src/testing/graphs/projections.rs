//! Steps around matmuls by fixed weights: several of the same rows, gates, norms and quantisation before them.

use super::{Builder, WIDTH};
use crate::dim::{Dim, Extent};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{GraphExt, NodeId};
use crate::ops::{Activation, BinaryOp, MaskKind, Op, ReduceOp};
use crate::shape::Shape;
use crate::tensor::Value;

impl Builder {
    /// `x · W`, with a bias at times.
    fn projection(&mut self, x: NodeId, columns: usize) -> Result<NodeId> {
        let k = self.last(x)?;
        // Small weights: what follows multiplies results with each other, and adds up many of them.
        let w = self.param("small", &[k, columns]);
        let y = self.graph.try_mm(x, w)?;
        if self.g.chance(0.4) {
            return Ok(y);
        }
        let bias = self.param("small", &[columns]);
        if self.g.chance(0.5) { self.graph.try_add_(bias, y) } else { self.graph.try_add_(y, bias) }
    }

    /// Attention whose query, key and value are matmuls of one value, with heads as they are or split and transposed.
    pub(super) fn projected_attention(&mut self, _: NodeId) -> Result<NodeId> {
        let sequences = self.sequences();
        let mut x = self.g.pick(&sequences);
        if self.g.chance(0.5) {
            x = self.norm(x)?;
        }
        let split = self.g.chance(0.5);
        let mut heads = Vec::new();
        for _ in 0..3 {
            let y = self.projection(x, WIDTH)?;
            heads.push(if split { self.split_heads(y, self.seq)? } else { y });
        }
        self.attend(&heads, split)
    }

    /// Attention to keys and values of which each item of the batch has some, gathered by fixed indices: pages of all sequences.
    pub(super) fn paged_attention(&mut self, _: NodeId) -> Result<NodeId> {
        let from = self.sequences();
        let (query, split, pages) = (self.g.pick(&from), self.g.chance(0.5), self.g.size(1..=3));
        let (Some(batch), Some(seq)) = (self.batch.as_static(), self.seq.as_static()) else {
            return Ok(query);
        };
        let rows = Dim::Static(pages * seq);
        let mut heads = vec![if split { self.split_heads(query, self.seq)? } else { query }];
        for _ in 0..2 {
            let table = self.g.pick(&from);
            let last = batch as i64 - 1;
            let places = (0..batch * pages).map(|_| i128::from(self.g.int(-last - 1..=last))).collect();
            let places = Value::int(DType::I64, &[batch, pages], places).to_const();
            let places = self.graph.try_constant(places)?;
            let y = self.graph.try_emit(Op::Gather { axis: 0 }, &[table, places])?;
            let y = self.graph.try_reshape_to(y, &[self.batch, rows, Dim::Static(WIDTH)])?;
            heads.push(if split { self.split_heads(y, rows)? } else { y });
        }
        self.attend(&heads, split)
    }

    /// `[batch, rows, width]` as two heads, `[batch, 2, rows, width / 2]`.
    fn split_heads(&mut self, x: NodeId, rows: Dim) -> Result<NodeId> {
        let to = [self.batch, rows, Dim::Static(2), Dim::Static(WIDTH / 2)];
        let y = self.graph.try_reshape_to(x, &to)?;
        self.graph.try_transpose(y, &[0, 2, 1, 3])
    }

    /// Attention of queries, keys and values; with `split` of two heads each, which are joined again.
    fn attend(&mut self, heads: &[NodeId], split: bool) -> Result<NodeId> {
        let kind = self.g.pick(&[MaskKind::None, MaskKind::Causal]);
        let op = Op::Attention {
            num_heads: 2,
            head_dim: WIDTH / 2,
            mask: kind,
            window: None,
            scale: None,
            unseen: crate::ops::Unseen::Zero,
        };
        let y = self.graph.try_emit(op, heads)?;
        if !split {
            return Ok(y);
        }
        let y = self.graph.try_transpose(y, &[0, 2, 1, 3])?;
        self.graph.try_reshape_to(y, &[self.batch, self.seq, Dim::Static(WIDTH)])
    }

    /// `f(x · W) · (x · V)`, of rows that were normalised at times.
    pub(super) fn gated_linear(&mut self, x: NodeId) -> Result<NodeId> {
        let x = if self.g.chance(0.5) { self.norm(x)? } else { x };
        let columns = self.g.pick(&[WIDTH, 5, 100]);
        let gate = self.projection(x, columns)?;
        let up = self.projection(x, columns)?;
        let f = self.g.pick(&[Activation::Silu, Activation::Relu, Activation::Gelu]);
        let gate = self.graph.try_act(f, gate)?;
        let y =
            if self.g.chance(0.5) { self.graph.try_mul(gate, up)? } else { self.graph.try_mul(up, gate)? };
        let y = self.projection(y, WIDTH)?;
        self.tamed(y)
    }

    /// A norm and a matmul, with a residual at times; the norm has another user at times.
    pub(super) fn normed_linear(&mut self, x: NodeId) -> Result<NodeId> {
        let normed = if self.g.chance(0.7) { self.norm(x)? } else { self.written_out_norm(x)? };
        let columns = self.g.pick(&[WIDTH, 4, 50]);
        let mut y = self.projection(normed, columns)?;
        if self.g.chance(0.5) {
            y = self.graph.try_act(Activation::Gelu, y)?;
            y = self.projection(y, WIDTH)?;
        }
        if self.g.chance(0.2) {
            self.values.push(normed);
        }
        if self.dims(x) == self.dims(y) && self.g.chance(0.5) {
            y = self.graph.try_add_(x, y)?;
        }
        self.tamed(y)
    }

    /// `x · Wᵀ` by weights that are dequantised in blocks, of which the last is longer than what is left.
    pub(super) fn dequantized_linear(&mut self, x: NodeId) -> Result<NodeId> {
        let (k, columns) = (self.last(x)?, self.g.pick(&[WIDTH, 50]));
        let (size, dtype) = (self.g.pick(&[2, 4, 16]), self.g.pick(&[DType::U8, DType::I8]));
        let count = columns * k.div_ceil(size);
        let name = format!("q{}", self.graph.len());
        let w = self.graph.param(name, Shape::new(&[count, size], dtype));
        let mut inputs = vec![w, self.param("pos", &[count])];
        if self.g.chance(0.5) {
            let name = format!("q{}", self.graph.len());
            inputs.push(self.graph.param(name, Shape::new(&[count], dtype)));
        }
        let w = self.graph.try_emit(Op::Dequantize { axis: Some(0), to: DType::F32 }, &inputs)?;
        let w = self.graph.try_reshape_to(w, &[columns, k.next_multiple_of(size)].map(Dim::Static))?;
        let to = [columns, k].map(Dim::Static).to_vec();
        let cut = Op::Slice { starts: vec![Extent::Const(0); 2], steps: vec![1; 2], to };
        let w = self.graph.try_emit(cut, &[w])?;
        let w = self.graph.try_transpose(w, &[1, 0])?;
        let y = self.graph.try_mm(x, w)?;
        let small = self.number(0.01)?;
        let y = self.graph.try_mul(y, small)?;
        self.tamed(y)
    }

    /// One or two matmuls of bytes, of rows that are quantised by a scale that is given or their own; the bytes have another reader
    /// at times. The rows are a graph's input or exact functions of it, so that none rounds another way than the oracle's.
    pub(super) fn quantized_linear(&mut self, _: NodeId) -> Result<NodeId> {
        let mut x = self.values[self.g.size(0..=1)];
        if self.g.chance(0.5) {
            let f = self.g.pick(&[Activation::Abs, Activation::Neg, Activation::Relu]);
            x = self.graph.try_act(f, x)?;
        }
        let to = self.g.pick(&[DType::U8, DType::I8]);
        let largest = if self.g.chance(0.5) {
            let magnitudes = self.graph.try_act(Activation::Abs, x)?;
            let largest = self.graph.try_emit(
                Op::Reduce { op: ReduceOp::Max, axes: vec![0, 1, 2], keep_dim: false },
                &[magnitudes],
            )?;
            let least = self.number(0.125)?;
            self.graph.try_emit(Op::Binary(BinaryOp::Max), &[largest, least])?
        } else {
            self.param("pos", &[])
        };
        let step = self.number(1.0 / 128.0)?;
        let scale = self.graph.try_mul(largest, step)?;
        let zero = self.bytes(&[], to);
        let op = Op::Quantize { axis: None, to };
        let q = self.graph.try_emit(op, &[x, scale, zero])?;
        let mut last = x;
        for _ in 0..self.g.size(1..=2) {
            last = self.integer_projection(q, zero, scale)?;
            self.values.push(last);
        }
        if self.g.chance(0.2) {
            let op = Op::Dequantize { axis: None, to: DType::F32 };
            let back = self.graph.try_emit(op, &[q, scale, zero])?;
            self.values.push(back);
        }
        Ok(last)
    }

    /// `scale · (q − zero) · (w − its zero point)`, with what follows at times.
    fn integer_projection(&mut self, q: NodeId, zero: NodeId, scale: NodeId) -> Result<NodeId> {
        let (k, columns) = (self.last(q)?, self.g.pick(&[WIDTH, 5, 50]));
        let dtype = self.g.pick(&[DType::U8, DType::I8]);
        let w = self.bytes(&[k, columns], dtype);
        let each = if self.g.chance(0.3) { vec![columns] } else { Vec::new() };
        let zeros = self.bytes(&each, dtype);
        let y = self.graph.try_emit(Op::MatMulInteger, &[q, w, zero, zeros])?;
        let y = self.graph.try_emit(Op::Cast { to: DType::F32 }, &[y])?;
        let small = self.number(0.03)?;
        let scale = self.graph.try_mul(scale, small)?;
        let mut y = self.graph.try_mul(y, scale)?;
        if self.g.chance(0.5) {
            let bias = self.param("small", &[columns]);
            y = self.graph.try_add_(y, bias)?;
        }
        y = self.tamed(y)?;
        let residual = self.values[0];
        let fits = self.dims(residual) == self.dims(y) && self.g.chance(0.5);
        if fits { self.graph.try_add_(y, residual) } else { Ok(y) }
    }

    fn bytes(&mut self, dims: &[usize], dtype: DType) -> NodeId {
        let name = format!("q{}", self.graph.len());
        self.graph.param(name, Shape::new(dims, dtype))
    }

    /// Several matmuls of one value, which are reduced and come together, or are used on their own.
    pub(super) fn several_linears(&mut self, x: NodeId) -> Result<NodeId> {
        let (mut last, mut before) = (x, None);
        for _ in 0..self.g.size(2..=4) {
            let columns = self.g.pick(&[WIDTH, 3]);
            let y = self.projection(x, columns)?;
            let summed = self.graph.try_sum(y, &[-1], true)?;
            last = self.tamed(summed)?;
            if let Some(before) = before.replace(last).filter(|_| self.g.chance(0.7)) {
                last = self.graph.try_sub(before, last)?;
            }
            self.values.push(last);
        }
        Ok(last)
    }
}
