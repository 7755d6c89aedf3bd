//! Attention: for each head and block of queries, scores, softmax and the weighted sum of the values.
//!
//! A task packs the keys and values of its head into its thread's scratch and multiplies on the packed
//! kernel; the scores of a block of queries stay in the cache between the two products. Heads are found
//! through strides, so `[B, S, H·D]` and `[B, H, S, D]` are the same to it. A query that may see nothing
//! gives 0.

use rlx_ir::op::MaskKind;
use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::{BindCx, CompileCx, Needs, RunCx, Shared, StepKernel, WORTH_NANOS, mismatch, no_kernel};
use crate::gemm::{self, Epilogue, Gemm, Strided};
use crate::isa::{Isa, Kernel};
use crate::program::layout::{At, Bound, Layout};
use crate::rows::{self, Softmax};
use crate::simd::{LANES, Simd, max_nan};

/// Queries of a task.
const BLOCK: usize = 128;

/// Whether operands are of f32.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let other = node.inputs[..3].iter().map(|&id| graph.shape(id).dtype()).find(|&d| d != DType::F32);
    match other {
        None => Claim::Native,
        Some(dtype) => Claim::No(format!("there is no attention kernel for {dtype}")),
    }
}

/// The kernel of an attention.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let Op::Attention { num_heads, head_dim, mask, scale } = cx.node().op else {
        return Err(no_kernel(&cx.node().op, "it is no attention"));
    };
    let bool_mask = cx.step.inputs.get(3).is_some_and(|m| m.dtype == DType::Bool);
    let scale = scale.unwrap_or((1.0 / (head_dim as f64).sqrt()) as f32);
    Ok(Box::new(Attention { heads: num_heads, head_dim, kind: mask, bool_mask, scale, bound: None }))
}

/// One operand seen as `[batch, heads, seq, size]`.
#[derive(Debug, Clone, Copy)]
struct Heads {
    at: At,
    dims: [usize; 4],
    strides: [isize; 4],
}

impl Heads {
    /// Of `heads` heads, or heads of `size` elements, where the shape does not say.
    fn of(b: &Bound, heads: Option<usize>, size: Option<usize>) -> Result<Heads> {
        let (d, s) = (b.layout.dims(), b.layout.strides());
        if let (&[d0, d1, d2, d3], &[s0, s1, s2, s3]) = (d, s) {
            return Ok(Heads { at: b.at, dims: [d0, d1, d2, d3], strides: [s0, s1, s2, s3] });
        }
        let misfit = || mismatch(format!("attention over {d:?}"));
        let (&[d0, d1, d2], &[s0, s1, s2]) = (d, s) else { return Err(misfit()) };
        let size = match (heads, size) {
            (_, Some(size)) => size,
            (Some(heads), None) => d2.checked_div(heads).ok_or_else(misfit)?,
            (None, None) => return Err(misfit()),
        };
        let heads = d2.checked_div(size).unwrap_or(0);
        Ok(Heads { at: b.at, dims: [d0, heads, d1, size], strides: [s0, size as isize * s2, s1, s2] })
    }

    /// Where head `h` of item `b` begins.
    fn head(&self, b: usize, h: usize) -> isize {
        b as isize * self.strides[0] + h as isize * self.strides[1]
    }
}

/// The numbers of a bound attention.
#[derive(Debug, Clone, Copy)]
struct Bindings {
    q: Heads,
    k: Heads,
    v: Heads,
    y: Heads,
    mask: Option<(At, Layout)>,
    /// Elements of scratch for packed keys, packed values, and scores.
    parts: [usize; 3],
    worth: bool,
}

/// A bound attention.
#[derive(Debug, Clone)]
struct Attention {
    heads: usize,
    head_dim: usize,
    kind: MaskKind,
    bool_mask: bool,
    scale: f32,
    bound: Option<Bindings>,
}

impl StepKernel for Attention {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let q = Heads::of(&cx.inputs[0], None, Some(self.head_dim))?;
        let k = Heads::of(&cx.inputs[1], None, Some(self.head_dim))?;
        let v = Heads::of(&cx.inputs[2], Some(k.dims[1]), None)?;
        let y = Heads::of(&cx.outputs[0], Some(self.heads), None)?;
        let ([b, h, sq, d], [kb, kh, sk, kd], [vb, vh, vk, dv]) = (q.dims, k.dims, v.dims);
        let fits = kb == b && vb == b && kd == d && vh == kh && vk == sk && h == self.heads;
        let fits = fits
            && kh != 0
            && h % kh == 0
            && y.dims == [b, h, sq, dv]
            && (q.strides[3] == 1 || d == 1)
            && (y.strides[3] == 1 || dv == 1);
        if !fits {
            return Err(mismatch(format!("attention over {:?}, {:?}, {:?}", q.dims, k.dims, v.dims)));
        }
        let mask = match cx.inputs.get(3) {
            Some(m) => {
                let dims = [b, h, sq, sk];
                let layout = m.layout.broadcast_to(&dims);
                Some((
                    m.at,
                    layout.ok_or_else(|| mismatch(format!("a mask {:?} for scores {dims:?}", m.dims())))?,
                ))
            }
            None => None,
        };
        let size = |k: usize, n: usize| {
            gemm::packed_len(k, n).ok_or_else(|| mismatch("an attention that is too large"))
        };
        let scores =
            sq.min(BLOCK).checked_mul(sk).ok_or_else(|| mismatch("an attention that is too large"))?;
        let parts = [size(d, sk)?, size(sk, dv)?, scores.next_multiple_of(16)];
        let nanos = (b * h * sq) as f64 * sk as f64 * ((d + dv) as f64 / 30.0 + 0.35);
        self.bound = Some(Bindings { q, k, v, y, mask, parts, worth: nanos > WORTH_NANOS });
        Ok(Needs { thread_scratch: parts.iter().sum::<usize>() * 4, shared_scratch: 0, nanos })
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(s) = &self.bound else { return Err(mismatch("a step that was not bound")) };
        let [b, h, sq, _] = s.q.dims;
        let blocks = sq.div_ceil(BLOCK);
        let base = |x: &Heads| cx.shared::<f32>(x.at);
        let operands = [base(&s.q), base(&s.k), base(&s.v), base(&s.y)];
        let mask = s.mask.map(|(at, _)| cx.shared::<u8>(at));
        let isa = cx.isa;
        cx.parallel(s.worth, b * h * blocks, &|range, scratch| {
            let mut packed = None;
            for unit in range {
                let (head, block) = (unit / blocks, unit % blocks);
                // SAFETY: views lie within their buffers, scratch has room for the parts, and each task
                // writes rows of its own.
                unsafe {
                    self.task(
                        s,
                        isa,
                        operands,
                        mask,
                        scratch.cast(),
                        (head / h, head % h, block),
                        &mut packed,
                    )
                }
            }
        });
        Ok(())
    }
}

impl Attention {
    /// One block of queries of one head. `packed` is the key head whose keys and values lie in scratch.
    #[allow(clippy::too_many_arguments)]
    unsafe fn task(
        &self,
        s: &Bindings,
        isa: Isa,
        [q, k, v, y]: [Shared<f32>; 4],
        mask: Option<Shared<u8>>,
        scratch: *mut f32,
        (b, h, block): (usize, usize, usize),
        packed: &mut Option<(usize, usize)>,
    ) {
        let ([_, heads, sq, d], [_, kv_heads, sk, _], dv) = (s.q.dims, s.k.dims, s.v.dims[3]);
        let kv = h / (heads / kv_heads);
        let (keys, values) = (scratch, scratch.wrapping_add(s.parts[0]));
        let scores = values.wrapping_add(s.parts[1]);
        let (first, rows) = (block * BLOCK, BLOCK.min(sq - block * BLOCK));
        // SAFETY: the caller's promise.
        unsafe {
            if *packed != Some((b, kv)) {
                let (from, [_, _, row, column]) = (k.get().wrapping_offset(s.k.head(b, kv)), s.k.strides);
                gemm::pack(from, column, row, d, sk, keys, 0..gemm::panels(sk));
                let (from, [_, _, row, column]) = (v.get().wrapping_offset(s.v.head(b, kv)), s.v.strides);
                gemm::pack(from, row, column, sk, dv, values, 0..gemm::panels(dv));
                *packed = Some((b, kv));
            }
            let row_stride = s.q.strides[2];
            let ptr = q.get().wrapping_offset(s.q.head(b, h) + first as isize * row_stride);
            let to_scores = Gemm {
                m: rows,
                n: sk,
                k: d,
                rows: Strided { ptr, row_stride },
                b: keys,
                c: scores,
                c_stride: sk,
                epilogue: Epilogue { alpha: self.scale, ..Epilogue::NONE },
                next: None,
            };
            to_scores.run(isa, 0..to_scores.tasks(isa));
            for row in 0..rows {
                self.weigh(s, isa, mask, scores.wrapping_add(row * sk), (b, h, first + row));
            }
            let c = y.get().wrapping_offset(s.y.head(b, h) + first as isize * s.y.strides[2]);
            let to_result = Gemm {
                m: rows,
                n: dv,
                k: sk,
                rows: Strided { ptr: scores, row_stride: sk as isize },
                b: values,
                c,
                c_stride: s.y.strides[2] as usize,
                epilogue: Epilogue::NONE,
                next: None,
            };
            to_result.run(isa, 0..to_result.tasks(isa));
        }
    }

    /// Turns the scores of one query into weights.
    unsafe fn weigh(
        &self,
        s: &Bindings,
        isa: Isa,
        mask: Option<Shared<u8>>,
        scores: *mut f32,
        (b, h, query): (usize, usize, usize),
    ) {
        let (sq, sk) = (s.q.dims[2], s.k.dims[2]);
        // SAFETY: the caller's promise: a row of scores, and a mask that broadcasts onto all of them.
        unsafe {
            let row = std::slice::from_raw_parts_mut(scores, sk);
            let visible = match self.kind {
                MaskKind::Causal => (query + 1 + sk).saturating_sub(sq).min(sk),
                _ => sk,
            };
            row[visible..].fill(0.0);
            let row = &mut row[..visible];
            if let (Some(mask), Some((_, layout)), MaskKind::Custom) = (mask, &s.mask, self.kind) {
                let stride = layout.strides();
                let at = b as isize * stride[0] + h as isize * stride[1] + query as isize * stride[2];
                let largest = if stride[3] == 1 && !self.bool_mask {
                    let mask = mask.get().cast::<f32>().wrapping_offset(at);
                    isa.run(AddMask { row: &mut *row, mask })
                } else {
                    apply_mask(row, mask.get(), at, stride[3], self.bool_mask);
                    row.iter().copied().fold(f32::NEG_INFINITY, max_nan)
                };
                if largest == f32::NEG_INFINITY {
                    return row.fill(0.0);
                }
            }
            if row.is_empty() {
                return;
            }
            let (x, y) = (row.as_ptr(), row.as_mut_ptr());
            let columns = row.len();
            rows::softmax(isa, &Softmax { x, y, rows: 1, columns, scale: 1.0, mask: None, log: false });
        }
    }
}

/// Adds a contiguous row of the mask to a row of scores; gives the largest, NaN if any is NaN.
struct AddMask<'a> {
    row: &'a mut [f32],
    mask: *const f32,
}

impl Kernel for AddMask<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let (row, len) = (self.row.as_mut_ptr(), self.row.len());
        let mut acc = s.splat(f32::NEG_INFINITY);
        let whole = len / LANES * LANES;
        let mut i = 0;
        while i < whole {
            // SAFETY: i + LANES ≤ len, which the mask's row is readable for, too.
            unsafe {
                let x = s.add(s.load(row.add(i)), s.load(self.mask.add(i)));
                s.store(row.add(i), x);
                acc = s.max(x, acc);
            }
            i += LANES;
        }
        let mut largest = s.reduce_max(acc);
        for i in whole..len {
            // SAFETY: i < len.
            unsafe {
                *row.add(i) += *self.mask.add(i);
                largest = max_nan(largest, *row.add(i));
            }
        }
        largest
    }
}

/// Adds a row of the mask, or takes out what it does not allow.
///
/// # Safety
/// The mask's row must be readable.
unsafe fn apply_mask(row: &mut [f32], mask: *const u8, at: isize, stride: isize, is_bool: bool) {
    for (j, x) in row.iter_mut().enumerate() {
        let place = at + j as isize * stride;
        // SAFETY: the caller's promise.
        unsafe {
            if is_bool {
                if *mask.wrapping_offset(place) == 0 {
                    *x = f32::NEG_INFINITY;
                }
            } else {
                *x += *mask.cast::<f32>().wrapping_offset(place);
            }
        }
    }
}
