//! What is known of each value while a graph is given caches of a capacity: which of its dimensions grew, and how many rows count.

use rlx_ir::op::{BinaryOp, CmpOp};
use rlx_ir::{DType, Dim, Error, ErrorKind, Extent, Graph, Node, NodeId, Op, Result, Shape, Value, sym};

use crate::rewrite::Rewriter;

/// A dimension that grew and has the capacity now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    /// Which dimension.
    pub axis: usize,
    /// What it was: the rows that count, an expression over the symbol that grows.
    pub count: Extent,
    /// What is in the other rows.
    pub tail: Tail,
}

/// What is in the rows that do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// Anything.
    Any,
    /// Numbers, none of them infinite.
    Finite,
    /// Zeros, unless all of the line along the dimension is NaN.
    Zero,
}

/// The walk over the old graph.
pub(super) struct Walk<'g> {
    pub r: Rewriter<'g>,
    /// The symbol that grows.
    past: u32,
    /// How many rows there are instead.
    capacity: usize,
    /// The input that says how many of them are used.
    pub length: Option<NodeId>,
    /// By node of the old graph.
    rows: Vec<Option<Rows>>,
}

impl<'g> Walk<'g> {
    pub fn new(graph: &'g Graph, past: u32, capacity: usize) -> Self {
        Walk { r: Rewriter::new(graph), past, capacity, length: None, rows: vec![None; graph.len()] }
    }

    pub fn reject(&self, why: &str) -> Error {
        let message = format!("the graph cannot have caches of a fixed capacity: {why}");
        let hint = format!(
            "the dimension that grows is {:?}; run the graph as it is, or export it otherwise",
            sym::name(self.past)
        );
        Error::new(ErrorKind::Unsupported, message).with_hint(hint)
    }

    /// What is known of an old node's first result, if a dimension of it grew.
    pub fn rows(&self, old: NodeId) -> Option<Rows> {
        self.rows[old.index()]
    }

    /// Says what stands for an old node.
    pub fn place(&mut self, old: &Node, new: NodeId, rows: Option<Rows>) {
        self.rows[old.id.index()] = rows;
        self.r.replace(old.id, new);
    }

    pub fn length(&self) -> Result<NodeId> {
        self.length.ok_or_else(|| Error::new(ErrorKind::Internal, "the length is not there yet"))
    }

    pub fn capacity(&self) -> Dim {
        Dim::Static(self.capacity)
    }

    /// Whether an expression grows.
    pub fn grows(&self, e: Extent) -> bool {
        e.symbols().contains(&self.past)
    }

    /// Whether an attribute or a result's shape grows.
    pub fn mentions_past(&self, node: &Node) -> bool {
        node.symbols().contains(&self.past)
    }

    /// The dimension of a shape of the old graph that grows. There may be one, and it must be a number more than what is past.
    pub fn growth(&self, shape: &Shape) -> Result<Option<Rows>> {
        let mut growing = shape.dims().iter().enumerate().filter(|(_, d)| self.grows(d.extent()));
        let Some((axis, dim)) = growing.next() else { return Ok(None) };
        if growing.next().is_some() {
            return Err(self.reject(&format!("{shape} grows in two dimensions")));
        }
        let count = dim.extent();
        self.beyond(count)?;
        Ok(Some(Rows { axis, count, tail: Tail::Any }))
    }

    /// How much more a growing expression is than what is past.
    fn beyond(&self, e: Extent) -> Result<Extent> {
        let more = e - Extent::sym(self.past);
        if self.grows(more) {
            return Err(self.reject(&format!("a dimension of {e} is not what is past and something more")));
        }
        Ok(more)
    }

    /// The dimensions, with the capacity for those that grow.
    pub fn fixed(&self, dims: &[Dim]) -> Vec<Dim> {
        dims.iter().map(|&d| if self.grows(d.extent()) { self.capacity() } else { d }).collect()
    }

    /// As [`Walk::fixed`], of a whole shape.
    pub fn fixed_shape(&self, shape: &Shape) -> Shape {
        shape.with_dims(self.fixed(shape.dims()))
    }

    /// A constant of no dimensions.
    pub fn scalar(&mut self, dtype: DType, value: f64) -> Result<NodeId> {
        let value = if dtype.is_float() {
            Value::float(dtype, &[], vec![value])
        } else {
            Value::int(dtype, &[], vec![value as i128])
        };
        self.constant(value.rounded())
    }

    pub fn constant(&mut self, value: Value) -> Result<NodeId> {
        self.r.emit(Op::Constant { data: std::sync::Arc::new(value.to_const()) }, &[])
    }

    pub fn binary(&mut self, op: BinaryOp, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.r.emit(Op::Binary(op), &[a, b])
    }

    pub fn compare(&mut self, op: CmpOp, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.r.emit(Op::Compare(op), &[a, b])
    }

    pub fn cast(&mut self, x: NodeId, to: DType) -> Result<NodeId> {
        if self.r.shape(x).dtype() == to { Ok(x) } else { self.r.emit(Op::Cast { to }, &[x]) }
    }

    /// Counts from 0 along a dimension of its own.
    pub fn count(&mut self, dim: Dim) -> Result<NodeId> {
        self.r.emit(Op::Iota { to: vec![dim], axis: 0, dtype: DType::I64 }, &[])
    }

    pub fn reshaped(&mut self, x: NodeId, to: Vec<Dim>) -> Result<NodeId> {
        if self.r.shape(x).dims() == to {
            return Ok(x);
        }
        self.r.emit(Op::Reshape { to }, &[x])
    }

    /// `x`, of one dimension, along `axis` of `rank` dimensions.
    pub fn along(&mut self, x: NodeId, axis: usize, rank: usize) -> Result<NodeId> {
        let mut to = vec![Dim::Static(1); rank];
        to[axis] = self.r.shape(x).dim(0);
        self.reshaped(x, to)
    }

    /// An expression of the old graph as an i64 of no dimensions: what is past is the length.
    pub fn number(&mut self, e: Extent) -> Result<NodeId> {
        if !self.grows(e) {
            return self.known_number(e);
        }
        let (more, length) = (self.beyond(e)?, self.length()?);
        if more == Extent::Const(0) {
            return Ok(length);
        }
        let more = self.known_number(more)?;
        self.binary(BinaryOp::Add, length, more)
    }

    /// An expression over dimensions that stay: a constant, or the last of a count up to it.
    fn known_number(&mut self, e: Extent) -> Result<NodeId> {
        if let Some(number) = e.as_const() {
            return self.constant(Value::int(DType::I64, &[], vec![i128::from(number)]));
        }
        let graph = self.r.old();
        if e.range(&|s| graph.symbol_range(s)).min < 0 {
            return Err(self.reject(&format!("{e}, which may be negative, is needed as a number")));
        }
        let count = self.count(Dim::from(e + 1))?;
        let last = Op::Slice { starts: vec![e], steps: vec![1], to: vec![Dim::Static(1)] };
        let last = self.r.emit(last, &[count])?;
        self.reshaped(last, Vec::new())
    }

    /// Whether each row counts: a bool that broadcasts onto `rank` dimensions.
    pub fn counts(&mut self, rows: Rows, rank: usize) -> Result<NodeId> {
        let (row, count) = (self.count(self.capacity())?, self.number(rows.count)?);
        let counts = self.compare(CmpOp::Lt, row, count)?;
        self.along(counts, rows.axis, rank)
    }

    /// `x` of the new graph, with `fill` in the rows that do not count.
    pub fn filled(&mut self, x: NodeId, rows: Rows, fill: f64) -> Result<NodeId> {
        let shape = self.r.shape(x);
        let (rank, dtype) = (shape.rank(), shape.dtype());
        let (counts, fill) = (self.counts(rows, rank)?, self.scalar(dtype, fill)?);
        self.r.emit(Op::Where, &[counts, x, fill])
    }

    /// The dimension of an operand that grew, counted from the last one, as broadcasting does.
    pub fn place_from_last(&self, old: NodeId) -> Option<(usize, Extent)> {
        let rank = self.r.old().shape(old).rank();
        self.rows(old).map(|rows| (rank - rows.axis, rows.count))
    }
}
