//! Transposing into results that are stored past the caches.
//!
//! Some columns are copied to a stage first, as many bytes of each as fill some cache lines: whole lines of a source that does not begin at one then are
//! read once, and lines that are a power of two apart do not push each other out. Squares of the stage are turned and stored, whole lines at a time.

use std::mem::MaybeUninit;

use super::{Band, Cell, ONE_GROUP};
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};
use crate::stores::LINE;

/// Bytes of a column that are copied, and of a row of the result that they fill: 64 × 64 elements of f32, of which other numbers from 32 to 256 took up to twice
/// as long on a Zen 5, 256 × 256 bytes.
pub(crate) const COLUMN: usize = 256;

/// As many elements.
const fn elements<T>() -> usize {
    COLUMN / size_of::<T>()
}

/// Bytes from one column of the stage to the next: not a power of two, for the same reason.
const PITCH: usize = COLUMN + LINE;

/// Columns that are copied, each from a cache line on.
#[repr(align(64))]
struct Stage([MaybeUninit<u8>; COLUMN * PITCH]);

/// Whether bands of elements of so many bytes are transposed past the caches: squares of them go through lanes, and rows of the result, `to_row` elements apart,
/// begin at the same place of a line.
pub(crate) fn has_whole_lines(size: usize, to_row: isize, group: (usize, isize)) -> bool {
    size <= size_of::<f32>() && group == ONE_GROUP && (to_row * size as isize) % LINE as isize == 0
}

/// A band to transpose past the caches, of columns of at most [`COLUMN`] bytes. [`fence`](crate::stores::fence) has to follow.
pub(crate) struct NonTemporal<T>(pub(crate) Band<T>);

impl<T: Cell> Kernel for NonTemporal<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let band = self.0;
        let wide = LANES * T::OF_LANE;
        let start = band.to.align_offset(LINE).min(band.width);
        let end = start + (band.width - start) / wide * wide;
        let height = band.height.min(elements::<T>()) / LANES * LANES;
        if height == 0 || !has_whole_lines(size_of::<T>(), band.to_row, band.group) {
            return s.enter_plain(band);
        }
        let inside = band.columns_from(start, end - start);
        for first in (0..inside.width).step_by(elements::<T>()) {
            let width = elements::<T>().min(inside.width - first);
            let part = Band { height, ..inside.columns_from(first, width) };
            // SAFETY: who runs the kernel was promised all elements.
            unsafe { staged(s, &part) };
        }
        let outside = [
            band.columns_from(0, start),
            band.columns_from(end, band.width - end),
            inside.rows(height, band.height - height),
        ];
        for band in outside.into_iter().filter(|band| band.width * band.height > 0) {
            s.enter_plain(band);
        }
    }
}

/// A band of at most as many columns and rows as a stage has, of whole squares whose rows are whole lines of the result.
///
/// # Safety
/// Every element of the band must be readable in the source and writable in the result, and they must be apart. Nothing may read the result before
/// the fence.
#[inline(always)]
unsafe fn staged<S: Simd, T: Cell>(s: S, band: &Band<T>) {
    let mut stage = Stage([MaybeUninit::uninit(); COLUMN * PITCH]);
    let stage: *mut T = stage.0.as_mut_ptr().cast();
    let (bytes, pitch) = (band.height * size_of::<T>(), PITCH / size_of::<T>());
    let mut from = band.from;
    // SAFETY: the caller's promise; the stage has room for the columns, and all of a square are written before it is read.
    unsafe {
        for i in 0..band.width {
            let to = stage.add(i * pitch);
            if bytes == COLUMN {
                for at in (0..COLUMN).step_by(LINE) {
                    s.store(to.byte_add(at).cast(), s.load(from.byte_add(at).cast()));
                }
            } else {
                std::ptr::copy_nonoverlapping(from, to, band.height);
            }
            from = from.wrapping_offset(band.from_column);
        }
        let copy = Band { from: stage.cast_const(), from_column: pitch as isize, ..*band };
        for y in (0..band.height).step_by(LANES) {
            let rows = copy.rows(y, LANES);
            for x in (0..band.width).step_by(LANES * T::OF_LANE) {
                Band { to: rows.to.wrapping_add(x), ..rows }.wide::<S, true>(s, x);
            }
        }
    }
}
