//! Running on one device or on a chain of devices.

use rlx_driver::{Device, DeviceId};
use rlx_ir::{Error, ErrorKind, Result};
use rlx_select::device_policy::{DeviceFallbackError, check_usable, failed};

use super::{GraphDevices, Inputs, env_chain};
use crate::compiled::CompiledGraph;
impl GraphDevices {
    /// Runs on `device`, compiled at the first call.
    ///
    /// # Errors
    /// As [`GraphDevices::try_run`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(devices.run(Device::Cpu, &[("x", &[1.0, 2.0])])?, [[11.0, 22.0]]);
    /// # Ok::<(), String>(())
    /// ```
    pub fn run(&mut self, device: Device, inputs: &[(&str, &[f32])]) -> Result<Vec<Vec<f32>>, String> {
        Ok(self.try_run(device, inputs)?)
    }

    /// As [`GraphDevices::run`].
    ///
    /// # Errors
    /// What [`GraphDevices::try_compile`] or [`CompiledGraph::try_run`] report. After a device error (lost,
    /// out of memory, a panic) the next use compiles again.
    pub fn try_run(&mut self, device: Device, inputs: &[(&str, &[f32])]) -> Result<Vec<Vec<f32>>> {
        self.begin();
        self.attempt(device, inputs)
    }

    /// Runs on [`GraphDevices::resolve`]'s device.
    ///
    /// # Errors
    /// As [`GraphDevices::try_resolve`] and [`GraphDevices::try_run`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(devices.run_resolved(Some(Device::Cpu), &[("x", &[1.0, 2.0])])?, [[11.0, 22.0]]);
    /// # Ok::<(), String>(())
    /// ```
    pub fn run_resolved(
        &mut self,
        hint: Option<Device>,
        inputs: &[(&str, &[f32])],
    ) -> Result<Vec<Vec<f32>>, String> {
        let device = self.try_resolve(hint)?;
        self.run(device, inputs)
    }

    /// Runs on [`GraphDevices::fastest`]'s device.
    ///
    /// # Errors
    /// As [`GraphDevices::try_fastest`] and [`GraphDevices::try_run`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(devices.run_fastest(&[("x", &[1.0, 2.0])])?, [[11.0, 22.0]]);
    /// # Ok::<(), String>(())
    /// ```
    pub fn run_fastest(&mut self, inputs: &[(&str, &[f32])]) -> Result<Vec<Vec<f32>>, String> {
        let device = self.try_fastest()?;
        self.run(device, inputs)
    }

    /// Runs on [`GraphDevices::resolve_with_inputs`]'s device.
    ///
    /// # Errors
    /// As [`GraphDevices::resolve_with_inputs`] and [`GraphDevices::try_run`].
    pub fn run_resolved_with_inputs(
        &mut self,
        hint: Option<Device>,
        inputs: &[(&str, &[f32])],
    ) -> Result<Vec<Vec<f32>>, String> {
        let device = self.try_resolve_with_inputs(hint, inputs)?;
        self.run(device, inputs)
    }

    /// Runs on the first device of `chain` that succeeds. If a device is not available, cannot run the graph, or
    /// fails while compiling, setting parameters or running, the attempt is recorded and the next device is tried.
    ///
    /// # Errors
    /// The reason of every device; an empty chain is one attempt of the CPU that says so.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// let (device, outputs) = devices.run_try(&[Device::Tpu, Device::Cpu], &[("x", &[1.0, 2.0])])?;
    /// assert_eq!((device, &outputs[0][..]), (Device::Cpu, &[11.0, 22.0][..]));
    /// # Ok::<(), DeviceFallbackError>(())
    /// ```
    pub fn run_try(
        &mut self,
        chain: &[Device],
        inputs: &[(&str, &[f32])],
    ) -> Result<(Device, Vec<Vec<f32>>), DeviceFallbackError> {
        self.begin();
        for (i, &device) in chain.iter().enumerate() {
            if let Ok(outputs) = self.attempt(device, inputs) {
                return Ok((device, outputs));
            }
            self.trace_step(device, chain.get(i + 1).copied());
        }
        Err(self.give_up())
    }

    /// Runs on `hint` only; without a hint on the devices of `RLX_DEVICE_CHAIN`; if that is not set, on
    /// [`GraphDevices::resolve`]'s device.
    ///
    /// # Errors
    /// As [`GraphDevices::run_try`]; a variable that does not parse, or a device that cannot be resolved, is an
    /// attempt of the device concerned.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// let (device, _) = devices.run_chain(Some(Device::Cpu), &[("x", &[1.0, 2.0])])?;
    /// assert_eq!(device, Device::Cpu);
    /// # Ok::<(), DeviceFallbackError>(())
    /// ```
    pub fn run_chain(
        &mut self,
        hint: Option<Device>,
        inputs: &[(&str, &[f32])],
    ) -> Result<(Device, Vec<Vec<f32>>), DeviceFallbackError> {
        match self.chain(hint) {
            Ok(chain) => self.run_try(&chain, inputs),
            Err(e) => Err(self.unresolved(&e)),
        }
    }

    /// The device that [`GraphDevices::run_chain`] would try first of those that can be used.
    ///
    /// # Errors
    /// As [`GraphDevices::try_resolve_chain`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(devices.resolve_chain(Some(Device::Cpu))?, Device::Cpu);
    /// # Ok::<(), String>(())
    /// ```
    pub fn resolve_chain(&self, hint: Option<Device>) -> Result<Device, String> {
        Ok(self.try_resolve_chain(hint)?)
    }

    /// As [`GraphDevices::resolve_chain`].
    ///
    /// # Errors
    /// Every device of the chain and why it cannot be used, or a variable that does not parse.
    pub fn try_resolve_chain(&self, hint: Option<Device>) -> Result<Device> {
        let chain = self.chain(hint)?;
        Ok(rlx_select::device_policy::try_resolve_device_chain(&self.graph, &chain, &self.policy)?)
    }

    /// The graph compiled for the first device of [`GraphDevices::run_chain`]'s chain that succeeds.
    ///
    /// # Errors
    /// The reason of every device.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(devices.compile_chain(Some(Device::Cpu))?.device(), Device::Cpu);
    /// # Ok::<(), String>(())
    /// ```
    pub fn compile_chain(&mut self, hint: Option<Device>) -> Result<&mut CompiledGraph, String> {
        Ok(self.try_compile_chain(hint)?)
    }

    /// As [`GraphDevices::compile_chain`].
    ///
    /// # Errors
    /// As [`GraphDevices::compile_chain`].
    pub fn try_compile_chain(
        &mut self,
        hint: Option<Device>,
    ) -> Result<&mut CompiledGraph, DeviceFallbackError> {
        self.begin();
        let chain = match self.chain(hint) {
            Ok(chain) => chain,
            Err(e) => return Err(self.unresolved(&e)),
        };
        for (i, &device) in chain.iter().enumerate() {
            match self.ensure(device) {
                Ok(_) => return self.ensure(device).map_err(|e| failed(vec![(device, e.to_string())])),
                Err(e) => self.record(device, &e),
            }
            self.trace_step(device, chain.get(i + 1).copied());
        }
        Err(self.give_up())
    }

    /// The devices to try: the hint only, else the environment's chain, else the resolved one.
    fn chain(&self, hint: Option<Device>) -> Result<Vec<Device>> {
        let from_env = env_chain()?;
        match hint {
            Some(device) => Ok(vec![device]),
            None if !from_env.is_empty() => Ok(from_env),
            None => Ok(vec![self.try_resolve(None)?]),
        }
    }

    /// One run on one device; a failure is recorded, and an executable that a device error has left in
    /// doubt is dropped.
    pub(super) fn attempt(
        &mut self,
        device: impl Into<DeviceId>,
        inputs: Inputs<'_>,
    ) -> Result<Vec<Vec<f32>>> {
        let device = device.into();
        let result = self.ensure(device).and_then(|compiled| compiled.try_run(inputs));
        if let Err(e) = &result {
            self.failed_on(device, e);
        }
        result
    }

    /// Records the failure and drops what cannot be trusted after it.
    pub(crate) fn failed_on(&mut self, device: impl Into<DeviceId>, error: &Error) {
        let device = device.into();
        if in_doubt(error.kind()) {
            self.drop_executable(device);
        }
        self.record(device, error);
    }

    pub(super) fn trace_step(&self, from: impl Into<DeviceId>, to: Option<impl Into<DeviceId>>) {
        let from = from.into();
        match to.map(Into::<DeviceId>::into) {
            Some(to) => tracing::warn!(%from, %to, graph = %self.graph.name, "the chain moves on"),
            None => tracing::warn!(%from, graph = %self.graph.name, "no device of the chain is left"),
        }
    }

    fn give_up(&mut self) -> DeviceFallbackError {
        let error = failed(std::mem::take(&mut self.attempts));
        self.attempts.clone_from(&error.attempts);
        error
    }

    /// A failure before any device was tried.
    fn unresolved(&mut self, error: &Error) -> DeviceFallbackError {
        self.begin();
        let about = |d: &&Device| error.device() == Some(d.name());
        let device = Device::all().iter().find(about).copied().unwrap_or(Device::Cpu);
        self.record(device, error);
        self.give_up()
    }

    /// Whether `device` can run the graph under the policy now.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn check(&self, device: impl Into<DeviceId>) -> Result<()> {
        check_usable(&self.graph, device, &self.policy)
    }
}

/// Whether an executable cannot be used any more after a fault of this kind. Faults of the caller's inputs leave it as
/// it was.
fn in_doubt(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Device | ErrorKind::OutOfMemory | ErrorKind::DeviceUnavailable | ErrorKind::Internal
    )
}
