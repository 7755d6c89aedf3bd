//! Setting parameters.

use std::borrow::Cow;
use std::sync::Arc;

use rlx_backend::convert;
use rlx_backend::{CodePart, ExecutableGraph, PreparedWeights};
use rlx_driver::DeviceId;
use rlx_ir::lir::BufferId;
use rlx_ir::progress::Stage;
use rlx_ir::{DType, Error, ErrorKind, Progress, Result, Weight, WeightStore, memory};
use rlx_select::or_panic;
use rlx_select::panic_guard;

use super::CompiledGraph;
use super::bind::unknown_name;
use super::book::ParamBook;
use super::tensor::TensorInfo;
/// The results of the init program, by buffer.
type Prepared<'a> = Vec<(BufferId, Cow<'a, [u8]>)>;

impl CompiledGraph {
    /// Sets a parameter from f32 values, converted to its declared type. Clones keep their values.
    ///
    /// # Panics
    /// If [`CompiledGraph::try_set_param`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// compiled.set_param("w", &[0.0, 1.0]);
    /// assert_eq!(compiled.run(&[("x", &[1.0, 2.0])]), [[1.0, 3.0]]);
    /// ```
    #[track_caller]
    pub fn set_param(&mut self, name: &str, values: &[f32]) {
        or_panic(self.try_set_param(name, values));
    }

    /// Sets a parameter from the bytes of `dtype` elements.
    ///
    /// # Panics
    /// If [`CompiledGraph::try_set_param_typed`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// let w: Vec<u8> = [0.0f32, 1.0].iter().flat_map(|v| v.to_ne_bytes()).collect();
    /// compiled.set_param_typed("w", &w, DType::F32);
    /// assert_eq!(compiled.run(&[("x", &[1.0, 2.0])]), [[1.0, 3.0]]);
    /// ```
    #[track_caller]
    pub fn set_param_typed(&mut self, name: &str, bytes: &[u8], dtype: DType) {
        or_panic(self.try_set_param_typed(name, bytes, dtype));
    }

    /// Sets a parameter from f32 values, converted to its declared type.
    ///
    /// # Errors
    /// An unknown name, a wrong count, a value that is not exact in the declared type.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// let error = compiled.try_set_param("v", &[0.0, 1.0]).unwrap_err();
    /// assert!(error.to_string().contains("w"), "it names the closest parameter");
    /// ```
    pub fn try_set_param(&mut self, name: &str, values: &[f32]) -> Result<()> {
        let index = self.param_position(name)?;
        let weight = weight_of_f32(&self.params[index], values)?;
        self.set_weight(index, Arc::new(weight))
    }

    /// Sets a parameter from the bytes of `dtype` elements: its declared type, or a float type that the
    /// declared one holds exactly.
    ///
    /// # Errors
    /// An unknown name, another type, a wrong count.
    pub fn try_set_param_typed(&mut self, name: &str, bytes: &[u8], dtype: DType) -> Result<()> {
        let index = self.param_position(name)?;
        let weight = weight_of_bytes(&self.params[index], bytes, dtype)?;
        self.set_weight(index, Arc::new(weight))
    }

    /// Sets a parameter to a stored weight: mapped ones are not copied, unless their type must be widened.
    ///
    /// # Errors
    /// An unknown name, other dimensions, a type that the declared one does not hold exactly.
    pub fn try_set_weight(&mut self, name: &str, weight: &Arc<Weight>) -> Result<()> {
        let index = self.param_position(name)?;
        let info = &self.params[index];
        let dims = param_dims(info)?;
        if weight.dims() != dims {
            let message = format!("parameter {name:?} is {}, but was given {}", info.shape, weight.shape());
            return Err(Error::new(ErrorKind::Binding, message));
        }
        if weight.dtype() == info.dtype {
            return self.set_weight(index, Arc::clone(weight));
        }
        self.try_set_param_typed(name, &weight.bytes()?, weight.dtype())
    }

    /// Sets every parameter that `weights` has by name; returns the names of parameters it does not have.
    ///
    /// # Errors
    /// As [`CompiledGraph::try_set_weight`].
    pub fn try_set_weights(&mut self, weights: &WeightStore) -> Result<Vec<String>> {
        self.try_set_weights_with_progress(weights, &Progress::none())
    }

    /// As [`CompiledGraph::try_set_weights`], with progress and cancellation. Those that were set before a cancellation stay set.
    ///
    /// # Errors
    /// As [`CompiledGraph::try_set_weight`]; [`ErrorKind::Cancelled`].
    pub fn try_set_weights_with_progress(
        &mut self,
        weights: &WeightStore,
        progress: &Progress,
    ) -> Result<Vec<String>> {
        let names: Vec<String> = self.params.iter().map(|p| p.name.clone()).collect();
        let (mut missing, count) = (Vec::new(), names.len());
        for (i, name) in names.into_iter().enumerate() {
            progress.step(Stage::Prepare, i, count, || &name)?;
            match weights.get(&name) {
                Some(weight) => self.try_set_weight(&name, weight)?,
                None => missing.push(name),
            }
        }
        Ok(missing)
    }

    /// Whether a parameter has a value: one that was set, or that the options fixed.
    pub fn is_param_set(&self, name: &str) -> bool {
        let set = self.params.iter().position(|p| p.name == name).is_some_and(|i| self.param_set[i]);
        set || self.record.fixed.iter().any(|fixed| fixed == name)
    }

    /// For each parameter whether it is unused after the init program; and the results of the init program, if the device
    /// exports them.
    pub(crate) fn prepared(&mut self, progress: &Progress) -> Result<(Vec<bool>, Prepared<'_>)> {
        self.check_params()?;
        let (exec, count) = (&mut self.exec, self.params.len());
        self.guard.call("giving its weights", move || {
            let Some(weights) = exec.prepared_weights() else { return Ok((vec![false; count], Vec::new())) };
            let spent = weights.spent_params();
            let prepared = weights.prepare(progress)?;
            Ok((if prepared.is_empty() { vec![false; count] } else { spent }, prepared))
        })
    }

    /// The code that the device generated, if it can load it again.
    pub(crate) fn code(&self) -> Result<Vec<CodePart>> {
        panic_guard::call(self.device, "giving its code", || self.exec.code())
    }

    /// For each parameter: whether it is unused after the init program.
    pub(crate) fn spent_params(&mut self) -> Result<Vec<bool>> {
        let (device, exec) = (self.device, &mut self.exec);
        self.guard.call("telling its parameters", move || Ok(taking_prepared(device, exec)?.spent_params()))
    }

    /// Restores the result of [`CompiledGraph::prepared`]; all parameters then have a value.
    pub(crate) fn restore(&mut self, prepared: &[(BufferId, &[u8])]) -> Result<()> {
        let (device, exec) = (self.device, &mut self.exec);
        self.guard.call("taking its weights", move || taking_prepared(device, exec)?.restore(prepared))?;
        self.param_set.fill(true);
        Ok(())
    }

    fn set_weight(&mut self, index: usize, weight: Arc<Weight>) -> Result<()> {
        let noted = self.book.is_some().then(|| Arc::clone(&weight));
        self.guard.call("taking a parameter", || self.exec.set_param(index, weight))?;
        self.param_set[index] = true;
        if let (Some(book), Some(weight)) = (&self.book, noted) {
            book.note(&self.params[index].name, &weight);
        }
        Ok(())
    }

    /// Sets the parameters to their values in `book`, and records there what they are set to from now on. A parameter
    /// that is declared otherwise in this graph stays without a value.
    ///
    /// # Errors
    /// Memory that cannot be had.
    pub(crate) fn share_params(&mut self, book: &ParamBook) -> Result<()> {
        for (name, weight) in &book.values() {
            let shape = |p: &TensorInfo| p.shape.with_dtype(weight.dtype());
            if self.params.iter().any(|p| p.name == *name && shape(p) == weight.shape()) {
                self.try_set_weight(name, weight)?;
            }
        }
        self.book = Some(book.clone());
        Ok(())
    }

    fn param_position(&self, name: &str) -> Result<usize> {
        self.params.iter().position(|p| p.name == name).ok_or_else(|| {
            if self.record.fixed.iter().any(|fixed| fixed == name) {
                let message =
                    format!("parameter {name:?} was fixed by the options when the graph was compiled");
                return Error::new(ErrorKind::Binding, message)
                    .with_hint("compile the graph without it in `param_bindings` to set it");
            }
            unknown_name("parameter", name, self.params.iter().map(|p| p.name.as_str()))
        })
    }

    /// Every parameter must have a value before a run.
    pub(super) fn check_params(&self) -> Result<()> {
        let Some(first) = self.param_set.iter().position(|&set| !set) else { return Ok(()) };
        let unset = self.param_set.iter().filter(|&&set| !set).count();
        let info = &self.params[first];
        let others = match unset {
            0 | 1 => String::new(),
            2 => " (nor was 1 other)".to_owned(),
            n => format!(" (nor were {} others)", n - 1),
        };
        let message = format!("parameter {:?} was never set{others}; it is {}", info.name, info.shape);
        Err(Error::new(ErrorKind::Binding, message))
    }
}

fn taking_prepared(
    device: DeviceId,
    exec: &mut Box<dyn ExecutableGraph>,
) -> Result<&mut dyn PreparedWeights> {
    exec.prepared_weights().ok_or_else(|| {
        let message = format!("{device} does not take weights that were prepared before");
        Error::new(ErrorKind::Unsupported, message)
    })
}

/// The error of a parameter that the graph does not have.
pub(crate) fn wrong_parameter(name: &str, known: &[String]) -> Error {
    unknown_name("parameter", name, known.iter().map(String::as_str))
}

fn param_dims(info: &TensorInfo) -> Result<Vec<usize>> {
    info.shape.static_dims().ok_or_else(|| {
        let message = format!("parameter {:?} has dynamic dimensions: {}", info.name, info.shape);
        Error::new(ErrorKind::Dimension, message).with_hint("compile with dim_binding")
    })
}

/// The weight of f32 values, converted to the declared type.
///
/// # Errors
/// A wrong count, a value that is not exact in the declared type.
pub(crate) fn weight_of_f32(info: &TensorInfo, values: &[f32]) -> Result<Weight> {
    let dims = param_dims(info)?;
    let want = dims.iter().product::<usize>() * convert::floats_per_element(info.dtype);
    if values.len() != want {
        let (name, shape, given) = (&info.name, &info.shape, values.len());
        let message = format!("parameter {name:?} is {shape}: {want} elements, but {given} were given");
        return Err(Error::new(ErrorKind::Binding, message));
    }
    let size = info.shape.size_bytes().unwrap_or(0);
    let mut bytes = memory::zeroed(size, || format!("parameter {:?}, {}", info.name, info.shape))?;
    convert::from_f32(info.dtype, values, &mut bytes).map_err(|e| named(info, &e))?;
    Weight::owned(info.dtype, &dims, bytes)
}

/// The weight of the bytes of `dtype` elements, where the declared type holds them exactly.
///
/// # Errors
/// Another type, a wrong count.
pub(crate) fn weight_of_bytes(info: &TensorInfo, bytes: &[u8], dtype: DType) -> Result<Weight> {
    let dims = param_dims(info)?;
    let bytes = convert::widen(info.dtype, dtype, bytes).map_err(|e| named(info, &e))?;
    Weight::owned(info.dtype, &dims, bytes).map_err(|e| named(info, &e))
}

fn named(info: &TensorInfo, e: &Error) -> Error {
    Error::new(e.kind(), format!("parameter {:?}, {}: {}", info.name, info.shape, e.message()))
        .with_source(e.clone())
}
