//! `rlx.Graph` and `rlx.Tensor`: graphs recorded from ordinary array code.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyTuple};
use rlx::Runner;
use rlx_ir::op::BinaryOp;
use rlx_ir::trace::{self, Arg, ArgKind, Method};
use rlx_ir::{ConstData, DType, Dim, Shape, TracedTensor, Tracer, Weight, WeightStore, sym, verify_ok};

use crate::array;
use crate::errors::OrRaise;
use crate::model::Model;
use crate::options;

/// A graph that is recorded: declare inputs and parameters, compute with them as with NumPy arrays, then compile.
///
/// >>> import rlx, numpy as np
/// >>> g = rlx.Graph("scale")
/// >>> x = g.input("x", ["batch", 2])
/// >>> model = g.compile({"y": (x * 2.0 + np.float32([1, 2])).relu()})
/// >>> model.run({"x": np.float32([[1, -3]])})["y"]
/// array([[3., 0.]], dtype=float32)
#[pyclass(frozen, module = "rlx")]
pub struct Graph {
    state: Mutex<State>,
}

struct State {
    tracer: Tracer,
    weights: WeightStore,
    name: String,
}

/// A tensor of a graph that is recorded. Operators and methods add to the graph; nothing is computed.
///
/// Besides the operators ``+ - * / ** @``, comparisons and unary ``-``, every method of traced tensors works: ``x.relu()``,
/// ``x.softmax(-1)``, ``x.reshape([2, -1])``; ``dir(x)`` lists them.
#[pyclass(frozen, module = "rlx")]
#[derive(Clone)]
pub struct Tensor {
    inner: TracedTensor,
}

// A method of a tensor, ready to be called. (No documentation of the class: each has its own.)
#[pyclass(frozen, module = "rlx")]
struct BoundMethod {
    tensor: TracedTensor,
    method: &'static Method,
}

impl Graph {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Graph {
    #[new]
    #[pyo3(signature = (name="graph"))]
    fn new(name: &str) -> Self {
        let state = State { tracer: Tracer::new(name), weights: WeightStore::new(), name: name.to_owned() };
        Graph { state: Mutex::new(state) }
    }

    /// A tensor that is given at every run. ``shape`` has integers, and names for dynamic dimensions: ``["batch", 3]``.
    #[pyo3(signature = (name, shape, dtype="f32"))]
    fn input(
        &self,
        py: Python<'_>,
        name: &str,
        shape: Vec<Bound<'_, PyAny>>,
        dtype: &str,
    ) -> PyResult<Tensor> {
        let dims = shape.iter().map(dim).collect::<PyResult<Vec<_>>>()?;
        let shape = Shape::from_dims(&dims, dtype.parse::<DType>().or_raise(py)?);
        let at = caller(py)?;
        let state = self.state();
        let inner = state.tracer.record(&at, |g| Ok(g.input(name, shape))).checked().or_raise(py)?;
        Ok(Tensor { inner })
    }

    /// A parameter with its value, an array: weights, which compiled models share and pack.
    fn param(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        let data = constant(value, None)?;
        let at = caller(py)?;
        let mut state = self.state();
        let shape = data.shape();
        let inner = state.tracer.record(&at, |g| Ok(g.param(name, shape))).checked().or_raise(py)?;
        let weight = Weight::owned(data.dtype(), data.dims(), data.bytes().clone()).or_raise(py)?;
        state.weights.insert(name, weight);
        Ok(Tensor { inner })
    }

    /// A fixed tensor: an array, or a number.
    #[pyo3(signature = (value, dtype=None))]
    fn constant(&self, py: Python<'_>, value: &Bound<'_, PyAny>, dtype: Option<&str>) -> PyResult<Tensor> {
        let dtype = dtype.map(str::parse::<DType>).transpose().or_raise(py)?;
        let data = constant(value, dtype)?;
        let at = caller(py)?;
        let inner = self.state().tracer.record(&at, |g| add_constant(g, data)).checked().or_raise(py)?;
        Ok(Tensor { inner })
    }

    /// Compiles what was recorded.
    ///
    /// Args:
    ///     outputs: Tensors by output name, or a list of tensors, which are called ``output_0``, ``output_1``, …
    ///     **options: As of `rlx.load`: ``device``, ``precision``, ``threads``, …
    ///
    /// Returns:
    ///     An `rlx.Model`.
    #[pyo3(signature = (outputs, **options))]
    fn compile(
        &self,
        py: Python<'_>,
        outputs: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Model> {
        let (names, tensors) = outputs_of(outputs)?;
        let given = options.cloned().unwrap_or_else(|| PyDict::new(py));
        let options = options::options(&given)?;
        let state = self.state();
        let graph = recorded(py, &state, &tensors)?;
        let weights = state.weights.clone();
        drop(state);
        let session = options.session().or_raise(py)?;
        let compile = options.compile_options().or_raise(py)?;
        let runner = Runner::from_graph(graph, weights, names, session, compile);
        Model::new(py, runner, None, given.unbind())
    }

    /// The graph in RLX's text form, with these outputs.
    #[pyo3(signature = (outputs))]
    fn text(&self, py: Python<'_>, outputs: &Bound<'_, PyAny>) -> PyResult<String> {
        let (_, tensors) = outputs_of(outputs)?;
        Ok(recorded(py, &self.state(), &tensors)?.to_string())
    }

    fn __repr__(&self) -> String {
        format!("<rlx.Graph {:?}>", self.state().name)
    }
}

/// The graph recorded so far with these outputs; recording may go on.
fn recorded(py: Python<'_>, state: &State, outputs: &[TracedTensor]) -> PyResult<rlx_ir::Graph> {
    let graph = state.tracer.snapshot(outputs).or_raise(py)?;
    verify_ok(&graph).or_raise(py)?;
    Ok(graph)
}

fn outputs_of(given: &Bound<'_, PyAny>) -> PyResult<(Vec<String>, Vec<TracedTensor>)> {
    if let Ok(one) = given.cast::<Tensor>() {
        return Ok((vec!["output_0".to_owned()], vec![one.get().inner.clone()]));
    }
    if let Ok(named) = given.cast::<PyDict>() {
        let pairs = named.iter().map(|(name, t)| Ok((name.extract()?, tensor(&t)?)));
        return pairs.collect::<PyResult<Vec<_>>>().map(|pairs| pairs.into_iter().unzip());
    }
    let tensors = given.try_iter()?.map(|t| tensor(&t?)).collect::<PyResult<Vec<_>>>()?;
    Ok(((0..tensors.len()).map(|i| format!("output_{i}")).collect(), tensors))
}

#[pymethods]
impl Tensor {
    /// NumPy leaves operators between its arrays and tensors to the tensors.
    #[classattr]
    #[pyo3(name = "__array_ufunc__")]
    const ARRAY_UFUNC: Option<Py<PyAny>> = None;

    /// The dimensions: integers, and the names of dynamic dimensions or expressions of them.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let shape = self.inner.try_shape().or_raise(py)?;
        let dim = |dim: &Dim| match *dim {
            Dim::Static(n) => Ok(n.into_pyobject(py)?.into_any()),
            Dim::Dynamic(symbol) => Ok(PyString::new(py, &sym::name(symbol)).into_any()),
            other => Ok(PyString::new(py, &other.to_string()).into_any()),
        };
        PyTuple::new(py, shape.dims().iter().map(dim).collect::<PyResult<Vec<_>>>()?)
    }

    /// The element type: ``"f32"``, ``"i64"``, …
    #[getter]
    fn dtype(&self) -> &'static str {
        self.inner.dtype().name()
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.inner.rank()
    }

    fn __add__(&self, other: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        self.with(BinaryOp::Add, other, false)
    }

    fn __radd__(&self, other: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        self.with(BinaryOp::Add, other, true)
    }

    fn __sub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        self.with(BinaryOp::Sub, other, false)
    }

    fn __rsub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        self.with(BinaryOp::Sub, other, true)
    }

    fn __mul__(&self, other: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        self.with(BinaryOp::Mul, other, false)
    }

    fn __rmul__(&self, other: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        self.with(BinaryOp::Mul, other, true)
    }

    fn __truediv__(&self, other: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        self.with(BinaryOp::Div, other, false)
    }

    fn __rtruediv__(&self, other: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        self.with(BinaryOp::Div, other, true)
    }

    fn __pow__(&self, other: &Bound<'_, PyAny>, modulo: Option<&Bound<'_, PyAny>>) -> PyResult<Tensor> {
        match modulo {
            None => self.with(BinaryOp::Pow, other, false),
            Some(_) => Err(PyTypeError::new_err("a power of tensors has no modulus")),
        }
    }

    fn __matmul__(&self, other: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        self.call("matmul", &[self.operand(other, true)?], other.py())
    }

    fn __rmatmul__(&self, other: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        let Arg::Tensor(other_tensor) = self.operand(other, true)? else {
            return Err(PyTypeError::new_err("a matmul takes tensors and arrays"));
        };
        Tensor { inner: other_tensor }.call("matmul", &[Arg::Tensor(self.inner.clone())], other.py())
    }

    fn __neg__(&self, py: Python<'_>) -> PyResult<Tensor> {
        Ok(Tensor { inner: trace::negate(&self.inner).or_raise(py)? })
    }

    fn __lt__(&self, other: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        self.call("less", &[self.operand(other, false)?], other.py())
    }

    fn __le__(&self, other: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        self.call("less_equal", &[self.operand(other, false)?], other.py())
    }

    fn __gt__(&self, other: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        self.call("greater", &[self.operand(other, false)?], other.py())
    }

    fn __ge__(&self, other: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        self.call("greater_equal", &[self.operand(other, false)?], other.py())
    }

    fn __bool__(&self) -> PyResult<bool> {
        Err(PyTypeError::new_err(
            "a traced tensor has no value yet, so it decides no branch; use x.where_(a, b)",
        ))
    }

    fn __getattr__(&self, name: &str) -> PyResult<BoundMethod> {
        match method(name) {
            Some(method) => Ok(BoundMethod { tensor: self.inner.clone(), method }),
            None => {
                let names = trace::methods().map(|m| python_name(m.name));
                let close = rlx_runtime::nearest(name, names).map(|n| format!("; did you mean {n:?}?"));
                let message = format!("a tensor has no method {name:?}{}", close.unwrap_or_default());
                Err(PyAttributeError::new_err(message))
            }
        }
    }

    fn __dir__(&self) -> Vec<&'static str> {
        ["shape", "dtype", "ndim"].into_iter().chain(trace::methods().map(|m| python_name(m.name))).collect()
    }

    fn __repr__(&self) -> String {
        self.inner.try_shape().map_or_else(|e| format!("<rlx.Tensor: {e}>"), |s| format!("<rlx.Tensor {s}>"))
    }
}

impl Tensor {
    fn with(&self, op: BinaryOp, other: &Bound<'_, PyAny>, reflected: bool) -> PyResult<Tensor> {
        let py = other.py();
        let (own, other) = (Arg::Tensor(self.inner.clone()), self.operand(other, false)?);
        let (a, b) = if reflected { (other, own) } else { (own, other) };
        let inner = trace::binary_at(&caller(py)?, op, &a, &b).or_raise(py)?;
        Ok(Tensor { inner })
    }

    fn call(&self, name: &str, args: &[Arg], py: Python<'_>) -> PyResult<Tensor> {
        let inner = trace::call_at(&caller(py)?, name, &self.inner, args).or_raise(py)?;
        Ok(Tensor { inner })
    }

    fn operand(&self, value: &Bound<'_, PyAny>, always_tensor: bool) -> PyResult<Arg> {
        operand(&self.inner, value, always_tensor)
    }
}

/// A tensor of the graph of `like`, a number, or an array as a constant.
fn operand(like: &TracedTensor, value: &Bound<'_, PyAny>, always_tensor: bool) -> PyResult<Arg> {
    if let Ok(tensor) = value.cast::<Tensor>() {
        return Ok(Arg::Tensor(same_graph(like, &tensor.get().inner)?));
    }
    let number = value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>();
    if number && !always_tensor && !value.is_instance_of::<PyBool>() {
        return Ok(Arg::Float(value.extract()?));
    }
    let py = value.py();
    let data = constant(value, Some(like.dtype()))?;
    let inner = like.beside(&caller(py)?, |g| add_constant(g, data)).checked().or_raise(py)?;
    Ok(Arg::Tensor(inner))
}

fn same_graph(like: &TracedTensor, other: &TracedTensor) -> PyResult<TracedTensor> {
    if like.is_beside(other) {
        return Ok(other.clone());
    }
    Err(PyValueError::new_err("the tensors belong to different graphs"))
}

#[pymethods]
impl BoundMethod {
    /// Adds the op to the graph. Arguments by position or by name; trailing axes and flags may be left out.
    #[pyo3(signature = (*args, **named))]
    fn __call__(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Tensor> {
        let Method { name, args: declared, .. } = self.method;
        if args.len() > declared.len() {
            let message = format!("{name} takes {} arguments, {} were given", declared.len(), args.len());
            return Err(PyTypeError::new_err(message));
        }
        for key in named.iter().flat_map(|named| named.keys()) {
            let key: String = key.extract()?;
            if !declared.iter().skip(args.len()).any(|(arg, _)| *arg == key) {
                return Err(PyTypeError::new_err(format!("{name} got an unexpected argument {key:?}")));
            }
        }
        let mut made = Vec::with_capacity(declared.len());
        for (i, (arg, kind)) in declared.iter().enumerate() {
            let given = match args.get_item(i) {
                Ok(value) => Some(value),
                Err(_) => named.map(|named| named.get_item(arg)).transpose()?.flatten(),
            };
            made.push(match given {
                Some(value) => self.argument(arg, *kind, &value)?,
                None => absent(*kind).ok_or_else(|| {
                    PyTypeError::new_err(format!("{name} misses its argument {arg:?}: {}", kind.describe()))
                })?,
            });
        }
        let inner = trace::call_at(&caller(py)?, name, &self.tensor, &made).or_raise(py)?;
        Ok(Tensor { inner })
    }

    #[getter]
    fn __doc__(&self) -> String {
        let args: Vec<&str> = self.method.args.iter().map(|(name, _)| *name).collect();
        format!("{}({})\n\n{}", self.method.name, args.join(", "), self.method.doc.trim())
    }

    #[getter]
    fn __name__(&self) -> &'static str {
        self.method.name
    }

    fn __repr__(&self) -> String {
        format!("<method {} of rlx.Tensor>", self.method.name)
    }
}

impl BoundMethod {
    fn argument(&self, name: &str, kind: ArgKind, value: &Bound<'_, PyAny>) -> PyResult<Arg> {
        let py = value.py();
        let wrong = |_: PyErr| {
            PyTypeError::new_err(format!(
                "argument {name:?} of {} must be {}",
                self.method.name,
                kind.describe()
            ))
        };
        match kind {
            ArgKind::Tensor => operand(&self.tensor, value, true),
            ArgKind::Operand => operand(&self.tensor, value, false),
            ArgKind::Tensors => {
                let one = |t: PyResult<Bound<'_, PyAny>>| same_graph(&self.tensor, &tensor(&t?)?);
                Ok(Arg::Tensors(value.try_iter()?.map(one).collect::<PyResult<_>>()?))
            }
            ArgKind::Axis | ArgKind::Size => Ok(Arg::Int(value.extract().map_err(wrong)?)),
            ArgKind::Number => Ok(Arg::Float(value.extract().map_err(wrong)?)),
            ArgKind::Flag => Ok(Arg::Flag(value.extract().map_err(wrong)?)),
            ArgKind::DType => {
                let name: String = value.extract().map_err(wrong)?;
                Ok(Arg::DType(name.parse().or_raise(py)?))
            }
            ArgKind::Axes | ArgKind::Dims | ArgKind::Permutation => {
                let ints = value.extract::<Vec<i64>>().or_else(|_| value.extract().map(|i| vec![i]));
                Ok(Arg::Ints(ints.map_err(wrong)?))
            }
            ArgKind::Extents => {
                let dims = value.try_iter()?.map(|d| dim(&d?)).collect::<PyResult<Vec<_>>>();
                Ok(Arg::Dims(dims.map_err(wrong)?))
            }
            _ => Err(PyTypeError::new_err(format!("argument {name:?} cannot be given from Python"))),
        }
    }
}

/// What Python calls a method: one whose name is a word of the language ends in an underscore.
pub fn python_name(name: &'static str) -> &'static str {
    match name {
        "not" => "not_",
        "and" => "and_",
        "or" => "or_",
        _ => name,
    }
}

fn method(name: &str) -> Option<&'static Method> {
    trace::methods().find(|m| python_name(m.name) == name)
}

/// The value of an argument that is left out.
fn absent(kind: ArgKind) -> Option<Arg> {
    match kind {
        ArgKind::Axes => Some(Arg::Ints(Vec::new())),
        ArgKind::Flag => Some(Arg::Flag(false)),
        ArgKind::Axis => Some(Arg::Int(-1)),
        _ => None,
    }
}

fn tensor(value: &Bound<'_, PyAny>) -> PyResult<TracedTensor> {
    match value.cast::<Tensor>() {
        Ok(tensor) => Ok(tensor.get().inner.clone()),
        Err(_) => Err(PyTypeError::new_err(format!("{} is not an rlx.Tensor", value.get_type()))),
    }
}

fn dim(value: &Bound<'_, PyAny>) -> PyResult<Dim> {
    if let Ok(name) = value.cast::<PyString>() {
        return Ok(Dim::Dynamic(sym::named(name.to_cow()?.as_ref())));
    }
    let size = value.extract::<usize>();
    size.map(Dim::Static)
        .map_err(|_| PyTypeError::new_err("a dimension is a size, or a name for a dynamic one"))
}

fn constant(value: &Bound<'_, PyAny>, wanted: Option<DType>) -> PyResult<ConstData> {
    array::input(value, wanted)?.to_const(value.py())
}

fn add_constant(g: &mut rlx_ir::Graph, data: ConstData) -> rlx_ir::Result<rlx_ir::NodeId> {
    rlx_ir::GraphExt::try_constant(g, data)
}

/// The line of Python that is running: `model.py:12`.
fn caller(py: Python<'_>) -> PyResult<String> {
    let frame = match py.import("sys")?.call_method1("_getframe", (0,)) {
        Ok(frame) => frame,
        // Other interpreters need not have it.
        Err(_) => return Ok("Python".to_owned()),
    };
    let file: String = frame.getattr("f_code")?.getattr("co_filename")?.extract()?;
    let line: u32 = frame.getattr("f_lineno")?.extract()?;
    Ok(format!("{file}:{line}"))
}
