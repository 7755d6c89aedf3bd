//! Arg-reductions: where the extreme element of each row is. Rows are divided as those of other reductions are (`schedule/reduce.rs`): what is joined are
//! pairs of an element and its place, and which of two it is depends on no order in which they are joined.

use rlx_ir::op::ArgOp;
use rlx_ir::{Node, Op};

use super::order::Order;
use super::reduce::{Joins, reduced};
use super::{Launch, Scheduled, StepDesc, elementwise, reject};
use crate::build::Builder;
use crate::ir::{Const, Ty, Value, Var};

/// The first element in an order, and its place: −1 where there is none.
#[derive(Debug, Clone, Copy)]
struct Extreme {
    order: Order,
    /// The elements' type.
    ty: Ty,
}

/// Makes the kernel of a body around [`Op::ArgReduce`].
///
/// # Errors
/// An element type without an order, or an epilogue of other dimensions.
pub fn schedule(step: &StepDesc, anchor: &Node, subgroup: Option<u32>) -> Scheduled<Vec<Launch>> {
    let Op::ArgReduce { op, axis, keep_dim, last } = anchor.op else { return reject("not an ArgReduce") };
    let dtype = step.graph.shape(anchor.inputs[0]).dtype();
    if !elementwise::computes(dtype) {
        return reject(format!("an order of {dtype}"));
    }
    let order = Order { largest: op == ArgOp::Max, nan_wins: true, last };
    reduced(step, anchor, Extreme { order, ty: Ty::of(dtype) }, (&[axis], keep_dim), subgroup)
}

impl Joins for Extreme {
    fn types(self) -> Vec<Ty> {
        vec![self.ty, Ty::I32]
    }

    fn start(self, b: &mut Builder) -> Vec<Value> {
        vec![b.constant(Const { ty: self.ty, bits: 0 }), b.int(-1)]
    }

    /// An invocation takes the elements of a row in their order.
    fn take(self, b: &mut Builder, totals: &[Var], v: Value, place: &[Value]) {
        let (best, at) = (b.get(totals[0]), b.get(totals[1]));
        let (first, tied) = self.order.before(b, v, best);
        let better = if self.order.last { b.or(first, tied) } else { first };
        let zero = b.int(0);
        let alone = b.lt(at, zero);
        let better = b.or(better, alone);
        b.if_then(better, |b| {
            b.set(totals[0], v);
            b.set(totals[1], place[0]);
        });
    }

    fn both(self, b: &mut Builder, x: &[Value], y: &[Value]) -> Vec<Value> {
        let (first, tied) = self.order.before(b, y[0], x[0]);
        let sooner = if self.order.last { b.gt(y[1], x[1]) } else { b.lt(y[1], x[1]) };
        let sooner = b.and(tied, sooner);
        let wins = b.or(first, sooner);
        let zero = b.int(0);
        let alone = b.lt(x[1], zero);
        let wins = b.or(wins, alone);
        let is_there = b.ge(y[1], zero);
        let wins = b.and(wins, is_there);
        vec![b.select(wins, y[0], x[0]), b.select(wins, y[1], x[1])]
    }

    fn end(self, b: &mut Builder, totals: &[Value], _: Value) -> Value {
        b.convert(Ty::I64, totals[1])
    }
}
