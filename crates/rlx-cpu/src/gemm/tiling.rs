//! How a matmul is split into tiles, blocks and tasks.
//!
//! Each element of the result is one chain of multiply-adds, so every [`TileSizes`] gives the same bits. Which is fastest
//! depends on the shape, the caches and the number of threads: [`TileSizes::DEFAULT`] is good on the machines we know, and
//! measurement may find a better one among [`TileSizes::variants`] (see `rlx_backend::tuning`).
//!
//! ```
//! use rlx_cpu::{gemm::TileSizes, isa::Isa};
//! let variants = TileSizes::variants(Isa::detect());
//! assert_eq!(variants[0], ("default".to_string(), TileSizes::DEFAULT));
//! ```

use std::ops::Range;

use super::panels::{PANEL, panels};
use crate::isa::{Isa, IsaKind};

/// Rows and vectors of the micro-kernel; the same numbers as `Simd::GEMM_ROWS`.
pub(crate) fn max_rows(isa: Isa) -> usize {
    match isa.kind() {
        IsaKind::Portable => 2,
        IsaKind::Simd128 => 3,
        IsaKind::Avx2 | IsaKind::Neon => 6,
        IsaKind::Avx512 => 9,
    }
}

/// The tile sizes of a matmul. Every variant gives the same bits: each element is one chain of multiply-adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TileSizes {
    /// The most rows of a tile, where the instruction set has registers for that many.
    pub height: usize,
    /// Above this many bytes of A, rows are split into blocks that are reused for every panel.
    pub block_bytes: usize,
}

impl TileSizes {
    /// The variant that is taken where nothing was measured.
    pub const DEFAULT: TileSizes = TileSizes { height: usize::MAX, block_bytes: 1 << 20 };

    /// All variants for an instruction set, each with its name; the first is the default.
    pub fn variants(isa: Isa) -> Vec<(String, TileSizes)> {
        let full = max_rows(isa);
        let heights = [8, 6, 4, 3, 1].into_iter().filter(|&h| h < full && 3 * h >= full);
        let blocks = [("256k", 256 << 10), ("4m", 4 << 20)];
        let default = [("default".to_owned(), TileSizes::DEFAULT)].into_iter();
        let heights =
            heights.map(|height| (format!("rows{height}"), TileSizes { height, ..TileSizes::DEFAULT }));
        let blocks = blocks.map(|(name, block_bytes)| {
            (format!("block{name}"), TileSizes { block_bytes, ..TileSizes::DEFAULT })
        });
        default.chain(heights).chain(blocks).collect()
    }
}

/// Rows of words in all panels of B together, of 192 bytes each: fewer stay in the second-level cache beside a block of A and C.
const SHALLOW: usize = 1024;

/// Panels of twice as many are read again for each block of rows, where that costs less than what it saves.
const LIGHT: usize = 2 * SHALLOW;

/// Tiles of a block, at least.
const FEWEST: usize = 8;

/// Whether threads divide the rows among them rather than the columns, so that each reads and writes the rows that it had in the steps before and
/// has in those behind: what lies in another core's cache is slow to get, and so are panels that each of them reads, if they are more than
/// the rows.
fn splits_rows(m: usize, n: usize, depth: usize) -> bool {
    let panels = panels(n).saturating_mul(depth);
    panels <= LIGHT && m.saturating_mul(depth.saturating_add(n)) > panels.saturating_mul(PANEL)
}

/// Tiles of a block where blocks are the shares of threads: a power of two of blocks.
fn row_block(tiles: usize) -> usize {
    let blocks = (tiles / FEWEST).max(1);
    tiles.div_ceil(1 << blocks.ilog2())
}

/// The tiling of a matmul: rows into balanced tiles, tiles into blocks, columns into panels (of which the last may have a vector more).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tiling {
    pub(super) tiles: usize,
    pub(super) tiles_per_block: usize,
    pub(super) panels: usize,
    /// Rows that are divided into tiles by themselves, and how many; all of them as one if `None`.
    pub(super) line: Option<(usize, usize)>,
}

impl Tiling {
    pub(super) fn new(m: usize, n: usize, depth: usize, max_rows: usize, tile_sizes: TileSizes) -> Tiling {
        // Equal heights beat full tiles with a low remainder.
        let tiles = match max_rows.min(tile_sizes.height) {
            9 if m.is_multiple_of(8) => m / 8,
            height => m.div_ceil(height.max(1)),
        };
        Tiling::of(tiles, [m, n, depth], tile_sizes)
    }

    /// Tiles that end with their line of so many rows, where those are nearly as high as others: tiles of the first and the last lines of an image
    /// have less to multiply.
    pub(super) fn within_lines(
        line: usize,
        [m, n, depth]: [usize; 3],
        max_rows: usize,
        tile_sizes: TileSizes,
    ) -> Option<Tiling> {
        let most = max_rows.min(tile_sizes.height).max(1);
        let across = line.div_ceil(most);
        if across == 0 || 3 * (line / across) < 2 * most || !m.is_multiple_of(line) {
            return None;
        }
        let tiling = Tiling::of(m / line * across, [m, n, depth], tile_sizes);
        // Lines of equal tiles are divided as all rows are.
        Some(Tiling { line: (!line.is_multiple_of(across)).then_some((line, across)), ..tiling })
    }

    fn of(tiles: usize, [m, n, depth]: [usize; 3], tile_sizes: TileSizes) -> Tiling {
        // Rows of few steps are written more than they are read: all panels pass by while a block of C is in the cache.
        let shallow = panels(n).saturating_mul(depth) <= SHALLOW;
        let row = if shallow { depth.saturating_add(n) } else { depth };
        let bytes = m.saturating_mul(row).saturating_mul(4);
        let most = tile_sizes.block_bytes.max(2);
        let all = tiles.max(1);
        // A block of fewer tiles would re-read the panels too often.
        let fitting =
            if bytes > most { tiles.div_ceil(bytes.div_ceil(most / 2)).max(FEWEST).min(all) } else { all };
        let tiles_per_block = if splits_rows(m, n, depth) { fitting.min(row_block(all)) } else { fitting };
        Tiling { tiles, tiles_per_block, panels: panels(n), line: None }
    }

    /// Task number → (panel, tile). Blocks of rows are outermost, then panels, then the block's tiles.
    pub(super) fn place(&self, task: usize) -> (usize, usize) {
        if self.tiles == 1 {
            return (task, 0);
        }
        let per_block = self.tiles_per_block * self.panels;
        let block = task / per_block;
        let first = block * self.tiles_per_block;
        let here = self.tiles_per_block.min(self.tiles - first);
        let rest = task % per_block;
        (rest / here, first + rest % here)
    }

    /// These tasks as stretches: a panel, and its tiles within one block of rows.
    pub(super) fn stretches(&self, tasks: Range<usize>) -> Stretches {
        let (panel, tile) = if tasks.is_empty() { (0, 0) } else { self.place(tasks.start) };
        let first = if self.tiles_per_block == self.tiles { 0 } else { tile - tile % self.tiles_per_block };
        Stretches { tiling: *self, left: tasks.len(), panel, tile, first }
    }

    pub(super) fn tasks(&self) -> usize {
        self.tiles * self.panels
    }

    /// Columns of a panel's tiles, of `n`.
    pub(super) fn columns(&self, panel: usize, n: usize) -> Range<usize> {
        let end = if panel + 1 == self.panels { n } else { (panel + 1) * PANEL };
        panel * PANEL..end
    }

    /// The lines that some tiles are of: a single one where all rows are divided as one.
    #[inline(always)]
    pub(super) fn lines(&self, tiles: &Range<usize>) -> Range<usize> {
        match self.line {
            Some((_, across)) => tiles.start / across..tiles.end.div_ceil(across),
            None => 0..1,
        }
    }

    /// The rows of those of the tiles that are of a line: stretches of tiles of one height, with that height.
    #[inline(always)]
    pub(super) fn runs(
        &self,
        line: usize,
        tiles: &Range<usize>,
        m: usize,
    ) -> impl Iterator<Item = (Range<usize>, usize)> + Clone {
        let (rows, across) = self.line.unwrap_or((m, self.tiles));
        // As in `tile_rows`.
        let (low, extra) = if across == 1 { (rows, 0) } else { (rows / across, rows % across) };
        let within = |tile: usize| tile.saturating_sub(line * across).min(across);
        let (first, end) = (within(tiles.start), within(tiles.end));
        let start = |tile: usize| line * rows + tile * low + tile.min(extra);
        let middle = start(extra.clamp(first, end));
        let runs = [(start(first)..middle, low + 1), (middle..start(end), low)];
        runs.into_iter().filter(|(rows, _)| !rows.is_empty())
    }

    /// Rows of a tile.
    pub(super) fn tile_rows(&self, tile: usize, m: usize) -> Range<usize> {
        let (rows, across) = self.line.unwrap_or((m, self.tiles));
        let (line, tile) = if self.line.is_some() { (tile / across, tile % across) } else { (0, tile) };
        // The first `rows` mod `across` are one row higher.
        let (low, extra) = (rows / across, rows % across);
        let start = line * rows + tile * low + tile.min(extra);
        start..start + low + usize::from(tile < extra)
    }
}

/// See [`Tiling::stretches`]. A step of it divides nothing: small matmuls are as short as a few divisions.
#[derive(Debug, Clone)]
pub(super) struct Stretches {
    tiling: Tiling,
    /// Tasks that are left.
    left: usize,
    /// Where the next of them is, and the first tile of its block.
    panel: usize,
    tile: usize,
    first: usize,
}

impl Iterator for Stretches {
    type Item = (usize, Range<usize>);

    #[inline(always)]
    fn next(&mut self) -> Option<(usize, Range<usize>)> {
        if self.left == 0 {
            return None;
        }
        let end = (self.first + self.tiling.tiles_per_block).min(self.tiling.tiles);
        let (panel, tiles) = (self.panel, self.tile..end.min(self.tile + self.left));
        self.left -= tiles.len();
        self.panel += 1;
        if self.panel == self.tiling.panels {
            (self.panel, self.first) = (0, end);
        }
        self.tile = self.first;
        Some((panel, tiles))
    }
}
