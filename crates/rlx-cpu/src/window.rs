//! Depthwise convolution and pooling of NHWC images.
//!
//! Both go over output lines, sixteen channels and four positions at a time; a task is one output line of
//! one image. The sum (or maximum) of a window is taken in ascending kernel position.

use std::ops::Range;

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

    /// The kernel positions of the window at output position `o` of axis `d` that lie within the image.
    #[inline(always)]
    fn inside(&self, d: usize, o: usize) -> Range<usize> {
        let (start, step) = (o * self.stride[d], self.dilation[d]);
        let first = self.pad[d].saturating_sub(start).div_ceil(step);
        let room = (self.size[d] + self.pad[d]).saturating_sub(start).div_ceil(step);
        first..self.kernel[d].min(room).max(first)
    }

    /// The image coordinate of kernel position `k` of the window at `o`; it must be inside.
    #[inline(always)]
    fn coordinate(&self, d: usize, o: usize, k: usize) -> usize {
        o * self.stride[d] + k * self.dilation[d] - self.pad[d]
    }
}

/// What is done with a window.
#[derive(Debug, Clone, Copy)]
pub enum WindowOp {
    /// Σ x · w, a weight `[kernel_h · kernel_w, channels]` and perhaps a bias per channel.
    Depthwise {
        /// The weights.
        weights: *const f32,
        /// The bias.
        bias: Option<*const f32>,
    },
    /// The largest; NaN if any is NaN, −∞ where a window holds no pixel.
    Max,
    /// The mean of the pixels, or of all kernel positions with padding as zero.
    Mean {
        /// Whether padding counts.
        count_padding: bool,
    },
}

/// One depthwise convolution or pooling; see the [module](self).
#[derive(Debug, Clone, Copy)]
pub struct WindowPass {
    /// The geometry.
    pub windows: Windows,
    /// What is done with each window.
    pub op: WindowOp,
    /// Applied to the result.
    pub activation: Option<Unary>,
    /// The images.
    pub input: *const f32,
    /// The result, `[images, out_h, out_w, channels]`.
    pub output: *mut f32,
}

// SAFETY: plain addresses; `run`, which uses them, is unsafe and says what must hold across threads.
unsafe impl Send for WindowPass {}
// SAFETY: as above.
unsafe impl Sync for WindowPass {}

impl WindowPass {
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

struct Lines<'a> {
    pass: &'a WindowPass,
    tasks: Range<usize>,
}

impl Kernel for Lines<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (pass, w) = (self.pass, &self.pass.windows);
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
                        positions::<S, WIDTH>(s, pass, &at);
                    } else {
                        positions::<S, 1>(s, pass, &at);
                    }
                }
                x += if together { WIDTH } else { 1 };
            }
            if let Some(op) = pass.activation {
                let len = w.out[1] * w.channels;
                // SAFETY: the line was just written.
                unsafe {
                    let line = pass.output.add(task * len);
                    math::apply_within(s, op, line, line, len);
                }
            }
        }
    }
}

/// An output position, and the kernel positions of its window that lie within the image.
struct Place {
    image: usize,
    y: usize,
    x: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

/// Computes N neighbouring output positions, all channels.
#[inline(always)]
unsafe fn positions<S: Simd, const N: usize>(s: S, pass: &WindowPass, at: &Place) {
    let w = &pass.windows;
    let c = w.channels;
    let mut ch = 0;
    while ch < c {
        let lanes = (c - ch).min(LANES);
        // SAFETY: the caller's promise; all pixels lie within the image and ch + lanes ≤ c.
        unsafe {
            let start = match pass.op {
                WindowOp::Depthwise { bias: Some(b), .. } => s.load_upto(b.add(ch), lanes),
                WindowOp::Max => s.splat(f32::NEG_INFINITY),
                _ => s.zero(),
            };
            let mut acc = [start; N];
            for ky in at.rows.clone() {
                let line = (at.image * w.size[0] + w.coordinate(0, at.y, ky)) * w.size[1];
                for kx in at.columns.clone() {
                    let p = pass.input.add((line + w.coordinate(1, at.x, kx)) * c + ch);
                    let weight = match pass.op {
                        WindowOp::Depthwise { weights, .. } => {
                            s.load_upto(weights.add((ky * w.kernel[1] + kx) * c + ch), lanes)
                        }
                        _ => s.splat(1.0),
                    };
                    for i in 0..N {
                        let x = s.load_upto(p.add(i * w.stride[1] * c), lanes);
                        acc[i] = match pass.op {
                            WindowOp::Max => s.max(x, acc[i]),
                            _ => s.mul_add(x, weight, acc[i]),
                        };
                    }
                }
            }
            if let WindowOp::Mean { count_padding } = pass.op {
                let seen = at.rows.len() * at.columns.len();
                let count = if count_padding { w.kernel[0] * w.kernel[1] } else { seen };
                for a in &mut acc {
                    *a = s.div(*a, s.splat(count as f32));
                }
            }
            let out = pass.output.add(((at.image * w.out[0] + at.y) * w.out[1] + at.x) * c + ch);
            for i in 0..N {
                s.store_upto(out.add(i * c), lanes, acc[i]);
            }
        }
        ch += lanes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rng, assert_close};

    /// The obvious way, in f64.
    fn reference(w: &Windows, op: &WindowOp, x: &[f32], weights: &[f32], bias: &[f32]) -> Vec<f64> {
        let mut out = Vec::new();
        let positions = |o: usize, d: usize, k: usize| {
            let at = (o * w.stride[d] + k * w.dilation[d]) as i64 - w.pad[d] as i64;
            (0..w.size[d] as i64).contains(&at).then_some(at as usize)
        };
        for i in 0..w.images * w.out[0] * w.out[1] * w.channels {
            let (ch, rest) = (i % w.channels, i / w.channels);
            let (ox, oy, image) = (rest % w.out[1], rest / w.out[1] % w.out[0], rest / w.out[1] / w.out[0]);
            let (mut sum, mut max, mut seen) = (0.0f64, f64::NEG_INFINITY, 0);
            for ky in 0..w.kernel[0] {
                for kx in 0..w.kernel[1] {
                    let (Some(y), Some(xx)) = (positions(oy, 0, ky), positions(ox, 1, kx)) else { continue };
                    let v = f64::from(x[((image * w.size[0] + y) * w.size[1] + xx) * w.channels + ch]);
                    let weight = match op {
                        WindowOp::Depthwise { .. } => weights[(ky * w.kernel[1] + kx) * w.channels + ch],
                        _ => 1.0,
                    };
                    sum += v * f64::from(weight);
                    max = max.max(v);
                    seen += 1;
                }
            }
            out.push(match op {
                WindowOp::Depthwise { bias: b, .. } => {
                    (sum + if b.is_some() { f64::from(bias[ch]) } else { 0.0 }).max(0.0)
                }
                WindowOp::Max => max,
                WindowOp::Mean { count_padding: true } => sum / (w.kernel[0] * w.kernel[1]) as f64,
                WindowOp::Mean { count_padding: false } => sum / f64::from(seen),
            });
        }
        out
    }

    #[test]
    fn windows_of_every_kind_are_right() {
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
            let w = Windows { images, size, channels, out: [oh, ow], kernel, stride, dilation, pad };
            let x = rng.vec(images * size[0] * size[1] * channels);
            let (weights, bias) = (rng.vec(kernel[0] * kernel[1] * channels), rng.vec(channels));
            let ops = [
                WindowOp::Depthwise {
                    weights: weights.as_ptr(),
                    bias: (round % 2 == 0).then_some(bias.as_ptr()),
                },
                WindowOp::Max,
                WindowOp::Mean { count_padding: true },
                WindowOp::Mean { count_padding: false },
            ];
            for op in ops {
                let want = reference(&w, &op, &x, &weights, &bias);
                let activation = matches!(op, WindowOp::Depthwise { .. }).then_some(Unary::Relu);
                for isa in Isa::available() {
                    let mut out = vec![7.0f32; want.len()];
                    let pass = WindowPass {
                        windows: w,
                        op,
                        activation,
                        input: x.as_ptr(),
                        output: out.as_mut_ptr(),
                    };
                    let tasks = w.tasks();
                    // SAFETY: the vectors cover the extents.
                    unsafe {
                        pass.run(isa, 0..tasks / 2);
                        pass.run(isa, tasks / 2..tasks);
                    }
                    assert_close(&out, &want, 1e-5, &format!("{op:?} {w:?} {:?}", isa.kind()));
                }
            }
        }
    }

    #[test]
    fn the_maximum_keeps_nan() {
        let w = Windows {
            images: 1,
            size: [1, 6],
            channels: 1,
            out: [1, 6],
            kernel: [1, 3],
            stride: [1, 1],
            dilation: [1, 1],
            pad: [0, 1],
        };
        let x = [1.0, 2.0, f32::NAN, 4.0, 5.0, 6.0f32];
        for isa in Isa::available() {
            let mut out = [0.0f32; 6];
            let (input, output) = (x.as_ptr(), out.as_mut_ptr());
            let pass = WindowPass { windows: w, op: WindowOp::Max, activation: None, input, output };
            // SAFETY: the arrays cover the extents.
            unsafe { pass.run(isa, 0..1) };
            assert_eq!((out[0], out[4], out[5]), (2.0, 6.0, 6.0));
            assert!(out[1..4].iter().all(|v| v.is_nan()));
        }
    }
}
