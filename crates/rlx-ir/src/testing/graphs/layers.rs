//! Steps that are a layer of a network: as the composite, or written out as exporters do.

use super::{Builder, WIDTH};
use crate::dim::{Dim, Extent};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{GraphExt, NodeId};
use crate::ops::{Activation, DataFormat, MaskKind, Op, PoolKind, ReduceOp};
use crate::shape::Shape;
use crate::tensor::Value;

impl Builder {
    pub(super) fn softmax(&mut self, x: NodeId) -> Result<NodeId> {
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

    pub(super) fn norm(&mut self, x: NodeId) -> Result<NodeId> {
        let width = self.last(x)?;
        let (gamma, beta) = (self.param("pos", &[width]), self.param("w", &[width]));
        if self.g.chance(0.5) {
            self.graph.try_layer_norm(x, gamma, beta, -1, 0.1)
        } else {
            self.graph.try_rms_norm(x, gamma, 0.1)
        }
    }

    /// `d / √(mean(d²) + eps) · gamma + beta` with `d = x − mean(x)`, or without the mean.
    pub(super) fn written_out_norm(&mut self, x: NodeId) -> Result<NodeId> {
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

    pub(super) fn written_out_gelu(&mut self, x: NodeId) -> Result<NodeId> {
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

    pub(super) fn linear(&mut self, x: NodeId) -> Result<NodeId> {
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

    pub(super) fn product(&mut self, x: NodeId) -> Result<NodeId> {
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

    pub(super) fn gather(&mut self, x: NodeId) -> Result<NodeId> {
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

    pub(super) fn sequences(&self) -> Vec<NodeId> {
        let want = [self.batch, self.seq, Dim::Static(WIDTH)];
        self.values.iter().copied().filter(|&v| self.dims(v) == want).collect()
    }

    pub(super) fn attention(&mut self, _: NodeId) -> Result<NodeId> {
        let from = self.sequences();
        let (q, k, v) = (self.g.pick(&from), self.g.pick(&from), self.g.pick(&from));
        let kind = self.g.pick(&[MaskKind::None, MaskKind::Causal]);
        self.graph.try_attention(q, k, v, None, 2, WIDTH / 2, kind)
    }

    /// Heads split and transposed, scaled scores with a mask, softmax, and back.
    pub(super) fn written_out_attention(&mut self, _: NodeId) -> Result<NodeId> {
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
    pub(super) fn convolution(&mut self, _: NodeId) -> Result<NodeId> {
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

    pub(super) fn pool(&mut self, _: NodeId) -> Result<NodeId> {
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
