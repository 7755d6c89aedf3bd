//! Ops that leave each row where it is, or move it as a whole: elementwise ops, movement, counts, running sums.

use rlx_ir::op::{BinaryOp, CmpOp};
use rlx_ir::{DType, Dim, Error, ErrorKind, Extent, Node, NodeId, Op, Result};

use super::rows::{Rows, Tail, Walk};
use crate::facts;

/// Rows of an elementwise op come from the same rows of its operands.
pub(super) fn elementwise(walk: &mut Walk<'_>, node: &Node) -> Result<()> {
    let graph = walk.r.old();
    let Some(rows) = walk.growth(&node.shape)? else {
        return Err(walk.reject("a dimension that grew is lost"));
    };
    let place = (node.shape.rank() - rows.axis, rows.count);
    for &id in &node.inputs {
        let shape = graph.shape(id);
        let fits = match walk.place_from_last(id) {
            Some(other) => other == place,
            None => shape.rank() < place.0 || shape.dim(shape.rank() - place.0) == Dim::Static(1),
        };
        if !fits {
            let message = format!("{shape} meets {}, whose growing dimension is another", node.shape);
            return Err(walk.reject(&message));
        }
    }
    let tail = tail_of(walk, node);
    let inputs: Vec<NodeId> = node.inputs.iter().map(|&id| walk.r.new_id(id)).collect();
    let new = walk.r.emit(node.op.clone(), &inputs)?;
    walk.place(node, new, Some(Rows { tail, ..rows }));
    Ok(())
}

/// What an elementwise op makes of the rows that do not count.
fn tail_of(walk: &Walk<'_>, node: &Node) -> Tail {
    let graph = walk.r.old();
    let tail = |id: NodeId| match walk.rows(id) {
        Some(rows) => rows.tail,
        None if facts::uniform(graph, id) == Some(0.0) => Tail::Zero,
        None if facts::uniform(graph, id).is_some_and(f64::is_finite) => Tail::Finite,
        None => Tail::Any,
    };
    let both = |a: NodeId, b: NodeId| match (tail(a), tail(b)) {
        (Tail::Zero, Tail::Zero) => Tail::Zero,
        (Tail::Any, _) | (_, Tail::Any) => Tail::Any,
        _ => Tail::Finite,
    };
    match (&node.op, &node.inputs[..]) {
        (Op::Cast { .. }, &[x]) => tail(x),
        (Op::Where, &[_, a, b]) => both(a, b),
        (Op::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul), &[a, b]) => both(a, b),
        _ => Tail::Any,
    }
}

/// Ops whose attributes say the dimensions of their result, or that keep those of their operands.
pub(super) fn plain(walk: &mut Walk<'_>, node: &Node) -> Result<()> {
    let Some(rows) = walk.growth(&node.shape)? else {
        return Err(walk.reject("a dimension that grew is lost"));
    };
    let graph = walk.r.old();
    let rank = node.shape.rank();
    let mut tail = Tail::Finite;
    for &id in &node.inputs {
        let fits = match (&node.op, walk.rows(id)) {
            (Op::Concat { axis }, Some(own)) => {
                (own.axis, own.count) == (rows.axis, rows.count) && *axis != own.axis
            }
            (Op::Concat { .. }, None) => false,
            (Op::Transpose { perm }, Some(own)) => perm[rows.axis] == own.axis,
            (Op::Expand { .. }, Some(_)) => walk.place_from_last(id) == Some((rank - rows.axis, rows.count)),
            // A table of fixed length is not repeated for rows that grow.
            (Op::Expand { .. }, None) => {
                let shape = graph.shape(id);
                shape.rank() < rank - rows.axis
                    || shape.dim(shape.rank() + rows.axis - rank) == Dim::Static(1)
            }
            _ => true,
        };
        if !fits {
            let what = format!("{} of {} to {}", node.op.kind(), graph.shape(id), node.shape);
            return Err(walk.reject(&what));
        }
        match walk.rows(id).map(|own| own.tail) {
            Some(Tail::Zero) if node.inputs.len() == 1 => tail = Tail::Zero,
            Some(Tail::Zero | Tail::Finite) => {}
            Some(Tail::Any) | None => tail = Tail::Any,
        }
    }
    let op = match &node.op {
        Op::Iota { to, axis, dtype } => Op::Iota { to: walk.fixed(to), axis: *axis, dtype: *dtype },
        Op::Expand { to } => Op::Expand { to: walk.fixed(to) },
        other => other.clone(),
    };
    let inputs: Vec<NodeId> = node.inputs.iter().map(|&id| walk.r.new_id(id)).collect();
    let new = walk.r.emit(op, &inputs)?;
    walk.place(node, new, Some(Rows { tail, ..rows }));
    Ok(())
}

/// The dimension that grew is one of the new dimensions, with as many elements before and behind it.
pub(super) fn reshape(walk: &mut Walk<'_>, node: &Node, to: &[Dim]) -> Result<()> {
    let from = walk.r.old().shape(node.inputs[0]);
    let (Some(old), Some(new)) = (walk.rows(node.inputs[0]), walk.growth(&node.shape)?) else {
        return Err(walk.reject(&format!("{from} as {}: a dimension that grew is lost", node.shape)));
    };
    let elements = |dims: &[Dim]| dims.iter().fold(Extent::Const(1), |n, d| n * d.extent());
    let same = old.count == new.count
        && elements(&from.dims()[..old.axis]) == elements(&to[..new.axis])
        && elements(&from.dims()[old.axis + 1..]) == elements(&to[new.axis + 1..]);
    if !same {
        return Err(walk.reject(&format!("{from} as {}: rows are merged or divided", node.shape)));
    }
    let x = walk.r.new_id(node.inputs[0]);
    let y = walk.r.emit(Op::Reshape { to: walk.fixed(to) }, &[x])?;
    walk.place(node, y, Some(Rows { tail: old.tail, ..new }));
    Ok(())
}

/// One dimension of a slice.
enum Part {
    /// As it was.
    Kept,
    /// The rows that count, from the first on.
    Prefix,
    /// A fixed number of elements from a place on that the length decides.
    From(Extent),
}

/// Slices: `starts` and lengths are those of the old graph.
pub(super) fn slice(
    walk: &mut Walk<'_>,
    node: &Node,
    [starts, lengths]: [&[Extent]; 2],
    steps: &[i64],
) -> Result<()> {
    let (x, shape) = (walk.r.new_id(node.inputs[0]), walk.r.old().shape(node.inputs[0]));
    let own = walk.rows(node.inputs[0]);
    let mut parts = Vec::with_capacity(starts.len());
    for i in 0..starts.len() {
        let part = match (walk.grows(starts[i]), walk.grows(lengths[i])) {
            (false, false) => Part::Kept,
            (true, false) => Part::From(starts[i]),
            (false, true) if starts[i] == Extent::Const(0) && steps[i] == 1 => {
                let rows = walk.r.shape(x).dim(i).as_static();
                let capacity = walk.capacity().as_static();
                if own.is_none_or(|own| own.axis != i) && rows < capacity {
                    let message = format!(
                        "a capacity of {} rows, where the model has a table of {}",
                        walk.capacity(),
                        walk.r.shape(x).dim(i)
                    );
                    return Err(
                        Error::new(ErrorKind::Dimension, message).with_hint("ask for a smaller capacity")
                    );
                }
                Part::Prefix
            }
            _ => return Err(walk.reject(&format!("a slice of {shape} to {}", node.shape))),
        };
        parts.push(part);
    }
    let rows = walk.growth(&node.shape)?;
    if let (Some(new), Some(old)) = (rows, own)
        && (new.axis != old.axis)
    {
        return Err(walk.reject(&format!("a slice of {shape} to {}", node.shape)));
    }
    let y = cut(walk, x, &parts, [starts, lengths], steps)?;
    let y = parts.iter().enumerate().try_fold(y, |y, (axis, part)| match part {
        Part::From(start) => from_length(walk, node, y, axis, [*start, lengths[axis]], steps[axis]),
        _ => Ok(y),
    })?;
    let tail = own.map_or(Tail::Any, |own| own.tail);
    // What was zero behind the rows that counted is not where fewer do.
    let fewer = own.zip(rows).is_some_and(|(old, new)| old.count != new.count);
    let tail = if tail == Tail::Zero && fewer { Tail::Finite } else { tail };
    walk.place(node, y, rows.map(|rows| Rows { tail, ..rows }));
    Ok(())
}

/// The part of the slice whose places are known.
fn cut(
    walk: &mut Walk<'_>,
    x: NodeId,
    parts: &[Part],
    [starts, lengths]: [&[Extent]; 2],
    steps: &[i64],
) -> Result<NodeId> {
    let have = walk.r.shape(x).dims().to_vec();
    let mut op = (Vec::new(), Vec::new(), Vec::new());
    for (i, part) in parts.iter().enumerate() {
        let (start, step, to) = match part {
            Part::Kept => (starts[i], steps[i], Dim::from(lengths[i])),
            Part::Prefix => (Extent::Const(0), 1, walk.capacity()),
            Part::From(_) => (Extent::Const(0), 1, have[i]),
        };
        op.0.push(start);
        op.1.push(step);
        op.2.push(to);
    }
    let (starts, steps, to) = op;
    let all = to == have && steps.iter().all(|&s| s == 1) && starts.iter().all(|&s| s == Extent::Const(0));
    if all { Ok(x) } else { walk.r.emit(Op::Slice { starts, steps, to }, &[x]) }
}

/// A fixed number of elements of `x` along `axis` from a place on that the length decides.
fn from_length(
    walk: &mut Walk<'_>,
    node: &Node,
    x: NodeId,
    axis: usize,
    [start, length]: [Extent; 2],
    step: i64,
) -> Result<NodeId> {
    let (start, each) = (walk.number(start)?, walk.count(Dim::from(length))?);
    let each = match step {
        1 => each,
        _ => {
            let step = walk.scalar(DType::I64, step as f64)?;
            walk.binary(BinaryOp::Mul, each, step)?
        }
    };
    let places = walk.binary(BinaryOp::Add, each, start)?;
    // The elements of a count are their places.
    let counted = matches!(&walk.r.old().node(node.inputs[0]).op, Op::Iota { to, dtype: DType::I64, .. } if to.len() == 1);
    if counted { Ok(places) } else { walk.r.emit(Op::Gather { axis }, &[x, places]) }
}

/// A triangle whose diagonal may begin at the length. Elements are chosen by their row and column, so those that count stay.
pub(super) fn triangle(walk: &mut Walk<'_>, node: &Node, upper: bool, k: Extent) -> Result<()> {
    let Some(rows) = walk.growth(&node.shape)? else {
        return Err(walk.reject("the diagonal of a matrix of fixed size"));
    };
    let x = walk.r.new_id(node.inputs[0]);
    let new = if walk.grows(k) {
        let dims = walk.r.shape(x).dims().to_vec();
        let rank = dims.len();
        let (row, column) = (walk.count(dims[rank - 2])?, walk.count(dims[rank - 1])?);
        let (row, diagonal) = (walk.along(row, 0, 2)?, walk.number(k)?);
        let first = walk.binary(BinaryOp::Add, row, diagonal)?;
        let stays = walk.compare(if upper { CmpOp::Ge } else { CmpOp::Le }, column, first)?;
        let zero = walk.scalar(node.shape.dtype(), 0.0)?;
        walk.r.emit(Op::Where, &[stays, x, zero])?
    } else {
        walk.r.emit(node.op.clone(), &[x])?
    };
    let tail = walk.rows(node.inputs[0]).map_or(Tail::Any, |own| own.tail);
    walk.place(node, new, Some(Rows { tail, ..rows }));
    Ok(())
}

/// A running sum reaches the rows that count before the others.
pub(super) fn cumulative(walk: &mut Walk<'_>, node: &Node, axis: usize, reverse: bool) -> Result<()> {
    let Some(rows) = walk.growth(&node.shape)? else {
        return Err(walk.reject("a dimension that grew is lost"));
    };
    if reverse && rows.axis == axis {
        return Err(walk.reject("a running sum from the last row on"));
    }
    let x = walk.r.new_id(node.inputs[0]);
    let new = walk.r.emit(node.op.clone(), &[x])?;
    walk.place(node, new, Some(rows));
    Ok(())
}
