//! Windows of one pixel from planes to planes (NCHW): a matmul of the filters by the image as it is, which transposes nothing.
//!
//! `result[filters, pixels] = filters[filters, channels] · image[channels, pixels]`. The packed filters are its rows ([`PackedColumns`]), and its
//! panels are pixels, of which a thread copies as many as stay in the second-level cache. A result is the same chain of multiply-adds as where
//! pixels are the rows, so it has the same bits.

use std::ops::Range;

use super::planes::{Blocks, Planes};
use super::{Conv, Route, Shape};
use crate::gemm::{Ahead, Bias, Gemm, PANEL, PackedColumns};
use crate::isa::Kernel;
use crate::kernels::RunCx;
use crate::simd::{LANES, Simd};

/// Bytes of the panels that are copied at a time.
const BLOCK: usize = 256 << 10;

/// Blocks of an image, where it has as many panels: work for threads.
const FEWEST: usize = 8;

/// Images of fewer pixels are transposed: their last panel is a large part of them.
const LEAST: usize = 2 * PANEL;

impl Shape {
    /// Takes the way of this module, where both ends are planes.
    pub(super) fn take_pointwise(&mut self) {
        if let (Some(_), Some(y)) = (self.ends.x, self.ends.y)
            && y.pixels >= LEAST
        {
            self.route = Route::Pointwise;
        }
    }

    /// How a result of these planes is divided.
    fn panels(&self, y: &Planes) -> Blocks {
        let fitting = BLOCK / (self.channels * PANEL * size_of::<f32>()).max(1);
        let share = y.pixels.div_ceil(FEWEST).div_ceil(PANEL);
        Blocks { images: y.images, pixels: y.pixels, rows: fitting.clamp(1, share.max(1)) * PANEL }
    }

    /// Bytes of a thread's scratch.
    pub(super) fn pointwise_scratch(&self) -> usize {
        let rows = self.ends.y.map_or(0, |y| self.panels(&y).rows);
        rows.saturating_mul(self.channels).saturating_mul(size_of::<f32>())
    }
}

impl Conv {
    /// Computes the convolution.
    ///
    /// # Safety
    /// As [`StepKernel::run`](crate::kernels::StepKernel::run); the operands must be of f32, and the route that of this module.
    pub(super) unsafe fn run_pointwise(&self, cx: &mut RunCx<'_, '_>, s: &Shape) {
        let (Some(x), Some(y)) = (s.ends.x, s.ends.y) else { return };
        // SAFETY: the caller's promise.
        let filters = unsafe { self.weights_at::<f32>(cx, s) };
        let mut epilogue = self.epilogue::<f32>(cx, s, 0);
        if let Bias::PerColumn(bias) | Bias::OfSum(bias) = epilogue.bias {
            epilogue.bias = Bias::PerRow(bias);
        }
        let (isa, from) = (cx.isa, cx.shared::<f32>(x.at));
        let whole = Gemm {
            m: s.filters,
            n: y.pixels,
            k: s.channels,
            rows: PackedColumns { panels: filters.get().cast_const(), depth: s.channels, first: 0 },
            b: std::ptr::null(),
            c: cx.ptr::<f32>(y.at),
            c_stride: y.plane,
            epilogue,
            tile_sizes: self.tile_sizes,
            ahead: Ahead::Nothing,
            wide: None,
        };
        s.panels(&y).each(cx, s.worth, &|scratch, image, block| {
            let to = scratch.cast::<f32>();
            let from = from.get().wrapping_add(image * x.image).cast_const();
            let mut gemm = whole;
            (gemm.n, gemm.b) = (block.len(), to.cast_const());
            gemm.c = gemm.c.wrapping_add(image * y.image + block.start);
            // SAFETY: the caller's promise; blocks are disjoint, and the scratch is the thread's own.
            unsafe {
                isa.run(Pixels { from, to, block, x: &x, s, stride: self.window.stride });
                gemm.run(isa, 0..gemm.tasks(isa));
            }
        });
    }
}

/// Copies some pixels of all planes of an image into panels.
struct Pixels<'a> {
    from: *const f32,
    to: *mut f32,
    /// Those of the result.
    block: Range<usize>,
    x: &'a Planes,
    s: &'a Shape,
    stride: [usize; 3],
}

impl Kernel for Pixels<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Pixels { from, to, block, x, .. } = &self;
        // SAFETY: `run_pointwise` was promised the planes, and has scratch for the panels.
        unsafe {
            for channel in 0..x.channels {
                let plane = from.wrapping_add(channel * x.plane);
                let panel = |column: usize| {
                    to.wrapping_add((column / PANEL * x.channels + channel) * PANEL + column % PANEL)
                };
                let mut pixel = block.start;
                while pixel < block.end {
                    let (at, line) = self.source(pixel);
                    let end = block.end.min(pixel + line);
                    let mut from = plane.wrapping_add(at);
                    while pixel < end {
                        let column = pixel - block.start;
                        let count = (PANEL - column % PANEL).min(end - pixel);
                        copy(s, from, self.stride[2], panel(column), count);
                        from = from.wrapping_add(count * self.stride[2]);
                        pixel += count;
                    }
                }
                // The last vector is whole, and must not have numbers by which to multiply takes long.
                for column in block.len()..block.len().next_multiple_of(LANES) {
                    *panel(column) = 0.0;
                }
            }
        }
    }
}

impl Pixels<'_> {
    /// Where the window of a pixel of the result is in a plane, and how many pixels from it on are in one line.
    #[inline(always)]
    fn source(&self, pixel: usize) -> (usize, usize) {
        if self.stride == [1; 3] {
            return (pixel, usize::MAX - pixel);
        }
        let ([_, lines, width], [_, height, row]) = (self.s.out, self.s.size);
        let (line, x) = (pixel / width, pixel % width);
        let (frame, y) = (line / lines, line % lines);
        let [frames, down, right] = self.stride;
        ((frame * frames * height + y * down) * row + x * right, width - x)
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
            (1, _) => {
                for i in (0..count).step_by(LANES) {
                    let lanes = LANES.min(count - i);
                    s.store_upto(to.add(i), lanes, s.load_upto(from.add(i), lanes));
                }
            }
            // A number that is known, for which compilers have vectors.
            (2, _) => {
                for i in 0..count {
                    *to.add(i) = *from.add(2 * i);
                }
            }
            _ => {
                for i in 0..count {
                    *to.add(i) = *from.add(i * step);
                }
            }
        }
    }
}
