//! Steps of one op or few: elementwise functions, movement, reductions.

use super::Builder;
use crate::dim::{Dim, Extent};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{GraphExt, NodeId};
use crate::ops::{Activation, BinaryOp, Op, PadMode, ReduceOp};
use crate::shape::Shape;

impl Builder {
    pub(super) fn unary(&mut self, x: NodeId) -> Result<NodeId> {
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

    pub(super) fn binary(&mut self, x: NodeId) -> Result<NodeId> {
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

    pub(super) fn with_scalar(&mut self, x: NodeId) -> Result<NodeId> {
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

    pub(super) fn with_param(&mut self, x: NodeId) -> Result<NodeId> {
        let width = self.last(x)?;
        let f = self.g.pick(&[BinaryOp::Add, BinaryOp::Mul, BinaryOp::Div]);
        let p = self.param("pos", &[width]);
        self.graph.try_bin(f, x, p)
    }

    pub(super) fn where_masked(&mut self, x: NodeId) -> Result<NodeId> {
        let name = format!("mask{}", self.graph.len());
        let shape = Shape::from_dims(&self.dims(x), DType::Bool);
        let mask = self.graph.input(name, shape);
        let other = if self.g.chance(0.5) { self.number(0.5)? } else { self.graph.try_neg(x)? };
        self.graph.try_where(mask, x, other)
    }

    pub(super) fn cast_there_and_back(&mut self, x: NodeId) -> Result<NodeId> {
        let wide = self.graph.try_cast(x, DType::F64)?;
        let y = if self.g.chance(0.5) { self.graph.try_neg(wide)? } else { wide };
        self.graph.try_cast(y, DType::F32)
    }

    pub(super) fn transpose(&mut self, x: NodeId) -> Result<NodeId> {
        let mut perm: Vec<usize> = (0..self.rank(x)).collect();
        self.g.shuffle(&mut perm);
        self.graph.try_transpose(x, &perm)
    }

    /// Merges two neighbouring dimensions, or splits one in two.
    pub(super) fn reshape(&mut self, x: NodeId) -> Result<NodeId> {
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

    pub(super) fn unsqueeze_expand(&mut self, x: NodeId) -> Result<NodeId> {
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

    pub(super) fn slice(&mut self, x: NodeId) -> Result<NodeId> {
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

    pub(super) fn concat(&mut self, x: NodeId) -> Result<NodeId> {
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

    pub(super) fn pad(&mut self, x: NodeId) -> Result<NodeId> {
        let rank = self.rank(x);
        let mut pads = || (0..rank).map(|_| Extent::Const(i64::from(self.g.chance(0.3)))).collect();
        let (before, after) = (pads(), pads());
        self.graph.try_emit(Op::Pad { before, after, mode: PadMode::Constant }, &[x])
    }

    pub(super) fn reduce(&mut self, x: NodeId) -> Result<NodeId> {
        let op = self.g.pick(&[ReduceOp::Mean, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min, ReduceOp::Sum]);
        let rank = self.rank(x);
        let axes: Vec<usize> = (0..rank).filter(|_| self.g.chance(0.4)).collect();
        let keep_dim = self.g.chance(0.6);
        let y = self.graph.try_emit(Op::Reduce { op, axes, keep_dim }, &[x])?;
        if op == ReduceOp::Sum { self.tamed(y) } else { Ok(y) }
    }
}
