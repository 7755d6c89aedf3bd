//! Shape operands that are computed from data: each element becomes a dimension that the run finds out.
//!
//! An element is a symbol that [`Op::CountUp`] binds. Memory is planned ahead, so there must be something that the number cannot
//! exceed: a walk back through the ops that computed it looks for that ([`NodeCx::found_extents`]), in the arithmetic of [`super::ranges`], out of bodies into
//! the graphs around them. What has no such bound (an exponential of data) is not built. The bound need not hold for every input: a number beyond
//! it is an error of the run.

use super::context::NodeCx;
use super::ranges::{Bound, Range};
use super::slot::Importer;
use crate::ops::fresh;
use rlx_ir::op::{ReduceOp, ScatterOp};
use rlx_ir::tensor::Elements;
use rlx_ir::{DType, Dim, Error, Extent, Node, NodeId, Op};
use std::collections::HashMap;

/// How many nodes the walk back from an operand looks at.
const MOST_STEPS: usize = 1024;

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
        let mut walk = Walk { importer: self.importer, found: HashMap::new(), left: MOST_STEPS };
        let mut elements = Vec::with_capacity(count);
        for at in 0..count {
            // All are looked at before anything is built.
            elements.push(match walk.element(x, at) {
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
}

/// A walk back through the nodes that compute an operand.
struct Walk<'w, 'f> {
    importer: &'w Importer<'f>,
    /// The ranges of the nodes that were looked at.
    found: HashMap<NodeId, Range>,
    /// How many more may be.
    left: usize,
}

impl<'w> Walk<'w, '_> {
    fn node(&mut self, id: NodeId) -> Option<&'w Node> {
        self.left = self.left.checked_sub(1)?;
        self.importer.node_of(id)
    }

    /// Element `at` of a tensor of integers: what it is, or what it is at most.
    fn element(&mut self, x: NodeId, at: usize) -> Element {
        let Some(node) = self.node(x) else { return Element::Computed(None) };
        match &node.op {
            Op::Constant { data } => match &data.value().elements {
                Elements::Int(v) => match v.get(at).and_then(|&n| i64::try_from(n).ok()) {
                    Some(n) => Element::Known(n),
                    None => Element::Computed(None),
                },
                Elements::Float(_) => Element::Computed(self.most(x)),
            },
            Op::Reshape { .. } => self.element(node.inputs[0], at),
            Op::Cast { to } if to.is_int() => self.element(node.inputs[0], at),
            Op::Concat { axis: 0 } => {
                let mut at = at;
                for &part in &node.inputs {
                    let shape = self.importer.node_of(part).map(|n| &n.shape);
                    match shape.and_then(|s| s.num_elements()) {
                        Some(n) if at < n => return self.element(part, at),
                        Some(n) => at -= n,
                        None => break,
                    }
                }
                Element::Computed(self.most(x))
            }
            _ => Element::Computed(self.most(x)),
        }
    }

    fn most(&mut self, x: NodeId) -> Option<Extent> {
        self.range(x).most.and_then(Bound::up)
    }

    /// Between what numbers the elements of a node are.
    fn range(&mut self, x: NodeId) -> Range {
        if let Some(&range) = self.found.get(&x) {
            return range;
        }
        let range = match self.node(x) {
            Some(node) => self.range_of(node).unwrap_or_default(),
            None => return Range::default(),
        };
        self.found.insert(x, range);
        range
    }

    /// What holds for the elements of all these nodes.
    fn all(&mut self, list: &[NodeId]) -> Range {
        let (first, rest) = match list {
            [first, rest @ ..] => (self.range(*first), rest),
            [] => return Range::default(),
        };
        rest.iter().fold(first, |range, &x| range.or(self.range(x)))
    }

    fn range_of(&mut self, node: &Node) -> Option<Range> {
        let dim = |of: usize, axis: usize| {
            let shape = &self.importer.node_of(*node.inputs.get(of)?)?.shape;
            Some(shape.dims().get(axis)?.extent())
        };
        Some(match &node.op {
            _ if node.shape.dtype() == DType::Bool => Range::of_numbers(0.0, 1.0),
            Op::Constant { data } => Range::of_value(&data.try_value().ok()?),
            // What a body has from outside.
            Op::Input { .. } => {
                let outside = self.importer.captured(node.id)?;
                match (outside.node, &outside.known) {
                    (Some(outer), _) => self.range(outer),
                    (None, Some(known)) => {
                        let numbers = known.numbers()?;
                        let ends = numbers.iter().min().zip(numbers.iter().max())?;
                        Range::of_numbers(*ends.0 as f64, *ends.1 as f64)
                    }
                    _ => Range::default(),
                }
            }
            Op::Iota { to, axis, .. } => Range::up_to(to.get(*axis)?.extent() - 1),
            Op::CountUp { most, .. } => Range::up_to(most.extent() - 1),
            Op::ArgReduce { axis, .. } => Range::up_to(dim(0, *axis)? - 1),
            Op::NonZero { .. } => {
                let shape = &self.importer.node_of(node.inputs[0])?.shape;
                let last = |d: &Dim| d.extent() - 1;
                Range::up_to(shape.dims().iter().map(last).reduce(Extent::max)?)
            }
            Op::NonMaxSuppression { .. } => Range::up_to(dim(1, 0)?.max(dim(1, 1)?).max(dim(1, 2)?) - 1),
            Op::Unique { .. } => Range::up_to(dim(0, 0)?),
            Op::Result { index } => self.range_of_result(node, *index)?,
            Op::TopK { .. }
            | Op::Cast { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Expand { .. }
            | Op::Slice { .. }
            | Op::Gather { .. }
            | Op::GatherElements { .. }
            | Op::GatherNd { .. }
            | Op::Tile { .. } => self.range(*node.inputs.first()?),
            Op::Pad { .. } if node.inputs.len() == 1 => {
                self.range(node.inputs[0]).or(Range::of_numbers(0.0, 0.0))
            }
            Op::Pad { .. } | Op::Concat { .. } => self.all(&node.inputs),
            Op::Where => self.all(node.inputs.get(1..)?),
            Op::ScatterNd { reduction: ScatterOp::Set }
            | Op::ScatterElements { reduction: ScatterOp::Set, .. } => {
                let updated = self.range(*node.inputs.first()?);
                updated.or(self.range(*node.inputs.get(2)?))
            }
            Op::Activation(f) => self.range(*node.inputs.first()?).activation(*f),
            Op::Binary(f) => {
                let a = self.range(*node.inputs.first()?);
                a.binary(*f, self.range(*node.inputs.get(1)?))
            }
            Op::Reduce { op: ReduceOp::Max | ReduceOp::Min | ReduceOp::Mean, .. } => {
                self.range(*node.inputs.first()?)
            }
            Op::Reduce { op: ReduceOp::Sum, axes, .. } => {
                let count = axes.iter().map(|&axis| dim(0, axis)).reduce(|a, b| Some(a? * b?)).flatten()?;
                self.range(node.inputs[0]).summed(count)
            }
            Op::Cumulative { op: ReduceOp::Sum, axis, .. } => {
                let count = dim(0, *axis)?;
                self.range(node.inputs[0]).summed(count)
            }
            _ => return None,
        })
    }

    fn range_of_result(&mut self, node: &Node, index: usize) -> Option<Range> {
        let of = self.importer.node_of(*node.inputs.first()?)?;
        match (&of.op, index) {
            (Op::TopK { axis, .. }, 1) => {
                let shape = &self.importer.node_of(*of.inputs.first()?)?.shape;
                Some(Range::up_to(shape.dims().get(*axis)?.extent() - 1))
            }
            (Op::Unique { .. }, _) => Some(self.range(of.id)),
            _ => None,
        }
    }
}

/// An element of an operand.
enum Element {
    Known(i64),
    /// With what it is at most.
    Computed(Option<Extent>),
}
