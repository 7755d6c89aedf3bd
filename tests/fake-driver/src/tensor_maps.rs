//! Tensor maps: what the driver asks of their numbers, in an encoding of this library's own. A launch is given the maps that follow from its uniforms and
//! buffers, or it fails.

use std::ffi::{c_int, c_uint, c_void};

use rlx_ir::DType;
use rlx_tile::tensor_map::{BoundAxis, BoundMap, MOST_DIMS};

use crate::world::{Outcome, code, reject};

/// A map's 128 bytes.
pub type Words = [u64; 16];

/// What the first of them is.
const MAGIC: u64 = u64::from_le_bytes(*b"RLXMAP01");

/// What a map says.
#[derive(Debug, PartialEq)]
struct Fields<'f> {
    dtype: c_int,
    address: u64,
    sizes: &'f [u64],
    strides: &'f [u64],
    boxes: &'f [u32],
    /// Corners and step of each dimension that windows slide along.
    window: &'f [BoundAxis],
}

impl Fields<'_> {
    fn words(&self) -> Words {
        let mut words = [0; 16];
        words[..3].copy_from_slice(&[
            MAGIC,
            self.address,
            self.dtype as u64 | (self.sizes.len() as u64) << 8,
        ]);
        words[3..][..self.sizes.len()].copy_from_slice(self.sizes);
        words[3 + MOST_DIMS..][..self.strides.len()].copy_from_slice(self.strides);
        for (i, &size) in self.boxes.iter().enumerate() {
            words[2 + 2 * MOST_DIMS + i / 4] |= u64::from(size) << (i % 4 * 16);
        }
        for (i, axis) in self.window.iter().enumerate() {
            let corners = u64::from(axis.lower as u16) | u64::from(axis.upper as u16) << 16;
            words[13 + i] = corners | u64::from(axis.step) << 32 | 1 << 63;
        }
        words
    }
}

/// The map that a launch has to be given.
pub fn expected(map: &BoundMap, buffer: u64) -> Words {
    let dtype = if map.dtype == DType::BF16 { 9 } else { 6 };
    let address = buffer + map.base as u64 * 2;
    let BoundMap { sizes, strides, box_sizes: boxes, window, .. } = map;
    Fields { dtype, address, sizes, strides, boxes, window }.words()
}

/// The numbers of a list of the caller's.
fn list<'l, T>(from: *const T, count: usize) -> Outcome<&'l [T]> {
    if from.is_null() {
        return reject(code::INVALID_VALUE, "a null pointer for a list");
    }
    // SAFETY: not null, and as many numbers as the function's documentation asks for.
    Ok(unsafe { std::slice::from_raw_parts(from, count) })
}

/// What both kinds of maps are told of a tensor of 16-bit elements, checked.
struct Tensor<'t> {
    dtype: c_int,
    address: u64,
    rank: usize,
    sizes: &'t [u64],
    strides: &'t [u64],
}

impl<'t> Tensor<'t> {
    fn of(
        to: *mut c_void,
        (dtype, rank): (c_int, c_uint),
        address: *mut c_void,
        (sizes, strides): (*const u64, *const u64),
        ranks: std::ops::RangeInclusive<usize>,
    ) -> Outcome<Tensor<'t>> {
        let (rank, address) = (rank as usize, address.addr() as u64);
        if !ranks.contains(&rank) || !matches!(dtype, 6 | 9) {
            return wrong(format!("{rank} dimensions of type {dtype}"));
        }
        let [sizes, strides] = [list(sizes, rank)?, list(strides, rank - 1)?];
        if !address.is_multiple_of(16) || !to.addr().is_multiple_of(64) {
            return wrong(format!("of {address:#x}, at {to:?}"));
        }
        let is_size = |&n: &u64| (1..=1 << 32).contains(&n);
        let is_stride = |&bytes: &u64| bytes % 16 == 0 && (16..1 << 40).contains(&bytes);
        if !sizes.iter().all(is_size) || !strides.iter().all(is_stride) {
            return wrong(format!("sizes {sizes:?}, strides {strides:?}"));
        }
        Ok(Tensor { dtype, address, rank, sizes, strides })
    }

    /// Writes the map with these boxes and windows, whose modes are those of programs' maps.
    fn write(&self, to: *mut c_void, boxes: &[u32], window: &[BoundAxis], modes: [c_int; 4]) -> Outcome<()> {
        if modes != [0, 3, 3, 0] {
            return wrong(format!("modes {modes:?}"));
        }
        let Tensor { dtype, address, sizes, strides, .. } = *self;
        let words = Fields { dtype, address, sizes, strides, boxes, window }.words();
        // SAFETY: 128 bytes of the caller's, aligned as checked above.
        unsafe { to.cast::<Words>().write(words) };
        Ok(())
    }
}

fn wrong<T>(what: String) -> Outcome<T> {
    reject(code::INVALID_VALUE, format!("a tensor map: {what}"))
}

/// `cuTensorMapEncodeTiled` of elements of 16 bits.
pub fn encode(
    to: *mut c_void,
    kind: (c_int, c_uint),
    address: *mut c_void,
    lists: (*const u64, *const u64),
    (boxes, steps): (*const u32, *const u32),
    modes: [c_int; 4],
) -> Outcome<()> {
    let tensor = Tensor::of(to, kind, address, lists, 1..=MOST_DIMS)?;
    let [boxes, steps] = [list(boxes, tensor.rank)?, list(steps, tensor.rank)?];
    let is_box = |(&size, &step): (&u32, &u32)| (1..=256).contains(&size) && step == 1;
    if !boxes.iter().zip(steps).all(is_box) || boxes[0] * 2 != 128 {
        return wrong(format!("boxes of {boxes:?}"));
    }
    tensor.write(to, boxes, &[], modes)
}

/// `cuTensorMapEncodeIm2col` of elements of 16 bits, of images that windows slide over along one to three dimensions.
pub fn encode_windows(
    to: *mut c_void,
    kind: (c_int, c_uint),
    address: *mut c_void,
    lists: (*const u64, *const u64),
    (lower, upper): (*const c_int, *const c_int),
    (channels, places, steps): (c_uint, c_uint, *const u32),
    modes: [c_int; 4],
) -> Outcome<()> {
    let tensor = Tensor::of(to, kind, address, lists, 3..=MOST_DIMS)?;
    let rank = tensor.rank;
    let ([lower, upper], steps) = ([list(lower, rank - 2)?, list(upper, rank - 2)?], list(steps, rank)?);
    let most = [32_767, 127, 15][rank - 3];
    let are_corners = lower.iter().chain(upper).all(|n| (-most - 1..=most).contains(n));
    let are_steps = steps.iter().all(|n| (1..=8).contains(n)) && steps[0] == 1 && steps[rank - 1] == 1;
    if !are_corners || !are_steps || channels * 2 != 128 || !(1..=1024).contains(&places) {
        return wrong(format!(
            "windows with corners {lower:?} and {upper:?}, steps {steps:?}, {channels} × {places}"
        ));
    }
    let axes = lower.iter().zip(upper).zip(&steps[1..]);
    let window: Vec<BoundAxis> =
        axes.map(|((&lower, &upper), &step)| BoundAxis { lower, upper, step }).collect();
    tensor.write(to, &[channels, places], &window, modes)
}
