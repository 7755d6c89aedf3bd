//! A [`CompiledGraph`]: parameters are set, inputs go in, outputs come out.
//!
//! A run is a [`RunRequest`], and every form of `run` makes one. It has three parts: *bind* (which bytes each input comes from, and what the symbols' values are; see
//! `bind.rs`), the executable's own run, and *finish* (outputs' extents, handles fed by outputs). None of them
//! allocates once the buffers have their size; variants that return vectors allocate only those.

mod bind;
mod book;
mod bytes;
mod execute;
mod handles;
mod moe;
mod outputs;
mod params;
mod profile;
mod request;
mod run;
mod slot;
mod tensor;

use std::sync::Arc;

use bind::Binder;
pub(crate) use book::ParamBook;
pub use execute::RunOutputs;
use handles::Handle;
use moe::Masks;
use outputs::Outputs;
pub(crate) use params::{weight_of_bytes, weight_of_f32, wrong_parameter};
pub use request::{OutputRef, RunInput, RunRequest};
pub use rlx_backend::moe::MoeResidencyStats;
use rlx_backend::tuning::Tuning;
use rlx_backend::{BindingStats, ExecutableGraph, MemoryInfo};
use rlx_driver::{Device, DeviceId};
use rlx_ir::{DimBinding, Error, ErrorKind, LirModule, Result};
use rlx_opt::{CompileOptions, KernelDispatchReport, PassRecord, Precision};
use rlx_select::Built;
use rlx_select::device_ext::named_report;
use rlx_select::or_panic;
use rlx_select::panic_guard::PanicGuard;
use rlx_select::tuning::{Tuned, TunedStep};
use slot::Infos;
pub use tensor::{TensorInfo, TensorView};

/// The reports of the compilation, shared by clones.
#[derive(Debug)]
struct Record {
    report: KernelDispatchReport,
    passes: Vec<PassRecord>,
    tuned: Tuned,
    /// Parameters that the options made constants.
    fixed: Vec<String>,
}

/// A graph compiled for a device, with its parameters.
///
/// ```
/// use rlx_ir::{DType, Graph, Shape, op::Activation};
/// use rlx_runtime::{Device, Session};
/// let mut g = Graph::new("relu");
/// let x = g.input("x", Shape::new(&[3], DType::F32));
/// let y = g.activation(Activation::Relu, x, Shape::new(&[3], DType::F32));
/// g.set_outputs(vec![y]);
/// let mut relu = Session::new(Device::Cpu).compile(g);
/// assert_eq!(relu.run(&[("x", &[-1.0, 0.0, 2.0])]), [[0.0, 0.0, 2.0]]);
/// assert!(relu.try_run(&[("y", &[1.0])]).is_err());
/// ```
pub struct CompiledGraph {
    device: DeviceId,
    exec: Box<dyn ExecutableGraph>,
    /// Every call into `exec` goes through this guard.
    guard: PanicGuard,
    record: Arc<Record>,
    inputs: Infos,
    params: Infos,
    output_infos: Infos,
    /// Which parameters have a value.
    param_set: Vec<bool>,
    binder: Binder,
    outputs: Outputs,
    /// By input: the value used if the caller passes none.
    handles: Vec<Option<Handle>>,
    /// Which experts are resident.
    moe: Masks,
    /// Where a variant of a pipeline records the values of its parameters, for later variants.
    book: Option<ParamBook>,
}

impl std::fmt::Debug for CompiledGraph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompiledGraph")
            .field("name", &self.lir().name)
            .field("device", &self.device)
            .field("inputs", &self.inputs)
            .field("outputs", &self.output_infos)
            .finish_non_exhaustive()
    }
}

impl Clone for CompiledGraph {
    /// Shares the parameters, copy on write, and nothing else.
    ///
    /// # Panics
    /// If [`CompiledGraph::try_clone`] fails, with its error as the message.
    fn clone(&self) -> Self {
        or_panic(self.try_clone())
    }
}

impl CompiledGraph {
    pub(crate) fn new(
        device: DeviceId,
        built: Built,
        report: KernelDispatchReport,
        passes: Vec<PassRecord>,
        options: &CompileOptions,
    ) -> Self {
        let report = named_report(report, device);
        let Built { exec, tuned } = built;
        let fixed = options.param_bindings.keys().cloned().collect();
        let lir = Arc::clone(exec.lir());
        let infos = |slots: &[rlx_ir::lir::IoSlot]| -> Infos { slots.iter().map(TensorInfo::of).collect() };
        let (inputs, outputs) = (infos(&lir.inputs), infos(&lir.outputs));
        CompiledGraph {
            device,
            exec,
            guard: PanicGuard::new(device),
            record: Arc::new(Record { report, passes, tuned, fixed }),
            params: infos(&lir.params),
            param_set: vec![false; lir.params.len()],
            binder: Binder::new(&lir, &inputs),
            outputs: Outputs::new(device, &lir, &outputs),
            inputs,
            output_infos: outputs,
            handles: lir.inputs.iter().map(|_| None).collect(),
            moe: Masks::default(),
            book: None,
        }
    }

    /// Another graph that shares the parameters, copy on write, and nothing else.
    ///
    /// # Errors
    /// Memory that cannot be had.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(CompiledGraph {
            device: self.device,
            exec: self.guard.clone().call("cloning", || self.exec.try_clone())?,
            guard: self.guard.clone(),
            record: Arc::clone(&self.record),
            inputs: Arc::clone(&self.inputs),
            params: Arc::clone(&self.params),
            output_infos: Arc::clone(&self.output_infos),
            param_set: self.param_set.clone(),
            binder: self.binder.clone(),
            outputs: Outputs::new(self.device, self.exec.lir(), &self.output_infos),
            handles: self.handles.clone(),
            moe: self.moe.clone(),
            // The inputs of a clone belong to the clone only.
            book: None,
        })
    }

    /// The steps with several variants that were measured, here or earlier: see
    /// [`crate::tuning`]. Empty if nothing was measured.
    pub fn tuned_steps(&self) -> &[TunedStep] {
        &self.record.tuned.steps
    }

    /// The variants that were chosen by measurement.
    pub(crate) fn tuning(&self) -> &Tuning {
        &self.record.tuned.tuning
    }

    /// The device it runs on.
    ///
    /// # Panics
    /// On a device outside of the list, which [`register_device`](crate::register_device) named;
    /// [`CompiledGraph::device_id`] gives that, too.
    #[track_caller]
    pub fn device(&self) -> Device {
        or_panic(known(self.device))
    }

    /// The device it runs on, by name.
    pub fn device_id(&self) -> DeviceId {
        self.device
    }

    /// The precision that was used: the type in which most of the arithmetic is done. It differs from the request if the device
    /// has no kernels for that type; [`KernelDispatchReport::precision`] has the type of each op kind.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(compiled.precision(), Precision::F32);
    /// ```
    pub fn precision(&self) -> Precision {
        self.exec.precision()
    }

    /// What the caller gives at every run, in declaration order.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// assert_eq!((compiled.inputs()[0].name.as_str(), compiled.inputs()[0].dtype), ("x", DType::F32));
    /// ```
    pub fn inputs(&self) -> &[TensorInfo] {
        &self.inputs
    }

    /// What the caller sets once, in declaration order.
    pub fn params(&self) -> &[TensorInfo] {
        &self.params
    }

    /// The outputs of a run, in the order of the graph's outputs.
    pub fn outputs(&self) -> &[TensorInfo] {
        &self.output_infos
    }

    /// Memory held at present.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// compiled.run(&[("x", &[1.0, 2.0])]);
    /// assert!(compiled.memory().arena_bytes < 1 << 20);
    /// ```
    pub fn memory(&self) -> MemoryInfo {
        self.exec.memory()
    }

    /// What binding dimensions cost so far: a decoder whose caches have a fixed capacity binds once for each number of new rows.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// compiled.run(&[("x", &[1.0, 2.0])]);
    /// let bound = compiled.binding_stats().bound;
    /// compiled.run(&[("x", &[3.0, 4.0])]);
    /// assert_eq!(compiled.binding_stats().bound, bound);
    /// ```
    pub fn binding_stats(&self) -> BindingStats {
        self.exec.binding_stats()
    }

    /// The compiled module: steps, buffers, plan.
    pub fn lir(&self) -> &LirModule {
        self.exec.lir()
    }

    /// How each op kind of the graph is computed.
    pub fn dispatch_report(&self) -> &KernelDispatchReport {
        &self.record.report
    }

    /// What each pass of the compiler did.
    pub fn passes(&self) -> &[PassRecord] {
        &self.record.passes
    }

    /// Sets the values of symbolic dimensions for later runs, if they do not follow from the lengths of the inputs
    /// (two dynamic dimensions in one input). Later runs check lengths against these; an empty binding
    /// clears them.
    ///
    /// ```no_run
    /// # fn example(compiled: &mut rlx_runtime::CompiledGraph) {
    /// // input "ids" is [batch, seq]: 18 elements alone could be 2×9 or 3×6.
    /// compiled.set_dims(&rlx_ir::DimBinding::batch_seq(2, 9));
    /// # }
    /// ```
    pub fn set_dims(&mut self, dims: &DimBinding) {
        self.binder.set_fixed(dims);
    }

    /// Computes only the first `actual` of `upper` rows in later runs: the caller still passes and receives
    /// tensors of `upper` rows, of which those after `actual` are not read and unspecified, respectively. Rows are the
    /// dimension [`rlx_ir::sym::ROWS`], or else [`rlx_ir::sym::SEQ`]. `None` clears.
    ///
    /// # Panics
    /// If [`CompiledGraph::try_set_active_extent`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// let mut g = Graph::new("rows");
    /// let x = g.input("x", Shape::from_dims(&[Dim::Dynamic(sym::ROWS), Dim::Static(1)], DType::F32));
    /// let y = g.relu(x);
    /// g.set_outputs(vec![y]);
    /// let mut compiled = Session::new(Device::Cpu).compile(g);
    /// compiled.set_active_extent(Some((1, 2)));
    /// assert_eq!(compiled.run(&[("x", &[3.0, -1.0])])[0][0], 3.0, "the second row is not computed");
    /// compiled.set_active_extent(None);
    /// assert_eq!(compiled.run(&[("x", &[3.0, -1.0])]), [[3.0, 0.0]]);
    /// ```
    #[track_caller]
    pub fn set_active_extent(&mut self, extent: Option<(usize, usize)>) {
        or_panic(self.try_set_active_extent(extent));
    }

    /// As [`CompiledGraph::set_active_extent`].
    ///
    /// # Errors
    /// A graph without a dynamic dimension of rows, or more actual rows than the upper bound.
    pub fn try_set_active_extent(&mut self, extent: Option<(usize, usize)>) -> Result<()> {
        self.binder.set_active(extent)
    }

    /// Waits until the device has nothing left to do.
    ///
    /// # Errors
    /// A device error.
    pub fn drain(&mut self) -> Result<()> {
        self.guard.call("waiting", || self.exec.drain())
    }
}

/// The device of the list.
///
/// # Errors
/// A device outside of it.
pub(crate) fn known(device: DeviceId) -> Result<Device> {
    device.known().ok_or_else(|| {
        let message = format!("{device} is not among the devices of RLX, which `Device` lists");
        Error::new(ErrorKind::Unsupported, message).with_device(device.name()).with_hint("call `device_id`")
    })
}
