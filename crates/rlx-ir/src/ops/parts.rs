//! Long rows in parts: what a device decomposes that gives a row to one workgroup, or to one invocation, and has others that would wait.
//!
//! A row is cut into parts of some thousand elements, which are rows of their own, and their results are a row again. How it is cut depends on its length
//! alone, so bits do not depend on who computes the parts, or when. What remains behind the last whole part is a row of its own.
//!
//! ```text
//! Reduce.Sum(x) : [1000000] → []    ──▶    Reduce.Sum(x as [250, 4000]) : [250], Reduce.Sum : []
//!
//! Cumulative.Sum(x) : [10000]       ──▶    sums of the parts of x as [4, 2500], their running sums without their own,
//!                                          and to each part's running sums its share of those
//! ```
//!
//! Sums and products of short floats are made in f32 and rounded once, as a reduction of the whole row does.

use super::nn::rows::wide;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::{ArgOp, BinaryOp, Op, ReduceOp};

/// The most elements of a part of a row. Rows of no more have no parts.
pub const PART: usize = 4096;

/// The most elements of a part of a row in which an extreme is looked for.
pub const SEARCHED: usize = 256;

/// How a row is cut.
#[derive(Debug, Clone, Copy)]
struct Cut {
    axis: usize,
    /// How many whole parts there are.
    count: usize,
    /// Elements of each.
    len: usize,
    /// Elements behind them.
    rest: usize,
}

impl Cut {
    /// Of a row along `axis` into parts of `most` elements or, better, of as many as leave no rest, if these are not too few.
    fn of(axis: usize, size: usize, most: usize) -> Cut {
        let even = (most / 4..=most).rev().find(|len| size.is_multiple_of(*len));
        let len = even.unwrap_or(most);
        Cut { axis, count: size / len, len, rest: size % len }
    }

    /// The elements of whole parts, each part along the next axis.
    fn whole(self, g: &mut Graph, x: NodeId) -> Result<NodeId> {
        let Cut { axis, count, len, rest } = self;
        let whole = if rest == 0 { x } else { g.try_narrow(x, axis as i32, 0, count * len)? };
        let mut to = g.try_shape(whole)?.dims().to_vec();
        to.splice(axis..=axis, [Dim::Static(count), Dim::Static(len)]);
        g.try_reshape_to(whole, &to)
    }

    /// What is behind them, if anything.
    fn rest(self, g: &mut Graph, x: NodeId) -> Result<Option<NodeId>> {
        let Cut { axis, count, len, rest } = self;
        (rest > 0).then(|| g.try_narrow(x, axis as i32, count * len, rest)).transpose()
    }

    /// Parts as one row again.
    fn joined(self, g: &mut Graph, parts: NodeId) -> Result<NodeId> {
        let mut to = g.try_shape(parts)?.dims().to_vec();
        let both = to[self.axis].extent() * to[self.axis + 1].extent();
        to.splice(self.axis..self.axis + 2, [Dim::from(both)]);
        g.try_reshape_to(parts, &to)
    }
}

/// The elements along `axes`, if that is known.
fn size(dims: &[Dim], axes: &[usize]) -> Option<usize> {
    axes.iter().try_fold(1usize, |n, &axis| n.checked_mul(dims[axis].as_static()?))
}

/// The op that joins two results of `op`.
fn join(op: ReduceOp) -> Op {
    Op::Binary(match op {
        ReduceOp::Sum | ReduceOp::Mean => BinaryOp::Add,
        ReduceOp::Prod => BinaryOp::Mul,
        ReduceOp::Max => BinaryOp::Max,
        ReduceOp::Min => BinaryOp::Min,
    })
}

/// The type in which parts of `dtype` are joined.
fn between(op: ReduceOp, dtype: DType) -> DType {
    match op {
        // The sum behind an integer mean may exceed the element type.
        ReduceOp::Mean if dtype.is_signed_int() => DType::I64,
        ReduceOp::Mean if dtype.is_int() => DType::U64,
        ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Prod if dtype.is_float() => wide(dtype),
        _ => dtype,
    }
}

/// A reduction of rows of more than [`PART`] elements; `None` for others.
pub(super) fn reduce(op: &Op, x: NodeId, g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
    let Op::Reduce { op, axes, keep_dim } = op else { return None };
    let count = size(g.try_shape(x).ok()?.dims(), axes)?;
    (count > PART).then(|| Ok(vec![reduced(g, x, *op, (axes, count), *keep_dim)?]))
}

fn reduced(
    g: &mut Graph,
    x: NodeId,
    op: ReduceOp,
    (axes, count): (&[usize], usize),
    keep_dim: bool,
) -> Result<NodeId> {
    let shape = g.try_shape(x)?.clone();
    let (dtype, between) = (shape.dtype(), between(op, shape.dtype()));
    // A mean is a sum until the end.
    let of = if op == ReduceOp::Mean { ReduceOp::Sum } else { op };
    // The last of the axes that are side by side are one row.
    let from = (1..axes.len()).rev().find(|&i| axes[i - 1] + 1 != axes[i]).unwrap_or(0);
    let (before, row) = axes.split_at(from);
    let (Some(&first), Some(size)) = (row.first(), size(shape.dims(), row)) else { return Ok(x) };
    let mut y = match before {
        [] => in_parts(g, x, of, Cut::of(first, size, PART), (row.len(), between))?,
        _ => {
            let x = g.try_cast(x, between)?;
            let rows = g.try_emit(Op::Reduce { op: of, axes: row.to_vec(), keep_dim: true }, &[x])?;
            g.try_emit(Op::Reduce { op: of, axes: before.to_vec(), keep_dim: true }, &[rows])?
        }
    };
    if op == ReduceOp::Mean {
        let count = g.try_scalar(count as f64, between)?;
        y = g.try_div(y, count)?;
    }
    let y = g.try_cast(y, dtype)?;
    let kept = shape.dims().iter().enumerate();
    let to: Vec<Dim> = kept
        .filter(|(i, _)| keep_dim || !axes.contains(i))
        .map(|(i, &d)| if axes.contains(&i) { Dim::Static(1) } else { d })
        .collect();
    if g.try_shape(y)?.dims() == to { Ok(y) } else { g.try_reshape_to(y, &to) }
}

/// The results of rows along the axes from `cut.axis` on, a dimension of 1 in place of these.
fn in_parts(
    g: &mut Graph,
    x: NodeId,
    op: ReduceOp,
    cut: Cut,
    (rank, between): (usize, DType),
) -> Result<NodeId> {
    let axis = cut.axis;
    let mut to = g.try_shape(x)?.dims().to_vec();
    to.splice(axis..axis + rank, [Dim::Static(cut.count * cut.len + cut.rest)]);
    let x = if rank == 1 { x } else { g.try_reshape_to(x, &to)? };
    let whole = cut.whole(g, x)?;
    let whole = g.try_cast(whole, between)?;
    let parts = g.try_emit(Op::Reduce { op, axes: vec![axis + 1], keep_dim: false }, &[whole])?;
    let over = Op::Reduce { op, axes: vec![axis], keep_dim: true };
    let all = g.try_emit(over.clone(), &[parts])?;
    let Some(rest) = cut.rest(g, x)? else { return Ok(all) };
    let rest = g.try_cast(rest, between)?;
    let rest = g.try_emit(over, &[rest])?;
    g.try_emit(join(op), &[all, rest])
}

/// A running reduction of rows of more than [`PART`] elements; `None` for others.
pub(super) fn cumulative(op: &Op, x: NodeId, g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
    let &Op::Cumulative { op, axis, exclusive, reverse } = op else { return None };
    let size = size(g.try_shape(x).ok()?.dims(), &[axis])?;
    (size > PART).then(|| Ok(vec![running(g, x, op, Cut::of(axis, size, PART), (exclusive, reverse))?]))
}

/// The parts' own running results, each joined with what all parts in front of it reduce to.
fn running(
    g: &mut Graph,
    x: NodeId,
    op: ReduceOp,
    cut: Cut,
    (exclusive, reverse): (bool, bool),
) -> Result<NodeId> {
    let axis = cut.axis;
    let (dtype, between) = (g.try_shape(x)?.dtype(), between(op, g.try_shape(x)?.dtype()));
    let over = |axis, exclusive| Op::Cumulative { op, axis, exclusive, reverse };
    let total = |axis| Op::Reduce { op, axes: vec![axis], keep_dim: true };
    let whole = cut.whole(g, x)?;
    let whole = g.try_cast(whole, between)?;
    let totals = g.try_emit(total(axis + 1), &[whole])?;
    let mut before = g.try_emit(over(axis, true), &[totals])?;
    let rest = match cut.rest(g, x)? {
        Some(rest) => Some(g.try_cast(rest, between)?),
        None => None,
    };
    // Backwards, the rest is in front of all parts.
    if let Some(rest) = rest.filter(|_| reverse) {
        let first = g.try_emit(total(axis), &[rest])?;
        let mut to = g.try_shape(first)?.dims().to_vec();
        to.insert(axis, Dim::Static(1));
        let first = g.try_reshape_to(first, &to)?;
        before = g.try_emit(join(op), &[before, first])?;
    }
    let own = g.try_emit(over(axis + 1, exclusive), &[whole])?;
    let own = g.try_emit(join(op), &[own, before])?;
    let own = g.try_cast(own, dtype)?;
    let own = cut.joined(g, own)?;
    let Some(rest) = rest else { return Ok(own) };
    let mut behind = g.try_emit(over(axis, exclusive), &[rest])?;
    if !reverse {
        let all = g.try_emit(total(axis), &[totals])?;
        let all = cut.joined(g, all)?;
        behind = g.try_emit(join(op), &[behind, all])?;
    }
    let behind = g.try_cast(behind, dtype)?;
    g.try_concat(&[own, behind], axis as i32)
}

/// The place of the extreme of rows of more than [`SEARCHED`] elements; `None` for others.
pub(super) fn arg_reduce(op: &Op, x: NodeId, g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
    let &Op::ArgReduce { op, axis, keep_dim, last } = op else { return None };
    let size = size(g.try_shape(x).ok()?.dims(), &[axis])?;
    (size > SEARCHED).then(|| Ok(vec![extreme(g, x, (op, last), Cut::of(axis, size, SEARCHED), keep_dim)?]))
}

/// The places of the first elements of the parts of `x`, in as many dimensions as it has and `more` behind that of the parts.
fn starts(g: &mut Graph, cut: Cut, x: NodeId, more: usize) -> Result<NodeId> {
    let mut to = vec![Dim::Static(1); g.try_shape(x)?.rank() + more];
    to[cut.axis] = Dim::Static(cut.count);
    let numbers = g.try_emit(Op::Iota { to, axis: cut.axis, dtype: DType::I64 }, &[])?;
    let len = g.try_scalar(cut.len as f64, DType::I64)?;
    g.try_mul(numbers, len)
}

/// The extreme among those of the parts: of equal ones the first part's, or the last one's.
fn extreme(g: &mut Graph, x: NodeId, (op, last): (ArgOp, bool), cut: Cut, keep_dim: bool) -> Result<NodeId> {
    let axis = cut.axis;
    let find = |axis, keep_dim| Op::ArgReduce { op, axis, keep_dim, last };
    let whole = cut.whole(g, x)?;
    let places = g.try_emit(find(axis + 1, true), &[whole])?;
    let values = g.try_emit(Op::GatherElements { axis: axis + 1 }, &[whole, places])?;
    let (mut values, mut places) = (cut.joined(g, values)?, cut.joined(g, places)?);
    let starts = starts(g, cut, x, 0)?;
    places = g.try_add_(places, starts)?;
    if let Some(rest) = cut.rest(g, x)? {
        let place = g.try_emit(find(axis, true), &[rest])?;
        let value = g.try_emit(Op::GatherElements { axis }, &[rest, place])?;
        let start = g.try_scalar((cut.count * cut.len) as f64, DType::I64)?;
        let place = g.try_add_(place, start)?;
        values = g.try_concat(&[values, value], axis as i32)?;
        places = g.try_concat(&[places, place], axis as i32)?;
    }
    let part = g.try_emit(find(axis, true), &[values])?;
    let place = g.try_emit(Op::GatherElements { axis }, &[places, part])?;
    if keep_dim {
        return Ok(place);
    }
    let mut to = g.try_shape(place)?.dims().to_vec();
    to.remove(axis);
    g.try_reshape_to(place, &to)
}

/// The first elements of rows of more than [`PART`], if parts of these have many more than are wanted; `None` for others.
pub(super) fn top_k(op: &Op, x: NodeId, g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
    let &Op::TopK { k, axis, largest, sorted } = op else { return None };
    let (k, size) = (k.as_static()?, size(g.try_shape(x).ok()?.dims(), &[axis])?);
    let cut = Cut::of(axis, size, PART);
    (size > PART && k > 0 && 2 * k <= cut.len).then(|| first(g, x, cut, k, (largest, sorted)))
}

/// The first of the first elements of the parts. Those are in order of place where they are equal, as the parts are.
fn first(
    g: &mut Graph,
    x: NodeId,
    cut: Cut,
    k: usize,
    (largest, sorted): (bool, bool),
) -> Result<Vec<NodeId>> {
    let axis = cut.axis;
    let top = |g: &mut Graph, x, k, axis, sorted| {
        let found = g.try_emit(Op::TopK { k: Dim::Static(k), axis, largest, sorted }, &[x])?;
        Ok::<[NodeId; 2], crate::Error>([g.result(found, 0)?, g.result(found, 1)?])
    };
    let whole = cut.whole(g, x)?;
    let [values, places] = top(g, whole, k, axis + 1, true)?;
    let starts = starts(g, cut, x, 1)?;
    let places = g.try_add_(places, starts)?;
    let (mut values, mut places) = (cut.joined(g, values)?, cut.joined(g, places)?);
    if let Some(rest) = cut.rest(g, x)? {
        let [value, place] = top(g, rest, k.min(cut.rest), axis, true)?;
        let start = g.try_scalar((cut.count * cut.len) as f64, DType::I64)?;
        let place = g.try_add_(place, start)?;
        values = g.try_concat(&[values, value], axis as i32)?;
        places = g.try_concat(&[places, place], axis as i32)?;
    }
    let [values, at] = top(g, values, k, axis, sorted)?;
    Ok(vec![values, g.try_emit(Op::GatherElements { axis }, &[places, at])?])
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::Shape;
    use crate::decompose::decompose_all;
    use crate::oracle::{Bindings, evaluate};
    use crate::testing::{Gen, difference, tolerance};

    /// The op decomposed as far as it can be, and as it is, by the oracle.
    fn agree(op: Op, dtype: DType, dims: &[usize], seed: u64) {
        let mut graph = Graph::new("long");
        let x = graph.input("x", Shape::new(dims, dtype));
        let y = graph.try_add(op, &[x]).unwrap();
        let results = graph.node(y).results().len();
        let outputs = (0..results).map(|i| graph.result(y, i).unwrap()).collect();
        graph.set_outputs(outputs);
        let parts = decompose_all(&graph, |_| true).unwrap().unwrap();
        let x = Gen::new(seed).value(dtype, dims, 0.5..1.5);
        let mut bindings = Bindings::default();
        bindings.set_input("x", x);
        let (want, got) = (evaluate(&graph, &bindings).unwrap(), evaluate(&parts, &bindings).unwrap());
        for (want, got) in want.iter().zip(&got) {
            if let Some(what) = difference(want, got, tolerance(want.dtype)) {
                panic!("{what}\n{graph}\n{parts}");
            }
        }
    }

    #[test]
    fn parts_give_what_the_whole_row_gives() {
        for (seed, size) in [PART + 1, 3 * PART, 2 * PART + 17].into_iter().enumerate() {
            for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min] {
                for dtype in [DType::F32, DType::F16, DType::I32, DType::U8] {
                    agree(
                        Op::Reduce { op, axes: vec![1], keep_dim: false },
                        dtype,
                        &[2, size, 1],
                        seed as u64,
                    );
                }
                agree(Op::Reduce { op, axes: vec![0, 2], keep_dim: true }, DType::F32, &[3, 2, size], 5);
            }
            for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
                for op in [ReduceOp::Sum, ReduceOp::Max] {
                    agree(Op::Cumulative { op, axis: 1, exclusive, reverse }, DType::I32, &[2, size], 7);
                }
            }
            for (last, op) in
                [(false, ArgOp::Max), (true, ArgOp::Max), (false, ArgOp::Min), (true, ArgOp::Min)]
            {
                agree(Op::ArgReduce { op, axis: 0, keep_dim: last, last }, DType::U8, &[size, 2], 9);
            }
            let top = |largest| Op::TopK { k: Dim::Static(20), axis: 1, largest, sorted: true };
            agree(top(true), DType::F16, &[2, size], 11);
            agree(top(false), DType::U8, &[2, size, 2], 11);
        }
    }
}
