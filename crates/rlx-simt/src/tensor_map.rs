//! Tensor maps by the driver: 128 bytes that say what `cp.async.bulk.tensor` copies boxes of.

use std::ffi::c_int;

use rlx_ir::DType;
use rlx_tile::tensor_map::{BoundAxis, BoundMap};

use crate::driver::{Outcome, Part};
use crate::table::{DevicePtr, Tensors};

/// A map as a kernel is given it.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TensorMap(pub(crate) [u64; 16]);

/// `CU_TENSOR_MAP_INTERLEAVE_NONE`, `CU_TENSOR_MAP_SWIZZLE_128B`, `CU_TENSOR_MAP_L2_PROMOTION_L2_256B`, `CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE` (zeros).
const INTERLEAVE: c_int = 0;
const SWIZZLE: c_int = 3;
const PROMOTION: c_int = 3;
const FILL: c_int = 0;

/// `CUtensorMapDataType`; programs with maps multiply no other types.
fn number(dtype: DType) -> c_int {
    if dtype == DType::BF16 { 9 } else { 6 }
}

/// The map of a buffer that begins at `memory`.
///
/// # Errors
/// What the driver says of numbers that no map can have.
pub(crate) fn encode(tensors: &Tensors, map: &BoundMap, memory: Part) -> Outcome<TensorMap> {
    if !map.window.is_empty() {
        return encode_windows(tensors, map, memory);
    }
    let mut made = TensorMap::default();
    let at = memory.at + map.base as DevicePtr * (map.dtype.bits() as u64 / 8);
    let steps = vec![1u32; map.sizes.len()];
    // SAFETY: the map is 128 bytes, aligned to 64, and written; each list has as many numbers as there are dimensions, the strides one fewer, and is read during the
    // call. The address is not read.
    unsafe {
        tensors.encode(
            (&raw mut made.0).cast(),
            number(map.dtype),
            map.sizes.len() as u32,
            std::ptr::without_provenance_mut(at as usize),
            map.sizes.as_ptr(),
            map.strides.as_ptr(),
            map.box_sizes.as_ptr(),
            steps.as_ptr(),
            INTERLEAVE,
            SWIZZLE,
            PROMOTION,
            FILL,
        )
    }?;
    Ok(made)
}

/// The map of images over which windows slide.
fn encode_windows(tensors: &Tensors, map: &BoundMap, memory: Part) -> Outcome<TensorMap> {
    let mut made = TensorMap::default();
    let at = memory.at + map.base as DevicePtr * (map.dtype.bits() as u64 / 8);
    let corners = |of: fn(&BoundAxis) -> i32| map.window.iter().map(of).collect::<Vec<c_int>>();
    let (lower, upper) = (corners(|axis| axis.lower), corners(|axis| axis.upper));
    // From channel to channel and from image to image it is one.
    let steps = map.window.iter().map(|axis| axis.step);
    let steps: Vec<u32> = std::iter::once(1).chain(steps).chain([1]).collect();
    let &[channels, places] = &map.box_sizes[..] else { return Ok(made) };
    // SAFETY: the map is 128 bytes, aligned to 64, and written; sizes and steps are as many numbers as there are dimensions, the strides one fewer, and the corners two
    // fewer, and all are read during the call. The address is not read.
    unsafe {
        tensors.encode_windows(
            (&raw mut made.0).cast(),
            number(map.dtype),
            map.sizes.len() as u32,
            std::ptr::without_provenance_mut(at as usize),
            map.sizes.as_ptr(),
            map.strides.as_ptr(),
            lower.as_ptr(),
            upper.as_ptr(),
            channels,
            places,
            steps.as_ptr(),
            INTERLEAVE,
            SWIZZLE,
            PROMOTION,
            FILL,
        )
    }?;
    Ok(made)
}
