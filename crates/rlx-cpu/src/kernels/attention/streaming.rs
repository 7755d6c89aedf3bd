//! Attention of many queries: a block of them and some keys at a time (Dao et al. 2022, "FlashAttention").
//!
//! ```text
//! for each head:            pack its keys and values               (once for all blocks of the thread)
//!   for each block:         128 queries
//!     for some keys:        which stay in the second-level cache for the block
//!       for some queries:   scores = q·kᵀ  →  weights, relative to the largest score so far  →  sums += weights·v
//!     divide the sums by the sum of the weights
//! ```
//!
//! Scores of some queries stay in the first-level cache; some keys and values and the sums of a block are a quarter of a megabyte, however many
//! keys there are. Where a query's largest score
//! grows, its sums are scaled to it (`rows::weigh`). Keys that no query of the block may see are left out.

use rlx_ir::DType;
use rlx_ir::op::{MaskKind, Unseen};

use super::{Attention, Bindings, InScratch, Run};
use crate::gemm::{self, Ahead, Epilogue, Gemm, PANEL, Packed, Rows, Strided, TileSizes, Wide};
use crate::isa::Isa;
use crate::kernels::elementwise::halves::widen_strided;
use crate::kernels::packed_type;
use crate::rows::{self, Piece, RowState, Sums};

/// Queries of a task.
pub(super) const BLOCK: usize = 128;

/// Of a block, the queries whose scores are computed before their weights are: two tiles of a matmul.
pub(super) const TOGETHER: usize = 16;

/// The most keys at a time.
const KEYS: usize = 6 * PANEL;

/// How many keys there are at a time: whole panels, at least one, about equally many each time.
pub(super) fn keys_at_once(keys: usize) -> usize {
    let times = keys.div_ceil(KEYS).max(1);
    keys.div_ceil(times).next_multiple_of(PANEL).max(PANEL)
}

/// A matrix of keys or values, a row for each.
struct Lines<T> {
    first: *const T,
    row: isize,
    column: isize,
}

/// Some queries of a head.
struct Block<T> {
    /// The item of the batch and its head.
    head: (usize, usize),
    /// The first query.
    first: usize,
    /// How many there are.
    rows: usize,
    queries: Strided<T>,
    /// What is known of each, and what was summed for it.
    states: *mut RowState,
    sums: *mut f32,
}

impl<T: Packed> Block<T> {
    /// Its queries from number `from` on, [`TOGETHER`] at most; `width` elements are summed for each.
    fn part(&self, from: usize, width: usize) -> Block<T> {
        Block {
            head: self.head,
            first: self.first + from,
            rows: TOGETHER.min(self.rows - from),
            queries: self.queries.skip(from),
            states: self.states.wrapping_add(from),
            sums: self.sums.wrapping_add(from * width),
        }
    }
}

impl Attention {
    /// Block number `block` of the queries of one head, of products of `T`. `packed` says whose keys and values are in scratch.
    ///
    /// # Safety
    /// The bindings must be those of this run, and for products of `T`: operands readable for their dimensions, slices found, the scratch
    /// writable for all parts, and the block's rows of the result writable and no other thread's.
    pub(super) unsafe fn block<T: Packed>(
        &self,
        s: &Bindings,
        run: &Run,
        scratch: *mut f32,
        (b, h, block): (usize, usize, usize),
        packed: &mut Option<InScratch>,
    ) {
        let ([_, heads, sq, d], [_, kv_heads, sk, _], dv) = (s.q.dims, s.k.dims, s.v.dims[3]);
        let kv = h / (heads / kv_heads);
        let [keys, values, _, wide, lines, _, sums, states] = s.scratch(scratch);
        let states = states.cast::<RowState>();
        let first = block * BLOCK;
        let rows = BLOCK.min(sq - first);
        // SAFETY: the caller's promise.
        unsafe {
            if !packed.as_ref().is_some_and(|p| p.holds((b, kv), sk)) {
                self.pack::<T>(s, run, (b, kv), [keys, values], lines);
                *packed = Some(InScratch { head: (b, kv), rows: sk });
            }
            let from = self.row_of(run.q, &s.q, (b, h, first));
            let row_stride = s.q.strides[2];
            let queries = if s.multiplied == self.dtype {
                Strided { ptr: from.cast::<T>().cast_const(), row_stride }
            } else {
                let wide = self.rows(run.isa, from, row_stride, [rows, d], wide);
                Strided { ptr: wide.ptr.cast::<T>(), row_stride: wide.row_stride }
            };
            std::slice::from_raw_parts_mut(states, rows).fill(RowState::EMPTY);
            let block = Block { head: (b, h), first, rows, queries, states, sums };
            // No query sees later keys than the last one, nor earlier ones than the first.
            let at_once = keys_at_once(sk);
            let from = self.visible(s, first).start / at_once * at_once;
            for start in (from..self.visible(s, first + rows - 1).end).step_by(at_once) {
                for part in (0..rows).step_by(TOGETHER) {
                    self.piece(s, run, scratch, &block.part(part, dv), start, start > from);
                }
            }
            let y = self.row_of(run.y, &s.y, (b, h, first));
            let unseen = if self.unseen == Unseen::Nan && sk > 0 { f32::NAN } else { 0.0 };
            let (guard, stride) = (self.unseen == Unseen::Guard, s.y.strides[2]);
            packed_type!(
                self.dtype,
                O => {
                    let y = y.cast::<O>();
                    rows::divide(run.isa, Sums { sums, width: dv, states, rows, unseen, guard, y, stride });
                },
                _ => {}
            );
        }
    }

    /// Adds what the keys from `start` on give to the sums of some queries, if they have any (`add`).
    ///
    /// # Safety
    /// As [`Attention::block`]; keys and values must be packed, and states and sums those of the keys before.
    unsafe fn piece<T: Packed>(
        &self,
        s: &Bindings,
        run: &Run,
        scratch: *mut f32,
        block: &Block<T>,
        start: usize,
        add: bool,
    ) {
        let ([.., sq, d], sk, width) = (s.q.dims, s.k.dims[2], s.v.dims[3]);
        let [keys, values, scores, _, _, mask_row, ..] = s.scratch(scratch);
        let &Block { head: (b, h), first, rows, queries, states, sums } = block;
        let stride = keys_at_once(sk);
        let columns = stride.min(sk - start);
        // SAFETY: the caller's promise.
        unsafe {
            let b_keys = keys.wrapping_add(start * gemm::groups::<T>(d));
            let to_scores = Wide { sums: scores, stride, add: false };
            product(run.isa, queries, b_keys, [rows, columns, d], to_scores);
            let scale = self.scaled(s, run, scores, mask_row, [b, h, first, start], [rows, columns]);
            let (seen, grows) = match self.kind {
                MaskKind::Causal => ((first + 1 + sk) as isize - (sq + start) as isize, 1),
                _ => (columns as isize, 0),
            };
            rows::weigh::<T>(
                run.isa,
                Piece { scores, stride, rows, columns, seen, grows, scale, states, sums, width },
            );
            let row_stride = (stride * size_of::<f32>() / size_of::<T>()) as isize;
            let weights = Strided { ptr: scores.cast::<T>().cast_const(), row_stride };
            let b_values = values.wrapping_add(values_at::<T>(start, width));
            let to_sums = Wide { sums, stride: width, add };
            product(run.isa, weights, b_values, [rows, width, columns], to_sums);
        }
    }

    /// Applies what stands before the weights to a block of scores: a mask, and the scale where it cannot wait. Gives the scale that is left.
    ///
    /// # Safety
    /// The rows of scores and the mask must be there, and room for a row of it in `wide`.
    unsafe fn scaled(
        &self,
        s: &Bindings,
        run: &Run,
        scores: *mut f32,
        wide: *mut f32,
        [b, h, first, start]: [usize; 4],
        [rows, columns]: [usize; 2],
    ) -> f32 {
        let masked = run.mask.is_some() && self.kind == MaskKind::Custom;
        // What is added is added to scaled scores; and only by a positive factor is the largest score the largest afterwards.
        let now = (masked && !self.bool_mask) || self.scale <= 0.0 || self.scale.is_nan();
        let (scale, left) = if now { (self.scale, 1.0) } else { (1.0, self.scale) };
        let stride = keys_at_once(s.k.dims[2]);
        // Of a piece in front of which a window begins for all rows, nothing is hidden here.
        let windowed = self.visible(s, first + rows.saturating_sub(1)).start > start;
        for row in 0..if masked || now || windowed { rows } else { 0 } {
            // SAFETY: the caller's promise.
            unsafe {
                let line = std::slice::from_raw_parts_mut(scores.wrapping_add(row * stride), columns);
                self.mask(s, run, line, wide, (b, h, first + row), start, scale);
                let hidden = self.visible(s, first + row).start.saturating_sub(start).min(columns);
                line[..hidden].fill(f32::NEG_INFINITY);
            }
        }
        left
    }

    /// Packs keys and values of a head: keys as columns, values as rows, those of each piece behind those of the one before.
    ///
    /// # Safety
    /// The bindings must be those of this run: operands readable, slices found, and room for both, packed and as rows.
    unsafe fn pack<T: Packed>(
        &self,
        s: &Bindings,
        run: &Run,
        head: (usize, usize),
        [keys, values]: [*mut f32; 2],
        lines: *mut f32,
    ) {
        let ([.., sk, d], dv) = (s.k.dims, s.v.dims[3]);
        // SAFETY: the caller's promise.
        unsafe {
            let Lines { first, row, column } = self.lines_of::<T>(s, run, 0, head, lines);
            gemm::pack(first, column, row, d, sk, keys, 0..gemm::panels(sk));
            let Lines { first, row, column } = self.lines_of::<T>(s, run, 1, head, lines);
            let at_once = keys_at_once(sk);
            for start in (0..sk).step_by(at_once) {
                let from = first.wrapping_offset(start as isize * row);
                let to = values.wrapping_add(values_at::<T>(start, dv));
                gemm::pack(from, row, column, at_once.min(sk - start), dv, to, 0..gemm::panels(dv));
            }
        }
    }

    /// The keys (`of` 0) or values (1) of a head as elements of `T`: where they are, or in `to`, which has room for them.
    ///
    /// # Safety
    /// The bindings must be those of this run: the operand readable for its dimensions, its slices found, and `to` writable for the head.
    unsafe fn lines_of<T: Packed>(
        &self,
        s: &Bindings,
        run: &Run,
        of: usize,
        (b, kv): (usize, usize),
        to: *mut f32,
    ) -> Lines<T> {
        let (heads, base) = if of == 0 { (&s.k, run.k) } else { (&s.v, run.v) };
        let ([.., rows, columns], [.., row, column]) = (heads.dims, heads.strides);
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(slices) = &s.slices[of] {
                let (operands, at) = self.sliced(s, run, of, (b, kv));
                let to = to.cast::<T>();
                slices.copy(run.isa, operands, at, [rows, columns], to);
                return Lines { first: to.cast_const(), row: columns as isize, column: 1 };
            }
            let size = self.dtype.size_bytes() as isize;
            let first = base.get().wrapping_offset(heads.head(b, kv) * size);
            if s.multiplied == self.dtype {
                return Lines { first: first.cast::<T>().cast_const(), row, column };
            }
            // Neighbours in memory stay neighbours.
            let (lines, step, len, stride) =
                if row == 1 { (columns, column, rows, row) } else { (rows, row, columns, column) };
            for line in 0..lines {
                let source = first.wrapping_offset(line as isize * step * size);
                widen_strided(run.isa, self.dtype, source, stride, to.wrapping_add(line * len), len);
            }
            let (row, column) = if row == 1 { (1, len as isize) } else { (len as isize, 1) };
            Lines { first: to.cast::<T>().cast_const(), row, column }
        }
    }
}

/// Where the packed values from key `start` on begin.
fn values_at<T: Packed>(start: usize, dv: usize) -> usize {
    start / T::GROUP * gemm::panels(dv) * PANEL
}

/// Elements of scratch that packed keys and values take; `None` if that overflows.
pub(super) fn packed_sizes(multiplied: DType, d: usize, sk: usize, dv: usize) -> [Option<usize>; 2] {
    packed_type!(
        multiplied,
        T => [gemm::packed_words::<T>(d, sk), gemm::packed_words::<T>(sk, dv)],
        _ => [None; 2]
    )
}

/// The product of `m` rows of `k` elements by `n` packed columns.
///
/// # Safety
/// Rows, columns and sums must be there.
unsafe fn product<T: Packed>(isa: Isa, rows: Strided<T>, b: *const f32, [m, n, k]: [usize; 3], wide: Wide) {
    let gemm = Gemm {
        m,
        n,
        k,
        rows,
        b,
        c: std::ptr::null_mut(),
        c_stride: 0,
        epilogue: Epilogue::NONE,
        tile_sizes: TileSizes::DEFAULT,
        ahead: Ahead::Panels,
        wide: Some(wide),
    };
    // SAFETY: the caller's promise.
    unsafe { gemm.run(isa, 0..gemm.tasks(isa)) }
}
