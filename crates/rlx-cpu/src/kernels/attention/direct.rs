//! Attention of a few queries: keys and values are read where they are, once, instead of being packed for the matmul kernel.
//!
//! A decoder that computes one token at a time multiplies one row by a cache of keys and one by a cache of values. Packing them would
//! read and write the whole cache to read it again. Here a score is the dot product of the query with a row of the keys, and the
//! result a weighted sum of rows of the values. Heads of queries that share keys and values read each few rows of them one after the
//! other, while a cache has those. Columns that a mask hides in front of the first key that is seen and behind the
//! last one are not looked at, so a cache with room for more rows costs what its used rows do.

use std::ops::Range;

use rlx_ir::DType;

use super::{Attention, Bindings, Heads, InScratch, Rows, Run};
use crate::gemm::Strided;
use crate::isa::Kernel;
use crate::kernels::Shared;
use crate::kernels::elementwise::halves::{Conversion, convert};
use crate::simd::{LANES, Simd};

/// The most queries of a head for which nothing is packed.
pub(super) const FEW: usize = 4;

/// The most queries, of heads that share their keys, that are computed side by side.
const TOGETHER: usize = 16;

/// Rows of keys or values that all of them read before the next ones: few enough to stay in a cache although they are far apart.
const ROWS: usize = 16;

/// Bytes over which keys may be spread so that all of them stay in a cache anyway, and each query reads all of them at once.
const NEAR: usize = 256 << 10;

/// How many queries of a head and of those that share its keys may be computed side by side.
pub(super) fn together(queries: usize, sharing: usize) -> usize {
    sharing.min(TOGETHER / queries.max(1)).max(1) * queries
}

/// Calls `each` with the rows that queries see, the same few for all queries before the next ones: with the number of the query,
/// the rows from the first one on, and which they are. Of an empty range nothing is read.
///
/// # Safety
/// There must be readable rows from the first to the last that `seen` names; of slices, they must be found, and have whole rows.
unsafe fn side_by_side(
    rows: &Rows<'_>,
    seen: &[Range<usize>],
    at_once: usize,
    mut each: impl FnMut(usize, Strided, Range<usize>),
) {
    let first = seen.iter().filter(|seen| !seen.is_empty()).map(|seen| seen.start).min().unwrap_or(0);
    let all = |start: usize, from: Strided, rows: usize| {
        let end = start + rows;
        for next in (start..end).step_by(at_once) {
            let part = next..end.min(next.saturating_add(at_once));
            for (i, seen) in seen.iter().enumerate() {
                let rows = part.start.max(seen.start)..part.end.min(seen.end);
                if !rows.is_empty() {
                    let ptr = from.ptr.wrapping_offset((rows.start - start) as isize * from.row_stride);
                    each(i, Strided { ptr, ..from }, rows);
                }
            }
        }
    };
    // SAFETY: the rows from the first to the last that `seen` names are there, and found, as the caller promises.
    unsafe { rows.runs(first..end_of(seen), all) }
}

/// The number behind that of the last row that any query sees.
fn end_of(seen: &[Range<usize>]) -> usize {
    seen.iter().map(|seen| seen.end).max().unwrap_or(0)
}

impl Attention {
    /// All queries of some heads that share their keys, with keys and values where they are.
    ///
    /// # Safety
    /// The bindings must be those of this run: queries, keys, values and mask readable for their dimensions, `y` and the scratch writable,
    /// and no other thread at these heads, as many as [`together`] allows.
    pub(super) unsafe fn few(
        &self,
        s: &Bindings,
        run: &Run,
        scratch: *mut f32,
        (b, heads): (usize, Range<usize>),
        widened: &mut Option<InScratch>,
    ) {
        let ([_, all, sq, d], [_, kv_heads, sk, _], dv) = (s.q.dims, s.k.dims, s.v.dims[3]);
        let (kv, isa, count) = (heads.start / (all / kv_heads), run.isa, heads.len() * sq);
        let [_, _, scores, wide, turned, wide_row, ..] = s.scratch(scratch);
        let at = |p: Shared<u8>, of: &Heads, i: usize| self.row_of(p, of, (b, heads.start + i / sq, i % sq));
        let narrow = self.dtype != DType::F32;
        // SAFETY: the caller's promise: rows of keys and values are contiguous, and scratch has room for all of them.
        unsafe {
            let mut seen = [const { 0..0 }; TOGETHER];
            let mut queries = [std::ptr::null::<f32>(); TOGETHER];
            for i in 0..count {
                seen[i] = self.seen(s, run.mask, (b, heads.start + i / sq, i % sq));
                queries[i] =
                    self.rows(isa, at(run.q, &s.q, i), 0, [1, d], wide.wrapping_add(i * d.max(dv))).ptr;
            }
            let (seen, queries) = (&seen[..count], &queries[..count]);
            let used = end_of(seen);
            // Threads that share heads each widen what they need.
            let held = narrow && widened.as_ref().is_some_and(|w| w.holds((b, kv), used));
            let keys = self.head(s, run, 0, (b, kv), used, turned, held);
            let values = self.head(s, run, 1, (b, kv), used, turned.wrapping_add(sk * d), held);
            if !held {
                *widened = Some(InScratch { head: (b, kv), rows: used });
            }
            let spread = used.saturating_mul(s.k.strides[2].unsigned_abs()).saturating_mul(size_of::<f32>());
            let at_once = if count > 1 && spread > NEAR { ROWS } else { usize::MAX };
            side_by_side(&keys, seen, at_once, |i, keys, rows| {
                isa.run(Scores {
                    query: queries[i],
                    keys: keys.ptr,
                    stride: keys.row_stride,
                    rows: rows.len(),
                    d,
                    scale: self.scale,
                    out: scores.wrapping_add(i * sk + rows.start),
                });
            });
            for (i, seen) in seen.iter().enumerate() {
                let place = (b, heads.start + i / sq, i % sq);
                self.weigh(s, run, scores.wrapping_add(i * sk), wide_row, place, seen.clone());
            }
            // The queries are not needed any more: widened results take their place.
            let out = |i: usize| {
                if narrow { wide.wrapping_add(i * d.max(dv)) } else { at(run.y, &s.y, i).cast::<f32>() }
            };
            side_by_side(&values, seen, at_once, |i, values, rows| {
                isa.run(Weighted {
                    weights: scores.wrapping_add(i * sk + rows.start),
                    values: values.ptr,
                    stride: values.row_stride,
                    rows: rows.len(),
                    width: dv,
                    add: rows.start > seen[i].start,
                    out: out(i),
                });
            });
            for (i, seen) in seen.iter().enumerate() {
                if seen.is_empty() {
                    std::slice::from_raw_parts_mut(out(i), dv).fill(self.nothing(0));
                }
                if narrow {
                    convert(isa, Conversion::Narrow, self.dtype, out(i).cast(), at(run.y, &s.y, i), dv);
                }
            }
        }
    }
}

/// Scores of one query: `scale · q·kⱼ` for rows of keys.
pub(super) struct Scores {
    /// `d` contiguous elements.
    pub query: *const f32,
    /// The first of `rows` keys, each of `d` contiguous elements.
    pub keys: *const f32,
    pub stride: isize,
    pub rows: usize,
    pub d: usize,
    pub scale: f32,
    /// `rows` elements.
    pub out: *mut f32,
}

impl Scores {
    /// The score of one key.
    ///
    /// # Safety
    /// The key must be readable for `d` elements.
    #[inline(always)]
    unsafe fn score<S: Simd>(&self, s: S, key: *const f32) -> f32 {
        let whole = self.d / LANES * LANES;
        let rest = self.d - whole;
        // Two chains of sums: the elements of a key are too few for more.
        let mut sums = [s.zero(), s.zero()];
        for i in (0..whole).step_by(LANES) {
            let chain = &mut sums[i / LANES % 2];
            // SAFETY: the caller's promise; i + LANES ≤ d.
            *chain = unsafe { s.mul_add(s.load(self.query.add(i)), s.load(key.add(i)), *chain) };
        }
        if rest > 0 {
            // SAFETY: the caller's promise; what is behind d is not touched.
            let (q, k) = unsafe { (s.load_n(self.query.add(whole), rest), s.load_n(key.add(whole), rest)) };
            sums[1] = s.mul_add(q, k, sums[1]);
        }
        s.sum(s.add(sums[0], sums[1])) * self.scale
    }
}

impl Kernel for Scores {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in 0..self.rows {
            // SAFETY: the caller's promise: row < rows.
            unsafe { *self.out.add(row) = self.score(s, self.keys.offset(row as isize * self.stride)) };
        }
    }
}

/// The sum of rows of values, each times its weight: one chain for each element, in the order of the rows.
pub(super) struct Weighted {
    /// `rows` elements.
    pub weights: *const f32,
    /// The first of `rows` values, each of `width` contiguous elements.
    pub values: *const f32,
    pub stride: isize,
    pub rows: usize,
    pub width: usize,
    /// Whether the sums go on from what is in `out`.
    pub add: bool,
    /// `width` elements.
    pub out: *mut f32,
}

/// Vectors of a result that are summed together.
const VECTORS: usize = 4;

impl Kernel for Weighted {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut from = 0;
        while from + VECTORS * LANES <= self.width {
            let mut sums = [s.zero(); VECTORS];
            if self.add {
                for (i, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: the caller's promise; all vectors end within the width.
                    *sum = unsafe { s.load(self.out.add(from + i * LANES)) };
                }
            }
            for row in 0..self.rows {
                // SAFETY: the caller's promise: row < rows, and all vectors end within the width.
                unsafe {
                    let weight = s.splat(*self.weights.add(row));
                    let value = self.values.offset(row as isize * self.stride).add(from);
                    for (i, sum) in sums.iter_mut().enumerate() {
                        *sum = s.mul_add(weight, s.load(value.add(i * LANES)), *sum);
                    }
                }
            }
            for (i, &sum) in sums.iter().enumerate() {
                // SAFETY: as above.
                unsafe { s.store(self.out.add(from + i * LANES), sum) };
            }
            from += VECTORS * LANES;
        }
        while from < self.width {
            let n = LANES.min(self.width - from);
            // SAFETY: as above; n elements are left of the width.
            let mut sum = if self.add { unsafe { s.load_n(self.out.add(from), n) } } else { s.zero() };
            for row in 0..self.rows {
                // SAFETY: as above; n elements are left of the width.
                unsafe {
                    let value = self.values.offset(row as isize * self.stride).add(from);
                    sum = s.mul_add(s.splat(*self.weights.add(row)), s.load_n(value, n), sum);
                }
            }
            // SAFETY: as above.
            unsafe { s.store_n(self.out.add(from), n, sum) };
            from += n;
        }
    }
}
