//! Which devices a program may use, which it prefers, and why a device is not used.
//!
//! A [`DevicePolicy`] allows, denies and prefers devices, and says how the rest are ranked
//! ([`DevicePickStrategy`]). The order of precedence: a hint of the caller; `RLX_DEVICE`; the policy's preferred
//! devices; the cost model, or a measurement (`GraphDevices::resolve_with_inputs`).
//!
//! | variable | meaning |
//! |---|---|
//! | `RLX_DEVICE` | the device where the caller gives no hint; an error if it cannot be used |
//! | `RLX_DEVICES`, `RLX_DENY_DEVICES`, `RLX_PREFER_DEVICES` | the lists of [`DevicePolicy::from_env`]; devices that cannot be used are ignored |
//! | `RLX_BENCHMARK_PICK` | the number of runs by which [`DevicePolicy::from_env`] measures each device |
//! | `RLX_DEVICE_CHAIN` | the chain of `GraphDevices::run_chain`; a device that cannot be used is a recorded attempt |
//!
//! An empty variable counts as not set. A value that does not parse is an error everywhere.
//!
//! ```
//! use rlx_ir::{DType, Graph, Shape, op::Activation};
//! use rlx_runtime::{Device, DevicePolicy, device_report, devices_for_with_policy, resolve_device};
//! let mut graph = Graph::new("exp");
//! let x = graph.input("x", Shape::new(&[4], DType::F32));
//! let y = graph.activation(Activation::Exp, x, Shape::new(&[4], DType::F32));
//! graph.set_outputs(vec![y]);
//!
//! let policy = DevicePolicy::only([Device::Cpu, Device::Tpu]).with_prefer([Device::Tpu]);
//! assert_eq!(devices_for_with_policy(&graph, &policy), [Device::Cpu]);
//! assert_eq!(resolve_device(&graph, None, &policy), Ok(Device::Cpu));
//! assert!(resolve_device(&graph, Some(Device::Tpu), &policy).unwrap_err().contains("tpu"));
//! let tpu = device_report(&graph, &policy).into_iter().find(|c| c.device == Device::Tpu).unwrap();
//! assert!(tpu.blocker.unwrap().contains("no backend in this build"));
//! ```

use std::fmt;

use rlx_driver::{Device, DeviceId};
use rlx_ir::{Error, ErrorKind, Graph, Result, verify_ok};
use rlx_opt::CompileOptions;

use crate::device_ext::{first_unsupported, full_name, try_legalize, unavailable_reason};
use crate::registry::registered_devices;
use crate::{cost, env, or_panic};
/// How devices of equal preference are ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DevicePickStrategy {
    /// By the time that the calibrated cost models predict.
    #[default]
    CostModel,
    /// By the median of `runs` measured runs, if there are inputs to run on; otherwise as `CostModel`.
    Benchmark {
        /// How many runs are timed on each device.
        runs: usize,
    },
}

/// Which devices may be used, and which are preferred.
///
/// ```
/// use rlx_runtime::{Device, DevicePickStrategy, DevicePolicy};
/// let policy = DevicePolicy::all().with_deny([Device::OpenGl]).with_benchmark_pick(5);
/// assert_eq!(policy.pick_strategy(), DevicePickStrategy::Benchmark { runs: 5 });
/// assert_eq!(DevicePolicy::default(), DevicePolicy::all());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DevicePolicy {
    /// `None`: all.
    allow: Option<Vec<DeviceId>>,
    deny: Vec<DeviceId>,
    prefer: Vec<DeviceId>,
    strategy: DevicePickStrategy,
}

impl DevicePolicy {
    /// Every device, ranked by cost: the default.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// assert!(DevicePolicy::all().allows(Device::Cuda));
    /// ```
    pub fn all() -> Self {
        Self::default()
    }

    /// These devices only.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// let policy = DevicePolicy::only([Device::Cpu, Device::Vulkan]);
    /// assert!(policy.allows(Device::Cpu) && !policy.allows(Device::Cuda));
    /// ```
    pub fn only(devices: impl IntoIterator<Item = Device>) -> Self {
        DevicePolicy { allow: Some(devices.into_iter().map(DeviceId::from).collect()), ..Self::default() }
    }

    /// The policy of `RLX_DEVICES` (all, if not set), `RLX_DENY_DEVICES`, `RLX_PREFER_DEVICES` and
    /// `RLX_BENCHMARK_PICK`.
    ///
    /// # Panics
    /// When a value does not parse; [`DevicePolicy::try_from_env`] reports it.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// // Reads RLX_DEVICES, RLX_DENY_DEVICES, RLX_PREFER_DEVICES, RLX_BENCHMARK_PICK.
    /// let policy = DevicePolicy::from_env();
    /// println!("{policy:?}");
    /// ```
    #[track_caller]
    pub fn from_env() -> Self {
        or_panic(Self::try_from_env())
    }

    /// As [`DevicePolicy::from_env`].
    ///
    /// # Errors
    /// [`ErrorKind::Config`] naming the variable whose value does not parse.
    pub fn try_from_env() -> Result<Self> {
        let strategy = match env::benchmark_runs()? {
            Some(runs) => DevicePickStrategy::Benchmark { runs },
            None => DevicePickStrategy::CostModel,
        };
        Ok(DevicePolicy {
            allow: env::list(env::ALLOW)?,
            deny: env::list(env::DENY)?.unwrap_or_default(),
            prefer: env::list(env::PREFER)?.unwrap_or_default(),
            strategy,
        })
    }

    /// Denies these devices, in addition to those denied before.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// assert!(!DevicePolicy::all().with_deny([Device::OpenGl]).allows(Device::OpenGl));
    /// ```
    pub fn with_deny(mut self, devices: impl IntoIterator<Item = impl Into<DeviceId>>) -> Self {
        self.deny.extend(devices.into_iter().map(Into::into));
        self
    }

    /// Prefers these devices, in this order, after those preferred before.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// assert_eq!(DevicePolicy::all().with_prefer([Device::Cpu]).preferred(), [Device::Cpu]);
    /// ```
    pub fn with_prefer(mut self, devices: impl IntoIterator<Item = impl Into<DeviceId>>) -> Self {
        self.prefer.extend(devices.into_iter().map(Into::into));
        self
    }

    /// Ranks devices by the median of this many runs. 0 runs is an error when measuring.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// let policy = DevicePolicy::all().with_benchmark_pick(5);
    /// assert_eq!(policy.pick_strategy(), DevicePickStrategy::Benchmark { runs: 5 });
    /// ```
    pub fn with_benchmark_pick(mut self, runs: usize) -> Self {
        self.strategy = DevicePickStrategy::Benchmark { runs };
        self
    }

    /// How devices are ranked.
    pub fn pick_strategy(&self) -> DevicePickStrategy {
        self.strategy
    }

    /// Whether the policy lets `device` be used.
    pub fn allows(&self, device: impl Into<DeviceId>) -> bool {
        self.objection(device.into()).is_none()
    }

    /// The preferred devices, best first.
    pub fn preferred(&self) -> &[DeviceId] {
        &self.prefer
    }

    /// Why the policy rules `device` out.
    fn objection(&self, device: DeviceId) -> Option<&'static str> {
        if self.deny.contains(&device) {
            return Some("denied by the policy");
        }
        let allowed = self.allow.as_ref().is_none_or(|list| list.contains(&device));
        (!allowed).then_some("not among the devices that the policy allows")
    }

    /// The first of the preferred devices that is among `usable`.
    pub fn preferred_of(&self, usable: &[Device]) -> Option<Device> {
        self.prefer.iter().filter_map(|d| d.known()).find(|d| usable.contains(d))
    }
}

/// A device, and the reason why it cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCandidate {
    /// The device.
    pub device: Device,
    /// Its [`full_name`].
    pub label: &'static str,
    /// Whether it can be used now.
    pub available: bool,
    /// Whether it has a backend in this process.
    pub registered: bool,
    /// Whether it is available and computes every node of the graph.
    pub supports_graph: bool,
    /// Whether it is the one that would be chosen.
    pub recommended: bool,
    /// Why it cannot be used; `None` if it can.
    pub blocker: Option<String>,
}

/// No device of a chain succeeded.
///
/// ```
/// use rlx_runtime::{Device, DeviceFallbackError};
/// let attempts = vec![(Device::Cuda, "no driver".to_string()), (Device::Cpu, "out of memory".to_string())];
/// let text = DeviceFallbackError { attempts }.to_string();
/// assert_eq!(text, "no device succeeded: CUDA: no driver; CPU: out of memory");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFallbackError<D = Device> {
    /// Every device that was tried, in order, and why it failed.
    pub attempts: Vec<(D, String)>,
}

impl<D: fmt::Display> fmt::Display for DeviceFallbackError<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no device succeeded")?;
        for (i, (device, reason)) in self.attempts.iter().enumerate() {
            write!(f, "{}{device}: {reason}", if i == 0 { ": " } else { "; " })?;
        }
        Ok(())
    }
}

impl<D: fmt::Debug + fmt::Display> std::error::Error for DeviceFallbackError<D> {}

impl<D: fmt::Debug + fmt::Display + Send + Sync + 'static> From<DeviceFallbackError<D>> for Error {
    fn from(e: DeviceFallbackError<D>) -> Error {
        Error::new(ErrorKind::DeviceUnavailable, e.to_string()).with_source(e)
    }
}

impl<D: fmt::Display> From<DeviceFallbackError<D>> for String {
    fn from(e: DeviceFallbackError<D>) -> String {
        e.to_string()
    }
}

/// Whether `device` can run `graph` under `policy`.
///
/// # Errors
/// Why not: the policy, the device (with its Cargo feature), or the node it has no kernel for.
pub fn check_usable(graph: &Graph, device: impl Into<DeviceId>, policy: &DevicePolicy) -> Result<()> {
    let device = device.into();
    if let Some(objection) = policy.objection(device) {
        let message = format!("{device} is {objection}");
        return Err(Error::new(ErrorKind::DeviceUnavailable, message).with_device(device.name()));
    }
    if let Some(missing) = unavailable_reason(device) {
        let feature = device.known().map(|known| format!(" (Cargo feature \"{}\")", known.feature()));
        let feature = feature.unwrap_or_default();
        let message = format!("{device}{feature} cannot be used: {}", missing.message());
        let error = Error::new(ErrorKind::DeviceUnavailable, message).with_device(device.name());
        return Err(match missing.hint() {
            Some(hint) => error.with_hint(hint),
            None => error,
        });
    }
    check_supported(graph, device)
}

/// Whether `device` has kernels for `graph`.
fn check_supported(graph: &Graph, device: DeviceId) -> Result<()> {
    verify_ok(graph)?;
    let options = CompileOptions::try_new()?;
    try_legalize(graph, device, &options).map(|_| ()).map_err(|e| {
        match first_unsupported(device, graph, &options) {
            Some((at, op)) => {
                let message = format!("{device} cannot compute node {at} ({}): {}", op.kind(), e.message());
                Error::new(e.kind(), message).with_device(device.name()).with_source(e)
            }
            None => e,
        }
    })
}

/// The devices that can run `graph` under `policy`: the preferred ones first, then in [`Device::all`]'s order.
///
/// # Panics
/// When `RLX_KERNEL_DISPATCH` is invalid; [`device_report`] says so for each device.
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("sum");
/// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
/// # let y = g.add(x, w);
/// # g.set_outputs(vec![y]);
/// assert_eq!(devices_for_with_policy(&g, &DevicePolicy::only([Device::Cpu])), [Device::Cpu]);
/// ```
pub fn devices_for_with_policy(graph: &Graph, policy: &DevicePolicy) -> Vec<Device> {
    or_panic(CompileOptions::try_new());
    let preferred = policy.prefer.iter().filter_map(|d| d.known());
    let mut usable: Vec<Device> = Vec::new();
    for device in preferred.chain(Device::all().iter().copied()) {
        if !usable.contains(&device) && check_usable(graph, device, policy).is_ok() {
            usable.push(device);
        }
    }
    usable
}

/// Every device: whether it can run `graph` under `policy`, why not, and which one would be chosen.
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("sum");
/// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
/// # let y = g.add(x, w);
/// # g.set_outputs(vec![y]);
/// let report = device_report(&g, &DevicePolicy::only([Device::Cpu]));
/// let tpu = report.iter().find(|c| c.device == Device::Tpu).unwrap();
/// assert!(!tpu.available && tpu.blocker.is_some());
/// ```
pub fn device_report(graph: &Graph, policy: &DevicePolicy) -> Vec<DeviceCandidate> {
    report_with(graph, policy, |usable| pick(graph, usable, policy).ok())
}

/// The report, with `choose` choosing among the usable devices.
pub fn report_with(
    graph: &Graph,
    policy: &DevicePolicy,
    choose: impl FnOnce(&[Device]) -> Option<Device>,
) -> Vec<DeviceCandidate> {
    let registered = registered_devices();
    let mut candidates: Vec<DeviceCandidate> = Device::all()
        .iter()
        .map(|&device| {
            let available = unavailable_reason(device).is_none();
            DeviceCandidate {
                device,
                label: full_name(device),
                available,
                registered: registered.contains(&device),
                supports_graph: available && check_supported(graph, device.into()).is_ok(),
                recommended: false,
                blocker: check_usable(graph, device, policy).err().map(|e| e.to_string()),
            }
        })
        .collect();
    let usable: Vec<Device> = candidates.iter().filter(|c| c.blocker.is_none()).map(|c| c.device).collect();
    let chosen = choose(&usable);
    candidates.iter_mut().for_each(|c| c.recommended = Some(c.device) == chosen);
    candidates
}

/// The one of `usable` that is expected to run `graph` fastest; `None` when there is none. One device alone needs no
/// estimate; a device without an estimate is skipped with a warning.
///
/// # Errors
/// There are several, and none can be estimated.
fn cheapest(graph: &Graph, usable: &[Device]) -> Result<Option<Device>> {
    if let [] | [_] = usable {
        return Ok(usable.first().copied());
    }
    let mut best: Option<(f64, Device)> = None;
    let mut failures = Vec::new();
    for &device in usable {
        match cost::cost_model(device).and_then(|model| cost::try_estimate_graph_cost(graph, &*model)) {
            Ok(ns) => {
                tracing::debug!(%device, ns, graph = %graph.name, "estimated");
                if best.is_none_or(|(fastest, _)| ns < fastest) {
                    best = Some((ns, device));
                }
            }
            Err(e) => {
                tracing::warn!(%device, reason = %e, graph = %graph.name, "no estimate: the device is passed over");
                failures.push((device, e.to_string()));
            }
        }
    }
    match best {
        Some((_, device)) => Ok(Some(device)),
        None => Err(DeviceFallbackError { attempts: failures }.into()),
    }
}

/// The device that is expected to run `graph` fastest.
///
/// # Panics
/// If [`try_fastest_device_for`] fails, with its error as the message.
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("sum");
/// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
/// # let y = g.add(x, w);
/// # g.set_outputs(vec![y]);
/// // One device needs no prices.
/// let policy = DevicePolicy::only([Device::Cpu]);
/// assert_eq!(fastest_device_for_with_policy(&g, &policy), Device::Cpu);
/// // Otherwise the costs are measured at first use and stored.
/// # let measured = || {
/// println!("{}", fastest_device_for(&g));
/// # };
/// ```
#[track_caller]
pub fn fastest_device_for(graph: &Graph) -> Device {
    or_panic(try_fastest_device_for(graph))
}

/// As [`fastest_device_for`].
///
/// # Errors
/// If no device can run the graph; each is named with its reason.
pub fn try_fastest_device_for(graph: &Graph) -> Result<Device> {
    try_fastest_device_for_with_policy(graph, &DevicePolicy::default())
}

/// The device that `policy` prefers, else the one of those it allows that is expected to run `graph` fastest.
///
/// # Panics
/// If [`try_fastest_device_for_with_policy`] fails, with its error as the message.
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("sum");
/// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
/// # let y = g.add(x, w);
/// # g.set_outputs(vec![y]);
/// assert_eq!(fastest_device_for_with_policy(&g, &DevicePolicy::only([Device::Cpu])), Device::Cpu);
/// ```
#[track_caller]
pub fn fastest_device_for_with_policy(graph: &Graph, policy: &DevicePolicy) -> Device {
    or_panic(try_fastest_device_for_with_policy(graph, policy))
}

/// As [`fastest_device_for_with_policy`].
///
/// # Errors
/// No device can run the graph under the policy; each is named with its reason.
pub fn try_fastest_device_for_with_policy(graph: &Graph, policy: &DevicePolicy) -> Result<Device> {
    pick(graph, &devices_for_with_policy(graph, policy), policy)
}

/// The one of `usable` to use without a measurement of `graph` itself: a preferred one, else the cheapest.
///
/// # Errors
/// None is usable, or the cost models fail.
pub fn pick(graph: &Graph, usable: &[Device], policy: &DevicePolicy) -> Result<Device> {
    match policy.preferred_of(usable) {
        Some(device) => Ok(device),
        None => cheapest(graph, usable)?.ok_or_else(|| nothing_usable(graph, policy).into()),
    }
}

/// The error that says for every device why it cannot be used.
pub fn nothing_usable(graph: &Graph, policy: &DevicePolicy) -> DeviceFallbackError {
    let reason = |&d: &Device| check_usable(graph, d, policy).err().map(|e| (d, e.message().to_string()));
    DeviceFallbackError { attempts: Device::all().iter().filter_map(reason).collect() }
}

/// The device to run `graph` on: `hint`, else the device named by `RLX_DEVICE`, else the choice of `policy`. (A benchmark needs
/// inputs: `GraphDevices::resolve_with_inputs`; here the cost model is used instead.)
///
/// # Errors
/// As [`try_resolve_device`].
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("sum");
/// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
/// # let y = g.add(x, w);
/// # g.set_outputs(vec![y]);
/// assert_eq!(resolve_device(&g, Some(Device::Cpu), &DevicePolicy::all())?, Device::Cpu);
/// assert!(resolve_device(&g, Some(Device::Tpu), &DevicePolicy::all()).is_err());
/// # Ok::<(), String>(())
/// ```
pub fn resolve_device(graph: &Graph, hint: Option<Device>, policy: &DevicePolicy) -> Result<Device, String> {
    Ok(try_resolve_device(graph, hint, policy)?)
}

/// As [`resolve_device`].
///
/// # Errors
/// A device that was named and cannot be used, a variable that does not parse, or no device at all.
pub fn try_resolve_device(graph: &Graph, hint: Option<Device>, policy: &DevicePolicy) -> Result<Device> {
    match named_device(graph, hint, policy)? {
        Some(device) => Ok(device),
        None => pick(graph, &devices_for_with_policy(graph, policy), policy),
    }
}

/// The device that the caller or `RLX_DEVICE` names.
///
/// # Errors
/// It cannot be used, or the variable does not parse (whatever the hint).
pub fn named_device(graph: &Graph, hint: Option<Device>, policy: &DevicePolicy) -> Result<Option<Device>> {
    let from_env: Option<Device> = match hint {
        // What the caller names is used, whatever the variable names.
        Some(_) => env::device::<DeviceId>()?.and_then(DeviceId::known),
        None => env::device()?,
    };
    if let Some(device) = hint {
        return check_usable(graph, device, policy).map(|()| Some(device));
    }
    let Some(device) = from_env else { return Ok(None) };
    check_usable(graph, device, policy).map(|()| Some(device)).map_err(|e| {
        let message = format!("{} names {device}: {}", env::DEVICE, e.message());
        Error::new(e.kind(), message).with_device(device.name()).with_source(e)
    })
}

/// The first device of `chain` that can run `graph` under `policy`.
///
/// # Errors
/// The text of a [`DeviceFallbackError`] that names every device of the chain and its reason.
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("sum");
/// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
/// # let y = g.add(x, w);
/// # g.set_outputs(vec![y]);
/// let chain = [Device::Tpu, Device::Cpu];
/// assert_eq!(resolve_device_chain(&g, &chain, &DevicePolicy::all())?, Device::Cpu);
/// # Ok::<(), String>(())
/// ```
pub fn resolve_device_chain(
    graph: &Graph,
    chain: &[Device],
    policy: &DevicePolicy,
) -> Result<Device, String> {
    Ok(try_resolve_device_chain(graph, chain, policy)?)
}

/// As [`resolve_device_chain`].
///
/// # Errors
/// Every device of the chain and why it cannot be used; an empty chain is one attempt of the CPU that says so.
pub fn try_resolve_device_chain(
    graph: &Graph,
    chain: &[Device],
    policy: &DevicePolicy,
) -> Result<Device, DeviceFallbackError> {
    let mut attempts = Vec::new();
    for &device in chain {
        match check_usable(graph, device, policy) {
            Ok(()) => return Ok(device),
            Err(e) => attempts.push((device, e.to_string())),
        }
    }
    Err(failed(attempts))
}

/// The error of a chain after these attempts.
pub fn failed<D: From<Device>>(mut attempts: Vec<(D, String)>) -> DeviceFallbackError<D> {
    if attempts.is_empty() {
        attempts.push((Device::Cpu.into(), "the chain is empty: it names no device to try".to_string()));
    }
    DeviceFallbackError { attempts }
}

/// The devices of `RLX_DEVICE_CHAIN`, in order; empty if it is not set.
///
/// # Panics
/// When the value does not parse; [`try_device_chain_from_env`] reports it.
///
/// ```
/// # use rlx_runtime::*;
/// // Reads RLX_DEVICE_CHAIN, as in "vulkan,cpu"; empty where it is not set.
/// println!("{:?}", device_chain_from_env());
/// ```
#[track_caller]
pub fn device_chain_from_env() -> Vec<Device> {
    or_panic(try_device_chain_from_env())
}

/// As [`device_chain_from_env`].
///
/// # Errors
/// [`ErrorKind::Config`] when the value does not parse.
pub fn try_device_chain_from_env() -> Result<Vec<Device>> {
    Ok(env::list(env::CHAIN)?.unwrap_or_default())
}
