//! Depthwise convolution of NHWC images, and others with few channels in a group (`groups`).
//!
//! It goes over output lines, some positions and vectors of sixteen channels at a time (`depthwise`); a task is one output line of
//! one image. 16-bit floats are widened as they are read and rounded as they are written. The sum of a window is taken in ascending kernel position.

mod depthwise;
pub(crate) mod direct;
pub(crate) mod groups;

use std::ops::Range;

use crate::gemm::Packed;
use crate::isa::{Isa, Kernel};
use crate::math::{self, Light, Unary};
use crate::simd::{LANES, Simd};

/// Where the windows of a batch of NHWC images lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Images.
    pub images: usize,
    /// Image height and width.
    pub size: [usize; 2],
    /// Channels of the result.
    pub channels: usize,
    /// Output height and width.
    pub out: [usize; 2],
    /// Kernel height and width.
    pub kernel: [usize; 2],
    /// Vertical and horizontal step of the window.
    pub stride: [usize; 2],
    /// Vertical and horizontal distance of the kernel's positions.
    pub dilation: [usize; 2],
    /// Padding above and at the left.
    pub pad: [usize; 2],
}

impl Windows {
    /// How many tasks there are: the output lines of all images.
    pub fn tasks(&self) -> usize {
        self.images * self.out[0]
    }

    /// The kernel positions of the window at output position `o` of axis `d` that are within the image.
    #[inline(always)]
    pub(crate) fn inside(&self, d: usize, o: usize) -> Range<usize> {
        let (start, step) = (o * self.stride[d], self.dilation[d]);
        let first = self.pad[d].saturating_sub(start).div_ceil(step);
        let room = (self.size[d] + self.pad[d]).saturating_sub(start).div_ceil(step);
        first..self.kernel[d].min(room).max(first)
    }

    /// The output positions of axis `d` whose windows are all within the image.
    fn whole(&self, d: usize) -> Range<usize> {
        let span = self.kernel[d].saturating_sub(1) * self.dilation[d] + 1;
        let first = self.pad[d].div_ceil(self.stride[d]);
        let end = (self.size[d] + self.pad[d]).checked_sub(span).map_or(0, |last| last / self.stride[d] + 1);
        first..end.min(self.out[d])
    }

    /// The image coordinate of kernel position `k` of the window at `o`; it must be inside.
    #[inline(always)]
    pub(crate) fn coordinate(&self, d: usize, o: usize, k: usize) -> usize {
        o * self.stride[d] + k * self.dilation[d] - self.pad[d]
    }
}

/// One convolution; see the [module](self).
#[derive(Debug, Clone, Copy)]
pub struct WindowPass<T = f32> {
    /// The geometry.
    pub windows: Windows,
    /// Channels of an input pixel.
    pub inputs: usize,
    /// Channels of a group of the input. With 1, and as many inputs as results, the convolution is depthwise.
    pub group: usize,
    /// The weights, `[kernel_h, kernel_w, channels]` with groups of one channel; others in vectors (see `groups`).
    pub weights: *const T,
    /// A bias per channel.
    pub bias: Option<*const T>,
    /// Applied to the result.
    pub activation: Option<Unary>,
    /// The images.
    pub input: *const T,
    /// After how many lines the input begins again, where it is a ring buffer that holds the last lines of an image; `usize::MAX` for images
    /// as a whole.
    pub wrap: usize,
    /// The result, `[images, out_h, out_w, channels]`.
    pub output: *mut T,
}

// SAFETY: plain addresses; `run`, which uses them, is unsafe and says what must hold across threads.
unsafe impl<T> Send for WindowPass<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for WindowPass<T> {}

impl<T: Packed> WindowPass<T> {
    /// Computes a range of the [tasks](Windows::tasks).
    ///
    /// # Safety
    /// Images, weights and bias must be readable and the output writable for their extents; the output must
    /// overlap nothing else. No two threads may run the same task at once.
    pub unsafe fn run(&self, isa: Isa, tasks: Range<usize>) {
        T::run(isa, Lines { pass: self, tasks });
    }

    /// The kernel's rows that are within the image, and the input's line under the first of them.
    #[inline(always)]
    fn rows(&self, task: usize) -> (Range<usize>, usize) {
        let w = &self.windows;
        let (image, y) = (task / w.out[0], task % w.out[0]);
        let rows = w.inside(0, y);
        let first = if rows.is_empty() { 0 } else { image * w.size[0] + w.coordinate(0, y, rows.start) };
        (rows, if self.wrap == usize::MAX { first } else { first % self.wrap })
    }

    /// The input's line under the kernel's next row.
    #[inline(always)]
    fn below(&self, line: usize) -> usize {
        let next = line + self.windows.dilation[0];
        if next >= self.wrap { next - self.wrap } else { next }
    }

    /// Applies a function that is not done in registers to an output line.
    ///
    /// # Safety
    /// The line must be written.
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, s: S, task: usize, function: Option<Unary>) {
        if let Some(op) = function {
            let len = self.windows.out[1] * self.windows.channels;
            // SAFETY: the caller's promise.
            unsafe {
                let line = self.output.add(task * len);
                math::apply_within(s, op, line, line, len);
            }
        }
    }
}

/// How far apart the positions of a tile are, whose windows are those of neighbours without gaps then: as far as the pixels of a window. None
/// if windows have gaps and a step besides.
#[inline(always)]
fn spacing(w: &Windows) -> Option<usize> {
    (w.dilation[1] == 1 || w.stride[1] == 1).then_some(w.dilation[1])
}

/// Of these widths of tiles, the one that covers a line of so many positions with the fewest; none if all are wider than the line.
#[inline(always)]
fn tile_width<const N: usize>(positions: usize, widths: [usize; N]) -> Option<usize> {
    let cost = |n: usize| (positions.div_ceil(n) * n, usize::MAX - n);
    widths.into_iter().filter(|&n| n <= positions).min_by_key(|&n| cost(n))
}

struct Lines<'a, T> {
    pass: &'a WindowPass<T>,
    tasks: Range<usize>,
}

impl<T: Packed> Kernel for Lines<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let pass = self.pass;
        let light = pass.activation.and_then(Light::of);
        let function = pass.activation.filter(|_| light.is_none());
        if pass.group > 1 || pass.inputs != pass.windows.channels {
            // SAFETY: `WindowPass::run`'s promises.
            unsafe { groups::lines(s, pass, self.tasks, light, function) };
            return;
        }
        for task in self.tasks {
            // SAFETY: `WindowPass::run`'s promises.
            unsafe { depthwise::line(s, pass, task, light) };
            // SAFETY: the line was just written.
            unsafe { pass.finish(s, task, function) };
        }
    }
}

/// Copies `count` elements that are `step` apart to neighbours.
///
/// # Safety
/// All must be readable, and writable there; they must not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_every<S: Simd>(s: S, from: *const f32, step: usize, to: *mut f32, count: usize) {
    // SAFETY: the caller's promise; the element behind the last one that is taken, with which two vectors end, is not read.
    unsafe {
        if step == 2 {
            for i in (0..count).step_by(LANES) {
                let (from, left) = (from.wrapping_add(2 * i), count - i);
                let [a, b] = [LANES.min(2 * left - 1), LANES.min((2 * left - 1).saturating_sub(LANES))];
                let pairs = (s.load_upto(from, a), s.load_upto(from.wrapping_add(LANES), b));
                s.store_upto(to.wrapping_add(i), LANES.min(left), s.unzip(pairs.0, pairs.1).0);
            }
            return;
        }
        for i in 0..count {
            *to.wrapping_add(i) = *from.wrapping_add(i * step);
        }
    }
}

/// Every `step`-th column of a line of `width` with a border of `left` columns in front, from column `rest` on, beside each other; zeros where the line
/// has none. Windows a step apart then read neighbours.
///
/// # Safety
/// The line must be readable, and must not overlap `to`.
#[inline(always)]
pub(crate) unsafe fn deal_columns<S: Simd>(
    s: S,
    line: *const f32,
    width: usize,
    (step, left): (usize, usize),
    rest: usize,
    to: &mut [f32],
) {
    // Divisors that are known are no divisions.
    let steps = |n: usize| match step {
        1 => n,
        2 => n.div_ceil(2),
        _ => n.div_ceil(step),
    };
    let end = steps((width + left).saturating_sub(rest)).min(to.len());
    let start = steps(left.saturating_sub(rest)).min(end);
    let from = line.wrapping_add(rest + start * step).wrapping_sub(left);
    let inside = &mut to[start..end];
    // SAFETY: the caller's promise; columns `start` to `end` are those of the line.
    unsafe {
        match step {
            1 => std::ptr::copy_nonoverlapping(from, inside.as_mut_ptr(), inside.len()),
            _ => copy_every(s, from, step, inside.as_mut_ptr(), inside.len()),
        }
    }
    to[..start].fill(0.0);
    to[end..].fill(0.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::Function;
    use crate::testing::{Rng, assert_close};

    /// A function and its meaning in f64.
    type Meant = (Unary, fn(f64) -> f64);

    /// What is applied to results: bounds, functions in registers, one that is a second pass.
    const FUNCTIONS: [Meant; 4] = [
        (Unary::Relu, |x| x.max(0.0)),
        (Unary::Function(Function::HardSwish), |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0)),
        (Unary::LeakyRelu { alpha: 0.25 }, |x| if x < 0.0 { 0.25 * x } else { x }),
        (Unary::Function(Function::Tanh), f64::tanh),
    ];

    /// The sums in f64, the obvious way.
    fn reference(
        w: &Windows,
        [g, f]: [usize; 2],
        x: &[f32],
        weights: &[f32],
        bias: Option<&[f32]>,
    ) -> Vec<f64> {
        let mut out = Vec::new();
        let positions = |o: usize, d: usize, k: usize| {
            let at = (o * w.stride[d] + k * w.dilation[d]) as i64 - w.pad[d] as i64;
            (0..w.size[d] as i64).contains(&at).then_some(at as usize)
        };
        for i in 0..w.images * w.out[0] * w.out[1] * w.channels {
            let (ch, rest) = (i % w.channels, i / w.channels);
            let (ox, oy, image) = (rest % w.out[1], rest / w.out[1] % w.out[0], rest / w.out[1] / w.out[0]);
            let mut sum = bias.map_or(0.0, |b| f64::from(b[ch]));
            for ky in 0..w.kernel[0] {
                for kx in 0..w.kernel[1] {
                    let (Some(y), Some(xx)) = (positions(oy, 0, ky), positions(ox, 1, kx)) else { continue };
                    let pixel = ((image * w.size[0] + y) * w.size[1] + xx) * (w.channels / f * g);
                    for j in 0..g {
                        let row = |row: usize| (row * g + j) * w.kernel[1] + kx;
                        let weight = match g {
                            1 => weights[row(ky) * w.channels + ch],
                            _ => weights[row(ch / LANES * w.kernel[0] + ky) * LANES + ch % LANES],
                        };
                        sum += f64::from(x[pixel + ch / f * g + j]) * f64::from(weight);
                    }
                }
            }
            out.push(sum);
        }
        out
    }

    #[test]
    fn windows_of_every_form_are_right() {
        let mut rng = Rng::new(51);
        for round in 0..500 {
            let g = if round < 150 { 1 } else { [2, 4, 8, 16, 32, 48, 64][rng.below(7)] };
            let [g, f] = match round {
                ..300 => [g, g],
                // Several filters of each channel, and groups of any sizes.
                300..350 => [1, 2 + rng.below(40)],
                _ => [1 + rng.below(20), 1 + rng.below(40)],
            };
            let size = [1 + rng.below(12), 1 + rng.below(20)];
            let kernel = match round % 3 {
                0 if g == 1 => [[3, 3], [5, 5]][rng.below(2)],
                _ => [1 + rng.below(4), 1 + rng.below(4)],
            };
            let stride = [1 + rng.below(3), 1 + rng.below(3)];
            let dilation = [1 + rng.below(2), 1 + rng.below(2)];
            let pad = [rng.below(3), rng.below(3)];
            let extent = |d: usize| {
                let span = (kernel[d] - 1) * dilation[d] + 1;
                (size[d] + 2 * pad[d]).checked_sub(span).map(|room| room / stride[d] + 1)
            };
            let (Some(oh), Some(ow)) = (extent(0), extent(1)) else { continue };
            let (images, channels) = (1 + rng.below(2), f * (1 + rng.below(40usize.div_ceil(f))));
            let windows = Windows { images, size, channels, out: [oh, ow], kernel, stride, dilation, pad };
            check(&mut rng, windows, [g, f], round);
        }
    }

    #[test]
    fn positions_between_which_windows_have_gaps_are_tiles_of_their_own() {
        let mut rng = Rng::new(53);
        for round in 0..120 {
            let [g, f] = [[1, 1], [1, 1], [2, 17], [16, 16]][round % 4];
            let (kernel, dilation) = ([1 + rng.below(5), [3, 3, 5][rng.below(3)]], 2 + rng.below(4));
            let (size, pad) = ([5 + rng.below(4), dilation * 4 + rng.below(40)], rng.below(5));
            let out = [size[0] + 4 - kernel[0] + 1, size[1] + 2 * pad - (kernel[1] - 1) * dilation];
            let channels = f * (1 + rng.below(40usize.div_ceil(f)));
            let (stride, dilation, pad) = ([1; 2], [1, dilation], [2, pad]);
            check(
                &mut rng,
                Windows { images: 1, size, channels, out, kernel, stride, dilation, pad },
                [g, f],
                round,
            );
        }
    }

    #[test]
    fn more_channels_than_zeros_stand_for_at_once_are_right() {
        let mut rng = Rng::new(52);
        for channels in [1030, 1152, 2050] {
            for (kernel, stride) in [(3, 1), (5, 1), (5, 2)] {
                let out = (7 - 1) / stride + 1;
                let windows = Windows {
                    images: 1,
                    size: [7, 7],
                    channels,
                    out: [out; 2],
                    kernel: [kernel; 2],
                    stride: [stride; 2],
                    dilation: [1; 2],
                    pad: [kernel / 2; 2],
                };
                check(&mut rng, windows, [1, 1], 0);
            }
        }
    }

    /// Compares a convolution of random numbers on every instruction set; `round` chooses whether it has a bias, and its function.
    fn check(rng: &mut Rng, windows: Windows, [g, f]: [usize; 2], round: usize) {
        let (channels, inputs) = (windows.channels, windows.channels / f * g);
        let x = rng.vec(windows.images * windows.size[0] * windows.size[1] * inputs);
        let vectors = if g > 1 { channels.next_multiple_of(LANES) } else { channels };
        let (weights, bias) =
            (rng.vec(windows.kernel[0] * windows.kernel[1] * g * vectors), rng.vec(channels));
        let bias = round.is_multiple_of(2).then_some(bias.as_slice());
        let (activation, function) = FUNCTIONS[round / 2 % 4];
        let want: Vec<f64> =
            reference(&windows, [g, f], &x, &weights, bias).into_iter().map(function).collect();
        for isa in Isa::available() {
            let mut out = vec![7.0f32; want.len()];
            let pass = WindowPass {
                windows,
                inputs,
                group: g,
                weights: weights.as_ptr(),
                bias: bias.map(|b| b.as_ptr()),
                activation: Some(activation),
                input: x.as_ptr(),
                wrap: usize::MAX,
                output: out.as_mut_ptr(),
            };
            let tasks = windows.tasks();
            // SAFETY: the vectors cover the extents.
            unsafe {
                pass.run(isa, 0..tasks / 2);
                pass.run(isa, tasks / 2..tasks);
            }
            assert_close(&out, &want, 1e-5, &format!("{windows:?} {g} to {f} {:?}", isa.kind()));
        }
    }
}
