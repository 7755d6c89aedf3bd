//! Depthwise convolutions of bytes against sums of i64, and their bytes across instruction sets.

use super::*;
use crate::gemm::{Bias, Epilogue, PerColumn};
use crate::math::{Quantiser, Unary};
use crate::testing::Rng;

fn number(byte: u8, signed: bool) -> i32 {
    if signed { i32::from(byte as i8) } else { i32::from(byte) }
}

/// A convolution with random bytes.
struct Case {
    windows: Windows,
    /// Whether the image is signed, and the weights.
    signed: [bool; 2],
    zero: u8,
    weight_zeros: Vec<u8>,
    image: Vec<u8>,
    weights: Vec<u8>,
    scales: Vec<f32>,
    biases: Vec<f32>,
}

impl Case {
    /// `None` where the kernel does not fit the image.
    fn random(rng: &mut Rng, around_zero: bool) -> Option<Case> {
        let size = [1 + rng.below(12), 1 + rng.below(70)];
        let kernel = [1 + rng.below(6), 1 + rng.below(5)];
        let stride = [1 + rng.below(3), 1 + rng.below(3)];
        // A window may be wider than the words that are made at once.
        let dilation = [1 + rng.below(2), if rng.below(9) == 0 { 100 } else { 1 + rng.below(2) }];
        let pad = [rng.below(3), if dilation[1] > 2 { 200 } else { rng.below(3) }];
        let out = |d: usize| {
            let span = (kernel[d] - 1) * dilation[d] + 1;
            (size[d] + 2 * pad[d]).checked_sub(span).map(|room| room / stride[d] + 1)
        };
        // Blocks of 64 channels, and what is left of them.
        let blocks = if rng.below(3) == 0 { 1 + rng.below(2) } else { 0 };
        let (images, channels) = (1 + rng.below(2), 1 + rng.below(40) + 64 * blocks);
        let windows =
            Windows { images, size, channels, out: [out(0)?, out(1)?], kernel, stride, dilation, pad };
        let mut bytes = |n: usize| (0..n).map(|_| rng.next() as u8).collect::<Vec<u8>>();
        let image = bytes(images * size[0] * size[1] * channels);
        let (weights, mut weight_zeros) = (bytes(kernel[0] * kernel[1] * channels), bytes(channels));
        let zero = bytes(1)[0];
        let signed = [rng.below(2) == 0, rng.below(2) == 0];
        if around_zero {
            weight_zeros.fill(if signed[1] { 0 } else { 128 });
        }
        // Sometimes by one power of two, which makes ties.
        let tied = rng.below(4) == 0;
        let scales =
            (0..channels).map(|_| if tied { 2f32.powi(-8) } else { rng.uniform(1e-3, 9e-3) }).collect();
        let biases = (0..channels)
            .map(|_| if tied { rng.below(9) as f32 } else { rng.uniform(-90.0, 90.0) })
            .collect();
        Some(Case { windows, signed, zero, weight_zeros, image, weights, scales, biases })
    }

    fn want(&self) -> Vec<i32> {
        let (w, c) = (&self.windows, self.windows.channels);
        let mut out = Vec::new();
        for i in 0..w.images * w.out[0] * w.out[1] * c {
            let (ch, rest) = (i % c, i / c);
            let (x, y, image) = (rest % w.out[1], rest / w.out[1] % w.out[0], rest / w.out[1] / w.out[0]);
            let mut sum = 0;
            for ky in w.inside(0, y) {
                for kx in w.inside(1, x) {
                    let line = image * w.size[0] + w.coordinate(0, y, ky);
                    let pixel = self.image[(line * w.size[1] + w.coordinate(1, x, kx)) * c + ch];
                    let weight = self.weights[(ky * w.kernel[1] + kx) * c + ch];
                    let difference = |byte, zero, signed| number(byte, signed) - number(zero, signed);
                    sum += difference(pixel, self.zero, self.signed[0])
                        * difference(weight, self.weight_zeros[ch], self.signed[1]);
                }
            }
            out.push(sum);
        }
        out
    }

    /// The sums, or the bytes that the epilogue makes, and how the weights lay.
    fn run(&self, isa: Isa, epilogue: Option<ByteEpilogue>) -> (Vec<i32>, WeightForm) {
        let (w, zero) = (self.windows, number(self.zero, self.signed[0]));
        let zeros = ZeroPoints { ptr: self.weight_zeros.as_ptr(), step: 1, signed: self.signed[1] };
        let mut prepared = vec![0.0f32; (w.kernel[0] * w.kernel[1] + 1) * w.channels];
        let mut out = vec![7i32; w.images * w.out[0] * w.out[1] * w.channels];
        // SAFETY: the vectors cover the extents.
        let form = unsafe {
            let (to, image) = (prepared.as_mut_ptr(), (zero, self.signed[0]));
            let form = prepare(isa, self.weights.as_ptr(), zeros, &w, image, to);
            let (input, output) = (self.image.as_ptr(), out.as_mut_ptr());
            let signed = self.signed[0];
            let pass = BytePass {
                windows: w,
                weights: prepared.as_ptr(),
                form,
                input,
                signed,
                zero,
                output,
                epilogue,
            };
            let tasks = w.tasks();
            pass.run(isa, 0..tasks / 3);
            pass.run(isa, tasks / 3..tasks);
            form
        };
        (out, form)
    }
}

#[test]
fn sums_are_exact_on_every_instruction_set() {
    let (mut rng, mut by_words) = (Rng::new(52), 0);
    for round in 0..300 {
        let Some(case) = Case::random(&mut rng, round % 4 != 0) else { continue };
        let want = case.want();
        for isa in Isa::available() {
            let (got, form) = case.run(isa, None);
            assert_eq!(got, want, "{:?} {:?} {isa} {form:?}", case.windows, case.signed);
            by_words += usize::from(form == WeightForm::Words);
        }
    }
    assert_eq!(by_words > 50, Isa::detect().has_vnni(), "{by_words}");
}

#[test]
fn bytes_are_the_same_on_every_instruction_set() {
    let (mut rng, mut in_blocks) = (Rng::new(53), 0);
    for round in 0..300 {
        let Some(case) = Case::random(&mut rng, round % 4 != 0) else { continue };
        let steps = if round % 3 == 0 { [0.5, 2.0] } else { [0.37, 1.9] };
        let q = [Quantiser::new(steps[0], 5.0, 0.0, 255.0), Quantiser::new(steps[1], -3.0, -128.0, 127.0)]
            [round % 2];
        let floats = Epilogue {
            bias: if round % 3 == 0 { Bias::None } else { Bias::PerColumn(case.biases.as_ptr()) },
            activation: (round % 5 == 0).then_some(Unary::Clip { lo: -20.0, hi: 30.0 }),
            ..Epilogue::NONE
        };
        let scale = PerColumn { ptr: case.scales.as_ptr(), step: usize::from(round % 7 != 0) };
        let epilogue = ByteEpilogue { offset: None, scale, floats, quantiser: Some(q), residual: None };
        let c = case.windows.channels;
        let bytes = case.want().into_iter().enumerate().map(|(i, sum)| {
            let bias = if round % 3 == 0 { 0.0 } else { case.biases[i % c] };
            let x = sum as f32 * case.scales[scale.step * (i % c)] + bias;
            q.one(if round % 5 == 0 { x.clamp(-20.0, 30.0) } else { x }) as u8
        });
        let want: Vec<u8> = bytes.collect();
        for isa in Isa::available() {
            let (got, form) = case.run(isa, Some(epilogue));
            let got: Vec<u8> = got.iter().flat_map(|word| word.to_le_bytes()).take(want.len()).collect();
            assert_eq!(got, want, "{:?} {isa} {form:?}", case.windows);
            let blocks = form == WeightForm::Words && quads::fits(&case.windows) && c >= quads::CHANNELS;
            in_blocks += usize::from(blocks);
        }
    }
    assert_eq!(in_blocks > 20, Isa::detect().has_vnni(), "{in_blocks}");
}
