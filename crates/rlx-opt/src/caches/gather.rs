//! Gathers from rows that grew, and by indices that grew.
//!
//! An index means what it did: a negative one counts from the last row that counts, and one behind it is an error. Indices in rows that
//! do not count themselves are 0, so that they are no error.

use rlx_ir::op::{BinaryOp as B, CmpOp};
use rlx_ir::{DType, Node, NodeId, Op, Result, Value};

use super::rows::{Rows, Walk};

/// The indices of a gather, those that do not count 0.
fn indices(walk: &mut Walk<'_>, old: NodeId) -> Result<NodeId> {
    let new = walk.r.new_id(old);
    match walk.rows(old) {
        Some(rows) => walk.filled(new, rows, 0.0),
        None => Ok(new),
    }
}

/// Indices into the rows that count as indices into all of the capacity. `which` is 1 for the parts of an index that mean these
/// rows, 0 for the others.
fn resolved(walk: &mut Walk<'_>, index: NodeId, rows: Rows, which: &[i128]) -> Result<NodeId> {
    let dtype = walk.r.shape(index).dtype();
    let dims: &[usize] = if which.len() == 1 { &[] } else { &[which.len()] };
    let parts = |walk: &mut Walk<'_>, of: &dyn Fn(i128) -> i128| {
        walk.constant(Value::int(DType::I64, dims, which.iter().map(|&w| of(w)).collect()))
    };
    let capacity = walk.capacity().as_static().unwrap_or(0) as i128;
    let index = walk.cast(index, DType::I64)?;
    let (count, mine) = (walk.number(rows.count)?, parts(walk, &|w| w)?);
    let count = walk.binary(B::Mul, mine, count)?;
    let (unlimited, capacity) =
        (parts(walk, &|w| (1 - w) * i128::from(i64::MAX))?, parts(walk, &|w| w * capacity)?);
    // Behind the rows that count is behind the capacity, and so an error.
    let limit = walk.binary(B::Add, count, unlimited)?;
    let (behind, moved) = (walk.compare(CmpOp::Ge, index, limit)?, walk.binary(B::Add, index, capacity)?);
    let ahead = walk.r.emit(Op::Where, &[behind, moved, index])?;
    // A negative one counts from the capacity on, not from the last row that counts.
    let missing = walk.binary(B::Sub, count, capacity)?;
    let (zero, moved) = (walk.scalar(DType::I64, 0.0)?, walk.binary(B::Add, index, missing)?);
    let negative = walk.compare(CmpOp::Lt, index, zero)?;
    let index = walk.r.emit(Op::Where, &[negative, moved, ahead])?;
    walk.cast(index, dtype)
}

/// Slices of a table.
pub(super) fn gather(walk: &mut Walk<'_>, node: &Node, axis: usize) -> Result<()> {
    let (table, old) = (node.inputs[0], node.inputs[1]);
    let mut index = indices(walk, old)?;
    if let Some(rows) = walk.rows(table).filter(|rows| rows.axis == axis) {
        index = resolved(walk, index, rows, &[1])?;
    }
    finish(walk, node, index)
}

/// Slices by rows of indices.
pub(super) fn gather_nd(walk: &mut Walk<'_>, node: &Node, batch_dims: usize) -> Result<()> {
    let (table, old) = (node.inputs[0], node.inputs[1]);
    let shape = walk.r.old().shape(old);
    let last = shape.rank().saturating_sub(1);
    let width = shape.dims().last().and_then(|d| d.as_static());
    let Some(width) = width.filter(|_| batch_dims == 0 && walk.rows(old).is_none_or(|rows| rows.axis < last))
    else {
        return Err(walk.reject(&format!("a gather by indices {shape}")));
    };
    let mut index = indices(walk, old)?;
    if let Some(rows) = walk.rows(table).filter(|rows| rows.axis < width) {
        let which: Vec<i128> = (0..width).map(|i| i128::from(i == rows.axis)).collect();
        index = resolved(walk, index, rows, &which)?;
    }
    finish(walk, node, index)
}

fn finish(walk: &mut Walk<'_>, node: &Node, index: NodeId) -> Result<()> {
    let table = walk.r.new_id(node.inputs[0]);
    let rows = walk.growth(&node.shape)?;
    let new = walk.r.emit(node.op.clone(), &[table, index])?;
    walk.place(node, new, rows);
    Ok(())
}
