//! Attention: for each head and block of queries, scores, softmax and the weighted sum of the values.
//!
//! A task packs the keys and values of its head into its thread's scratch and multiplies on the packed
//! kernel; the scores of a block of queries stay in the cache between the two matmuls. Operands of 16-bit floats
//! are widened as they are packed, and everything within is f32: scores and weights are not rounded. Heads are found
//! through strides, so `[B, S, H·D]` and `[B, H, S, D]` are the same to it. A query that may see nothing
//! gives 0. A few queries, as of a decoder with a cache, read keys and values where they are ([`direct`]).

mod direct;

use std::ops::Range;

use rlx_ir::op::{MaskKind, Unseen};
use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::elementwise::halves::{Conversion, convert, widen_strided};
use super::matmul::is_packed;
use super::{BindCx, CompileCx, Needs, RunCx, Shared, StepKernel, WORTH_NANOS, mismatch, no_kernel};
use crate::gemm::{self, Epilogue, Gemm, Strided, TileSizes};
use crate::isa::{Isa, Kernel};
use crate::program::layout::{At, Bound, Layout};
use crate::rows::{self, Softmax};
use crate::simd::{LANES, Simd};

/// Queries of a task.
const BLOCK: usize = 128;

/// Whether operands are of f32, f16 or bf16.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let other = node.inputs[..3].iter().map(|&id| graph.shape(id).dtype()).find(|&d| !is_packed(d));
    match other {
        None => Claim::Native,
        Some(dtype) => Claim::No(format!("there is no attention kernel for {dtype}")),
    }
}

/// The kernel of an attention.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let Op::Attention { num_heads: heads, head_dim, mask: kind, scale, unseen } = cx.node().op else {
        return Err(no_kernel(&cx.node().op, "it is no attention"));
    };
    let bool_mask = cx.step.inputs.get(3).is_some_and(|m| m.dtype == DType::Bool);
    let scale = scale.unwrap_or((1.0 / (head_dim as f64).sqrt()) as f32);
    let dtype = cx.step.inputs[0].dtype;
    Ok(Box::new(Attention { dtype, heads, head_dim, kind, bool_mask, scale, unseen, bound: None }))
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
        let shape_mismatch = || mismatch(format!("attention over {d:?}"));
        let (&[d0, d1, d2], &[s0, s1, s2]) = (d, s) else { return Err(shape_mismatch()) };
        let size = match (heads, size) {
            (_, Some(size)) => size,
            (Some(heads), None) => d2.checked_div(heads).ok_or_else(shape_mismatch)?,
            (None, None) => return Err(shape_mismatch()),
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
    /// Elements of scratch for packed keys, packed values, scores, and what 16-bit operands are widened into:
    /// queries, keys or values, the mask's row.
    parts: [usize; 6],
    /// Whether keys and values are read where they are.
    direct: bool,
    worth: bool,
}

/// A bound attention.
#[derive(Debug, Clone)]
struct Attention {
    dtype: DType,
    heads: usize,
    head_dim: usize,
    kind: MaskKind,
    bool_mask: bool,
    scale: f32,
    unseen: Unseen,
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
        let wide = |n: usize| if self.dtype == DType::F32 { 0 } else { n.next_multiple_of(16) };
        let block = sq.min(BLOCK);
        let direct = sq <= direct::FEW && (k.strides[3] == 1 || d == 1) && (v.strides[3] == 1 || dv == 1);
        let packed = |k: usize, n: usize| if direct { Ok(0) } else { size(k, n) };
        let parts = [
            packed(d, sk)?,
            packed(sk, dv)?,
            scores.next_multiple_of(16),
            wide(block * d.max(dv)),
            // Direct, keys and values are there at one time.
            wide(sk * if direct { d + dv } else { d.max(dv) }),
            sk.next_multiple_of(16),
        ];
        let nanos = (b * h * sq) as f64 * sk as f64 * ((d + dv) as f64 / 30.0 + 0.35);
        self.bound = Some(Bindings { q, k, v, y, mask, parts, direct, worth: nanos > WORTH_NANOS });
        Ok(Needs { thread_scratch: parts.iter().sum::<usize>() * 4, shared_scratch: 0, nanos })
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(s) = &self.bound else { return Err(mismatch("a step that was not bound")) };
        let [b, h, sq, _] = s.q.dims;
        let blocks = sq.div_ceil(BLOCK);
        let base = |x: &Heads| cx.shared::<u8>(x.at);
        let operands = [base(&s.q), base(&s.k), base(&s.v), base(&s.y)];
        let mask = s.mask.map(|(at, _)| cx.shared::<u8>(at));
        let isa = cx.isa;
        cx.parallel(s.worth, b * h * blocks, &|range, scratch| {
            let mut packed = None;
            for unit in range {
                let (head, block) = (unit / blocks, unit % blocks);
                // SAFETY: views are within their buffers, scratch has room for the parts, and each task
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
    /// One block of queries of one head. `packed` is the key head whose keys and values are in scratch.
    #[allow(clippy::too_many_arguments)]
    unsafe fn task(
        &self,
        s: &Bindings,
        isa: Isa,
        [q, k, v, y]: [Shared<u8>; 4],
        mask: Option<Shared<u8>>,
        scratch: *mut f32,
        (b, h, block): (usize, usize, usize),
        packed: &mut Option<(usize, usize)>,
    ) {
        let ([_, heads, sq, d], [_, kv_heads, sk, _], dv) = (s.q.dims, s.k.dims, s.v.dims[3]);
        let kv = h / (heads / kv_heads);
        let (keys, values) = (scratch, scratch.wrapping_add(s.parts[0]));
        let scores = values.wrapping_add(s.parts[1]);
        let wide = scores.wrapping_add(s.parts[2]);
        let wide_row = wide.wrapping_add(s.parts[3] + s.parts[4]);
        let (first, rows) = (block * BLOCK, BLOCK.min(sq - block * BLOCK));
        let size = self.dtype.size_bytes() as isize;
        let at = |p: Shared<u8>, h: &Heads, head: usize, row: usize| {
            p.get().wrapping_offset((h.head(b, head) + row as isize * h.strides[2]) * size)
        };
        // SAFETY: the caller's promise.
        unsafe {
            if s.direct {
                let queries = self.rows(isa, at(q, &s.q, h, 0), s.q.strides[2], [sq, d], wide);
                let heads = [at(k, &s.k, kv, 0).cast_const(), at(v, &s.v, kv, 0).cast_const()];
                let y = at(y, &s.y, h, 0);
                return self.few(s, isa, queries, heads, y, mask, [scores, wide, wide_row], (b, h));
            }
            if *packed != Some((b, kv)) {
                let turned = wide.wrapping_add(s.parts[3]);
                let [_, _, row, column] = s.k.strides;
                self.pack(isa, at(k, &s.k, kv, 0), [column, row], [d, sk], keys, turned);
                let [_, _, row, column] = s.v.strides;
                self.pack(isa, at(v, &s.v, kv, 0), [row, column], [sk, dv], values, turned);
                *packed = Some((b, kv));
            }
            let queries = self.rows(isa, at(q, &s.q, h, first), s.q.strides[2], [rows, d], wide);
            let to_scores = Gemm {
                m: rows,
                n: sk,
                k: d,
                rows: queries,
                b: keys,
                c: scores,
                c_stride: sk,
                epilogue: Epilogue { alpha: self.scale, ..Epilogue::NONE },
                tile_sizes: TileSizes::DEFAULT,
                next: None,
            };
            to_scores.run(isa, 0..to_scores.tasks(isa));
            for row in 0..rows {
                let (place, row) = ((b, h, first + row), scores.wrapping_add(row * sk));
                let visible = self.visible(s, place.2);
                std::slice::from_raw_parts_mut(row, sk)[visible..].fill(self.nothing(visible));
                self.weigh(s, isa, mask, row, wide_row, place, 0..visible);
            }
            let c = at(y, &s.y, h, first);
            let narrow = self.dtype != DType::F32;
            let (out, c_stride) = if narrow { (wide, dv) } else { (c.cast(), s.y.strides[2] as usize) };
            let to_result = Gemm {
                m: rows,
                n: dv,
                k: sk,
                rows: Strided { ptr: scores, row_stride: sk as isize },
                b: values,
                c: out,
                c_stride,
                epilogue: Epilogue::NONE,
                tile_sizes: TileSizes::DEFAULT,
                next: None,
            };
            to_result.run(isa, 0..to_result.tasks(isa));
            for row in 0..if narrow { rows } else { 0 } {
                let to = c.wrapping_offset(row as isize * s.y.strides[2] * size);
                convert(isa, Conversion::Narrow, self.dtype, wide.wrapping_add(row * dv).cast(), to, dv);
            }
        }
    }

    /// Packs the `k`×`n` matrix at `from`, of these row and column strides, as f32. `turned` has room for it.
    unsafe fn pack(
        &self,
        isa: Isa,
        from: *const u8,
        [row, column]: [isize; 2],
        [k, n]: [usize; 2],
        to: *mut f32,
        turned: *mut f32,
    ) {
        let panels = 0..gemm::panels(n);
        // SAFETY: the caller's promise; one of the two strides is that of neighbours where it can be.
        unsafe {
            if self.dtype == DType::F32 {
                return gemm::pack(from.cast::<f32>(), row, column, k, n, to, panels);
            }
            let (by_column, lines, len) = if row == 1 { (true, n, k) } else { (false, k, n) };
            let (step, stride) = if by_column { (column, row) } else { (row, column) };
            for line in 0..lines {
                let source = from.wrapping_offset(line as isize * step * self.dtype.size_bytes() as isize);
                widen_strided(isa, self.dtype, source, stride, turned.wrapping_add(line * len), len);
            }
            let (row, column) = if by_column { (1, len as isize) } else { (len as isize, 1) };
            gemm::pack(turned.cast_const(), row, column, k, n, to, panels);
        }
    }

    /// Rows of f32: where they are, or widened into `wide`.
    unsafe fn rows(
        &self,
        isa: Isa,
        from: *const u8,
        row_stride: isize,
        [rows, columns]: [usize; 2],
        wide: *mut f32,
    ) -> Strided {
        if self.dtype == DType::F32 {
            return Strided { ptr: from.cast(), row_stride };
        }
        for row in 0..rows {
            let source = from.wrapping_offset(row as isize * row_stride * self.dtype.size_bytes() as isize);
            let to = wide.wrapping_add(row * columns);
            // SAFETY: the caller's promise.
            unsafe { convert(isa, Conversion::Widen, self.dtype, source, to.cast(), columns) }
        }
        Strided { ptr: wide, row_stride: columns as isize }
    }

    /// All queries of a head, with the head's keys and values where they are.
    ///
    /// # Safety
    /// The bindings must be those of this run: queries, keys, values and mask readable for their dimensions, `y` and the scratch writable,
    /// and no other thread at this head.
    #[allow(clippy::too_many_arguments)]
    unsafe fn few(
        &self,
        s: &Bindings,
        isa: Isa,
        queries: Strided,
        [k, v]: [*const u8; 2],
        y: *mut u8,
        mask: Option<Shared<u8>>,
        [scores, wide, wide_row]: [*mut f32; 3],
        (b, h): (usize, usize),
    ) {
        let ([_, _, sq, d], sk, dv) = (s.q.dims, s.k.dims[2], s.v.dims[3]);
        let size = self.dtype.size_bytes() as isize;
        let turned = wide.wrapping_add(s.parts[3]);
        // SAFETY: the caller's promise: rows of keys and values are contiguous, and scratch has room for all of them.
        unsafe {
            let used = (0..sq).map(|query| self.seen(s, mask, (b, h, query)).end).max().unwrap_or(0);
            let keys = self.rows(isa, k, s.k.strides[2], [used, d], turned);
            let values = self.rows(isa, v, s.v.strides[2], [used, dv], turned.wrapping_add(sk * d));
            // The last query first: a widened result is written where the queries from its own on were.
            for query in (0..sq).rev() {
                let (place, row) = ((b, h, query), scores.wrapping_add(query * sk));
                let seen = self.seen(s, mask, place);
                let (from, rows) = (seen.start as isize, seen.len());
                isa.run(direct::Scores {
                    query: queries.ptr.wrapping_offset(query as isize * queries.row_stride),
                    keys: keys.ptr.wrapping_offset(from * keys.row_stride),
                    stride: keys.row_stride,
                    rows,
                    d,
                    scale: self.scale,
                    out: row.wrapping_add(seen.start),
                });
                self.weigh(s, isa, mask, row, wide_row, place, seen.clone());
                let to = y.wrapping_offset(query as isize * s.y.strides[2] * size);
                let narrow = self.dtype != DType::F32;
                let out = if narrow { wide.wrapping_add(query * dv.max(d)) } else { to.cast() };
                isa.run(direct::Weighted {
                    weights: row.wrapping_add(seen.start),
                    values: values.ptr.wrapping_offset(from * values.row_stride),
                    stride: values.row_stride,
                    rows,
                    width: dv,
                    out,
                });
                if seen.is_empty() {
                    std::slice::from_raw_parts_mut(out, dv).fill(self.nothing(0));
                }
                if narrow {
                    convert(isa, Conversion::Narrow, self.dtype, out.cast(), to, dv);
                }
            }
        }
    }

    /// How many keys a query may see, before any mask of its own.
    fn visible(&self, s: &Bindings, query: usize) -> usize {
        let (sq, sk) = (s.q.dims[2], s.k.dims[2]);
        match self.kind {
            MaskKind::Causal => (query + 1 + sk).saturating_sub(sq).min(sk),
            _ => sk,
        }
    }

    /// The weight of a key that is not seen by a query that sees `visible` keys.
    fn nothing(&self, visible: usize) -> f32 {
        if self.unseen == Unseen::Nan && visible == 0 { f32::NAN } else { 0.0 }
    }

    /// Where the keys are that a query sees.
    ///
    /// # Safety
    /// The mask must be readable.
    unsafe fn seen(
        &self,
        s: &Bindings,
        mask: Option<Shared<u8>>,
        place: (usize, usize, usize),
    ) -> Range<usize> {
        let visible = self.visible(s, place.2);
        match self.mask_row(s, mask, place) {
            // SAFETY: the caller's promise: the mask broadcasts onto all scores.
            Some(row) => unsafe { row.seen(visible) },
            None => 0..visible,
        }
    }

    /// The mask of one query.
    fn mask_row(
        &self,
        s: &Bindings,
        mask: Option<Shared<u8>>,
        (b, h, query): (usize, usize, usize),
    ) -> Option<direct::MaskRow> {
        let (Some(mask), Some((_, layout)), MaskKind::Custom) = (mask, &s.mask, self.kind) else {
            return None;
        };
        let stride = layout.strides();
        let at = b as isize * stride[0] + h as isize * stride[1] + query as isize * stride[2];
        let dtype = if self.bool_mask { DType::Bool } else { self.dtype };
        let first = mask.get().wrapping_offset(at * dtype.size_bytes() as isize).cast_const();
        Some(direct::MaskRow { first, stride: stride[3], dtype })
    }

    /// Turns the scores of one query into weights, in these columns.
    #[allow(clippy::too_many_arguments)]
    unsafe fn weigh(
        &self,
        s: &Bindings,
        isa: Isa,
        mask: Option<Shared<u8>>,
        scores: *mut f32,
        wide: *mut f32,
        place: (usize, usize, usize),
        columns: Range<usize>,
    ) {
        // SAFETY: the caller's promise: a row of scores, and a mask that broadcasts onto all of them.
        unsafe {
            let row = std::slice::from_raw_parts_mut(scores.wrapping_add(columns.start), columns.len());
            if let Some(mask) = self.mask_row(s, mask, place) {
                let size = mask.dtype.size_bytes() as isize;
                let from = mask.first.wrapping_offset(columns.start as isize * mask.stride * size);
                if self.bool_mask {
                    apply_mask(row, from, mask.stride);
                } else {
                    let direct = self.dtype == DType::F32 && mask.stride == 1;
                    if !direct {
                        widen_strided(isa, self.dtype, from, mask.stride, wide, row.len());
                    }
                    let mask = if direct { from.cast::<f32>() } else { wide.cast_const() };
                    isa.run(AddMask { row: &mut *row, mask });
                }
            }
            if row.is_empty() {
                return;
            }
            // One pointer for both: a second borrow of the row would end the first.
            let (columns, y) = (row.len(), row.as_mut_ptr());
            let x = y.cast_const();
            let largest =
                rows::softmax(isa, &Softmax { x, y, rows: 1, columns, scale: 1.0, mask: None, log: false });
            // A weight is NaN where all of the row's are.
            let zero = match self.unseen {
                Unseen::Zero => largest == f32::NEG_INFINITY,
                Unseen::Guard => (*y).is_nan(),
                _ => false,
            };
            if zero {
                std::slice::from_raw_parts_mut(y, columns).fill(0.0);
            }
        }
    }
}

/// Adds a contiguous row of the mask to a row of scores.
struct AddMask<'a> {
    row: &'a mut [f32],
    mask: *const f32,
}

impl Kernel for AddMask<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (row, len) = (self.row.as_mut_ptr(), self.row.len());
        let whole = len / LANES * LANES;
        for i in (0..whole).step_by(LANES) {
            // SAFETY: i + LANES ≤ len, which the mask's row is readable for, too.
            unsafe { s.store(row.add(i), s.add(s.load(row.add(i)), s.load(self.mask.add(i)))) };
        }
        for i in whole..len {
            // SAFETY: i < len.
            unsafe { *row.add(i) += *self.mask.add(i) };
        }
    }
}

/// Takes out what a row of a mask of bools does not allow.
///
/// # Safety
/// The mask's row must be readable.
unsafe fn apply_mask(row: &mut [f32], mask: *const u8, stride: isize) {
    for (j, x) in row.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        if unsafe { *mask.wrapping_offset(j as isize * stride) } == 0 {
            *x = f32::NEG_INFINITY;
        }
    }
}
