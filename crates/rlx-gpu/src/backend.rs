//! The backend of every device that runs generated kernels.

use std::fmt;
use std::sync::Arc;

use rlx_backend::scratch::with_scratch;
use rlx_backend::tuning::{Tuning, TuningKey};
use rlx_backend::{Backend, CompileCache, ExecutableGraph, Executor, probe};
use rlx_driver::Device;
use rlx_ir::clock::Instant;
use rlx_ir::lir::Step;
use rlx_ir::{ErrorKind, LirModule, Result};
use rlx_kernel::{KernelTarget, Launches};
use rlx_opt::{CompileOptions, Numerics, Target};

use crate::api::GpuApi;
use crate::classes::{Class, Classes, SelfCheck};
use crate::device::{KernelDevice, Program, Schedules, program};
use crate::few_rows::Fast;
use crate::making::scheduled;
use crate::open::Transfers;
use crate::own::Own;
use crate::self_check::OnDevice;
use crate::signal::locked;
use crate::stored::{self, Found};
use crate::target::GpuTarget;
use crate::tiles::{MatrixUnits, TileLaunches};
use crate::variants::{self, Means};
use crate::which::{Lowered, Which};

/// A device that runs generated kernels, as a session uses it. Whether there is one, [`Backend::probe`] says.
///
/// Every process opens a device once for each set of limits and options; its memory and kernels are shared by all backends and executables
/// of these.
pub struct GpuBackend<G: GpuApi> {
    which: Which<G::Options>,
}

impl<G: GpuApi> Clone for GpuBackend<G> {
    fn clone(&self) -> Self {
        GpuBackend { which: self.which.clone() }
    }
}

impl<G: GpuApi> fmt::Debug for GpuBackend<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GpuBackend").field(&self.which).finish()
    }
}

impl<G: GpuApi> GpuBackend<G> {
    /// The backend of `device`, one of those that `G` serves.
    pub fn new(device: Device) -> Self {
        let (limits, options) = (Lowered::default(), G::Options::default());
        GpuBackend { which: Which { device, limits, options } }
    }

    /// The same device under limits below its own.
    #[must_use]
    pub fn with_limits(mut self, limits: Lowered) -> Self {
        self.which.limits = limits;
        self
    }

    /// The device that these options say.
    #[must_use]
    pub fn with_options(mut self, options: G::Options) -> Self {
        self.which.options = options;
        self
    }

    /// Whether the device is software on the processor.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn is_software(&self) -> Result<bool> {
        Ok(G::target(&self.which, Some(&*self.gpu()?)).is_processor)
    }

    /// How many kernels were compiled for the device in this process.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn kernel_count(&self) -> Result<usize> {
        Ok(self.gpu()?.shared().kernel_count())
    }

    /// Bytes of device memory that this process holds.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn memory_in_use(&self) -> Result<u64> {
        Ok(self.gpu()?.shared().memory_in_use())
    }

    /// How many bytes went between host and device in this process.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn transfers(&self) -> Result<Transfers> {
        Ok(self.gpu()?.shared().transfers())
    }

    /// Closes the device in this process and frees its memory. Executables that use it report that it is lost;
    /// what is compiled later opens it again.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn close(&self) -> Result<()> {
        let gpu = self.gpu()?;
        gpu.shared().health.lose("closed by this process".to_owned());
        gpu.close();
        Ok(())
    }

    /// Compiles as [`Backend::compile`] does, but for a device as `target` describes it. Where it promises more than
    /// there is, the driver rejects kernels.
    ///
    /// # Errors
    /// As [`Backend::compile`].
    pub fn compile_for(&self, lir: Arc<LirModule>, target: KernelTarget) -> Result<Box<dyn ExecutableGraph>> {
        let own = Own { matrix_units: None, fast: Fast::default(), library: None, check: None };
        make(self.gpu()?, target, lir, &Tuning::default(), own)
    }

    /// Opens the device and runs the probe's kernel, awaiting both; afterwards [`Backend::probe`] and everything else find it open.
    /// A page has no other way, since no thread can wait there; elsewhere the first use opens the device.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub async fn open(&self) -> Result<()> {
        let gpu = match G::registry().opened(&self.which) {
            Some(gpu) => gpu,
            None => G::registry().insert(&self.which, G::new(&self.which).await?),
        };
        if let Some(probed) = gpu.shared().probed.get() {
            return probed.clone();
        }
        let right = probe::doubles_awaited(self).await;
        let probed = right.and_then(|right| judge(&*gpu, right));
        gpu.shared().probed.get_or_init(|| probed).clone()
    }

    fn gpu(&self) -> Result<Arc<G>> {
        G::open(&self.which)
    }

    /// The vendor's BLAS, or why there is none, where these options allow its bits.
    fn blas(gpu: &G, options: &CompileOptions) -> Option<std::result::Result<&'static str, String>> {
        let library = if options.numerics == Numerics::Fast { gpu.blas() } else { None };
        Some(library?.map_err(|missing| missing.message().to_owned()))
    }

    fn kernel_target(&self, opened: Option<&G>) -> KernelTarget {
        self.which.limits.lower(G::target(&self.which, opened))
    }

    /// Who tries the device for classes of kernels; nobody where no thread can wait for what it computes, or where it computes nothing.
    fn check(&self, gpu: &Arc<G>) -> Option<Arc<dyn SelfCheck>> {
        let (kernels, units) = (self.kernel_target(Some(&**gpu)), self.matrix_units(gpu));
        let gpu = Arc::clone(gpu);
        (G::WAITS && gpu.computes()).then(|| Arc::new(OnDevice { gpu, kernels, units }) as Arc<dyn SelfCheck>)
    }

    /// Tries the device for every class of kernels that it may have, and says which it computes wrongly. Whoever compiles need not: it is tried for what a module
    /// has.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn try_all(&self) -> Result<Vec<Class>> {
        let gpu = self.gpu()?;
        let all = Class::all(self.matrix_units(&gpu).map(|units| units.arch));
        let aside = self.check(&gpu).map_or(Classes::default(), |check| check.tried(&all));
        Ok(all.into_iter().filter(|&class| aside.has(class)).collect())
    }

    /// How many small cases the device was tried by since it was opened.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn trials(&self) -> Result<usize> {
        Ok(locked(&self.gpu()?.shared().tried).ran)
    }

    /// What does matmuls besides kernels, as these options allow.
    fn own(&self, gpu: &Arc<G>, options: &CompileOptions) -> Own {
        let matrix_units = self.matrix_units(gpu);
        let library = Self::blas(gpu, options).and_then(|library| library.ok());
        Own { matrix_units, fast: Fast::of(matrix_units, options), library, check: self.check(gpu) }
    }

    fn matrix_units(&self, gpu: &G) -> Option<MatrixUnits> {
        gpu.matrix_units().and_then(|units| self.which.limits.lower_units(units))
    }
}

impl<G: GpuApi> Backend for GpuBackend<G> {
    fn name(&self) -> &str {
        self.which.device.feature()
    }

    fn machine(&self) -> Result<String> {
        Ok(self.gpu()?.machine())
    }

    fn probe(&self) -> Result<()> {
        let gpu = self.gpu()?;
        let try_kernel = || judge(&*gpu, probe::doubles(self)?);
        gpu.shared().probed.get_or_init(try_kernel).clone()
    }

    fn drain(&self) -> Result<()> {
        G::registry().opened(&self.which).map_or(Ok(()), |gpu| gpu.wait())
    }

    fn target(&self, options: &CompileOptions) -> Result<Arc<dyn Target>> {
        // Without the device, what every device has: graphs can be checked against it all the same.
        let gpu = self.gpu().ok();
        let kernels = self.kernel_target(gpu.as_deref());
        let matrix_units = gpu.as_deref().and_then(|gpu| self.matrix_units(gpu));
        let library = gpu.as_deref().and_then(|gpu| Self::blas(gpu, options));
        let fast = Fast::of(matrix_units, options);
        let check = gpu.and_then(|gpu| self.check(&gpu));
        Ok(Arc::new(GpuTarget::new(kernels, matrix_units, fast, library).tried_by(check)))
    }

    fn compile(&self, lir: Arc<LirModule>, options: &CompileOptions) -> Result<Box<dyn ExecutableGraph>> {
        self.compile_cached(lir, options, &CompileCache::default())
    }

    fn compile_cached(
        &self,
        lir: Arc<LirModule>,
        options: &CompileOptions,
        cache: &CompileCache,
    ) -> Result<Box<dyn ExecutableGraph>> {
        let gpu = self.gpu()?;
        let target = self.kernel_target(Some(&*gpu));
        let target = KernelTarget { pool: target.pool.for_options(options), ..target };
        let own = self.own(&gpu, options);
        if !cache.tuning.is_empty() {
            own.tried(&[Class::Tiled]);
        }
        match stored::found(&*gpu, &lir, &cache.code) {
            Some(found) => read(gpu, target, lir, &found, own),
            None => make(gpu, target, lir, &cache.tuning, own),
        }
    }

    fn tuning_key(
        &self,
        lir: &LirModule,
        step: &Step,
        options: &CompileOptions,
    ) -> Result<Option<TuningKey>> {
        let gpu = self.gpu()?;
        let own = self.own(&gpu, options);
        own.tried(&[Class::Tiled]);
        let (own, target) = own.right(&self.kernel_target(Some(&*gpu)));
        let offers = Means { target: &target, own: &own }.offers(step, lir)?;
        Ok(variants::key(step, lir, &offers))
    }
}

/// Whether the probe's result makes a usable device.
fn judge<G: GpuApi>(gpu: &G, right: bool) -> Result<()> {
    if right {
        return Ok(());
    }
    let message = format!("{} computes wrongly", gpu.machine());
    Err(gpu.error(ErrorKind::DeviceUnavailable, message).with_hint("use another driver"))
}

/// Compiles by kernels and tile programs that are made here.
fn make<G: GpuApi>(
    gpu: Arc<G>,
    target: KernelTarget,
    lir: Arc<LirModule>,
    tuning: &Tuning,
    own: Own,
) -> Result<Box<dyn ExecutableGraph>> {
    let started = Instant::now();
    verify(&lir, &target, &own)?;
    let (own, target) = own.right(&target);
    let (verified, started) = (started.elapsed(), Instant::now());
    let (launches, tiles) = scheduled(&lir, &target, tuning, &own)?;
    let (count, programs, took) = (launches.kernels.len(), tiles.programs.len(), started.elapsed());
    tracing::debug!(module = %lir.name, kernels = count, programs, ?took, ?verified, "made kernels");
    let schedules = Schedules { launches, tiles, guarded: false, blas: own.library.is_some() };
    executable(planned(gpu, target, lir, schedules)?)
}

/// Compiles a module with the scratch memory of its tile programs behind its buffers.
///
/// # Errors
/// Memory that cannot be planned, and as [`program`].
fn planned<G: GpuApi>(
    gpu: Arc<G>,
    target: KernelTarget,
    lir: Arc<LirModule>,
    schedules: Schedules,
) -> Result<Program<G>> {
    let run = match &schedules.tiles.scratch[..] {
        [] => Arc::clone(&lir),
        scratch => Arc::new(with_scratch(&lir, scratch, target.pool)?),
    };
    Ok(program(gpu, target, (Arc::clone(&lir), run), schedules)?.shown_as(lir))
}

/// Compiles by what another executable of the module left.
fn read<G: GpuApi>(
    gpu: Arc<G>,
    target: KernelTarget,
    lir: Arc<LirModule>,
    found: &Found<'_>,
    own: Own,
) -> Result<Box<dyn ExecutableGraph>> {
    let started = Instant::now();
    verify(&lir, &target, &own)?;
    if !own.tried(&[]).is_empty() {
        // What was stored may have what is put aside.
        return make(gpu, target, lir, &Tuning::default(), own);
    }
    let (verified, started) = (started.elapsed(), Instant::now());
    let launches = Launches::from_bytes(found.kernels, &lir, &target)?;
    // No device looks at the accesses of tile programs: those of strangers are for none.
    let units = own.matrix_units.filter(|_| !found.guarded);
    let tiles = match found.choices {
        Some(choices) => stored::read(choices, &lir, units, &target)?,
        None => TileLaunches::default(),
    };
    let (count, programs, took) =
        (launches.kernels.len(), tiles.programs.len(), found.took + started.elapsed());
    tracing::debug!(module = %lir.name, kernels = count, programs, ?took, ?verified, "read kernels");
    let schedules = Schedules { launches, tiles, guarded: found.guarded, blas: own.library.is_some() };
    let program = planned(Arc::clone(&gpu), target, lir, schedules).map_err(|e| {
        // Kernels that are made here compile: it is the file's fault, unless the device is gone.
        let rejected = matches!(e.kind(), ErrorKind::Device | ErrorKind::Internal) && gpu.alive().is_ok();
        let message = || format!("stored kernels: {}", e.message());
        if rejected { gpu.error(ErrorKind::Malformed, message()).with_source(e) } else { e }
    })?;
    executable(program)
}

/// Verifies a module for a device. Who does matmuls does not matter here, but attention of few queries is whole only where there are units.
fn verify(lir: &LirModule, target: &KernelTarget, own: &Own) -> Result<()> {
    let claimed = GpuTarget::new(target.clone(), own.matrix_units, own.fast.clone(), None);
    let claimed = claimed.tried_by(own.check.clone()).keeping_claims();
    rlx_opt::verify_lir::verify_program(lir, &claimed)
}

/// A module with these kernels and tile programs, verified by who made them.
///
/// # Errors
/// A kernel that the driver rejects, memory that cannot be had.
pub(crate) fn executable_of<G: GpuApi>(
    gpu: Arc<G>,
    target: KernelTarget,
    lir: Arc<LirModule>,
    (launches, tiles): (Launches, TileLaunches),
) -> Result<Box<dyn ExecutableGraph>> {
    let schedules = Schedules { launches, tiles, guarded: false, blas: false };
    executable(planned(gpu, target, lir, schedules)?)
}

fn executable<G: GpuApi>(program: Program<G>) -> Result<Box<dyn ExecutableGraph>> {
    Ok(Box::new(Executor::<KernelDevice<G>>::new(Arc::new(program))?))
}
