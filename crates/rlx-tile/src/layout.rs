//! Where the elements of a tile are in workgroup memory.
//!
//! A tile is rows of 16-bit elements (on Apple's devices also f32), cut into *chunks* of 16 bytes: what a lane copies at once, and what a row of an 8 × 8 matrix is for
//! `ldmatrix`. Workgroup memory serves 8 chunks at a time, from 8 groups of 4 banks. Without a swizzle, the rows of a matrix
//! are a whole number of tile rows apart and meet in the same banks. A [`Swizzle`] exchanges the chunks of each row by an exclusive or with
//! some bits of the row's number, so that 8 chunks of one row and 8 chunks of one column are in different banks, both.

use serde::{Deserialize, Serialize};

/// Elements of a chunk of 16-bit elements, and rows and columns of the matrices that tiles are made of.
pub const CHUNK: u32 = 8;
/// Bytes of a chunk.
pub const CHUNK_BYTES: u32 = 16;

/// An exclusive or of a chunk's number with bits of its row's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Swizzle {
    /// How many bits.
    pub bits: u32,
    /// The first of them in the row's number.
    pub shift: u32,
}

impl Swizzle {
    /// Rows as they are.
    pub const NONE: Swizzle = Swizzle { bits: 0, shift: 0 };

    /// The swizzle without bank conflicts for rows of so many elements, a power of two from 8 on: rows shorter than the 128 bytes
    /// that all banks hold share a line of them, so only every second, fourth or eighth row needs another order.
    pub fn of(cols: u32) -> Swizzle {
        match cols / CHUNK {
            0 | 1 => Swizzle::NONE,
            2 => Swizzle { bits: 1, shift: 2 },
            4 => Swizzle { bits: 2, shift: 1 },
            _ => Swizzle { bits: 3, shift: 0 },
        }
    }

    /// The swizzle without bank conflicts for lanes that read single elements: 16 neighbours of a row each half of 32 lanes, from rows that are `apart`,
    /// 4 or 8. Rows have at least 32 elements, a power of two.
    pub fn of_elements(cols: u32, apart: u32) -> Swizzle {
        let bits = (cols / CHUNK).ilog2().min(3);
        // Neighbours are two chunks, so the other row's are two on.
        Swizzle { bits, shift: apart.ilog2() - 1 }
    }

    /// Where chunk `chunk` of row `row` is in its row.
    pub fn chunk(self, row: u32, chunk: u32) -> u32 {
        chunk ^ (row >> self.shift & ((1 << self.bits) - 1))
    }
}
