//! Norms before a matmul, computed by it: a *strip* of rows at a time, which the matmul reads from a cache.
//!
//! A layer norm or RMS norm as a step of its own writes all rows to memory, and they are there until the last matmul has read
//! them. In the region of the matmul, all threads normalise the rows of a strip into scratch, then multiply them; the next strip
//! takes the same memory. Strips are small enough for a second-level cache and have enough rows that reading the weights again
//! for each costs nothing.
//!
//! The rows have the bits that the norm alone gives them, and a matmul's bits do not depend on how its rows are divided.

use rlx_ir::{Graph, Node, Op, Result};

use super::matmul::{Shape, by_blas, is_packed};
use super::norm::{self, RowOp};
use super::{BindCx, Needs, RunCx, WORTH_NANOS, mismatch};
use crate::gemm::{Gemm, Next, Packed, Strided, groups, panels};
use crate::program::layout::At;

/// Bytes of a strip.
const STRIP_BYTES: usize = 256 << 10;

/// Rows of a strip that has more bytes: with fewer, multiplying them would wait for the weights.
const MIN_ROWS: usize = 64;

/// A norm in the region of the matmul that reads it.
#[derive(Debug, Clone)]
pub(crate) struct Producer {
    op: RowOp,
    /// Which of the region's inputs are the rows, their scale and their shift.
    inputs: Vec<usize>,
    vectors: [Option<At>; 2],
    /// Rows of a strip, and where it is in shared scratch.
    strip: (usize, usize),
    worth: bool,
}

/// Whether the norm `producer` may be computed by the matmul `anchor`, whose weights are packed.
pub(crate) fn fuses(producer: &Node, anchor: &Node, graph: &Graph) -> bool {
    let packed = |&id: &rlx_ir::NodeId| matches!(graph.node(id).op, Op::Pack { .. });
    anchor.op == Op::MatMul
        && is_packed(anchor.shape.dtype())
        && !by_blas(anchor)
        && anchor.inputs[0] == producer.id
        && anchor.inputs.get(1).is_some_and(packed)
        && norm::of_last_dim(producer, graph).is_some()
}

/// The producer of an anchor's rows, if a node of the region's body makes them.
pub(crate) fn of(body: &Graph, anchor: &Node) -> std::result::Result<Option<Producer>, String> {
    let Some(&first) = anchor.inputs.first() else { return Ok(None) };
    let node = body.node(first);
    if matches!(node.op, Op::Input { .. } | Op::Constant { .. }) {
        return Ok(None);
    }
    let fits = anchor.op == Op::MatMul && is_packed(anchor.shape.dtype()) && !by_blas(anchor);
    let op = norm::of_last_dim(node, body).filter(|_| fits);
    let op =
        op.ok_or_else(|| format!("no kernel computes {} before {}", node.op.kind(), anchor.op.kind()))?;
    // Rows of matrices, which matmuls alone read.
    let matmuls = |n: &Node| n.op == Op::MatMul && n.inputs[0] == first && n.inputs[1] != first;
    let mut users = body.nodes().iter().filter(|n| n.inputs.contains(&first));
    if node.shape.rank() < 2 || body.outputs.contains(&first) || !users.all(matmuls) {
        return Err(format!("{} is read by more than matmuls", node.op.kind()));
    }
    let number = |id| body.inputs().position(|n| n.id == id).ok_or("a norm of what the region computes");
    let inputs = node.inputs.iter().map(|&id| number(id)).collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(Some(Producer { op, inputs, vectors: [None; 2], strip: (0, 0), worth: false }))
}

/// Rows of a strip, of `rows` rows of `row_bytes` bytes: equal strips of whole tiles.
fn strip_rows(rows: usize, row_bytes: usize) -> usize {
    let most = (STRIP_BYTES / row_bytes.max(1)).max(MIN_ROWS);
    let strips = rows.div_ceil(most).max(1);
    rows.div_ceil(strips).next_multiple_of(8).min(rows)
}

impl Producer {
    /// Which of the region's inputs has the rows that it reads.
    pub(crate) fn rows(&self) -> usize {
        self.inputs[0]
    }

    /// Binds before the matmul `of`, whose rows are those that it reads, and adds to what the step needs.
    pub(super) fn bind(&mut self, cx: &BindCx<'_>, of: &Shape, needs: &mut Needs) -> Result<()> {
        let x = &cx.inputs[self.inputs[0]];
        let dense = x.layout.is_dense()
            && of.k == self.op.columns()
            && (of.m == 1 || of.a_strides[0] == of.k as isize);
        if !dense || !of.packed {
            return Err(mismatch(format!("rows of {:?} are not normalised before a matmul", x.dims())));
        }
        for (to, &i) in self.vectors.iter_mut().zip(&self.inputs[1..]) {
            self.op.check_vector(&cx.inputs[i])?;
            *to = Some(cx.inputs[i].at);
        }
        let row_bytes = of.k.saturating_mul(x.dtype.size_bytes());
        let rows = strip_rows(of.m, row_bytes);
        let (one, all) = (self.op.needs(rows), self.op.needs(of.m * of.batches()));
        self.strip = (rows, needs.shared_scratch);
        self.worth = one.nanos > WORTH_NANOS;
        let bytes = rows.checked_mul(row_bytes).and_then(|n| n.checked_add(needs.shared_scratch));
        needs.shared_scratch = bytes.ok_or_else(|| mismatch(format!("rows of {} are too large", of.k)))?;
        needs.thread_scratch = needs.thread_scratch.max(one.thread_scratch);
        needs.nanos += all.nanos;
        Ok(())
    }

    /// Calls `multiply` for each strip of the rows of `whole`, which are those before the norm.
    ///
    /// # Safety
    /// The rows of `whole` must be readable, and the step's scratch there.
    pub(crate) unsafe fn for_strips<T: Packed>(
        &self,
        cx: &mut RunCx<'_, '_>,
        whole: &Gemm<Strided<T>>,
        mut multiply: impl FnMut(&mut RunCx<'_, '_>, &Gemm<Strided<T>>),
    ) {
        let (rows, at) = self.strip;
        let strip = cx.shared_scratch.wrapping_add(at);
        let again = Next { b: whole.b, depth: groups::<T>(whole.k), panels: panels(whole.n) };
        for start in (0..whole.m).step_by(rows.max(1)) {
            let end = (start + rows).min(whole.m);
            let x = whole.rows.ptr.wrapping_add(start * whole.k).cast_mut();
            // SAFETY: the caller's promise; the strip is as long as its rows, and not in use between two calls.
            unsafe { self.op.run(cx, self.worth, x.cast(), strip, self.vectors, end - start) };
            let mut part = whole.of_rows(start..end, strip.cast::<T>().cast_const());
            if end < whole.m {
                part.next = Some(again);
            }
            multiply(cx, &part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_are_equal_and_of_whole_tiles() {
        assert_eq!(strip_rows(1, 3072), 1);
        assert_eq!(strip_rows(16, 3072), 16);
        assert_eq!(strip_rows(128, 3072), 64);
        assert_eq!(strip_rows(1024, 3072), 80);
        // Wide rows.
        assert_eq!(strip_rows(1000, 16384), 64);
        assert_eq!(strip_rows(0, 64), 0);
    }
}
