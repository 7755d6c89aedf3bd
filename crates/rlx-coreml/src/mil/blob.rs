//! `weights/weight.bin`: the file of large constants.
//!
//! A header of 64 bytes (number of blobs, version 2), then for each blob 64 bytes of metadata (mark, type, bytes, offset of the data) and
//! its data; both begin at multiples of 64. A constant names a blob by the offset of its metadata.

use super::Type;

/// What each blob's metadata begins with.
const MARK: u32 = 0xDEAD_BEEF;
/// Everything begins at a multiple of it.
const ALIGN: usize = 64;

/// The element types that constants in the file may have, by the file's numbers; others are in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// `Type::F16`.
    F16 = 1,
    /// `Type::F32`.
    F32 = 2,
    /// `Type::U8`.
    U8 = 3,
    /// `Type::I8`.
    I8 = 4,
}

impl Stored {
    /// The type of the constant.
    pub fn ty(self) -> Type {
        match self {
            Stored::F16 => Type::F16,
            Stored::F32 => Type::F32,
            Stored::U8 => Type::U8,
            Stored::I8 => Type::I8,
        }
    }
}

/// Large constants in the order in which they were written.
#[derive(Debug, Clone)]
pub struct Blob {
    bytes: Vec<u8>,
    count: u32,
}

impl Default for Blob {
    fn default() -> Self {
        Blob { bytes: vec![0; ALIGN], count: 0 }
    }
}

impl Blob {
    /// Adds the little-endian elements of a constant; the offset that names it.
    pub fn push(&mut self, stored: Stored, data: &[u8]) -> u64 {
        let code = stored as u32;
        self.align();
        let at = self.bytes.len();
        self.bytes.extend(MARK.to_le_bytes());
        self.bytes.extend(code.to_le_bytes());
        self.bytes.extend((data.len() as u64).to_le_bytes());
        self.bytes.extend(((at + ALIGN) as u64).to_le_bytes());
        self.align();
        self.bytes.extend(data);
        self.count += 1;
        at as u64
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGN), 0);
    }

    /// How many constants there are.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The file.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes[0..4].copy_from_slice(&self.count.to_le_bytes());
        self.bytes[4..8].copy_from_slice(&2u32.to_le_bytes());
        self.bytes
    }
}
