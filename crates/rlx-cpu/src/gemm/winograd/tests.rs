//! Winograd's algorithm against the definition in f64.

use super::*;
use crate::gemm::pack;
use crate::math::Unary;
use crate::testing::Rng;

/// A convolution with its data.
#[derive(Debug, Clone)]
struct Case {
    volumes: usize,
    size: [usize; 3],
    out: [usize; 3],
    frames: usize,
    stride: usize,
    dilation: usize,
    pad: [usize; 3],
    channels: usize,
    filters: usize,
    x: Vec<f32>,
    w: Vec<f32>,
    bias: Vec<f32>,
}

impl Case {
    fn random(rng: &mut Rng) -> Case {
        let frames = [1, 1, 2, 3][rng.below(4)];
        let (stride, dilation) = (1 + rng.below(2), 1 + rng.below(2));
        let (depth, pad) = (1 + rng.below(6), [rng.below(frames), rng.below(3), rng.below(3)]);
        let span = (frames - 1) * dilation + 1;
        let depth = depth.max(span);
        let size = [depth, 3 + rng.below(12), 3 + rng.below(12)];
        let out =
            [(size[0] + 2 * pad[0] - span) / stride + 1, size[1] + 2 * pad[1] - 2, size[2] + 2 * pad[2] - 2];
        let (volumes, channels, filters) = (1 + rng.below(3), 1 + rng.below(40), 1 + rng.below(60));
        let x = rng.vec(volumes * size.iter().product::<usize>() * channels);
        let w = rng.vec(filters * channels * frames * 9);
        let bias = rng.vec(filters);
        Case { volumes, size, out, frames, stride, dilation, pad, channels, filters, x, w, bias }
    }

    fn outputs(&self) -> usize {
        self.volumes * self.out.iter().product::<usize>()
    }

    /// Element (filter, channel, frame, y, x) of the weights.
    fn weight(&self, filter: usize, channel: usize, at: [usize; 3]) -> f32 {
        self.w[((filter * self.channels + channel) * self.frames + at[0]) * 9 + at[1] * 3 + at[2]]
    }

    /// The definition, in f64, with a bias and a rectifier.
    fn reference(&self) -> Vec<f64> {
        let mut all = Vec::with_capacity(self.outputs() * self.filters);
        for at in 0..self.outputs() {
            let (ox, rest) = (at % self.out[2], at / self.out[2]);
            let (oy, rest) = (rest % self.out[1], rest / self.out[1]);
            let (oz, volume) = (rest % self.out[0], rest / self.out[0]);
            for filter in 0..self.filters {
                let mut sum = f64::from(self.bias[filter]);
                for tap in 0..self.frames * 9 {
                    let k = [tap / 9, tap / 3 % 3, tap % 3];
                    let place = [oz * self.stride + k[0] * self.dilation, oy + k[1], ox + k[2]];
                    let inside: Option<Vec<usize>> = (0..3)
                        .map(|d| place[d].checked_sub(self.pad[d]).filter(|&p| p < self.size[d]))
                        .collect();
                    let Some(p) = inside else { continue };
                    let pixel = ((volume * self.size[0] + p[0]) * self.size[1] + p[1]) * self.size[2] + p[2];
                    for c in 0..self.channels {
                        let x = f64::from(self.x[pixel * self.channels + c]);
                        sum += x * f64::from(self.weight(filter, c, k));
                    }
                }
                all.push(sum.max(0.0));
            }
        }
        all
    }

    fn windows(&self, zeros: &[f32]) -> ConvRows {
        let ([d, h, w], c) = (self.size, self.channels);
        ConvRows {
            input: self.x.as_ptr(),
            zeros: zeros.as_ptr(),
            size: self.size,
            strides: [h * w * c, w * c, c],
            volume_stride: d * h * w * c,
            out: self.out,
            kernel: [self.frames, 3, 3],
            stride: [self.stride, 1, 1],
            dilation: [self.dilation, 1, 1],
            pad: self.pad,
            first: 0,
        }
    }

    fn epilogue(&self) -> Epilogue {
        Epilogue::bias(self.bias.as_ptr()).with(Unary::Relu)
    }

    /// By the algorithm, as if for so many threads.
    fn winograd(&self, isa: Isa, tile: WinogradTile, threads: usize) -> Vec<f32> {
        let (zeros, extents) = (vec![0.0; self.channels], [self.filters, self.channels, self.frames]);
        let mut packed = vec![7.0f32; packed_filters(tile, extents).unwrap()];
        let strides = [self.channels * self.frames * 9, self.frames * 9, 9, 3, 1].map(|s| s as isize);
        let mut out = vec![7.0f32; self.outputs() * self.filters];
        // SAFETY: the vectors cover the extents.
        unsafe {
            let filters = Filters { ptr: self.w.as_ptr(), strides, extents };
            pack_filters(isa, tile, &filters, packed.as_mut_ptr(), 0..panels(self.filters));
            let conv = WinogradConv {
                tile,
                volumes: self.volumes,
                windows: self.windows(&zeros),
                channels: self.channels,
                filters: self.filters,
                weights: packed.as_ptr(),
                c: out.as_mut_ptr(),
                c_stride: self.filters,
                epilogue: self.epilogue(),
                tile_sizes: TileSizes::DEFAULT,
                ahead: Ahead::Panels,
            };
            let blocks = conv.blocks(threads);
            let mut scratch = vec![f32::NAN; conv.scratch_bytes(&blocks).unwrap() / 4];
            conv.run(isa, &blocks, 0..blocks.count(), scratch.as_mut_ptr());
        }
        out
    }

    /// By the direct sum.
    fn direct(&self, isa: Isa) -> Vec<f32> {
        let (taps, k, n) = (self.frames * 9, self.channels, self.filters);
        let zeros = vec![0.0; k];
        let mut matrix = vec![0.0; taps * k * n];
        for (i, value) in matrix.iter_mut().enumerate() {
            let (filter, step) = (i % n, i / n);
            let tap = step / k;
            *value = self.weight(filter, step % k, [tap / 9, tap / 3 % 3, tap % 3]);
        }
        let mut packed = vec![0.0f32; super::super::packed_len(taps * k, n).unwrap()];
        let mut out = vec![7.0f32; self.outputs() * n];
        // SAFETY: the vectors cover the extents.
        unsafe {
            pack(matrix.as_ptr(), n as isize, 1, taps * k, n, packed.as_mut_ptr(), 0..panels(n));
            let gemm = Gemm {
                m: self.outputs(),
                n,
                k,
                rows: self.windows(&zeros),
                b: packed.as_ptr(),
                c: out.as_mut_ptr(),
                c_stride: n,
                epilogue: self.epilogue(),
                tile_sizes: TileSizes::DEFAULT,
                ahead: Ahead::Panels,
                wide: None,
            };
            gemm.run(isa, 0..gemm.tasks(isa));
        }
        out
    }
}

/// The root of the mean squared error, over that of the values.
fn error(got: &[f32], want: &[f64]) -> f64 {
    let sum: f64 = got.iter().zip(want).map(|(&g, w)| (f64::from(g) - w).powi(2)).sum();
    (sum / want.iter().map(|w| w * w).sum::<f64>()).sqrt()
}

#[test]
fn images_and_volumes_are_what_the_definition_says() {
    let mut rng = Rng::new(23);
    for _ in 0..25 {
        let case = Case::random(&mut rng);
        let want = case.reference();
        for isa in Isa::available() {
            for tile in [WinogradTile::Two, WinogradTile::Four] {
                let got = case.winograd(isa, tile, 1);
                let largest = want.iter().fold(1.0, |a: f64, b| a.max(*b));
                for (i, (&g, &w)) in got.iter().zip(&want).enumerate() {
                    let difference = (f64::from(g) - w).abs();
                    assert!(difference < 2e-5 * largest, "{i}: {g}, {w} by {tile:?} on {:?}", isa.kind());
                }
            }
        }
    }
}

#[test]
fn bits_depend_neither_on_blocks_nor_on_the_batch() {
    let mut rng = Rng::new(24);
    for _ in 0..8 {
        let mut case = Case::random(&mut rng);
        case.size[1..].iter_mut().chain(&mut case.out[1..]).for_each(|n| *n += 20);
        case.x = rng.vec(case.volumes * case.size.iter().product::<usize>() * case.channels);
        for isa in Isa::available() {
            for tile in [WinogradTile::Two, WinogradTile::Four] {
                let all = case.winograd(isa, tile, 1);
                for threads in [2, 3, 7] {
                    assert_eq!(case.winograd(isa, tile, threads), all);
                }
                let mut last = case.clone();
                last.x.drain(..case.x.len() / case.volumes * (case.volumes - 1));
                last.volumes = 1;
                let own = last.winograd(isa, tile, 1);
                assert_eq!(own, all[all.len() - own.len()..]);
            }
        }
    }
}

#[test]
fn errors_are_small_multiples_of_the_direct_sums() {
    let mut rng = Rng::new(25);
    let isa = Isa::detect();
    for channels in [16, 64, 256] {
        let mut case = Case::random(&mut rng);
        (case.volumes, case.frames, case.stride, case.dilation) = (1, 1, 1, 1);
        (case.size, case.out, case.pad) = ([1, 16, 16], [1, 16, 16], [0, 1, 1]);
        (case.channels, case.filters) = (channels, 32);
        case.x = rng.vec(256 * channels);
        (case.w, case.bias) = (rng.vec(32 * channels * 9), rng.vec(32));
        let (want, direct) = (case.reference(), case.direct(isa));
        let direct = error(&direct, &want);
        for (tile, most) in [(WinogradTile::Two, 1.5), (WinogradTile::Four, 3.0)] {
            let own = error(&case.winograd(isa, tile, 1), &want);
            assert!(own < most * direct, "{channels} channels by {tile:?}: {own:e}, directly {direct:e}");
        }
    }
}
