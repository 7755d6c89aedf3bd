//! Loading models, and what they declare.

use std::ffi::{CString, c_char};
use std::ptr;

use rlx::{OpenOptions, SharedRunner};
use rlx_ir::{Dim, Result, sym};
use rlx_runtime::TensorInfo;

use crate::error::{RlxStatus, c_text, free, get, guarded, invalid, put, text};
use crate::types::{RlxTensorInfo, number_of};

/// How a model is loaded.
#[derive(Debug)]
pub struct RlxOptions {
    options: OpenOptions,
}

/// A model on a device. Several threads may run it at once.
#[derive(Debug)]
pub struct RlxModel {
    pub(crate) shared: SharedRunner,
    inputs: Vec<Declared>,
    outputs: Vec<Declared>,
}

/// What is declared of an input or output, as C reads it.
#[derive(Debug)]
struct Declared {
    name: CString,
    dtype: i32,
    dims: Vec<i64>,
    /// Of the dynamic dimensions.
    names: Vec<Option<CString>>,
    /// What `names` are, for C.
    pointers: Vec<*const c_char>,
}

// SAFETY: the pointers are those of `names`, which are never changed.
unsafe impl Send for Declared {}
// SAFETY: as above.
unsafe impl Sync for Declared {}

impl Declared {
    fn of(info: &TensorInfo) -> Self {
        let fixed = |d: &Dim| d.as_static().and_then(|n| i64::try_from(n).ok());
        let name = |d: &Dim| match *d {
            Dim::Static(_) => None,
            Dim::Dynamic(symbol) => Some(c_text(&sym::name(symbol))),
            other => Some(c_text(&other.to_string())),
        };
        let names: Vec<Option<CString>> = info.shape.dims().iter().map(name).collect();
        let pointers = names.iter().map(|n| n.as_ref().map_or(ptr::null(), |n| n.as_ptr())).collect();
        let dims = info.shape.dims().iter().map(|d| fixed(d).unwrap_or(-1)).collect();
        Declared { name: c_text(&info.name), dtype: number_of(info.dtype), dims, names, pointers }
    }

    fn info(&self) -> RlxTensorInfo {
        debug_assert_eq!(self.names.len(), self.pointers.len());
        RlxTensorInfo {
            name: self.name.as_ptr(),
            dtype: self.dtype,
            rank: self.dims.len(),
            dims: self.dims.as_ptr(),
            dim_names: self.pointers.as_ptr(),
        }
    }
}

/// New options with their defaults, to be freed by `rlx_options_free`.
///
/// # Safety
/// `options` is null or may be written to.
// SAFETY: names that begin with `rlx_` are this library's alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlx_options_new(options: *mut *mut RlxOptions) -> RlxStatus {
    guarded(|| {
        // So that the pointer is checked before anything is made.
        // SAFETY: promised by the caller.
        unsafe { put(options, ptr::null_mut(), "options") }?;
        let made = Box::into_raw(Box::new(RlxOptions { options: OpenOptions::new()? }));
        // SAFETY: promised by the caller.
        unsafe { put(options, made, "options") }
    })
}

/// Sets an option: "device" ("cpu", "vulkan", …), "precision" ("f32", "f16", "bf16"), "policy", "numerics" ("fast", "strict"),
/// "tune" ("off", "cached", "measure"), "threads", "cpu_fallback" and "cache" ("true", "false"), or "dim:NAME" for the size of a dynamic dimension.
///
/// # Safety
/// `options` is null or came from `rlx_options_new`; `name` and `value` are null or end with a zero.
// SAFETY: names that begin with `rlx_` are this library's alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlx_options_set(
    options: *mut RlxOptions,
    name: *const c_char,
    value: *const c_char,
) -> RlxStatus {
    guarded(|| {
        // SAFETY: promised by the caller.
        let options = unsafe { options.as_mut() }.ok_or_else(|| invalid("`options` is null"))?;
        // SAFETY: promised by the caller, for both.
        let (name, value) = unsafe { (text(name, "name")?, text(value, "value")?) };
        options.options.set(name, value)
    })
}

/// Frees options; null is allowed. Models that were loaded with them do not need them.
///
/// # Safety
/// `options` is null or came from `rlx_options_new`, and is not used again.
// SAFETY: names that begin with `rlx_` are this library's alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlx_options_free(options: *mut RlxOptions) {
    // SAFETY: promised by the caller.
    unsafe { free(options) }
}

/// Loads a model: an ONNX file, or one that `rlx compile` wrote. `options` may be null. The model is compiled by its first run.
/// It is to be freed by `rlx_model_free`.
///
/// # Safety
/// `path` is null or ends with a zero; `options` is null or came from `rlx_options_new`; `model` is null or may be written to.
// SAFETY: names that begin with `rlx_` are this library's alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlx_load(
    path: *const c_char,
    options: *const RlxOptions,
    model: *mut *mut RlxModel,
) -> RlxStatus {
    guarded(|| {
        // SAFETY: promised by the caller.
        unsafe { put(model, ptr::null_mut(), "model") }?;
        // SAFETY: promised by the caller, for both.
        let (path, options) = unsafe { (text(path, "path")?, given(options)?) };
        let made = boxed(options.open(path)?)?;
        // SAFETY: promised by the caller.
        unsafe { put(model, made, "model") }
    })
}

/// Loads an ONNX model of `size` bytes at `bytes`, which are copied. As `rlx_load` otherwise.
///
/// # Safety
/// `bytes` is null or has `size` bytes; `options` is null or came from `rlx_options_new`; `model` is null or may be written to.
// SAFETY: names that begin with `rlx_` are this library's alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlx_load_bytes(
    bytes: *const u8,
    size: usize,
    options: *const RlxOptions,
    model: *mut *mut RlxModel,
) -> RlxStatus {
    guarded(|| {
        // SAFETY: promised by the caller.
        unsafe { put(model, ptr::null_mut(), "model") }?;
        if bytes.is_null() || size > isize::MAX as usize {
            return Err(invalid("`bytes` is null, or `size` too large"));
        }
        // SAFETY: not null, and promised by the caller; both are.
        let (bytes, options) = unsafe { (std::slice::from_raw_parts(bytes, size).to_vec(), given(options)?) };
        let made = boxed(options.open_bytes(bytes)?)?;
        // SAFETY: promised by the caller.
        unsafe { put(model, made, "model") }
    })
}

/// # Safety
/// `options` is null or came from `rlx_options_new`.
unsafe fn given(options: *const RlxOptions) -> Result<OpenOptions> {
    // SAFETY: promised by the caller.
    unsafe { options.as_ref() }.map_or_else(OpenOptions::new, |o| Ok(o.options.clone()))
}

fn boxed(runner: rlx::Runner) -> Result<*mut RlxModel> {
    let inputs = runner.inputs()?.iter().map(Declared::of).collect();
    let outputs = runner.outputs()?.iter().map(Declared::of).collect();
    Ok(Box::into_raw(Box::new(RlxModel { shared: runner.shared(), inputs, outputs })))
}

/// Frees a model; null is allowed. Its runs stay valid.
///
/// # Safety
/// `model` is null or came from `rlx_load` or `rlx_load_bytes`, and is not used again.
// SAFETY: names that begin with `rlx_` are this library's alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlx_model_free(model: *mut RlxModel) {
    // SAFETY: promised by the caller.
    unsafe { free(model) }
}

/// How many inputs a model has; 0 for null.
///
/// # Safety
/// `model` is null or a model.
// SAFETY: names that begin with `rlx_` are this library's alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlx_input_count(model: *const RlxModel) -> usize {
    // SAFETY: promised by the caller.
    unsafe { model.as_ref() }.map_or(0, |m| m.inputs.len())
}

/// How many outputs a model has; 0 for null.
///
/// # Safety
/// `model` is null or a model.
// SAFETY: names that begin with `rlx_` are this library's alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlx_output_count(model: *const RlxModel) -> usize {
    // SAFETY: promised by the caller.
    unsafe { model.as_ref() }.map_or(0, |m| m.outputs.len())
}

/// What a model declares of input `index`.
///
/// # Safety
/// `model` is null or a model; `info` is null or may be written to.
// SAFETY: names that begin with `rlx_` are this library's alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlx_input_info(
    model: *const RlxModel,
    index: usize,
    info: *mut RlxTensorInfo,
) -> RlxStatus {
    // SAFETY: promised by the caller.
    guarded(|| unsafe { put(info, declared(&get(model, "model")?.inputs, index, "input")?, "info") })
}

/// What a model declares of output `index`.
///
/// # Safety
/// `model` is null or a model; `info` is null or may be written to.
// SAFETY: names that begin with `rlx_` are this library's alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlx_output_info(
    model: *const RlxModel,
    index: usize,
    info: *mut RlxTensorInfo,
) -> RlxStatus {
    // SAFETY: promised by the caller.
    guarded(|| unsafe { put(info, declared(&get(model, "model")?.outputs, index, "output")?, "info") })
}

fn declared(all: &[Declared], index: usize, what: &str) -> Result<RlxTensorInfo> {
    let found = all.get(index).map(Declared::info);
    found.ok_or_else(|| invalid(format!("there is no {what} {index}; the model has {}", all.len())))
}
