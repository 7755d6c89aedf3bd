//! Running models, and reading their outputs.

use std::ffi::{CString, c_char};
use std::{ptr, slice};

use rlx::Finished;
use rlx_ir::{DType, Result, Shape};
use rlx_runtime::TensorView;

use crate::error::{RlxStatus, c_text, free, get, guarded, invalid, put, text};
use crate::model::RlxModel;
use crate::types::{RlxTensor, dtype_of, number_of};

/// A run that is done, with its outputs. It may be read by several threads.
#[derive(Debug)]
pub struct RlxRun {
    names: Vec<CString>,
    outputs: Vec<Output>,
    /// What the outputs are the memory of.
    _finished: Finished,
}

#[derive(Debug)]
struct Output {
    dtype: DType,
    dims: Vec<usize>,
    data: *const u8,
    bytes: usize,
}

/// More dimensions than any tensor has.
const MOST_DIMS: usize = 64;

/// An input, as the runtime takes it.
///
/// # Safety
/// Name, dimensions and data are null or as long as the tensor says, for `'a`.
unsafe fn view<'a>(tensor: &'a RlxTensor) -> Result<TensorView<'a>> {
    // SAFETY: promised by the caller.
    let name = unsafe { text(tensor.name, "name") }?;
    let wrong = |why: &str| invalid(format!("input \"{name}\": {why}"));
    let dtype =
        dtype_of(tensor.dtype).ok_or_else(|| wrong(&format!("there is no element type {}", tensor.dtype)))?;
    if tensor.rank > MOST_DIMS || (tensor.rank > 0 && tensor.dims.is_null()) {
        return Err(wrong("`dims` is null, or `rank` too large"));
    }
    let dims = match tensor.rank {
        0 => &[],
        // SAFETY: not null, and promised by the caller.
        rank => unsafe { slice::from_raw_parts(tensor.dims, rank) },
    };
    let shape = Shape::new(dims, dtype);
    if shape.size_bytes() != Some(tensor.bytes) || isize::try_from(tensor.bytes).is_err() {
        return Err(wrong(&format!("{} bytes do not make {shape}", tensor.bytes)));
    }
    if tensor.bytes > 0 && tensor.data.is_null() {
        return Err(wrong("`data` is null"));
    }
    let bytes = match tensor.bytes {
        0 => &[][..],
        // SAFETY: not null, no longer than a shape's bytes can be, and promised by the caller.
        n => unsafe { slice::from_raw_parts(tensor.data.cast::<u8>(), n) },
    };
    if dtype == DType::Bool && bytes.iter().any(|&b| b > 1) {
        return Err(wrong("a bool is 0 or 1"));
    }
    Ok(TensorView { name, dtype, dims, bytes })
}

/// Runs a model on `count` inputs. The run has the outputs, and is to be freed by `rlx_run_free`.
///
/// # Safety
/// `model` is null or a model; `inputs` is null or has `count` tensors, whose memory is as they say; `run` is null or may be written to.
// SAFETY: names that begin with `rlx_` are this library's alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlx_run(
    model: *const RlxModel,
    inputs: *const RlxTensor,
    count: usize,
    run: *mut *mut RlxRun,
) -> RlxStatus {
    guarded(|| {
        // SAFETY: promised by the caller.
        unsafe { put(run, ptr::null_mut(), "run") }?;
        // SAFETY: promised by the caller.
        let model = unsafe { get(model, "model") }?;
        if (inputs.is_null() && count > 0) || count > isize::MAX as usize / size_of::<RlxTensor>() {
            return Err(invalid("`inputs` is null, or `count` too large"));
        }
        let inputs = match count {
            0 => &[],
            // SAFETY: not null, no longer than memory, and promised by the caller.
            count => unsafe { slice::from_raw_parts(inputs, count) },
        };
        // SAFETY: promised by the caller.
        let one = |tensor| unsafe { view(tensor) };
        let views = inputs.iter().map(one).collect::<Result<Vec<_>>>()?;
        let finished = model.shared.run_views(&views)?;
        let (mut names, mut outputs) = (Vec::new(), Vec::new());
        for TensorView { name, dtype, dims, bytes } in finished.outputs() {
            names.push(c_text(name));
            outputs.push(Output { dtype, dims: dims.to_vec(), data: bytes.as_ptr(), bytes: bytes.len() });
        }
        let made = Box::into_raw(Box::new(RlxRun { names, outputs, _finished: finished }));
        // SAFETY: promised by the caller.
        unsafe { put(run, made, "run") }
    })
}

impl RlxRun {
    fn tensor(&self, index: usize) -> Option<RlxTensor> {
        let (name, output) = (self.names.get(index)?, self.outputs.get(index)?);
        Some(RlxTensor {
            name: name.as_ptr(),
            dtype: number_of(output.dtype),
            rank: output.dims.len(),
            dims: output.dims.as_ptr(),
            data: output.data.cast(),
            bytes: output.bytes,
        })
    }
}

/// How many outputs a run has; 0 for null.
///
/// # Safety
/// `run` is null or a run.
// SAFETY: names that begin with `rlx_` are this library's alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlx_run_output_count(run: *const RlxRun) -> usize {
    // SAFETY: promised by the caller.
    unsafe { run.as_ref() }.map_or(0, |run| run.outputs.len())
}

/// Output `index` of a run, valid until the run is freed. Nothing is copied.
///
/// # Safety
/// `run` is null or a run; `output` is null or may be written to.
// SAFETY: names that begin with `rlx_` are this library's alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlx_run_output(
    run: *const RlxRun,
    index: usize,
    output: *mut RlxTensor,
) -> RlxStatus {
    guarded(|| {
        // SAFETY: promised by the caller.
        let run = unsafe { get(run, "run") }?;
        let count = run.outputs.len();
        let found =
            run.tensor(index).ok_or_else(|| invalid(format!("there is no output {index} of {count}")))?;
        // SAFETY: promised by the caller.
        unsafe { put(output, found, "output") }
    })
}

/// The output called `name`, valid until the run is freed. Nothing is copied.
///
/// # Safety
/// `run` is null or a run; `name` is null or ends with a zero; `output` is null or may be written to.
// SAFETY: names that begin with `rlx_` are this library's alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlx_run_find(
    run: *const RlxRun,
    name: *const c_char,
    output: *mut RlxTensor,
) -> RlxStatus {
    guarded(|| {
        // SAFETY: promised by the caller, for both.
        let (run, name) = unsafe { (get(run, "run")?, text(name, "name")?) };
        let at = run.names.iter().position(|n| n.as_bytes() == name.as_bytes());
        let found = at.and_then(|at| run.tensor(at));
        let names = || run.names.iter().map(|n| n.to_string_lossy()).collect::<Vec<_>>().join(", ");
        let found =
            found.ok_or_else(|| invalid(format!("there is no output \"{name}\"; outputs: {}", names())))?;
        // SAFETY: promised by the caller.
        unsafe { put(output, found, "output") }
    })
}

/// Frees a run and its outputs; null is allowed.
///
/// # Safety
/// `run` is null or came from `rlx_run`, and is not used again.
// SAFETY: names that begin with `rlx_` are this library's alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlx_run_free(run: *mut RlxRun) {
    // SAFETY: promised by the caller.
    unsafe { free(run) }
}
