//! Imports a decoded file as a [`Graph`] with its weights.
//!
//! Nodes are imported in file order. A name refers to a *slot*: a node of the graph, or a value that is added to the
//! graph only when it is used: known integers ([`known::Known`], shape computations) and constant
//! data. For each node, the rules for known integers ([`fold`]) are tried first, then its op's importer
//! ([`crate::ops::REGISTRY`]); nodes built from small constants only are computed immediately by the oracle.
//!
//! If a shape, an axis or a count depends on the *value* of a graph input, the import stops with
//! [`ErrorKind::NeedsInputValue`]; [`needed_input`] returns its name, and the caller imports again with that value in
//! [`ImportOptions::input_values`]. The graph is then valid for that value only.
//!
//! If it depends on the value of a tensor inside the model, for which no bound is found (a length that a net predicts), the value of that tensor is
//! enough; [`needed_tensor`] returns its name. The caller imports the model up to that tensor
//! ([`ImportOptions::only`]), runs it, and imports again with the value in [`ImportOptions::tensor_values`].

mod attrs;
mod body;
mod computed;
pub(crate) mod context;
mod donations;
mod fold;
mod function;
pub(crate) mod held;
mod inputs;
pub(crate) mod known;
mod ranges;
mod slot;

pub(crate) use body::ImportedBody;
pub(crate) use context::NodeCx;
pub(crate) use function::{NEWEST_OPSET, OLDEST_OPSET, op_label};
pub(crate) use slot::{SlotId, normal_domain};

use crate::file::OnnxFile;
use crate::structure::{StringTensor, Structure};
use inputs::Outputs;
use rlx_ir::dim::scoped;
use rlx_ir::progress::Stage;
use rlx_ir::{ConstData, Error, ErrorKind, ExprBudget, Graph, Progress, WeightStore};
use slot::Importer;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The options of an import.
///
/// ```
/// let mut options = rlx_onnx::ImportOptions::default();
/// options.dims.insert("batch".into(), 1);
/// ```
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// Sizes of the model's named dimensions; names that do not occur are ignored.
    pub dims: BTreeMap<String, usize>,
    /// Values of inputs the graph is specialised on. Such an input stays an input of the graph, so that callers feed
    /// what the model declares, but the graph holds only for this value.
    pub input_values: BTreeMap<String, ConstData>,
    /// As `input_values`, of inputs that are strings.
    pub input_strings: BTreeMap<String, StringTensor>,
    /// How many elements the inputs that are sequences have.
    pub sequence_lengths: BTreeMap<String, usize>,
    /// The inputs of optional type that hold nothing.
    pub absent: BTreeSet<String>,
    /// Values of tensors that the model's own nodes compute, on which the graph is specialised: it is valid for runs that give these values.
    pub tensor_values: BTreeMap<String, ConstData>,
    /// The only output, instead of the model's: a tensor that one of its own nodes computes. What comes behind is not read.
    pub only: Option<String>,
    /// What decodes the images of `ImageDecoder`. The crate `rlx` gives its own; without one the op is an error.
    pub image_decoder: Option<ImageDecoder>,
}

/// Decodes an image file to 1 (grey) or 3 (red, green, blue) channels of 8 bits, as it is stored.
pub type ImageDecoder = fn(&[u8], usize) -> Result<DecodedImage, Error>;

/// The pixels of an image: rows from the top, channels beside each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedImage {
    /// Rows.
    pub height: usize,
    /// Pixels of a row.
    pub width: usize,
    /// `height · width · channels` bytes.
    pub pixels: Vec<u8>,
}

impl ImportOptions {
    /// Whether the value of an input is given.
    fn gives(&self, name: &str) -> bool {
        self.input_values.contains_key(name) || self.input_strings.contains_key(name)
    }
}

/// An imported model.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The model's graph; initialisers that are weights are its parameters.
    pub graph: Graph,
    /// The parameters' values, lying in the file's map where the file holds them as they are.
    pub weights: WeightStore,
    /// The names of the graph's outputs, in order.
    pub outputs: Vec<String>,
    /// The inputs, and the tensors inside the model, on whose values the graph was specialised.
    pub specialised: Vec<String>,
    /// What inputs and outputs are that the model does not declare as tensors of numbers.
    pub structure: Structure,
}

/// The input whose value the import asks for (the source of an [`ErrorKind::NeedsInputValue`] error).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeedsInputValue {
    /// The input's name.
    pub input: String,
    /// A tensor inside the model whose value is enough, where it is computed from more than a few integers of the caller's.
    pub tensor: Option<String>,
}

impl fmt::Display for NeedsInputValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the value of input \"{}\" decides a shape or an axis", self.input)
    }
}

impl std::error::Error for NeedsInputValue {}

/// The tensor inside the model whose value would make an import possible (a source of an [`ErrorKind::Unsupported`] error).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeedsTensorValue {
    /// The tensor's name.
    pub tensor: String,
}

impl fmt::Display for NeedsTensorValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the value of tensor \"{}\" decides a shape or an axis", self.tensor)
    }
}

impl std::error::Error for NeedsTensorValue {}

/// The input whose value an import needs, if that is the error.
pub fn needed_input(error: &Error) -> Option<&str> {
    source_of::<NeedsInputValue>(error).map(|need| need.input.as_str())
}

/// The tensor inside the model whose value would make an import possible, if that is the error.
pub fn needed_tensor(error: &Error) -> Option<&str> {
    match source_of::<NeedsTensorValue>(error) {
        Some(need) => Some(&need.tensor),
        None => source_of::<NeedsInputValue>(error)?.tensor.as_deref(),
    }
}

/// The first source of this type.
fn source_of<E: std::error::Error + 'static>(error: &Error) -> Option<&E> {
    let mut source = std::error::Error::source(error);
    while let Some(e) = source {
        if let Some(found) = e.downcast_ref() {
            return Some(found);
        }
        source = e.source();
    }
    None
}

/// Imports a model.
///
/// # Errors
/// [`ErrorKind::Unsupported`] naming node, op, domain, opset and dtypes for unsupported features;
/// [`ErrorKind::NeedsInputValue`] as described at the top of this module; [`ErrorKind::Malformed`] and the shape
/// rules' errors for models that break the format or do not fit together.
pub fn import(file: &OnnxFile, options: &ImportOptions) -> Result<Imported, Error> {
    import_with_progress(file, options, &Progress::none())
}

/// As [`import`]; it can be stopped between two nodes.
///
/// # Errors
/// As [`import`]; [`ErrorKind::Cancelled`].
pub fn import_with_progress(
    file: &OnnxFile,
    options: &ImportOptions,
    progress: &Progress,
) -> Result<Imported, Error> {
    let _budget = ExprBudget::for_bytes(file.size());
    scoped(|| import_scoped(file, options, progress))
}

fn import_scoped(file: &OnnxFile, options: &ImportOptions, progress: &Progress) -> Result<Imported, Error> {
    let mut importer = Importer::new(file, options, progress)?;
    let proto = file.graph();
    importer.initializers(proto, true)?;
    importer.inputs(proto)?;
    for (i, node) in proto.node.iter().enumerate() {
        progress.step(Stage::Import, i, proto.node.len(), || node.op_type())?;
        importer.node(node)?;
        importer.take_values(node)?;
        if options.only.as_ref().is_some_and(|only| node.output.contains(only)) {
            break;
        }
    }
    let mut outputs = Outputs::default();
    match &options.only {
        Some(only) => {
            let slot = importer.lookup(only)?;
            importer.output(only, slot, None, &mut outputs)?;
        }
        None => {
            for output in &proto.output {
                let slot = importer.lookup(output.name())?;
                importer.output(output.name(), slot, output.r#type.as_ref(), &mut outputs)?;
            }
        }
    }
    importer.graph.set_outputs(outputs.nodes);
    donations::declare(&mut importer.graph, &outputs.names);
    let given = options.input_values.keys().chain(options.input_strings.keys());
    let given = given.filter(|k| proto.input.iter().any(|i| i.name() == **k));
    let specialised = given.chain(options.tensor_values.keys()).cloned().collect();
    importer.note_vocabulary();
    Ok(Imported {
        specialised,
        graph: importer.graph,
        weights: importer.weights,
        outputs: outputs.names,
        structure: importer.structure,
    })
}

/// An error that says which input's value is needed and why.
pub(crate) fn needs_value(input: &str, why: &str) -> Error {
    needs_value_through(None, input, why)
}

/// As [`needs_value`], where the value of a tensor inside the model would do.
fn needs_value_through(tensor: Option<String>, input: &str, why: &str) -> Error {
    let need = NeedsInputValue { input: input.to_owned(), tensor };
    Error::new(ErrorKind::NeedsInputValue, format!("{need}: {why}"))
        .with_hint("import again with that input's value")
        .with_source(need)
}
