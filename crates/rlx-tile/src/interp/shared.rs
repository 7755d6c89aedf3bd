//! Workgroup memory in chunks, and who used which of them since which barrier.

use rlx_kernel::interp::Counters;

use crate::ir::{Tile, TileDecl};
use crate::layout::CHUNK;

/// What went wrong, for people.
pub type Step<T = ()> = std::result::Result<T, String>;

/// The elements of a chunk, as bits; of those of 32 bits the first half.
pub type Chunk = [u32; CHUNK as usize];

/// One chunk and its shadow.
#[derive(Clone, Copy, Default)]
struct Cell {
    data: Chunk,
    /// The barrier count and lane of the last write; count 0 is "never".
    written: (u32, usize),
    /// The barrier count of the last read, its lane, and whether others read too.
    read: (u32, usize, bool),
    /// An asynchronous copy is under way.
    pending: bool,
}

/// An asynchronous copy of one chunk.
struct Pending {
    at: usize,
    lane: usize,
    data: Chunk,
}

/// The workgroup memory of a program.
pub struct Chunks {
    cells: Vec<Cell>,
    /// The first chunk of each tile.
    first: Vec<usize>,
    barriers: u32,
    /// Groups of asynchronous copies, oldest first; the last one is open.
    groups: Vec<Vec<Pending>>,
}

impl Chunks {
    pub fn new(tiles: &[TileDecl]) -> Self {
        let mut first = Vec::with_capacity(tiles.len());
        let mut n = 0;
        for t in tiles {
            first.push(n);
            n += (t.rows * t.stride() * t.stages) as usize;
        }
        Chunks { cells: vec![Cell::default(); n], first, barriers: 1, groups: vec![Vec::new()] }
    }

    pub fn barrier(&mut self) {
        self.barriers += 1;
    }

    /// The number of a tile's chunk among all.
    pub fn at(&self, tile: Tile, chunk: u32) -> usize {
        self.first[tile.0 as usize] + chunk as usize
    }

    fn may_write(&self, at: usize, lane: usize) -> Step {
        let (cell, now) = (&self.cells[at], self.barriers);
        if cell.pending {
            return Err(format!("lane {lane} writes chunk {at}, whose copy is under way"));
        }
        if cell.written.0 == now && cell.written.1 != lane {
            return Err(format!("a race: lanes {lane} and {} write chunk {at}", cell.written.1));
        }
        let (when, reader, others) = cell.read;
        if when == now && (others || reader != lane) {
            return Err(format!("a race: lane {lane} writes chunk {at}, which lane {reader} reads"));
        }
        Ok(())
    }

    pub fn write(&mut self, at: usize, lane: usize, data: Chunk) -> Step {
        self.may_write(at, lane)?;
        let now = self.barriers;
        let cell = &mut self.cells[at];
        (cell.data, cell.written) = (data, (now, lane));
        Ok(())
    }

    /// Begins to write a chunk.
    pub fn write_async(&mut self, at: usize, lane: usize, data: Chunk) -> Step {
        self.may_write(at, lane)?;
        self.cells[at].pending = true;
        if let Some(group) = self.groups.last_mut() {
            group.push(Pending { at, lane, data });
        }
        Ok(())
    }

    pub fn commit(&mut self) {
        self.groups.push(Vec::new());
    }

    /// Ends all groups but the last `but` that were committed.
    pub fn wait(&mut self, but: usize) {
        let done = (self.groups.len() - 1).saturating_sub(but);
        for p in self.groups.drain(..done).flatten() {
            let cell = &mut self.cells[p.at];
            (cell.data, cell.written, cell.pending) = (p.data, (self.barriers, p.lane), false);
        }
    }

    pub fn read(&mut self, at: usize, lane: usize) -> Step<Chunk> {
        let now = self.barriers;
        let cell = &mut self.cells[at];
        if cell.pending {
            return Err(format!("lane {lane} reads chunk {at}, whose copy is under way"));
        }
        let (when, who) = cell.written;
        if when == 0 {
            return Err(format!("lane {lane} reads chunk {at} before it is written"));
        }
        if when == now && who != lane {
            return Err(format!("a race: lane {lane} reads chunk {at}, which lane {who} wrote"));
        }
        let others = cell.read.0 == now && (cell.read.2 || cell.read.1 != lane);
        cell.read = (now, lane, others);
        Ok(cell.data)
    }
}

/// Counts an access of a warp to chunks, served 8 lanes at a time. Tiles begin at multiples of 128 bytes, where bank 0 is.
pub fn count(counters: &mut Counters, chunks: &[Option<usize>]) {
    for lanes in chunks.chunks(8).filter(|lanes| lanes.iter().any(Option::is_some)) {
        counters.shared_access(lanes.iter().flatten().flat_map(|&at| (0..4).map(move |w| at as u64 * 4 + w)));
    }
}

/// Which groups of four lanes a read by a warp of 64 lanes serves together ("Understanding AMD GPU LDS and Bank Conflicts" in the documents of
/// AMD's Composable Kernel, `ds_read_b128`): lanes 0–3 with 20–23, and so on.
const READ_TOGETHER: [(usize, usize); 8] =
    [(0, 5), (1, 4), (2, 7), (3, 6), (8, 13), (9, 12), (10, 15), (11, 14)];

/// Counts a read of a chunk by each lane of a warp: 8 lanes at a time, neighbours but on AMD's devices of 64 lanes.
pub fn count_reads(counters: &mut Counters, chunks: &[usize]) {
    let in_order: Vec<Option<usize>> = match chunks.len() {
        64 => {
            let four = |i: usize| chunks[4 * i..4 * i + 4].iter().copied().map(Some);
            READ_TOGETHER.iter().flat_map(|&(a, b)| four(a).chain(four(b))).collect()
        }
        _ => chunks.iter().copied().map(Some).collect(),
    };
    count(counters, &in_order);
}

/// Counts what a warp does with so many sums that it stores through workgroup memory: a write and a read of each, 32 neighbours at a time.
pub fn count_exchange(counters: &mut Counters, sums: u32) {
    for _ in 0..2 * sums.div_ceil(32) {
        counters.shared_access(0..32);
    }
}

/// Counts an access of a warp to single elements of chunks, served 32 lanes at a time.
pub fn count_elements(counters: &mut Counters, elements: &[(usize, usize)]) {
    for lanes in elements.chunks(32) {
        counters.shared_access(lanes.iter().map(|&(at, element)| at as u64 * 4 + element as u64 / 2));
    }
}
