//! Streaming attention: softmax(scale · Q·Kᵀ + mask) · V without the matrix of scores.
//!
//! A task is one block of queries of one head of one batch element. It goes through the keys in blocks,
//! keeping for each query the largest score so far, the sum of exponentials and the weighted sum of
//! values; a block with a larger score rescales what came before ("online softmax"). Both products are
//! packed [`gemm`](crate::gemm)s. Block sizes are constants, so results do not depend on threads.
//!
//! Queries with no allowed key give NaN, as the formula does.

use std::ops::Range;

use crate::gemm::{self, BinaryOp, Combine, Epilogue, Gemm, PANEL, Strided};
use crate::isa::{Isa, Kernel};
use crate::math;
use crate::simd::{LANES, Simd, max_nan};

/// Queries of a task.
const QUERIES: usize = 64;

/// Keys of a block: the block of scores stays in the second-level cache.
const KEYS: usize = 8 * PANEL;

/// A tensor `[batch, head, row, column]` by its first element and strides; columns are contiguous.
#[derive(Debug, Clone, Copy)]
pub struct Operand {
    /// The first element.
    pub ptr: *const f32,
    /// Elements from one batch element to the next.
    pub batch: isize,
    /// Elements from one head to the next.
    pub head: isize,
    /// Elements from one row to the next.
    pub row: isize,
}

impl Operand {
    fn at(&self, batch: usize, head: usize, row: usize) -> *const f32 {
        let offset = batch as isize * self.batch + head as isize * self.head + row as isize * self.row;
        self.ptr.wrapping_offset(offset)
    }
}

/// One attention; see the [module](self).
#[derive(Debug, Clone, Copy)]
pub struct Attention {
    /// Batch elements.
    pub batch: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Query heads that share one head of keys and values.
    pub group: usize,
    /// Number of queries.
    pub queries: usize,
    /// Number of keys and values.
    pub keys: usize,
    /// Elements of a query and of a key.
    pub depth: usize,
    /// Elements of a value.
    pub value_depth: usize,
    /// `[batch, heads, queries, depth]`.
    pub q: Operand,
    /// `[batch, heads / group, keys, depth]`.
    pub k: Operand,
    /// `[batch, heads / group, keys, value_depth]`.
    pub v: Operand,
    /// `[batch, heads, queries, keys]`, added to the scaled scores; strides may be 0.
    pub mask: Option<Operand>,
    /// Query i may see the keys `..= i + offset` only.
    pub causal: Option<isize>,
    /// The factor of the scores.
    pub scale: f32,
    /// The result, `[batch, heads, queries, value_depth]`; written through.
    pub out: Operand,
}

// SAFETY: plain addresses; `run`, which uses them, is unsafe and says what must hold across threads.
unsafe impl Send for Attention {}
// SAFETY: as above.
unsafe impl Sync for Attention {}

/// Where a task's intermediate results lie within its scratch memory.
struct Scratch {
    keys: *mut f32,
    values: *mut f32,
    scores: *mut f32,
    sums: *mut f32,
    state: *mut f32,
}

impl Attention {
    /// How many tasks there are: a function of the shape only.
    pub fn tasks(&self) -> usize {
        self.batch * self.heads * self.queries.div_ceil(QUERIES)
    }

    /// f32 of scratch that each thread needs; `None` if that overflows.
    pub fn scratch_len(&self) -> Option<usize> {
        let (k, v, s, o) = self.scratch_parts()?;
        k.checked_add(v)?.checked_add(s)?.checked_add(o)?.checked_add(2 * QUERIES)
    }

    fn scratch_parts(&self) -> Option<(usize, usize, usize, usize)> {
        let keys = self.keys.min(KEYS);
        let k = gemm::packed_len(self.depth, keys)?;
        let v = gemm::packed_len(keys, self.value_depth)?;
        Some((k, v, QUERIES * KEYS, QUERIES.checked_mul(self.value_depth)?))
    }

    /// Computes a range of the tasks.
    ///
    /// # Safety
    /// The operands must be readable and `out` writable for their extents, `out` must overlap nothing, and
    /// `scratch` must be this thread's alone and hold [`scratch_len`](Self::scratch_len) elements.
    pub unsafe fn run(&self, isa: Isa, tasks: Range<usize>, scratch: *mut f32) {
        let Some((k, v, s, o)) = self.scratch_parts() else { return };
        let scratch = Scratch {
            keys: scratch,
            values: scratch.wrapping_add(k),
            scores: scratch.wrapping_add(k + v),
            sums: scratch.wrapping_add(k + v + s),
            state: scratch.wrapping_add(k + v + s + o),
        };
        let blocks = self.queries.div_ceil(QUERIES);
        for task in tasks {
            let (head, block) = (task / blocks, task % blocks);
            let first = block * QUERIES;
            let rows = first..(first + QUERIES).min(self.queries);
            // SAFETY: the caller's promises.
            unsafe { self.task(isa, head / self.heads, head % self.heads, rows, &scratch) }
        }
    }

    /// Keys that any query of these rows may see.
    fn visible(&self, last_row: usize) -> usize {
        match self.causal {
            None => self.keys,
            Some(offset) => {
                let end = (last_row as isize).saturating_add(offset).saturating_add(1).max(0);
                self.keys.min(end as usize)
            }
        }
    }

    unsafe fn task(&self, isa: Isa, batch: usize, head: usize, rows: Range<usize>, scratch: &Scratch) {
        let count = rows.len();
        // SAFETY: `run`'s promises; all blocks lie within the operands and the scratch.
        unsafe {
            for i in 0..QUERIES {
                *scratch.state.add(i) = f32::NEG_INFINITY;
                *scratch.state.add(QUERIES + i) = 0.0;
            }
            std::ptr::write_bytes(scratch.sums, 0, count * self.value_depth);
            let visible = self.visible(rows.end - 1);
            for j0 in (0..visible).step_by(KEYS) {
                let keys = j0..(j0 + KEYS).min(visible);
                self.scores(isa, batch, head, rows.start, count, keys.clone(), scratch);
                isa.run(Update { of: self, batch, head, rows: rows.clone(), keys: keys.clone(), scratch });
                self.values(isa, batch, head, count, keys, scratch);
            }
            isa.run(Finish { of: self, batch, head, rows, scratch });
        }
    }

    /// scores = scale · Q · Kᵀ for a block of keys.
    #[allow(clippy::too_many_arguments)]
    unsafe fn scores(
        &self,
        isa: Isa,
        batch: usize,
        head: usize,
        row: usize,
        count: usize,
        keys: Range<usize>,
        scratch: &Scratch,
    ) {
        let n = keys.len();
        let k = self.k.at(batch, head / self.group, keys.start);
        let rows = Strided { ptr: self.q.at(batch, head, row), row_stride: self.q.row };
        // SAFETY: `run`'s promises.
        unsafe {
            gemm::pack(k, 1, self.k.row, self.depth, n, scratch.keys, 0..gemm::panels(n));
            let epilogue = Epilogue { alpha: self.scale, ..Epilogue::NONE };
            let (m, k, b, c) = (count, self.depth, scratch.keys.cast_const(), scratch.scores);
            let g = Gemm { m, n, k, rows, b, c, c_stride: KEYS, epilogue, next: None };
            g.run(isa, 0..g.tasks(isa));
        }
    }

    /// sums += weights · V for a block of keys.
    unsafe fn values(
        &self,
        isa: Isa,
        batch: usize,
        head: usize,
        count: usize,
        keys: Range<usize>,
        scratch: &Scratch,
    ) {
        let (k, n) = (keys.len(), self.value_depth);
        let v = self.v.at(batch, head / self.group, keys.start);
        let rows = Strided { ptr: scratch.scores, row_stride: KEYS as isize };
        // SAFETY: `run`'s promises.
        unsafe {
            gemm::pack(v, self.v.row, 1, k, n, scratch.values, 0..gemm::panels(n));
            let combine = Combine { ptr: scratch.sums, row_stride: n, op: BinaryOp::Add, after: false };
            let epilogue = Epilogue { combine: Some(combine), ..Epilogue::NONE };
            let (b, c) = (scratch.values.cast_const(), scratch.sums);
            let g = Gemm { m: count, n, k, rows, b, c, c_stride: n, epilogue, next: None };
            g.run(isa, 0..g.tasks(isa));
        }
    }
}

/// Turns a block of scores into weights, and rescales what came before where a larger score appears.
struct Update<'a> {
    of: &'a Attention,
    batch: usize,
    head: usize,
    rows: Range<usize>,
    keys: Range<usize>,
    scratch: &'a Scratch,
}

impl Kernel for Update<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.keys.len();
        for (i, row) in self.rows.clone().enumerate() {
            // SAFETY: `Attention::run`'s promises.
            unsafe {
                let scores = self.scratch.scores.add(i * KEYS);
                let (top, total) = (self.scratch.state.add(i), self.scratch.state.add(QUERIES + i));
                let mask = self.of.mask.map(|m| m.at(self.batch, self.head, row).add(self.keys.start));
                let allowed = self.of.visible(row).saturating_sub(self.keys.start).min(n);
                let max = max_nan(*top, masked_max(s, scores, mask, n, allowed));
                // While nothing is allowed, any finite shift keeps the weights at zero.
                let shift = if max == f32::NEG_INFINITY { 0.0 } else { max };
                let sum = weights(s, scores, n, shift);
                let factor = s.to_array(math::exp(s, s.splat(*top - shift)))[0];
                *total = *total * factor + sum;
                *top = max;
                if factor != 1.0 {
                    let d = self.of.value_depth;
                    scale(s, self.scratch.sums.add(i * d), self.scratch.sums.add(i * d), d, factor);
                }
            }
        }
    }
}

/// Adds the mask, forbids the keys from `allowed` on, and returns the largest score.
#[inline(always)]
unsafe fn masked_max<S: Simd>(s: S, x: *mut f32, mask: Option<*const f32>, n: usize, allowed: usize) -> f32 {
    let mut max = s.splat(f32::NEG_INFINITY);
    let mut j = 0;
    while j < n {
        let lanes = (n - j).min(LANES);
        // SAFETY: the caller's promise; j + lanes ≤ n.
        unsafe {
            let mut v = s.load_upto(x.add(j), lanes);
            if let Some(m) = mask {
                v = s.add(v, s.load_upto(m.add(j), lanes));
            }
            let keep = allowed.saturating_sub(j).min(lanes);
            if keep < LANES {
                v = crate::rows::fill(s, v, keep, f32::NEG_INFINITY);
            }
            s.store_upto(x.add(j), lanes, v);
            max = s.max(v, max);
        }
        j += lanes;
    }
    s.reduce_max(max)
}

/// `x = e^(x − shift)`; returns the sum.
#[inline(always)]
unsafe fn weights<S: Simd>(s: S, x: *mut f32, n: usize, shift: f32) -> f32 {
    let shift = s.splat(shift);
    let mut sum = s.zero();
    let mut j = 0;
    while j < n {
        let lanes = (n - j).min(LANES);
        // SAFETY: the caller's promise; j + lanes ≤ n.
        unsafe {
            let mut e = math::exp(s, s.sub(s.load_upto(x.add(j), lanes), shift));
            s.store_upto(x.add(j), lanes, e);
            if lanes < LANES {
                e = crate::rows::fill(s, e, lanes, 0.0);
            }
            sum = s.add(sum, e);
        }
        j += lanes;
    }
    s.sum(sum)
}

/// `dst = src · factor`.
#[inline(always)]
unsafe fn scale<S: Simd>(s: S, src: *const f32, dst: *mut f32, n: usize, factor: f32) {
    let factor = s.splat(factor);
    let mut j = 0;
    while j < n {
        let lanes = (n - j).min(LANES);
        // SAFETY: the caller's promise; j + lanes ≤ n.
        unsafe { s.store_upto(dst.add(j), lanes, s.mul(s.load_upto(src.add(j), lanes), factor)) };
        j += lanes;
    }
}

/// Divides by the sum of the weights and writes the result.
struct Finish<'a> {
    of: &'a Attention,
    batch: usize,
    head: usize,
    rows: Range<usize>,
    scratch: &'a Scratch,
}

impl Kernel for Finish<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let d = self.of.value_depth;
        for (i, row) in self.rows.clone().enumerate() {
            let out = self.of.out.at(self.batch, self.head, row).cast_mut();
            // SAFETY: `Attention::run`'s promises.
            unsafe {
                let factor = 1.0 / *self.scratch.state.add(QUERIES + i);
                scale(s, self.scratch.sums.add(i * d), out, d, factor);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rng, assert_close};

    fn wide(x: &[f32], at: usize) -> f64 {
        f64::from(x[at])
    }

    /// Attention the obvious way, in f64; tensors laid out `[batch, row, head, column]`.
    fn reference(a: &Attention, q: &[f32], k: &[f32], v: &[f32], mask: &[f32]) -> Vec<f64> {
        let (hq, hk, d, dv) = (a.heads, a.heads / a.group, a.depth, a.value_depth);
        let mut out = vec![0.0; a.batch * a.queries * hq * dv];
        for b in 0..a.batch {
            for h in 0..hq {
                for i in 0..a.queries {
                    let allowed = |j: usize| a.causal.is_none_or(|o| j as isize <= i as isize + o);
                    let score = |j: usize| {
                        let dot: f64 = (0..d)
                            .map(|x| {
                                wide(q, ((b * a.queries + i) * hq + h) * d + x)
                                    * wide(k, ((b * a.keys + j) * hk + h / a.group) * d + x)
                            })
                            .sum();
                        let m = if a.mask.is_some() { wide(mask, b * a.keys + j) } else { 0.0 };
                        if allowed(j) { dot * f64::from(a.scale) + m } else { f64::NEG_INFINITY }
                    };
                    let s: Vec<f64> = (0..a.keys).map(score).collect();
                    let max = s.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let e: Vec<f64> = s.iter().map(|x| (x - max).exp()).collect();
                    let total: f64 = e.iter().sum();
                    for x in 0..dv {
                        let at = |j: usize| wide(v, ((b * a.keys + j) * hk + h / a.group) * dv + x);
                        out[((b * a.queries + i) * hq + h) * dv + x] =
                            (0..a.keys).map(|j| e[j] * at(j)).sum::<f64>() / total;
                    }
                }
            }
        }
        out
    }

    fn run(a: &Attention, isa: Isa, cuts: usize, out: &mut [f32]) {
        let row = (a.heads * a.value_depth) as isize;
        let ptr = out.as_mut_ptr().cast_const();
        let out = Operand { ptr, batch: row * a.queries as isize, head: a.value_depth as isize, row };
        let a = Attention { out, ..*a };
        let tasks = a.tasks();
        for c in 0..cuts {
            let mut scratch = vec![f32::NAN; a.scratch_len().unwrap()];
            // SAFETY: the vectors cover the extents.
            unsafe { a.run(isa, c * tasks / cuts..(c + 1) * tasks / cuts, scratch.as_mut_ptr()) };
        }
    }

    #[test]
    fn attention_is_right_with_masks_causality_and_shared_heads() {
        let mut rng = Rng::new(41);
        let cases = [
            (1, 1, 1, 1, 1, 4, 4, None, false),
            (2, 4, 2, 17, 33, 32, 32, None, true),
            (1, 2, 1, 70, 70, 16, 20, Some(0), false),
            (1, 2, 2, 5, 900, 8, 64, Some(895), true),
            (1, 1, 1, 130, 400, 24, 50, Some(-3), false),
        ];
        for (batch, heads, group, queries, keys, depth, value_depth, causal, masked) in cases {
            let hk = heads / group;
            let q: Vec<f32> = rng.vec(batch * queries * heads * depth).iter().map(|x| x * 4.0).collect();
            let (k, v) = (rng.vec(batch * keys * hk * depth), rng.vec(batch * keys * hk * value_depth));
            let mask: Vec<f32> =
                (0..batch * keys).map(|i| if i % 7 == 3 { f32::NEG_INFINITY } else { 0.5 }).collect();
            let operand = |x: &[f32], rows: usize, h: usize, d: usize| Operand {
                ptr: x.as_ptr(),
                batch: (rows * h * d) as isize,
                head: d as isize,
                row: (h * d) as isize,
            };
            let a = Attention {
                batch,
                heads,
                group,
                queries,
                keys,
                depth,
                value_depth,
                q: operand(&q, queries, heads, depth),
                k: operand(&k, keys, hk, depth),
                v: operand(&v, keys, hk, value_depth),
                mask: masked.then_some(Operand { ptr: mask.as_ptr(), batch: keys as isize, head: 0, row: 0 }),
                causal,
                scale: 0.7,
                out: Operand { ptr: std::ptr::null(), batch: 0, head: 0, row: 0 },
            };
            let want = reference(&a, &q, &k, &v, &mask);
            for isa in Isa::available() {
                let mut out = vec![7.0f32; want.len()];
                run(&a, isa, 1, &mut out);
                assert_close(
                    &out,
                    &want,
                    5e-6,
                    &format!("{queries}x{keys} causal {causal:?} {:?}", isa.kind()),
                );
                let mut cut = vec![7.0f32; want.len()];
                run(&a, isa, 3, &mut cut);
                let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&out), bits(&cut));
            }
        }
    }
}
