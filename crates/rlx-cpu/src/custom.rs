//! Kernels of ops from outside on the CPU.
//!
//! An op that is registered with [`rlx_ir::custom::register_custom_op`] runs here in one of three ways: by the kernel
//! that [`register_cpu_kernel`] was given for it, else by its decomposition, else by its reference semantics, which
//! is slow; the dispatch report says which.
//!
//! ```
//! use rlx_cpu::custom::{CpuCall, CpuKernel, register_cpu_kernel};
//!
//! /// `x + 1` for f32.
//! struct Increment;
//!
//! impl CpuKernel for Increment {
//!     fn run(&self, call: &mut CpuCall<'_>) -> rlx_ir::Result<()> {
//!         let x = call.input_as::<f32>(0)?;
//!         let y = call.output_as::<f32>(0)?;
//!         y.iter_mut().zip(x).for_each(|(y, x)| *y = x + 1.0);
//!         Ok(())
//!     }
//! }
//!
//! register_cpu_kernel("doc.Increment", Increment)?;
//! # Ok::<(), rlx_ir::Error>(())
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, RwLock};

use bytemuck::{AnyBitPattern, NoUninit};
use rlx_ir::op::CustomAttrs;
use rlx_ir::{DType, Error, ErrorKind, Result, Shape};

use crate::kernels::custom::Operands;

/// A kernel of an op from outside.
pub trait CpuKernel: Send + Sync {
    /// Whether it takes these types and dimensions, some of which may be symbolic; where it does not, the op goes
    /// by its decomposition or its reference.
    fn claims(&self, attrs: &CustomAttrs, inputs: &[&Shape], results: &[Shape]) -> bool {
        let _ = (attrs, inputs, results);
        true
    }

    /// Computes the results, all of whose elements must be written.
    ///
    /// # Errors
    /// Values the op forbids.
    fn run(&self, call: &mut CpuCall<'_>) -> Result<()>;
}

static KERNELS: LazyLock<RwLock<BTreeMap<String, Arc<dyn CpuKernel>>>> = LazyLock::new(RwLock::default);

/// Makes `kernel` the CPU's kernel of the custom op called `op`.
///
/// # Errors
/// [`ErrorKind::Config`] when the op has one already.
pub fn register_cpu_kernel(op: impl Into<String>, kernel: impl CpuKernel + 'static) -> Result<()> {
    let name = op.into();
    let mut kernels = KERNELS.write().unwrap_or_else(|e| e.into_inner());
    if kernels.contains_key(&name) {
        return Err(Error::new(ErrorKind::Config, format!("custom op {name:?} has a CPU kernel already")));
    }
    kernels.insert(name, Arc::new(kernel));
    Ok(())
}

/// The CPU's kernel of a custom op.
pub(crate) fn kernel(op: &str) -> Option<Arc<dyn CpuKernel>> {
    KERNELS.read().unwrap_or_else(|e| e.into_inner()).get(op).cloned()
}

/// One run of a kernel: its attributes and operands, all dense and row-major.
#[derive(Debug)]
pub struct CpuCall<'a> {
    pub(crate) attrs: &'a CustomAttrs,
    pub(crate) operands: Operands<'a>,
}

fn missing(what: &str, i: usize) -> Error {
    Error::new(ErrorKind::InvalidGraph, format!("there is no {what} {i}, or it was taken before"))
}

fn mistyped(what: &str, i: usize, dtype: DType) -> Error {
    Error::new(ErrorKind::DType, format!("{what} {i} is of {dtype}, whose size is another"))
}

impl<'a> CpuCall<'a> {
    /// The op's attributes.
    pub fn attrs(&self) -> &'a CustomAttrs {
        self.attrs
    }

    /// How many inputs there are.
    pub fn inputs(&self) -> usize {
        self.operands.inputs().len()
    }

    /// How many results there are.
    pub fn outputs(&self) -> usize {
        self.operands.outputs().len()
    }

    /// The element type and dimensions of input `i`.
    ///
    /// # Errors
    /// No such input.
    pub fn input_shape(&self, i: usize) -> Result<(DType, &'a [usize])> {
        self.operands.inputs().get(i).map(|o| (o.dtype, o.dims())).ok_or_else(|| missing("input", i))
    }

    /// The element type and dimensions of result `i`.
    ///
    /// # Errors
    /// No such result.
    pub fn output_shape(&self, i: usize) -> Result<(DType, &'a [usize])> {
        self.operands.outputs().get(i).map(|o| (o.dtype, o.dims())).ok_or_else(|| missing("result", i))
    }

    /// The bytes of input `i`: row-major, little-endian.
    ///
    /// # Errors
    /// No such input.
    pub fn input(&self, i: usize) -> Result<&'a [u8]> {
        self.operands.input(i).ok_or_else(|| missing("input", i))
    }

    /// The elements of input `i`.
    ///
    /// # Errors
    /// No such input, or elements of another size.
    pub fn input_as<T: AnyBitPattern>(&self, i: usize) -> Result<&'a [T]> {
        let (dtype, _) = self.input_shape(i)?;
        if dtype.size_bytes() != size_of::<T>() {
            return Err(mistyped("input", i, dtype));
        }
        bytemuck::try_cast_slice(self.input(i)?).map_err(|_| mistyped("input", i, dtype))
    }

    /// The bytes of result `i`, to be written; each result is given out once.
    ///
    /// # Errors
    /// No such result, or one that was given out before.
    pub fn output(&mut self, i: usize) -> Result<&'a mut [u8]> {
        self.operands.take_output(i).ok_or_else(|| missing("result", i))
    }

    /// The elements of result `i`, to be written; each result is given out once.
    ///
    /// # Errors
    /// No such result, one that was given out before, or elements of another size.
    pub fn output_as<T: AnyBitPattern + NoUninit>(&mut self, i: usize) -> Result<&'a mut [T]> {
        let (dtype, _) = self.output_shape(i)?;
        if dtype.size_bytes() != size_of::<T>() {
            return Err(mistyped("result", i, dtype));
        }
        bytemuck::try_cast_slice_mut(self.output(i)?).map_err(|_| mistyped("result", i, dtype))
    }
}
