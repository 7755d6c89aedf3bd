//! Which device is expected to be the fastest.

use rlx_driver::Device;
use rlx_ir::{Graph, Result};

use crate::device_ext::fastest_among;
use crate::device_policy::{DevicePolicy, devices_for_with_policy, pick};
use crate::error::or_panic;

/// The one of `usable` that is expected to run `graph` fastest; `None` when there is none.
pub(crate) fn cheapest(_: &Graph, usable: &[Device]) -> Result<Option<Device>> {
    Ok((!usable.is_empty()).then(|| fastest_among(usable)))
}

/// The device that is expected to run `graph` fastest.
///
/// # Panics
/// With the text of [`try_fastest_device_for`]'s error.
#[track_caller]
pub fn fastest_device_for(graph: &Graph) -> Device {
    or_panic(try_fastest_device_for(graph))
}

/// As [`fastest_device_for`].
///
/// # Errors
/// No device can run the graph; each is named with its reason.
pub fn try_fastest_device_for(graph: &Graph) -> Result<Device> {
    try_fastest_device_for_with_policy(graph, &DevicePolicy::default())
}

/// The device that `policy` prefers, else the one of those it allows that is expected to run `graph` fastest.
///
/// # Panics
/// With the text of [`try_fastest_device_for_with_policy`]'s error.
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
