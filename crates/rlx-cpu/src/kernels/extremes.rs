//! The smallest and the largest elements along the same axes, in one step that reads them once: what dynamic quantisation asks for.

use rlx_ir::op::ReduceOp;
use rlx_ir::{DType, Graph, Node, Op, Result};

use super::reduce::{PIECE, Reduce};
use super::{BindCx, Needs, RunCx, Shared, StepKernel};
use crate::rows;

/// A region of two such reductions: which of its results is the largest.
#[derive(Debug, Clone)]
pub(crate) struct Extremes {
    axes: Vec<usize>,
    keep_dim: bool,
    largest: usize,
}

/// Whether one step may compute both nodes, which reduce the same value along the same axes.
pub(crate) fn fuses(a: &Node, b: &Node) -> bool {
    ops(a, b).is_some_and(|ops| ops[0] != ops[1]) && a.shape.dtype() == DType::F32
}

/// The ops of two reductions that are both one of the largest or of the smallest.
fn ops(a: &Node, b: &Node) -> Option<[ReduceOp; 2]> {
    let op = |node: &Node| match node.op {
        Op::Reduce { op: op @ (ReduceOp::Min | ReduceOp::Max), .. } => Some(op),
        _ => None,
    };
    Some([op(a)?, op(b)?])
}

fn same_axes(node: &Node, axes: &[usize], keep_dim: bool) -> bool {
    matches!(&node.op, Op::Reduce { axes: own, keep_dim: keep, .. } if own == axes && *keep == keep_dim)
}

impl Extremes {
    /// That of a region's body, if it is one.
    pub(crate) fn of(body: &Graph) -> Option<Extremes> {
        let (&[a, b], [x, ..]) = (&body.outputs[..], body.nodes()) else { return None };
        let (a, b) = (body.node(a), body.node(b));
        let Op::Reduce { axes, keep_dim, .. } = &a.op else { return None };
        let of_x = |node: &Node| node.inputs[..] == [x.id] && same_axes(node, axes, *keep_dim);
        let whole = body.len() == 3 && matches!(x.op, Op::Input { .. }) && of_x(a) && of_x(b);
        let largest = ops(a, b)?.iter().position(|&op| op == ReduceOp::Max)?;
        (whole && fuses(a, b)).then(|| Extremes { axes: axes.clone(), keep_dim: *keep_dim, largest })
    }
}

/// The kernel of such a region.
pub(crate) fn kernel(of: Extremes) -> Box<dyn StepKernel> {
    let reduce = |op| Reduce::new(op, of.axes.clone(), of.keep_dim, DType::F32);
    Box::new(Both { smallest: reduce(ReduceOp::Min), largest: reduce(ReduceOp::Max), at: of.largest })
}

/// Two reductions of the same operand, of which the second is result number `at`.
#[derive(Debug, Clone)]
struct Both {
    smallest: Reduce,
    largest: Reduce,
    at: usize,
}

impl StepKernel for Both {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let [first, second] = [1 - self.at, self.at].map(|i| &cx.outputs[i]);
        let needs = self.smallest.bind_to(&cx.inputs[0], first)?;
        self.largest.bind_to(&cx.inputs[0], second)?;
        // Two numbers of each piece instead of one.
        Ok(Needs { shared_scratch: 2 * needs.shared_scratch, ..needs })
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            match self.smallest.as_rows() {
                Some(_) => self.rows(cx),
                None => {
                    self.smallest.run(cx)?;
                    self.largest.run(cx)?;
                }
            }
        }
        Ok(())
    }
}

impl Both {
    /// Contiguous rows; those that are long and few in pieces, and then what those gave.
    ///
    /// # Safety
    /// As [`StepKernel::run`]; the shared scratch must have room for two numbers of each piece.
    unsafe fn rows(&self, cx: &mut RunCx<'_, '_>) {
        let ([y, x], columns, isa) = (self.smallest.kept, self.smallest.reduced.elements(), cx.isa);
        let [to_y, _] = self.largest.kept;
        let from = cx.shared::<f32>(self.smallest.from);
        let to = [self.smallest.to, self.largest.to].map(|at| cx.shared::<f32>(at));
        let store = |row: usize, [low, high]: [f32; 2]| {
            // SAFETY: each row of the results is written once.
            unsafe {
                *to[0].get().wrapping_offset(y.at(row)) = low;
                *to[1].get().wrapping_offset(to_y.at(row)) = high;
            }
        };
        let Some(pieces) = self.smallest.pieces() else {
            return cx.parallel(self.smallest.worth, y.elements(), &|range, _| {
                for row in range {
                    let x = from.get().wrapping_offset(x.at(row)).cast_const();
                    // SAFETY: the caller's promise.
                    store(row, unsafe { rows::extremes(isa, x, columns) });
                }
            });
        };
        let partial = Shared::new(cx.shared_scratch.cast::<[f32; 2]>());
        cx.parallel(self.smallest.worth, y.elements() * pieces, &|range, _| {
            for piece in range {
                let (row, start) = (piece / pieces, piece % pieces * PIECE);
                let x = from.get().wrapping_offset(x.at(row)).wrapping_add(start).cast_const();
                // SAFETY: the caller's promise; the numbers of each piece are written once.
                unsafe {
                    *partial.get().wrapping_add(piece) = rows::extremes(isa, x, PIECE.min(columns - start));
                }
            }
        });
        for row in 0..y.elements() {
            let first = partial.get().wrapping_add(row * pieces);
            // SAFETY: all pieces were written.
            let all = unsafe { std::slice::from_raw_parts(first.cast_const(), pieces) };
            store(row, all.iter().copied().reduce(joined).unwrap_or_default());
        }
    }
}

/// The extremes of two pieces.
fn joined(a: [f32; 2], b: [f32; 2]) -> [f32; 2] {
    // There is no NaN, or it is both extremes of its piece.
    if a[0].is_nan() || b[0].is_nan() { [f32::NAN; 2] } else { [a[0].min(b[0]), a[1].max(b[1])] }
}
