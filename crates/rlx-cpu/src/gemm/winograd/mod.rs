//! Convolution by Winograd's minimal filtering: 3 × 3 windows with a step of 1, of f32.
//!
//! `F(m, 3)` computes m × m neighbouring outputs from α × α inputs, α = m + 2, by α² multiplications for each pair of channels
//! instead of 9·m²: 2.25 times fewer for m = 2, 4 times for m = 4 (Lavin and Gray: *Fast Algorithms for Convolutional
//! Neural Networks*, 2016). Input tiles are transformed to `V`, of α² matrices `[tiles, channels]`; each is multiplied by
//! the matrix of transformed weights with its number; the products are transformed to outputs, and the epilogue is applied.
//!
//! **Blocks.** A thread takes some tiles through all three steps, so that `V` and the products of one panel of filters stay in its
//! second-level cache. Weights are packed as a convolution of α² taps ([`pack_filters`]): a panel after the other, each
//! read once for a block.
//!
//! **Volumes.** A kernel of several frames is transformed within frames; the sum over frames is depth of the matmul. A block then has
//! several output frames, so that an input frame is transformed once for most of the outputs that it reaches.
//!
//! **Same bits always.** What an output is computed from depends on its position in its frame alone: not on blocks, threads, or the
//! batch. A value that is infinite or no number reaches all outputs of its tile.
//!
//! **Errors.** The root of the mean squared error is at most 1.5 times that of the direct sum for m = 2, 3 times for m = 4
//! (`errors_are_small_multiples_of_the_direct_sums`).

mod transform;

use std::mem::MaybeUninit;
use std::ops::Range;

use super::conv::ConvRows;
use super::epilogue::{Epilogue, Finish};
use super::kernel::{AnyRows, Strided};
use super::{Ahead, Gemm, Next, PANEL, RunTasks, TileSizes, panels};
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// Which algorithm: the outputs of a tile along each axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WinogradTile {
    /// `F(2 × 2, 3 × 3)`.
    Two,
    /// `F(4 × 4, 3 × 3)`.
    Four,
}

impl WinogradTile {
    /// Outputs along an axis.
    pub const fn outputs(self) -> usize {
        match self {
            WinogradTile::Two => 2,
            WinogradTile::Four => 4,
        }
    }

    /// Matrices that are multiplied, α².
    pub const fn points(self) -> usize {
        (self.outputs() + 2) * (self.outputs() + 2)
    }

    /// Tiles of a frame of `out` lines and pixels.
    pub const fn tiles(self, [lines, pixels]: [usize; 2]) -> usize {
        lines.div_ceil(self.outputs()) * pixels.div_ceil(self.outputs())
    }
}

/// One convolution by the algorithm.
#[derive(Debug, Clone, Copy)]
pub struct WinogradConv {
    /// The algorithm.
    pub tile: WinogradTile,
    /// How many volumes; an image is a volume of one frame.
    pub volumes: usize,
    /// The images and windows: a kernel of `[frames, 3, 3]` whose step and dilation within frames are 1.
    pub windows: ConvRows,
    /// Input channels.
    pub channels: usize,
    /// Output channels.
    pub filters: usize,
    /// Weights as [`pack_filters`] makes them.
    pub weights: *const f32,
    /// The result, a row of filters for each output position.
    pub c: *mut f32,
    /// Elements from one row to the next.
    pub c_stride: usize,
    /// What is done to each element before it is written.
    pub epilogue: Epilogue,
    /// Tile sizes of its matmuls; any give the same bits.
    pub tile_sizes: TileSizes,
    /// What is moved towards the cache while the last panel is computed.
    pub ahead: Ahead,
}

// SAFETY: plain addresses; `run`, which uses them, is unsafe and says what must hold across threads.
unsafe impl Send for WinogradConv {}
// SAFETY: as above.
unsafe impl Sync for WinogradConv {}

/// Bytes of a block's `V` and products that stay in the second-level cache beside the weights that pass by.
const BLOCK_BYTES: usize = 768 << 10;
/// Most rows of a block, and fewest: below, weights are read more than multiplied.
const ROWS: Range<usize> = 16..64;
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

impl WinogradConv {
    /// Whether the kernel has one frame.
    fn is_flat(&self) -> bool {
        self.windows.kernel[0] == 1
    }

    /// Tiles of a frame.
    fn tiles_of_frame(&self) -> usize {
        self.tile.tiles([self.windows.out[1], self.windows.out[2]])
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
        let bytes = (4 * self.tile.points()) as f64 * (self.row() as f64 * inputs + PANEL as f64);
        let rows = ((BLOCK_BYTES as f64 / bytes) as usize / 8 * 8).clamp(ROWS.start, ROWS.end);
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
        let inputs = self.reach(frames)?.checked_mul(tiles)?.checked_mul(self.row())?;
        let products = frames.checked_mul(tiles)?.checked_mul(PANEL)?;
        Some([inputs.checked_add(GAP)?, products.checked_add(GAP)?])
    }

    /// Bytes of scratch that a thread needs for these blocks; `None` if that overflows.
    pub fn scratch_bytes(&self, blocks: &Blocks) -> Option<usize> {
        let [v, m] = self.matrices(blocks)?;
        v.checked_add(m)?.checked_mul(self.tile.points() * 4)
    }

    /// Multiplications for which the algorithm takes as long as the direct sum for as many: those of the matmuls, and the transforms.
    pub fn work(
        tile: WinogradTile,
        frames: [usize; 2],
        tiles: usize,
        [channels, filters]: [usize; 2],
    ) -> f64 {
        let [taps, out] = frames.map(|n| n as f64);
        let multiplied = tile.points() as f64 * out * taps * (channels * filters) as f64;
        // Transforms are of whole vectors.
        let [c, o] = [channels, filters].map(|n| n.next_multiple_of(LANES) as f64);
        // A vector of channels of a tile takes some 100 cycles in, and 120 out (F(4, 3)), with 32 multiplications in each.
        let each = if tile == WinogradTile::Four { [200.0, 240.0] } else { [90.0, 90.0] };
        tiles as f64 * (multiplied * 1.08 + out * (each[0] * c + each[1] * o))
    }

    /// Computes a range of the blocks.
    ///
    /// # Safety
    /// As [`Gemm::run`] for images, weights, result and epilogue. `scratch` must be this thread's own, writable for
    /// [`Self::scratch_bytes`], and aligned to f32. No two threads may run the same block at once.
    pub unsafe fn run(&self, isa: Isa, blocks: &Blocks, which: Range<usize>, scratch: *mut f32) {
        isa.run(RunBlocks { conv: self, blocks, which, scratch });
    }
}

struct RunBlocks<'a> {
    conv: &'a WinogradConv,
    blocks: &'a Blocks,
    which: Range<usize>,
    scratch: *mut f32,
}

impl Kernel for RunBlocks<'_> {
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
                WinogradTile::Two => s.enter(BlockOf::<4>(run)),
                WinogradTile::Four => s.enter(BlockOf::<6>(run)),
            }
        }
    }
}

#[derive(Clone, Copy)]
struct RunBlock<'a> {
    conv: &'a WinogradConv,
    block: &'a Block,
    /// `V` and the products.
    v: [*mut f32; 2],
    /// Elements from one matrix to the next of either.
    steps: [usize; 2],
}

/// A block of tiles that α inputs reach along each axis.
struct BlockOf<'a, const A: usize>(RunBlock<'a>);

impl<const A: usize> Kernel for BlockOf<'_, A> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let run = self.0;
        // SAFETY: `WinogradConv::run`'s promises; scratch is as large as `scratch_bytes` says.
        unsafe {
            run.transform_input::<S, A>(s);
            for panel in 0..panels(run.conv.filters) {
                run.multiply(s, panel);
                run.transform_output::<S, A>(s, panel);
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

impl RunBlock<'_> {
    /// Input frames that its output frames reach.
    #[inline(always)]
    fn reach(&self) -> usize {
        self.conv.reach(self.block.frames.len()).unwrap_or(0)
    }

    /// Where a tile of the block's row of tiles is; its frame is counted over all volumes where the kernel has one frame.
    #[inline(always)]
    fn corner(&self, tile: usize) -> Corner {
        let (w, m) = (&self.conv.windows, self.conv.tile.outputs());
        let (across, all) = (w.out[2].div_ceil(m), self.conv.tiles_of_frame());
        let within = tile % all;
        Corner { frame: tile / all, y: within / across * m, x: within % across * m }
    }

    /// The input frame number `number` of those that the block reaches, of a tile; `None` in the padding.
    #[inline(always)]
    fn input_frame(&self, corner: &Corner, number: usize) -> Option<*const f32> {
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
    #[inline(always)]
    unsafe fn transform_input<S: Simd, const A: usize>(self, s: S) {
        let (conv, w) = (self.conv, &self.conv.windows);
        let (row, frames) = (conv.row(), self.reach());
        let mut to = self.v[0];
        for number in 0..frames {
            for tile in self.block.tiles.clone() {
                let corner = self.corner(tile);
                let place = InputTile {
                    frame: self.input_frame(&corner, number),
                    y: corner.y as isize - w.pad[1] as isize,
                    x: corner.x as isize - w.pad[2] as isize,
                };
                let inside = |at: isize, size: usize| at >= 0 && at as usize + A <= size;
                // SAFETY: the caller's promise; `V` has a row for each tile of each frame.
                unsafe {
                    if place.frame.is_some() && inside(place.y, w.size[1]) && inside(place.x, w.size[2]) {
                        input_tile::<S, A, false>(s, conv, &place, to, self.steps[0]);
                    } else {
                        input_tile::<S, A, true>(s, conv, &place, to, self.steps[0]);
                    }
                }
                to = to.wrapping_add(row);
            }
        }
    }

    /// Multiplies `V` by the filters of a panel.
    #[inline(always)]
    unsafe fn multiply<S: Simd>(self, s: S, panel: usize) {
        let (conv, w) = (self.conv, &self.conv.windows);
        let (points, row) = (conv.tile.points(), conv.row());
        let (frames, tiles) = (self.block.frames.len(), self.block.tiles.len());
        let depth = w.kernel[0] * conv.channels;
        let n = PANEL.min(conv.filters - panel * PANEL);
        for point in 0..points {
            let from = self.v[0].wrapping_add(point * self.steps[0]).cast_const();
            let rows = if conv.is_flat() {
                AnyRows::Matrix(Strided { ptr: from, row_stride: row as isize })
            } else {
                AnyRows::Windows(ConvRows {
                    input: from,
                    zeros: from,
                    size: [self.reach(), 1, tiles],
                    strides: [tiles * row, 0, row],
                    volume_stride: 0,
                    out: [frames, 1, tiles],
                    kernel: [w.kernel[0], 1, 1],
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
            let tasks = 0..gemm.tiling(S::GEMM_ROWS).tasks();
            s.enter(RunTasks { gemm: &gemm, tasks });
        }
    }

    /// Makes outputs of the products by a panel's filters.
    #[inline(always)]
    unsafe fn transform_output<S: Simd, const A: usize>(self, s: S, panel: usize) {
        let (conv, w) = (self.conv, &self.conv.windows);
        let (col, m) = (panel * PANEL, A - 2);
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
                        output_tile::<S, A>(
                            s,
                            from.wrapping_add(v * LANES),
                            self.steps[1],
                            at.add(v * LANES),
                        );
                    }
                    for y in 0..m.min(w.out[1] - corner.y) {
                        s.enter_plain(Finish {
                            e: &conv.epilogue,
                            sums: at.add(y * 4 * PANEL),
                            rows: m.min(w.out[2] - corner.x),
                            vecs: PANEL / LANES,
                            c: conv.c,
                            stride: conv.c_stride,
                            row: (frame * w.out[1] + corner.y + y) * w.out[2] + corner.x,
                            col,
                            width,
                        });
                    }
                }
                from = from.wrapping_add(PANEL);
            }
        }
    }
}

/// Where a tile's inputs are.
struct InputTile {
    /// Its frame, where that is within the volume.
    frame: Option<*const f32>,
    /// Its corner, which may be in the padding.
    y: isize,
    x: isize,
}

/// Transforms the α × α inputs of a tile, all channels, to one row of each of `V`'s matrices; `EDGE`: some may be padding.
#[inline(always)]
unsafe fn input_tile<S: Simd, const A: usize, const EDGE: bool>(
    s: S,
    conv: &WinogradConv,
    tile: &InputTile,
    to: *mut f32,
    step: usize,
) {
    let w = &conv.windows;
    let frame = tile.frame.unwrap_or(w.zeros);
    let corner = frame.wrapping_offset(tile.y * w.strides[1] as isize + tile.x * w.strides[2] as isize);
    // Negative positions become huge, so one comparison checks both ends.
    let inside = |y: usize, x: usize| {
        let (y, x) = ((tile.y + y as isize) as usize, (tile.x + x as isize) as usize);
        tile.frame.is_some() && y < w.size[1] && x < w.size[2]
    };
    let mut c = 0;
    while c < conv.channels {
        let n = LANES.min(conv.channels - c);
        let mut columns = [[s.zero(); A]; A];
        for x in 0..A {
            let mut column = [s.zero(); A];
            for (y, to) in column.iter_mut().enumerate() {
                if !EDGE || inside(y, x) {
                    let from = corner.wrapping_add(y * w.strides[1] + x * w.strides[2] + c);
                    // SAFETY: the caller's promise: a pixel of the frame.
                    *to = unsafe { s.load_upto(from, n) };
                }
            }
            let column = transform::input_line::<S, A>(s, &column);
            for y in 0..A {
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
#[inline(always)]
unsafe fn output_tile<S: Simd, const A: usize>(s: S, from: *const f32, step: usize, to: *mut f32) {
    let mut lines = [[s.zero(); A]; 4];
    for x in 0..A {
        let mut column = [s.zero(); A];
        for (y, value) in column.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *value = unsafe { s.load(from.wrapping_add((y * A + x) * step)) };
        }
        let column = transform::output_line::<S, A>(s, &column);
        for y in 0..A - 2 {
            lines[y][x] = column[y];
        }
    }
    for (y, line) in lines.iter().enumerate().take(A - 2) {
        let line = transform::output_line::<S, A>(s, line);
        for (x, &value) in line.iter().enumerate().take(A - 2) {
            // SAFETY: the caller's promise.
            unsafe { s.store(to.wrapping_add((y * 4 + x) * PANEL), value) };
        }
    }
}

/// Where the weights of a convolution are: element (filter, channel, frame, y, x) is at `ptr` and as many strides of each.
#[derive(Debug, Clone, Copy)]
pub struct Filters {
    /// The first element.
    pub ptr: *const f32,
    /// Elements from one to the next along filters, channels, frames, lines, pixels.
    pub strides: [isize; 5],
    /// Filters, channels and frames.
    pub extents: [usize; 3],
}

/// Words (f32) of packed weights; `None` if that overflows.
pub fn packed_filters(tile: WinogradTile, [filters, channels, frames]: [usize; 3]) -> Option<usize> {
    let depth = channels.checked_mul(frames)?.checked_mul(tile.points())?;
    super::packed_len(depth, filters)
}

/// Packs panels of transformed weights: panel after panel, in each the matrices of all points, in each frame after frame of channels.
///
/// # Safety
/// The weights must be readable, `to` writable for [`packed_filters`] words; only the parts of the given panels are written.
pub unsafe fn pack_filters(
    isa: Isa,
    tile: WinogradTile,
    filters: &Filters,
    to: *mut f32,
    which: Range<usize>,
) {
    isa.run(PackPanels { tile, filters, to, which });
}

struct PackPanels<'a> {
    tile: WinogradTile,
    filters: &'a Filters,
    to: *mut f32,
    which: Range<usize>,
}

impl Kernel for PackPanels<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for panel in self.which.clone() {
            // SAFETY: the promises of `pack_filters`.
            unsafe {
                match self.tile {
                    WinogradTile::Two => pack_panel::<4>(self.filters, self.to, panel),
                    WinogradTile::Four => pack_panel::<6>(self.filters, self.to, panel),
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn pack_panel<const A: usize>(filters: &Filters, to: *mut f32, panel: usize) {
    let ([all, channels, frames], strides) = (filters.extents, filters.strides);
    let depth = channels * frames;
    let to = to.wrapping_add(panel * A * A * depth * PANEL);
    let matrix = transform::weights_matrix::<A>();
    for step in 0..depth {
        let (frame, channel) = (step / channels, step % channels);
        let first = channel as isize * strides[1] + frame as isize * strides[2];
        let mut window = [[[0.0; PANEL]; 3]; 3];
        for column in 0..PANEL.min(all - panel * PANEL) {
            let at = first + (panel * PANEL + column) as isize * strides[0];
            for (y, line) in window.iter_mut().enumerate() {
                for (x, values) in line.iter_mut().enumerate() {
                    let within = y as isize * strides[3] + x as isize * strides[4];
                    // SAFETY: the caller's promise.
                    values[column] = f64::from(unsafe { *filters.ptr.wrapping_offset(at + within) });
                }
            }
        }
        let points = transform::weights::<A>(&matrix, &window);
        for (point, values) in points.as_flattened().iter().enumerate() {
            for (column, &value) in values.iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { *to.wrapping_add((point * depth + step) * PANEL + column) = value as f32 };
            }
        }
    }
}

#[cfg(test)]
mod tests;
