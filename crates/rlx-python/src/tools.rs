//! Questions about this build: its devices, its version, the methods of traced tensors.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rlx_ir::trace;
use rlx_runtime::{DeviceId, device_ext, device_ids};

use crate::graph::python_name;

/// A device, and why it cannot be used here.
type DeviceIdAndReason = (DeviceId, Option<String>);

/// The devices by name: whether each can be used here, and why not.
#[pyfunction]
pub fn devices(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let found = py.detach(|| {
        let reason = |device| (device, device_ext::unavailable_reason(device).map(|e| e.to_string()));
        device_ids().into_iter().map(reason).collect::<Vec<DeviceIdAndReason>>()
    });
    let dict = PyDict::new(py);
    for (device, reason) in found {
        dict.set_item(device.feature(), reason)?;
    }
    Ok(dict)
}

/// The version of RLX.
#[pyfunction]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The methods of traced tensors: name, arguments (name and kind), documentation.
#[pyfunction]
pub fn method_table(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for method in trace::methods() {
        let args: Vec<(&str, &str)> =
            method.args.iter().map(|(name, kind)| (*name, kind.describe())).collect();
        list.append((python_name(method.name), args, method.doc.trim()))?;
    }
    Ok(list)
}
