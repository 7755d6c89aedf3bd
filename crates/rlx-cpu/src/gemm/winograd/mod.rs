//! Convolution by Winograd's minimal filtering: of windows with a step of 1 along lines. Images and results are f32, f16 or bf16; what is
//! between them is f32.
//!
//! `F(m, 3)` computes m × m neighbouring outputs from α × α inputs, α = m + 2, by α² multiplications for each pair of channels
//! instead of 9·m²: 2.25 times fewer for m = 2, 4 times for m = 4 (Lavin and Gray: *Fast Algorithms for Convolutional
//! Neural Networks*, 2016); of m outputs of a line by α instead of 3·m, half as many for m = 4. Input tiles are transformed to `V`, of a matrix
//! `[tiles, channels]` for each point of a tile (α², or α); each is multiplied by
//! the matrix of transformed weights with its number; the products are transformed to outputs, and the epilogue is applied.
//!
//! **Blocks.** A thread takes some tiles through all three steps, so that `V` and the products of one panel of filters stay in its
//! second-level cache. Weights are packed as a convolution of a tap for each point ([`pack_filters`]): a panel after the other, each
//! read once for a block.
//!
//! **Larger windows.** Windows of more than 3 × 3, or 3 along a line, are pieces of that size, the last ones with zeros; each line is a piece of what is
//! computed along lines. Inputs are transformed for each piece, and the sum over pieces is depth of the matmul. Along lines windows may be
//! dilated: outputs that are as far apart are a tile.
//!
//! **Volumes.** A kernel of several frames is transformed within frames; the sum over frames is depth of the matmul. A block then has
//! several output frames, so that an input frame is transformed once for most of the outputs that it reaches.
//!
//! **Same bits always.** What an output is computed from depends on its position in its frame alone: not on blocks, threads, or the
//! batch. A value that is infinite or no number reaches all outputs of its tile.
//!
//! **Errors.** The root of the mean squared error is at most 1.5 times that of the direct sum for m = 2, 3 times for m = 4, 2 times along
//! lines (`errors_are_small_multiples_of_the_direct_sums`).

mod filters;
mod tile;
mod transform;

pub use filters::{Filters, pack_filters, packed_filters};
pub use tile::{WinogradTile, WinogradWork};

use std::mem::MaybeUninit;
use std::ops::Range;

use super::conv::ConvRows;
use super::element::Packed;
use super::epilogue::{Epilogue, Finish};
use super::kernel::{AnyRows, Strided};
use super::run::RunTasks;
use super::{Ahead, Gemm, Next, PANEL, TileSizes, panels};
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// One convolution by the algorithm, of images of `T`.
#[derive(Debug, Clone, Copy)]
pub struct WinogradConv<T = f32> {
    /// The algorithm.
    pub tile: WinogradTile,
    /// How many volumes; an image is a volume of one frame.
    pub volumes: usize,
    /// The images and windows: a kernel whose size, step and dilation within frames are what the tile [computes](WinogradTile::computes).
    pub windows: ConvRows<T>,
    /// Input channels.
    pub channels: usize,
    /// Output channels.
    pub filters: usize,
    /// Weights as [`pack_filters`] makes them.
    pub weights: *const f32,
    /// The result, a row of filters for each output position.
    pub c: *mut T,
    /// Elements from one row to the next.
    pub c_stride: usize,
    /// What is done to each element before it is written.
    pub epilogue: Epilogue<T>,
    /// Tile sizes of its matmuls; any give the same bits.
    pub tile_sizes: TileSizes,
    /// What is moved towards the cache while the last panel is computed.
    pub ahead: Ahead,
}

// SAFETY: plain addresses; `run`, which uses them, is unsafe and says what must hold across threads.
unsafe impl<T> Send for WinogradConv<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for WinogradConv<T> {}

/// Bytes of a block's `V` and products that stay in the second-level cache beside the weights that pass by.
const BLOCK_BYTES: usize = 768 << 10;
/// The fewest rows of a block: below, weights are read more than multiplied.
const FEWEST_ROWS: usize = 16;
/// Output frames of a block whose kernel has several.
const FRAMES: usize = 8;
/// What is put between matrices, so that their rows are not all in one set of the first-level cache.
const GAP: usize = LANES;

/// How a convolution is split into blocks: each has `tiles` tiles at most in each of `frames` frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// Blocks of frames of a volume, and of tiles of a frame. Where the kernel has one frame, all frames of all volumes are one row of tiles.
    frames: usize,
    tiles: usize,
    /// Of all.
    count: usize,
}

impl Blocks {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }
}

/// Part of a convolution.
#[derive(Debug, Clone)]
struct Block {
    volume: usize,
    frames: Range<usize>,
    tiles: Range<usize>,
}

/// A part of `0..all`, of `of` nearly equal ones.
fn share(all: usize, part: usize, of: usize) -> Range<usize> {
    all * part / of..all * (part + 1) / of
}

impl<T: Packed> WinogradConv<T> {
    /// Pieces of the kernel within a frame, along lines and pixels.
    fn pieces(&self) -> [usize; 2] {
        self.tile.pieces([self.windows.kernel[1], self.windows.kernel[2]])
    }

    /// How many that are.
    fn all_pieces(&self) -> usize {
        self.pieces().iter().product()
    }

    /// Whether the kernel has one frame of one piece.
    fn is_flat(&self) -> bool {
        self.windows.kernel[0] == 1 && self.all_pieces() == 1
    }

    /// Tiles of a frame.
    fn tiles_of_frame(&self) -> usize {
        self.tile.tiles([self.windows.out[1], self.windows.out[2]], self.windows.dilation[2])
    }

    /// What one block is numbered over: volumes, frames of each, tiles of each.
    fn extents(&self) -> [usize; 3] {
        let (volumes, frames, tiles) = (self.volumes, self.windows.out[0], self.tiles_of_frame());
        if self.is_flat() { [1, 1, volumes * frames * tiles] } else { [volumes, frames, tiles] }
    }

    /// Channels in whole vectors.
    fn row(&self) -> usize {
        self.channels.next_multiple_of(LANES)
    }

    /// Input frames that so many output frames reach; `None` if that overflows.
    fn reach(&self, frames: usize) -> Option<usize> {
        let w = &self.windows;
        let steps = frames.saturating_sub(1).checked_mul(w.stride[0])?;
        w.kernel[0].saturating_sub(1).checked_mul(w.dilation[0])?.checked_add(steps)?.checked_add(1)
    }

    /// The blocks for so many threads; the bits do not depend on them.
    pub fn blocks(&self, threads: usize) -> Blocks {
        let [volumes, frames, tiles] = self.extents();
        let frames_each = if self.is_flat() { 1 } else { frames.clamp(1, FRAMES) };
        let inputs = self.reach(frames_each).unwrap_or(usize::MAX) as f64 / frames_each as f64;
        let inputs = inputs * self.all_pieces() as f64;
        let bytes = (4 * self.tile.points()) as f64 * (self.row() as f64 * inputs + PANEL as f64);
        let rows = ((BLOCK_BYTES as f64 / bytes) as usize / 8 * 8).clamp(FEWEST_ROWS, self.tile.most_rows());
        let of_frames = frames.div_ceil(frames_each).max(1);
        let of_tiles = tiles.div_ceil((rows / frames_each).max(1)).max(1);
        // As many for each thread, where there are tiles enough.
        let outer = volumes * of_frames;
        let even = (outer * of_tiles).next_multiple_of(threads.max(1)).div_ceil(outer.max(1));
        let of_tiles = if even * 8 <= tiles { even } else { of_tiles };
        Blocks { frames: of_frames, tiles: of_tiles, count: outer * of_tiles }
    }

    fn block(&self, blocks: &Blocks, number: usize) -> Block {
        let [_, frames, tiles] = self.extents();
        let (outer, tile) = (number / blocks.tiles, number % blocks.tiles);
        Block {
            volume: outer / blocks.frames,
            frames: share(frames, outer % blocks.frames, blocks.frames),
            tiles: share(tiles, tile, blocks.tiles),
        }
    }

    /// Elements of `V`'s matrices and of the products' for the largest block; `None` if they overflow.
    fn matrices(&self, blocks: &Blocks) -> Option<[usize; 2]> {
        let [_, frames, tiles] = self.extents();
        let (frames, tiles) = (frames.div_ceil(blocks.frames), tiles.div_ceil(blocks.tiles));
        let inputs = self
            .reach(frames)?
            .checked_mul(self.all_pieces())?
            .checked_mul(tiles)?
            .checked_mul(self.row())?;
        let products = frames.checked_mul(tiles)?.checked_mul(PANEL)?;
        Some([inputs.checked_add(GAP)?, products.checked_add(GAP)?])
    }

    /// Bytes of scratch that a thread needs for these blocks; `None` if that overflows.
    pub fn scratch_bytes(&self, blocks: &Blocks) -> Option<usize> {
        let [v, m] = self.matrices(blocks)?;
        v.checked_add(m)?.checked_mul(self.tile.points() * 4)
    }

    /// Computes a range of the blocks.
    ///
    /// # Safety
    /// As [`Gemm::run`] for images, weights, result and epilogue. `scratch` must be this thread's own, writable for
    /// [`Self::scratch_bytes`], and aligned to f32. No two threads may run the same block at once.
    pub unsafe fn run(&self, isa: Isa, blocks: &Blocks, which: Range<usize>, scratch: *mut f32) {
        T::run(isa, RunBlocks { conv: self, blocks, which, scratch });
    }
}

struct RunBlocks<'a, T> {
    conv: &'a WinogradConv<T>,
    blocks: &'a Blocks,
    which: Range<usize>,
    scratch: *mut f32,
}

impl<T: Packed> Kernel for RunBlocks<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // What overflows has no scratch that a caller could promise.
        let Some([v, m]) = self.conv.matrices(self.blocks) else { return };
        for number in self.which.clone() {
            let block = &self.conv.block(self.blocks, number);
            let products = self.scratch.wrapping_add(v * self.conv.tile.points());
            let run = RunBlock { conv: self.conv, block, v: [self.scratch, products], steps: [v, m] };
            match self.conv.tile {
                WinogradTile::Two => s.enter(BlockOf::<T, 4, 4>(run)),
                WinogradTile::Four => s.enter(BlockOf::<T, 6, 6>(run)),
                WinogradTile::Line => s.enter(BlockOf::<T, 1, 6>(run)),
            }
        }
    }
}

#[derive(Clone, Copy)]
struct RunBlock<'a, T> {
    conv: &'a WinogradConv<T>,
    block: &'a Block,
    /// `V` and the products.
    v: [*mut f32; 2],
    /// Elements from one matrix to the next of either.
    steps: [usize; 2],
}

/// A block of tiles of so many lines of α inputs: α, or one.
struct BlockOf<'a, T, const L: usize, const A: usize>(RunBlock<'a, T>);

impl<T: Packed, const L: usize, const A: usize> Kernel for BlockOf<'_, T, L, A> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let run = self.0;
        // SAFETY: `WinogradConv::run`'s promises; scratch is as large as `scratch_bytes` says.
        unsafe {
            run.transform_input::<S, L, A>(s);
            for panel in 0..panels(run.conv.filters) {
                run.multiply(s, panel);
                run.transform_output::<S, L, A>(s, panel);
            }
        }
    }
}

/// A tile: its frame's number, and its corner in outputs.
struct Corner {
    frame: usize,
    y: usize,
    x: usize,
}

impl<T: Packed> RunBlock<'_, T> {
    /// Input frames that its output frames reach.
    #[inline(always)]
    fn reach(&self) -> usize {
        self.conv.reach(self.block.frames.len()).unwrap_or(0)
    }

    /// Where a tile of the block's row of tiles is; its frame is counted over all volumes where the kernel has one frame.
    #[inline(always)]
    fn corner(&self, tile: usize) -> Corner {
        let (w, [lines, pixels]) = (&self.conv.windows, self.conv.tile.outputs());
        let (step, all) = (w.dilation[2], self.conv.tiles_of_frame());
        let across = self.conv.tile.across(w.out[2], step);
        let (line, column) = (tile % all / across, tile % all % across);
        Corner { frame: tile / all, y: line * lines, x: column / step * (pixels * step) + column % step }
    }

    /// The input frame number `number` of those that the block reaches, of a tile; `None` in the padding.
    #[inline(always)]
    fn input_frame(&self, corner: &Corner, number: usize) -> Option<*const T> {
        let (conv, w) = (self.conv, &self.conv.windows);
        let (volume, z) = if conv.is_flat() {
            (corner.frame / w.out[0], corner.frame % w.out[0] * w.stride[0])
        } else {
            (self.block.volume, self.block.frames.start * w.stride[0] + number)
        };
        let z = z.checked_sub(w.pad[0]).filter(|&z| z < w.size[0])?;
        Some(w.input.wrapping_add(volume * w.volume_stride + z * w.strides[0]))
    }

    /// Makes `V`.
    ///
    /// # Safety
    /// As [`WinogradConv::run`].
    #[inline(always)]
    unsafe fn transform_input<S: Simd, const L: usize, const A: usize>(self, s: S) {
        let (conv, w) = (self.conv, &self.conv.windows);
        let (row, frames, pieces) = (conv.row(), self.reach(), conv.pieces());
        let ([high, wide], [_, dy, dx]) = (conv.tile.window(), w.dilation);
        let mut to = self.v[0];
        for number in 0..frames * pieces[0] * pieces[1] {
            let (number, piece) = (number / (pieces[0] * pieces[1]), number % (pieces[0] * pieces[1]));
            let [down, right] = [piece / pieces[1] * high * dy, piece % pieces[1] * wide * dx];
            for tile in self.block.tiles.clone() {
                let corner = self.corner(tile);
                let place = InputTile {
                    frame: self.input_frame(&corner, number),
                    y: (corner.y * w.stride[1] + down) as isize - w.pad[1] as isize,
                    x: (corner.x + right) as isize - w.pad[2] as isize,
                };
                let inside = |at: isize, n: usize, size: usize| at >= 0 && at as usize + n <= size;
                let lines = inside(place.y, L, w.size[1]);
                // SAFETY: the caller's promise; `V` has a row for each tile of each piece of each frame.
                unsafe {
                    if place.frame.is_some() && lines && inside(place.x, (A - 1) * dx + 1, w.size[2]) {
                        input_tile::<S, T, L, A, false>(s, conv, &place, to, self.steps[0]);
                    } else {
                        input_tile::<S, T, L, A, true>(s, conv, &place, to, self.steps[0]);
                    }
                }
                to = to.wrapping_add(row);
            }
        }
    }

    /// Multiplies `V` by the filters of a panel.
    ///
    /// # Safety
    /// As [`WinogradConv::run`].
    #[inline(always)]
    unsafe fn multiply<S: Simd>(self, s: S, panel: usize) {
        let (conv, w) = (self.conv, &self.conv.windows);
        let (points, row) = (conv.tile.points(), conv.row());
        let (frames, tiles) = (self.block.frames.len(), self.block.tiles.len());
        let pieces = conv.all_pieces();
        let depth = w.kernel[0] * pieces * conv.channels;
        let n = PANEL.min(conv.filters - panel * PANEL);
        for point in 0..points {
            let from = self.v[0].wrapping_add(point * self.steps[0]).cast_const();
            let rows = if conv.is_flat() {
                AnyRows::Matrix(Strided { ptr: from, row_stride: row as isize })
            } else {
                AnyRows::Windows(ConvRows {
                    input: from,
                    // Not `from`: what lies there would be taken for zeros.
                    zeros: w.zeros.cast(),
                    size: [self.reach(), pieces, tiles],
                    strides: [pieces * tiles * row, tiles * row, row],
                    volume_stride: 0,
                    out: [frames, 1, tiles],
                    kernel: [w.kernel[0], pieces, 1],
                    stride: [w.stride[0], 1, 1],
                    dilation: [w.dilation[0], 1, 1],
                    pad: [0; 3],
                    first: 0,
                })
            };
            let b = conv.weights.wrapping_add((panel * points + point) * depth * PANEL);
            let last = point + 1 == points && panel + 1 == panels(conv.filters);
            let next = Next { b: b.wrapping_add(depth * PANEL), depth, panels: 1 };
            let gemm = Gemm {
                m: frames * tiles,
                n,
                k: conv.channels,
                rows,
                b,
                c: self.v[1].wrapping_add(point * self.steps[1]),
                c_stride: PANEL,
                epilogue: Epilogue::NONE,
                tile_sizes: conv.tile_sizes,
                ahead: if last { conv.ahead } else { conv.ahead.then(next) },
                wide: None,
            };
            let tasks = 0..gemm.tiling(S::GEMM_ROWS, true).tasks();
            s.enter_plain(RunTasks { gemm: &gemm, tasks });
        }
    }

    /// Makes outputs of the products by a panel's filters.
    ///
    /// # Safety
    /// As [`WinogradConv::run`].
    #[inline(always)]
    unsafe fn transform_output<S: Simd, const L: usize, const A: usize>(self, s: S, panel: usize) {
        let (conv, w) = (self.conv, &self.conv.windows);
        let (col, [lines, pixels]) = (panel * PANEL, conv.tile.outputs());
        let width = conv.filters - col;
        let mut from = self.v[1].cast_const();
        for frame in self.block.frames.clone() {
            for tile in self.block.tiles.clone() {
                let corner = self.corner(tile);
                let frame = if conv.is_flat() { corner.frame } else { self.block.volume * w.out[0] + frame };
                let mut sums = MaybeUninit::<[[[f32; PANEL]; 4]; 4]>::uninit();
                let at = sums.as_mut_ptr().cast::<f32>();
                // SAFETY: the caller's promise; the products have a row for each tile. All sums that are read are written.
                unsafe {
                    for v in 0..width.min(PANEL).div_ceil(LANES) {
                        output_tile::<S, L, A>(
                            s,
                            from.wrapping_add(v * LANES),
                            self.steps[1],
                            at.add(v * LANES),
                        );
                    }
                    // Outputs that are next to each other are finished together.
                    let step = w.dilation[2];
                    let all = pixels.min(w.out[2].saturating_sub(corner.x).div_ceil(step));
                    let (calls, rows) = if step == 1 { (1, all) } else { (all, 1) };
                    for y in 0..lines.min(w.out[1] - corner.y) {
                        for x in 0..calls {
                            s.enter(Finish {
                                e: &conv.epilogue,
                                sums: at.add((y * 4 + x) * PANEL),
                                rows,
                                vecs: PANEL / LANES,
                                c: conv.c,
                                stride: conv.c_stride,
                                row: (frame * w.out[1] + corner.y + y) * w.out[2] + corner.x + x * step,
                                col,
                                width,
                            });
                        }
                    }
                }
                from = from.wrapping_add(PANEL);
            }
        }
    }
}

/// Where a tile's inputs are.
struct InputTile<T> {
    /// Its frame, where that is within the volume.
    frame: Option<*const T>,
    /// Its corner, which may be in the padding.
    y: isize,
    x: isize,
}

/// Transforms the L lines of α inputs of a tile, all channels, to one row of each of `V`'s matrices; `EDGE`: some may be padding.
///
/// # Safety
/// As [`WinogradConv::run`]; `to` must be writable for a row of each matrix, `step` elements apart.
#[inline(always)]
unsafe fn input_tile<S: Simd, T: Packed, const L: usize, const A: usize, const EDGE: bool>(
    s: S,
    conv: &WinogradConv<T>,
    tile: &InputTile<T>,
    to: *mut f32,
    step: usize,
) {
    let w = &conv.windows;
    let (frame, dx) = (tile.frame.unwrap_or(w.zeros), w.dilation[2]);
    let corner = frame.wrapping_offset(tile.y * w.strides[1] as isize + tile.x * w.strides[2] as isize);
    // Negative positions become huge, so one comparison checks both ends.
    let inside = |y: usize, x: usize| {
        let (y, x) = ((tile.y + y as isize) as usize, (tile.x + (x * dx) as isize) as usize);
        tile.frame.is_some() && y < w.size[1] && x < w.size[2]
    };
    let mut c = 0;
    while c < conv.channels {
        let n = LANES.min(conv.channels - c);
        let mut columns = [[s.zero(); A]; L];
        for x in 0..A {
            let mut column = [s.zero(); L];
            for (y, to) in column.iter_mut().enumerate() {
                if !EDGE || inside(y, x) {
                    let from = corner.wrapping_add(y * w.strides[1] + x * dx * w.strides[2] + c);
                    // SAFETY: the caller's promise: a pixel of the frame.
                    *to = unsafe { T::load(s, from, n) };
                }
            }
            let column = if const { L == 1 } { column } else { transform::input_line::<S, L>(s, &column) };
            for y in 0..L {
                columns[y][x] = column[y];
            }
        }
        for (y, line) in columns.iter().enumerate() {
            let line = transform::input_line::<S, A>(s, line);
            for (x, &value) in line.iter().enumerate() {
                // SAFETY: the caller's promise: a row of each matrix has whole vectors.
                unsafe { s.store(to.wrapping_add((y * A + x) * step + c), value) };
            }
        }
        c += LANES;
    }
}

/// Transforms a vector of the products of a tile to outputs, in rows of four outputs of a panel each.
///
/// # Safety
/// A vector must be readable at `from` in each matrix, `step` elements apart, and `to` writable for the outputs of a panel.
#[inline(always)]
unsafe fn output_tile<S: Simd, const L: usize, const A: usize>(
    s: S,
    from: *const f32,
    step: usize,
    to: *mut f32,
) {
    let outputs = const { if L == 1 { 1 } else { L - 2 } };
    let mut lines = [[s.zero(); A]; 4];
    for x in 0..A {
        let mut column = [s.zero(); L];
        for (y, value) in column.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *value = unsafe { s.load(from.wrapping_add((y * A + x) * step)) };
        }
        if const { L == 1 } {
            lines[0][x] = column[0];
            continue;
        }
        let column = transform::output_line::<S, L>(s, &column);
        for y in 0..outputs {
            lines[y][x] = column[y];
        }
    }
    for (y, line) in lines.iter().enumerate().take(outputs) {
        let line = transform::output_line::<S, A>(s, line);
        for (x, &value) in line.iter().enumerate().take(A - 2) {
            // SAFETY: the caller's promise.
            unsafe { s.store(to.wrapping_add((y * 4 + x) * PANEL), value) };
        }
    }
}

#[cfg(test)]
mod tests;
