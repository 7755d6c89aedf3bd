//! Global memory: buffers whose addresses are far apart.

use crate::Result;

/// The bits of an address that are an offset in its buffer.
const OFFSET_BITS: u32 = 40;

/// Buffers.
#[derive(Debug, Default)]
pub struct Memory {
    buffers: Vec<Vec<u8>>,
}

impl Memory {
    /// Adds a buffer and gives its address.
    pub fn allocate(&mut self, bytes: Vec<u8>) -> u64 {
        self.buffers.push(bytes);
        (self.buffers.len() as u64) << OFFSET_BITS
    }

    /// The bytes of the buffer that was added as number `i`.
    pub fn buffer(&self, i: usize) -> &[u8] {
        &self.buffers[i]
    }

    /// The buffer and the range of an access.
    fn range(&self, address: u64, bytes: usize) -> Result<(usize, std::ops::Range<usize>)> {
        let (number, offset) = (address >> OFFSET_BITS, (address & ((1 << OFFSET_BITS) - 1)) as usize);
        let buffer = (number as usize).checked_sub(1).filter(|&i| i < self.buffers.len());
        let Some(buffer) = buffer else { return Err(format!("{address:#x} is in no buffer")) };
        let len = self.buffers[buffer].len();
        if offset + bytes > len {
            return Err(format!("bytes {offset}..{} of buffer {buffer}, which has {len}", offset + bytes));
        }
        if !offset.is_multiple_of(bytes.max(1)) {
            return Err(format!("{bytes} bytes at {offset} of buffer {buffer} are not aligned"));
        }
        Ok((buffer, offset..offset + bytes))
    }

    pub(crate) fn load(&self, address: u64, bytes: usize) -> Result<&[u8]> {
        let (buffer, range) = self.range(address, bytes)?;
        Ok(&self.buffers[buffer][range])
    }

    pub(crate) fn store(&mut self, address: u64, data: &[u8]) -> Result {
        let (buffer, range) = self.range(address, data.len())?;
        self.buffers[buffer][range].copy_from_slice(data);
        Ok(())
    }
}
