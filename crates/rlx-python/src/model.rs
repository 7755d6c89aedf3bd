//! `rlx.Model`: a model on a device.

use std::time::Instant;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use rlx::compare::Tolerances;
use rlx::inputs::InputLimit;
use rlx::verify::{Case, Reference, verify_compiled, verify_imported};
use rlx::{Finished, ModelValue, Runner, SharedRunner};
use rlx_ir::{ConstData, Error, ErrorKind};
use rlx_runtime::{PrecisionPolicy, Session, TensorInfo, TensorView, nearest};

use crate::array::{self, Input, Lease};
use crate::errors::OrRaise;
use crate::options::{self, Source};
use crate::spec::TensorSpec;
use crate::watch::{Cancel, Watch};
use crate::{image, inspect, values, verification};

/// A model on a device. Any number of threads may run it at once; they share its weights.
///
/// Made by `rlx.load`, `rlx.compile` and ``Graph.compile``.
#[pyclass(frozen, module = "rlx")]
pub struct Model {
    shared: SharedRunner,
    name: String,
    device: &'static str,
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorSpec>,
    /// Why the outputs are not known, where they are not.
    no_outputs: Option<Error>,
    /// The names of inputs and outputs, where some are declared as strings, sequences, optionals or maps.
    structured: Option<Names>,
    path: Option<Py<PyAny>>,
    options: Py<PyDict>,
}

/// The names that a model declares.
struct Names {
    inputs: Vec<String>,
    outputs: Vec<String>,
}

impl Model {
    /// A model of a runner that is open.
    pub fn new(
        py: Python<'_>,
        runner: Runner,
        path: Option<Py<PyAny>>,
        options: Py<PyDict>,
    ) -> PyResult<Self> {
        let names = |model: &rlx::Model| Names {
            inputs: model.input_names().map(str::to_owned).collect(),
            outputs: model.output_names().map(str::to_owned).collect(),
        };
        let structured = runner.model().filter(|model| !model.is_plain()).map(names);
        let inputs = match (runner.inputs(), &structured) {
            (Err(_), Some(_)) => runner.model().map(rlx::Model::input_tensors).unwrap_or_default(),
            (inputs, _) => inputs.or_raise(py)?,
        };
        let (outputs, no_outputs) = match runner.outputs() {
            Ok(outputs) => (outputs.iter().map(TensorSpec::of).collect(), None),
            Err(e) => (Vec::new(), Some(e)),
        };
        let (name, device) = (runner.name().to_owned(), runner.session().device_id().feature());
        let shared = runner.shared();
        Ok(Model { shared, name, device, inputs, outputs, no_outputs, structured, path, options })
    }

    /// The inputs of a call by name: a mapping, or a sequence in the model's order.
    fn gather(&self, given: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<(String, Input)>> {
        let Some(given) = given.filter(|given| !given.is_none()) else { return Ok(Vec::new()) };
        let wanted = |name: &str| self.inputs.iter().find(|i| i.name == name).map(|i| i.dtype);
        let named = |name: String, value: &Bound<'_, PyAny>| {
            let input = array::input(value, wanted(&name)).inspect_err(|e| {
                let note = format!("input {name:?}");
                // Which input it is; Python 3.11 shows it below the error.
                drop(e.value(value.py()).call_method1("add_note", (note,)));
            })?;
            Ok((name, input))
        };
        if let Ok(dict) = given.cast::<PyDict>() {
            return dict.iter().map(|(name, value)| named(name.extract()?, &value)).collect();
        }
        if given.hasattr("items")? {
            let items = given.call_method0("items")?;
            let pair = |pair: PyResult<Bound<'_, PyAny>>| {
                let pair = pair?;
                named(pair.get_item(0)?.extract()?, &pair.get_item(1)?)
            };
            return items.try_iter()?.map(pair).collect();
        }
        if !given.is_instance_of::<PyList>() && !given.is_instance_of::<PyTuple>() {
            return Err(PyTypeError::new_err("inputs are a dict of arrays by name, or a list of arrays"));
        }
        let values: Vec<Bound<'_, PyAny>> = given.try_iter()?.collect::<PyResult<_>>()?;
        if values.len() > self.inputs.len() {
            let message =
                format!("{} inputs were given, the model takes {}", values.len(), self.inputs.len());
            return Err(PyValueError::new_err(message));
        }
        self.inputs.iter().zip(&values).map(|(info, value)| named(info.name.clone(), value)).collect()
    }

    /// Runs on values of any type, by name or in the model's order.
    fn run_values(
        &self,
        py: Python<'_>,
        names: &Names,
        inputs: Option<&Bound<'_, PyAny>>,
        watch: Watch,
    ) -> PyResult<Vec<(String, ModelValue)>> {
        let wanted = |name: &str| self.inputs.iter().find(|info| info.name == name).map(|info| info.dtype);
        let inputs = values::named(inputs, &names.inputs, &wanted)?;
        let shared = &self.shared;
        watch.run(py, |progress| {
            let given: Vec<(&str, &ModelValue)> = inputs.iter().map(|(n, v)| (n.as_str(), v)).collect();
            shared.with(|runner| runner.run_values_with_progress(&given, progress))
        })
    }

    /// A run for the outputs of these names, or all.
    fn execute(
        &self,
        py: Python<'_>,
        inputs: Option<&Bound<'_, PyAny>>,
        outputs: Option<&[String]>,
        watch: Watch,
    ) -> PyResult<Finished> {
        let inputs = self.gather(inputs)?;
        let shared = &self.shared;
        let outputs: Option<Vec<&str>> = outputs.map(|names| names.iter().map(String::as_str).collect());
        watch.run(py, |progress| match &outputs {
            Some(outputs) => shared.run_outputs(&views(&inputs), outputs, progress),
            None => shared.run_views_with_progress(&views(&inputs), progress),
        })
    }

    /// The outputs of a run as arrays: all, or those named, in that order.
    fn arrays<'py>(
        &self,
        py: Python<'py>,
        finished: Finished,
        wanted: Option<&[String]>,
        copy: bool,
        out: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        let names: Vec<String> = finished.names().to_vec();
        let chosen: Vec<usize> = match wanted {
            None => (0..names.len()).collect(),
            Some(wanted) => wanted.iter().map(|name| position(py, &names, name)).collect::<PyResult<_>>()?,
        };
        if let Some(out) = out {
            for name in out.keys() {
                position(py, &names, &name.extract::<String>()?)?;
            }
        }
        let given = |name: &str| Ok::<_, PyErr>(out.map(|out| out.get_item(name)).transpose()?.flatten());
        let into = |view: TensorView<'_>, given: Bound<'py, PyAny>| {
            array::copy_into(view, &given)?;
            Ok::<_, PyErr>(given)
        };
        let mut arrays = Vec::with_capacity(chosen.len());
        if copy {
            for i in chosen {
                let view = finished.output(i).or_raise(py)?;
                let array = match given(&names[i])? {
                    Some(given) => into(view, given)?,
                    None => array::copied(py, view)?,
                };
                arrays.push((names[i].clone(), array));
            }
        } else {
            let lease = Lease::new(py, finished)?;
            for i in chosen {
                let array = match given(&names[i])? {
                    Some(given) => lease.get().read(i, |view| into(view, given))?,
                    None => Lease::array(&lease, i)?,
                };
                arrays.push((names[i].clone(), array));
            }
        }
        Ok(arrays)
    }
}

fn views(inputs: &[(String, Input)]) -> Vec<TensorView<'_>> {
    inputs.iter().map(|(name, input)| input.view(name)).collect()
}

fn position(py: Python<'_>, names: &[String], name: &str) -> PyResult<usize> {
    let found = names.iter().position(|n| n == name).ok_or_else(|| {
        let message = format!("the model has no output {name:?}; its outputs: {}", names.join(", "));
        let e = Error::new(ErrorKind::Binding, message);
        match nearest(name, names.iter().map(String::as_str)) {
            Some(close) => e.with_hint(format!("did you mean {close:?}?")),
            None => e,
        }
    });
    found.or_raise(py)
}

#[pymethods]
impl Model {
    /// Opens a model; `rlx.load` has the options.
    #[staticmethod]
    #[pyo3(signature = (source, options, progress=None, timeout=None, cancel=None))]
    fn open(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        options: &Bound<'_, PyDict>,
        progress: Option<Py<PyAny>>,
        timeout: Option<f64>,
        cancel: Option<&Bound<'_, Cancel>>,
    ) -> PyResult<Self> {
        let (from, parsed) = (Source::new(source)?, options::options(options)?);
        let path = matches!(from, Source::File(_)).then(|| source.clone().unbind());
        let watch = Watch::new(progress, timeout, cancel)?;
        let runner = watch.run(py, |progress| from.open(&parsed, progress))?;
        Self::new(py, runner, path, options.copy()?.unbind())
    }

    /// The model's name: that of its file, without the ending.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The device it runs on: ``"cpu"``, ``"vulkan"``, …
    #[getter]
    fn device(&self) -> &str {
        self.device
    }

    /// The precision asked for; ``inspect()["precision"]`` says what is used.
    #[getter]
    fn precision(&self, py: Python<'_>) -> String {
        let shared = &self.shared;
        py.detach(|| shared.with(|runner| runner.options().precision.to_string()))
    }

    /// How many threads the device computes with, where that is known.
    #[getter]
    fn threads(&self, py: Python<'_>) -> Option<usize> {
        let shared = &self.shared;
        py.detach(|| shared.with(|runner| runner.session().threads()))
    }

    /// The inputs, as a list of `TensorSpec`.
    #[getter]
    fn inputs(&self) -> Vec<TensorSpec> {
        self.inputs.iter().map(TensorSpec::of).collect()
    }

    /// The outputs, as a list of `TensorSpec`: what the file declares, which may be less precise than what it computes.
    #[getter]
    fn outputs(&self, py: Python<'_>) -> PyResult<Vec<TensorSpec>> {
        match &self.no_outputs {
            Some(e) => Err(e.clone()).or_raise(py),
            None => Ok(self.outputs.clone()),
        }
    }

    /// The file it was loaded from; ``None`` for one from memory.
    #[getter]
    fn path(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.path.as_ref().map(|path| path.clone_ref(py))
    }

    /// The options it was loaded with, as a dict.
    #[getter]
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.options.bind(py).copy()
    }

    /// What an ONNX file says about itself, as a dict: producer, versions, descriptions, ``opsets``, and the further
    /// ``properties``. ``None`` for compiled models and graphs.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let shared = &self.shared;
        let Some(found) = py.detach(|| shared.metadata()) else { return Ok(None) };
        let dict = PyDict::new(py);
        dict.set_item("producer_name", found.producer_name)?;
        dict.set_item("producer_version", found.producer_version)?;
        dict.set_item("domain", found.domain)?;
        dict.set_item("model_version", found.model_version)?;
        dict.set_item("description", found.description)?;
        dict.set_item("graph_name", found.graph_name)?;
        dict.set_item("graph_description", found.graph_description)?;
        dict.set_item("ir_version", found.ir_version)?;
        let (opsets, properties) = (PyDict::new(py), PyDict::new(py));
        found.opsets.iter().try_for_each(|(domain, version)| opsets.set_item(domain, version))?;
        found.properties.iter().try_for_each(|(key, value)| properties.set_item(key, value))?;
        dict.set_item("opsets", opsets)?;
        dict.set_item("properties", properties)?;
        Ok(Some(dict))
    }

    /// Runs the model.
    ///
    /// The model is imported and compiled at the first run. The GIL is released while it runs; Ctrl-C stops it.
    ///
    /// Args:
    ///     inputs: Arrays by name, or a list of arrays in the model's order. Strings are arrays of ``str`` objects, sequences are lists of
    ///         arrays, an optional without a value is ``None``. An array is a NumPy array, anything with
    ///         ``__dlpack__`` (a torch tensor) or with the buffer protocol, of the declared element type and shape. Contiguous arrays are used
    ///         where they are, without a copy; do not write to them while the model runs. Lists and numbers are converted.
    ///     outputs: The names of the outputs to return; all by default.
    ///     copy: If false, the arrays returned are read-only and are the model's own memory, which is kept until they are gone.
    ///     out: Arrays by output name to write into, of the output's shape and element type.
    ///     progress: Called as ``progress(stage, done, total, text)`` between steps, as in ``("compiling", 3, 12, "fuse")``.
    ///     timeout: Seconds after which `rlx.Cancelled` is raised.
    ///     cancel: An `rlx.Cancel`, which stops the call from another thread.
    ///
    /// Returns:
    ///     A dict of NumPy arrays by output name. Strings are arrays of objects, sequences are lists, and the maps of a classifier are a
    ///     list of dicts.
    #[pyo3(signature = (inputs=None, outputs=None, *, copy=true, out=None, progress=None, timeout=None, cancel=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn run<'py>(
        &self,
        py: Python<'py>,
        inputs: Option<&Bound<'py, PyAny>>,
        outputs: Option<Vec<String>>,
        copy: bool,
        out: Option<&Bound<'py, PyDict>>,
        progress: Option<Py<PyAny>>,
        timeout: Option<f64>,
        cancel: Option<&Bound<'_, Cancel>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (watch, dict) = (Watch::new(progress, timeout, cancel)?, PyDict::new(py));
        if let Some(names) = &self.structured {
            if out.is_some() || !copy {
                let message =
                    "a model of strings, sequences or maps gives new values: leave out copy and out";
                return Err(PyValueError::new_err(message));
            }
            let mut found = self.run_values(py, names, inputs, watch)?;
            for name in outputs.as_ref().unwrap_or(&names.outputs) {
                let at = position(py, &names.outputs, name)?;
                let value = std::mem::replace(&mut found[at].1, ModelValue::Nothing);
                dict.set_item(name, values::object(py, value)?)?;
            }
            return Ok(dict);
        }
        let finished = self.execute(py, inputs, outputs.as_deref(), watch)?;
        for (name, array) in self.arrays(py, finished, outputs.as_deref(), copy, out)? {
            dict.set_item(name, array)?;
        }
        Ok(dict)
    }

    /// Runs the model on arrays in the order of its inputs, or by name; returns its output, or a tuple of its outputs.
    #[pyo3(signature = (*args, **named))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let inputs = PyDict::new(py);
        let most = self.structured.as_ref().map_or(self.inputs.len(), |names| names.inputs.len());
        if args.len() > most {
            let message = format!("{} inputs were given, the model takes {most}", args.len());
            return Err(PyTypeError::new_err(message));
        }
        let structured = self.structured.as_ref().map(|names| names.inputs.iter().collect::<Vec<_>>());
        let names = structured.unwrap_or_else(|| self.inputs.iter().map(|info| &info.name).collect());
        for (name, value) in names.into_iter().zip(args) {
            inputs.set_item(name, value)?;
        }
        for (name, value) in named.into_iter().flatten() {
            if inputs.contains(&name)? {
                return Err(PyTypeError::new_err(format!("input {name} was given twice")));
            }
            inputs.set_item(name, value)?;
        }
        let mut arrays = if let Some(names) = &self.structured {
            let found = self.run_values(py, names, Some(inputs.as_any()), Watch::default())?;
            let object = |(name, value)| Ok((name, values::object(py, value)?));
            found.into_iter().map(object).collect::<PyResult<Vec<_>>>()?
        } else {
            let finished = self.execute(py, Some(inputs.as_any()), None, Watch::default())?;
            self.arrays(py, finished, None, true, None)?
        };
        if arrays.len() == 1 {
            return Ok(arrays.remove(0).1);
        }
        Ok(PyTuple::new(py, arrays.into_iter().map(|(_, array)| array))?.into_any())
    }

    /// Imports and compiles the model now instead of at the first run. ``inputs`` are needed if their values decide shapes.
    #[pyo3(signature = (inputs=None, *, progress=None, timeout=None, cancel=None))]
    fn prepare(
        &self,
        py: Python<'_>,
        inputs: Option<&Bound<'_, PyAny>>,
        progress: Option<Py<PyAny>>,
        timeout: Option<f64>,
        cancel: Option<&Bound<'_, Cancel>>,
    ) -> PyResult<()> {
        let inputs = self.constants(py, inputs)?;
        let shared = &self.shared;
        Watch::new(progress, timeout, cancel)?.run(py, |progress| {
            shared.with(|runner| runner.prepare_with_progress(&borrowed(&inputs), progress).map(drop))
        })
    }

    /// Writes the compiled model to a file that `rlx.load` loads without compiling; see `rlx.compile`.
    #[pyo3(signature = (path, *, slim=false, inputs=None, progress=None, timeout=None, cancel=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn save(
        &self,
        py: Python<'_>,
        path: std::path::PathBuf,
        slim: bool,
        inputs: Option<&Bound<'_, PyAny>>,
        progress: Option<Py<PyAny>>,
        timeout: Option<f64>,
        cancel: Option<&Bound<'_, Cancel>>,
    ) -> PyResult<()> {
        let inputs = self.constants(py, inputs)?;
        let shared = &self.shared;
        Watch::new(progress, timeout, cancel)?.run(py, |progress| {
            shared.with(|runner| {
                runner.compile_to_with_progress(&path, &borrowed(&inputs), slim, progress).map(drop)
            })
        })
    }

    /// Compares the device with the oracle, or with a trusted device; `rlx.verify` has the arguments.
    #[pyo3(signature = (inputs, *, against=None, rtol=None, atol=None, floor=0.0, progress=None, timeout=None, cancel=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyAny>,
        against: Option<&str>,
        rtol: Option<f64>,
        atol: Option<f64>,
        floor: f64,
        progress: Option<Py<PyAny>>,
        timeout: Option<f64>,
        cancel: Option<&Bound<'_, Cancel>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let inputs = self.constants(py, Some(inputs))?;
        let device = |name: &str| {
            let device = name
                .parse()
                .map_err(|e: rlx_runtime::ParseDeviceError| Error::new(ErrorKind::Config, e.to_string()))?;
            Session::try_new(device)
        };
        let trusted = against.map(device).transpose().or_raise(py)?;
        let shared = &self.shared;
        let (found, names) = Watch::new(progress, timeout, cancel)?.run(py, |progress| {
            shared.with(|runner| {
                let given = borrowed(&inputs);
                if let Some(artefact) = runner.artefact() {
                    artefact.verify_with_progress(progress)?;
                }
                let imported = runner.import_with_progress(&given, progress)?;
                let reference = trusted.as_ref().map_or(Reference::Oracle, Reference::Device);
                let (session, options) = (runner.session().clone(), runner.options().clone());
                let asked = match options.policy {
                    Some(PrecisionPolicy::AlwaysF32) => rlx_ir::DType::F32,
                    Some(PrecisionPolicy::AutoMixedBf16) => rlx_ir::DType::BF16,
                    Some(_) => rlx_ir::DType::F16,
                    None => options.precision.dtype(),
                };
                let tolerance = Tolerances { rtol, atol, floor, asked: Some(asked) };
                let found = if runner.artefact().is_some() {
                    let case = Case { graph: &imported.graph, weights: &imported.weights, inputs: &given };
                    let compiled = runner.prepare_with_progress(&given, progress)?.compiled;
                    verify_compiled(compiled, &session, reference, &options, case, tolerance, progress)?
                } else {
                    verify_imported(&session, reference, &options, &imported, &given, tolerance, progress)?
                };
                Ok((found, imported.outputs.clone()))
            })
        })?;
        verification::dict(py, &found, &names)
    }

    /// Times runs; `rlx.bench` has the arguments. Returns times in seconds, and memory.
    #[pyo3(signature = (inputs, runs, warmup, *, timeout=None, cancel=None))]
    fn time<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyAny>,
        runs: usize,
        warmup: usize,
        timeout: Option<f64>,
        cancel: Option<&Bound<'_, Cancel>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let inputs = self.gather(Some(inputs))?;
        let shared = &self.shared;
        let (times, memory, precision) = Watch::new(None, timeout, cancel)?.run(py, |progress| {
            let views = views(&inputs);
            let mut times = Vec::new();
            let mut last = None;
            for _ in 0..=warmup.saturating_add(runs) {
                drop(last.take());
                let start = Instant::now();
                let finished = shared.run_views_with_progress(&views, progress)?;
                times.push(start.elapsed().as_secs_f64());
                last = Some(finished);
            }
            let compiled = last.as_ref().and_then(Finished::compiled);
            let memory = compiled.map(|c| c.memory());
            Ok((times, memory, compiled.map(|c| c.precision().to_string())))
        })?;
        let dict = PyDict::new(py);
        dict.set_item("first", times[0])?;
        dict.set_item("times", times[1 + warmup..].to_vec())?;
        dict.set_item("precision", precision)?;
        if let Some(memory) = memory {
            dict.set_item("weight_bytes", memory.weight_bytes)?;
            dict.set_item("arena_bytes", memory.arena_bytes)?;
        }
        Ok(dict)
    }

    /// What the model consists of and how the device runs it; see `rlx.inspect`.
    #[pyo3(signature = (inputs=None, *, progress=None, timeout=None, cancel=None))]
    fn inspect<'py>(
        &self,
        py: Python<'py>,
        inputs: Option<&Bound<'py, PyAny>>,
        progress: Option<Py<PyAny>>,
        timeout: Option<f64>,
        cancel: Option<&Bound<'_, Cancel>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let inputs = self.constants(py, inputs)?;
        let shared = &self.shared;
        let facts = Watch::new(progress, timeout, cancel)?.run(py, |progress| {
            shared.with(|runner| inspect::Facts::of(runner, &borrowed(&inputs), progress))
        })?;
        facts.to_dict(py)
    }

    /// The tensor that an input gets for a picture: ``model.run({"image": model.image("photo.jpg")})``.
    ///
    /// Args:
    ///     source: The path or the bytes of a JPEG, PNG or WebP file, or an array of bytes ``[height, width]`` or
    ///         ``[height, width, channels]``.
    ///     input: The name of the input; the first by default.
    ///     preset: ``"imagenet"``, ``"clip"``, ``"yolo-letterbox"``, or ``"none"``. By default what the model's metadata or a
    ///         ``preprocessor_config.json`` beside it says.
    ///     resize: The shorter side, ``(width, height)``, ``"input"``, ``"letterbox"`` or ``("letterbox", width, height)``; as Pillow does.
    ///     filter: ``"nearest"``, ``"box"``, ``"bilinear"``, ``"hamming"``, ``"bicubic"``, ``"lanczos"``.
    ///     crop: The part in the middle that is kept: a number or ``(width, height)``.
    ///     scale, mean, std: An element is ``(byte * scale - mean) / std``; ``scale`` is 1/255 for float inputs by default.
    ///     colors: ``"rgb"`` or ``"bgr"``.
    ///     layout: ``"nchw"`` or ``"nhwc"``, where the shape does not tell.
    ///
    /// Returns:
    ///     A NumPy array of one item, ``[1, channels, height, width]`` or as the input has it.
    #[pyo3(signature = (source, input=None, **options))]
    fn image<'py>(
        &self,
        py: Python<'py>,
        source: &Bound<'py, PyAny>,
        input: Option<&str>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let info = match input {
            Some(name) => rlx::inputs::find(&self.inputs, name).or_raise(py)?,
            None => self.inputs.first().ok_or_else(|| PyValueError::new_err("the model has no inputs"))?,
        };
        let shared = &self.shared;
        let properties = py.detach(|| shared.metadata()).map(|m| m.properties).unwrap_or_default();
        let path = self.path.as_ref().map(|path| path.extract::<std::path::PathBuf>(py)).transpose()?;
        let preprocess = image::preprocess(py, path.as_deref(), &properties, info, options)?;
        let picture = image::open(source)?;
        let tensor = py.detach(|| preprocess.apply(&picture, info, InputLimit::default())).or_raise(py)?;
        array::copied(py, (info.name.as_str(), &tensor).into())
    }

    /// Models are pickled by path and options, and loaded again.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Some(path) = &self.path else {
            return Err(PyTypeError::new_err(
                "a model that was not loaded from a file cannot be pickled; save it first",
            ));
        };
        let path = py.import("os")?.getattr("path")?.call_method1("abspath", (path,))?;
        let load = py.import("rlx")?.getattr("_load")?;
        PyTuple::new(
            py,
            [load, PyTuple::new(py, [path, self.options.bind(py).clone().into_any()])?.into_any()],
        )
    }

    fn __repr__(&self) -> String {
        format!("<rlx.Model {:?} on {}>", self.name, self.device)
    }
}

impl Model {
    /// Inputs that are kept, as some calls need them.
    fn constants(
        &self,
        py: Python<'_>,
        inputs: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<(String, ConstData)>> {
        let inputs = self.gather(inputs)?;
        inputs.into_iter().map(|(name, input)| Ok((name, input.to_const(py)?))).collect()
    }
}

fn borrowed(inputs: &[(String, ConstData)]) -> Vec<(&str, &ConstData)> {
    inputs.iter().map(|(name, data)| (name.as_str(), data)).collect()
}
