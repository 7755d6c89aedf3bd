//! Python's arrays as tensors, and tensors as NumPy arrays.
//!
//! An input is used where it is if it is C-contiguous, aligned and of the machine's byte order: a NumPy array, what
//! supports the buffer protocol, and what supports DLPack (PyTorch, JAX, CuPy on the host). Otherwise NumPy makes a copy that is.
//! While the GIL is released, another thread of the program must not write to it, as with every library that computes without the GIL.

use std::ffi::c_int;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use numpy::npyffi::{
    NPY_ARRAY_ALIGNED, NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_WRITEABLE, NpyTypes, PY_ARRAY_API, PyArrayObject,
    get_type_object,
};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use rlx::Finished;
use rlx_ir::{ConstData, DType, Shape};
use rlx_runtime::TensorView;

use crate::dlpack;
use crate::errors::OrRaise;

/// A tensor in the memory of a Python object, which is kept alive.
pub struct Input {
    pub dtype: DType,
    pub dims: Vec<usize>,
    memory: Memory,
}

enum Memory {
    /// The owner's memory, and how many bytes of it.
    Borrowed { at: *const u8, len: usize, _owner: Py<PyAny> },
    /// Elements that NumPy stores in another way.
    Owned(Vec<u8>),
}

// SAFETY: the memory is only read, and its owner is only released (`Py` is `Send`); readers are those of one call.
unsafe impl Send for Input {}
// SAFETY: as above.
unsafe impl Sync for Input {}

impl Input {
    /// A tensor in memory that belongs to `owner`.
    ///
    /// # Safety
    /// `len` bytes at `at` are readable as long as `owner` lives.
    pub unsafe fn borrowed(
        dtype: DType,
        dims: Vec<usize>,
        at: *const u8,
        len: usize,
        owner: Py<PyAny>,
    ) -> Self {
        Input { dtype, dims, memory: Memory::Borrowed { at, len, _owner: owner } }
    }

    fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Borrowed { len: 0, .. } => &[],
            // SAFETY: `Input::borrowed` was promised that they are readable while the owner lives, which `self` keeps.
            Memory::Borrowed { at, len, .. } => unsafe { std::slice::from_raw_parts(*at, *len) },
            Memory::Owned(bytes) => bytes,
        }
    }

    /// The tensor as the runtime takes it.
    pub fn view<'a>(&'a self, name: &'a str) -> TensorView<'a> {
        TensorView { name, dtype: self.dtype, dims: &self.dims, bytes: self.bytes() }
    }

    /// The tensor with a copy of its bytes.
    pub fn to_const(&self, py: Python<'_>) -> PyResult<ConstData> {
        ConstData::new(self.dtype, &self.dims, self.bytes()).or_raise(py)
    }
}

/// A Python object as a tensor. Lists and numbers, which have no element type of their own, are converted to `wanted`.
pub fn input(object: &Bound<'_, PyAny>, wanted: Option<DType>) -> PyResult<Input> {
    if let Ok(array) = object.cast::<PyUntypedArray>() {
        return of_array(array);
    }
    let py = object.py();
    if object.hasattr(intern!(py, "__dlpack__"))? && !object.hasattr(intern!(py, "__array_interface__"))? {
        return dlpack::import(object);
    }
    let numpy = py.import(intern!(py, "numpy"))?;
    let stated = ["__array__", "__array_interface__", "dtype"]
        .iter()
        .any(|name| object.hasattr(*name).unwrap_or(false))
        || numpy.py().import("builtins")?.getattr("memoryview")?.call1((object,)).is_ok();
    let dtype = match (stated, wanted) {
        (false, Some(wanted)) => descr(py, wanted)?.map(Bound::into_any),
        _ => None,
    };
    let array = numpy.call_method1(intern!(py, "asarray"), (object, dtype))?;
    of_array(array.cast::<PyUntypedArray>()?)
}

fn of_array(array: &Bound<'_, PyUntypedArray>) -> PyResult<Input> {
    let py = array.py();
    let found = array.dtype();
    let Some(dtype) = dtype_of(&found)? else {
        let message = format!("an array of {} is no tensor", found.str()?);
        return Err(PyTypeError::new_err(message));
    };
    let raw = array.as_array_ptr();
    // SAFETY: `array` is a NumPy array, so this points to its header; the GIL is held.
    let (flags, mut at) = unsafe { ((*raw).fields.flags, (*raw).fields.data.cast::<u8>().cast_const()) };
    let wanted = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
    if flags & wanted != wanted || found.is_native_byteorder() == Some(false) {
        let native = found.call_method1(intern!(py, "newbyteorder"), ("=",))?;
        let numpy = py.import(intern!(py, "numpy"))?;
        let copy = numpy.call_method1(intern!(py, "require"), (array, native, ["C", "A"]))?;
        return of_array(copy.cast::<PyUntypedArray>()?);
    }
    let dims = array.shape().to_vec();
    let elements: usize = dims.iter().product();
    if dtype.is_packed() {
        // NumPy has a byte for each element.
        let loose = match elements {
            0 => &[],
            // SAFETY: a contiguous array of `elements` bytes.
            n => unsafe { std::slice::from_raw_parts(at, n) },
        };
        return Ok(Input { dtype, dims, memory: Memory::Owned(packed(dtype, loose)) });
    }
    if dtype == DType::Bool && elements > 0 {
        // SAFETY: a contiguous array of `elements` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(at, elements) };
        if bytes.iter().any(|&b| b > 1) {
            return Err(PyValueError::new_err("a bool array has bytes other than 0 and 1"));
        }
    }
    let len = elements * dtype.size_bytes();
    if len == 0 {
        at = ptr::NonNull::dangling().as_ptr();
    }
    let owner = array.clone().into_any().unbind();
    // SAFETY: a contiguous, aligned array has its elements one after the other; it lives as long as its object.
    Ok(unsafe { Input::borrowed(dtype, dims, at, len, owner) })
}

/// Elements of a byte each, several to a byte, low bits first.
fn packed(dtype: DType, loose: &[u8]) -> Vec<u8> {
    let (bits, mask) = (dtype.bits(), (1u8 << dtype.bits()) - 1);
    let byte = |part: &[u8]| {
        part.iter().enumerate().fold(0, |byte, (i, &code)| byte | ((code & mask) << (i * bits)))
    };
    loose.chunks(8 / bits).map(byte).collect()
}

/// Element `i` of several to a byte, as NumPy's byte for it.
fn unpacked(dtype: DType, bytes: &[u8], i: usize) -> u8 {
    let (bits, each) = (dtype.bits(), 8 / dtype.bits());
    let above = 8 - bits;
    // Shifted up and down again, by which the sign fills the byte.
    let up = (bytes[i / each] >> (i % each * bits)) << above;
    if matches!(dtype, DType::I2 | DType::I4) { ((up as i8) >> above) as u8 } else { up >> above }
}

/// The element types that NumPy has by itself, by kind and size.
fn dtype_of(descr: &Bound<'_, PyArrayDescr>) -> PyResult<Option<DType>> {
    let builtin = match (descr.kind(), descr.itemsize()) {
        (b'f', 2) => Some(DType::F16),
        (b'f', 4) => Some(DType::F32),
        (b'f', 8) => Some(DType::F64),
        (b'i', 1) => Some(DType::I8),
        (b'i', 2) => Some(DType::I16),
        (b'i', 4) => Some(DType::I32),
        (b'i', 8) => Some(DType::I64),
        (b'u', 1) => Some(DType::U8),
        (b'u', 2) => Some(DType::U16),
        (b'u', 4) => Some(DType::U32),
        (b'u', 8) => Some(DType::U64),
        (b'b', 1) => Some(DType::Bool),
        (b'c', 8) => Some(DType::C64),
        _ => None,
    };
    // Types of `ml_dtypes` may have the kind and size of another.
    let extension = descr.num() >= 256;
    if builtin.is_some() && !extension {
        return Ok(builtin);
    }
    let name = descr.str()?.to_string();
    let named = EXTENSIONS.iter().find(|(known, _)| *known == name);
    Ok(named.map(|&(_, dtype)| dtype))
}

/// Element types that NumPy has only with `ml_dtypes`.
const EXTENSIONS: &[(&str, DType)] = &[
    ("bfloat16", DType::BF16),
    ("float8_e4m3fn", DType::F8E4M3FN),
    ("float8_e4m3fnuz", DType::F8E4M3FNUZ),
    ("float8_e5m2", DType::F8E5M2),
    ("float8_e5m2fnuz", DType::F8E5M2FNUZ),
    ("float8_e8m0fnu", DType::F8E8M0),
    ("int2", DType::I2),
    ("uint2", DType::U2),
    ("int4", DType::I4),
    ("uint4", DType::U4),
    ("float4_e2m1fn", DType::F4E2M1),
];

/// NumPy's element type; `None` for one that needs `ml_dtypes`, which is not installed.
pub fn descr(py: Python<'_>, dtype: DType) -> PyResult<Option<Bound<'_, PyArrayDescr>>> {
    static CACHE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let cache = CACHE.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    if let Some(found) = cache.get_item(dtype.name())? {
        return Ok(Some(found.cast_into::<PyArrayDescr>()?));
    }
    let name = match dtype {
        DType::F16 => "float16",
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::U8 => "uint8",
        DType::U16 => "uint16",
        DType::U32 => "uint32",
        DType::U64 => "uint64",
        DType::Bool => "bool",
        DType::C64 => "complex64",
        _ => {
            let name = EXTENSIONS.iter().find(|(_, known)| *known == dtype).map(|(name, _)| *name);
            let Some(name) = name else {
                return Err(PyTypeError::new_err(format!("NumPy has no type for {dtype}")));
            };
            let Ok(types) = py.import("ml_dtypes") else { return Ok(None) };
            let descr = PyArrayDescr::new(py, types.getattr(name)?)?;
            cache.set_item(dtype.name(), &descr)?;
            return Ok(Some(descr));
        }
    };
    let descr = PyArrayDescr::new(py, name)?;
    cache.set_item(dtype.name(), &descr)?;
    Ok(Some(descr))
}

/// NumPy's element type.
fn require_descr(py: Python<'_>, dtype: DType) -> PyResult<Bound<'_, PyArrayDescr>> {
    descr(py, dtype)?.ok_or_else(|| {
        let message = format!("NumPy has {dtype} only with the package ml_dtypes: pip install ml_dtypes");
        PyTypeError::new_err(message)
    })
}

/// A new array with a copy of a tensor.
pub fn copied<'py>(py: Python<'py>, view: TensorView<'_>) -> PyResult<Bound<'py, PyAny>> {
    let array = new_array(py, view.dtype, view.dims, ptr::null_mut(), NPY_ARRAY_WRITEABLE)?;
    fill(&array, view);
    Ok(array.into_any())
}

/// The memory of a finished run, which the arrays over it keep.
#[pyclass(frozen, module = "rlx")]
pub struct Lease {
    finished: Mutex<Finished>,
}

impl Lease {
    pub fn new(py: Python<'_>, finished: Finished) -> PyResult<Bound<'_, Self>> {
        Bound::new(py, Lease { finished: Mutex::new(finished) })
    }

    /// Reads output `i`.
    pub fn read<R>(&self, i: usize, f: impl FnOnce(TensorView<'_>) -> PyResult<R>) -> PyResult<R> {
        let finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        f(finished.output(i).map_err(|e| PyValueError::new_err(e.to_string()))?)
    }

    /// A read-only array over output `i`.
    pub fn array<'py>(lease: &Bound<'py, Self>, i: usize) -> PyResult<Bound<'py, PyAny>> {
        let py = lease.py();
        lease.get().read(i, |view| {
            let aligned = view.bytes.as_ptr().addr().is_multiple_of(view.dtype.size_bytes().min(8));
            if view.dtype.is_packed() || view.bytes.is_empty() || !aligned {
                return copied(py, view);
            }
            let at = view.bytes.as_ptr().cast_mut();
            let array = new_array(py, view.dtype, view.dims, at, NPY_ARRAY_ALIGNED)?;
            let base = lease.clone().into_ptr();
            // SAFETY: both are live objects, and the reference to `base` is handed over, also in the case of an error. The array
            // keeps the lease, which keeps the run; nothing moves or writes to the outputs of a run that is done.
            let failed = unsafe { PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_array_ptr(), base) } < 0;
            if failed { Err(PyErr::fetch(py)) } else { Ok(array.into_any()) }
        })
    }
}

/// Copies a tensor into an array of the caller's, which must have its element type and shape.
pub fn copy_into(view: TensorView<'_>, out: &Bound<'_, PyAny>) -> PyResult<()> {
    let shape = Shape::new(view.dims, view.dtype);
    let wrong =
        |why: String| Err(PyValueError::new_err(format!("out for output {:?}, {shape}, {why}", view.name)));
    let Ok(array) = out.cast::<PyUntypedArray>() else {
        return wrong(format!("must be a NumPy array, not {}", out.get_type()));
    };
    if dtype_of(&array.dtype())? != Some(view.dtype) || array.shape() != view.dims {
        return wrong(format!("has shape {:?} and type {}", array.shape(), array.dtype().str()?));
    }
    let wanted = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_WRITEABLE;
    // SAFETY: a NumPy array's header.
    let flags = unsafe { (*array.as_array_ptr()).fields.flags };
    if flags & wanted != wanted || array.dtype().is_native_byteorder() == Some(false) {
        return wrong("must be C-contiguous, aligned, writable and of the machine's byte order".to_owned());
    }
    fill(array, view);
    Ok(())
}

/// A C-contiguous array of its own memory, or of that at `at`.
fn new_array<'py>(
    py: Python<'py>,
    dtype: DType,
    dims: &[usize],
    at: *mut u8,
    flags: c_int,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    let descr = require_descr(py, dtype)?;
    let too_large = |_| PyValueError::new_err("an output is larger than an array can be");
    let mut dims: Vec<isize> =
        dims.iter().map(|&n| isize::try_from(n)).collect::<Result<_, _>>().map_err(too_large)?;
    let rank = c_int::try_from(dims.len()).map_err(too_large)?;
    let flags = if at.is_null() { 0 } else { flags | NPY_ARRAY_C_CONTIGUOUS };
    // SAFETY: the reference to `descr` is handed over, as the function wants; `dims` has `rank` sizes; without strides the array
    // is C-contiguous; without data it has its own.
    let object = unsafe {
        let class = get_type_object(py, NpyTypes::PyArray_Type);
        PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            class,
            descr.into_ptr().cast(),
            rank,
            dims.as_mut_ptr(),
            ptr::null_mut(),
            at.cast(),
            flags,
            ptr::null_mut(),
        )
    };
    // SAFETY: a new reference, or null with an exception set.
    let object = unsafe { Bound::from_owned_ptr_or_err(py, object)? };
    Ok(object.cast_into::<PyUntypedArray>()?)
}

/// Copies a tensor's elements into an array of the same type and shape that is C-contiguous.
fn fill(array: &Bound<'_, PyUntypedArray>, view: TensorView<'_>) {
    let elements: usize = view.dims.iter().product();
    let raw: *mut PyArrayObject = array.as_array_ptr();
    // SAFETY: a NumPy array's header.
    let at = unsafe { (*raw).fields.data.cast::<u8>() };
    if view.dtype.is_packed() {
        for i in 0..elements {
            // SAFETY: the array has a byte for each of its `elements` elements.
            unsafe { at.add(i).write(unpacked(view.dtype, view.bytes, i)) };
        }
        return;
    }
    let len = (elements * view.dtype.size_bytes()).min(view.bytes.len());
    // SAFETY: the array has `elements` elements of this type, and its memory is not the runtime's.
    unsafe { ptr::copy_nonoverlapping(view.bytes.as_ptr(), at, len) };
}
