//! A [`Session`]: a device, a precision, and the compilation of a graph to a [`CompiledGraph`].

use std::io::Write;
use std::sync::Arc;

use rlx_backend::{Backend, CompileCache};
use rlx_driver::{Device, DeviceId};
use rlx_ir::dim::scoped;
use rlx_ir::progress::Stage;
use rlx_ir::{Error, ErrorKind, Graph, GraphModule, HirModule, LirModule, LowerError, Progress, Result};
use rlx_opt::pipeline::PassContext;
use rlx_opt::{CompileOptions, CompilePipeline, CompileResult, CompiledModule, Precision, PrecisionPolicy};
use rlx_select::or_panic;
use rlx_select::panic_guard::{self, on_device};
use rlx_select::{DeviceBackend, SplitPlan};

use crate::compiled::{CompiledGraph, known};
use crate::error::CompileError;

/// Compiles graphs for one device.
///
/// ```
/// use rlx_runtime::{Device, Precision, Session};
/// let session = Session::new_with_precision(Device::Cpu, Precision::F32);
/// assert_eq!(session.device(), Device::Cpu);
/// ```
#[derive(Clone)]
pub struct Session {
    on: DeviceBackend,
    precision: Precision,
    policy: Option<PrecisionPolicy>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("device", &self.device_id())
            .field("precision", &self.precision)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// A session on `device` in f32.
    ///
    /// # Panics
    /// If the device has no backend in this build or is not available; [`Session::try_new`] returns that error.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// let session = Session::new(Device::Cpu);
    /// assert_eq!(session.compile(g).device(), Device::Cpu);
    /// ```
    #[track_caller]
    pub fn new(device: Device) -> Self {
        or_panic(Self::try_new(device))
    }

    /// A session on `device` in `precision`.
    ///
    /// # Panics
    /// As [`Session::new`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// let session = Session::new_with_precision(Device::Cpu, Precision::BF16);
    /// assert_eq!(session.precision(), Precision::BF16);
    /// ```
    #[track_caller]
    pub fn new_with_precision(device: Device, precision: Precision) -> Self {
        or_panic(Self::try_new_with_precision(device, precision))
    }

    /// A session on `device` in f32.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] naming device, Cargo feature and what is missing.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// let error = Session::try_new(Device::Tpu).unwrap_err();
    /// assert!(error.to_string().contains("tpu"));
    /// ```
    pub fn try_new(device: Device) -> Result<Self> {
        Self::try_new_with_precision(device, Precision::F32)
    }

    /// A session on `device` in `precision`.
    ///
    /// # Errors
    /// As [`Session::try_new`].
    pub fn try_new_with_precision(device: Device, precision: Precision) -> Result<Self> {
        Ok(Session { precision, ..Self::try_on(device)? })
    }

    /// A session in f32 on any device that has a name, those of [`register_device`](crate::register_device) included.
    ///
    /// # Errors
    /// As [`Session::try_new`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// let id: DeviceId = "cpu".parse().expect("a device of the list");
    /// assert_eq!(Session::try_on(id)?.device_id(), Device::Cpu);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn try_on(device: impl Into<DeviceId>) -> Result<Self> {
        Ok(Session { on: DeviceBackend::try_new(device)?, precision: Precision::F32, policy: None })
    }

    /// A session on a backend passed by the caller, which need not be registered.
    pub fn with_backend(device: impl Into<DeviceId>, backend: Arc<dyn Backend>) -> Self {
        Session { on: DeviceBackend::with_backend(device, backend), precision: Precision::F32, policy: None }
    }

    /// The same session with its own pool of this many threads, if the device is the CPU.
    ///
    /// # Errors
    /// An invalid number, or a device that does not use RLX's thread pool.
    pub fn try_with_threads(mut self, threads: usize) -> Result<Self> {
        self.on = self.on.try_with_threads(threads)?;
        Ok(self)
    }

    /// The same session, where the CPU runs the ops that the device cannot compute. Without this, a graph with such an op is an
    /// error. What one of the two computes and the other reads goes through the host's memory; [`Session::split_plan`] says what
    /// and how much. Ops that find out how large their results are run on the CPU, and what they found is a dimension of the
    /// parts behind them.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] in a build without the CPU's backend.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// // On the CPU itself nothing changes.
    /// let session = Session::new(Device::Cpu).try_with_cpu_fallback()?;
    /// assert!(!session.has_cpu_fallback());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn try_with_cpu_fallback(mut self) -> Result<Self> {
        self.on = self.on.with_cpu_fallback(rlx_select::cost::cost_model)?;
        Ok(self)
    }

    /// Whether the CPU runs what the device cannot compute.
    pub fn has_cpu_fallback(&self) -> bool {
        self.on.has_cpu_fallback()
    }

    /// How `graph`, of a module that this session compiled ([`LirModule::graph`]), is divided between the device and the CPU, and what
    /// goes from one to the other; `None` without [`Session::try_with_cpu_fallback`]. Open dimensions have typical sizes where
    /// prices decide.
    ///
    /// # Errors
    /// An op that neither can compute.
    pub fn split_plan(&self, graph: &Graph, options: &CompileOptions) -> Result<Option<SplitPlan>> {
        self.on.split_plan(graph, options)
    }

    /// The compiler for this session's device, to look at what it makes; [`Session::try_compile_with`] compiles and loads in one
    /// step.
    ///
    /// # Errors
    /// Options that make no sense for the device.
    pub fn try_pipeline(&self, options: &CompileOptions) -> Result<CompilePipeline> {
        Ok(CompilePipeline::new(self.on.target(options)?, options.clone()))
    }

    /// The number of threads the device computes with, if known.
    pub fn threads(&self) -> Option<usize> {
        self.on.threads()
    }

    /// The same session in `precision`.
    pub fn with_precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// The same session with a policy that decides which ops stay f32.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// let session = Session::new(Device::Cpu).with_policy(PrecisionPolicy::AutoMixedBf16);
    /// assert_eq!(session.policy(), Some(&PrecisionPolicy::AutoMixedBf16));
    /// ```
    pub fn with_policy(mut self, policy: PrecisionPolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The device.
    ///
    /// # Panics
    /// On a device outside of the list, which [`register_device`](crate::register_device) named; [`Session::device_id`]
    /// gives that, too.
    #[track_caller]
    pub fn device(&self) -> Device {
        or_panic(known(self.on.device()))
    }

    /// The device, by name.
    pub fn device_id(&self) -> DeviceId {
        self.on.device()
    }

    /// The requested precision; [`CompiledGraph::precision`] is the one that was used.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// The policy that decides which ops stay f32, if set.
    pub fn policy(&self) -> Option<&PrecisionPolicy> {
        self.policy.as_ref()
    }

    /// Compiles a graph.
    ///
    /// # Panics
    /// If [`Session::try_compile`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// let mut compiled = Session::new(Device::Cpu).compile(g);
    /// compiled.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(compiled.run(&[("x", &[1.0, 2.0])]), [[11.0, 22.0]]);
    /// ```
    #[track_caller]
    pub fn compile(&self, graph: Graph) -> CompiledGraph {
        or_panic(self.try_compile(graph))
    }

    /// The same as [`Session::compile`].
    ///
    /// # Panics
    /// As [`Session::compile`].
    #[track_caller]
    pub fn compile_graph(&self, graph: Graph) -> CompiledGraph {
        self.compile(graph)
    }

    /// Compiles a graph with `options`, whose precision and policy replace the session's.
    ///
    /// # Panics
    /// As [`Session::compile`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// let options = CompileOptions::new().numerics(Numerics::Strict);
    /// let mut compiled = Session::new(Device::Cpu).compile_with(g, &options);
    /// compiled.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(compiled.run(&[("x", &[1.0, 2.0])]), [[11.0, 22.0]]);
    /// ```
    #[track_caller]
    pub fn compile_with(&self, graph: Graph, options: &CompileOptions) -> CompiledGraph {
        or_panic(self.try_compile_with(graph, options))
    }

    /// Compiles a graph.
    ///
    /// # Errors
    /// An invalid graph, an op the device does not support, a memory plan too large for it.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// let mut wrong = Graph::new("wrong");
    /// let (a, b) = (wrong.input("a", Shape::new(&[2, 3], DType::F32)), wrong.input("b", Shape::new(&[5, 4], DType::F32)));
    /// let y = wrong.mm(a, b);
    /// wrong.set_outputs(vec![y]);
    /// let error = Session::new(Device::Cpu).try_compile(wrong).unwrap_err();
    /// assert!(error.to_string().contains("[2, 3] f32"));
    /// ```
    pub fn try_compile(&self, graph: Graph) -> Result<CompiledGraph, CompileError> {
        let options = CompileOptions {
            precision: self.precision,
            policy: self.policy.clone(),
            ..CompileOptions::try_new()?
        };
        self.try_compile_with(graph, &options)
    }

    /// Compiles a graph with `options`, whose precision and policy replace the session's.
    ///
    /// # Errors
    /// As [`Session::try_compile`].
    pub fn try_compile_with(
        &self,
        graph: Graph,
        options: &CompileOptions,
    ) -> Result<CompiledGraph, CompileError> {
        self.try_compile_with_progress(graph, options, &Progress::none())
    }

    /// As [`Session::try_compile_with`], with progress: `progress` is called for every pass, and may cancel before the next one.
    ///
    /// ```
    /// # use rlx_runtime::{Cancel, CompileOptions, DType, Device, ErrorKind, Graph, GraphExt, Progress, Session, Shape};
    /// # let mut graph = Graph::new("exp");
    /// # let x = graph.input("x", Shape::new(&[2], DType::F32));
    /// # let y = graph.exp(x);
    /// # graph.set_outputs(vec![y]);
    /// let (session, cancel) = (Session::new(Device::Cpu), Cancel::new());
    /// let progress = Progress::from(&cancel).reporting(|event| println!("{event}"));
    /// let mut compiled = session.try_compile_with_progress(graph, &CompileOptions::default(), &progress)?;
    /// compiled.try_run_with_progress(&[("x", &[0.0, 1.0])], &progress)?;
    /// cancel.cancel(); // From another thread, while the next call works.
    /// let stopped = compiled.try_run_with_progress(&[("x", &[0.0, 1.0])], &progress).unwrap_err();
    /// assert_eq!(stopped.kind(), ErrorKind::Cancelled);
    /// # Ok::<(), rlx_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::try_compile`]; [`ErrorKind::Cancelled`].
    pub fn try_compile_with_progress(
        &self,
        graph: Graph,
        options: &CompileOptions,
        progress: &Progress,
    ) -> Result<CompiledGraph, CompileError> {
        let compiled = scoped(|| self.compile_graph_with(graph, options, progress));
        Ok(compiled.map_err(|e| self.with_a_hint(on_device(e, self.device_id())))?)
    }

    /// Lowers an HIR module to a graph and compiles it.
    ///
    /// # Errors
    /// A block whose shapes do not match, or an error of [`Session::try_compile`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// let mut m = HirModule::new("linear");
    /// let (x, w) = (m.input("x", Shape::new(&[1, 2], DType::F32)), m.param("w", Shape::new(&[2, 1], DType::F32)));
    /// let y = m.linear(x, w, None, None, Shape::new(&[1, 1], DType::F32));
    /// m.set_outputs(vec![y]);
    /// let mut compiled = Session::new(Device::Cpu).compile_hir(m)?;
    /// compiled.set_param("w", &[1.0, 10.0]);
    /// assert_eq!(compiled.run(&[("x", &[2.0, 3.0])]), [[32.0]]);
    /// # Ok::<(), LowerError>(())
    /// ```
    pub fn compile_hir(&self, module: HirModule) -> Result<CompiledGraph, LowerError> {
        self.compile_hir_with(module, &self.options()?)
    }

    /// As [`Session::compile_hir`], with `options`, whose precision and policy replace the session's.
    ///
    /// # Errors
    /// As [`Session::compile_hir`].
    pub fn compile_hir_with(
        &self,
        module: HirModule,
        options: &CompileOptions,
    ) -> Result<CompiledGraph, LowerError> {
        self.compile_module_with(GraphModule::from_hir(module), options)
    }

    /// Compiles a module at any stage. One that is compiled already must have been compiled for this device.
    ///
    /// # Errors
    /// As [`Session::compile_hir`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// let mut compiled = Session::new(Device::Cpu).compile_module(GraphModule::from_graph(g))?;
    /// compiled.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(compiled.run(&[("x", &[1.0, 2.0])]), [[11.0, 22.0]]);
    /// # Ok::<(), LowerError>(())
    /// ```
    pub fn compile_module(&self, module: GraphModule) -> Result<CompiledGraph, LowerError> {
        self.compile_module_with(module, &self.options()?)
    }

    /// As [`Session::compile_module`], with `options`, whose precision and policy replace the session's.
    ///
    /// # Errors
    /// As [`Session::compile_hir`].
    pub fn compile_module_with(
        &self,
        module: GraphModule,
        options: &CompileOptions,
    ) -> Result<CompiledGraph, LowerError> {
        scoped(|| {
            let compiled = match module {
                GraphModule::Lir(lir) => self.compile_lir(*lir, options),
                other => {
                    let graph = other.into_graph()?;
                    self.compile_graph_with(graph, options, &Progress::none())
                }
            };
            compiled.map_err(|e| LowerError::Compile(on_device(e, self.device_id())))
        })
    }

    /// The environment's options with this session's precision.
    fn options(&self) -> Result<CompileOptions, LowerError> {
        let options = CompileOptions::try_new().map_err(LowerError::Compile)?;
        Ok(CompileOptions { precision: self.precision, policy: self.policy.clone(), ..options })
    }

    /// What can be done about an op that the device does not have.
    fn with_a_hint(&self, error: Error) -> Error {
        let on_cpu = self.device_id() == DeviceId::from(Device::Cpu) || self.has_cpu_fallback();
        if error.kind() != ErrorKind::Unsupported || on_cpu || error.hint().is_some() {
            return error;
        }
        error.with_hint(
            "let the CPU run what the device cannot (--cpu-fallback, Session::try_with_cpu_fallback)",
        )
    }

    fn compile_lir(&self, lir: LirModule, options: &CompileOptions) -> Result<CompiledGraph> {
        check_options(options)?;
        if !options.param_bindings.is_empty() {
            let message = "a module that is compiled already cannot have its parameters fixed";
            return Err(Error::new(ErrorKind::Config, message)
                .with_hint("set them, or compile the graph with `param_bindings`"));
        }
        let target = self.on.target(options)?;
        // Reports and tuning read the module before the backend, which verifies it for itself, sees it.
        rlx_opt::verify_lir(&lir, &*target)?;
        let context = PassContext { target: &*target, options, is_body: false };
        let mut report = rlx_opt::report::analyze(&lir.graph, &context);
        report.precision = Some(rlx_opt::report::precision_of(&lir.graph, &context));
        let built = self.on.executable(lir, options, &CompileCache::default(), &Progress::none())?;
        Ok(CompiledGraph::new(self.device_id(), built, report, Vec::new(), options))
    }

    fn compile_graph_with(
        &self,
        graph: Graph,
        options: &CompileOptions,
        progress: &Progress,
    ) -> Result<CompiledGraph> {
        check_options(options)?;
        let pipeline = self.try_pipeline(options)?;
        let module = panic_guard::call(self.device_id(), "answering the compiler", || {
            pipeline.compile_module(graph, progress)
        })?;
        if std::env::var("RLX_DISPATCH_REPORT").is_ok_and(|v| v == "1") {
            // If standard error cannot be written, the compiled graph is returned anyway.
            let _ = writeln!(std::io::stderr(), "{}", module.report);
        }
        let compiled = self.finish(module, options, progress)?;
        // The device's own compiler did not run.
        progress.check(Stage::Compile)?;
        Ok(compiled)
    }

    /// The device as graphs are compiled for it.
    pub(crate) fn on(&self) -> &DeviceBackend {
        &self.on
    }

    /// A graph that runs what the compiler made for this device.
    pub(crate) fn compile_result(
        &self,
        result: CompileResult,
        options: &CompileOptions,
    ) -> Result<CompiledGraph> {
        result.check_options(options)?;
        let CompileResult { lir, report, passes, .. } = result;
        self.finish(CompiledModule { lir, report, passes }, options, &Progress::none())
    }

    fn finish(
        &self,
        module: CompiledModule,
        options: &CompileOptions,
        progress: &Progress,
    ) -> Result<CompiledGraph> {
        let CompiledModule { lir, report, passes } = module;
        scoped(|| {
            let built = self.on.executable(lir, options, &CompileCache::default(), progress)?;
            Ok(CompiledGraph::new(self.device_id(), built, report, passes, options))
        })
    }
}

fn check_options(options: &CompileOptions) -> Result<()> {
    if !options.arena_alignment.is_power_of_two() {
        let message = format!("an arena alignment of {} is not a power of two", options.arena_alignment);
        return Err(Error::new(ErrorKind::Config, message));
    }
    Ok(())
}
