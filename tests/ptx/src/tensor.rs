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
    /// Sizes of a box; of windows channels and places.
    pub box_sizes: Vec<u32>,
    /// Of a map of windows ("im2col"), along each of the dimensions between the first and the last: where the bounding box begins, relative to the first
    /// element, where it ends, relative to the last one, and how many elements a place is behind the one before it.
    pub window: Vec<(i32, i32, u32)>,
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
        if self.window.is_empty() {
            fields(self.box_sizes.iter().map(|&n| u64::from(n)).collect(), MOST);
        } else {
            // Channels and places, and what no map of boxes has: how many dimensions windows slide along.
            let [channels, places] = [0, 1].map(|i| u64::from(self.box_sizes[i]));
            let axis = |&(lower, upper, step): &(i32, i32, u32)| {
                u64::from(lower as u16) | u64::from(upper as u16) << 16 | u64::from(step) << 32
            };
            let head = channels | places << 16 | (self.window.len() as u64) << 32;
            fields(std::iter::once(head).chain(self.window.iter().map(axis)).collect(), MOST);
        }
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
        let last = of(2 * MOST + 1, MOST);
        let axes = (last[0] >> 32) as usize;
        let axis = |&word: &u64| {
            let corner = |shift: u32| i32::from((word >> shift) as u16 as i16);
            (corner(0), corner(16), (word >> 32) as u32)
        };
        let map = TensorMap {
            address: word(0),
            sizes: of(2, dims),
            strides: of(2 + MOST, dims - 1),
            box_sizes: match axes {
                0 => last[..dims].iter().map(|&n| n as u32).collect(),
                _ => vec![last[0] as u16 as u32, (last[0] >> 16) as u16 as u32],
            },
            window: last.get(1..1 + axes).unwrap_or_default().iter().map(axis).collect(),
        };
        if axes > 0 && axes + 2 != dims {
            return Err(format!("windows along {axes} of {dims} dimensions"));
        }
        let sizes = map.sizes.iter().all(|n| (1..=1 << 32).contains(n));
        let strides = map.strides.iter().all(|n| n.is_multiple_of(16) && (16..1 << 40).contains(n));
        let most = if axes > 0 { 1024 } else { 256 };
        let boxes =
            map.box_sizes.iter().all(|n| (1..=most).contains(n)) && map.box_sizes[0] as usize * 2 == ROW;
        match sizes && strides && boxes && map.address.is_multiple_of(16) {
            true => Ok(map),
            false => Err(format!("the tensor map {map:?} is not in order")),
        }
    }

    /// The bytes of so many places from one on, each with its channels, swizzled: a bounding box is walked, dimension by dimension, and at each place
    /// the element that is `offsets` away is copied.
    pub(crate) fn copied_windows(
        &self,
        memory: &Memory,
        (indices, offsets): (&[i32], &[u32]),
        to: u64,
    ) -> Result<Vec<u8>> {
        let (axes, dims) = (self.window.len(), self.sizes.len());
        if axes == 0 || indices.len() != dims || offsets.len() != axes {
            return Err(format!("{indices:?} and {offsets:?} of the tensor map {self:?}"));
        }
        if !to.is_multiple_of(ROW as u64) {
            return Err(format!("a tensor copy to {to} of workgroup memory is not aligned"));
        }
        let mut data = vec![0; self.box_sizes[1] as usize * ROW];
        let mut at: Vec<i64> = indices.iter().map(|&i| i64::from(i)).collect();
        for place in 0..self.box_sizes[1] as usize {
            for x in 0..self.box_sizes[0] {
                let mut element = at.clone();
                element[0] += i64::from(x);
                element[1..=axes].iter_mut().zip(offsets).for_each(|(i, &by)| *i += i64::from(by));
                let inside = |(&i, &size): (&i64, &u64)| u64::try_from(i).is_ok_and(|i| i < size);
                if element.iter().zip(&self.sizes).all(inside) {
                    let apart = element[1..].iter().zip(&self.strides).map(|(&i, &bytes)| i as u64 * bytes);
                    let from = self.address + 2 * element[0] as u64 + apart.sum::<u64>();
                    let moved = (swizzled(to + (place * ROW) as u64 + 2 * u64::from(x)) - to) as usize;
                    data[moved..moved + 2].copy_from_slice(memory.load(from, 2)?);
                }
            }
            // The next place: along the first dimension that has one more.
            let mut axis = 1;
            while axis <= axes {
                let (lower, upper, step) = self.window[axis - 1];
                at[axis] += i64::from(step);
                if at[axis] < self.sizes[axis] as i64 + i64::from(upper) {
                    break;
                }
                at[axis] = i64::from(lower);
                axis += 1;
            }
            if axis > axes {
                at[axis] += 1;
            }
        }
        Ok(data)
    }

    /// The bytes of the box at these indices, swizzled for an address of workgroup memory that is a multiple of 128.
    pub(crate) fn copied(&self, memory: &Memory, indices: &[i32], to: u64) -> Result<Vec<u8>> {
        if indices.len() != self.sizes.len() || !self.window.is_empty() {
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
