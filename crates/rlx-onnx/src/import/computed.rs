//! Shape operands that are computed from data: each element becomes a dimension that the run finds out.
//!
//! An element is a symbol that [`Op::CountUp`] binds. Memory is planned ahead, so there must be something that the number cannot
//! exceed: a walk back through the ops that computed it looks for that ([`NodeCx::found_extents`]). What has no such bound (a size
//! that a float formula gives) is not built. The bound need not hold for every input: a number beyond it is an error of the run.

use super::context::NodeCx;
use crate::ops::fresh;
use rlx_ir::op::{Activation, BinaryOp as B, ReduceOp};
use rlx_ir::tensor::Elements;
use rlx_ir::{DType, Dim, Error, Extent, Node, NodeId, Op};
use std::cell::Cell;

/// How many nodes the walk back from one element looks at.
const MOST_STEPS: usize = 512;

/// Longer operands are no shapes.
const MOST_FOUND: usize = 64;

impl NodeCx<'_, '_> {
    /// The elements of operand `i`, which decide a shape, as expressions; those that are computed from data are found when
    /// the graph runs.
    ///
    /// # Errors
    /// That of [`NodeCx::extents`] where an element is computed from data and nothing bounds it.
    pub fn found_extents(&mut self, i: usize) -> Result<Vec<Extent>, Error> {
        let error = match self.extents(i) {
            Ok(known) => return Ok(known),
            Err(error) => error,
        };
        if self.decided_by_a_caller(i) {
            return Err(error);
        }
        let shape = self.shape(i)?;
        let count = shape.num_elements().filter(|&n| n <= MOST_FOUND && shape.dtype().is_int());
        let Some(count) = count else { return Err(error) };
        let x = self.x(i)?;
        let mut elements = Vec::with_capacity(count);
        for at in 0..count {
            // All are looked at before anything is built.
            elements.push(match self.element(x, at, &Cell::new(MOST_STEPS)) {
                Element::Known(n) => (Extent::Const(n), false),
                Element::Computed(most) => (most.ok_or_else(|| error.clone())?, true),
            });
        }
        let x = self.cast(x, DType::I64)?;
        let flat = self.reshape(x, vec![Dim::Static(count)])?;
        let mut found = Vec::with_capacity(count);
        for (at, (extent, computed)) in elements.into_iter().enumerate() {
            found.push(match computed {
                false => extent,
                true => {
                    let one = self.slice_axis(flat, 0, Extent::Const(at as i64), Extent::Const(1))?;
                    self.count_up(one, extent)?.1.extent()
                }
            });
        }
        Ok(found)
    }

    /// Counts up to the number that a node computes, which is `most` at most; also the dimension that it is.
    pub fn count_up(&mut self, number: NodeId, most: Extent) -> Result<(NodeId, Dim), Error> {
        let count = fresh(self);
        let node = self.add(Op::CountUp { count, most: Dim::from(most) }, &[number])?;
        Ok((node, self.shape_of(node).dim(0)))
    }

    /// Element `at` of a tensor of integers: what it is, or what it is at most.
    fn element(&self, x: NodeId, at: usize, steps: &Cell<usize>) -> Element {
        let node = self.importer.node_of(x).filter(|_| took(steps));
        let Some(node) = node else { return Element::Computed(None) };
        let inner = |i: usize, at: usize| self.element(node.inputs[i], at, steps);
        match &node.op {
            Op::Constant { data } => match &data.value().elements {
                Elements::Int(v) => match v.get(at).and_then(|&n| i64::try_from(n).ok()) {
                    Some(n) => Element::Known(n),
                    None => Element::Computed(None),
                },
                Elements::Float(_) => Element::Computed(self.bound(x, steps)),
            },
            Op::Reshape { .. } => inner(0, at),
            Op::Cast { to } if to.is_int() => inner(0, at),
            Op::Concat { axis: 0 } => {
                let mut at = at;
                for (i, &part) in node.inputs.iter().enumerate() {
                    let shape = self.importer.node_of(part).map(|n| &n.shape);
                    match shape.and_then(|s| s.num_elements()) {
                        Some(n) if at < n => return inner(i, at),
                        Some(n) => at -= n,
                        None => break,
                    }
                }
                Element::Computed(self.bound(x, steps))
            }
            _ => Element::Computed(self.bound(x, steps)),
        }
    }

    /// What no element of a node exceeds; of floats, rounded up.
    fn bound(&self, x: NodeId, steps: &Cell<usize>) -> Option<Extent> {
        let node = self.importer.node_of(x).filter(|_| took(steps))?;
        let of = |i: usize| self.bound(*node.inputs.get(i)?, steps);
        let largest = |list: &[NodeId]| {
            list.iter().map(|&id| self.bound(id, steps)).reduce(|a, b| Some(a?.max(b?))).flatten()
        };
        let dim = |of: usize, axis: usize| {
            let shape = &self.importer.node_of(*node.inputs.get(of)?)?.shape;
            Some(shape.dims().get(axis)?.extent())
        };
        match &node.op {
            _ if node.shape.dtype() == DType::Bool => Some(Extent::Const(1)),
            Op::Constant { data } => largest_element(&data.try_value().ok()?.elements),
            Op::Iota { to, axis, .. } => Some(to.get(*axis)?.extent() - 1),
            Op::CountUp { most, .. } => Some(most.extent() - 1),
            Op::ArgReduce { axis, .. } => Some(dim(0, *axis)? - 1),
            Op::NonZero { .. } => {
                let shape = &self.importer.node_of(node.inputs[0])?.shape;
                shape.dims().iter().map(|d| d.extent() - 1).reduce(Extent::max)
            }
            Op::NonMaxSuppression { .. } => Some(dim(1, 0)?.max(dim(1, 1)?).max(dim(1, 2)?) - 1),
            Op::Unique { .. } => dim(0, 0),
            Op::Result { index } => self.bound_of_result(node, *index, steps),
            Op::TopK { .. }
            | Op::Cast { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Expand { .. } => of(0),
            Op::Slice { .. } | Op::Gather { .. } | Op::GatherElements { .. } | Op::GatherNd { .. } => of(0),
            Op::Tile { .. } => of(0),
            Op::Concat { .. } => largest(&node.inputs),
            Op::Where => largest(&node.inputs[1..]),
            Op::Activation(Activation::Sigmoid) => Some(Extent::Const(1)),
            Op::Activation(Activation::Floor | Activation::Ceil | Activation::Round | Activation::Relu) => {
                of(0)
            }
            Op::Binary(f) => bound_of_two(*f, of(0), of(1)),
            Op::Reduce { op: ReduceOp::Max | ReduceOp::Min | ReduceOp::Mean, .. } => of(0),
            Op::Reduce { op: ReduceOp::Sum, axes, .. } => {
                let count = axes.iter().map(|&axis| dim(0, axis)).reduce(|a, b| Some(a? * b?)).flatten()?;
                Some(of(0)?.max(0) * count)
            }
            Op::Cumulative { op: ReduceOp::Sum, axis, .. } => Some(of(0)?.max(0) * dim(0, *axis)?),
            _ => None,
        }
    }

    fn bound_of_result(&self, node: &Node, index: usize, steps: &Cell<usize>) -> Option<Extent> {
        let of = self.importer.node_of(*node.inputs.first()?)?;
        match (&of.op, index) {
            (Op::TopK { axis, .. }, 1) => {
                Some(self.importer.node_of(*of.inputs.first()?)?.shape.dims().get(*axis)?.extent() - 1)
            }
            (Op::Unique { .. }, _) => self.bound(of.id, steps),
            _ => None,
        }
    }
}

/// Takes a step, if one is left.
fn took(steps: &Cell<usize>) -> bool {
    let left = steps.get();
    steps.set(left.saturating_sub(1));
    left > 0
}

/// An element of an operand.
enum Element {
    Known(i64),
    /// With what it is at most.
    Computed(Option<Extent>),
}

fn largest_element(elements: &Elements) -> Option<Extent> {
    let number = match elements {
        Elements::Int(v) => i64::try_from(*v.iter().max()?).ok()?,
        Elements::Float(v) => {
            let most = v.iter().copied().reduce(f64::max)?.ceil();
            if most.abs() < 1e15 { most as i64 } else { return None }
        }
    };
    Some(Extent::Const(number))
}

/// The bound of what two numbers give that are not negative, or of a limit.
fn bound_of_two(f: B, a: Option<Extent>, b: Option<Extent>) -> Option<Extent> {
    match f {
        B::Min => match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        },
        B::Max => Some(a?.max(b?)),
        B::Add => Some(a? + b?),
        B::Sub => a,
        B::Mul => Some(a? * b?),
        B::Div => match b.and_then(|b| b.as_const()) {
            Some(_) => a,
            None => None,
        },
        B::Mod | B::Rem => Some(b? - 1),
        _ => None,
    }
}
