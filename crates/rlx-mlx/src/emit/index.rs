//! Gathers, scatters and updates. What is addressed is flattened to rows, so that one index says where each is.
//!
//! Several updates of one place: MLX's devices write them in any order. The last one is found by the largest of their numbers, and
//! maxima are those of integers, so the results are the same everywhere.

use rlx_ir::op::ScatterOp;
use rlx_ir::{DType, Node, Result};

use super::movement::along;
use super::{Emitter, Fault, order};
use crate::program::{Code, Val, unsupported, word};

/// How an element of `dims` is addressed: the distance between neighbours of each dimension.
fn steps(dims: &[usize]) -> Vec<usize> {
    let mut steps = vec![1; dims.len()];
    for i in (0..dims.len().saturating_sub(1)).rev() {
        steps[i] = steps[i + 1] * dims[i + 1];
    }
    steps
}

impl Emitter<'_> {
    /// Zeros in place of elements that are not there.
    fn nothing(&mut self, dtype: DType, dims: &[usize]) -> Val {
        let zero = if dtype.is_float() { self.b.scalar(dtype, 0.0) } else { self.b.int(dtype, 0) };
        self.b.full(zero, dims)
    }

    /// Every index into a dimension without elements is out of range.
    fn all_outside(&mut self, node: &Node, indices: Val) {
        let wide = self.b.astype(indices, DType::I64);
        let yes = self.b.int(DType::Bool, 1);
        self.fault(Fault { node: node.id, size: 0, update: None }, yes, wide);
    }

    pub(super) fn gather(&mut self, node: &Node, x: Val, indices: Val, axis: usize) -> Val {
        let mut dims = self.b.dims(x).to_vec();
        let (dtype, size) = (self.b.dtype(x), dims[axis]);
        dims.splice(axis..=axis, self.b.dims(indices).to_vec());
        if size == 0 {
            self.all_outside(node, indices);
            return self.nothing(dtype, &dims);
        }
        let places = self.indices(node, indices, size);
        if dims.contains(&0) {
            return self.b.empty(dtype, &dims);
        }
        self.b.take(x, places, axis)
    }

    pub(super) fn gather_elements(&mut self, node: &Node, x: Val, indices: Val, axis: usize) -> Val {
        let (dtype, size, dims) = (self.b.dtype(x), self.b.dims(x)[axis], self.b.dims(indices).to_vec());
        if size == 0 {
            self.all_outside(node, indices);
            return self.nothing(dtype, &dims);
        }
        let places = self.indices(node, indices, size);
        if dims.contains(&0) {
            return self.b.empty(dtype, &dims);
        }
        let mut x = x;
        for (i, &d) in dims.iter().enumerate().filter(|(i, _)| *i != axis) {
            x = self.b.narrow(x, i, 0, d);
        }
        self.b.op(Code::TakeAlongAxis, &[x, places], &[word(axis)], dtype, &dims)
    }

    /// For each row of `indices`, the number of the row of `x` that it addresses, flattened; and how many rows `x` has.
    fn rows(&mut self, node: &Node, x: &[usize], indices: Val, batch: usize) -> (Val, usize) {
        let dims = self.b.dims(indices).to_vec();
        let (count, lead) = (dims[dims.len() - 1], dims[..dims.len() - 1].to_vec());
        let addressed = &x[..batch + count];
        let distance = steps(addressed);
        let zero = self.b.int(DType::I64, 0);
        let mut row = self.b.full(zero, &lead);
        for i in 0..count {
            let part = self.b.narrow(indices, dims.len() - 1, i, i + 1);
            let part = self.b.reshape(part, &lead);
            let place = if x[batch + i] == 0 {
                self.all_outside(node, part);
                row
            } else {
                self.indices(node, part, x[batch + i])
            };
            let step = self.b.int(DType::I64, distance[batch + i] as i128);
            let place = self.b.binary(Code::Multiply, place, step);
            row = self.b.binary(Code::Add, row, place);
        }
        for (i, (&len, &step)) in lead.iter().zip(&distance).take(batch).enumerate() {
            let counted = self.b.arange(len);
            let counted = along(&mut self.b, counted, i, &lead);
            let step = self.b.int(DType::I64, step as i128);
            let place = self.b.binary(Code::Multiply, counted, step);
            row = self.b.binary(Code::Add, row, place);
        }
        let rows: usize = lead.iter().product();
        (self.b.reshape(row, &[rows]), addressed.iter().product())
    }

    pub(super) fn gather_nd(
        &mut self,
        node: &Node,
        x: Val,
        indices: Val,
        batch: usize,
        dims: &[usize],
    ) -> Val {
        let (dtype, own) = (self.b.dtype(x), self.b.dims(x).to_vec());
        let (row, rows) = self.rows(node, &own, indices, batch);
        if dims.contains(&0) || rows == 0 {
            return self.nothing(dtype, dims);
        }
        let slice: usize = own.iter().product::<usize>() / rows;
        let table = self.b.reshape(x, &[rows, slice]);
        let found = self.b.take(table, row, 0);
        self.b.reshape(found, dims)
    }

    pub(super) fn scatter_nd(&mut self, node: &Node, x: &[Val], reduction: ScatterOp) -> Result<Val> {
        let own = self.b.dims(x[0]).to_vec();
        let (row, rows) = self.rows(node, &own, x[1], 0);
        let updates = self.b.dims(row)[0];
        if own.contains(&0) || self.b.dims(x[2]).contains(&0) {
            return Ok(x[0]);
        }
        let slice: usize = own.iter().product::<usize>() / rows;
        let table = self.b.reshape(x[0], &[rows, slice]);
        let new = self.b.reshape(x[2], &[updates, slice]);
        let out = self.scattered(table, row, new, reduction)?;
        Ok(self.b.reshape(out, &own))
    }

    pub(super) fn scatter_elements(
        &mut self,
        node: &Node,
        x: &[Val],
        axis: usize,
        reduction: ScatterOp,
    ) -> Result<Val> {
        let (own, dims) = (self.b.dims(x[0]).to_vec(), self.b.dims(x[1]).to_vec());
        if own[axis] == 0 {
            self.all_outside(node, x[1]);
            return Ok(x[0]);
        }
        let place = self.indices(node, x[1], own[axis]);
        if own.contains(&0) || dims.contains(&0) {
            return Ok(x[0]);
        }
        let distance = steps(&own);
        let step = self.b.int(DType::I64, distance[axis] as i128);
        let mut row = self.b.binary(Code::Multiply, place, step);
        for i in (0..dims.len()).filter(|&i| i != axis) {
            let counted = self.b.arange(dims[i]);
            let counted = along(&mut self.b, counted, i, &dims);
            let step = self.b.int(DType::I64, distance[i] as i128);
            let place = self.b.binary(Code::Multiply, counted, step);
            row = self.b.binary(Code::Add, row, place);
        }
        let (all, updates) = (own.iter().product(), dims.iter().product());
        let row = self.b.reshape(row, &[updates]);
        let table = self.b.reshape(x[0], &[all, 1]);
        let new = self.b.reshape(x[2], &[updates, 1]);
        let out = self.scattered(table, row, new, reduction)?;
        Ok(self.b.reshape(out, &own))
    }

    /// Rows of `table` with `updates` joined in at `rows`.
    fn scattered(&mut self, table: Val, rows: Val, updates: Val, reduction: ScatterOp) -> Result<Val> {
        Ok(match reduction {
            ScatterOp::Set => self.replaced(table, rows, updates),
            ScatterOp::Add => self.joined(Code::ScatterAdd, table, rows, updates),
            ScatterOp::Mul => self.joined(Code::ScatterProd, table, rows, updates),
            ScatterOp::Max => self.extremes(table, rows, updates, false),
            ScatterOp::Min => self.extremes(table, rows, updates, true),
            _ => return unsupported(format!("a scatter by {reduction:?}")),
        })
    }

    fn scatter(&mut self, code: Code, table: Val, rows: Val, updates: Val) -> Val {
        let (dtype, dims) = (self.b.dtype(table), self.b.dims(table).to_vec());
        let count = self.b.dims(rows)[0];
        // MLX takes a slice with a dimension of 1 for each index.
        let updates = self.b.reshape(updates, &[count, 1, dims[1]]);
        self.b.op(code, &[table, rows, updates], &[], dtype, &dims)
    }

    /// The last update of each row, found by the largest number of an update.
    fn replaced(&mut self, table: Val, rows: Val, updates: Val) -> Val {
        let (count, height) = (self.b.dims(rows)[0], self.b.dims(table)[0]);
        let none = self.b.int(DType::I32, -1);
        let none = self.b.full(none, &[height, 1]);
        let numbers = self.b.arange(count);
        let numbers = self.b.astype(numbers, DType::I32);
        let numbers = self.b.reshape(numbers, &[count, 1]);
        let last = self.scatter(Code::ScatterMax, none, rows, numbers);
        let zero = self.b.int(DType::I32, 0);
        let written = self.b.compare(Code::GreaterEqual, last, zero);
        let from = self.b.binary(Code::Maximum, last, zero);
        let from = self.b.reshape(from, &[height]);
        let new = self.b.take(updates, from, 0);
        self.b.select(written, new, table)
    }

    fn joined(&mut self, code: Code, table: Val, rows: Val, updates: Val) -> Val {
        let dtype = self.b.dtype(table);
        let within = match dtype {
            DType::F16 | DType::BF16 => DType::F32,
            _ if dtype.is_int() && dtype.bits() < 32 => DType::I32,
            _ => dtype,
        };
        let (table, updates) = (self.b.astype(table, within), self.b.astype(updates, within));
        let out = self.scatter(code, table, rows, updates);
        self.b.astype(out, dtype)
    }

    /// The largest (or smallest) of what is there and the updates, NaN before all: by integers of the same order.
    fn extremes(&mut self, table: Val, rows: Val, updates: Val, least: bool) -> Val {
        let dtype = self.b.dtype(table);
        // Which update it is says the place of its key, so nothing has to be turned back.
        let (mut old, mut new) = (order::key(&mut self.b, table), order::key(&mut self.b, updates));
        if least {
            (old, new) = (self.turned(old, table), self.turned(new, updates));
        }
        let short = dtype.bits() <= 32 && dtype != DType::U32;
        let (old, new) = if short { (self.narrowed(old), self.narrowed(new)) } else { (old, new) };
        let best = self.scatter(Code::ScatterMax, old, rows, new);
        let there = self.b.take(best, rows, 0);
        let wins = self.b.compare(Code::Equal, new, there);
        let stays = self.b.compare(Code::Equal, old, best);
        // Each element of a row may come from another update.
        let (count, width) = (self.b.dims(updates)[0], self.b.dims(updates)[1]);
        let none = self.b.int(DType::I32, -1);
        let numbers = self.b.arange(count);
        let numbers = self.b.astype(numbers, DType::I32);
        let numbers = self.b.reshape(numbers, &[count, 1]);
        let numbers = self.b.select(wins, numbers, none);
        let height = self.b.dims(table)[0];
        let empty = self.b.full(none, &[height, width]);
        let from = self.scatter(Code::ScatterMax, empty, rows, numbers);
        let zero = self.b.int(DType::I32, 0);
        let from = self.b.binary(Code::Maximum, from, zero);
        let found = self.b.op(Code::TakeAlongAxis, &[updates, from], &[0], dtype, &[height, width]);
        self.b.select(stays, table, found)
    }

    /// A key in the opposite order, NaN still above all.
    fn turned(&mut self, key: Val, x: Val) -> Val {
        let key = self.b.unary(Code::BitwiseInvert, key);
        if !self.b.dtype(x).is_float() {
            return key;
        }
        let most = if self.b.dtype(x) == DType::F64 { i64::MAX } else { i64::from(i32::MAX) };
        let (nan, most) = (self.b.question(Code::IsNan, x), self.b.int(DType::I64, most.into()));
        self.b.select(nan, most, key)
    }

    fn narrowed(&mut self, key: Val) -> Val {
        self.b.astype(key, DType::I32)
    }

    /// `x` with a range of `axis` replaced, from one start or from one for each element of dimension 0.
    pub(super) fn update_slice(&mut self, node: &Node, x: &[Val], axis: usize) -> Val {
        let (dtype, dims) = (self.b.dtype(x[0]), self.b.dims(x[0]).to_vec());
        let (len, size) = (self.b.dims(x[1])[axis], dims[axis]);
        if self.b.dims(x[1]).contains(&0) {
            return x[0];
        }
        let wide = self.b.astype(x[2], DType::I64);
        let (zero, count) = (self.b.int(DType::I64, 0), self.b.int(DType::I64, size as i128));
        let negative = self.b.compare(Code::Less, wide, zero);
        let shifted = self.b.binary(Code::Add, wide, count);
        let start = self.b.select(negative, shifted, wide);
        let most = self.b.int(DType::I64, size as i128 - len as i128);
        let low = self.b.compare(Code::Less, start, zero);
        let high = self.b.compare(Code::Greater, start, most);
        let outside = self.b.binary(Code::LogicalOr, low, high);
        self.fault(Fault { node: node.id, size, update: Some(len) }, outside, wide);
        let start = self.b.select(outside, zero, start);
        if self.b.dims(start).is_empty() {
            let start = self.b.reshape(start, &[1]);
            return self.b.op(Code::SliceUpdate, &[x[0], x[1], start], &[word(axis)], dtype, &dims);
        }
        // How far each place of the axis is behind its row's start.
        let mut shape = vec![1; dims.len()];
        shape[0] = dims[0];
        let start = self.b.reshape(start, &shape);
        let mut line = vec![1; dims.len()];
        line[axis] = size;
        let counted = self.b.arange(size);
        let counted = self.b.reshape(counted, &line);
        let place = self.b.binary(Code::Subtract, counted, start);
        let length = self.b.int(DType::I64, len as i128);
        let (behind, before) =
            (self.b.compare(Code::GreaterEqual, place, zero), self.b.compare(Code::Less, place, length));
        let inside = self.b.binary(Code::LogicalAnd, behind, before);
        let place = self.b.select(inside, place, zero);
        let place = self.b.broadcast_to(place, &dims);
        let new = self.b.op(Code::TakeAlongAxis, &[x[1], place], &[word(axis)], dtype, &dims);
        self.b.select(inside, new, x[0])
    }
}
