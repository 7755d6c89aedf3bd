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

/// The map of a buffer that begins at `memory`: of boxes, or of images over which windows slide.
///
/// # Errors
/// What the driver says of numbers that no map can have.
pub(crate) fn encode(tensors: &Tensors, map: &BoundMap, memory: Part) -> Outcome<TensorMap> {
    let mut made = TensorMap::default();
    let (to, dtype, rank) = ((&raw mut made.0).cast(), number(map.dtype), map.sizes.len() as u32);
    let at = memory.at + map.base as DevicePtr * (map.dtype.bits() as u64 / 8);
    let at = std::ptr::without_provenance_mut(at as usize);
    let (sizes, strides) = (map.sizes.as_ptr(), map.strides.as_ptr());
    // From place to place, along the dimensions behind the channels; one along all others.
    let mut steps = vec![1u32; map.sizes.len()];
    steps.iter_mut().skip(1).zip(&map.window).for_each(|(step, axis)| *step = axis.step);
    if map.window.is_empty() {
        let (boxes, steps) = (map.box_sizes.as_ptr(), steps.as_ptr());
        // SAFETY: `to` is 128 bytes, aligned to 64; lists of a number for each dimension (strides: one fewer) are read during the call, the address is not.
        unsafe {
            tensors.encode(
                to, dtype, rank, at, sizes, strides, boxes, steps, INTERLEAVE, SWIZZLE, PROMOTION, FILL,
            )
        }?;
        return Ok(made);
    }
    let corners = |of: fn(&BoundAxis) -> i32| map.window.iter().map(of).collect::<Vec<c_int>>();
    let (lower, upper) = (corners(|axis| axis.lower), corners(|axis| axis.upper));
    // The driver rejects none.
    let [channels, places] = [0, 1].map(|i| map.box_sizes.get(i).copied().unwrap_or(0));
    // SAFETY: as above; the corners are a number for each dimension but the first and the last.
    unsafe {
        tensors.encode_windows(
            to,
            dtype,
            rank,
            at,
            sizes,
            strides,
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
