//! Depthwise convolution: every channel has a kernel of its own, so a vector of sixteen channels needs no other.
//!
//! A line is cut into tiles of 8, 7 or 4 positions. The pixels that a tile reads are found once for all channels; those in the padding are
//! zeros, so that the windows at the edges, which are most of a narrow image's, are computed like all others. A vector of a pixel is loaded
//! once for all positions of a line of the kernel that it is in. Where windows have gaps, a tile takes every second position (or third, …), and
//! every second pixel. Kernels of other forms, and processors with few registers, take positions whose windows are within the image together, and
//! the others one by one.

use std::ops::Range;

use super::{WindowPass, spacing, tile_width};
use crate::gemm::Packed;
use crate::math::Light;
use crate::simd::{LANES, Simd};

/// The most lines, and pixels in a line, that a tile reads: those of 8 windows of 5 that are 2 apart.
const MOST: [usize; 2] = [5, 19];

/// Zeros that stand for so many channels of a pixel in the padding, and for a vector before them.
static ZEROS: [f32; LANES + CHANNELS] = [0.0; LANES + CHANNELS];
const CHANNELS: usize = 1024;

/// Computes an output line.
///
/// # Safety
/// As [`WindowPass::run`].
#[inline(always)]
pub(super) unsafe fn line<S: Simd, T: Packed>(s: S, pass: &WindowPass<T>, task: usize, light: Option<Light>) {
    let w = &pass.windows;
    let apart = spacing(w);
    let at = Line { pass, task, light, spacing: apart.unwrap_or(1) };
    // SAFETY: the caller's promise.
    unsafe {
        match (w.kernel, w.stride[1]) {
            _ if S::GEMM_ROWS <= 6 || apart.is_none() => at.in_any_form(s),
            _ if w.channels < LANES || w.kernel[0] > MOST[0] => at.in_any_form(s),
            ([_, 3], 1) => at.in_tiles::<S, 3, 1>(s),
            ([_, 5], 1) => at.in_tiles::<S, 5, 1>(s),
            // Neighbouring windows share less: what is gained is at the edges.
            ([5, 5], 2) if w.out[1] <= 8 => at.in_tiles::<S, 5, 2>(s),
            _ => at.in_any_form(s),
        }
    }
}

/// A line that is computed.
struct Line<'a, T> {
    pass: &'a WindowPass<T>,
    task: usize,
    light: Option<Light>,
    /// From one position of a tile to the next.
    spacing: usize,
}

impl<T: Packed> Line<'_, T> {
    /// Computes the line in tiles of equal width. The last one may begin before the end of the one before it; what both compute is the same.
    ///
    /// # Safety
    /// As [`line`]; windows have KERNEL pixels in a line, without gaps where their step is STRIDE, and channels fill a vector.
    #[inline(always)]
    unsafe fn in_tiles<S: Simd, const KERNEL: usize, const STRIDE: usize>(&self, s: S) {
        let width = self.pass.windows.out[1];
        for first in 0..self.spacing.min(width) {
            // SAFETY: the caller's promise; a tile is at most as wide as what it is of.
            unsafe {
                match tile_width(width / self.spacing, [8, 7, 4]) {
                    Some(8) => self.tiles::<S, 8, KERNEL, STRIDE>(s, first),
                    Some(7) => self.tiles::<S, 7, KERNEL, STRIDE>(s, first),
                    Some(_) => self.tiles::<S, 4, KERNEL, STRIDE>(s, first),
                    None => return self.in_any_form(s),
                }
            }
        }
    }

    /// Computes the positions from `first` on that are `spacing` apart, at least N, N at a time. The last vector of channels may begin within
    /// the one before it, too.
    ///
    /// # Safety
    /// As [`Line::in_tiles`].
    #[inline(always)]
    unsafe fn tiles<S: Simd, const N: usize, const KERNEL: usize, const STRIDE: usize>(
        &self,
        s: S,
        first: usize,
    ) {
        let w = &self.pass.windows;
        let (c, spacing, whole) = (w.channels, self.spacing, w.whole(1));
        let positions = (w.out[1] - first).div_ceil(spacing);
        let (rows, _) = self.pass.rows(self.task);
        for tile in 0..positions.div_ceil(N) {
            let x = first + (tile * N).min(positions - N) * spacing;
            // SAFETY: the caller's promise; all pixels are within the image or zeros.
            unsafe {
                if whole.contains(&x) && whole.contains(&(x + (N - 1) * spacing)) {
                    let starts = self.starts(x * STRIDE - w.pad[1]);
                    let apart = spacing * c;
                    for ch in (0..c).step_by(LANES) {
                        let ch = ch.min(c - LANES);
                        let pixel =
                            |line: usize, i: usize| starts[line].wrapping_add(ch).wrapping_add(i * apart);
                        self.tile::<S, N, KERNEL, STRIDE>(s, pixel, &rows, x, ch);
                    }
                    continue;
                }
                for first in (0..c).step_by(CHANNELS) {
                    let pixels = self.pixels::<N, KERNEL, STRIDE>(x, first);
                    for ch in (first..c.min(first + CHANNELS)).step_by(LANES) {
                        let ch = ch.min(c - LANES);
                        let pixel = |line: usize, i: usize| pixels[line][i].wrapping_add(ch);
                        self.tile::<S, N, KERNEL, STRIDE>(s, pixel, &rows, x, ch);
                    }
                }
            }
        }
    }

    /// The pixels `at` of the lines that are read.
    #[inline(always)]
    fn starts(&self, at: usize) -> [*const T; MOST[0]] {
        let (pass, w) = (self.pass, &self.pass.windows);
        let (rows, mut line) = pass.rows(self.task);
        let mut starts = [pass.input; MOST[0]];
        for start in starts.iter_mut().take(rows.len()) {
            *start = pass.input.wrapping_add((line * w.size[1] + at) * w.channels);
            line = pass.below(line);
        }
        starts
    }

    /// The pixels that N windows from `x` on read, where channels from `first` on are: those in the padding are zeros.
    #[inline(always)]
    fn pixels<const N: usize, const KERNEL: usize, const STRIDE: usize>(
        &self,
        x: usize,
        first: usize,
    ) -> [[*const T; MOST[1]]; MOST[0]] {
        let w = &self.pass.windows;
        let left = (x * STRIDE) as isize - w.pad[1] as isize;
        let zeros = ZEROS.as_ptr().cast::<T>().wrapping_add(LANES).wrapping_sub(first);
        let mut pixels = [[zeros; MOST[1]]; MOST[0]];
        for (pixels, start) in pixels.iter_mut().zip(self.starts(0)) {
            for (i, pixel) in pixels.iter_mut().enumerate().take((N - 1) * STRIDE + KERNEL) {
                // Negative positions become huge.
                let at = (left + (i * self.spacing) as isize) as usize;
                if at < w.size[1] {
                    *pixel = start.wrapping_add(at * w.channels);
                }
            }
        }
        pixels
    }

    /// Computes a vector of channels from `ch` on of N positions from `x` on, by these lines of the kernel. `pixel` gives what the windows
    /// read: a pixel of a line, counted from the left.
    ///
    /// # Safety
    /// As [`Line::in_tiles`]; the vector from `ch` on must be within the channels, and each pixel be one of the image or of zeros for them.
    #[inline(always)]
    unsafe fn tile<S: Simd, const N: usize, const KERNEL: usize, const STRIDE: usize>(
        &self,
        s: S,
        pixel: impl Fn(usize, usize) -> *const T,
        rows: &Range<usize>,
        x: usize,
        ch: usize,
    ) {
        let c = self.pass.windows.channels;
        // SAFETY: the caller's promise; ch + the vector's lanes ≤ c.
        unsafe {
            let mut acc = [self.start(s, ch, LANES); N];
            for (line, ky) in rows.clone().enumerate() {
                let mut inputs = [s.zero(); MOST[1]];
                for i in 0..(N - 1) * STRIDE + KERNEL {
                    inputs[i] = T::load(s, pixel(line, i), LANES);
                }
                let weights = self.pass.weights.add(ky * KERNEL * c + ch);
                for kx in 0..KERNEL {
                    let weight = T::load(s, weights.add(kx * c), LANES);
                    for i in 0..N {
                        acc[i] = s.mul_add(inputs[i * STRIDE + kx], weight, acc[i]);
                    }
                }
            }
            self.write(s, [x, self.spacing], ch, LANES, acc);
        }
    }

    /// What the sums of `lanes` channels from `ch` on start from.
    ///
    /// # Safety
    /// The bias must be readable.
    #[inline(always)]
    unsafe fn start<S: Simd>(&self, s: S, ch: usize, lanes: usize) -> S::F {
        match self.pass.bias {
            // SAFETY: the caller's promise.
            Some(bias) => unsafe { T::load(s, bias.add(ch), lanes) },
            None => s.zero(),
        }
    }

    /// Writes the sums of the positions from `x` on, so far apart.
    ///
    /// # Safety
    /// The output must be writable there.
    #[inline(always)]
    unsafe fn write<S: Simd, const N: usize>(
        &self,
        s: S,
        [x, spacing]: [usize; 2],
        ch: usize,
        lanes: usize,
        mut acc: [S::F; N],
    ) {
        let w = &self.pass.windows;
        // SAFETY: the caller's promise.
        unsafe {
            let out = self.pass.output.add((self.task * w.out[1] + x) * w.channels + ch);
            if let Some(function) = self.light {
                function.apply::<S, T>(s, &mut acc);
            }
            for (i, x) in acc.into_iter().enumerate() {
                T::store_sum(s, out.add(i * spacing * w.channels), lanes, x);
            }
        }
    }

    /// Computes the line by any windows: positions together whose windows are within the image, the others one by one.
    ///
    /// # Safety
    /// As [`line`].
    #[inline(always)]
    unsafe fn in_any_form<S: Simd>(&self, s: S) {
        let w = &self.pass.windows;
        let whole = w.whole(1);
        let (rows, line) = self.pass.rows(self.task);
        let mut x = 0;
        while x < w.out[1] {
            let inside = whole.contains(&x);
            let columns = if inside { 0..w.kernel[1] } else { w.inside(1, x) };
            let left = if inside { whole.end - x } else { 1 };
            let at = Place { line, x, rows: rows.clone(), columns };
            // SAFETY: the caller's promise.
            x += unsafe {
                match left {
                    8.. if S::GEMM_ROWS > 6 => self.positions::<S, 8, 2>(s, &at),
                    4.. if S::GEMM_ROWS > 6 => self.positions::<S, 4, 4>(s, &at),
                    4.. => self.positions::<S, 4, 2>(s, &at),
                    _ => self.positions::<S, 1, 4>(s, &at),
                }
            };
        }
    }

    /// Computes N neighbouring output positions, all channels, V vectors at a time: so many sums that a multiply-add need not wait for the
    /// one before. Gives N.
    ///
    /// # Safety
    /// As [`line`]; the kernel positions of `at` must be within the image for all N.
    #[inline(always)]
    unsafe fn positions<S: Simd, const N: usize, const V: usize>(&self, s: S, at: &Place) -> usize {
        let c = self.pass.windows.channels;
        let mut ch = 0;
        // SAFETY: the caller's promise; ch + lanes ≤ c.
        unsafe {
            while ch + V * LANES <= c {
                self.sums::<S, N, V>(s, at, ch, LANES);
                ch += V * LANES;
            }
            while ch + LANES <= c {
                self.sums::<S, N, 1>(s, at, ch, LANES);
                ch += LANES;
            }
            if ch < c {
                self.sums::<S, N, 1>(s, at, ch, c - ch);
            }
        }
        N
    }

    /// Computes N neighbouring output positions of V vectors of `lanes` channels from `ch` on.
    ///
    /// # Safety
    /// As [`Line::positions`]; the vectors must be within the channels.
    #[inline(always)]
    unsafe fn sums<S: Simd, const N: usize, const V: usize>(
        &self,
        s: S,
        at: &Place,
        ch: usize,
        lanes: usize,
    ) {
        let (pass, w) = (self.pass, &self.pass.windows);
        let c = w.channels;
        // SAFETY: the caller's promise; all pixels are within the image and the channels below c.
        unsafe {
            let mut acc = [[s.zero(); N]; V];
            for (v, acc) in acc.iter_mut().enumerate() {
                *acc = [self.start(s, ch + v * LANES, lanes); N];
            }
            let mut line = at.line;
            let x = at.x * w.stride[1];
            for ky in at.rows.clone() {
                let start = pass.input.wrapping_add(line * w.size[1] * c + ch);
                let weights = pass.weights.add(ky * w.kernel[1] * c + ch);
                for kx in at.columns.clone() {
                    let p = start.wrapping_add((x + kx * w.dilation[1] - w.pad[1]) * c);
                    for (v, acc) in acc.iter_mut().enumerate() {
                        let weight = T::load(s, weights.add(kx * c + v * LANES), lanes);
                        for (i, acc) in acc.iter_mut().enumerate() {
                            let x = T::load(s, p.add(i * w.stride[1] * c + v * LANES), lanes);
                            *acc = s.mul_add(x, weight, *acc);
                        }
                    }
                }
                line = pass.below(line);
            }
            for (v, acc) in acc.into_iter().enumerate() {
                self.write(s, [at.x, 1], ch + v * LANES, lanes, acc);
            }
        }
    }
}

/// An output position, and the kernel positions of its window that are within the image.
struct Place {
    /// The input's line under the first of the rows.
    line: usize,
    x: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}
