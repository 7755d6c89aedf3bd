//! Index: elements at positions that are data.
//!
//! Gathers compute elements of their results (`Cx::indexed`), so they are in map kernels like movement is: a gather asks its table for what the index means.
//! Neighbours that one index picks are looked up once, and read together.
//!
//! An index out of range reports a fault with its axis and value, and the run fails: what its kernels read instead is never seen.

use rlx_ir::{Extent, Node, NodeId, Op};

use super::cx::Cx;
use super::run::Run;
use super::{Scheduled, elementwise, reject};
use crate::build::Builder;
use crate::ir::{Const, Ty, Value};

/// Whether an op computes each result element from elements whose places are data.
pub(super) fn is_indexed(op: &Op) -> bool {
    matches!(
        op,
        Op::Gather { .. }
            | Op::GatherElements { .. }
            | Op::GatherNd { .. }
            | Op::Iota { .. }
            | Op::Trilu { .. }
    )
}

/// The place that `raw` means among `size`, negative ones counted from the end, and whether there is one, of the first of `len` elements (one without it) that
/// must all be there; a fault is reported when there is none.
pub(super) fn place_in(
    b: &mut Builder,
    raw: Value,
    (size, len): (Value, Option<Value>),
    axis: usize,
) -> (Value, Value) {
    let ty = b.ty(raw);
    let (wide, zero) = (b.convert(ty, size), b.constant(Const::int(ty, 0)));
    let from_end = b.add(raw, wide);
    let negative = b.lt(raw, zero);
    let place = b.select(negative, from_end, raw);
    let low = b.ge(place, zero);
    let high = match len {
        None => b.lt(place, wide),
        Some(len) => {
            let last = b.sub(size, len);
            let last = b.convert(ty, last);
            b.le(place, last)
        }
    };
    let inside = b.and(low, high);
    let outside = b.not(inside);
    b.if_then(outside, |b| {
        let mut near = raw;
        if ty == Ty::I64 {
            // The nearest that the record holds.
            let [least, most] = [i32::MIN, i32::MAX].map(|v| b.constant(Const::int(ty, v.into())));
            let (below, above) = (b.lt(raw, least), b.lt(most, raw));
            near = b.select(below, least, near);
            near = b.select(above, most, near);
        }
        let reported = b.convert(Ty::I32, near);
        b.fail(axis as u32, reported);
    });
    (b.convert(Ty::I32, place), inside)
}

impl Cx<'_> {
    /// A run of an indexed op.
    pub(super) fn indexed(&mut self, node: &Node, run: &Run) -> Scheduled<Vec<Value>> {
        let index = &run.first;
        match &node.op {
            Op::Gather { axis } => {
                let taken = self.graph().shape(node.inputs[1]).rank();
                let own = index[*axis..*axis + taken].to_vec();
                let (place, inside) = self.resolved(node.inputs[1], &own, node.inputs[0], *axis)?;
                let mut from = index[..*axis].to_vec();
                from.push(place);
                from.extend_from_slice(&index[*axis + taken..]);
                self.guarded(node, &from, run, inside)
            }
            Op::GatherElements { axis } => {
                let (place, inside) = self.resolved(node.inputs[1], index, node.inputs[0], *axis)?;
                let mut from = index.clone();
                from[*axis] = place;
                self.guarded(node, &from, run, inside)
            }
            Op::GatherNd { batch_dims } => self.gathered_slice(node, *batch_dims, run),
            Op::Iota { axis, dtype, .. } => {
                if !elementwise::computes(*dtype) {
                    return reject(format!("Iota of {dtype}"));
                }
                let places = self.places_of(run);
                let number = |index: &Vec<Value>| {
                    let v = self.b.convert(Ty::of(*dtype), index[*axis]);
                    elementwise::narrowed(&mut self.b, v, *dtype)
                };
                Ok(places.iter().map(number).collect())
            }
            Op::Trilu { upper, k } => self.triangle(node, *upper, *k, run),
            op => reject(format!("{} is not indexed", op.kind())),
        }
    }

    pub(super) fn axis_size(&mut self, node: NodeId, axis: usize) -> Value {
        let d = self.graph().shape(node).dim(axis).extent();
        self.size(&format!("axis{axis}"), d)
    }

    /// The element number that `indices` at `at` means along `axis` of `table`, and whether there is one; a
    /// fault is reported when there is none. It is looked up in front of the loops that `at` does not depend on: once for a row, or a page, that
    /// such a loop goes along. Where the table is known to have elements, there is always one to read.
    pub(super) fn resolved(
        &mut self,
        indices: NodeId,
        at: &[Value],
        table: NodeId,
        axis: usize,
    ) -> Scheduled<(Value, Value)> {
        let some = self.graph().shape(table).dim(axis).as_static().is_some_and(|size| size > 0);
        self.in_front(at, |cx, at| {
            let (place, inside) = cx.start(indices, at, table, None, axis)?;
            if !some {
                return Ok((place, inside));
            }
            // In a run that has failed, any element will do.
            let first = cx.b.int(0);
            Ok((cx.b.select(inside, place, first), cx.b.constant(Const::bool(true))))
        })
    }

    /// As [`Cx::resolved`], of the first of `len` elements (one without it) that must all be there.
    pub(super) fn start(
        &mut self,
        indices: NodeId,
        at: &[Value],
        table: NodeId,
        len: Option<Value>,
        axis: usize,
    ) -> Scheduled<(Value, Value)> {
        let raw = self.element(indices, at)?;
        let size = self.axis_size(table, axis);
        Ok(place_in(&mut self.b, raw, (size, len), axis))
    }

    /// A run of what a node picks of its first operand, from `from` on, where `inside` holds; 0 (of a run that has failed) elsewhere.
    fn guarded(&mut self, node: &Node, from: &[Value], run: &Run, inside: Value) -> Scheduled<Vec<Value>> {
        if self.b.as_const(inside).is_some_and(|c| c.bits != 0) {
            return self.needed(node, 0, from, run);
        }
        let zero = self.b.constant(Const { ty: Ty::of(node.shape.dtype()), bits: 0 });
        self.values_if(inside, (zero, run.width), |cx| cx.needed(node, 0, from, run))
    }

    /// How many dimensions a row of `indices` addresses.
    pub(super) fn row_length(&self, indices: NodeId) -> Scheduled<usize> {
        let length = self.graph().shape(indices).dims().last().and_then(|d| d.as_static());
        length.ok_or_else(|| super::Unscheduled("rows of indices of unknown length".into()))
    }

    fn gathered_slice(&mut self, node: &Node, batch: usize, run: &Run) -> Scheduled<Vec<Value>> {
        let (table, indices, index) = (node.inputs[0], node.inputs[1], &run.first);
        let count = self.row_length(indices)?;
        let lead = self.graph().shape(indices).rank() - 1;
        let mut from = index[..batch].to_vec();
        let mut inside = self.b.constant(Const::bool(true));
        for c in 0..count {
            let mut at = index[..lead].to_vec();
            at.push(self.b.int(c as i32));
            let (place, ok) = self.resolved(indices, &at, table, batch + c)?;
            from.push(place);
            inside = self.b.and(inside, ok);
        }
        from.extend_from_slice(&index[lead..]);
        self.guarded(node, &from, run, inside)
    }

    fn triangle(&mut self, node: &Node, upper: bool, k: Extent, run: &Run) -> Scheduled<Vec<Value>> {
        let values = self.needed(node, 0, &run.first, run)?;
        let zero = self.b.constant(Const { ty: self.b.ty(values[0]), bits: 0 });
        // Diagonals far beyond the matrix are all the same; the bound keeps the difference in range.
        let limit = Extent::Const(1 << 30);
        let k = self.extent("k", k.max(-limit).min(limit));
        let places = self.places_of(run);
        let chosen = |(index, value): (&Vec<Value>, Value)| {
            let [.., row, column] = index[..] else { return reject("a triangle of no matrix") };
            let above = self.b.sub(column, row);
            let stays = if upper { self.b.ge(above, k) } else { self.b.le(above, k) };
            Ok(self.b.select(stays, value, zero))
        };
        places.iter().zip(values).map(chosen).collect()
    }
}
