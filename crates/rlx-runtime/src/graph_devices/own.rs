//! The calls for devices outside of the list, which [`crate::register_device`] named; devices of the list may be among them.

use rlx_driver::DeviceId;
use rlx_ir::Result;
use rlx_select::device_policy::{DeviceFallbackError, failed};

use super::{GraphDevices, env_chain};
use crate::compiled::CompiledGraph;

impl GraphDevices {
    /// As [`GraphDevices::try_compile`], on any device that has a name.
    ///
    /// # Errors
    /// A device that cannot be used, or has no kernel for the graph.
    pub fn compile_on(&mut self, device: impl Into<DeviceId>) -> Result<&mut CompiledGraph> {
        let device = device.into();
        self.begin();
        if let Err(e) = self.ensure(device) {
            self.record(device, &e);
            return Err(e);
        }
        self.ensure(device)
    }

    /// As [`GraphDevices::try_run`], on any device that has a name.
    ///
    /// # Errors
    /// As [`GraphDevices::compile_on`], and what the run reports.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("twice");
    /// # let x = g.input("x", Shape::new(&[1], DType::F32));
    /// # let y = g.add(x, x);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::new(g);
    /// assert_eq!(devices.run_on(Device::Cpu, &[("x", &[2.0])])?, [[4.0]]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn run_on(
        &mut self,
        device: impl Into<DeviceId>,
        inputs: &[(&str, &[f32])],
    ) -> Result<Vec<Vec<f32>>> {
        self.begin();
        self.attempt(device, inputs)
    }

    /// As [`GraphDevices::run_try`], over any devices that have names.
    ///
    /// # Errors
    /// Every attempt, when none succeeded.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("twice");
    /// # let x = g.input("x", Shape::new(&[1], DType::F32));
    /// # let y = g.add(x, x);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::new(g);
    /// fn absent() -> Box<dyn Backend> {
    ///     panic!("the card is not plugged in")
    /// }
    /// let npu = register_device("npu-y", absent)?;
    /// let (device, outputs) = devices.run_try_on(&[npu, Device::Cpu.into()], &[("x", &[2.0])])?;
    /// assert_eq!((device, outputs), (Device::Cpu.into(), vec![vec![4.0]]));
    /// assert_eq!(devices.attempts()[0].0, npu);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn run_try_on(
        &mut self,
        chain: &[DeviceId],
        inputs: &[(&str, &[f32])],
    ) -> Result<(DeviceId, Vec<Vec<f32>>), DeviceFallbackError<DeviceId>> {
        self.begin();
        for (i, &device) in chain.iter().enumerate() {
            if let Ok(outputs) = self.attempt(device, inputs) {
                return Ok((device, outputs));
            }
            self.trace_step(device, chain.get(i + 1).copied());
        }
        Err(failed(self.all_attempts.clone()))
    }

    /// As [`GraphDevices::run_chain`], where `RLX_DEVICE_CHAIN` may name any device.
    ///
    /// # Errors
    /// As [`GraphDevices::run_try_on`].
    pub fn run_chain_on(
        &mut self,
        hint: Option<DeviceId>,
        inputs: &[(&str, &[f32])],
    ) -> Result<(DeviceId, Vec<Vec<f32>>), DeviceFallbackError<DeviceId>> {
        let chain = match hint {
            Some(device) => vec![device],
            None => match env_chain() {
                Ok(chain) if !chain.is_empty() => chain,
                Ok(_) => {
                    let run = self.run_chain(None, inputs);
                    return run.map(|(device, outputs)| (device.into(), outputs)).map_err(|e| {
                        let attempts = e.attempts.into_iter().map(|(device, why)| (device.into(), why));
                        DeviceFallbackError { attempts: attempts.collect() }
                    });
                }
                Err(e) => return Err(failed(vec![(rlx_driver::Device::Cpu.into(), e.to_string())])),
            },
        };
        self.run_try_on(&chain, inputs)
    }

    /// What was tried before the last success or failure, on any device: [`GraphDevices::last_attempts`] has those of the list.
    pub fn attempts(&self) -> &[(DeviceId, String)] {
        &self.all_attempts
    }
}
