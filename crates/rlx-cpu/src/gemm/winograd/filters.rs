//! Weights as the matmuls of Winograd's algorithm read them: transformed in f64, rounded once, in panels of filters.

use std::ops::Range;

use super::{PANEL, WinogradTile, transform};
use crate::gemm::{Packed, packed_len};
use crate::isa::{Isa, Kernel};
use crate::simd::Simd;

/// Where the weights of a convolution are: element (filter, channel, frame, y, x) is at `ptr` and as many strides of each.
#[derive(Debug, Clone, Copy)]
pub struct Filters<T = f32> {
    /// The first element.
    pub ptr: *const T,
    /// Elements from one to the next along filters, channels, frames, lines, pixels.
    pub strides: [isize; 5],
    /// Filters, channels and frames.
    pub extents: [usize; 3],
    /// Lines and pixels of a frame.
    pub window: [usize; 2],
}

/// Words (f32) of packed weights of so many filters, channels and frames of windows; `None` if that overflows.
pub fn packed_filters(
    tile: WinogradTile,
    [filters, channels, frames]: [usize; 3],
    window: [usize; 2],
) -> Option<usize> {
    let [rows, columns] = tile.pieces(window);
    let taps = frames.checked_mul(rows)?.checked_mul(columns)?.checked_mul(tile.points())?;
    packed_len(channels.checked_mul(taps)?, filters)
}

/// Packs panels of transformed weights: panel after panel, in each the matrices of all points, in each piece after piece of each frame, of channels.
///
/// # Safety
/// The weights must be readable, `to` writable for [`packed_filters`] words; only the parts of the given panels are written.
pub unsafe fn pack_filters<T: Packed>(
    isa: Isa,
    tile: WinogradTile,
    filters: &Filters<T>,
    to: *mut f32,
    which: Range<usize>,
) {
    isa.run(PackPanels { tile, filters, to, which });
}

struct PackPanels<'a, T> {
    tile: WinogradTile,
    filters: &'a Filters<T>,
    to: *mut f32,
    which: Range<usize>,
}

impl<T: Packed> Kernel for PackPanels<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for panel in self.which.clone() {
            // SAFETY: the promises of `pack_filters`.
            unsafe {
                match self.tile {
                    WinogradTile::Two => pack_panel::<T, 4, 4>(&self, panel),
                    WinogradTile::Four => pack_panel::<T, 6, 6>(&self, panel),
                    WinogradTile::Line => pack_panel::<T, 1, 6>(&self, panel),
                }
            }
        }
    }
}

/// Packs one panel.
///
/// # Safety
/// As [`pack_filters`].
#[inline(always)]
unsafe fn pack_panel<T: Packed, const L: usize, const A: usize>(pack: &PackPanels<'_, T>, panel: usize) {
    let PackPanels { tile, filters, to, .. } = *pack;
    let ([all, channels, frames], strides) = (filters.extents, filters.strides);
    let ([high, wide], [rows, columns]) = (tile.window(), tile.pieces(filters.window));
    let depth = channels * frames * rows * columns;
    let to = to.wrapping_add(panel * L * A * depth * PANEL);
    let matrices = (&transform::weights_matrix::<L>(), &transform::weights_matrix::<A>());
    for step in 0..depth {
        let (piece, channel) = (step / channels, step % channels);
        let [frame, down, right] = [piece / (rows * columns), piece / columns % rows, piece % columns];
        let first = channel as isize * strides[1] + frame as isize * strides[2];
        // Behind a window's last line and pixel are zeros.
        let left = [filters.window[0] - down * high, filters.window[1] - right * wide];
        let mut window = [[[0.0; PANEL]; 3]; 3];
        for column in 0..PANEL.min(all - panel * PANEL) {
            let at = first + (panel * PANEL + column) as isize * strides[0];
            for (y, line) in window.iter_mut().enumerate().take(high.min(left[0])) {
                for (x, values) in line.iter_mut().enumerate().take(wide.min(left[1])) {
                    let (y, x) = ((down * high + y) as isize, (right * wide + x) as isize);
                    let within = y * strides[3] + x * strides[4];
                    // SAFETY: the caller's promise.
                    values[column] = f64::from(unsafe { *filters.ptr.wrapping_offset(at + within) }.widen());
                }
            }
        }
        let points = transform::weights::<L, A>(matrices, &window);
        for (point, values) in points.as_flattened().iter().enumerate() {
            for (column, &value) in values.iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { *to.wrapping_add((point * depth + step) * PANEL + column) = value as f32 };
            }
        }
    }
}
