//! A [`Model`]: an ONNX file, and the graphs imported from it.
//!
//! In some models shapes depend on the *value* of an input (a target size, a length). Their import needs the value, and
//! the graph is valid for that value only; such imports are cached by value. The same holds for a tensor inside the model that nothing bounds, such
//! as a length that a net predicts; a [`Runner`](crate::Runner) finds its value by running the model up to there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rlx_ir::progress::Stage;
use rlx_ir::sort::sort;
use rlx_ir::{ConstData, Dim, Error, ErrorKind, Progress, Result, Shape, nearest, sym};
use rlx_onnx::proto::ValueInfoProto;
use rlx_onnx::proto::tensor_shape_proto::dimension::Value as DimValue;
use rlx_onnx::proto::type_proto::Value as TypeValue;
use rlx_onnx::{
    DimNames, ImportOptions, Imported, OnnxFile, import_with_progress, needed_input, needed_tensor,
};
use rlx_runtime::TensorInfo;

use crate::Metadata;
use crate::values::Structured;

/// Maximum number of cached imports per model; the oldest is dropped first.
const MOST_IMPORTS: usize = 8;

/// An ONNX model.
///
/// ```no_run
/// let mut model = rlx::Model::open("models/mlp/mlp.onnx")?.with_dims([("batch".to_string(), 1)]);
/// let imported = model.import(&[])?;
/// println!("{}", imported.graph);
/// # Ok::<(), rlx_ir::Error>(())
/// ```
#[derive(Debug)]
pub struct Model {
    name: String,
    /// Where the file was read from.
    path: Option<PathBuf>,
    file: OnnxFile,
    dims: BTreeMap<String, usize>,
    /// Inputs whose values decided a shape in an earlier import.
    deciding: Vec<String>,
    /// Tensors inside the model whose values did, in the model's order.
    stages: Vec<String>,
    imports: Vec<(Given, Arc<Imported>)>,
    /// What inputs that are no plain tensors were last given.
    structured: Structured,
}

/// What an import is made for.
#[derive(Debug, Clone, PartialEq)]
struct Given {
    inputs: BTreeMap<String, ConstData>,
    /// Strings alone where their values decide; how many elements sequences have, and which optionals are empty.
    structured: Structured,
    tensors: BTreeMap<String, ConstData>,
    only: Option<String>,
}

impl Model {
    /// Opens a model file.
    ///
    /// # Errors
    /// A file that cannot be read or is not an ONNX model.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with_progress(path, &Progress::none())
    }

    /// As [`Model::open`], watched: it can be stopped before and after the file is decoded. Weights are not read here.
    ///
    /// # Errors
    /// As [`Model::open`]; [`rlx_ir::ErrorKind::Cancelled`].
    pub fn open_with_progress(path: impl AsRef<Path>, progress: &Progress) -> Result<Self> {
        let path = path.as_ref();
        let name = path.file_stem().map_or_else(|| "model".to_string(), |s| s.to_string_lossy().into_owned());
        progress.step(Stage::Read, 0, 1, || &name)?;
        let file = OnnxFile::open(path)?;
        progress.step(Stage::Read, 1, 1, || &name)?;
        Ok(Model { path: Some(path.to_owned()), ..Self::new(name, file) })
    }

    /// A model of a decoded file.
    pub fn new(name: impl Into<String>, file: OnnxFile) -> Self {
        let name = name.into();
        Model {
            name,
            path: None,
            file,
            dims: BTreeMap::new(),
            deciding: Vec::new(),
            stages: Vec::new(),
            imports: Vec::new(),
            structured: Structured::default(),
        }
    }

    /// Fixes named dimensions. Names that the model does not have are ignored.
    pub fn with_dims(mut self, dims: impl IntoIterator<Item = (String, usize)>) -> Self {
        self.dims.extend(dims);
        self.imports.clear();
        self
    }

    /// As [`Model::with_dims`], where a name that no input has is an error.
    ///
    /// # Errors
    /// [`ErrorKind::Dimension`] naming the dynamic dimensions; as [`Model::inputs`].
    pub fn try_with_dims(self, dims: impl IntoIterator<Item = (String, usize)>) -> Result<Self> {
        let dims: Vec<(String, usize)> = dims.into_iter().collect();
        check_dims(&self.inputs()?, &dims)?;
        Ok(self.with_dims(dims))
    }

    /// The name: the file's, without its ending.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The files it consists of: its own, and those beside it that hold data of its tensors. None for a model from memory.
    pub fn files(&self) -> Vec<PathBuf> {
        let Some(path) = &self.path else { return Vec::new() };
        let folder = path.parent().unwrap_or(Path::new("."));
        let external = self.file.external_files().into_iter().map(|name| folder.join(name));
        std::iter::once(path.clone()).chain(external).collect()
    }

    /// What the file holds: ops, tensors, metadata. Nothing is imported.
    pub fn survey(&self) -> rlx_onnx::Survey {
        rlx_onnx::Survey::of(&self.file)
    }

    /// The identity of this model: the contents of its files as they were opened, even if other files have replaced
    /// them since, and its fixed dimensions. `None` for a model that does not come from a file, whose files cannot be read,
    /// or where one of them was just being written.
    pub(crate) fn identity(&self) -> Option<Vec<String>> {
        // The importer reports files that cannot be read.
        let mut parts = self.file.identity().ok()??;
        parts.extend(self.dims.iter().map(|(name, value)| format!("{name:?}={value}")));
        Some(parts)
    }

    /// Whether its files are still those whose contents were read.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when one of them changed.
    pub(crate) fn confirm(&self) -> Result<()> {
        if self.file.is_unchanged() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Io, "a file of the model changed while it was compiled"))
    }

    /// The inputs that the model declares (without initialisers), with fixed dimensions replaced by their sizes. An input
    /// whose rank is not declared is a scalar here; its import needs a value.
    ///
    /// # Errors
    /// An input without a tensor type, or with an unsupported element type.
    pub fn inputs(&self) -> Result<Vec<TensorInfo>> {
        let graph = self.file.graph();
        let is_weight = |name: &str| graph.initializer.iter().any(|t| t.name() == name);
        let names = DimNames::of_inputs(graph, &self.dims);
        let inputs = graph.input.iter().filter(|i| !is_weight(i.name()));
        inputs.map(|input| tensor_info(input, &names, "input")).collect()
    }

    /// The outputs that the model declares, with fixed dimensions replaced by their sizes. What the graph computes may be
    /// more precise: exporters leave dimensions open. An output whose rank is not declared is a scalar here.
    ///
    /// # Errors
    /// An output without a tensor type, or with an unsupported element type.
    pub fn outputs(&self) -> Result<Vec<TensorInfo>> {
        let graph = self.file.graph();
        let names = DimNames::of_inputs(graph, &self.dims);
        graph.output.iter().map(|output| tensor_info(output, &names, "output")).collect()
    }

    /// As [`Model::inputs`], of those inputs that are tensors of numbers.
    pub fn input_tensors(&self) -> Vec<TensorInfo> {
        let graph = self.file.graph();
        let names = DimNames::of_inputs(graph, &self.dims);
        let declared: Vec<&str> = self.input_names().collect();
        let inputs = graph.input.iter().filter(|input| declared.contains(&input.name()));
        inputs.filter_map(|input| tensor_info(input, &names, "input").ok()).collect()
    }

    /// How many dimensions an input is declared to have; `None` where it is no tensor, or no shape is declared.
    pub fn declared_rank(&self, input: &str) -> Option<usize> {
        let info = self.file.graph().input.iter().find(|info| info.name() == input)?;
        let TypeValue::TensorType(tensor) = info.r#type.as_ref()?.value.as_ref()? else { return None };
        tensor.shape.as_ref().map(|shape| shape.dim.len())
    }

    /// The names of the inputs that the model declares, of whatever type.
    pub fn input_names(&self) -> impl Iterator<Item = &str> {
        let graph = self.file.graph();
        let is_weight = |name: &str| graph.initializer.iter().any(|t| t.name() == name);
        graph.input.iter().map(|input| input.name()).filter(move |name| !is_weight(name))
    }

    /// The names of the outputs that the model declares, of whatever type.
    pub fn output_names(&self) -> impl Iterator<Item = &str> {
        self.file.graph().output.iter().map(|output| output.name())
    }

    /// Whether all inputs and outputs are declared as tensors of numbers. Others are run by
    /// [`Runner::run_values`](crate::Runner::run_values).
    pub fn is_plain(&self) -> bool {
        use rlx_onnx::proto::tensor_proto::DataType;
        let graph = self.file.graph();
        let plain = |info: &ValueInfoProto| match info.r#type.as_ref().and_then(|t| t.value.as_ref()) {
            Some(TypeValue::TensorType(tensor)) => tensor.elem_type() != DataType::String as i32,
            _ => false,
        };
        graph.input.iter().chain(&graph.output).all(plain)
    }

    /// Imports are for these values of inputs that are no plain tensors, until others are given.
    pub(crate) fn set_structured(&mut self, structured: Structured) {
        self.structured = structured;
    }

    /// Whether inputs were given that are no plain tensors.
    pub(crate) fn is_structured(&self) -> bool {
        self.structured != Structured::default()
    }

    /// What the file says about itself.
    pub fn metadata(&self) -> Metadata {
        Metadata::of(&self.file)
    }

    /// The inputs whose values decided a shape in an earlier import.
    pub(crate) fn deciding(&self) -> &[String] {
        &self.deciding
    }

    /// The tensors inside the model whose values decided a shape in an earlier import.
    pub(crate) fn stages(&self) -> &[String] {
        &self.stages
    }

    /// Notes such a tensor.
    pub(crate) fn add_stage(&mut self, tensor: &str) {
        self.stages.push(tensor.to_owned());
    }

    /// The graph and its weights; `values` are known input values, for models whose shapes depend on
    /// them. Imports are cached: the same values give the same import.
    ///
    /// # Errors
    /// An error of the importer; [`rlx_ir::ErrorKind::NeedsInputValue`] if it needs a value that is not
    /// among `values`.
    pub fn import(&mut self, values: &[(&str, &ConstData)]) -> Result<Arc<Imported>> {
        self.import_with_progress(values, &Progress::none())
    }

    /// As [`Model::import`], watched: it can be stopped between two nodes.
    ///
    /// # Errors
    /// As [`Model::import`]; [`rlx_ir::ErrorKind::Cancelled`].
    pub fn import_with_progress(
        &mut self,
        values: &[(&str, &ConstData)],
        progress: &Progress,
    ) -> Result<Arc<Imported>> {
        self.import_given(values, &[], None, false, progress)
    }

    /// As [`Model::import_with_progress`], for these values of tensors inside the model; `only` is the tensor that is the graph's output. Where the
    /// value of another tensor is enough, inputs that it is computed from are not asked for.
    pub(crate) fn import_stage(
        &mut self,
        values: &[(&str, &ConstData)],
        tensors: &[(String, ConstData)],
        only: Option<&str>,
        progress: &Progress,
    ) -> Result<Arc<Imported>> {
        self.import_given(values, tensors, only, true, progress)
    }

    fn import_given(
        &mut self,
        values: &[(&str, &ConstData)],
        tensors: &[(String, ConstData)],
        only: Option<&str>,
        in_stages: bool,
        progress: &Progress,
    ) -> Result<Arc<Imported>> {
        loop {
            let known = |name: &String| {
                let numbers = !self.structured.strings.contains_key(name);
                let given = values.iter().find(|(given, _)| numbers && given == name);
                given.map(|&(_, value)| (name.clone(), value.clone()))
            };
            let deciding = |name: &&String| self.deciding.contains(*name);
            let strings = self.structured.strings.iter().filter(|(name, _)| deciding(name));
            let key = Given {
                inputs: self.deciding.iter().filter_map(known).collect(),
                structured: Structured {
                    strings: strings.map(|(name, value)| (name.clone(), value.clone())).collect(),
                    ..self.structured.clone()
                },
                tensors: tensors.iter().cloned().collect(),
                only: only.map(str::to_owned),
            };
            if let Some((_, imported)) = self.imports.iter().find(|(given, _)| *given == key) {
                return Ok(Arc::clone(imported));
            }
            let options = ImportOptions {
                dims: self.dims.clone(),
                input_values: key.inputs.clone(),
                input_strings: key.structured.strings.clone(),
                sequence_lengths: key.structured.lengths.clone(),
                absent: key.structured.absent.clone(),
                tensor_values: key.tensors.clone(),
                only: key.only.clone(),
                #[cfg(feature = "inputs")]
                image_decoder: Some(crate::image::decode_for_onnx),
                #[cfg(not(feature = "inputs"))]
                image_decoder: None,
            };
            match import_with_progress(&self.file, &options, progress) {
                Ok(imported) => {
                    let imported = Arc::new(imported);
                    if self.imports.len() == MOST_IMPORTS {
                        self.imports.remove(0);
                    }
                    self.imports.push((key, Arc::clone(&imported)));
                    return Ok(imported);
                }
                Err(e) if in_stages && needed_tensor(&e).is_some() => return Err(e),
                Err(e) => match needed_input(&e) {
                    Some(name)
                        if !key.inputs.contains_key(name)
                            && values.iter().any(|(given, _)| *given == name)
                            || !key.structured.strings.contains_key(name)
                                && self.structured.strings.contains_key(name) =>
                    {
                        self.deciding.push(name.to_owned());
                    }
                    _ => return Err(e),
                },
            }
        }
    }
}

/// What the model declares of an input or output.
fn tensor_info(value: &ValueInfoProto, names: &DimNames<'_>, what: &str) -> Result<TensorInfo> {
    let name = value.name();
    let Some(TypeValue::TensorType(tensor)) = value.r#type.as_ref().and_then(|t| t.value.as_ref()) else {
        let message = format!("{what} \"{name}\" is not a plain tensor");
        return Err(Error::new(ErrorKind::Unsupported, message));
    };
    let dtype =
        rlx_onnx::dtype(tensor.elem_type()).map_err(|e| e.with_origin(format!("{what} \"{name}\"")))?;
    let dim = |(i, d): (usize, &rlx_onnx::proto::tensor_shape_proto::Dimension)| match &d.value {
        Some(DimValue::DimValue(v)) => Dim::Static(usize::try_from(*v).unwrap_or(0)),
        Some(DimValue::DimParam(param)) if !param.is_empty() => names.dim(param),
        _ => names.dim(&format!("{name}.{i}")),
    };
    let dims: Vec<Dim> = tensor.shape.iter().flat_map(|s| s.dim.iter()).enumerate().map(dim).collect();
    Ok(TensorInfo { name: name.to_owned(), dtype, shape: Shape::from_dims(&dims, dtype) })
}

/// Checks that every name is a dynamic dimension of these inputs.
///
/// # Errors
/// [`ErrorKind::Dimension`] with the existing names, and the closest one.
pub fn check_dims(inputs: &[TensorInfo], dims: &[(String, usize)]) -> Result<()> {
    let open = |dim: &Dim| match *dim {
        Dim::Dynamic(symbol) => Some(sym::name(symbol)),
        _ => None,
    };
    let mut known: Vec<String> = inputs.iter().flat_map(|i| i.shape.dims()).filter_map(open).collect();
    sort(&mut known);
    known.dedup();
    let Some((name, _)) = dims.iter().find(|(name, _)| !known.contains(name)) else { return Ok(()) };
    let all = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let message = format!("the model's inputs have no dimension \"{name}\"; dynamic dimensions: {all}");
    let error = Error::new(ErrorKind::Dimension, message);
    Err(match nearest(name, known.iter().map(String::as_str)) {
        Some(close) => error.with_hint(format!("did you mean \"{close}\"?")),
        None => error.with_hint("rlx inspect shows the inputs and their dimensions"),
    })
}
