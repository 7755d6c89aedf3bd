//! Moving elements between strided memory and a contiguous tile.

use super::instr::Source;
use crate::layout::Layout;

/// Runs a block with `$t` as the unsigned integer of `$size` bytes: moving looks at sizes only.
macro_rules! sized {
    ($size:expr, $t:ident => $e:expr) => {
        match $size {
            1 => { type $t = u8; $e }
            2 => { type $t = u16; $e }
            4 => { type $t = u32; $e }
            _ => { type $t = u64; $e }
        }
    };
}
pub(crate) use sized;

/// Copies `n` elements that are `stride` apart to `out`.
///
/// # Safety
/// The elements must be readable and `out` writable for `n` elements.
#[inline]
pub(crate) unsafe fn gather_run(src: *const u8, stride: isize, size: usize, n: usize, out: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        sized!(size, T => {
            let (src, out) = (src.cast::<T>(), out.cast::<T>());
            match stride {
                1 => std::ptr::copy_nonoverlapping(src, out, n),
                0 => std::slice::from_raw_parts_mut(out, n).fill(*src),
                _ => (0..n).for_each(|i| *out.add(i) = *src.wrapping_offset(i as isize * stride)),
            }
        })
    }
}

/// Copies `n` elements to places that are `stride` apart.
///
/// # Safety
/// The source must be readable (for 1 element when it steps by 0) and the places writable.
#[inline]
pub(crate) unsafe fn scatter_run(src: Source, out: *mut u8, stride: isize, size: usize, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        sized!(size, T => {
            let (from, out) = (src.ptr.cast::<T>(), out.cast::<T>());
            match (src.step, stride) {
                (1, 1) => std::ptr::copy(from, out, n),
                (0, 1) => std::slice::from_raw_parts_mut(out, n).fill(*from),
                (step, _) => {
                    (0..n).for_each(|i| *out.wrapping_offset(i as isize * stride) = *from.add(i * step));
                }
            }
        })
    }
}

/// Calls `f(offset, done, count, stride)` for each run of elements `start..start + n` (row-major) of a view.
#[inline]
fn runs(layout: &Layout, start: usize, n: usize, mut f: impl FnMut(isize, usize, usize, isize)) {
    let rank = layout.rank();
    if rank == 0 {
        return f(0, 0, n, 0);
    }
    let (inner, stride) = (layout.dims()[rank - 1], layout.strides()[rank - 1]);
    let outer = layout.range(0, rank - 1);
    let (mut row, mut column, mut done) = (start / inner, start % inner, 0);
    while done < n {
        let count = (inner - column).min(n - done);
        f(outer.at(row) + column as isize * stride, done, count, stride);
        (done, row, column) = (done + count, row + 1, 0);
    }
}

/// Copies the elements `start..start + n` (row-major) of a view at `base` to `out`.
///
/// # Safety
/// The elements must be readable and `out` writable for `n` elements.
pub(crate) unsafe fn gather(
    base: *const u8,
    layout: &Layout,
    size: usize,
    start: usize,
    n: usize,
    out: *mut u8,
) {
    runs(layout, start, n, |offset, done, count, stride| {
        let from = base.wrapping_offset(offset * size as isize);
        // SAFETY: the caller's promise.
        unsafe { gather_run(from, stride, size, count, out.wrapping_add(done * size)) }
    });
}

/// Copies a tile to the elements `start..start + n` (row-major) of a view at `base`.
///
/// # Safety
/// The source must be readable and the elements writable.
pub(crate) unsafe fn scatter(
    src: Source,
    base: *mut u8,
    layout: &Layout,
    size: usize,
    start: usize,
    n: usize,
) {
    runs(layout, start, n, |offset, done, count, stride| {
        let from = Source { ptr: src.ptr.wrapping_add(done * size * src.step), step: src.step };
        // SAFETY: the caller's promise.
        unsafe { scatter_run(from, base.wrapping_offset(offset * size as isize), stride, size, count) }
    });
}

/// Copies `n` elements from places `from_step` apart to places `to_step` apart.
///
/// # Safety
/// The source must be readable and the places writable.
#[inline]
pub(crate) unsafe fn gather_any(
    from: *const u8,
    from_step: isize,
    to: *mut u8,
    to_step: isize,
    size: usize,
    n: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if to_step == 1 {
            return gather_run(from, from_step, size, n, to);
        }
        sized!(size, T => {
            let (from, to) = (from.cast::<T>(), to.cast::<T>());
            for i in 0..n as isize {
                *to.wrapping_offset(i * to_step) = *from.wrapping_offset(i * from_step);
            }
        })
    }
}
