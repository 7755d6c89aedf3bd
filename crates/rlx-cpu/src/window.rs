//! Depthwise convolution of NHWC images.
//!
//! It goes over output lines, sixteen channels and four positions at a time; a task is one output line of
//! one image. 16-bit floats are widened as they are read and rounded as they are written. The sum of a window is taken in ascending kernel position.

use std::ops::Range;

use crate::gemm::{Packed, bounds};
use crate::isa::{Isa, Kernel};
use crate::math::{self, Unary};
use crate::simd::{LANES, Simd};

/// Where the windows of a batch of NHWC images lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Images.
    pub images: usize,
    /// Image height and width.
    pub size: [usize; 2],
    /// Channels.
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

    /// The image coordinate of kernel position `k` of the window at `o`; it must be inside.
    #[inline(always)]
    pub(crate) fn coordinate(&self, d: usize, o: usize, k: usize) -> usize {
        o * self.stride[d] + k * self.dilation[d] - self.pad[d]
    }
}

/// One depthwise convolution; see the [module](self).
#[derive(Debug, Clone, Copy)]
pub struct WindowPass<T = f32> {
    /// The geometry.
    pub windows: Windows,
    /// The weights, `[kernel_h · kernel_w, channels]`.
    pub weights: *const T,
    /// A bias per channel.
    pub bias: Option<*const T>,
    /// Applied to the result, if that is f32.
    pub activation: Option<Unary>,
    /// The images.
    pub input: *const T,
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
        isa.run(Lines { pass: self, tasks });
    }
}

/// Output positions computed together, sharing each load of a weight.
const WIDTH: usize = 4;

struct Lines<'a, T> {
    pass: &'a WindowPass<T>,
    tasks: Range<usize>,
}

impl<T: Packed> Kernel for Lines<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (pass, w) = (self.pass, &self.pass.windows);
        let activation = pass.activation.filter(|_| T::GROUP == 1);
        // Bounds are applied in registers.
        let clip = activation.and_then(bounds);
        for task in self.tasks {
            let (image, y) = (task / w.out[0], task % w.out[0]);
            let rows = w.inside(0, y);
            let mut x = 0;
            while x < w.out[1] {
                let columns = w.inside(1, x);
                // Neighbours go together where all their windows hold the same positions.
                let together = x + WIDTH <= w.out[1] && (1..WIDTH).all(|i| w.inside(1, x + i) == columns);
                let at = Place { image, y, x, rows: rows.clone(), columns };
                // SAFETY: `WindowPass::run`'s promises.
                unsafe {
                    if together {
                        positions::<S, T, WIDTH>(s, pass, &at, clip);
                    } else {
                        positions::<S, T, 1>(s, pass, &at, clip);
                    }
                }
                x += if together { WIDTH } else { 1 };
            }
            if let Some(op) = activation.filter(|_| clip.is_none()) {
                let len = w.out[1] * w.channels;
                // SAFETY: the line was just written.
                unsafe {
                    let line = pass.output.add(task * len).cast::<f32>();
                    math::apply_within(s, op, line, line, len);
                }
            }
        }
    }
}

/// An output position, and the kernel positions of its window that are within the image.
struct Place {
    image: usize,
    y: usize,
    x: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

/// Computes N neighbouring output positions, all channels.
#[inline(always)]
unsafe fn positions<S: Simd, T: Packed, const N: usize>(
    s: S,
    pass: &WindowPass<T>,
    at: &Place,
    clip: Option<(f32, f32)>,
) {
    let w = &pass.windows;
    let c = w.channels;
    let mut ch = 0;
    while ch < c {
        let lanes = (c - ch).min(LANES);
        // SAFETY: the caller's promise; all pixels are within the image and ch + lanes ≤ c.
        unsafe {
            let start = match pass.bias {
                Some(b) => T::load(s, b.add(ch), lanes),
                None => s.zero(),
            };
            let mut acc = [start; N];
            for ky in at.rows.clone() {
                let line = (at.image * w.size[0] + w.coordinate(0, at.y, ky)) * w.size[1];
                for kx in at.columns.clone() {
                    let p = pass.input.add((line + w.coordinate(1, at.x, kx)) * c + ch);
                    let weight = T::load(s, pass.weights.add((ky * w.kernel[1] + kx) * c + ch), lanes);
                    for i in 0..N {
                        let x = T::load(s, p.add(i * w.stride[1] * c), lanes);
                        acc[i] = s.mul_add(x, weight, acc[i]);
                    }
                }
            }
            let out = pass.output.add(((at.image * w.out[0] + at.y) * w.out[1] + at.x) * c + ch);
            for i in 0..N {
                let x = match clip {
                    Some((lo, hi)) => math::clip(s, acc[i], lo, hi),
                    None => acc[i],
                };
                T::store(s, out.add(i * c), lanes, x);
            }
        }
        ch += lanes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rng, assert_close};

    /// The obvious way, in f64, with a rectifier.
    fn reference(w: &Windows, x: &[f32], weights: &[f32], bias: Option<&[f32]>) -> Vec<f64> {
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
                    let v = f64::from(x[((image * w.size[0] + y) * w.size[1] + xx) * w.channels + ch]);
                    sum += v * f64::from(weights[(ky * w.kernel[1] + kx) * w.channels + ch]);
                }
            }
            out.push(sum.max(0.0));
        }
        out
    }

    #[test]
    fn windows_of_every_form_are_right() {
        let mut rng = Rng::new(51);
        for round in 0..60 {
            let size = [1 + rng.below(12), 1 + rng.below(20)];
            let kernel = [1 + rng.below(4), 1 + rng.below(4)];
            let stride = [1 + rng.below(3), 1 + rng.below(3)];
            let dilation = [1 + rng.below(2), 1 + rng.below(2)];
            let pad = [rng.below(3), rng.below(3)];
            let extent = |d: usize| {
                let span = (kernel[d] - 1) * dilation[d] + 1;
                (size[d] + 2 * pad[d]).checked_sub(span).map(|room| room / stride[d] + 1)
            };
            let (Some(oh), Some(ow)) = (extent(0), extent(1)) else { continue };
            let (images, channels) = (1 + rng.below(2), 1 + rng.below(40));
            let windows = Windows { images, size, channels, out: [oh, ow], kernel, stride, dilation, pad };
            let x = rng.vec(images * size[0] * size[1] * channels);
            let (weights, bias) = (rng.vec(kernel[0] * kernel[1] * channels), rng.vec(channels));
            let bias = (round % 2 == 0).then_some(bias.as_slice());
            let want = reference(&windows, &x, &weights, bias);
            for isa in Isa::available() {
                let mut out = vec![7.0f32; want.len()];
                let pass = WindowPass {
                    windows,
                    weights: weights.as_ptr(),
                    bias: bias.map(|b| b.as_ptr()),
                    activation: Some(Unary::Relu),
                    input: x.as_ptr(),
                    output: out.as_mut_ptr(),
                };
                let tasks = windows.tasks();
                // SAFETY: the vectors cover the extents.
                unsafe {
                    pass.run(isa, 0..tasks / 2);
                    pass.run(isa, tasks / 2..tasks);
                }
                assert_close(&out, &want, 1e-5, &format!("{windows:?} {:?}", isa.kind()));
            }
        }
    }
}
