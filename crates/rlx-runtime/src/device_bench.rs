//! Choosing a device by measurement.
//!
//! [`benchmark_devices`] times a graph on each of its devices. Under [`DevicePickStrategy::Benchmark`] the result is a
//! [`Verdict`], which holds for one graph, one set of devices and one class of input sizes: each input's length, rounded
//! up to a power of two. It is stored in the cache folder (`RLX_CACHE_DIR`).
//!
//! ```
//! use rlx_ir::{DType, Graph, Shape, op::Activation};
//! use rlx_runtime::{DevicePolicy, GraphDevices, benchmark_devices};
//! let mut graph = Graph::new("exp");
//! let x = graph.input("x", Shape::new(&[4], DType::F32));
//! let y = graph.activation(Activation::Exp, x, Shape::new(&[4], DType::F32));
//! graph.set_outputs(vec![y]);
//! let mut devices = GraphDevices::with_policy(graph, DevicePolicy::all());
//! let results = benchmark_devices(&mut devices, &[("x", &[0.0, 1.0, 2.0, 3.0])], 3)?;
//! assert!(results.windows(2).all(|r| r[0].median_exec_ns <= r[1].median_exec_ns));
//! # Ok::<(), String>(())
//! ```
//!
//! [`DevicePickStrategy::Benchmark`]: crate::DevicePickStrategy::Benchmark

use rlx_driver::Device;
use rlx_ir::clock::Instant;
use rlx_ir::progress::Stage;
use rlx_ir::sort::{sort, sort_by_key};
use rlx_ir::{Error, ErrorKind, Progress, Result};
use rlx_select::device_ext::full_name;
use rlx_select::device_policy::{DeviceFallbackError, nothing_usable};
pub use rlx_select::verdicts::Verdict;
use rlx_select::verdicts::size_class;

use crate::graph_devices::{GraphDevices, Inputs};
/// The times of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceBenchResult {
    /// The device.
    pub device: Device,
    /// Its [`full_name`].
    pub label: &'static str,
    /// How long compiling took, when it was done.
    pub compile_ns: u64,
    /// The median of the timed runs, from inputs to outputs in the caller's memory.
    pub median_exec_ns: u64,
}

/// Times every device of `devices` on `inputs`, `runs` runs each after one to warm up; fastest first. Devices that
/// fail are left out, recorded ([`GraphDevices::last_attempts`]) and traced.
///
/// # Errors
/// As [`try_benchmark_devices`].
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("sum");
/// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
/// # let y = g.add(x, w);
/// # g.set_outputs(vec![y]);
/// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
/// # devices.set_param("w", &[10.0, 20.0]);
/// let results = benchmark_devices(&mut devices, &[("x", &[1.0, 2.0])], 3)?;
/// assert_eq!(results[0].device, Device::Cpu);
/// # Ok::<(), String>(())
/// ```
pub fn benchmark_devices(
    devices: &mut GraphDevices,
    inputs: &[(&str, &[f32])],
    runs: usize,
) -> Result<Vec<DeviceBenchResult>, String> {
    Ok(try_benchmark_devices(devices, inputs, runs)?)
}

/// As [`benchmark_devices`].
///
/// # Errors
/// 0 runs, or no device that succeeded.
pub fn try_benchmark_devices(
    devices: &mut GraphDevices,
    inputs: &[(&str, &[f32])],
    runs: usize,
) -> Result<Vec<DeviceBenchResult>> {
    try_benchmark_devices_with_progress(devices, inputs, runs, &Progress::none())
}

/// As [`try_benchmark_devices`]; it can be stopped before any step, and then gives no verdict. What hears of the steps
/// takes time that is measured.
///
/// # Errors
/// As [`try_benchmark_devices`], and [`ErrorKind::Cancelled`].
pub fn try_benchmark_devices_with_progress(
    devices: &mut GraphDevices,
    inputs: &[(&str, &[f32])],
    runs: usize,
    progress: &Progress,
) -> Result<Vec<DeviceBenchResult>> {
    if runs == 0 {
        return Err(Error::new(ErrorKind::Config, "a benchmark of 0 runs measures nothing; use 1 or more"));
    }
    devices.begin();
    let mut results = Vec::new();
    for device in devices.devices().to_vec() {
        match time(devices, device, inputs, runs, progress) {
            Ok(result) => results.push(result),
            Err(e) if e.kind() == ErrorKind::Cancelled => return Err(e),
            Err(e) => devices.failed_on(device, &e),
        }
    }
    sort_by_key(&mut results, |r| r.median_exec_ns);
    let Some(first) = results.first() else {
        let attempts = devices.last_attempts().to_vec();
        return Err(match attempts.is_empty() {
            true => nothing_usable(devices.graph(), devices.policy()).into(),
            false => DeviceFallbackError { attempts }.into(),
        });
    };
    let times = results.iter().map(|r| (r.device, r.median_exec_ns)).collect();
    devices.remember(Verdict { device: first.device, runs, times, sizes: size_class(inputs) });
    Ok(results)
}

/// Compiles for every device that can run the graph; gives those devices.
///
/// # Errors
/// The devices that failed and why. Successful compilations stay.
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("sum");
/// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
/// # let y = g.add(x, w);
/// # g.set_outputs(vec![y]);
/// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
/// # devices.set_param("w", &[10.0, 20.0]);
/// assert_eq!(warm_all(&mut devices)?, [Device::Cpu]);
/// # Ok::<(), String>(())
/// ```
pub fn warm_all(devices: &mut GraphDevices) -> Result<Vec<Device>, String> {
    devices.warm_all()
}

fn time(
    devices: &mut GraphDevices,
    device: Device,
    inputs: Inputs<'_>,
    runs: usize,
    progress: &Progress,
) -> Result<DeviceBenchResult> {
    progress.step(Stage::Compile, 0, 0, || device.name())?;
    let compiled = devices.ensure(device)?;
    compiled.try_run_with_progress(inputs, progress)?;
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        let start = Instant::now();
        compiled.try_run_with_progress(inputs, progress)?;
        times.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    sort(&mut times);
    Ok(DeviceBenchResult {
        device,
        label: full_name(device),
        compile_ns: devices.compile_ns(device).unwrap_or(0),
        median_exec_ns: times[runs / 2],
    })
}

/// The fastest device by a measurement of `runs` runs: an earlier verdict for inputs of this class, else a
/// new one. One device alone needs no measurement.
pub(crate) fn measured_pick(devices: &mut GraphDevices, inputs: Inputs<'_>, runs: usize) -> Result<Device> {
    if runs > 0 {
        if let [only] = devices.devices() {
            return Ok(*only);
        }
        if let Some(verdict) = devices.known_verdict(&size_class(inputs), runs) {
            return Ok(verdict.device);
        }
    }
    try_benchmark_devices(devices, inputs, runs).map(|results| results[0].device)
}
