//! Values that are no plain tensors, as Python has them: strings are arrays of objects, sequences and maps are lists.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use rlx::ModelValue;
use rlx::values::{MapKeys, StringTensor};
use rlx_ir::{ConstData, DType};
use rlx_runtime::TensorView;

use crate::array;

/// How deep sequences may nest.
const DEEPEST: usize = 8;

/// The values of a call by name: a mapping, or a sequence in the model's order.
pub fn named(
    given: Option<&Bound<'_, PyAny>>,
    names: &[String],
    wanted: &dyn Fn(&str) -> Option<DType>,
) -> PyResult<Vec<(String, ModelValue)>> {
    let Some(given) = given.filter(|given| !given.is_none()) else { return Ok(Vec::new()) };
    let one = |name: String, value: &Bound<'_, PyAny>| {
        let value = value_of(value, wanted(&name), 0).inspect_err(|e| {
            drop(e.value(given.py()).call_method1("add_note", (format!("input {name:?}"),)));
        })?;
        Ok((name, value))
    };
    if given.hasattr("items")? {
        let items = given.call_method0("items")?;
        let pair = |pair: PyResult<Bound<'_, PyAny>>| {
            let pair = pair?;
            one(pair.get_item(0)?.extract()?, &pair.get_item(1)?)
        };
        return items.try_iter()?.map(pair).collect();
    }
    let values: Vec<Bound<'_, PyAny>> = given.try_iter()?.collect::<PyResult<_>>()?;
    if values.len() > names.len() {
        let message = format!("{} inputs were given, the model takes {}", values.len(), names.len());
        return Err(PyValueError::new_err(message));
    }
    names.iter().zip(&values).map(|(name, value)| one(name.clone(), value)).collect()
}

/// A Python object as a value.
fn value_of(object: &Bound<'_, PyAny>, wanted: Option<DType>, depth: usize) -> PyResult<ModelValue> {
    if depth > DEEPEST {
        return Err(PyTypeError::new_err("sequences that nest too deep"));
    }
    if object.is_none() {
        return Ok(ModelValue::Nothing);
    }
    if wanted.is_none() && (object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>()) {
        let elements = object.try_iter()?.map(|element| value_of(&element?, None, depth + 1));
        return Ok(ModelValue::Sequence(elements.collect::<PyResult<_>>()?));
    }
    let numpy = object.py().import("numpy")?;
    let is_text = object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>();
    if is_text || object.hasattr("dtype")? {
        let array = numpy.call_method1("asarray", (object,))?;
        let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
        if matches!(kind.as_str(), "O" | "U" | "S" | "T") {
            let dims = array.getattr("shape")?.extract()?;
            let flat = array.call_method0("ravel")?.call_method0("tolist")?;
            let elements = flat.try_iter()?.map(|element| text(&element?)).collect::<PyResult<_>>()?;
            return Ok(ModelValue::Strings(StringTensor { dims, elements }));
        }
    }
    Ok(ModelValue::Tensor(array::input(object, wanted)?.to_const(object.py())?))
}

fn text(object: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        let text = std::str::from_utf8(bytes.as_bytes());
        return text.map(str::to_owned).map_err(|e| PyValueError::new_err(e.to_string()));
    }
    match object.cast::<PyString>() {
        Ok(text) => text.extract(),
        Err(_) => Err(PyTypeError::new_err(format!("{} in an array of strings", object.get_type()))),
    }
}

/// A value as a Python object.
pub fn object(py: Python<'_>, value: ModelValue) -> PyResult<Bound<'_, PyAny>> {
    match value {
        ModelValue::Tensor(tensor) => array(py, &tensor),
        ModelValue::Strings(strings) => strings_array(py, strings),
        ModelValue::Sequence(elements) => {
            let elements = elements.into_iter().map(|element| object(py, element));
            Ok(PyList::new(py, elements.collect::<PyResult<Vec<_>>>()?)?.into_any())
        }
        ModelValue::Maps { keys, values } => maps(py, &keys, &values),
        _ => Ok(py.None().into_bound(py)),
    }
}

fn array<'py>(py: Python<'py>, tensor: &ConstData) -> PyResult<Bound<'py, PyAny>> {
    let (dtype, dims, bytes) = (tensor.dtype(), tensor.dims(), tensor.bytes());
    array::copied(py, TensorView { name: "", dtype, dims, bytes })
}

fn strings_array(py: Python<'_>, strings: StringTensor) -> PyResult<Bound<'_, PyAny>> {
    let numpy = py.import("numpy")?;
    let options = PyDict::new(py);
    options.set_item("dtype", "O")?;
    let flat = PyList::new(py, strings.elements)?;
    let flat = numpy.call_method("array", (flat,), Some(&options))?;
    flat.call_method1("reshape", (PyTuple::new(py, strings.dims)?,))
}

/// A dict for each row.
fn maps<'py>(py: Python<'py>, keys: &MapKeys, values: &ConstData) -> PyResult<Bound<'py, PyAny>> {
    let rows = PyList::empty(py);
    for row in array(py, values)?.call_method0("tolist")?.try_iter()? {
        let (row, dict) = (row?, PyDict::new(py));
        let columns = row.try_iter()?;
        match keys {
            MapKeys::Ints(keys) => {
                keys.iter().zip(columns).try_for_each(|(key, value)| dict.set_item(key, value?))?;
            }
            MapKeys::Strings(keys) => {
                keys.iter().zip(columns).try_for_each(|(key, value)| dict.set_item(key, value?))?;
            }
        }
        rows.append(dict)?;
    }
    Ok(rows.into_any())
}
