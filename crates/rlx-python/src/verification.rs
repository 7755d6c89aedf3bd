//! What `Model.verify` found, as a dict.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlx::compare::Difference;
use rlx::verify::{Divergence, Verification};

/// The dict of a verification; `names` are those of the outputs.
pub fn dict<'py>(py: Python<'py>, found: &Verification, names: &[String]) -> PyResult<Bound<'py, PyDict>> {
    let difference = |d: &Difference| {
        let dict = PyDict::new(py);
        dict.set_item("ok", d.ok)?;
        dict.set_item("max_abs", d.max_abs)?;
        dict.set_item("max_rel", d.max_rel)?;
        dict.set_item("max_ulp", d.max_ulp)?;
        dict.set_item("mean_ulp", d.mean_ulp)?;
        dict.set_item("overflowed", d.overflowed)?;
        Ok::<_, PyErr>(dict)
    };
    let place = |found: &Option<Divergence>| {
        let Some(found) = found else { return Ok(None) };
        let dict = difference(&found.difference)?;
        dict.set_item("node", &found.node)?;
        dict.set_item("op", found.op)?;
        dict.set_item("origin", &found.origin)?;
        dict.set_item("alone", found.alone)?;
        Ok::<_, PyErr>(Some(dict))
    };
    let (dict, outputs) = (difference(&found.overall)?, PyDict::new(py));
    for (name, d) in names.iter().zip(&found.outputs) {
        outputs.set_item(name, difference(d)?)?;
    }
    dict.set_item("ok", found.ok)?;
    dict.set_item("outputs", outputs)?;
    dict.set_item("values", found.values)?;
    dict.set_item("first_divergence", place(&found.first_divergence)?)?;
    dict.set_item("first_overflow", place(&found.first_overflow)?)?;
    dict.set_item("rtol", found.tolerance.rtol)?;
    dict.set_item("atol", found.tolerance.atol)?;
    dict.set_item("floor", found.tolerance.floor)?;
    Ok(dict)
}
