//! Convolutions of a channel by one filter (depthwise): a tile is some lines of the result by some vectors of positions. A vector of a line
//! that is read serves all lines of the tile whose windows it is in: with windows of 3 × 3 and four lines, half as many vectors are
//! loaded as if each line were computed by itself.
//!
//! The sum of a window is taken in ascending position of the kernel, as by every other tile.

use super::{Part, Windows};
use crate::gemm::each_row;
use crate::isa::Kernel;
use crate::math::Light;
use crate::simd::{LANES, Simd};

/// Lines of a tile.
pub(super) const LINES: usize = 4;

/// Vectors of a line, at least: shorter lines take longer to copy than what transposing takes.
const LEAST_VECTORS: usize = 4;

/// Whether a depthwise convolution from planes to planes is faster this way than by vectors of channels, with image and result transposed. (Measured
/// from 14 x 14 to 200 x 200 on a Zen 4. With a step of two, columns are copied one by one.)
pub(crate) fn suits_lines(w: &Windows) -> bool {
    w.stride[1] == 1 && w.out[0] >= LINES && w.out[1] >= LEAST_VECTORS * LANES
}

/// What of the kernel meets a line that a tile reads.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    /// For each line that is read, and each of the tile's: where the kernel's row begins that meets it there.
    rows: Vec<[Option<isize>; LINES]>,
}

impl Rows {
    /// Where there are no tiles of lines.
    pub(super) const NONE: Rows = Rows { rows: Vec::new() };

    /// Those of windows whose weights are `down` from row to row; the result must have [`LINES`] lines.
    pub(super) fn new(w: &Windows, down: isize) -> Rows {
        let reads = (LINES - 1) * w.stride[0] + w.kernel[0].saturating_sub(1) * w.dilation[0] + 1;
        let met = |read: usize, line: usize| {
            let below = read.checked_sub(line * w.stride[0]).filter(|n| n.is_multiple_of(w.dilation[0]))?;
            let row = below / w.dilation[0];
            (row < w.kernel[0]).then_some(row as isize * down)
        };
        let rows = (0..reads).map(|read| std::array::from_fn(|line| met(read, line))).collect();
        Rows { rows }
    }
}

impl Part<'_> {
    /// Whether the task is computed here.
    #[inline(always)]
    pub(super) fn takes_lines(&self) -> bool {
        [self.direct.group, self.direct.filters] == [1, 1] && self.lines.len() >= LINES
    }

    /// Computes the lines of the group's only filter.
    ///
    /// # Safety
    /// As [`Part::compute`], and the part must [take](Part::takes_lines) this way.
    #[inline(always)]
    pub(super) unsafe fn compute_lines<S: Simd>(&self, s: S) {
        let vectors = self.direct.windows.out[1].div_ceil(LANES);
        for first in (0..self.lines.len()).step_by(LINES) {
            // The last tile computes some lines again, unless their number is a multiple.
            let line = first.min(self.lines.len() - LINES);
            let mut vector = 0;
            while vector < vectors {
                // SAFETY: the caller's promise; these lines and vectors are the task's.
                vector += unsafe {
                    match vectors - vector {
                        4.. if const { S::GEMM_ROWS > 6 } => self.tile_of_lines::<S, 4>(s, [line, vector]),
                        2.. if const { S::GEMM_ROWS > 6 } => self.tile_of_lines::<S, 2>(s, [line, vector]),
                        _ => self.tile_of_lines::<S, 1>(s, [line, vector]),
                    }
                };
            }
        }
        self.apply(s, self.group, 1);
    }

    /// Computes [`LINES`] lines of N vectors, from this line and vector on. Gives N.
    ///
    /// # Safety
    /// As [`Part::compute_lines`], and the task must have the lines and the vectors.
    #[inline(always)]
    unsafe fn tile_of_lines<S: Simd, const N: usize>(&self, s: S, at: [usize; 2]) -> usize {
        s.enter(Tile::<N> { part: self, at });
        N
    }
}

/// [`LINES`] lines of N vectors, from this line and vector on: a function of its own, so that it has the registers to itself.
struct Tile<'a, const N: usize> {
    part: &'a Part<'a>,
    at: [usize; 2],
}

impl<const N: usize> Kernel for Tile<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Tile { part, at: [line, vector] } = self;
        let (d, of) = (part.direct, part.of);
        let (w, filter) = (&d.windows, part.group);
        let below = w.stride[1] * d.columns;
        let mut from = part.scratch.cast_const().wrapping_add(line * w.stride[0] * below + vector * LANES);
        let weights = d.weight(of.weights, filter);
        // SAFETY: `Direct::run`'s promises: scratch holds what all positions of a whole vector read, and the task has the lines.
        unsafe {
            let start = match of.bias {
                Some(bias) if of.bias_first => s.splat(*bias.add(filter)),
                _ => s.zero(),
            };
            // The sums are an array of their own, touched by constant indices only: that keeps them in registers.
            let mut acc = [[start; N]; LINES];
            if w.kernel[0] == 1 {
                // No line is in two windows.
                for right in d.positions() {
                    let weight = s.splat(*weights.wrapping_offset(right[1]));
                    each_row!(LINES, l => {
                        let line = from.wrapping_add(l * w.stride[0] * below).wrapping_offset(right[0]);
                        for i in 0..N {
                            acc[l][i] = s.mul_add(s.load(line.wrapping_add(i * LANES)), weight, acc[l][i]);
                        }
                    }; 0 1 2 3);
                }
            }
            for row in d.rows.rows.iter().filter(|_| w.kernel[0] > 1) {
                for right in d.positions() {
                    let mut inputs = [s.zero(); N];
                    for i in 0..N {
                        inputs[i] = s.load(from.wrapping_offset(right[0]).wrapping_add(i * LANES));
                    }
                    each_row!(LINES, l => {
                        if let Some(down) = row[l] {
                            let weight = s.splat(*weights.wrapping_offset(down + right[1]));
                            for i in 0..N {
                                acc[l][i] = s.mul_add(inputs[i], weight, acc[l][i]);
                            }
                        }
                    }; 0 1 2 3);
                }
                from = from.wrapping_add(below);
            }
            let added = of.bias.filter(|_| !of.bias_first);
            let light = of.activation.and_then(Light::of);
            each_row!(LINES, l => {
                let mut sums = acc[l];
                if let Some(bias) = added {
                    let bias = s.splat(*bias.add(filter));
                    for i in 0..N {
                        sums[i] = s.add(sums[i], bias);
                    }
                }
                if let Some(function) = light {
                    function.apply::<S, f32>(s, &mut sums);
                }
                let to = part.result(filter, part.lines.start + line + l).wrapping_add(vector * LANES);
                for i in 0..N {
                    let lanes = LANES.min(w.out[1] - (vector + i) * LANES);
                    s.store_upto(to.wrapping_add(i * LANES), lanes, sums[i]);
                }
            }; 0 1 2 3);
        }
    }
}
