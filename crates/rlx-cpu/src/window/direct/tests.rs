//! Direct convolution against the sums in their order, to the bit.

use super::*;
use crate::isa::IsaKind;
use crate::testing::Rng;

/// Images of `[channels, height, width]`, and the convolution of them by `filters`, with a border that keeps the size where the stride is 1.
struct Case {
    channels: usize,
    size: [usize; 2],
    filters: usize,
    kernel: [usize; 2],
    stride: usize,
    dilation: usize,
}

impl Case {
    fn windows(&self) -> Windows {
        let pad = [0, 1].map(|d| (self.kernel[d] - 1) * self.dilation / 2);
        let out = [0, 1].map(|d| {
            let reach = (self.kernel[d] - 1) * self.dilation + 1;
            (self.size[d] + 2 * pad[d] - reach) / self.stride + 1
        });
        Windows {
            images: 2,
            size: self.size,
            channels: self.filters,
            out,
            kernel: self.kernel,
            stride: [self.stride; 2],
            dilation: [self.dilation; 2],
            pad,
        }
    }

    /// The sums: positions of the kernel, then channels. Zeros of the border are added, too.
    fn expected(&self, w: &Windows, x: &[f32], weights: &[f32], fused: bool) -> Vec<f32> {
        let [height, width] = self.size;
        let taps = w.kernel[0] * w.kernel[1];
        let mut results = Vec::new();
        for i in 0..w.images * self.filters * w.out[0] * w.out[1] {
            let (column, line) = (i % w.out[1], i / w.out[1] % w.out[0]);
            let (filter, image) =
                (i / w.out[1] / w.out[0] % self.filters, i / w.out[1] / w.out[0] / self.filters);
            let mut sum = 0.0f32;
            for (tap, channel) in (0..taps).flat_map(|tap| (0..self.channels).map(move |c| (tap, c))) {
                let at = |d: usize, place: usize, tap: usize| {
                    (place * w.stride[d] + tap * w.dilation[d]).wrapping_sub(w.pad[d])
                };
                let (y, z) = (at(0, line, tap / w.kernel[1]), at(1, column, tap % w.kernel[1]));
                let inside = y < height && z < width;
                let pixel = ((image * self.channels + channel) * height + y.min(height - 1)) * width;
                let value = if inside { x[pixel + z] } else { 0.0 };
                let weight = weights[(filter * self.channels + channel) * taps + tap];
                sum = if fused { value.mul_add(weight, sum) } else { value * weight + sum };
            }
            results.push(sum);
        }
        results
    }

    fn check(&self, rng: &mut Rng, runs_on: bool) {
        let w = self.windows();
        let [height, width] = self.size;
        let taps = self.kernel[0] * self.kernel[1];
        let x = rng.vec(w.images * self.channels * height * width);
        let weights = rng.vec(self.filters * self.channels * taps);
        let plane = w.out[0] * w.out[1];
        let steps = WeightSteps {
            panel: usize::MAX,
            of_panel: 0,
            filter: (self.channels * taps) as isize,
            down: self.kernel[1] as isize,
            right: 1,
            channel: taps as isize,
        };
        let planes = [[self.channels * height * width, height * width], [self.filters * plane, plane]];
        let inputs = [self.channels; 2];
        let direct = Direct::new(w, inputs, planes, steps, Order::ChannelsLast).unwrap();
        assert_eq!(direct.runs_on, runs_on, "{:?}", self.size);
        for isa in Isa::available() {
            let expected = self.expected(&w, &x, &weights, isa.kind() != IsaKind::Portable);
            // Whatever is not written, or not overwritten, shows.
            let mut y = vec![f32::NAN; expected.len()];
            let of = Operands {
                x: x.as_ptr(),
                y: y.as_mut_ptr(),
                weights: weights.as_ptr(),
                bias: None,
                bias_first: false,
                activation: None,
            };
            for task in 0..direct.tasks() {
                let mut scratch = vec![f32::NAN; direct.scratch_bytes() / size_of::<f32>()];
                // SAFETY: the operands have the extents of the windows, and there is the scratch that is asked for.
                unsafe { direct.run(isa, &of, task..task + 1, scratch.as_mut_ptr()) };
            }
            assert_eq!(y, expected, "{:?} by {} filters on {isa}", self.size, self.filters);
        }
    }
}

#[test]
fn vectors_that_run_on_into_the_next_line_give_the_same_bits() {
    let mut rng = Rng::new(81);
    // Lines that end early within a vector; the last has no columns between lines.
    for (size, kernel, dilation) in
        [([7, 17], [3, 3], 1), ([9, 21], [1, 3], 1), ([5, 33], [3, 5], 2), ([12, 18], [3, 1], 1)]
    {
        for filters in [2, 3, 4, 5, 6, 7, 9, 11] {
            Case { channels: 3, size, filters, kernel, stride: 1, dilation }.check(&mut rng, true);
        }
    }
}

#[test]
fn vectors_end_with_their_line_where_that_is_no_more_of_them() {
    let mut rng = Rng::new(82);
    for filters in [2, 5, 8] {
        Case { channels: 2, size: [6, 32], filters, kernel: [3, 3], stride: 1, dilation: 1 }
            .check(&mut rng, false);
        Case { channels: 3, size: [9, 37], filters, kernel: [3, 3], stride: 2, dilation: 1 }
            .check(&mut rng, false);
        Case { channels: 3, size: [5, 9], filters, kernel: [3, 3], stride: 1, dilation: 1 }
            .check(&mut rng, false);
    }
}

#[test]
fn a_kernel_of_one_line_meets_each_line_for_itself() {
    let mut rng = Rng::new(83);
    for (size, stride, dilation) in [([6, 70], 1, 2), ([9, 70], 2, 1), ([4, 100], 1, 1)] {
        Case { channels: 1, size, filters: 1, kernel: [1, 3], stride, dilation }.check(&mut rng, false);
    }
}
