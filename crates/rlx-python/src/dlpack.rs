//! Tensors of other libraries by DLPack, where they are: PyTorch's, JAX's, and those of every library that has `__dlpack__`.
//!
//! Layout and protocol: <https://dmlc.github.io/dlpack/latest/>, versions 0 and 1. The unversioned structure, which every producer
//! gives to a caller that asks for nothing, is tried first; read-only memory comes in the versioned one.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyDict};
use rlx_ir::DType;

use crate::array::{self, Input};

#[repr(C)]
struct DlDevice {
    kind: c_int,
    id: c_int,
}

#[repr(C)]
struct DlDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    rank: c_int,
    dtype: DlDataType,
    dims: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// What the capsules `dltensor_versioned` hold.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: *mut c_void,
    flags: u64,
    tensor: DlTensor,
}

const CPU: c_int = 1;
/// Memory of the host that a GPU can read too.
const CUDA_HOST: c_int = 3;
/// More dimensions than any tensor has.
const MOST_DIMS: usize = 64;

/// A tensor by DLPack. One that is not contiguous, or not in the host's memory, is first copied by its library.
pub fn import(object: &Bound<'_, PyAny>) -> PyResult<Input> {
    // A tensor that records gradients must be detached before it can be exported.
    let plain = match object.getattr("requires_grad") {
        Ok(flag) if flag.is_truthy()? => object.call_method0("detach")?,
        _ => object.clone(),
    };
    if let Some(input) = read(&plain)? {
        return Ok(input);
    }
    let Ok(dense) = plain.call_method0("contiguous") else {
        let numpy = plain.py().import("numpy")?;
        return array::input(&numpy.call_method1("from_dlpack", (&plain,))?, None);
    };
    read(&dense)?.ok_or_else(|| PyBufferError::new_err("the library gives a tensor that is not contiguous"))
}

/// `None` for a tensor with gaps or another order of its elements.
fn read(object: &Bound<'_, PyAny>) -> PyResult<Option<Input>> {
    let device: (c_int, c_int) = object.call_method0("__dlpack_device__")?.extract()?;
    if device.0 != CPU && device.0 != CUDA_HOST {
        return Err(PyBufferError::new_err(
            "the tensor is in the memory of a device; copy it to the host first, as by `tensor.cpu()`",
        ));
    }
    let capsule = match object.call_method0("__dlpack__") {
        Ok(capsule) => capsule,
        Err(plain) => {
            let options = PyDict::new(object.py());
            options.set_item("max_version", (1, 0))?;
            object.call_method("__dlpack__", (), Some(&options)).map_err(|_| plain)?
        }
    };
    let capsule = capsule.cast_into::<PyCapsule>()?;
    // SAFETY: a capsule of this name holds a `DLManagedTensor` (or, of the other name, its versioned form), with its tensor, which lives
    // as long as the capsule does, whose destructor frees it unless a consumer renames the capsule. It is not renamed; the input
    // keeps the capsule. The layout of version 1 holds for every 1.x.
    let tensor = unsafe {
        match capsule.pointer_checked(Some(c"dltensor_versioned")) {
            Ok(managed) => {
                let managed: NonNull<Versioned> = managed.cast();
                if managed.as_ref().major != 1 {
                    return Err(PyBufferError::new_err("a tensor of another major version of DLPack"));
                }
                &(*managed.as_ptr()).tensor
            }
            Err(_) => capsule.pointer_checked(Some(c"dltensor"))?.cast::<DlTensor>().as_ref(),
        }
    };
    let dtype = dtype_of(&tensor.dtype)?;
    let rank = usize::try_from(tensor.rank).ok().filter(|&rank| rank <= MOST_DIMS);
    let rank = rank.ok_or_else(|| PyBufferError::new_err("a tensor with an impossible rank"))?;
    let sizes = |at: *mut i64| match rank {
        0 => &[][..],
        // SAFETY: the tensor has `rank` sizes, and as many strides or none.
        _ => unsafe { std::slice::from_raw_parts(at, rank) },
    };
    let impossible = |_| PyBufferError::new_err("a tensor with an impossible size");
    let dims: Vec<usize> = sizes(tensor.dims)
        .iter()
        .map(|&n| usize::try_from(n))
        .collect::<Result<_, _>>()
        .map_err(impossible)?;
    let elements = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let len = elements.and_then(|n| n.checked_mul(dtype.size_bytes()));
    let len = len.ok_or_else(|| PyBufferError::new_err("a tensor with an impossible size"))?;
    if len > 0 && !tensor.strides.is_null() && !contiguous(&dims, sizes(tensor.strides)) {
        return Ok(None);
    }
    let offset = usize::try_from(tensor.byte_offset)
        .map_err(|_| PyBufferError::new_err("a tensor with an impossible offset"))?;
    let at = tensor.data.cast::<u8>().wrapping_add(offset).cast_const();
    // SAFETY: the producer says that its elements are there, without gaps, as long as the capsule lives.
    Ok(Some(unsafe { Input::borrowed(dtype, dims, at, len, capsule.into_any().unbind()) }))
}

fn contiguous(dims: &[usize], strides: &[i64]) -> bool {
    let mut next = 1i64;
    for (&n, &stride) in dims.iter().zip(strides).rev() {
        if n != 1 && stride != next {
            return false;
        }
        next = next.saturating_mul(n as i64);
    }
    true
}

fn dtype_of(t: &DlDataType) -> PyResult<DType> {
    let dtype = match (t.code, t.bits, t.lanes) {
        (0, 8, 1) => DType::I8,
        (0, 16, 1) => DType::I16,
        (0, 32, 1) => DType::I32,
        (0, 64, 1) => DType::I64,
        (1, 8, 1) => DType::U8,
        (1, 16, 1) => DType::U16,
        (1, 32, 1) => DType::U32,
        (1, 64, 1) => DType::U64,
        (2, 16, 1) => DType::F16,
        (2, 32, 1) => DType::F32,
        (2, 64, 1) => DType::F64,
        (4, 16, 1) => DType::BF16,
        (5, 64, 1) => DType::C64,
        (6, 8, 1) => DType::Bool,
        (10, 8, 1) => DType::F8E4M3FN,
        (11, 8, 1) => DType::F8E4M3FNUZ,
        (12, 8, 1) => DType::F8E5M2,
        (13, 8, 1) => DType::F8E5M2FNUZ,
        (14, 8, 1) => DType::F8E8M0,
        (code, bits, lanes) => {
            let message = format!("a tensor of DLPack type code {code}, {bits} bits, {lanes} lanes");
            return Err(PyTypeError::new_err(message));
        }
    };
    Ok(dtype)
}
