//! `rlx.TensorSpec`: what a model says of an input or output.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use rlx_ir::{Dim, sym};
use rlx_runtime::TensorInfo;

/// An input or output of a model: ``name``, ``dtype`` (as in ``"f32"``), and ``shape``, whose dynamic dimensions are strings.
#[pyclass(frozen, eq, module = "rlx")]
#[derive(Debug, Clone, PartialEq)]
pub struct TensorSpec {
    /// The name.
    #[pyo3(get)]
    name: String,
    /// The element type: ``"f32"``, ``"i64"``, ``"bool"``, …
    #[pyo3(get)]
    dtype: String,
    dims: Vec<Result<usize, String>>,
}

#[pymethods]
impl TensorSpec {
    /// The dimensions: integers, and the names of dynamic dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let dims = self.dims.iter().map(|d| match d {
            Ok(n) => n.into_pyobject(py).map(Bound::into_any).map_err(PyErr::from),
            Err(name) => Ok(PyString::new(py, name).into_any()),
        });
        PyTuple::new(py, dims.collect::<PyResult<Vec<_>>>()?)
    }

    fn __repr__(&self) -> String {
        let dims: Vec<String> = self
            .dims
            .iter()
            .map(|d| d.as_ref().map_or_else(|name| format!("{name:?}"), usize::to_string))
            .collect();
        format!("TensorSpec({:?}, [{}], {:?})", self.name, dims.join(", "), self.dtype)
    }
}

impl TensorSpec {
    pub fn of(info: &TensorInfo) -> Self {
        let dim = |dim: &Dim| match *dim {
            Dim::Static(n) => Ok(n),
            Dim::Dynamic(symbol) => Err(sym::name(symbol)),
            other => Err(other.to_string()),
        };
        let dims = info.shape.dims().iter().map(dim).collect();
        TensorSpec { name: info.name.clone(), dtype: info.dtype.name().to_owned(), dims }
    }
}
