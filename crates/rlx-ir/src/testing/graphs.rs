//! Random graphs: the ops chained at random, together with what exporters write for composites.
//!
//! Values are kept within a few units, so that rounding differences stay small; nothing hinges on a comparison
//! of computed values. A smaller `size` gives a prefix of the same graph, which is how a failing seed is shrunk.

use super::Gen;
use crate::dim::{Dim, DimBinding, Extent, sym};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::{Activation, BinaryOp, DataFormat, MaskKind, Op, PadMode, PoolKind, ReduceOp};
use crate::oracle::Bindings;
use crate::shape::Shape;
use crate::tensor::Value;

/// A random graph of about `size` steps with fixed dimensions, and values for it.
pub fn random_graph(seed: u64, size: usize) -> (Graph, Bindings) {
    let mut g = Gen::new(seed);
    let dims = DimBinding::batch_seq(g.size(1..=3), g.size(1..=5));
    let graph = Builder::new(g, &dims, false).graph(size);
    let bindings = random_bindings(&graph, &DimBinding::new(), seed);
    (graph, bindings)
}

/// A random graph whose batch and sequence are symbols, and values for it at several sizes of them.
pub fn random_symbolic_graph(seed: u64, size: usize) -> (Graph, Vec<Bindings>) {
    let graph = Builder::new(Gen::new(seed), &DimBinding::new(), true).graph(size);
    let sizes = [(1, 1), (2, 3), (3, 4)];
    let bindings = sizes.map(|(b, s)| random_bindings(&graph, &DimBinding::batch_seq(b, s), seed));
    (graph, bindings.to_vec())
}

/// Random values for every input and parameter of `graph`, whose symbols are `dims`.
pub fn random_bindings(graph: &Graph, dims: &DimBinding, seed: u64) -> Bindings {
    let (mut g, mut bindings) = (Gen::new(seed ^ 0x5EED), Bindings::default());
    for node in graph.nodes() {
        let shape = node.shape.bind(dims);
        let Some(fixed) = shape.static_dims() else { continue };
        let value = g.value(shape.dtype(), &fixed, -1.0..1.0);
        match &node.op {
            Op::Input { name } => _ = bindings.set_input(name.clone(), value),
            // Scales and variances are positive.
            Op::Param { name } if name.starts_with("pos") => {
                _ = bindings.set_param(name.clone(), g.value(shape.dtype(), &fixed, 0.5..1.5));
            }
            Op::Param { name } => _ = bindings.set_param(name.clone(), value),
            _ => {}
        }
    }
    bindings
}

/// The width of the sequences' rows, and the channels of the images.
const WIDTH: usize = 8;

struct Builder {
    g: Gen,
    graph: Graph,
    batch: Dim,
    seq: Dim,
    /// What later steps may use.
    values: Vec<NodeId>,
}

type Step = fn(&mut Builder, NodeId) -> Result<NodeId>;

/// The kinds of steps; those that stand twice are taken more often.
const STEPS: &[Step] = &[
    Builder::unary,
    Builder::unary,
    Builder::binary,
    Builder::binary,
    Builder::binary,
    Builder::with_scalar,
    Builder::with_scalar,
    Builder::with_param,
    Builder::where_masked,
    Builder::cast_there_and_back,
    Builder::transpose,
    Builder::transpose,
    Builder::reshape,
    Builder::reshape,
    Builder::unsqueeze_expand,
    Builder::slice,
    Builder::concat,
    Builder::pad,
    Builder::reduce,
    Builder::softmax,
    Builder::norm,
    Builder::written_out_norm,
    Builder::written_out_gelu,
    Builder::linear,
    Builder::linear,
    Builder::product,
    Builder::gather,
    Builder::attention,
    Builder::written_out_attention,
    Builder::convolution,
    Builder::convolution,
    Builder::pool,
];

impl Builder {
    fn new(g: Gen, dims: &DimBinding, symbolic: bool) -> Self {
        let dim = |s: u32| if symbolic { Dim::Dynamic(s) } else { Dim::Static(dims.get(s).unwrap_or(1)) };
        let (batch, seq) = (dim(sym::BATCH), dim(sym::SEQ));
        let mut b = Builder { g, graph: Graph::new("random"), batch, seq, values: Vec::new() };
        let width = Dim::Static(WIDTH);
        for (name, dims) in [
            ("x", vec![batch, seq, width]),
            ("y", vec![batch, seq, width]),
            ("image", vec![batch, width, Dim::Static(6), Dim::Static(5)]),
        ] {
            let id = b.graph.input(name, Shape::from_dims(&dims, DType::F32));
            b.values.push(id);
        }
        b
    }

    fn graph(mut self, size: usize) -> Graph {
        let given = self.values.len();
        for _ in 0..size {
            // The newest values are taken more often, so that graphs become deep.
            let from = if self.g.chance(0.6) { self.values.len().saturating_sub(3) } else { 0 };
            let x = self.values[self.g.size(from..=self.values.len() - 1)];
            let step = self.g.pick(STEPS);
            if let Ok(id) = step(&mut self, x) {
                self.values.push(id);
            }
        }
        let used: Vec<NodeId> = self.graph.nodes().iter().flat_map(|n| n.inputs.clone()).collect();
        let made = &self.values[given..];
        let mut outputs: Vec<NodeId> = made.iter().copied().filter(|id| !used.contains(id)).collect();
        outputs.extend(made.get(made.len() / 2));
        outputs.dedup();
        if outputs.is_empty() {
            outputs.push(self.values[0]);
        }
        self.graph.set_outputs(outputs);
        self.graph
    }

    fn dims(&self, id: NodeId) -> Vec<Dim> {
        self.graph.shape(id).dims().to_vec()
    }

    fn rank(&self, id: NodeId) -> usize {
        self.graph.shape(id).rank()
    }

    /// The width of the rows; steps that need it are not for rows of symbolic width.
    fn last(&self, id: NodeId) -> Result<usize> {
        let fixed = self.dims(id).last().and_then(|d| d.as_static());
        fixed.ok_or_else(|| Error::new(ErrorKind::Dimension, "the last dimension is a symbol"))
    }

    fn param(&mut self, prefix: &str, dims: &[usize]) -> NodeId {
        let name = format!("{prefix}{}", self.graph.len());
        self.graph.param(name, Shape::new(dims, DType::F32))
    }

    fn number(&mut self, value: f64) -> Result<NodeId> {
        self.graph.try_scalar(value, DType::F32)
    }

    /// Back within ±1.
    fn tamed(&mut self, x: NodeId) -> Result<NodeId> {
        self.graph.try_tanh(x)
    }

    fn any(&mut self) -> NodeId {
        self.values[self.g.size(0..=self.values.len() - 1)]
    }

    fn unary(&mut self, x: NodeId) -> Result<NodeId> {
        use Activation as A;
        let f = self.g.pick(&[
            A::Gelu,
            A::GeluApprox,
            A::Silu,
            A::Relu,
            A::Sigmoid,
            A::Tanh,
            A::Neg,
            A::Neg,
            A::Abs,
            A::Sin,
            A::Cos,
            A::Erf,
            A::Softsign,
            A::HardSwish,
        ]);
        self.graph.try_act(f, x)
    }

    fn binary(&mut self, x: NodeId) -> Result<NodeId> {
        use BinaryOp as B;
        let f = self.g.pick(&[B::Add, B::Add, B::Sub, B::Mul, B::Max, B::Min]);
        let mut y = self.any();
        for _ in 0..6 {
            if self.graph.infer(&Op::Binary(f), &[x, y], &[]).is_ok() && self.fits(x, y) {
                break;
            }
            y = self.any();
        }
        if !self.fits(x, y) {
            y = x;
        }
        let z = self.graph.try_bin(f, x, y)?;
        if self.g.chance(0.4) { self.tamed(z) } else { Ok(z) }
    }

    /// Whether symbolic dimensions meet only themselves, or 1.
    fn fits(&self, x: NodeId, y: NodeId) -> bool {
        let (x, y) = (self.dims(x), self.dims(y));
        let one = Dim::Static(1);
        x.iter().rev().zip(y.iter().rev()).all(|(&a, &b)| a == b || a == one || b == one)
    }

    fn with_scalar(&mut self, x: NodeId) -> Result<NodeId> {
        use BinaryOp as B;
        let (f, value) = self.g.pick(&[
            (B::Add, 0.0),
            (B::Sub, 0.0),
            (B::Mul, 1.0),
            (B::Div, 1.0),
            (B::Mul, -1.0),
            (B::Mul, 0.5),
            (B::Div, 2.0),
            (B::Div, 3.0),
            (B::Add, 0.25),
            (B::Pow, 2.0),
            (B::Pow, 1.0),
            (B::Max, 0.0),
            (B::Sub, 1.0),
        ]);
        let c = self.number(value)?;
        let commutes = matches!(f, B::Add | B::Mul | B::Max);
        let z = if commutes && self.g.chance(0.5) {
            self.graph.try_bin(f, c, x)?
        } else {
            self.graph.try_bin(f, x, c)?
        };
        if f == B::Pow { self.tamed(z) } else { Ok(z) }
    }

    fn with_param(&mut self, x: NodeId) -> Result<NodeId> {
        let width = self.last(x)?;
        let f = self.g.pick(&[BinaryOp::Add, BinaryOp::Mul, BinaryOp::Div]);
        let p = self.param("pos", &[width]);
        self.graph.try_bin(f, x, p)
    }

    fn where_masked(&mut self, x: NodeId) -> Result<NodeId> {
        let name = format!("mask{}", self.graph.len());
        let shape = Shape::from_dims(&self.dims(x), DType::Bool);
        let mask = self.graph.input(name, shape);
        let other = if self.g.chance(0.5) { self.number(0.5)? } else { self.graph.try_neg(x)? };
        self.graph.try_where(mask, x, other)
    }

    fn cast_there_and_back(&mut self, x: NodeId) -> Result<NodeId> {
        let wide = self.graph.try_cast(x, DType::F64)?;
        let y = if self.g.chance(0.5) { self.graph.try_neg(wide)? } else { wide };
        self.graph.try_cast(y, DType::F32)
    }

    fn transpose(&mut self, x: NodeId) -> Result<NodeId> {
        let mut perm: Vec<usize> = (0..self.rank(x)).collect();
        self.g.shuffle(&mut perm);
        self.graph.try_transpose(x, &perm)
    }

    /// Merges two neighbouring dimensions, or splits one in two.
    fn reshape(&mut self, x: NodeId) -> Result<NodeId> {
        let mut to = self.dims(x);
        let even = |d: &Dim| d.as_static().is_some_and(|n| n % 2 == 0);
        let splits: Vec<usize> = (0..to.len()).filter(|&i| even(&to[i])).collect();
        if to.len() >= 2 && (splits.is_empty() || self.g.chance(0.5)) {
            let i = self.g.size(0..=to.len() - 2);
            let merged = Dim::from(to[i].extent() * to[i + 1].extent());
            to.splice(i..i + 2, [merged]);
        } else if !splits.is_empty() && to.len() < 5 {
            let i = self.g.pick(&splits);
            let half = to[i].as_static().unwrap_or(2) / 2;
            let parts = if self.g.chance(0.5) { [2, half] } else { [half, 2] };
            to.splice(i..i + 1, parts.map(Dim::Static));
        }
        self.graph.try_reshape_to(x, &to)
    }

    fn unsqueeze_expand(&mut self, x: NodeId) -> Result<NodeId> {
        let mut to = self.dims(x);
        if to.len() >= 5 {
            return Ok(x);
        }
        let at = self.g.size(0..=to.len());
        to.insert(at, Dim::Static(1));
        let y = self.graph.try_reshape_to(x, &to)?;
        if self.g.chance(0.5) {
            return Ok(y);
        }
        to[at] = Dim::Static(2);
        self.graph.try_expand(y, &to)
    }

    fn slice(&mut self, x: NodeId) -> Result<NodeId> {
        let dims = self.dims(x);
        let (mut starts, mut steps) = (vec![Extent::Const(0); dims.len()], vec![1; dims.len()]);
        let mut to = dims.clone();
        for (i, d) in dims.iter().enumerate() {
            let Some(n) = d.as_static().filter(|&n| n >= 2) else { continue };
            if self.g.chance(0.5) {
                let start = self.g.size(0..=n - 2);
                let len = self.g.size(1..=n - start);
                starts[i] = Extent::Const(start as i64);
                to[i] = Dim::Static(len);
                if self.g.chance(0.3) {
                    starts[i] = Extent::Const((start + len - 1) as i64);
                    steps[i] = -1;
                }
            }
        }
        self.graph.try_emit(Op::Slice { starts, steps, to }, &[x])
    }

    fn concat(&mut self, x: NodeId) -> Result<NodeId> {
        let same: Vec<NodeId> =
            self.values.iter().copied().filter(|&v| self.dims(v) == self.dims(x)).collect();
        let other = self.g.pick(&same);
        if self.rank(x) == 0 {
            return Ok(x);
        }
        let axis = self.g.size(0..=self.rank(x) - 1);
        let joined = self.graph.try_emit(Op::Concat { axis }, &[x, other])?;
        if self.g.chance(0.5) {
            return Ok(joined);
        }
        let (mut starts, to) = (vec![Extent::Const(0); self.rank(x)], self.dims(x));
        starts[axis] = if self.g.chance(0.5) { to[axis].extent() } else { Extent::Const(0) };
        self.graph.try_emit(Op::Slice { starts, steps: vec![1; to.len()], to }, &[joined])
    }

    fn pad(&mut self, x: NodeId) -> Result<NodeId> {
        let rank = self.rank(x);
        let mut pads = || (0..rank).map(|_| Extent::Const(i64::from(self.g.chance(0.3)))).collect();
        let (before, after) = (pads(), pads());
        self.graph.try_emit(Op::Pad { before, after, mode: PadMode::Constant }, &[x])
    }

    fn reduce(&mut self, x: NodeId) -> Result<NodeId> {
        let op = self.g.pick(&[ReduceOp::Mean, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min, ReduceOp::Sum]);
        let rank = self.rank(x);
        let axes: Vec<usize> = (0..rank).filter(|_| self.g.chance(0.4)).collect();
        let keep_dim = self.g.chance(0.6);
        let y = self.graph.try_emit(Op::Reduce { op, axes, keep_dim }, &[x])?;
        if op == ReduceOp::Sum { self.tamed(y) } else { Ok(y) }
    }

    fn softmax(&mut self, x: NodeId) -> Result<NodeId> {
        if self.rank(x) == 0 {
            return Ok(x);
        }
        if self.g.chance(0.5) {
            return self.graph.try_sm(x, -1);
        }
        let most = self.graph.try_reduce(x, ReduceOp::Max, &[-1], true)?;
        let shifted = self.graph.try_sub(x, most)?;
        let exp = self.graph.try_exp(shifted)?;
        let sum = self.graph.try_sum(exp, &[-1], true)?;
        self.graph.try_div(exp, sum)
    }

    fn norm(&mut self, x: NodeId) -> Result<NodeId> {
        let width = self.last(x)?;
        let (gamma, beta) = (self.param("pos", &[width]), self.param("w", &[width]));
        if self.g.chance(0.5) {
            self.graph.try_layer_norm(x, gamma, beta, -1, 0.1)
        } else {
            self.graph.try_rms_norm(x, gamma, 0.1)
        }
    }

    /// `d / √(mean(d²) + eps) · gamma + beta` with `d = x − mean(x)`, or without the mean.
    fn written_out_norm(&mut self, x: NodeId) -> Result<NodeId> {
        let width = self.last(x)?;
        let centred = self.g.chance(0.6);
        let d = if centred {
            let mean = self.graph.try_mean(x, &[-1], true)?;
            self.graph.try_sub(x, mean)?
        } else {
            x
        };
        let square = match self.g.chance(0.5) {
            true => {
                let two = self.number(2.0)?;
                self.graph.try_pow(d, two)?
            }
            false => self.graph.try_mul(d, d)?,
        };
        let variance = self.graph.try_mean(square, &[-1], true)?;
        let eps = self.number(0.1)?;
        let root = self.graph.try_add_(variance, eps)?;
        let root = self.graph.try_sqrt(root)?;
        let y = match self.g.chance(0.5) {
            true => self.graph.try_div(d, root)?,
            false => {
                let r = self.graph.try_act(Activation::Recip, root)?;
                self.graph.try_mul(d, r)?
            }
        };
        let gamma = self.param("pos", &[width]);
        let y = self.graph.try_mul(gamma, y)?;
        if !centred {
            return Ok(y);
        }
        let beta = self.param("w", &[width]);
        self.graph.try_add_(y, beta)
    }

    fn written_out_gelu(&mut self, x: NodeId) -> Result<NodeId> {
        let root = self.number(std::f64::consts::SQRT_2)?;
        let (one, half) = (self.number(1.0)?, self.number(0.5)?);
        let inner = self.graph.try_div(x, root)?;
        let erf = self.graph.try_act(Activation::Erf, inner)?;
        let erf = self.graph.try_add_(erf, one)?;
        if self.g.chance(0.5) {
            let y = self.graph.try_mul(x, erf)?;
            self.graph.try_mul(y, half)
        } else {
            let y = self.graph.try_mul(half, x)?;
            self.graph.try_mul(y, erf)
        }
    }

    fn linear(&mut self, x: NodeId) -> Result<NodeId> {
        let (k, n) = (self.last(x)?, self.g.pick(&[WIDTH, 4, 6]));
        let w = self.param("w", &[k, n]);
        let rows = self.dims(x);
        let flat = rows.len() > 2 && self.g.chance(0.4);
        let input = match flat {
            true => {
                let m = rows[..rows.len() - 1].iter().fold(Extent::Const(1), |m, d| m * d.extent());
                self.graph.try_reshape_to(x, &[Dim::from(m), Dim::Static(k)])?
            }
            false => x,
        };
        let y = self.graph.try_mm(input, w)?;
        let bias = self.param("w", &[n]);
        let mut y =
            if self.g.chance(0.5) { self.graph.try_add_(bias, y)? } else { self.graph.try_add_(y, bias)? };
        if flat {
            let mut to = rows;
            let at = to.len() - 1;
            to[at] = Dim::Static(n);
            y = self.graph.try_reshape_to(y, &to)?;
        }
        self.tamed(y)
    }

    fn product(&mut self, x: NodeId) -> Result<NodeId> {
        let rank = self.rank(x);
        if rank < 2 {
            return Ok(x);
        }
        let mut perm: Vec<usize> = (0..rank).collect();
        perm.swap(rank - 1, rank - 2);
        let t = self.graph.try_transpose(x, &perm)?;
        let y = self.graph.try_mm(x, t)?;
        self.tamed(y)
    }

    fn gather(&mut self, x: NodeId) -> Result<NodeId> {
        let rank = self.rank(x);
        let fixed: Vec<usize> =
            (0..rank).filter(|&i| self.dims(x)[i].as_static().is_some_and(|n| n > 0)).collect();
        if fixed.is_empty() {
            return Ok(x);
        }
        let axis = self.g.pick(&fixed);
        let n = self.dims(x)[axis].as_static().unwrap_or(1) as i64;
        let dims: &[usize] = self.g.pick(&[&[][..], &[1][..], &[3][..]]);
        let count: usize = dims.iter().product();
        let index = (0..count).map(|_| i128::from(self.g.int(-n..=n - 1))).collect();
        let index = self.graph.try_constant(Value::int(DType::I64, dims, index).to_const())?;
        self.graph.try_emit(Op::Gather { axis }, &[x, index])
    }

    fn sequences(&self) -> Vec<NodeId> {
        let want = [self.batch, self.seq, Dim::Static(WIDTH)];
        self.values.iter().copied().filter(|&v| self.dims(v) == want).collect()
    }

    fn attention(&mut self, _: NodeId) -> Result<NodeId> {
        let from = self.sequences();
        let (q, k, v) = (self.g.pick(&from), self.g.pick(&from), self.g.pick(&from));
        let kind = self.g.pick(&[MaskKind::None, MaskKind::Causal]);
        self.graph.try_attention(q, k, v, None, 2, WIDTH / 2, kind)
    }

    /// Heads split and transposed, scaled scores with a mask, softmax, and back.
    fn written_out_attention(&mut self, _: NodeId) -> Result<NodeId> {
        let from = self.sequences();
        let split = [self.batch, self.seq, Dim::Static(2), Dim::Static(WIDTH / 2)];
        let mut heads = Vec::new();
        for _ in 0..3 {
            let x = self.g.pick(&from);
            let x = self.graph.try_reshape_to(x, &split)?;
            heads.push(self.graph.try_transpose(x, &[0, 2, 1, 3])?);
        }
        let mut k = self.graph.try_transpose(heads[1], &[0, 1, 3, 2])?;
        let mut q = heads[0];
        let scale = self.number(0.5)?;
        let where_scaled = self.g.size(0..=2);
        if where_scaled != 0 {
            q = self.graph.try_mul(q, scale)?;
        }
        if where_scaled == 2 {
            k = self.graph.try_mul(k, scale)?;
        }
        let mut scores = self.graph.try_mm(q, k)?;
        if where_scaled == 0 {
            scores = self.graph.try_mul(scores, scale)?;
        }
        if self.g.chance(0.6) {
            let name = format!("additive{}", self.graph.len());
            let shape = Shape::from_dims(&[self.batch, Dim::Static(1), Dim::Static(1), self.seq], DType::F32);
            let mask = self.graph.input(name, shape);
            scores = self.graph.try_add_(scores, mask)?;
        }
        let weights = self.graph.try_sm(scores, -1)?;
        let y = self.graph.try_mm(weights, heads[2])?;
        let y = self.graph.try_transpose(y, &[0, 2, 1, 3])?;
        self.graph.try_reshape_to(y, &[self.batch, self.seq, Dim::Static(WIDTH)])
    }

    fn images(&mut self) -> NodeId {
        let image = |d: &[Dim]| {
            let large = |d: &Dim| d.as_static().is_some_and(|n| n >= 3);
            d.len() == 4 && d[1].as_static().is_some_and(|c| c <= 16) && large(&d[2]) && large(&d[3])
        };
        let all: Vec<NodeId> = self.values.iter().copied().filter(|&v| image(&self.dims(v))).collect();
        let newest = all[all.len().saturating_sub(2)..].to_vec();
        self.g.pick(&newest)
    }

    /// A convolution, with a batch norm, an activation and a residual at times.
    fn convolution(&mut self, _: NodeId) -> Result<NodeId> {
        let x = self.images();
        let channels = self.dims(x)[1].as_static().unwrap_or(1);
        let depthwise = self.g.chance(0.3);
        let (out, groups) = if depthwise { (channels, channels) } else { (self.g.pick(&[WIDTH, 4]), 1) };
        let w = self.param("w", &[out, channels / groups, 3, 3]);
        let mut inputs = vec![x, w];
        if self.g.chance(0.5) {
            inputs.push(self.param("w", &[out]));
        }
        let op = Op::Conv {
            strides: vec![1, 1],
            pads: vec![1; 4],
            dilations: vec![1, 1],
            groups,
            format: DataFormat::ChannelsFirst,
        };
        let mut y = self.graph.try_emit(op, &inputs)?;
        if self.g.chance(0.5) {
            let (gamma, beta) = (self.param("pos", &[out]), self.param("w", &[out]));
            let (mean, variance) = (self.param("w", &[out]), self.param("pos", &[out]));
            y = self.graph.try_emit(Op::BatchNorm { eps: 0.01 }, &[y, gamma, beta, mean, variance])?;
        }
        if self.dims(x) == self.dims(y) && self.g.chance(0.5) {
            y = self.graph.try_add_(y, x)?;
        }
        self.tamed(y)
    }

    fn pool(&mut self, _: NodeId) -> Result<NodeId> {
        let x = self.images();
        if self.g.chance(0.3) {
            return self.graph.try_mean(x, &[2, 3], true);
        }
        let op = Op::Pool {
            kind: self.g.pick(&[PoolKind::Max, PoolKind::Average]),
            kernel: vec![2, 2],
            strides: vec![1, 1],
            pads: vec![0, 0, 1, 1],
            dilations: vec![1, 1],
            ceil_mode: false,
            count_include_pad: self.g.chance(0.5),
            format: DataFormat::ChannelsFirst,
        };
        self.graph.try_emit(op, &[x])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_graphs_are_valid_and_have_tame_results() {
        for seed in 0..40 {
            let (graph, bindings) = random_graph(seed, 25);
            crate::verify_ok(&graph).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{graph}"));
            for value in crate::oracle::evaluate(&graph, &bindings).unwrap() {
                let tame = value.to_f64().iter().all(|x| x.abs() < 1e6);
                assert!(tame, "seed {seed}: {graph}");
            }
        }
    }

    #[test]
    fn one_symbolic_graph_runs_at_every_size() {
        for seed in 0..20 {
            let (graph, all) = random_symbolic_graph(seed, 20);
            for bindings in all {
                crate::oracle::evaluate(&graph, &bindings)
                    .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{graph}"));
            }
        }
    }
}
