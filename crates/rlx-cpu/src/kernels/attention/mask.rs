//! Masks: which keys of a row are seen at all, and the mask applied to a row of scores.

use std::ops::Range;

use rlx_ir::DType;

use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

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

/// Scales a row of scores and adds a contiguous row of the mask.
pub(super) struct AddMask<'a> {
    pub(super) row: &'a mut [f32],
    pub(super) scale: f32,
    pub(super) mask: *const f32,
}

impl Kernel for AddMask<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (row, len) = (self.row.as_mut_ptr(), self.row.len());
        let (whole, scale) = (len / LANES * LANES, s.splat(self.scale));
        for i in (0..whole).step_by(LANES) {
            // SAFETY: i + LANES ≤ len, which the mask's row is readable for, too.
            unsafe { s.store(row.add(i), s.mul_add(s.load(row.add(i)), scale, s.load(self.mask.add(i)))) };
        }
        for i in whole..len {
            // SAFETY: i < len.
            unsafe { *row.add(i) = *row.add(i) * self.scale + *self.mask.add(i) };
        }
    }
}

/// Takes out what a row of a mask of bools does not allow.
///
/// # Safety
/// The mask's row must be readable.
pub(super) unsafe fn apply_mask(row: &mut [f32], mask: *const u8, stride: isize) {
    for (j, x) in row.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        if unsafe { *mask.wrapping_offset(j as isize * stride) } == 0 {
            *x = f32::NEG_INFINITY;
        }
    }
}
