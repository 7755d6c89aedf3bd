//! From planes to planes (NCHW) as a matmul of the filters by the image's columns (im2col), which transposes nothing.
//!
//! `result[filters, pixels] = filters[filters, taps · channels] · columns[taps · channels, pixels]`. The packed filters are its rows
//! ([`PackedColumns`]), and its panels are pixels of the result, of which a thread copies as many as stay in the second-level cache. A result is
//! the same chain of multiply-adds as where pixels are the rows, so it has the same bits.
//!
//! The columns of a window of one pixel are pixels of the image itself. Those of others are copied from planes with their border ([`Bordered`]), where
//! what a tap reads for a line of the result is neighbours.

use std::ops::Range;

use super::planes::{Blocks, Planes};
use super::{Conv, Route, Shape, Window};
use crate::gemm::{Ahead, Bias, Gemm, PANEL, PackedColumns};
use crate::isa::Kernel;
use crate::kernels::{RunCx, Shared};
use crate::simd::{LANES, Simd};
use crate::window::copy_every;

/// Units of work. Of many blocks each is one. Few are divided into as many shares of the filters as they have vectors of pixels, so that units take
/// equally long, though the last block of an image is smaller: threads that get as many units end together.
#[derive(Debug, Clone, Copy)]
struct Units {
    blocks: Blocks,
    /// Pixels of a block for each unit of it.
    pixels: usize,
}

/// Some of the units, of one block.
#[derive(Debug, PartialEq)]
struct Part {
    image: usize,
    /// The pixels of the block.
    pixels: Range<usize>,
    /// From which share of the filters to which one, and how many there are.
    share: [usize; 3],
}

impl Units {
    fn of(blocks: Blocks) -> Units {
        // The columns of a block that two threads share are copied twice.
        let pixels = if blocks.len() < FEWEST { LANES } else { blocks.rows };
        Units { blocks, pixels }
    }

    fn of_image(&self) -> usize {
        self.blocks.pixels.div_ceil(self.pixels)
    }

    fn len(&self) -> usize {
        self.blocks.images * self.of_image()
    }

    /// Takes the units of one block from the front of a range.
    fn next(&self, range: &mut Range<usize>) -> Option<Part> {
        let first = range.clone().next()?;
        let (image, unit) = (first / self.of_image(), first % self.of_image());
        let of_block = self.blocks.rows / self.pixels;
        let (image, pixels) = self.blocks.place(image * self.blocks.of_image() + unit / of_block);
        let (start, of) = (unit % of_block, pixels.len().div_ceil(self.pixels));
        let end = of.min(start + range.len());
        range.start += end - start;
        Some(Part { image, pixels, share: [start, end, of] })
    }
}

/// Bytes of the panels that are copied at a time.
const BLOCK: usize = 256 << 10;

/// Panels of more bytes would be read from memory again for each tile of filters.
const MOST_OF_PANEL: usize = 4 * BLOCK;

/// Blocks of an image, where it has as many panels: work for threads.
const FEWEST: usize = 8;

/// Images of fewer pixels are transposed: their last panel is a large part of them.
const LEAST: usize = 2 * PANEL;

/// Copying one run of neighbours, at most a vector, takes as long as so many multiply-adds of vectors.
const COPYING: f64 = 14.0;

/// Planes with their border, and every `steps`-th pixel of a line beside each other, as windows with that step read them: first those from 0 on,
/// then those from 1 on, and so on. They have as many frames, lines and pixels as windows reach.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bordered {
    /// Frames and lines of a plane.
    size: [usize; 2],
    /// Pixels of a line that are beside each other, and how many times that is a line.
    run: usize,
    steps: usize,
}

impl Bordered {
    fn of(s: &Shape, window: &Window) -> Bordered {
        let reach = |d: usize| {
            let taps = s.kernel[d].saturating_sub(1).saturating_mul(window.dilation[d]);
            s.out[d].saturating_sub(1).saturating_mul(window.stride[d]).saturating_add(taps).saturating_add(1)
        };
        // Windows of one column read every so many pixels only.
        let steps = if s.kernel[2] == 1 { 1 } else { window.stride[2] };
        Bordered { size: [reach(0), reach(1)], run: reach(2).div_ceil(window.stride[2]), steps }
    }

    fn line(&self) -> usize {
        self.steps.saturating_mul(self.run)
    }

    fn plane(&self) -> usize {
        self.size.iter().fold(self.line(), |n, &size| n.saturating_mul(size))
    }
}

impl Shape {
    /// Whether the columns are the image itself, or every so many pixels of it.
    fn is_one_pixel(&self, window: &Window) -> bool {
        self.kernel == [1; 3] && window.before == [0; 3] && window.after == [0; 3]
    }

    /// Takes the way of this module, where both ends are planes, and it has less to do than `others` (see [`Shape::direct_cost`]).
    pub(super) fn take_im2col(&mut self, window: &Window, others: f64) {
        let (Some(_), Some(y)) = (self.ends.x, self.ends.y) else { return };
        if y.pixels < LEAST {
            return;
        }
        let panel = (self.depth() * (PANEL * size_of::<f32>()) as f64) as usize;
        if self.is_one_pixel(window) || panel <= MOST_OF_PANEL && self.im2col_cost(&y, window) < others {
            self.route = Route::Im2col;
        }
    }

    /// Multiply-adds of vectors for a pixel of the result.
    fn im2col_cost(&self, y: &Planes, window: &Window) -> f64 {
        let (pixels, width) = (y.pixels as f64, self.out[2].max(1));
        let vectors = y.pixels.div_ceil(LANES) as f64 / pixels;
        // Runs end with their line, and some with a panel.
        let runs = (width.div_ceil(LANES) as f64 + 0.5) / width as f64;
        let border = self.channels as f64 * Bordered::of(self, window).plane() as f64 / LANES as f64;
        self.depth() * (self.filters as f64 * vectors + COPYING * runs) + COPYING * border / pixels
    }

    /// How a result of these planes is divided.
    fn panels(&self, y: &Planes) -> Blocks {
        let depth = self.kernel.iter().product::<usize>() * self.channels;
        let fitting = BLOCK / (depth * PANEL * size_of::<f32>()).max(1);
        let share = y.pixels.div_ceil(FEWEST).div_ceil(PANEL);
        Blocks { images: y.images, pixels: y.pixels, rows: fitting.clamp(1, share.max(1)) * PANEL }
    }

    /// Elements of the columns of a block, and how many runs they may be in.
    fn block(&self) -> [usize; 2] {
        let rows = self.ends.y.map_or(0, |y| self.panels(&y).rows);
        let depth = self.kernel.iter().product::<usize>().saturating_mul(self.channels);
        [rows.saturating_mul(depth), rows]
    }
}

impl Conv {
    /// Bytes of a thread's scratch.
    pub(super) fn im2col_scratch(&self, s: &Shape) -> usize {
        let [columns, runs] = s.block();
        columns.saturating_mul(size_of::<f32>()).saturating_add(runs * size_of::<Run>())
    }

    /// Elements of the planes with their border; `None` if those are too many to count.
    pub(super) fn im2col_border(&self, s: &Shape) -> Option<usize> {
        if s.is_one_pixel(&self.window) {
            return Some(0);
        }
        let plane = Bordered::of(s, &self.window).plane();
        s.batch.checked_mul(s.channels)?.checked_mul(plane).filter(|&all| all < usize::MAX / 2)
    }

    /// Computes the convolution.
    ///
    /// # Safety
    /// As [`StepKernel::run`](crate::kernels::StepKernel::run); the operands must be of f32, and the route that of this module.
    pub(super) unsafe fn run_im2col(&self, cx: &mut RunCx<'_, '_>, s: &Shape) {
        let (Some(x), Some(y)) = (s.ends.x, s.ends.y) else { return };
        // SAFETY: the caller's promise.
        let (filters, source) = unsafe { (self.weights_at::<f32>(cx, s), self.source(cx, s, &x)) };
        let mut epilogue = self.epilogue::<f32>(cx, s, 0);
        if let Bias::PerColumn(bias) | Bias::OfSum(bias) = epilogue.bias {
            epilogue.bias = Bias::PerRow(bias);
        }
        let depth = source.taps() * source.channels;
        let whole = Gemm {
            m: s.filters,
            n: y.pixels,
            k: depth,
            rows: PackedColumns { panels: filters.get().cast_const(), depth, first: 0 },
            b: std::ptr::null(),
            c: cx.ptr::<f32>(y.at),
            c_stride: y.plane,
            epilogue,
            tile_sizes: self.tile_sizes,
            ahead: Ahead::Nothing,
            wide: None,
        };
        let (isa, [columns, _], units) = (cx.isa, s.block(), Units::of(s.panels(&y)));
        cx.parallel(s.worth, units.len(), &|mut range, scratch| {
            let to = scratch.cast::<f32>();
            while let Some(Part { image, pixels, share: [start, end, of] }) = units.next(&mut range) {
                let mut gemm = whole;
                (gemm.n, gemm.b) = (pixels.len(), to.cast_const());
                gemm.c = gemm.c.wrapping_add(image * y.image + pixels.start);
                let all = gemm.tasks(isa);
                // SAFETY: the caller's promise; tasks are disjoint, and the scratch is the thread's own, with room for a run for each pixel.
                unsafe {
                    let runs = to.wrapping_add(columns).cast::<Run>();
                    let count = source.runs(pixels.clone(), runs);
                    let runs = std::slice::from_raw_parts(runs, count);
                    isa.run(Columns { source: &source, image, runs, pixels: pixels.len(), to });
                    gemm.run(isa, all * start / of..all * end / of);
                }
            }
        });
    }

    /// Where the columns are copied from: the image, or a copy with its border, which is made now.
    ///
    /// # Safety
    /// As [`Conv::run_im2col`].
    unsafe fn source(&self, cx: &mut RunCx<'_, '_>, s: &Shape, x: &Planes) -> Source {
        let Window { stride, dilation, .. } = self.window;
        let [_, height, width] = s.size;
        let from = cx.shared::<f32>(x.at);
        let mut source = Source {
            from,
            channels: s.channels,
            kernel: s.kernel,
            out: s.out,
            dilation,
            image: x.image,
            plane: x.plane,
            frame: height * width,
            line: width,
            step: stride,
            run: 0,
            apart: stride[2],
            whole: stride == [1; 3],
        };
        if s.is_one_pixel(&self.window) {
            return source;
        }
        let bordered = Bordered::of(s, &self.window);
        let to = Shared::new(cx.shared_scratch.wrapping_add(s.parts[0]).cast::<f32>());
        let (isa, [frames, lines]) = (cx.isa, bordered.size);
        let (before, size, kernel) = (self.window.before, s.size, s.kernel);
        cx.parallel(s.worth, s.batch * s.channels, &|range, _| {
            for plane in range {
                let (image, channel) = (plane / s.channels, plane % s.channels);
                let from = from.get().wrapping_add(image * x.image + channel * x.plane).cast_const();
                let to = to.get().wrapping_add(plane * bordered.plane());
                for at in 0..frames * lines {
                    let (z, y) = (at / lines, at % lines);
                    // Lines that no window reads.
                    if kernel[1] == 1 && y % stride[1] != 0 || kernel[0] == 1 && z % stride[0] != 0 {
                        continue;
                    }
                    let (z, y) = (z.wrapping_sub(before[0]), y.wrapping_sub(before[1]));
                    let inside = z < size[0] && y < size[1];
                    let from = inside.then(|| from.wrapping_add((z * size[1] + y) * size[2]));
                    let to = to.wrapping_add(at * bordered.line());
                    // What is at `to` is the line's own, and there is scratch for all planes; the image's line is as wide.
                    isa.run(Line { from, width: size[2], left: before[2], stride: stride[2], to, bordered });
                }
            }
        });
        source.from = to;
        source.image = s.channels * bordered.plane();
        source.plane = bordered.plane();
        source.frame = lines * bordered.line();
        source.line = bordered.line();
        (source.run, source.apart, source.whole) = (bordered.run, 1, false);
        source
    }
}

/// A line of a plane with its border.
struct Line {
    /// `None` for a line of the border.
    from: Option<*const f32>,
    width: usize,
    /// Pixels of the border at the left.
    left: usize,
    stride: usize,
    to: *mut f32,
    bordered: Bordered,
}

impl Kernel for Line {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Bordered { run, steps, .. } = self.bordered;
        for first in 0..steps {
            let to = self.to.wrapping_add(first * run);
            // The pixels of the image are those from `start` to `end` of the run.
            let start = self.left.saturating_sub(first).div_ceil(self.stride).min(run);
            let end = (self.left + self.width).saturating_sub(first).div_ceil(self.stride).clamp(start, run);
            let (start, end) = if self.from.is_some() { (start, end) } else { (run, run) };
            // SAFETY: `source` has a whole line at `to`, and what is read is within the line of the image.
            unsafe {
                std::slice::from_raw_parts_mut(to, start).fill(0.0);
                std::slice::from_raw_parts_mut(to.wrapping_add(end), run - end).fill(0.0);
                if let Some(from) = self.from.filter(|_| start < end) {
                    let from = from.wrapping_add(start * self.stride + first - self.left);
                    copy(s, from, self.stride, to.wrapping_add(start), end - start);
                }
            }
        }
    }
}

/// Planes that columns are copied from.
struct Source {
    from: Shared<f32>,
    channels: usize,
    kernel: [usize; 3],
    out: [usize; 3],
    dilation: [usize; 3],
    /// Elements from one image, plane, frame, line to the next.
    image: usize,
    plane: usize,
    frame: usize,
    line: usize,
    /// Frames, lines and pixels of the image from one window to the next.
    step: [usize; 3],
    /// With a border, how many pixels of a line are beside each other (see [`Bordered`]).
    run: usize,
    /// Elements from the pixel of one window to that of the next.
    apart: usize,
    /// Whether the pixels of the result are those of a plane.
    whole: bool,
}

/// Neighbours, in a plane as in a panel: at most a row of a panel, or a vector where lines are to be told apart.
#[derive(Clone, Copy)]
struct Run {
    /// Where they are in a plane, behind where a tap begins, and in the panels.
    from: usize,
    to: usize,
    lanes: usize,
}

impl Source {
    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// The runs of some pixels of the result.
    ///
    /// # Safety
    /// There must be room for one for each pixel at `runs`.
    unsafe fn runs(&self, block: Range<usize>, runs: *mut Run) -> usize {
        let ([_, lines, width], depth) = (self.out, self.taps() * self.channels);
        let (mut count, mut pixel) = (0, block.start);
        while pixel < block.end {
            let (from, line) = if self.whole {
                (pixel, usize::MAX)
            } else {
                let (line, x) = (pixel / width, pixel % width);
                let (frame, y) = (line / lines, line % lines);
                (frame * self.step[0] * self.frame + y * self.step[1] * self.line + x * self.apart, width - x)
            };
            let column = pixel - block.start;
            let lanes = line.min(PANEL - column % PANEL).min(block.end - pixel);
            let lanes = if self.whole { lanes } else { lanes.min(LANES) };
            let to = column / PANEL * depth * PANEL + column % PANEL;
            // SAFETY: a run has a pixel at least, and there is room for one for each.
            unsafe { runs.add(count).write(Run { from, to, lanes }) };
            (count, pixel) = (count + 1, pixel + lanes);
        }
        count
    }

    /// Where tap `(kz, ky, kx)` begins in a plane.
    fn tap(&self, [kz, ky, kx]: [usize; 3]) -> usize {
        let [dz, dy, dx] = self.dilation;
        let (x, step) = (kx * dx, self.step[2]);
        kz * dz * self.frame + ky * dy * self.line + x % step * self.run + x / step
    }
}

/// Copies the columns of some pixels of the result into panels.
struct Columns<'a> {
    source: &'a Source,
    image: usize,
    runs: &'a [Run],
    pixels: usize,
    to: *mut f32,
}

impl Kernel for Columns<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Columns { source, image, runs, pixels, to } = self;
        let ([_, high, wide], channels) = (source.kernel, source.channels);
        let depth = source.taps() * channels;
        let image = source.from.get().wrapping_add(image * source.image).cast_const();
        for tap in 0..source.taps() {
            let from = image.wrapping_add(source.tap([tap / wide / high, tap / wide % high, tap % wide]));
            let to = to.wrapping_add(tap * channels * PANEL);
            for channel in 0..channels {
                let (from, to) =
                    (from.wrapping_add(channel * source.plane), to.wrapping_add(channel * PANEL));
                for &Run { from: at, to: place, lanes } in runs {
                    // SAFETY: `run_im2col` was promised the planes, or has copied them, and has scratch for the panels.
                    unsafe { copy(s, from.add(at), source.apart, to.add(place), lanes) };
                }
            }
        }
        // The last vector is whole, and must not have numbers by which to multiply takes long.
        for column in pixels..pixels.next_multiple_of(LANES) {
            let last = to.wrapping_add(column / PANEL * depth * PANEL + column % PANEL);
            for row in 0..depth {
                // SAFETY: the vector is within its panel.
                unsafe { *last.wrapping_add(row * PANEL) = 0.0 };
            }
        }
    }
}

/// Copies `count` elements that are `step` apart to neighbours.
///
/// # Safety
/// All must be readable, and writable there.
#[inline(always)]
unsafe fn copy<S: Simd>(s: S, from: *const f32, step: usize, to: *mut f32, count: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match (step, count) {
            (1, PANEL) => {
                for v in 0..PANEL / LANES {
                    s.store(to.add(v * LANES), s.load(from.add(v * LANES)));
                }
            }
            (1, ..=LANES) => s.store_upto(to, count, s.load_upto(from, count)),
            (1, _) => {
                for i in (0..count).step_by(LANES) {
                    let lanes = LANES.min(count - i);
                    s.store_upto(to.add(i), lanes, s.load_upto(from.add(i), lanes));
                }
            }
            _ => copy_every(s, from, step, to, count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever ranges of units threads get, the filters of each block are computed once.
    #[test]
    fn ranges_of_units_are_all_shares_of_all_blocks() {
        for (pixels, shares) in [(441, 28), (96 * 9 + 1, 10)] {
            for images in [1, 2] {
                // Few blocks are divided.
                let units = Units::of(Blocks { images, pixels, rows: 96 });
                let shares = if images == 2 && pixels == 441 { 5 } else { shares };
                assert_eq!(units.len(), images * shares);
                (1..=7).for_each(|threads| covers_all(&units, threads));
            }
        }
    }

    fn covers_all(units: &Units, threads: usize) {
        let Blocks { images, pixels: all, rows } = units.blocks;
        let mut next = (0, 0..rows, 0);
        for t in 0..threads {
            let mut range = units.len() * t / threads..units.len() * (t + 1) / threads;
            while let Some(Part { image, pixels, share: [start, end, of] }) = units.next(&mut range) {
                assert_eq!((image, pixels.clone(), start), next);
                assert!(start < end && end <= of && of == pixels.len().div_ceil(units.pixels));
                next = match (end == of, pixels.end == all) {
                    (false, _) => (image, pixels, end),
                    (true, false) => (image, pixels.end..all.min(pixels.end + rows), 0),
                    (true, true) => (image + 1, 0..rows, 0),
                };
            }
        }
        assert_eq!(next, (images, 0..rows, 0));
    }
}
