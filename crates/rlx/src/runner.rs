//! A [`Runner`]: a model on a device.

mod cached;
mod cost;
mod stages;

use std::path::Path;
use std::sync::Arc;

use rlx_ir::{ConstData, Error, ErrorKind, Graph, Node, Op, Progress, Result, Shape, WeightStore};
use rlx_onnx::{Imported, Structure};
use rlx_runtime::{
    AotCache, Artefact, CompileOptions, CompiledGraph, Device, NewArtefact, Session, TensorInfo, TensorView,
};

use self::stages::Stages;
use crate::values::{Inputs, ModelValue, Structured, assembled};
use crate::{Metadata, Model};

/// Runs a model: imports and compiles it at first use, and again for each new value of an input that decides a
/// shape. An artefact of `rlx compile` is loaded without either.
#[derive(Debug)]
pub struct Runner {
    source: Source,
    session: Session,
    options: CompileOptions,
    ready: Vec<Compiled>,
    /// How many variants were compiled or loaded so far.
    variants: u64,
    cache: Option<AotCache>,
    /// The parts of the model that compute what decides shapes behind them.
    stages: Stages,
}

/// Where the compiled graph comes from.
#[derive(Debug)]
enum Source {
    Onnx(Box<Model>),
    Graph(Arc<Imported>),
    Artefact(Box<Artefact>),
}

#[derive(Debug)]
pub(crate) struct Compiled {
    /// What it was compiled from; `None` for an artefact.
    of: Option<Arc<Imported>>,
    pub(crate) graph: CompiledGraph,
    pub(crate) outputs: Vec<String>,
    /// No other variant of the model has it, also later.
    pub(crate) id: u64,
    /// Whether an executable of it ran, so that its weights are prepared.
    pub(crate) warm: bool,
    /// The input values for which an artefact is valid.
    decided: Vec<(String, ConstData)>,
}

/// A compiled graph with its weights set, and the model's names of its outputs.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// The graph.
    pub compiled: &'a mut CompiledGraph,
    /// The model's names of its outputs, in order.
    pub outputs: &'a [String],
}

/// Maximum number of cached compilations per model; the oldest is dropped first.
const MOST_COMPILED: usize = 8;

impl Runner {
    /// A model file on the CPU, with default options: an ONNX model, or an artefact of `rlx compile`.
    ///
    /// # Errors
    /// A file that cannot be read or is not a model.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with_progress(path, &Progress::none())
    }

    /// As [`Runner::open`], with progress and cancellation.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use rlx::prelude::*;
    /// let cancel = Cancel::new().with_deadline(Duration::from_secs(5));
    /// let progress = Progress::from(&cancel).reporting(|event| eprintln!("{event}"));
    /// let mut digits = rlx::Runner::open_with_progress("models/digits/digits.onnx", &progress)?;
    /// let image = ConstData::from_f32(&[1, 1, 8, 8], &[0.5; 64])?;
    /// let outputs = digits.run_with_progress(&[("image", &image)], &progress)?;
    /// # Ok::<(), rlx::prelude::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Runner::open`]; [`ErrorKind::Cancelled`].
    pub fn open_with_progress(path: impl AsRef<Path>, progress: &Progress) -> Result<Self> {
        let (path, session) = (path.as_ref(), Session::try_new(Device::Cpu)?);
        if Artefact::is_artefact(path) {
            return Self::from_artefact_with_progress(Artefact::open(path)?, session, progress);
        }
        let model = Model::open_with_progress(path, progress)?;
        Ok(Self::new(model, session, CompileOptions::try_new()?))
    }

    /// A model on a session's device, compiled with `options`.
    pub fn new(model: Model, session: Session, options: CompileOptions) -> Self {
        Self::of(Source::Onnx(Box::new(model)), session, options)
    }

    /// Nothing is compiled yet, and nothing cached.
    fn of(source: Source, session: Session, options: CompileOptions) -> Self {
        let (ready, stages) = (Vec::new(), Stages::default());
        Runner { source, session, options, ready, variants: 0, cache: None, stages }
    }

    /// A graph that was written or traced in a program, with the values of its parameters and the names of its outputs.
    ///
    /// ```
    /// use rlx::prelude::*;
    /// let graph = trace("double", |t| vec![t.input("x", Shape::new(&[2], DType::F32)) * 2.0]);
    /// let mut double = Runner::from_graph(graph, WeightStore::new(), ["y"], Session::try_new(Device::Cpu)?, CompileOptions::default());
    /// let outputs = double.run(&[("x", &ConstData::from_f32(&[2], &[1.0, 3.0])?)])?;
    /// assert_eq!((outputs[0].0.as_str(), outputs[0].1.as_f32()?), ("y", &[2.0, 6.0][..]));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn from_graph(
        graph: Graph,
        weights: WeightStore,
        outputs: impl IntoIterator<Item = impl Into<String>>,
        session: Session,
        options: CompileOptions,
    ) -> Self {
        let outputs = outputs.into_iter().map(Into::into).collect();
        let (specialised, structure) = (Vec::new(), Structure::default());
        let imported = Imported { graph, weights, outputs, specialised, structure };
        let source = Source::Graph(Arc::new(imported));
        Self::of(source, session, options)
    }

    /// An artefact, loaded on the device it was compiled for.
    ///
    /// # Errors
    /// As [`Session::load`].
    pub fn from_artefact(artefact: Artefact, session: Session) -> Result<Self> {
        Self::from_artefact_with_progress(artefact, session, &Progress::none())
    }

    /// As [`Runner::from_artefact`], watched: it can be stopped between two weights.
    ///
    /// # Errors
    /// As [`Session::load`]; [`ErrorKind::Cancelled`].
    pub fn from_artefact_with_progress(
        artefact: Artefact,
        session: Session,
        progress: &Progress,
    ) -> Result<Self> {
        let options =
            CompileOptions { precision: artefact.target().precision.parse()?, ..CompileOptions::try_new()? };
        let loaded = Compiled {
            of: None,
            graph: session.load_with_progress(&artefact, progress)?,
            outputs: artefact.outputs()?,
            decided: artefact.decided()?,
            id: 0,
            warm: false,
        };
        let source = Source::Artefact(Box::new(artefact));
        let stages = Stages::default();
        Ok(Runner { source, session, options, ready: vec![loaded], variants: 1, cache: None, stages })
    }

    /// The same runner with a cache of compiled models: a model whose files did not change since it was compiled with
    /// these options on this machine is loaded from there, and a newly compiled one is stored there. Models that decide
    /// shapes by the values of inputs are not cached.
    pub fn with_cache(self, cache: AotCache) -> Self {
        Runner { cache: Some(cache), ..self }
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        match &self.source {
            Source::Onnx(model) => model.name(),
            Source::Graph(imported) => &imported.graph.name,
            Source::Artefact(artefact) => artefact.name(),
        }
    }

    /// The inputs that the model declares.
    ///
    /// # Errors
    /// As [`Model::inputs`].
    pub fn inputs(&self) -> Result<Vec<TensorInfo>> {
        match &self.source {
            Source::Onnx(model) => model.inputs(),
            Source::Graph(imported) => {
                let of = |node: &Node| match &node.op {
                    Op::Input { name } => Some(tensor_info(name, &node.shape)),
                    _ => None,
                };
                Ok(imported.graph.nodes().iter().filter_map(of).collect())
            }
            Source::Artefact(_) => Ok(self.ready.iter().flat_map(|c| c.graph.inputs().to_vec()).collect()),
        }
    }

    /// The model, where it runs one that is not compiled ahead of time.
    pub fn model(&self) -> Option<&Model> {
        match &self.source {
            Source::Onnx(model) => Some(model),
            Source::Graph(_) | Source::Artefact(_) => None,
        }
    }

    /// The outputs that the model declares.
    ///
    /// # Errors
    /// As [`Model::outputs`].
    pub fn outputs(&self) -> Result<Vec<TensorInfo>> {
        let named = |c: &Compiled| {
            let infos = c.graph.outputs().iter().zip(&c.outputs);
            infos.map(|(info, name)| TensorInfo { name: name.clone(), ..info.clone() }).collect::<Vec<_>>()
        };
        match &self.source {
            Source::Onnx(model) => model.outputs(),
            Source::Graph(imported) => {
                let pairs = imported.outputs.iter().zip(&imported.graph.outputs);
                Ok(pairs.map(|(name, &id)| tensor_info(name, imported.graph.shape(id))).collect())
            }
            Source::Artefact(_) => Ok(self.ready.iter().flat_map(named).collect()),
        }
    }

    /// What the file says about itself; `None` for a graph, and for an artefact, which does not keep it.
    pub fn metadata(&self) -> Option<Metadata> {
        match &self.source {
            Source::Onnx(model) => Some(model.metadata()),
            Source::Graph(_) | Source::Artefact(_) => None,
        }
    }

    /// The device and how it computes.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// How the model is compiled.
    pub fn options(&self) -> &CompileOptions {
        &self.options
    }

    /// The inputs whose values are known to decide shapes.
    pub(crate) fn deciding(&self) -> Vec<String> {
        match &self.source {
            // What a tensor inside the model is depends on all of them.
            Source::Onnx(model) if !model.stages().is_empty() => {
                model.inputs().unwrap_or_default().into_iter().map(|info| info.name).collect()
            }
            Source::Onnx(model) => model.deciding().to_vec(),
            Source::Graph(_) => Vec::new(),
            Source::Artefact(_) => {
                self.ready.iter().flat_map(|c| &c.decided).map(|(n, _)| n.clone()).collect()
            }
        }
    }

    /// The variant at a position that [`Runner::find_or_compile`] gave.
    pub(crate) fn variant(&mut self, at: usize) -> &mut Compiled {
        &mut self.ready[at]
    }

    /// The variants that are kept.
    pub(crate) fn variant_ids(&self) -> Vec<u64> {
        self.ready.iter().map(|c| c.id).collect()
    }

    fn next_id(&mut self) -> u64 {
        self.variants += 1;
        self.variants - 1
    }

    /// The artefact, where it runs one.
    pub fn artefact(&self) -> Option<&Artefact> {
        match &self.source {
            Source::Onnx(_) | Source::Graph(_) => None,
            Source::Artefact(artefact) => Some(artefact),
        }
    }

    /// The model's import for these inputs, not compiled; of an artefact, the graph it was compiled from.
    ///
    /// # Errors
    /// As [`Model::import`]; [`ErrorKind::Unsupported`] for a slim artefact, which does not have it.
    pub fn import(&mut self, inputs: &[(&str, &ConstData)]) -> Result<Arc<Imported>> {
        self.import_with_progress(inputs, &Progress::none())
    }

    /// As [`Runner::import`], with progress and cancellation.
    ///
    /// # Errors
    /// As [`Runner::import`]; [`ErrorKind::Cancelled`].
    pub fn import_with_progress(
        &mut self,
        inputs: &[(&str, &ConstData)],
        progress: &Progress,
    ) -> Result<Arc<Imported>> {
        match &mut self.source {
            Source::Onnx(model) => {
                stages::import(model, &mut self.stages, &self.session, &self.options, inputs, progress)
            }
            Source::Graph(imported) => Ok(Arc::clone(imported)),
            Source::Artefact(artefact) => {
                let Some(graph) = artefact.source()? else {
                    let message = "a slim artefact does not hold the graph it was compiled from";
                    return Err(Error::new(ErrorKind::Unsupported, message)
                        .with_origin(artefact.path().display().to_string())
                        .with_hint("compile the model without --slim"));
                };
                let specialised = artefact.decided()?.into_iter().map(|(name, _)| name).collect();
                let (weights, outputs) = (artefact.weights()?, artefact.outputs()?);
                // An artefact has tensors alone, of strings the codes.
                let structure = Structure::default();
                Ok(Arc::new(Imported { graph, weights, outputs, specialised, structure }))
            }
        }
    }

    /// The model, compiled for these inputs (their values matter only if shapes depend on them), with its
    /// weights set.
    ///
    /// # Errors
    /// An error of importing or compiling, or a weight that the file does not have.
    pub fn prepare(&mut self, inputs: &[(&str, &ConstData)]) -> Result<Prepared<'_>> {
        self.prepare_with_progress(inputs, &Progress::none())
    }

    /// As [`Runner::prepare`], with progress and cancellation. Stopped, it keeps what was finished: an import is not made again.
    ///
    /// # Errors
    /// As [`Runner::prepare`]; [`ErrorKind::Cancelled`].
    pub fn prepare_with_progress(
        &mut self,
        inputs: &[(&str, &ConstData)],
        progress: &Progress,
    ) -> Result<Prepared<'_>> {
        let at = self.find_or_compile(inputs, progress)?;
        let Compiled { graph, outputs, .. } = &mut self.ready[at];
        Ok(Prepared { compiled: graph, outputs })
    }

    /// The position of the variant for these inputs, compiled first if need be.
    pub(crate) fn find_or_compile(
        &mut self,
        inputs: &[(&str, &ConstData)],
        progress: &Progress,
    ) -> Result<usize> {
        if let Some(at) = self.ready.iter().position(|c| c.of.is_none()) {
            check_decided(&self.ready[at].decided, inputs)?;
            return Ok(at);
        }
        // What is ready besides an artefact was looked for there before it was compiled.
        if self.ready.is_empty()
            && let Some(cached) = self.load_cached(progress)?
        {
            let id = self.next_id();
            self.ready.push(Compiled { id, ..cached });
            return Ok(self.ready.len() - 1);
        }
        let imported = self.import_with_progress(inputs, progress)?;
        let same = |c: &Compiled| c.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, &imported));
        if let Some(at) = self.ready.iter().position(same) {
            return Ok(at);
        }
        let mut graph = compile(&self.session, &self.options, &imported, progress)?;
        self.keep_cached(&imported, &mut graph, progress)?;
        if self.ready.len() == MOST_COMPILED {
            self.ready.remove(0);
        }
        let (outputs, id) = (imported.outputs.clone(), self.next_id());
        let of = Some(imported);
        self.ready.push(Compiled { of, graph, outputs, id, warm: false, decided: Vec::new() });
        Ok(self.ready.len() - 1)
    }

    /// Runs on named inputs; returns the outputs with the model's names for them.
    ///
    /// # Errors
    /// As [`Runner::prepare`], or what the run reports.
    pub fn run(&mut self, inputs: &[(&str, &ConstData)]) -> Result<Vec<(String, ConstData)>> {
        self.run_with_progress(inputs, &Progress::none())
    }

    /// As [`Runner::run`], watched: see [`Runner::open_with_progress`]. Stopped, the runner is as usable as before.
    ///
    /// # Errors
    /// As [`Runner::run`]; [`ErrorKind::Cancelled`].
    pub fn run_with_progress(
        &mut self,
        inputs: &[(&str, &ConstData)],
        progress: &Progress,
    ) -> Result<Vec<(String, ConstData)>> {
        let Prepared { compiled, outputs } = self.prepare_with_progress(inputs, progress)?;
        let results = compiled.try_run_tensors_with_progress(&views(inputs), progress)?;
        Ok(outputs.iter().cloned().zip(results).collect())
    }

    /// As [`Runner::run`], awaited: see [`CompiledGraph::try_run_tensors_async`]. Importing and compiling are not: they are done
    /// when the future is first polled.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub async fn run_async(&mut self, inputs: &[(&str, &ConstData)]) -> Result<Vec<(String, ConstData)>> {
        let Prepared { compiled, outputs } = self.prepare(inputs)?;
        let results = compiled.try_run_tensors_async(&views(inputs)).await?;
        Ok(outputs.iter().cloned().zip(results).collect())
    }

    /// The same model on another session; or on the same device again, after it was lost. It is compiled anew.
    ///
    /// # Errors
    /// As [`Session::load`], for an artefact.
    pub fn on(self, session: Session) -> Result<Self> {
        match self.source {
            Source::Artefact(artefact) => Self::from_artefact(*artefact, session),
            source => Ok(Runner { cache: self.cache, ..Self::of(source, session, self.options) }),
        }
    }

    /// Runs on values of any type that the model declares (strings, sequences, optionals); returns its outputs by their names in the
    /// file.
    ///
    /// ```no_run
    /// use rlx::prelude::*;
    /// use rlx::values::{ModelValue, StringTensor};
    /// let mut classifier = Runner::open("reviews.onnx")?;
    /// let text = StringTensor { dims: vec![1, 1], elements: vec!["a quiet film".into()] };
    /// for (name, value) in classifier.run_values(&[("text", &ModelValue::Strings(text))])? {
    ///     println!("{name}: {value:?}");
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Runner::run`]; [`ErrorKind::Unsupported`] for inputs that are maps.
    pub fn run_values(&mut self, inputs: &[(&str, &ModelValue)]) -> Result<Vec<(String, ModelValue)>> {
        self.run_values_with_progress(inputs, &Progress::none())
    }

    /// As [`Runner::run_values`], with progress and cancellation.
    ///
    /// # Errors
    /// As [`Runner::run_values`]; [`ErrorKind::Cancelled`].
    pub fn run_values_with_progress(
        &mut self,
        inputs: &[(&str, &ModelValue)],
        progress: &Progress,
    ) -> Result<Vec<(String, ModelValue)>> {
        let (imported, tensors) = self.taken_apart(inputs, progress)?;
        let given = borrowed(&tensors);
        let at = self.find_or_compile(&given, progress)?;
        let results = self.ready[at].graph.try_run_tensors_with_progress(&views(&given), progress)?;
        match &self.source {
            Source::Onnx(model) => assembled(model.output_names(), &imported, results),
            Source::Graph(_) | Source::Artefact(_) => {
                assembled(imported.outputs.iter().map(String::as_str), &imported, results)
            }
        }
    }

    /// The tensors that the model's graph takes for these values, by the names of its inputs: strings as their codes. The runner
    /// imports the model for these strings from now on, so that calls which take tensors, such as [`Runner::run`], take these.
    ///
    /// # Errors
    /// As [`Runner::import_with_progress`]; [`ErrorKind::Unsupported`] for inputs that are maps.
    pub fn tensors_of(&mut self, inputs: &[(&str, &ModelValue)], progress: &Progress) -> Result<Inputs> {
        Ok(self.taken_apart(inputs, progress)?.1)
    }

    fn taken_apart(
        &mut self,
        inputs: &[(&str, &ModelValue)],
        progress: &Progress,
    ) -> Result<(Arc<Imported>, Inputs)> {
        let (mut structured, mut tensors) = (Structured::default(), Vec::new());
        for (name, value) in inputs {
            structured.add((*name).to_owned(), value, &mut tensors)?;
        }
        if let Source::Onnx(model) = &mut self.source {
            model.set_structured(structured.clone());
        }
        let imported = self.import_with_progress(&borrowed(&tensors), progress)?;
        tensors.extend(structured.codes(&imported)?);
        Ok((imported, tensors))
    }

    /// Writes the model, compiled for these inputs, to an artefact at `path`. A slim one holds only what running needs:
    /// it is smaller, but cannot be compared with the oracle. Returns the artefact.
    ///
    /// # Errors
    /// As [`Runner::prepare`] and [`Session::save`]; [`ErrorKind::Unsupported`] for a runner of an artefact.
    pub fn compile_to(
        &mut self,
        path: impl AsRef<Path>,
        inputs: &[(&str, &ConstData)],
        slim: bool,
    ) -> Result<Artefact> {
        self.compile_to_with_progress(path, inputs, slim, &Progress::none())
    }

    /// As [`Runner::compile_to`], with progress and cancellation. Stopped, it leaves no file.
    ///
    /// # Errors
    /// As [`Runner::compile_to`]; [`ErrorKind::Cancelled`].
    pub fn compile_to_with_progress(
        &mut self,
        path: impl AsRef<Path>,
        inputs: &[(&str, &ConstData)],
        slim: bool,
        progress: &Progress,
    ) -> Result<Artefact> {
        if let Source::Artefact(artefact) = &self.source {
            let message = format!("{} is already compiled", artefact.path().display());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let imported = self.import_with_progress(inputs, progress)?;
        if let Source::Onnx(model) = &self.source
            && let Some(tensor) = model.stages().first()
        {
            let message =
                format!("the value of tensor \"{tensor}\" decides shapes, and every run computes it anew");
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("run the model without compiling it ahead of time"));
        }
        let at = self.find_or_compile(inputs, progress)?;
        let decided = |name: &String| {
            let given = inputs.iter().find(|(given, _)| given == name);
            given.map(|&(_, value)| (name.clone(), value.clone()))
        };
        let new = NewArtefact {
            name: self.name().to_owned(),
            weights: &imported.weights,
            options: self.options.clone(),
            outputs: imported.outputs.clone(),
            decided: imported.specialised.iter().filter_map(decided).collect(),
            source: (!slim).then_some(&imported.graph),
        };
        self.session.save_with_progress(path.as_ref(), &mut self.ready[at].graph, new, progress)?;
        Artefact::open(path)
    }
}

fn tensor_info(name: &str, shape: &Shape) -> TensorInfo {
    TensorInfo { name: name.to_owned(), dtype: shape.dtype(), shape: shape.clone() }
}

fn borrowed(tensors: &[(String, ConstData)]) -> Vec<(&str, &ConstData)> {
    tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect()
}

/// Views of named tensors.
pub(crate) fn views<'a>(inputs: &[(&'a str, &'a ConstData)]) -> Vec<TensorView<'a>> {
    inputs.iter().map(|&input| input.into()).collect()
}

fn compile(
    session: &Session,
    options: &CompileOptions,
    imported: &Imported,
    progress: &Progress,
) -> Result<CompiledGraph> {
    let mut compiled = session.try_compile_with_progress(imported.graph.clone(), options, progress)?;
    let missing = compiled.try_set_weights_with_progress(&imported.weights, progress)?;
    match missing.first() {
        Some(name) => Err(Error::new(ErrorKind::Binding, format!("the model has no weight \"{name}\""))),
        None => Ok(compiled),
    }
}

/// Whether the inputs have the values for which an artefact is valid.
fn check_decided(decided: &[(String, ConstData)], inputs: &[(&str, &ConstData)]) -> Result<()> {
    for (name, value) in decided {
        let given = inputs.iter().find(|(given, _)| given == name).map(|&(_, data)| data);
        if given != Some(value) {
            let message = format!(
                "the artefact was compiled for one value of input \"{name}\", which decides shapes; this is another"
            );
            return Err(
                Error::new(ErrorKind::Binding, message).with_hint("compile the model with this value")
            );
        }
    }
    Ok(())
}
