//! The algorithms by their tiles, what each computes, and how long that is expected to take.

use crate::simd::LANES;

/// The most pieces of a window: each has its own transformed inputs, which would not stay in the cache.
pub(super) const MOST_PIECES: usize = 4;

/// Which algorithm: the outputs of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WinogradTile {
    /// `F(2 × 2, 3 × 3)`.
    Two,
    /// `F(4 × 4, 3 × 3)`.
    Four,
    /// `F(4, 3)` along lines.
    Line,
}

impl WinogradTile {
    /// All of them.
    pub const ALL: [WinogradTile; 3] = [WinogradTile::Two, WinogradTile::Four, WinogradTile::Line];

    /// Lines and pixels of its outputs.
    pub const fn outputs(self) -> [usize; 2] {
        match self {
            WinogradTile::Two => [2, 2],
            WinogradTile::Four => [4, 4],
            WinogradTile::Line => [1, 4],
        }
    }

    /// Lines and pixels of the windows, or of their pieces.
    pub const fn window(self) -> [usize; 2] {
        match self {
            WinogradTile::Two | WinogradTile::Four => [3, 3],
            WinogradTile::Line => [1, 3],
        }
    }

    /// Matrices that are multiplied: one for each input of a tile.
    pub const fn points(self) -> usize {
        let ([lines, pixels], [high, wide]) = (self.outputs(), self.window());
        (lines + high - 1) * (pixels + wide - 1)
    }

    /// Pieces of windows of so many lines and pixels, along each.
    pub const fn pieces(self, [lines, pixels]: [usize; 2]) -> [usize; 2] {
        let [high, wide] = self.window();
        [lines.div_ceil(high), pixels.div_ceil(wide)]
    }

    /// Whether it computes windows with this size, step and dilation.
    pub const fn computes(self, window: [usize; 2], step: [usize; 2], dilation: [usize; 2]) -> bool {
        let ([high, wide], [rows, columns]) = (self.window(), self.pieces(window));
        let dense = step[1] == 1
            && dilation[1] > 0
            && (high == 1 || step[0] == 1 && dilation[0] == 1 && dilation[1] == 1);
        dense && window[0] >= high && window[1] >= wide && rows * columns <= MOST_PIECES
    }

    /// Tiles along a line of `pixels` outputs whose windows are dilated by `step`.
    pub(super) const fn across(self, pixels: usize, step: usize) -> usize {
        pixels.div_ceil(step).div_ceil(self.outputs()[1]) * step
    }

    /// Tiles of a frame of `out` lines and pixels, whose windows are dilated by `step` along lines.
    pub const fn tiles(self, [lines, pixels]: [usize; 2], step: usize) -> usize {
        lines.div_ceil(self.outputs()[0]) * self.across(pixels, step)
    }

    /// The most rows of a block: more would not stay in the cache, or take too much of it from the weights.
    pub(super) const fn most_rows(self) -> usize {
        match self {
            WinogradTile::Two | WinogradTile::Four => 64,
            WinogradTile::Line => 256,
        }
    }

    /// As many multiplications as take the time that one channel's transform takes, in and out: a vector of channels of a tile takes
    /// some 100 cycles in and 120 out (`F(4 × 4, 3 × 3)`), with 32 multiplications in each.
    const fn transforms(self) -> [f64; 2] {
        match self {
            WinogradTile::Two => [90.0, 90.0],
            WinogradTile::Four => [200.0, 240.0],
            WinogradTile::Line => [40.0, 60.0],
        }
    }
}

/// What the algorithm has to compute, for an estimate of its time.
#[derive(Debug, Clone, Copy)]
pub struct WinogradWork {
    /// The algorithm.
    pub tile: WinogradTile,
    /// Tiles of a frame.
    pub tiles: usize,
    /// Pieces of the kernel within a frame.
    pub pieces: usize,
    /// Whether outputs of a tile are next to each other.
    pub dense: bool,
    /// Frames of the kernel, and of the result in all volumes.
    pub frames: [usize; 2],
    /// Input channels.
    pub channels: usize,
    /// Output channels.
    pub filters: usize,
}

impl WinogradWork {
    /// Multiplications for which it takes as long as the direct sum for as many: those of the matmuls, and the transforms.
    pub fn multiplications(&self) -> f64 {
        let ([taps, frames], pieces) = (self.frames.map(|n| n as f64), self.pieces as f64);
        let depth = taps * pieces * self.channels as f64;
        // A tile of a matmul takes some 60 cycles besides its multiplications, 12 a step.
        let multiplied =
            self.tile.points() as f64 * depth * self.filters as f64 * (1.08 + 5.0 / depth.max(1.0));
        // Transforms are of whole vectors.
        let [c, o] = [self.channels, self.filters].map(|n| n.next_multiple_of(LANES) as f64);
        let each = self.tile.transforms();
        let out = if self.dense { each[1] } else { 2.0 * each[1] };
        self.tiles as f64 * frames * (multiplied + pieces * each[0] * c + out * o)
    }
}
