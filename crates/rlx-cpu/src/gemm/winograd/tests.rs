//! Winograd's algorithm against the definition in f64.

use super::tile::MOST_PIECES;
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
    /// Lines and pixels of the windows.
    window: [usize; 2],
    frames: usize,
    stride: [usize; 3],
    dilation: [usize; 3],
    pad: [usize; 3],
    channels: usize,
    filters: usize,
    x: Vec<f32>,
    w: Vec<f32>,
    bias: Vec<f32>,
}

impl Case {
    /// One that the tile computes: larger windows and, along lines, steps from line to line and dilated windows among them.
    fn random(rng: &mut Rng, tile: WinogradTile) -> Case {
        let [high, wide] = tile.window();
        let window = match rng.below(3) {
            0 => [high, wide],
            _ => [high + rng.below(4), wide + rng.below(10 - 2 * high)],
        };
        let [a, b] = tile.pieces(window);
        let window = if a * b > MOST_PIECES { [high, wide] } else { window };
        let mut step = |most: usize| if high == 1 { 1 + rng.below(most) } else { 1 };
        let (down, apart) = (step(2), [step(2), step(5)]);
        let frames = [1, 1, 2, 3][rng.below(4)];
        let (stride, dilation) = ([1 + rng.below(2), down, 1], [1 + rng.below(2), apart[0], apart[1]]);
        let kernel = [frames, window[0], window[1]];
        let span: [usize; 3] = std::array::from_fn(|d| (kernel[d] - 1) * dilation[d] + 1);
        let pad: [usize; 3] = std::array::from_fn(|d| rng.below(kernel[d]));
        let size: [usize; 3] =
            std::array::from_fn(|d| span[d].saturating_sub(2 * pad[d]).max(1) + rng.below([6, 12, 20][d]));
        let out = std::array::from_fn(|d| (size[d] + 2 * pad[d] - span[d]) / stride[d] + 1);
        let (volumes, channels, filters) = (1 + rng.below(3), 1 + rng.below(40), 1 + rng.below(60));
        let x = rng.vec(volumes * size.iter().product::<usize>() * channels);
        let w = rng.vec(filters * channels * kernel.iter().product::<usize>());
        let bias = rng.vec(filters);
        Case { volumes, size, out, window, frames, stride, dilation, pad, channels, filters, x, w, bias }
    }

    fn outputs(&self) -> usize {
        self.volumes * self.out.iter().product::<usize>()
    }

    /// Element (filter, channel, frame, y, x) of the weights.
    fn weight(&self, filter: usize, channel: usize, at: [usize; 3]) -> f32 {
        let [high, wide] = self.window;
        let line = ((filter * self.channels + channel) * self.frames + at[0]) * high + at[1];
        self.w[line * wide + at[2]]
    }

    /// Taps of a window of all frames, and where one of them is.
    fn taps(&self) -> usize {
        self.frames * self.window.iter().product::<usize>()
    }

    fn tap(&self, number: usize) -> [usize; 3] {
        let [high, wide] = self.window;
        [number / (high * wide), number / wide % high, number % wide]
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
                for tap in 0..self.taps() {
                    let k = self.tap(tap);
                    let out = [oz, oy, ox];
                    let place: [usize; 3] =
                        std::array::from_fn(|d| out[d] * self.stride[d] + k[d] * self.dilation[d]);
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
            kernel: [self.frames, self.window[0], self.window[1]],
            stride: self.stride,
            dilation: self.dilation,
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
        let mut packed = vec![7.0f32; packed_filters(tile, extents, self.window).unwrap()];
        let [high, wide] = self.window;
        let strides = [self.channels * self.taps(), self.taps(), high * wide, wide, 1].map(|s| s as isize);
        let mut out = vec![7.0f32; self.outputs() * self.filters];
        // SAFETY: the vectors cover the extents.
        unsafe {
            let filters = Filters { ptr: self.w.as_ptr(), strides, extents, window: self.window };
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
        let (taps, k, n) = (self.taps(), self.channels, self.filters);
        let zeros = vec![0.0; k];
        let mut matrix = vec![0.0; taps * k * n];
        for (i, value) in matrix.iter_mut().enumerate() {
            let (filter, step) = (i % n, i / n);
            let tap = step / k;
            *value = self.weight(filter, step % k, self.tap(tap));
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
    for (round, tile) in (0..25).flat_map(|round| WinogradTile::ALL.map(|tile| (round, tile))) {
        let case = Case::random(&mut rng, tile);
        let want = case.reference();
        for isa in Isa::available() {
            let got = case.winograd(isa, tile, 1);
            let largest = want.iter().fold(1.0, |a: f64, b| a.max(*b));
            for (i, (&g, &w)) in got.iter().zip(&want).enumerate() {
                let difference = (f64::from(g) - w).abs();
                let what = format!("round {round}, {i}: {g}, {w} by {tile:?} on {:?}", isa.kind());
                assert!(difference < 2e-5 * largest, "{what}");
            }
        }
    }
}

/// The only row of a matmul lies where the matrix begins, which was taken for padding where frames of a kernel are apart.
#[test]
fn a_block_of_one_tile_has_its_first_frame() {
    let mut rng = Rng::new(26);
    let mut case = Case::random(&mut rng, WinogradTile::Two);
    (case.volumes, case.frames, case.window) = (1, 2, [3, 3]);
    (case.stride, case.dilation, case.pad) = ([1; 3], [2, 1, 1], [0; 3]);
    (case.size, case.out, case.channels, case.filters) = ([3, 4, 4], [1, 2, 2], 1, 1);
    (case.x, case.w, case.bias) = (vec![1.0; 48], vec![1.0; 18], vec![0.0]);
    for isa in Isa::available() {
        assert_eq!(case.winograd(isa, WinogradTile::Two, 1), [18.0; 4], "{isa}");
    }
}

#[test]
fn bits_depend_neither_on_blocks_nor_on_the_batch() {
    let mut rng = Rng::new(24);
    for tile in (0..8).flat_map(|_| WinogradTile::ALL) {
        let mut case = Case::random(&mut rng, tile);
        for d in 1..3 {
            case.size[d] += 20 * case.stride[d];
            case.out[d] += 20;
        }
        case.x = rng.vec(case.volumes * case.size.iter().product::<usize>() * case.channels);
        for isa in Isa::available() {
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

#[test]
fn errors_are_small_multiples_of_the_direct_sums() {
    let mut rng = Rng::new(25);
    let isa = Isa::detect();
    for channels in [16, 64, 256] {
        for (tile, most) in [(WinogradTile::Two, 1.5), (WinogradTile::Four, 3.0), (WinogradTile::Line, 2.0)] {
            let mut case = Case::random(&mut rng, tile);
            let [high, wide] = tile.window();
            (case.volumes, case.frames, case.window) = (1, 1, [high, wide]);
            (case.stride, case.dilation) = ([1; 3], [1; 3]);
            (case.size, case.out, case.pad) = ([1, 16, 16], [1, 16, 16], [0, high / 2, 1]);
            (case.channels, case.filters) = (channels, 32);
            case.x = rng.vec(256 * channels);
            (case.w, case.bias) = (rng.vec(32 * channels * case.taps()), rng.vec(32));
            let want = case.reference();
            let (direct, own) = (error(&case.direct(isa), &want), error(&case.winograd(isa, tile, 1), &want));
            assert!(own < most * direct, "{channels} channels by {tile:?}: {own:e}, directly {direct:e}");
        }
    }
}
