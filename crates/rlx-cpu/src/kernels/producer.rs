//! What makes the rows of a matmul, computed by it: a *strip* of rows at a time, which the matmul reads from a cache.
//!
//! A layer norm, an RMS norm or a quantisation as a step of its own writes all rows to memory, and they are there until the last
//! matmul has read them. In the region of the matmul, all threads make the rows of a strip in scratch, then multiply them; the next
//! strip takes the same memory. Strips are small enough for a second-level cache and have enough rows that reading the weights
//! again for each costs nothing.
//!
//! The rows have the bits that the producer alone gives them, and a matmul's bits do not depend on how its rows are divided.

use std::ops::Range;

use rlx_ir::{Graph, Node, Op, Result};

use super::matmul::{Shape, by_blas, is_packed};
use super::norm::{self, RowOp};
use super::requantise::{ByteScale, ByteScaleAt};
use super::{BindCx, Needs, RunCx, Shared, WORTH_NANOS, mismatch, quant};
use crate::gemm::{Gemm, Next, Packed, Strided, TileSizes, groups, panels};
use crate::layout::At;
use crate::math::Quantiser;

/// Bytes of a strip of floats.
const STRIP_BYTES: usize = 256 << 10;

/// Bytes of a strip of bytes. They are multiplied four times as fast as floats, so weights that are read again for each strip take
/// more of the time: a strip is as large as the block of rows for which the matmul reads them again anyway.
const STRIP_OF_BYTES: usize = TileSizes::DEFAULT.block_bytes / 2;

/// Rows of a strip that has more bytes: with fewer, multiplying them would wait for the weights.
const MIN_ROWS: usize = 64;

/// What makes the rows of a matmul in its region.
#[derive(Debug, Clone)]
pub(crate) struct Producer {
    /// Which of the region's inputs it reads row by row.
    rows: usize,
    makes: Makes,
    /// Rows of a strip, and where it is in shared scratch.
    strip: (usize, usize),
    worth: bool,
}

/// What is made of each row.
#[derive(Debug, Clone)]
enum Makes {
    /// The row normalised; which of the region's inputs are scale and shift, and where.
    Norm { op: RowOp, inputs: Vec<usize>, vectors: [Option<At>; 2] },
    /// Bytes of f32.
    Bytes { by: ByteScale, at: Option<ByteScaleAt> },
}

/// Whether `producer` may be computed by the matmul `anchor`, whose weights are packed.
pub(crate) fn fuses(producer: &Node, anchor: &Node, graph: &Graph) -> bool {
    let packed = |&id: &rlx_ir::NodeId| matches!(graph.node(id).op, Op::Pack { .. });
    let makes = match producer.op {
        Op::Quantize { .. } => anchor.op == Op::MatMulInteger && quant::fuses(producer, graph),
        _ => is_float_matmul(anchor) && norm::of_last_dim(producer, graph).is_some(),
    };
    makes
        && producer.shape.rank() >= 2
        && anchor.inputs[0] == producer.id
        && !anchor.inputs[1..].contains(&producer.id)
        && anchor.inputs.get(1).is_some_and(packed)
}

fn is_float_matmul(anchor: &Node) -> bool {
    anchor.op == Op::MatMul && is_packed(anchor.shape.dtype()) && !by_blas(anchor)
}

/// The node of a region's body that makes the rows of `anchor`, if they are no input.
pub(crate) fn node_of<'g>(body: &'g Graph, anchor: &Node) -> Option<&'g Node> {
    let node = body.node(*anchor.inputs.first()?);
    (!matches!(node.op, Op::Input { .. } | Op::Constant { .. })).then_some(node)
}

/// The producer of an anchor's rows, if a node of the region's body makes them.
pub(crate) fn of(body: &Graph, anchor: &Node) -> std::result::Result<Option<Producer>, String> {
    let Some(node) = node_of(body, anchor) else { return Ok(None) };
    let number = |&id: &rlx_ir::NodeId| {
        let found = body.inputs().position(|n| n.id == id);
        found.ok_or_else(|| format!("{} of what the region computes", node.op.kind()))
    };
    let by_bytes = || ByteScale::of(body, node, node.shape.dtype()).filter(|_| quant::fuses(node, body));
    let makes = if is_float_matmul(anchor)
        && let Some(op) = norm::of_last_dim(node, body)
    {
        let inputs = node.inputs[1..].iter().map(number).collect::<std::result::Result<_, _>>()?;
        Makes::Norm { op, inputs, vectors: [None; 2] }
    } else if anchor.op == Op::MatMulInteger
        && matches!(node.op, Op::Quantize { .. })
        && let Some(by) = by_bytes()
    {
        Makes::Bytes { by, at: None }
    } else {
        return Err(format!("no kernel computes {} before {}", node.op.kind(), anchor.op.kind()));
    };
    // Rows of matrices, which matmuls alone read.
    let matmuls = |n: &Node| n.op == anchor.op && n.inputs[0] == node.id && !n.inputs[1..].contains(&node.id);
    let mut users = body.nodes().iter().filter(|n| n.inputs.contains(&node.id));
    if node.shape.rank() < 2 || body.outputs.contains(&node.id) || !users.all(matmuls) {
        return Err(format!("{} is read by more than matmuls", node.op.kind()));
    }
    Ok(Some(Producer { rows: number(&node.inputs[0])?, makes, strip: (0, 0), worth: false }))
}

/// Rows of a strip of about `strip_bytes`, of `rows` rows of `row_bytes` bytes: equal strips of whole tiles.
fn strip_rows(rows: usize, row_bytes: usize, strip_bytes: usize) -> usize {
    let most = (strip_bytes / row_bytes.max(1)).max(MIN_ROWS);
    let strips = rows.div_ceil(most).max(1);
    rows.div_ceil(strips).next_multiple_of(8).min(rows)
}

impl Makes {
    /// What `rows` rows of `k` elements take.
    fn needs(&self, rows: usize, k: usize) -> Needs {
        match self {
            Makes::Norm { op, .. } => op.needs(rows),
            Makes::Bytes { .. } => Needs::time(rows as f64 * k as f64 * quant::NANOS),
        }
    }
}

impl Producer {
    /// Which of the region's inputs has the rows that it reads.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Whether it makes bytes that are i8.
    pub(super) fn makes_signed_bytes(&self) -> bool {
        matches!(&self.makes, Makes::Bytes { by, .. } if by.signed())
    }

    /// Binds before the matmul `of`, whose rows are those that it reads, and adds to what the step needs.
    pub(super) fn bind(&mut self, cx: &BindCx<'_>, of: &Shape, needs: &mut Needs) -> Result<()> {
        let x = &cx.inputs[self.rows];
        let dense = x.layout.is_dense() && (of.m == 1 || of.a_strides[0] == of.k as isize);
        let wide = |columns: usize| columns == of.k;
        let element = match &mut self.makes {
            Makes::Norm { op, inputs, vectors } => {
                for (to, &i) in vectors.iter_mut().zip(inputs.iter()) {
                    op.check_vector(&cx.inputs[i])?;
                    *to = Some(cx.inputs[i].at);
                }
                wide(op.columns()).then_some((x.dtype.size_bytes(), STRIP_BYTES))
            }
            Makes::Bytes { by, at } => {
                *at = by.bind(cx);
                at.map(|_| (1, STRIP_OF_BYTES))
            }
        };
        let Some((element, strip_bytes)) = element.filter(|_| dense && of.packed) else {
            return Err(mismatch(format!("no rows are made of {:?} before a matmul", x.dims())));
        };
        let row_bytes = of.k.saturating_mul(element);
        let rows = strip_rows(of.m, row_bytes, strip_bytes);
        let (one, all) = (self.makes.needs(rows, of.k), self.makes.needs(of.m * of.batches(), of.k));
        self.strip = (rows, needs.shared_scratch);
        self.worth = one.nanos > WORTH_NANOS;
        let bytes = rows.checked_mul(row_bytes).and_then(|n| n.checked_add(needs.shared_scratch));
        needs.shared_scratch = bytes.ok_or_else(|| mismatch(format!("rows of {} are too large", of.k)))?;
        needs.thread_scratch = needs.thread_scratch.max(one.thread_scratch);
        needs.nanos += all.nanos;
        Ok(())
    }

    /// Calls `multiply` with each strip of the `m` rows of `k` elements at `x`: which rows they are, and where what was made of
    /// them is.
    ///
    /// # Safety
    /// The rows must be readable, and the step's scratch there.
    pub(super) unsafe fn for_strips(
        &self,
        cx: &mut RunCx<'_, '_>,
        x: *mut u8,
        [m, k]: [usize; 2],
        mut multiply: impl FnMut(&mut RunCx<'_, '_>, Range<usize>, *const u8),
    ) {
        let (rows, at) = self.strip;
        let strip = cx.shared_scratch.wrapping_add(at);
        for start in (0..m).step_by(rows.max(1)) {
            let part = start..(start + rows).min(m);
            // SAFETY: the caller's promise; the strip is as long as its rows, and not in use between two calls.
            unsafe {
                match &self.makes {
                    Makes::Norm { op, vectors, .. } => {
                        let from = x.wrapping_add(start * op.row_bytes());
                        op.run(cx, self.worth, from, strip, *vectors, part.len());
                    }
                    Makes::Bytes { at, .. } => {
                        // There is one: `bind` fails without.
                        let Some(by) = at.map(|at| at.quantiser(cx)) else { return };
                        let from = x.cast::<f32>().wrapping_add(start * k);
                        quantise(cx, self.worth, from, strip, [part.len(), k], by);
                    }
                }
            }
            multiply(cx, part, strip.cast_const());
        }
    }

    /// [`Producer::for_strips`] of the rows of `whole`, which are those before the producer.
    ///
    /// # Safety
    /// The rows of `whole` must be readable, and the step's scratch there.
    pub(crate) unsafe fn for_parts<T: Packed>(
        &self,
        cx: &mut RunCx<'_, '_>,
        whole: &Gemm<Strided<T>>,
        mut multiply: impl FnMut(&mut RunCx<'_, '_>, &Gemm<Strided<T>>),
    ) {
        let again = Next { b: whole.b, depth: groups::<T>(whole.k), panels: panels(whole.n) };
        let x = whole.rows.ptr.cast_mut().cast();
        let part = |cx: &mut RunCx<'_, '_>, rows: Range<usize>, strip: *const u8| {
            let last = rows.end == whole.m;
            let mut part = whole.of_rows(rows, strip.cast());
            if !last {
                part.ahead = part.ahead.then(again);
            }
            multiply(cx, &part);
        };
        // SAFETY: the caller's promise.
        unsafe { self.for_strips(cx, x, [whole.m, whole.k], part) };
    }
}

/// Makes bytes of rows of f32 on all threads, if that is `worth` a fork.
///
/// # Safety
/// `x` must be readable and `out` writable for the rows.
unsafe fn quantise(
    cx: &mut RunCx<'_, '_>,
    worth: bool,
    x: *const f32,
    out: *mut u8,
    [rows, k]: [usize; 2],
    by: Quantiser,
) {
    let (isa, x, out) = (cx.isa, Shared::new(x.cast_mut()), Shared::new(out));
    cx.parallel(worth, rows, &|range, _| {
        let at = range.start * k;
        // SAFETY: the caller's promise; rows are disjoint.
        unsafe {
            let (x, out) = (x.get().wrapping_add(at), out.get().wrapping_add(at));
            quant::to_bytes(isa, x, out, range.len() * k, by);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_are_equal_and_of_whole_tiles() {
        assert_eq!(strip_rows(1, 3072, STRIP_BYTES), 1);
        assert_eq!(strip_rows(16, 3072, STRIP_BYTES), 16);
        assert_eq!(strip_rows(128, 3072, STRIP_BYTES), 64);
        assert_eq!(strip_rows(1024, 3072, STRIP_BYTES), 80);
        assert_eq!(strip_rows(128, 3072, STRIP_OF_BYTES), 128);
        assert_eq!(strip_rows(1024, 3072, STRIP_OF_BYTES), 152);
        // Wide rows.
        assert_eq!(strip_rows(1000, 16384, STRIP_BYTES), 64);
        assert_eq!(strip_rows(0, 64, STRIP_BYTES), 0);
    }
}
