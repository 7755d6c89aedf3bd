//! Choosing a device, and the reason for the choice.

use std::fmt;

use rlx_driver::Device;
use rlx_ir::Result;
use rlx_select::device_policy::{DeviceCandidate, DevicePickStrategy, named_device, pick, report_with};
use rlx_select::or_panic;
use rlx_select::verdicts::size_class;

use super::{GraphDevices, Inputs};
use crate::device_bench::{self, Verdict};
/// A device that was chosen, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The device.
    pub device: Device,
    /// The reason for the choice.
    pub reason: ChoiceReason,
}

/// Why a device was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChoiceReason {
    /// The caller named it.
    Hint,
    /// `RLX_DEVICE` names it.
    Environment,
    /// The policy prefers it to others that could be used.
    Preferred,
    /// No other device can be used.
    OnlyOne,
    /// It was measured as the fastest.
    Measured,
    /// The cost models expect it to be the fastest.
    Estimated,
}

impl fmt::Display for ChoiceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChoiceReason::Hint => "named by the caller",
            ChoiceReason::Environment => "named by RLX_DEVICE",
            ChoiceReason::Preferred => "preferred by the policy",
            ChoiceReason::OnlyOne => "the only one that can be used",
            ChoiceReason::Measured => "measured as the fastest",
            ChoiceReason::Estimated => "expected to be the fastest",
        })
    }
}

impl GraphDevices {
    /// Every device: why it cannot be used, and which one would be chosen.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// assert!(devices.report().iter().any(|c| c.device == Device::Cpu && c.recommended));
    /// ```
    pub fn report(&self) -> Vec<DeviceCandidate> {
        report_with(&self.graph, &self.policy, |_| self.try_fastest().ok())
    }

    /// The device to take without a hint: a preferred one, else the winner of the last benchmark where the policy
    /// is to measure, else the cheapest by the cost models.
    ///
    /// # Panics
    /// If [`GraphDevices::try_fastest`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(devices.fastest(), Device::Cpu);
    /// ```
    #[track_caller]
    pub fn fastest(&self) -> Device {
        or_panic(self.try_fastest())
    }

    /// As [`GraphDevices::fastest`].
    ///
    /// # Errors
    /// If no device can run the graph; each is named with its reason.
    pub fn try_fastest(&self) -> Result<Device> {
        Ok(self.fastest_choice()?.device)
    }

    fn fastest_choice(&self) -> Result<Choice> {
        let choice = |device, reason| Ok(Choice { device, reason });
        if let Some(device) = self.policy.preferred_of(&self.devices) {
            return choice(device, ChoiceReason::Preferred);
        }
        if let [only] = self.devices[..] {
            return choice(only, ChoiceReason::OnlyOne);
        }
        if matches!(self.policy.pick_strategy(), DevicePickStrategy::Benchmark { .. })
            && let Some(verdict) = self.verdicts.all().last().filter(|v| self.devices.contains(&v.device))
        {
            return choice(verdict.device, ChoiceReason::Measured);
        }
        if let Some(&device) = self.cheapest.get() {
            return choice(device, ChoiceReason::Estimated);
        }
        let device = pick(&self.graph, &self.devices, &self.policy)?;
        choice(*self.cheapest.get_or_init(|| device), ChoiceReason::Estimated)
    }

    /// The device that [`GraphDevices::resolve`] returns, and why.
    ///
    /// # Errors
    /// As [`GraphDevices::try_resolve`].
    pub fn try_choose(&self, hint: Option<Device>) -> Result<Choice> {
        match named_device(&self.graph, hint, &self.policy)? {
            Some(device) => Ok(named(device, hint)),
            None => self.fastest_choice(),
        }
    }

    /// The device that [`GraphDevices::resolve_with_inputs`] returns, and why.
    ///
    /// # Errors
    /// As [`GraphDevices::resolve_with_inputs`].
    pub fn try_choose_with_inputs(&mut self, hint: Option<Device>, inputs: Inputs<'_>) -> Result<Choice> {
        if let Some(device) = named_device(&self.graph, hint, &self.policy)? {
            return Ok(named(device, hint));
        }
        match self.policy.pick_strategy() {
            DevicePickStrategy::Benchmark { runs } if self.policy.preferred_of(&self.devices).is_none() => {
                let device = device_bench::measured_pick(self, inputs, runs)?;
                let alone = self.devices.len() == 1;
                let reason = if alone { ChoiceReason::OnlyOne } else { ChoiceReason::Measured };
                Ok(Choice { device, reason })
            }
            _ => self.fastest_choice(),
        }
    }

    /// The device to use: `hint`, else what `RLX_DEVICE` names, else [`GraphDevices::fastest`].
    ///
    /// # Errors
    /// As [`GraphDevices::try_resolve`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(devices.resolve(Some(Device::Cpu))?, Device::Cpu);
    /// # Ok::<(), String>(())
    /// ```
    pub fn resolve(&self, hint: Option<Device>) -> Result<Device, String> {
        Ok(self.try_resolve(hint)?)
    }

    /// As [`GraphDevices::resolve`].
    ///
    /// # Errors
    /// A device that was named and cannot be used, a variable that does not parse, or no device at all.
    pub fn try_resolve(&self, hint: Option<Device>) -> Result<Device> {
        Ok(self.try_choose(hint)?.device)
    }

    /// As [`GraphDevices::resolve`]; where the policy is to measure and neither hint, `RLX_DEVICE` nor a preference
    /// decides, each device is timed on `inputs`, once for each class of input sizes. The verdict is stored in this
    /// object and in the cache folder.
    ///
    /// # Errors
    /// As [`GraphDevices::try_resolve`], or a measurement in which every device failed.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(devices.resolve_with_inputs(Some(Device::Cpu), &[("x", &[1.0, 2.0])])?, Device::Cpu);
    /// # Ok::<(), String>(())
    /// ```
    pub fn resolve_with_inputs(
        &mut self,
        hint: Option<Device>,
        inputs: &[(&str, &[f32])],
    ) -> Result<Device, String> {
        Ok(self.try_resolve_with_inputs(hint, inputs)?)
    }

    /// As [`GraphDevices::resolve_with_inputs`].
    ///
    /// # Errors
    /// As [`GraphDevices::resolve_with_inputs`].
    pub fn try_resolve_with_inputs(&mut self, hint: Option<Device>, inputs: Inputs<'_>) -> Result<Device> {
        Ok(self.try_choose_with_inputs(hint, inputs)?.device)
    }

    /// What was measured for inputs of these sizes, here or in an earlier process; nothing is measured now.
    pub fn verdict_for(&mut self, inputs: &[(&str, &[f32])]) -> Option<Verdict> {
        self.known_verdict(&size_class(inputs), 1)
    }
}

fn named(device: Device, hint: Option<Device>) -> Choice {
    let reason = if hint.is_some() { ChoiceReason::Hint } else { ChoiceReason::Environment };
    Choice { device, reason }
}
