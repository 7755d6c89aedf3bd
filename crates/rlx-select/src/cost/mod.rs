//! Predicting the time of a graph on each device, and choosing the fastest device.
//!
//! A device's [`BackendCostModel`] estimates the time of the steps that the compiler would make of a graph. Unless a backend has
//! its own, the cost model is calibrated on this machine at first use ([`Calibration`]; within two seconds on the CPU) and
//! stored in the cache folder (`RLX_CACHE_DIR`) by device, machine, threads and version; [`calibrate`] and
//! `rlx devices --calibrate` measure again. If the file is damaged, a warning is logged and the device is measured again.
//!
//! ```no_run
//! use rlx_ir::{DType, Graph, GraphExt, Shape};
//! use rlx_runtime::{Device, cost_model, estimate_graph_cost, fastest_device_for};
//! let mut graph = Graph::new("ffn");
//! let x = graph.input("x", Shape::new(&[128, 384], DType::F32));
//! let w = graph.param("w", Shape::new(&[384, 1536], DType::F32));
//! let y = graph.mm(x, w);
//! graph.set_outputs(vec![y]);
//! let nanoseconds = estimate_graph_cost(&graph, &*cost_model(Device::Cpu)?);
//! println!("{:.2} ms on the CPU; the fastest is {}", nanoseconds / 1e6, fastest_device_for(&graph));
//! # Ok::<(), rlx_runtime::Error>(())
//! ```

mod calibrate;
mod model;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

pub use model::{Calibration, Curve, GemmPoint};
pub use rlx_backend::cost::{BackendCostModel, Work, WorkKind};
use rlx_backend::cost::{border_bytes, works, works_of_graph};
use rlx_driver::DeviceId;
use rlx_ir::{DimBinding, Error, ErrorKind, Graph, Op, Progress, Result, sym};
use rlx_opt::{CompileOptions, CompilePipeline};

use crate::device::DeviceBackend;
use crate::machine::processor;
pub use crate::machine::typical_dims;
use crate::registry::{require_backend, threads_from_env};
use crate::{panic_guard, store};
/// Where calibrations are in the cache folder.
const FOLDER: &str = "calibration";

/// Nanoseconds that one run of `graph` is expected to take; infinite where the device of `model` cannot compile it.
/// Dynamic dimensions have the sizes of [`typical_dims`].
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("sum");
/// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
/// # let y = g.add(x, w);
/// # g.set_outputs(vec![y]);
/// # let measured = || -> Result<(), Error> {
/// let model = cost_model(Device::Cpu)?;
/// println!("{} ns", estimate_graph_cost(&g, &*model));
/// # Ok(())
/// # };
/// ```
pub fn estimate_graph_cost(graph: &Graph, model: &dyn BackendCostModel) -> f64 {
    try_estimate_graph_cost(graph, model).unwrap_or(f64::INFINITY)
}

/// As [`estimate_graph_cost`].
///
/// # Errors
/// An error of compiling the graph for the device.
pub fn try_estimate_graph_cost(graph: &Graph, model: &dyn BackendCostModel) -> Result<f64> {
    try_estimate_at(graph, &typical_dims(graph), model)
}

/// As [`estimate_graph_cost`], for these dimensions.
///
/// # Errors
/// A dimension without a value, or an error of compiling the graph for the device.
pub fn try_estimate_at(graph: &Graph, dims: &DimBinding, model: &dyn BackendCostModel) -> Result<f64> {
    let bound = graph.try_bind(dims)?;
    let Some(target) = model.target() else {
        let io = |n: &&rlx_ir::Node| matches!(n.op, Op::Input { .. }) || bound.outputs.contains(&n.id);
        let bytes = bound.nodes().iter().filter(io).filter_map(|n| n.shape.size_bytes()).sum::<usize>();
        return Ok(total(&works_of_graph(&bound), bytes as f64, model));
    };
    let lir = CompilePipeline::new(target, CompileOptions::try_new()?).compile(&bound)?.lir;
    if !lir.symbols.is_empty() {
        let open: Vec<String> = lir.symbols.iter().map(|&s| sym::name(s)).collect();
        let message = format!("no estimate without values for {}", open.join(", "));
        return Err(Error::new(ErrorKind::Dimension, message));
    }
    Ok(total(&works(&lir), border_bytes(&lir), model))
}

fn total(works: &[Work], border: f64, model: &dyn BackendCostModel) -> f64 {
    model.run_ns(border) + works.iter().map(|w| model.step_ns(w)).sum::<f64>()
}

/// The models made so far in this process, by what they are measurements of.
static MODELS: LazyLock<Mutex<BTreeMap<String, Arc<model::Calibrated>>>> = LazyLock::new(Mutex::default);

/// The cost model of `device`: its backend's own, or one calibrated on this machine, now if necessary.
///
/// # Errors
/// A device that cannot be used, or that fails during calibration.
pub fn cost_model(device: impl Into<DeviceId>) -> Result<Arc<dyn BackendCostModel>> {
    cost_model_with_progress(device, &Progress::none())
}

/// As [`cost_model`]; a measurement can be cancelled; then nothing is stored.
///
/// # Errors
/// As [`cost_model`], and [`ErrorKind::Cancelled`].
pub fn cost_model_with_progress(
    device: impl Into<DeviceId>,
    progress: &Progress,
) -> Result<Arc<dyn BackendCostModel>> {
    let device = device.into();
    let backend = require_backend(device)?;
    if let Some(own) = panic_guard::call(device, "describing its prices", || Ok(backend.cost_model()))? {
        return Ok(own);
    }
    let subject = subject(device)?;
    let mut models = MODELS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = models.get(&subject) {
        return Ok(Arc::clone(known) as Arc<dyn BackendCostModel>);
    }
    let prices = match stored(device, &subject) {
        Some(prices) => prices,
        None => measured(device, subject.clone(), progress)?,
    };
    let made = calibrated(device, prices)?;
    models.insert(subject, Arc::clone(&made));
    Ok(made)
}

/// Measures `device` again and stores the result.
///
/// # Errors
/// A device that cannot be used, or that fails during calibration. (A folder that cannot be written is a warning.)
pub fn calibrate(device: impl Into<DeviceId>) -> Result<Calibration> {
    calibrate_with_progress(device, &Progress::none())
}

/// As [`calibrate`]; it can be cancelled; then nothing is stored.
///
/// # Errors
/// As [`calibrate`], and [`ErrorKind::Cancelled`].
pub fn calibrate_with_progress(device: impl Into<DeviceId>, progress: &Progress) -> Result<Calibration> {
    let device = device.into();
    let subject = subject(device)?;
    let mut models = MODELS.lock().unwrap_or_else(PoisonError::into_inner);
    let prices = measured(device, subject.clone(), progress)?;
    models.insert(subject, calibrated(device, prices.clone())?);
    Ok(prices)
}

/// The calibration of this device with its threads: stored earlier, or measured now.
///
/// # Errors
/// As [`calibrate`].
pub fn calibration_of(on: &DeviceBackend) -> Result<Calibration> {
    let device = on.device();
    let subject = subject_with(device, on.threads())?;
    match stored(device, &subject) {
        Some(prices) => Ok(prices),
        None => measured_on(on, subject, &Progress::none()),
    }
}

/// The file of a device's calibration.
///
/// # Errors
/// A device that is not available; no cache folder.
pub fn calibration_path(device: impl Into<DeviceId>) -> Result<PathBuf> {
    let device = device.into();
    path_of(device, &subject(device)?)
}

fn path_of(device: DeviceId, subject: &str) -> Result<PathBuf> {
    store::path(FOLDER, &format!("{}-{}", device.feature(), store::digest(subject)))
}

/// What costs depend on: device, machine, threads, version.
pub(crate) fn subject(device: DeviceId) -> Result<String> {
    subject_with(device, threads_from_env(device))
}

fn subject_with(device: DeviceId, threads: Option<usize>) -> Result<String> {
    let backend = require_backend(device)?;
    let machine = panic_guard::call(device, "naming its machine", || backend.machine())?;
    let threads = threads.map_or_else(String::new, |n| format!(", threads {n}"));
    Ok(format!("{}, {machine}, {}{threads}, rlx {}", device.feature(), processor(), store::VERSION))
}

/// The stored result of an earlier measurement. An invalid file is a warning.
fn stored(device: DeviceId, subject: &str) -> Option<Calibration> {
    // Without a cache folder, nothing was stored.
    let path = path_of(device, subject).ok()?;
    let found = store::read(&path).and_then(|text| text.map(|t| Calibration::parse(&t)).transpose());
    match found {
        // Digests are short, so another subject may have the same.
        Ok(found) => found.filter(|prices| prices.subject == subject),
        Err(e) => {
            tracing::warn!(%device, error = %e, "the calibration is measured again");
            None
        }
    }
}

fn measured(device: DeviceId, subject: String, progress: &Progress) -> Result<Calibration> {
    measured_on(&DeviceBackend::try_new(device)?, subject, progress)
}

fn measured_on(on: &DeviceBackend, subject: String, progress: &Progress) -> Result<Calibration> {
    let (device, start) = (on.device(), rlx_ir::clock::Instant::now());
    let prices = calibrate::measure(on, subject, progress)?;
    tracing::info!(%device, took = ?start.elapsed(), "calibrated");
    if let Err(e) = path_of(device, &prices.subject).and_then(|path| store::write(&path, &prices.to_string()))
    {
        tracing::warn!(%device, error = %e, "the calibration was not stored");
    }
    Ok(prices)
}

fn calibrated(device: DeviceId, prices: Calibration) -> Result<Arc<model::Calibrated>> {
    let backend = require_backend(device)?;
    let target =
        panic_guard::call(device, "describing the device", || backend.target(&CompileOptions::default()))?;
    Ok(Arc::new(model::Calibrated { name: device.name().to_string(), prices, target }))
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use super::*;
    use crate::registry::{backend_for, register_device};
    use rlx_driver::Device;

    #[test]
    fn what_was_measured_of_a_device_outside_of_the_list_is_its_own() {
        let npu = register_device("npu-cost", || backend_for(Device::Cpu).expect("the CPU")).unwrap();
        let (own, cpu) = (subject(npu).unwrap(), subject(Device::Cpu.into()).unwrap());
        assert!(own.starts_with("npu-cost, ") && cpu.starts_with("cpu, "), "{own}; {cpu}");
        let (own, cpu) = (calibration_path(npu).unwrap(), calibration_path(Device::Cpu).unwrap());
        assert!(own != cpu && own.file_name().unwrap().to_string_lossy().starts_with("npu-cost-"));
    }
}
