//! Which values integers of a graph may have, to know that 32 bits hold them.
//!
//! Core ML computes with `int32`, and the integers of models are mostly `i64`: ids, positions, lengths. They are held in 32 bits where
//! every value is sure to fit; what a caller gives is checked at the border ([`MOST`]). What the ops between may make of it is
//! found by interval arithmetic. An op whose results may leave the range is not claimed, so that nothing wraps around unseen.

mod control;

use std::collections::HashMap;

use rlx_ir::op::{Activation, BinaryOp, ReduceOp};
use rlx_ir::{DType, Graph, Node, NodeId, Op};

pub use self::control::Trips;

/// What 64-bit integers of inputs and parameters may be at most, in magnitude: so a few sums of them still fit 32 bits.
pub const MOST: i128 = 1 << 24;

/// How many nodes are looked at for one answer: beyond, a value is anything that 32 bits hold, which its own claim has made sure of.
const NODES: usize = 64;

/// The smallest and largest value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The smallest value.
    pub low: i128,
    /// The largest value.
    pub high: i128,
}

impl Range {
    /// What `int32` holds.
    pub const HELD: Range = Range { low: i32::MIN as i128, high: i32::MAX as i128 };

    /// All values of a type; of one that is no integer, those of a bool.
    pub fn of(dtype: DType) -> Range {
        dtype.int_range().map_or(Range { low: 0, high: 1 }, |(low, high)| Range { low, high })
    }

    /// All values of a type that `int32` holds.
    pub fn held(dtype: DType) -> Range {
        Range::of(dtype).within(Range::HELD)
    }

    /// Whether every value is one of `dtype` and of `int32`.
    pub fn fits(self, dtype: DType) -> bool {
        let within = |of: Range| of.low <= self.low && self.high <= of.high;
        within(Range::of(dtype)) && within(Range::HELD)
    }

    fn within(self, of: Range) -> Range {
        Range { low: self.low.max(of.low), high: self.high.min(of.high) }
    }

    fn spanned(values: &[i128]) -> Range {
        Range {
            low: values.iter().copied().min().unwrap_or(0),
            high: values.iter().copied().max().unwrap_or(0),
        }
    }

    fn joined(self, other: Range) -> Range {
        Range { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    fn product(self, other: Range) -> Range {
        let ends = |a: Range, b: Range| {
            [
                a.low.saturating_mul(b.low),
                a.low.saturating_mul(b.high),
                a.high.saturating_mul(b.low),
                a.high.saturating_mul(b.high),
            ]
        };
        Range::spanned(&ends(self, other))
    }

    fn times(self, count: usize) -> Range {
        self.product(Range { low: 0, high: count as i128 })
            .joined(self.product(Range { low: count as i128, high: count as i128 }))
    }
}

/// What is known of a graph's integers, for one answer.
pub struct Ranges<'g> {
    graph: &'g Graph,
    known: HashMap<NodeId, Range>,
    /// How many nodes more are looked at.
    budget: usize,
    /// Whether it is a body, whose inputs are known.
    is_body: bool,
}

impl<'g> Ranges<'g> {
    /// Nothing is known yet.
    pub fn new(graph: &'g Graph) -> Self {
        Ranges { graph, known: HashMap::new(), budget: NODES, is_body: false }
    }

    /// Of a body whose inputs have these values, in order.
    pub fn of_body(graph: &'g Graph, given: &[Range]) -> Self {
        let known = graph.inputs().zip(given).map(|(node, &range)| (node.id, range)).collect();
        Ranges { graph, known, budget: NODES, is_body: true }
    }

    /// The values of a node's first result.
    pub fn of(&mut self, id: NodeId) -> Range {
        let node = self.graph.node(id);
        let dtype = node.shape.dtype();
        if !dtype.is_int() {
            return Range::of(dtype);
        }
        if let Some(&range) = self.known.get(&id) {
            return range;
        }
        let held = Range::held(dtype);
        if self.budget == 0 {
            return held;
        }
        self.budget -= 1;
        let found = self.result(node, 0);
        // What may leave the type wraps around, and may then be anything.
        let range = if found.fits(dtype) { found } else { held };
        self.known.insert(id, range);
        range
    }

    /// What a node computes, before it wraps around.
    pub fn result(&mut self, node: &Node, index: usize) -> Range {
        let dtype = node.results()[index].dtype();
        let all = Range::held(dtype);
        if !dtype.is_int() {
            return all;
        }
        match &node.op {
            Op::Input { .. } | Op::Param { .. } if self.is_body => all,
            Op::Input { .. } | Op::Param { .. } => {
                if dtype.size_bytes() == 8 {
                    all.within(Range { low: -MOST, high: MOST })
                } else {
                    all
                }
            }
            Op::Constant { data } => {
                data.try_value().ok().and_then(|v| v.ints().ok().map(Range::spanned)).unwrap_or(all)
            }
            Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Expand { .. }
            | Op::Slice { .. }
            | Op::Tile { .. } => self.of(node.inputs[0]),
            Op::Gather { .. } | Op::GatherElements { .. } | Op::GatherNd { .. } => self.of(node.inputs[0]),
            Op::Concat { .. } => self.union(&node.inputs),
            Op::Where => self.union(&node.inputs[1..]),
            Op::Pad { .. } => self.union(&node.inputs).joined(Range { low: 0, high: 0 }),
            Op::Cast { .. } => self.cast(node),
            Op::Iota { to, axis, .. } => {
                let size = to[*axis].as_static().unwrap_or(i32::MAX as usize);
                Range { low: 0, high: size as i128 - 1 }
            }
            Op::ArgReduce { axis, .. } => self.places(node, *axis),
            Op::TopK { axis, .. } if index == 1 => self.places(node, *axis),
            Op::TopK { .. } => self.of(node.inputs[0]),
            Op::Activation(f) => self.activation(node, *f),
            Op::Binary(f) => self.binary(node, *f),
            Op::Reduce { op, axes, .. } => self.reduction(node, *op, axes),
            Op::Cumulative { op: ReduceOp::Sum, axis, .. } => {
                let size = self.graph.shape(node.inputs[0]).dims()[*axis].as_static();
                size.map_or(Range::of(DType::I64), |n| self.of(node.inputs[0]).times(n))
            }
            Op::ScatterElements { reduction, .. } | Op::ScatterNd { reduction } => {
                self.scatter(node, *reduction)
            }
            Op::UpdateSlice { .. } => self.union(&node.inputs[..2]),
            Op::MatMul => self.matmul(node),
            Op::Result { index } => self.result(self.graph.node(node.inputs[0]), *index),
            Op::If { then, otherwise, .. } => self.choice(&node.inputs, [then, otherwise], index),
            Op::Loop { body, carried, .. } => self.repeated(&node.inputs, &body.graph, *carried, index),
            _ => all,
        }
    }

    fn union(&mut self, ids: &[NodeId]) -> Range {
        let ranges: Vec<Range> = ids.iter().map(|&id| self.of(id)).collect();
        ranges.into_iter().reduce(Range::joined).unwrap_or(Range::HELD)
    }

    fn cast(&mut self, node: &Node) -> Range {
        let from = self.graph.shape(node.inputs[0]).dtype();
        let all = Range::held(node.shape.dtype());
        if from.is_float() {
            return all;
        }
        let given = self.of(node.inputs[0]);
        if given.fits(node.shape.dtype()) { given } else { all }
    }

    fn places(&self, node: &Node, axis: usize) -> Range {
        let size = self.graph.shape(node.inputs[0]).dims()[axis].as_static();
        size.map_or(Range::HELD, |n| Range { low: 0, high: n as i128 - 1 })
    }

    fn activation(&mut self, node: &Node, f: Activation) -> Range {
        let x = self.of(node.inputs[0]);
        match f {
            Activation::Neg => Range { low: -x.high, high: -x.low },
            Activation::Abs if x.low >= 0 => x,
            Activation::Abs => Range { low: 0, high: x.high.max(-x.low) },
            Activation::Relu => Range { low: x.low.max(0), high: x.high.max(0) },
            Activation::Sign => Range { low: x.low.signum(), high: x.high.signum() },
            Activation::Round | Activation::Floor | Activation::Ceil | Activation::Trunc => x,
            _ => Range::of(DType::I64),
        }
    }

    fn binary(&mut self, node: &Node, f: BinaryOp) -> Range {
        let (x, y) = (self.of(node.inputs[0]), self.of(node.inputs[1]));
        match f {
            BinaryOp::Add => Range { low: x.low + y.low, high: x.high + y.high },
            BinaryOp::Sub => Range { low: x.low - y.high, high: x.high - y.low },
            BinaryOp::Mul => x.product(y),
            BinaryOp::Max => Range { low: x.low.max(y.low), high: x.high.max(y.high) },
            BinaryOp::Min => Range { low: x.low.min(y.low), high: x.high.min(y.high) },
            BinaryOp::Div => {
                let most = x.high.max(-x.low);
                Range { low: if x.low >= 0 && y.low >= 0 { 0 } else { -most }, high: most }
            }
            BinaryOp::Mod | BinaryOp::Rem => {
                let most = y.high.max(-y.low);
                let low = if y.low >= 0 && (f == BinaryOp::Mod || x.low >= 0) { 0 } else { -most };
                Range { low, high: most }
            }
            _ => Range::of(DType::I64),
        }
    }

    fn reduction(&mut self, node: &Node, op: ReduceOp, axes: &[usize]) -> Range {
        let x = self.of(node.inputs[0]);
        let dims = self.graph.shape(node.inputs[0]).dims();
        let count = axes.iter().try_fold(1usize, |n, &axis| n.checked_mul(dims[axis].as_static()?));
        match (op, count) {
            (ReduceOp::Sum, Some(n)) => x.times(n),
            (ReduceOp::Max | ReduceOp::Min | ReduceOp::Mean, _) => x,
            (ReduceOp::Prod, Some(n)) if n <= 8 => (1..n).fold(x, |product, _| product.product(x)).joined(x),
            _ => Range::of(DType::I64),
        }
    }

    fn scatter(&mut self, node: &Node, op: rlx_ir::op::ScatterOp) -> Range {
        use rlx_ir::op::ScatterOp;
        let (x, updates) = (self.of(node.inputs[0]), self.of(node.inputs[2]));
        match op {
            ScatterOp::Add => {
                let count = self.graph.shape(node.inputs[2]).num_elements();
                count.map_or(Range::of(DType::I64), |n| {
                    let sums = updates.times(n);
                    Range { low: x.low + sums.low.min(0), high: x.high + sums.high.max(0) }
                })
            }
            ScatterOp::Mul => Range::of(DType::I64),
            _ => x.joined(updates),
        }
    }

    fn matmul(&mut self, node: &Node) -> Range {
        let (x, y) = (self.of(node.inputs[0]), self.of(node.inputs[1]));
        let depth = self.graph.shape(node.inputs[0]).dims().last().and_then(|d| d.as_static());
        depth.map_or(Range::of(DType::I64), |k| x.product(y).times(k))
    }
}
