//! The loops of [`pool`](super::pool) over lines of channels-last images: channels run in vectors, bytes in vectors of bytes.

use std::ops::Range;

use super::pool::Numbers;
use crate::gemm::Packed;
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// The windows of a pooling, and what is made of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    pub(super) largest: bool,
    pub(super) count_pad: bool,
    pub(super) kernel: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) dilation: [usize; 2],
    pub(super) before: [usize; 2],
    pub(super) after: [usize; 2],
}

/// The taps of a window that are within `0..n`, and how many are within the padded input.
pub(super) fn taps(w: &Windows, axis: usize, out: usize, n: usize) -> (Range<usize>, usize) {
    let (step, dilation, before) = (w.stride[axis], w.dilation[axis], w.before[axis]);
    let start = out * step;
    // A division takes as long as a vector of windows does.
    let taps = |n: usize| if dilation == 1 { n } else { n.div_ceil(dilation) };
    let below = taps(before.saturating_sub(start));
    let inside = |limit: usize| taps(limit.saturating_sub(start)).min(w.kernel[axis]);
    let end = inside(n + before);
    (below.min(end)..end, inside(n + before + w.after[axis]))
}

/// Pooling of an image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolPass<T> {
    windows: Windows,
    /// Lines and pixels of the image.
    size: [usize; 2],
    channels: usize,
    /// The image.
    pub(super) input: *const T,
    /// After how many lines the image begins again, where it is a ring buffer that holds the last lines; `usize::MAX` for an image
    /// as a whole.
    pub(super) wrap: usize,
    /// Where the first of the pixels that are computed is written.
    pub(super) output: *mut T,
}

// SAFETY: plain addresses; `run`, which uses them, is unsafe and says what must hold across threads.
unsafe impl<T> Send for PoolPass<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for PoolPass<T> {}

impl<T: Copy> PoolPass<T> {
    /// Of the image at `x`, with the first pixel at `y`.
    pub(super) fn new(windows: &Windows, s: &Numbers, (x, y): (*const T, *mut T)) -> PoolPass<T> {
        let (windows, size, channels) = (*windows, s.size, s.channels);
        PoolPass { windows, size, channels, input: x, wrap: usize::MAX, output: y }
    }

    /// The same of an image of one line whose pixels are taken for lines.
    pub(super) fn turned(self) -> PoolPass<T> {
        let (w, turn) = (self.windows, |[a, b]: [usize; 2]| [b, a]);
        let windows = Windows {
            kernel: turn(w.kernel),
            stride: turn(w.stride),
            dilation: turn(w.dilation),
            before: turn(w.before),
            after: turn(w.after),
            ..w
        };
        PoolPass { windows, size: turn(self.size), ..self }
    }

    /// The windows along the columns of line `row`.
    #[inline(always)]
    fn windows_of(&self, row: usize) -> LineTaps {
        let (w, line) = (&self.windows, self.size[1] * self.channels);
        let (taps, padded) = taps(w, 0, row, self.size[0]);
        let top = (row * w.stride[0] + taps.start * w.dilation[0]).wrapping_sub(w.before[0]);
        let top = if self.wrap == usize::MAX || taps.is_empty() { top } else { top % self.wrap };
        let ring = self.wrap.saturating_mul(line);
        LineTaps {
            count: taps.len(),
            padded,
            top: top.wrapping_mul(line),
            step: w.dilation[0].wrapping_mul(line),
            ring,
        }
    }

    /// The windows from above to below at this column: the elements from the line's first one to the first tap, the taps that are inside, and how
    /// many are within the padding.
    #[inline(always)]
    fn columns_of(&self, column: usize) -> (usize, usize, usize) {
        let w = &self.windows;
        let (taps, padded) = taps(w, 1, column, self.size[1]);
        let first = (column * w.stride[1] + taps.start * w.dilation[1]).wrapping_sub(w.before[1]);
        (first.wrapping_mul(self.channels), taps.len(), padded)
    }
}

/// The taps of a line's windows from above to below.
#[derive(Debug, Clone, Copy)]
struct LineTaps {
    /// How many are inside the image, and inside its padding.
    count: usize,
    padded: usize,
    /// Where in the image the line under the first of them begins, how far it is to the next one, and behind how many elements the image begins
    /// again.
    top: usize,
    step: usize,
    ring: usize,
}

impl LineTaps {
    /// The line under the next tap. A ring holds a window, so it begins again once at most.
    #[inline(always)]
    fn below(&self, line: usize) -> usize {
        let next = line.wrapping_add(self.step);
        if next < self.ring { next } else { next.wrapping_sub(self.ring) }
    }
}

impl<T: Packed> PoolPass<T> {
    /// Computes these columns of these lines of the result.
    ///
    /// # Safety
    /// The image must be readable as far as windows reach, the pixels of the result writable, one behind the other.
    pub(super) unsafe fn run(self, isa: Isa, lines: Range<usize>, columns: Range<usize>) {
        if self.windows.largest {
            isa.run(Pixels::<T, true> { pass: self, lines, columns });
        } else {
            isa.run(Pixels::<T, false> { pass: self, lines, columns });
        }
    }
}

/// Pixels of lines of the result: the largest values, or averages.
struct Pixels<T, const LARGEST: bool> {
    pass: PoolPass<T>,
    lines: Range<usize>,
    columns: Range<usize>,
}

impl<T: Packed, const LARGEST: bool> Kernel for Pixels<T, LARGEST> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Pixels { pass, columns, .. } = &self;
        let c = pass.channels;
        let mut to = pass.output;
        for row in self.lines.clone() {
            let lines = pass.windows_of(row);
            for column in columns.clone() {
                let (first, taps, padded) = pass.columns_of(column);
                let inside = lines.count * taps;
                let count = if pass.windows.count_pad { lines.padded * padded } else { inside };
                let divisor = simd.splat(count.max(1) as f32);
                let mut i = 0;
                // SAFETY: the taps are pixels of the image, this pixel of the result is there, and what is pooled is within its channels.
                unsafe {
                    while i + 4 * LANES <= c {
                        self.channels::<S, 4>(simd, &lines, (first + i, taps), divisor, to.add(i), LANES);
                        i += 4 * LANES;
                    }
                    // Two vectors of bf16 take little longer than one. (Of other types the code is not worth its room.)
                    while const { size_of::<T>() == 2 } && i + 2 * LANES <= c {
                        self.channels::<S, 2>(simd, &lines, (first + i, taps), divisor, to.add(i), LANES);
                        i += 2 * LANES;
                    }
                    while i < c {
                        let n = LANES.min(c - i);
                        self.channels::<S, 1>(simd, &lines, (first + i, taps), divisor, to.add(i), n);
                        i += LANES;
                    }
                }
                to = to.wrapping_add(c);
            }
        }
    }
}

impl<T: Packed, const LARGEST: bool> Pixels<T, LARGEST> {
    /// `V` vectors of `n` channels each, which are whole unless it is one, of a pixel of the result at `to`. Its window has `taps` columns, the
    /// first of them `first` elements behind where its lines begin; an average is divided by `divisor`.
    ///
    /// # Safety
    /// The taps must be pixels of the image, the pixel of the result writable, and the vectors within the channels.
    #[inline(always)]
    unsafe fn channels<S: Simd, const V: usize>(
        &self,
        s: S,
        lines: &LineTaps,
        (first, taps): (usize, usize),
        divisor: S::F,
        to: *mut T,
        n: usize,
    ) {
        let pass = &self.pass;
        let right = pass.windows.dilation[1].wrapping_mul(pass.channels);
        let mut acc = [s.splat(if LARGEST { f32::NEG_INFINITY } else { 0.0 }); V];
        let mut from = pass.input.wrapping_add(first);
        for _ in 0..taps {
            let (mut sum, mut line) = ([s.zero(); V], lines.top);
            for k in 0..lines.count {
                // SAFETY: the caller's promise.
                let tap = unsafe { load::<S, T, V>(s, from.wrapping_add(line), n) };
                for v in 0..V {
                    if LARGEST {
                        acc[v] = s.max(tap[v], acc[v]);
                    } else {
                        // The order of planes, whose lines are joined before their columns.
                        sum[v] = if k == 0 { tap[v] } else { s.add(sum[v], tap[v]) };
                    }
                }
                line = lines.below(line);
            }
            if !LARGEST && lines.count > 0 {
                for v in 0..V {
                    acc[v] = s.add(acc[v], sum[v]);
                }
            }
            from = from.wrapping_add(right);
        }
        if !LARGEST {
            for acc in &mut acc {
                *acc = s.div(*acc, divisor);
            }
        }
        // SAFETY: the caller's promise.
        unsafe {
            if const { V == 1 } {
                return T::store(s, to, n, acc[0]);
            }
            for v in (0..V - 1).step_by(2) {
                T::store_two(s, to.wrapping_add(v * LANES), [acc[v], acc[v + 1]]);
            }
        }
    }
}

/// One vector of `n` elements, or an even number of whole ones, each two of them in the order of [`Packed::load_two`].
///
/// # Safety
/// They must be readable.
#[inline(always)]
unsafe fn load<S: Simd, T: Packed, const V: usize>(s: S, from: *const T, n: usize) -> [S::F; V] {
    let mut x = [s.zero(); V];
    // SAFETY: the caller's promise.
    unsafe {
        if const { V == 1 } {
            x[0] = T::load(s, from, n);
            return x;
        }
        for v in (0..V - 1).step_by(2) {
            [x[v], x[v + 1]] = T::load_two(s, from.wrapping_add(v * LANES));
        }
    }
    x
}

/// Pixels of lines of the largest bytes.
pub(super) struct Largest<T> {
    pub(super) pass: PoolPass<T>,
    pub(super) lines: Range<usize>,
    pub(super) columns: Range<usize>,
    pub(super) least: T,
}

impl<T: Copy + Ord> Kernel for Largest<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let pass = &self.pass;
        let (c, mut to) = (pass.channels, pass.output);
        for row in self.lines.clone() {
            let lines = pass.windows_of(row);
            for column in self.columns.clone() {
                let (first, taps, _) = pass.columns_of(column);
                let mut i = 0;
                while i < c {
                    // SAFETY: the taps are pixels of the image, this pixel of the result is there, and i + n ≤ c.
                    i += unsafe {
                        match c - i {
                            64.. => self.channels::<64>(&lines, (first + i, taps), to.add(i)),
                            16.. => self.channels::<16>(&lines, (first + i, taps), to.add(i)),
                            _ => self.channels::<1>(&lines, (first + i, taps), to.add(i)),
                        }
                    };
                }
                to = to.wrapping_add(c);
            }
        }
    }
}

impl<T: Copy + Ord> Largest<T> {
    /// `N` channels of a pixel of the result at `to`, whose window has `taps` columns, the first of them `first` elements behind where its lines
    /// begin; how many that are.
    ///
    /// # Safety
    /// The taps must be pixels of the image, and the pixel of the result writable, for so many channels.
    #[inline(always)]
    unsafe fn channels<const N: usize>(
        &self,
        lines: &LineTaps,
        (first, taps): (usize, usize),
        to: *mut T,
    ) -> usize {
        let pass = &self.pass;
        let right = pass.windows.dilation[1].wrapping_mul(pass.channels);
        let (mut largest, mut line) = ([self.least; N], lines.top);
        for _ in 0..lines.count {
            let mut from = pass.input.wrapping_add(line).wrapping_add(first);
            for _ in 0..taps {
                // SAFETY: the caller's promise; an array is aligned as its elements are.
                let tap = unsafe { from.cast::<[T; N]>().read() };
                for n in 0..N {
                    largest[n] = largest[n].max(tap[n]);
                }
                from = from.wrapping_add(right);
            }
            line = lines.below(line);
        }
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[T; N]>().write(largest) };
        N
    }
}
