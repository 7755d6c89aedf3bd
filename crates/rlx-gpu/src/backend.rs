//! What the [`Backend`] of a device that runs generated kernels does: each function is a method of the trait, for the device `which`.

use std::sync::Arc;

use rlx_backend::tuning::{Tuning, TuningKey};
use rlx_backend::{Backend, CompileCache, ExecutableGraph, Executor};
use rlx_ir::clock::Instant;
use rlx_ir::lir::Step;
use rlx_ir::{ErrorKind, LirModule, Result};
use rlx_kernel::{KernelTarget, Launches};
use rlx_opt::{CompileOptions, Target};

use crate::api::GpuApi;
use crate::device::{KERNELS, KernelDevice, program};
use crate::dispatch;

/// See [`Backend::probe`]: `backend` doubles two numbers on the device.
///
/// # Errors
/// What is missing, or that the device computes wrongly.
pub fn probe<G: GpuApi>(which: &G::Which, backend: &dyn Backend) -> Result<()> {
    let gpu = G::open(which)?;
    let try_kernel = || judge(&*gpu, rlx_backend::probe::doubles(backend)?);
    gpu.shared().probed.get_or_init(try_kernel).clone()
}

/// As [`probe`], awaited, for a device that is open.
///
/// # Errors
/// As [`probe`].
pub async fn probe_awaited<G: GpuApi>(gpu: &G, backend: &dyn Backend) -> Result<()> {
    if let Some(probed) = gpu.shared().probed.get() {
        return probed.clone();
    }
    let right = rlx_backend::probe::doubles_awaited(backend).await;
    let probed = right.and_then(|right| judge(gpu, right));
    gpu.shared().probed.get_or_init(|| probed).clone()
}

/// Whether the probe's result makes a usable device.
fn judge<G: GpuApi>(gpu: &G, right: bool) -> Result<()> {
    if right {
        return Ok(());
    }
    let message = format!("{} computes wrongly", gpu.machine());
    Err(gpu.error(ErrorKind::DeviceUnavailable, message).with_hint("use another driver"))
}

/// See [`Backend::drain`].
///
/// # Errors
/// A fault of the device.
pub fn drain<G: GpuApi>(which: &G::Which) -> Result<()> {
    G::registry().opened(which).map_or(Ok(()), |gpu| gpu.wait())
}

/// See [`Backend::target`].
pub fn target<G: GpuApi>(which: &G::Which) -> Arc<dyn Target> {
    // Without the device, what every device has: graphs can be checked against it all the same.
    Arc::new(G::target(which, G::open(which).ok().as_deref()))
}

/// See [`Backend::tuning_key`].
///
/// # Errors
/// As [`GpuApi::open`].
pub fn tuning_key<G: GpuApi>(which: &G::Which, lir: &LirModule, step: &Step) -> Result<Option<TuningKey>> {
    let gpu = G::open(which)?;
    dispatch::tuning_key(step, lir, &G::target(which, Some(&gpu)))
}

/// See [`Backend::compile_cached`].
///
/// # Errors
/// As [`Backend::compile_cached`].
pub fn compile<G: GpuApi>(
    which: &G::Which,
    lir: Arc<LirModule>,
    options: &CompileOptions,
    cache: &CompileCache,
) -> Result<Box<dyn ExecutableGraph>> {
    let gpu = G::open(which)?;
    let target = G::target(which, Some(&gpu));
    let target = KernelTarget { pool: target.pool.for_options(options), ..target };
    match cache.code.iter().find(|part| G::STORES_KERNELS && part.name == KERNELS) {
        Some(part) => compile_stored(gpu, target, lir, &part.bytes),
        None => compile_for(gpu, target, lir, &cache.tuning),
    }
}

/// Compiles for a device as `target` describes it.
///
/// # Errors
/// As [`Backend::compile`].
pub fn compile_for<G: GpuApi>(
    gpu: Arc<G>,
    target: KernelTarget,
    lir: Arc<LirModule>,
    tuning: &Tuning,
) -> Result<Box<dyn ExecutableGraph>> {
    rlx_opt::verify_lir::verify_program(&lir, &target)?;
    let started = Instant::now();
    let launches = Launches::of(&lir, &target, &|step| dispatch::variant(step, &lir, &target, tuning))?;
    let (count, took) = (launches.kernels.len(), started.elapsed());
    tracing::debug!(module = %lir.name, kernels = count, ?took, "made kernels");
    executable(program(gpu, target, lir, launches, false)?)
}

/// As [`compile_for`], by the kernels that another executable of the module left.
fn compile_stored<G: GpuApi>(
    gpu: Arc<G>,
    target: KernelTarget,
    lir: Arc<LirModule>,
    kernels: &[u8],
) -> Result<Box<dyn ExecutableGraph>> {
    rlx_opt::verify_lir::verify_program(&lir, &target)?;
    let started = Instant::now();
    let launches = Launches::from_bytes(kernels, &lir, &target)?;
    let (count, took) = (launches.kernels.len(), started.elapsed());
    tracing::debug!(module = %lir.name, kernels = count, ?took, "read kernels");
    let program = program(Arc::clone(&gpu), target, lir, launches, true).map_err(|e| {
        // Kernels that are made here compile: it is the file's fault, unless the device is gone.
        let rejected = matches!(e.kind(), ErrorKind::Device | ErrorKind::Internal) && gpu.alive().is_ok();
        let message = || format!("stored kernels: {}", e.message());
        if rejected { gpu.error(ErrorKind::Malformed, message()).with_source(e) } else { e }
    })?;
    executable(program)
}

fn executable<G: GpuApi>(
    program: rlx_backend::executor::Program<KernelDevice<G>>,
) -> Result<Box<dyn ExecutableGraph>> {
    Ok(Box::new(Executor::new(Arc::new(program))?))
}
