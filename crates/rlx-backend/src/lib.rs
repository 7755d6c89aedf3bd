//! What a device implements: [`Backend`] (compile) and [`ExecutableGraph`] (run).
//!
//! The required part is small: a [`Target`] for the compiler, a probe, and an executable that takes
//! parameters and runs. What only some devices have are traits of their own that an executable may offer:
//! handles that stay on the device are [`DeviceHandles`], times of steps a [`StepProfiler`].
//!
//! One [`Executor`] runs modules on every device that implements [`DeviceApi`]: memory, steps bound to numbers, and runs of
//! them. What it is made of is here too: extents as numbers ([`extents`]), the relations
//! between dimensions that a run must keep ([`checks`]), memory for a run's dimensions ([`plans`]), what the init program runs when ([`init`]), what it made that
//! others can use ([`prepared`]), weights in a device's memory ([`uploads`]), what drivers made of kernels ([`pipelines`]), and which variant of a step was measured to be the fastest
//! ([`tuning`]), memory that a step needs while it runs ([`scratch`]). Devices that compile whole graphs by a compiler of their own implement less: [`whole_graph`]. What each must reject are checks for their tests (`testing`, a feature).
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod budget;
pub mod checks;
pub mod convert;
pub mod cost;
pub mod executor;
pub mod extents;
pub mod handles;
pub mod init;
pub mod libraries;
pub mod moe;
pub mod pipelines;
pub mod plans;
pub mod prepared;
pub mod probe;
pub mod profile;
pub mod scratch;
pub mod seal;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tuning;
pub mod uploads;
pub mod whole_graph;

use std::borrow::Cow;
use std::sync::Arc;
use std::task::{Context, Poll};

pub use cost::BackendCostModel;
pub use executor::{DeviceApi, Executor};
pub use handles::DeviceHandles;
pub use profile::{StepProfile, StepProfiler};
use rlx_ir::lir::{BufferId, Step};
use rlx_ir::progress::Stage;
use rlx_ir::{LirModule, Progress, Result, Weight};
pub use rlx_opt::target::{Claim, PoolSpec, Target};
use rlx_opt::{CompileOptions, Precision};
use tuning::{Tuning, TuningKey};

/// The bytes of a run's inputs, by position in [`LirModule::inputs`]. A trait and not a slice, so that a
/// caller can hand over what it has without building a list.
pub trait InputSource {
    /// The row-major bytes of input `index`, of the declared element type. Not asked for where a handle supplies it.
    fn bytes(&self, index: usize) -> &[u8];

    /// How many bytes the executable's own handle supplies for input `index` (see [`DeviceHandles`]); `None`: they
    /// come from [`InputSource::bytes`].
    fn handle(&self, index: usize) -> Option<usize> {
        let _ = index;
        None
    }
}

impl InputSource for [&[u8]] {
    fn bytes(&self, index: usize) -> &[u8] {
        self[index]
    }
}

impl InputSource for [Vec<u8>] {
    fn bytes(&self, index: usize) -> &[u8] {
        &self[index]
    }
}

/// A reference to a source is one too, so that slices can be handed over: `run(&&inputs[..], dims)`.
impl<T: InputSource + ?Sized> InputSource for &T {
    fn bytes(&self, index: usize) -> &[u8] {
        (**self).bytes(index)
    }

    fn handle(&self, index: usize) -> Option<usize> {
        (**self).handle(index)
    }
}

/// How a run is done, besides what it computes: see [`ExecutableGraph::execute`].
///
/// ```
/// use rlx_backend::RunOptions;
/// let first_only = RunOptions { wanted: Some(&[0]), ..RunOptions::default() };
/// assert!(first_only.wants(0) && !first_only.wants(1) && first_only.wait);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RunOptions<'r> {
    /// Who watches, and may stop the run.
    pub progress: &'r Progress,
    /// The outputs that come to the host with the run, by index; `None`: all. The others are fetched if somebody asks for them.
    pub wanted: Option<&'r [usize]>,
    /// Whether the call returns when the run is over. Otherwise it may return before, as [`ExecutableGraph::submit`] does.
    pub wait: bool,
}

impl Default for RunOptions<'_> {
    /// No one watches, all outputs come to the host, and the call waits.
    fn default() -> Self {
        const NOBODY: &Progress = &Progress::none();
        RunOptions { progress: NOBODY, wanted: None, wait: true }
    }
}

impl RunOptions<'_> {
    /// Whether output `index` comes to the host with the run.
    #[inline]
    pub fn wants(&self, index: usize) -> bool {
        self.wanted.is_none_or(|wanted| wanted.contains(&index))
    }
}

/// Memory an executable holds, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryInfo {
    /// The arena.
    pub arena_bytes: usize,
    /// Parameters as the device keeps them: packed copies, or what is left of the originals.
    pub weight_bytes: usize,
    /// The most bytes live at one step: what no plan can go below.
    pub largest_live_set: usize,
}

/// What binding cost an executable so far: what runs with new dimensions pay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BindingStats {
    /// How many bindings it keeps at present, [`executor::BINDINGS`] at most.
    pub kept: usize,
    /// How often dimensions were bound that had no binding.
    pub bound: u64,
    /// How many steps were bound in that.
    pub steps: u64,
    /// How often memory was planned again for larger dimensions.
    pub planned: u64,
}

/// What an earlier compilation measured and generated, for the next one to use.
#[derive(Debug, Clone, Default)]
pub struct CompileCache {
    /// What was measured of steps.
    pub tuning: Tuning,
    /// What [`ExecutableGraph::code`] gave of the same module on the same machine.
    pub code: Vec<CodePart>,
}

/// A piece of generated code as it is kept in a file. What is in it, the device knows alone. Files may be anyone's: a
/// device checks the code it is given as a stranger's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodePart {
    /// What it is, for people.
    pub name: String,
    /// The code.
    pub bytes: Vec<u8>,
}

/// A device's compiler.
pub trait Backend: Send + Sync {
    /// The name reports use: `cpu`, `vulkan`, ….
    fn name(&self) -> &str;

    /// What compiled code and packed weights depend on besides the module and the options: instruction set,
    /// adapter, driver. Two machines that say the same can use each other's; what is cached on disk (artefacts,
    /// calibrations) is kept by it.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    fn machine(&self) -> Result<String> {
        Ok(format!("{} on {}", self.name(), std::env::consts::ARCH))
    }

    /// Whether the device is really there: driver found, a trivial kernel run.
    ///
    /// # Errors
    /// What is missing, and how to get it.
    fn probe(&self) -> Result<()>;

    /// The device as the compiler sees it, under these options.
    ///
    /// # Errors
    /// Options that make no sense for the device.
    fn target(&self, options: &CompileOptions) -> Result<Arc<dyn Target>>;

    /// Makes an executable of a compiled module.
    ///
    /// Anybody can make a module, so a backend whose kernels trust what they are given verifies it first, by
    /// [`rlx_opt::verify_lir::verify_program()`]; it costs little beside compiling.
    ///
    /// The module owns the expressions it mentions. An executable that keeps others, made of them, owns those by a
    /// [`rlx_ir::dim::Held`], as an [`crate::extents::ExtentTable`] does.
    ///
    /// # Errors
    /// [`rlx_ir::ErrorKind::InvalidGraph`] for a module that breaks a rule; a step the device has no kernel for (a claim
    /// that was wrong), or a fault of its driver.
    fn compile(&self, lir: Arc<LirModule>, options: &CompileOptions) -> Result<Box<dyn ExecutableGraph>>;

    /// Makes an executable with what earlier ones left, which saves time and changes no bit. A backend that has no use for
    /// any of it compiles as ever.
    ///
    /// # Errors
    /// As [`Backend::compile`]; [`rlx_ir::ErrorKind::Malformed`] for code that is not this module's, or breaks a rule. What
    /// was measured and cannot be used is no error.
    fn compile_cached(
        &self,
        lir: Arc<LirModule>,
        options: &CompileOptions,
        cache: &CompileCache,
    ) -> Result<Box<dyn ExecutableGraph>> {
        let _ = cache;
        self.compile(lir, options)
    }

    /// The variants that the device has for a step of the module's run, where there are several; [`Backend::compile_cached`] takes the one that
    /// [`CompileCache::tuning`] says. They give the same bits, but where the options allow others ([`rlx_opt::Numerics::Fast`]).
    ///
    /// # Errors
    /// As [`Backend::probe`].
    fn tuning_key(
        &self,
        lir: &LirModule,
        step: &Step,
        options: &CompileOptions,
    ) -> Result<Option<TuningKey>> {
        let _ = (lir, step, options);
        Ok(None)
    }

    /// The device's prices, where the backend knows them without measuring. `None`: they are measured, once on each
    /// machine.
    fn cost_model(&self) -> Option<Arc<dyn BackendCostModel>> {
        None
    }

    /// Waits until the device has nothing left to do, anyone who gave it the work. A device that computes within
    /// each call never has.
    ///
    /// # Errors
    /// A fault of the device.
    fn drain(&self) -> Result<()> {
        Ok(())
    }
}

/// A compiled module on a device.
pub trait ExecutableGraph: Send {
    /// The module.
    fn lir(&self) -> &Arc<LirModule>;

    /// The arithmetic really used: the type most of the module's arithmetic is done in, as
    /// [`rlx_opt::precision::used`] reads it from the compiled graph.
    fn precision(&self) -> Precision {
        rlx_opt::precision::used(&self.lir().graph)
    }

    /// Sets parameter `index` of [`LirModule::params`]. Other clones keep theirs.
    ///
    /// # Errors
    /// [`rlx_ir::ErrorKind::Binding`] for a weight of another type or size ([`extents::SlotSizes`]; where the size depends
    /// on symbols, the next run reports it); memory that cannot be had.
    fn set_param(&mut self, index: usize, weight: Arc<Weight>) -> Result<()>;

    /// Runs on `inputs`; `dims` are the values of [`LirModule::symbols`], in that order. Allocates nothing with `dims` that it
    /// keeps a binding for ([`executor::BINDINGS`] of them, those of the last runs), and none with others that need no more
    /// memory than those before, once it has all its bindings.
    ///
    /// # Errors
    /// An input of another size ([`extents::SlotSizes`]), a parameter never set, a value an op forbids (an index out of range), a fault of the device; each
    /// names the node.
    fn run(&mut self, inputs: &dyn InputSource, dims: &[i64]) -> Result<()>;

    /// As [`ExecutableGraph::run`], where somebody watches and may stop it. A run that was stopped leaves no outputs, and
    /// the executable as usable as before.
    ///
    /// This form asks before the run alone, which is all that a device can do that is given the whole run at once: one that
    /// has begun is finished and gives its outputs, so that a stopped run never changed a handle. The CPU asks before
    /// every step.
    ///
    /// # Errors
    /// As [`ExecutableGraph::run`]; [`rlx_ir::ErrorKind::Cancelled`].
    fn run_with_progress(
        &mut self,
        inputs: &dyn InputSource,
        dims: &[i64],
        progress: &Progress,
    ) -> Result<()> {
        progress.step(Stage::Run, 0, 1, || "")?;
        self.run(inputs, dims)
    }

    /// Starts a run as [`ExecutableGraph::run`] does, and does not wait for it where the device computes by itself: up to
    /// [`ExecutableGraph::max_in_flight`] runs are under way then, and for one more the oldest is waited for. They compute in
    /// the order they were started, each with the handles as the one before left them. Inputs are read before this returns.
    ///
    /// What only the device finds out (an index out of range) is reported by the call that waits for the run: this one for an
    /// earlier run, [`ExecutableGraph::collect`], [`ExecutableGraph::output`], [`ExecutableGraph::drain`]. The handles that a
    /// failed run fed or updated are lost then.
    ///
    /// # Errors
    /// As [`ExecutableGraph::run`].
    fn submit(&mut self, inputs: &dyn InputSource, dims: &[i64]) -> Result<()> {
        self.run(inputs, dims)
    }

    /// A run as `options` say: the one call that all others are special cases of. An output that is not wanted is not copied to
    /// the host with the run; [`ExecutableGraph::output`] fetches it if it is asked for before the next run. Executables whose
    /// outputs are in reach of the host anyway may take no notice of what is wanted.
    ///
    /// # Errors
    /// As [`ExecutableGraph::run_with_progress`].
    fn execute(&mut self, inputs: &dyn InputSource, dims: &[i64], options: RunOptions<'_>) -> Result<()> {
        if options.wait {
            return self.run_with_progress(inputs, dims, options.progress);
        }
        options.progress.step(Stage::Run, 0, 1, || "")?;
        self.submit(inputs, dims)
    }

    /// How many runs may be under way. One: every run is over when its call returns.
    fn max_in_flight(&self) -> usize {
        1
    }

    /// How many runs are under way.
    fn in_flight(&self) -> usize {
        0
    }

    /// Whether [`ExecutableGraph::collect`] has nothing to wait for. Where it has, the waker of `context` is called once that is
    /// over: this is how a task awaits a run, in a page for example, where no thread can wait for a device. A run must be
    /// collected before another one is polled.
    fn poll_collect(&self, context: &mut Context<'_>) -> Poll<()> {
        let _ = context;
        Poll::Ready(())
    }

    /// Waits for the oldest run that is under way, and lets [`ExecutableGraph::output`] give its outputs until the next run
    /// starts; those that feed handles are always the newest run's. Does nothing where none is under way.
    ///
    /// # Errors
    /// What the run reports.
    fn collect(&mut self) -> Result<()> {
        Ok(())
    }

    /// The row-major bytes of output `index` of the last run, which is waited for; or of the one that was
    /// [collected](ExecutableGraph::collect) since.
    ///
    /// # Errors
    /// When nothing ran yet, or what the run reports.
    fn output(&self, index: usize) -> Result<&[u8]>;

    /// What the last run found for each of [`LirModule::data_symbols`]; devices that claim no op that counts have none.
    fn found(&self) -> &[i64] {
        &[]
    }

    /// The memory that outputs are in, and the byte offset of output `index` in it, where the device has
    /// such memory in reach of the host.
    fn arena(&self) -> Option<&[u8]> {
        None
    }

    /// Memory held at present.
    fn memory(&self) -> MemoryInfo;

    /// What binding dimensions cost so far, where the device keeps account of it.
    fn binding_stats(&self) -> BindingStats {
        BindingStats::default()
    }

    /// The handles, where the device keeps them itself.
    fn handles(&self) -> Option<&dyn DeviceHandles> {
        None
    }

    /// The handles, to change them; there exactly where [`ExecutableGraph::handles`] are.
    fn handles_mut(&mut self) -> Option<&mut dyn DeviceHandles> {
        None
    }

    /// Another executable that shares parameters and handles, copy on write, and nothing else.
    ///
    /// # Errors
    /// Memory that cannot be had.
    fn try_clone(&self) -> Result<Box<dyn ExecutableGraph>>;

    /// The weights as the init program left them, where the device can give and take them; see
    /// [`PreparedWeights`].
    fn prepared_weights(&mut self) -> Option<&mut dyn PreparedWeights> {
        None
    }

    /// The code that was generated for it, where the device generates any and can take it back: see [`CompileCache::code`].
    ///
    /// # Errors
    /// A fault of the device.
    fn code(&self) -> Result<Vec<CodePart>> {
        Ok(Vec::new())
    }

    /// The times of its steps, where the device can measure them; see [`StepProfiler`].
    fn profiler(&mut self) -> Option<&mut dyn StepProfiler> {
        None
    }

    /// The mixtures of experts of the graph, if it has any and the device keeps account of them.
    fn moe(&mut self) -> Option<&mut dyn moe::MixtureOfExperts> {
        None
    }

    /// Waits until the device has nothing left to do.
    ///
    /// # Errors
    /// A fault of the device.
    fn drain(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What an executable offers whose init program's results can be kept in a file: packing is then done once, by the
/// compiler's machine, and start-up copies what it left.
///
/// A device without it loses nothing but time: its executables run the init program at first use.
pub trait PreparedWeights {
    /// For each parameter: whether nothing reads it once the init program ran, not even when another one changes.
    fn spent_params(&self) -> Vec<bool>;

    /// Runs the init program if need be, and gives what it left for runs: the bytes of each buffer that does not
    /// depend on symbols. Devices whose memory the host does not see copy them.
    ///
    /// # Errors
    /// A parameter never set, or memory that cannot be had; [`rlx_ir::ErrorKind::Cancelled`].
    fn prepare(&mut self, progress: &Progress) -> Result<Vec<(BufferId, Cow<'_, [u8]>)>>;

    /// Takes what [`PreparedWeights::prepare`] gave another executable of the same module on the same machine, in
    /// place of running the init program. Parameters that are not spent are set before; spent ones need not be.
    ///
    /// # Errors
    /// [`rlx_ir::ErrorKind::Malformed`] for buffers that are missing or of another size; a parameter that is missing.
    fn restore(&mut self, prepared: &[(BufferId, &[u8])]) -> Result<()>;
}
