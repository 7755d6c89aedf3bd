//! Attention of a few queries: keys and values are read where they are, once, instead of being packed for the matmul kernel.
//!
//! A decoder that computes one token at a time multiplies one row by a cache of keys and one by a cache of values. Packing them would
//! read and write the whole cache to read it again. Here a score is the dot product of the query with a row of the keys, and the
//! result a weighted sum of rows of the values. Columns that a mask hides in front of the first key that is seen and behind the
//! last one are not looked at, so a cache with room for more rows costs what its used rows do.

use std::ops::Range;

use rlx_ir::DType;

use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// The most queries of a head for which nothing is packed.
pub(super) const FEW: usize = 4;

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
    /// `width` elements.
    pub out: *mut f32,
}

/// Vectors of a result that are summed together.
const TOGETHER: usize = 4;

impl Kernel for Weighted {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut from = 0;
        while from + TOGETHER * LANES <= self.width {
            let mut sums = [s.zero(); TOGETHER];
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
            from += TOGETHER * LANES;
        }
        while from < self.width {
            let n = LANES.min(self.width - from);
            let mut sum = s.zero();
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

/// A row of a mask: bools, or numbers that are added.
pub(super) struct MaskRow {
    pub first: *const u8,
    pub stride: isize,
    pub dtype: DType,
}

impl MaskRow {
    /// From the first of `columns` that is not hidden up to the last one; all of them when each is hidden.
    ///
    /// # Safety
    /// The row must be readable for `columns`.
    pub(super) unsafe fn seen(&self, columns: usize) -> Range<usize> {
        // SAFETY: the caller's promise.
        unsafe {
            match self.dtype {
                DType::Bool => self.range(columns, |&x: &u8| x == 0),
                DType::F32 => self.range(columns, |&x: &f32| x == f32::NEG_INFINITY),
                DType::F16 => self.range(columns, |&x: &u16| x == half::f16::NEG_INFINITY.to_bits()),
                DType::BF16 => self.range(columns, |&x: &u16| x == half::bf16::NEG_INFINITY.to_bits()),
                _ => 0..columns,
            }
        }
    }

    /// # Safety
    /// As [`MaskRow::seen`], of elements of type `T`.
    unsafe fn range<T: Copy>(&self, columns: usize, hidden: impl Fn(&T) -> bool + Copy) -> Range<usize> {
        let first = self.first.cast::<T>();
        if self.stride != 1 {
            // SAFETY: the caller's promise.
            let seen = |&i: &usize| unsafe { !hidden(&*first.offset(i as isize * self.stride)) };
            let Some(from) = (0..columns).find(seen) else { return 0..columns };
            return from..(from..columns).rfind(seen).map_or(columns, |last| last + 1);
        }
        // SAFETY: the caller's promise; a mask of numbers is aligned for them.
        let row = unsafe { std::slice::from_raw_parts(first, columns) };
        let Some(from) = row.iter().position(|x| !hidden(x)) else { return 0..columns };
        // Whole vectors of hidden columns at the end, where a cache has room.
        let mut to = columns;
        while to - from > 64 && row[to - 64..to].iter().fold(true, |all, x| all & hidden(x)) {
            to -= 64;
        }
        from..row[from..to].iter().rposition(|x| !hidden(x)).map_or(to, |last| from + last + 1)
    }
}
