//! Tensor maps, and the 128-byte swizzle that their boxes are stored with.
//!
//! What the bits of a real map mean only the driver knows; these are 16 words: where the tensor begins, how many dimensions it has, their sizes, the bytes from
//! index to index of all but the first, the sizes of a box.

use crate::Result;
use crate::memory::Memory;

/// Dimensions of a map at most.
const MOST: usize = 5;
/// Bytes of a row of a box, which the swizzle exchanges the chunks of.
pub const ROW: usize = 128;

/// A tensor of elements of 16 bits of which boxes are copied; what is beyond its sizes is 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorMap {
    /// The address of its first element.
    pub address: u64,
    /// Sizes in elements, from the inside out.
    pub sizes: Vec<u64>,
    /// Bytes from index to index of all dimensions but the innermost.
    pub strides: Vec<u64>,
    /// Sizes of a box.
    pub box_sizes: Vec<u32>,
}

/// The address of a byte that the swizzle moves: bits 4 to 6 are exchanged by bits 7 to 9.
pub fn swizzled(address: u64) -> u64 {
    address ^ (address >> 7 & 7) << 4
}

impl TensorMap {
    /// The map as a kernel is given it.
    pub fn encoded(&self) -> Vec<u8> {
        let mut words = vec![self.address, self.sizes.len() as u64];
        let mut fields = |all: Vec<u64>, most: usize| {
            let at = words.len();
            words.extend(all);
            words.resize(at + most, 0);
        };
        fields(self.sizes.clone(), MOST);
        fields(self.strides.clone(), MOST - 1);
        fields(self.box_sizes.iter().map(|&n| u64::from(n)).collect(), MOST);
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// The map at an address.
    pub(crate) fn load(memory: &Memory, address: u64) -> Result<TensorMap> {
        let bytes = memory.load(address, 128)?;
        let word = |i: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * i..8 * i + 8]);
            u64::from_le_bytes(word)
        };
        let dims = word(1) as usize;
        if !(1..=MOST).contains(&dims) {
            return Err(format!("a tensor map of {dims} dimensions"));
        }
        let of = |first: usize, n: usize| (first..first + n).map(word).collect::<Vec<_>>();
        let map = TensorMap {
            address: word(0),
            sizes: of(2, dims),
            strides: of(2 + MOST, dims - 1),
            box_sizes: of(2 * MOST + 1, dims).into_iter().map(|n| n as u32).collect(),
        };
        let sizes = map.sizes.iter().all(|n| (1..=1 << 32).contains(n));
        let strides = map.strides.iter().all(|n| n.is_multiple_of(16) && (16..1 << 40).contains(n));
        let boxes =
            map.box_sizes.iter().all(|n| (1..=256).contains(n)) && map.box_sizes[0] as usize * 2 == ROW;
        match sizes && strides && boxes && map.address.is_multiple_of(16) {
            true => Ok(map),
            false => Err(format!("the tensor map {map:?} is not in order")),
        }
    }

    /// The bytes of the box at these indices, swizzled for an address of workgroup memory that is a multiple of 128.
    pub(crate) fn copied(&self, memory: &Memory, indices: &[i32], to: u64) -> Result<Vec<u8>> {
        if indices.len() != self.sizes.len() {
            return Err(format!("{} indices of a map of {} dimensions", indices.len(), self.sizes.len()));
        }
        if !to.is_multiple_of(ROW as u64) {
            return Err(format!("a tensor copy to {to} of workgroup memory is not aligned"));
        }
        let rows: u32 = self.box_sizes[1..].iter().product();
        let mut data = vec![0; rows as usize * ROW];
        for row in 0..rows {
            let mut rest = row;
            let (mut at, mut inside) = (self.address, true);
            for (d, &size) in self.box_sizes.iter().enumerate().skip(1) {
                let i = i64::from(indices[d]) + i64::from(rest % size);
                rest /= size;
                inside &= u64::try_from(i).is_ok_and(|i| i < self.sizes[d]);
                at = at.wrapping_add_signed(i.wrapping_mul(self.strides[d - 1] as i64));
            }
            for x in 0..self.box_sizes[0] {
                let i = i64::from(indices[0]) + i64::from(x);
                if inside && u64::try_from(i).is_ok_and(|i| i < self.sizes[0]) {
                    let offset = row as usize * ROW + 2 * x as usize;
                    let place = (swizzled(to + offset as u64) - to) as usize;
                    data[place..place + 2].copy_from_slice(memory.load(at + 2 * i as u64, 2)?);
                }
            }
        }
        Ok(data)
    }
}
