//! The layout of packed matrices: panels of 48 columns, each stored row after row.

use std::ops::Range;

use super::element::Packed;
use super::panels::{PANEL, panels};

/// Words (f32) of a packed `k`×`n` matrix of f32; `None` if that overflows.
pub const fn packed_len(k: usize, n: usize) -> Option<usize> {
    match panels(n).checked_mul(PANEL) {
        Some(columns) => columns.checked_mul(k),
        None => None,
    }
}

/// Rows of words that `k` steps of depth of this type take in a panel.
pub const fn groups<T: Packed>(k: usize) -> usize {
    k.div_ceil(T::GROUP)
}

/// Words of a packed `k`×`n` matrix of this type; `None` if that overflows.
pub const fn packed_words<T: Packed>(k: usize, n: usize) -> Option<usize> {
    packed_len(groups::<T>(k), n)
}

/// Packs some panels of a `k`×`n` matrix whose element (i, j) is at `b + i·row_stride + j·col_stride`.
///
/// Missing columns of the last panel become zero, and so does the missing step of an odd depth. A transposed
/// matrix packs by swapping the strides.
///
/// # Safety
/// Every element must be readable, and `out` writable for `packed_words::<T>(k, n)` words; only the parts of
/// the given panels are written.
pub unsafe fn pack<T: Packed>(
    b: *const T,
    row_stride: isize,
    col_stride: isize,
    k: usize,
    n: usize,
    out: *mut f32,
    which: Range<usize>,
) {
    for panel in which {
        let j0 = panel * PANEL;
        let width = PANEL.min(n - j0);
        // SAFETY: the caller's promises; j0 + width ≤ n and the panel is within `out`.
        unsafe {
            let src = b.wrapping_offset(j0 as isize * col_stride);
            let dst = out.add(j0 * groups::<T>(k));
            pack_panel(src, row_stride, col_stride, k, width, dst);
        }
    }
}

/// Packs `width` columns into one panel.
///
/// # Safety
/// As [`pack`]: the elements must be readable and the panel's `groups(k)` rows of words writable.
pub(crate) unsafe fn pack_panel<T: Packed>(
    src: *const T,
    rs: isize,
    cs: isize,
    k: usize,
    width: usize,
    dst: *mut f32,
) {
    // SAFETY: the caller's promises.
    unsafe {
        if width < PANEL {
            std::ptr::write_bytes(dst, 0, groups::<T>(k) * PANEL);
        } else if !k.is_multiple_of(T::GROUP) {
            std::ptr::write_bytes(dst.add((groups::<T>(k) - 1) * PANEL), 0, PANEL);
        }
        if cs == 1 && T::GROUP == 2 && T::RUN == 1 {
            pack_rows_of_pairs(src, rs, k, width, dst);
        } else if cs == 1 {
            for i in 0..k {
                let row = src.wrapping_offset(i as isize * rs);
                let out = dst.add(i / T::GROUP * PANEL).cast::<T>();
                for j in (0..width).step_by(T::RUN) {
                    let count = T::RUN.min(width - j);
                    let place = out.add(T::place(i % T::GROUP, j));
                    std::ptr::copy_nonoverlapping(row.add(j), place, count);
                }
            }
        } else if rs == 1 && T::GROUP == 2 && T::RUN == 1 {
            pack_pairs(src, cs, k, width, dst);
        } else {
            pack_transposed(src, rs, cs, k, width, dst);
        }
    }
}

/// Side of the squares that transposing packers move: they stay in the first-level cache.
const SQUARE: usize = 16;

/// Packs one panel whose rows are contiguous, where a word is two steps of depth: of two rows at a time.
///
/// # Safety
/// As [`pack_panel`].
unsafe fn pack_rows_of_pairs<T: Packed>(src: *const T, rs: isize, k: usize, width: usize, dst: *mut f32) {
    const { assert!(T::GROUP != 2 || size_of::<T>() == 2) };
    for i in (0..k).step_by(2) {
        let first = src.wrapping_offset(i as isize * rs).cast::<u16>();
        let second = first.wrapping_offset(rs);
        let to = dst.wrapping_add(i / 2 * PANEL).cast::<u32>();
        // The second step of the last word is missing where the depth is odd.
        let both = i + 1 < k;
        for j in 0..width {
            // SAFETY: i (and i + 1, of both) < k and j < width address elements the caller promised, and a word of the panel.
            unsafe {
                let high = if both { u32::from(*second.wrapping_add(j)) } else { 0 };
                *to.add(j) = u32::from(*first.add(j)) | high << 16;
            }
        }
    }
}

/// Packs one panel whose columns are contiguous, where a word is two steps of depth: whole words are moved.
unsafe fn pack_pairs<T: Packed>(src: *const T, cs: isize, k: usize, width: usize, dst: *mut f32) {
    let words = k / 2;
    for i0 in (0..words).step_by(SQUARE) {
        for j in 0..width {
            let column = src.wrapping_offset(j as isize * cs).cast::<u32>();
            for i in i0..(i0 + SQUARE).min(words) {
                // SAFETY: 2i + 1 < k and j < width address elements the caller promised.
                unsafe { *dst.cast::<u32>().add(i * PANEL + j) = column.add(i).read_unaligned() };
            }
        }
    }
    if !k.is_multiple_of(2) {
        for j in 0..width {
            // SAFETY: as above, of the last step.
            unsafe {
                let last = *src.wrapping_offset(j as isize * cs).add(k - 1);
                *dst.add(words * PANEL).cast::<T>().add(T::place(0, j)) = last;
            }
        }
    }
}

/// Packs one panel whose columns are not adjacent, in squares that stay in the first-level cache.
unsafe fn pack_transposed<T: Packed>(
    src: *const T,
    rs: isize,
    cs: isize,
    k: usize,
    width: usize,
    dst: *mut f32,
) {
    for i0 in (0..k).step_by(SQUARE) {
        for j in 0..width {
            let column = src.wrapping_offset(j as isize * cs);
            for i in i0..(i0 + SQUARE).min(k) {
                // SAFETY: i < k and j < width address elements the caller promised.
                unsafe {
                    let row = dst.add(i / T::GROUP * PANEL).cast::<T>();
                    *row.add(T::place(i % T::GROUP, j)) = *column.wrapping_offset(i as isize * rs);
                }
            }
        }
    }
}

/// Copies a strided `m`×`k` matrix into row-major scratch: for left-hand sides whose rows are not contiguous.
///
/// # Safety
/// Every element must be readable, and `out` writable for `m·k` elements.
pub unsafe fn copy_strided<T: Copy>(
    a: *const T,
    row_stride: isize,
    col_stride: isize,
    m: usize,
    k: usize,
    out: *mut T,
) {
    for i in 0..m {
        let row = a.wrapping_offset(i as isize * row_stride);
        for j in 0..k {
            // SAFETY: the caller's promises.
            unsafe { *out.add(i * k + j) = *row.wrapping_offset(j as isize * col_stride) };
        }
    }
}
