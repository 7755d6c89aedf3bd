//! The layout of packed matrices: panels of 48 columns, each stored row after row.

use std::ops::Range;

use super::PANEL;

/// Panels of a matrix of `n` columns.
pub const fn panels(n: usize) -> usize {
    n.div_ceil(PANEL)
}

/// Elements of a packed `k`×`n` matrix; `None` if that overflows.
pub const fn packed_len(k: usize, n: usize) -> Option<usize> {
    match panels(n).checked_mul(PANEL) {
        Some(columns) => columns.checked_mul(k),
        None => None,
    }
}

/// Packs some panels of a `k`×`n` matrix whose element (i, j) is at `b + i·row_stride + j·col_stride`.
///
/// Missing columns of the last panel become zero. A transposed matrix packs by swapping the strides.
///
/// # Safety
/// Every element must be readable, and `out` writable for `packed_len(k, n)` elements; only the parts of
/// the given panels are written.
pub unsafe fn pack(
    b: *const f32,
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
        // SAFETY: the caller's promises; j0 + width ≤ n and the panel lies within `out`.
        unsafe {
            let src = b.wrapping_offset(j0 as isize * col_stride);
            let dst = out.add(j0 * k);
            if width < PANEL {
                std::ptr::write_bytes(dst, 0, k * PANEL);
            }
            if col_stride == 1 {
                for i in 0..k {
                    let row = src.wrapping_offset(i as isize * row_stride);
                    std::ptr::copy_nonoverlapping(row, dst.add(i * PANEL), width);
                }
            } else {
                pack_transposed(src, row_stride, col_stride, k, width, dst);
            }
        }
    }
}

/// Packs one panel whose columns are not adjacent, in squares that stay in the first-level cache.
unsafe fn pack_transposed(src: *const f32, rs: isize, cs: isize, k: usize, width: usize, dst: *mut f32) {
    const SQUARE: usize = 16;
    for i0 in (0..k).step_by(SQUARE) {
        for j in 0..width {
            let column = src.wrapping_offset(j as isize * cs);
            for i in i0..(i0 + SQUARE).min(k) {
                // SAFETY: i < k and j < width address elements the caller promised.
                unsafe { *dst.add(i * PANEL + j) = *column.wrapping_offset(i as isize * rs) };
            }
        }
    }
}

/// Copies a strided `m`×`k` matrix into row-major scratch: for left-hand sides whose rows are not contiguous.
///
/// # Safety
/// Every element must be readable, and `out` writable for `m·k` elements.
pub unsafe fn copy_strided(
    a: *const f32,
    row_stride: isize,
    col_stride: isize,
    m: usize,
    k: usize,
    out: *mut f32,
) {
    for i in 0..m {
        let row = a.wrapping_offset(i as isize * row_stride);
        for j in 0..k {
            // SAFETY: the caller's promises.
            unsafe { *out.add(i * k + j) = *row.wrapping_offset(j as isize * col_stride) };
        }
    }
}
