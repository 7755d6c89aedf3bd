//! The shim's things as values: arrays and programs that free themselves.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use rlx_ir::{ConstData, DType, Error, ErrorKind, Result};

use crate::load::{RawArray, RawError, RawProgram, Shim, failed};
use crate::program::{dtype_code, stored_dims, word};

/// An array of MLX's, in memory that both MLX and the host see.
pub(crate) struct Array {
    shim: Arc<Shim>,
    raw: *mut RawArray,
    /// Whose bytes it reads, if they are not its own.
    _owner: Option<Arc<ConstData>>,
}

// SAFETY: the shim's functions may be called from any thread, and serialise what MLX does not.
unsafe impl Send for Array {}
// SAFETY: as above; shared, an array is only read.
unsafe impl Sync for Array {}

impl Array {
    /// An array with a copy of these row-major bytes.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`]; [`ErrorKind::Internal`] for bytes that are not the shape's.
    pub(crate) fn copied(shim: &Arc<Shim>, dtype: DType, dims: &[usize], bytes: &[u8]) -> Result<Array> {
        // SAFETY: nothing is borrowed.
        unsafe { Array::new(shim, dtype, dims, bytes, None, false) }
    }

    /// # Safety
    /// With `borrow`, the bytes outlive the array, which they do where they are `owner`'s.
    unsafe fn new(
        shim: &Arc<Shim>,
        dtype: DType,
        dims: &[usize],
        bytes: &[u8],
        owner: Option<Arc<ConstData>>,
        borrow: bool,
    ) -> Result<Array> {
        let no_type = || Error::new(ErrorKind::Internal, format!("MLX has no elements of {dtype}"));
        let code = u32::try_from(dtype_code(dtype).ok_or_else(no_type)?).map_err(|_| no_type())?;
        let dims: Vec<i64> = stored_dims(dtype, dims).into_iter().map(word).collect();
        let (mut raw, mut error) = (ptr::null_mut(), RawError::none());
        let data: *const c_void = bytes.as_ptr().cast();
        // SAFETY: the lists are as long as said; the bytes are there for as long as they are read, by the caller's promise.
        let status = unsafe {
            (shim.array_new)(
                code,
                dims.as_ptr(),
                dims.len(),
                data,
                bytes.len(),
                borrow.into(),
                &mut raw,
                &mut error,
            )
        };
        if status != 0 {
            return Err(failed(status, &error));
        }
        Ok(Array { shim: Arc::clone(shim), raw, _owner: owner })
    }

    /// Its row-major bytes, where they are.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] for an array that is no program's output.
    pub(crate) fn bytes(&self) -> Result<&[u8]> {
        let (mut data, mut len, mut error) = (ptr::null(), 0, RawError::none());
        // SAFETY: the array lives, and what is written to outlives the call.
        let status = unsafe { (self.shim.array_data)(self.raw, &mut data, &mut len, &mut error) };
        if status != 0 {
            return Err(failed(status, &error));
        }
        if data.is_null() {
            return Ok(&[]);
        }
        // SAFETY: the shim says that so many bytes are there for as long as the array lives, and nothing writes to them.
        Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        // SAFETY: made by the shim, and freed once.
        unsafe { (self.shim.array_free)(self.raw) }
    }
}

/// An array that reads a constant's bytes where they are, if MLX can.
///
/// # Errors
/// As [`Array::copied`].
pub(crate) fn shared_constant(shim: &Arc<Shim>, data: &Arc<ConstData>) -> Result<Array> {
    let bytes: &[u8] = data.bytes();
    // SAFETY: a constant's bytes never change, and the array keeps the constant.
    unsafe { Array::new(shim, data.dtype(), data.dims(), bytes, Some(Arc::clone(data)), true) }
}

/// A program that MLX compiles for each shape of its inputs.
pub(crate) struct Program {
    shim: Arc<Shim>,
    raw: *mut RawProgram,
}

// SAFETY: as of arrays.
unsafe impl Send for Program {}
// SAFETY: as of arrays; runs of one program are serialised by the shim.
unsafe impl Sync for Program {}

impl Program {
    /// A program of these words.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] for words that break a rule of programs.
    pub(crate) fn new(shim: &Arc<Shim>, words: &[i64]) -> Result<Program> {
        let (mut raw, mut error) = (ptr::null_mut(), RawError::none());
        // SAFETY: so many words are there, and what is written to outlives the call.
        let status = unsafe { (shim.program_new)(words.as_ptr(), words.len(), &mut raw, &mut error) };
        if status != 0 {
            return Err(failed(status, &error));
        }
        Ok(Program { shim: Arc::clone(shim), raw })
    }

    /// Runs on `inputs` and waits; gives `outputs` arrays. What is `donated` (a flag for each input) has no value afterwards, and MLX may
    /// write an output over it.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`], [`ErrorKind::Device`] with MLX's own words.
    pub(crate) fn run(&self, inputs: &[&Array], donated: &[bool], outputs: usize) -> Result<Vec<Array>> {
        let donated: Vec<u8> = inputs.iter().zip(donated).map(|(_, &d)| d.into()).collect();
        if donated.len() != inputs.len() {
            return Err(Error::new(ErrorKind::Internal, "a flag is missing for an input"));
        }
        let given: Vec<*mut RawArray> = inputs.iter().map(|array| array.raw).collect();
        let mut found: Vec<*mut RawArray> = vec![ptr::null_mut(); outputs];
        let mut error = RawError::none();
        // SAFETY: the lists are as long as said, and hold arrays that live.
        let status = unsafe {
            (self.shim.program_run)(
                self.raw,
                given.as_ptr(),
                donated.as_ptr(),
                given.len(),
                found.as_mut_ptr(),
                found.len(),
                &mut error,
            )
        };
        if status != 0 {
            return Err(failed(status, &error));
        }
        let array = |raw| Array { shim: Arc::clone(&self.shim), raw, _owner: None };
        Ok(found.into_iter().map(array).collect())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made by the shim, and freed once.
        unsafe { (self.shim.program_free)(self.raw) }
    }
}

/// Bytes that MLX holds at present.
pub(crate) fn memory(shim: &Shim) -> usize {
    // SAFETY: it takes nothing, and gives a number.
    unsafe { (shim.memory)() }
}
