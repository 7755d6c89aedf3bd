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

mod attrs;
mod body;
mod computed;
pub(crate) mod context;
mod fold;
mod function;
pub(crate) mod known;
mod slot;

pub(crate) use body::ImportedBody;
pub(crate) use context::NodeCx;
pub(crate) use function::{NEWEST_OPSET, OLDEST_OPSET, op_label};
pub(crate) use slot::{SlotId, normal_domain};

use crate::dims::DimNames;
use crate::file::OnnxFile;
use crate::proto::type_proto::Value as TypeValue;
use crate::proto::{GraphProto, ValueInfoProto};
use crate::tensor;
use rlx_ir::dim::scoped;
use rlx_ir::progress::Stage;
use rlx_ir::{ConstData, Dim, Error, ErrorKind, ExprBudget, Graph, NodeId, Op, Progress, Shape, WeightStore};
use slot::Importer;
use std::collections::{BTreeMap, HashSet};
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
    /// The inputs on whose values the graph was specialised.
    pub specialised: Vec<String>,
}

/// The input whose value the import asks for (the source of an [`ErrorKind::NeedsInputValue`] error).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeedsInputValue {
    /// The input's name.
    pub input: String,
}

impl fmt::Display for NeedsInputValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the value of input \"{}\" decides a shape or an axis", self.input)
    }
}

impl std::error::Error for NeedsInputValue {}

/// The input whose value an import needs, if that is the error.
pub fn needed_input(error: &Error) -> Option<&str> {
    let mut source = std::error::Error::source(error);
    while let Some(e) = source {
        if let Some(need) = e.downcast_ref::<NeedsInputValue>() {
            return Some(&need.input);
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
    }
    let mut outputs = Vec::with_capacity(proto.output.len());
    let mut names = Vec::with_capacity(proto.output.len());
    for output in &proto.output {
        let slot = importer.lookup(output.name())?;
        let node = importer.materialize(slot)?;
        importer.name_output(node, output.name());
        outputs.push(node);
        names.push(output.name().to_owned());
    }
    importer.graph.set_outputs(outputs);
    let specialised = options.input_values.keys().filter(|k| proto.input.iter().any(|i| i.name() == **k));
    Ok(Imported {
        specialised: specialised.cloned().collect(),
        graph: importer.graph,
        weights: importer.weights,
        outputs: names,
    })
}

impl Importer<'_> {
    /// Names an output's node after it, so that the graph has the model's own names.
    fn name_output(&mut self, node: NodeId, name: &str) {
        let named = self.graph.node(node);
        let outside = matches!(named.op, Op::Input { .. } | Op::Param { .. });
        if !outside && named.name.is_none() {
            self.graph.set_name(node, name);
        }
    }

    /// Declares the graph's inputs; an input that has an initialiser is a weight (files before version 4).
    fn inputs(&mut self, proto: &GraphProto) -> Result<(), Error> {
        let names = DimNames::of_inputs(proto, &self.options.dims);
        let weights: HashSet<&str> = proto.initializer.iter().map(|t| t.name()).collect();
        for input in proto.input.iter().filter(|input| !weights.contains(input.name())) {
            let name = input.name();
            let shape =
                self.declared_shape(input, &names).map_err(|e| e.with_origin(format!("input \"{name}\"")))?;
            let given = self.options.input_values.get(name);
            if let Some(value) = given {
                check_given(name, &shape, value)?;
            }
            let shape = given.map_or(shape, ConstData::shape);
            let node = self.graph.input(name, shape);
            let slot = match given {
                Some(value) => self.constant_slot(value.clone()),
                None => self.node_slot(node),
            };
            self.define(name, slot)?;
        }
        Ok(())
    }

    /// The shape an input declares; a dimension without a size or name gets a new symbol.
    fn declared_shape(&self, info: &ValueInfoProto, names: &DimNames<'_>) -> Result<Shape, Error> {
        let tensor = match info.r#type.as_ref().and_then(|t| t.value.as_ref()) {
            Some(TypeValue::TensorType(tensor)) => tensor,
            Some(_) => return Err(Error::new(ErrorKind::Unsupported, "inputs that are not plain tensors")),
            None => return Err(Error::new(ErrorKind::Malformed, "no type is declared")),
        };
        let dtype = tensor::dtype(tensor.elem_type())?;
        let Some(shape) = &tensor.shape else {
            return match self.options.input_values.get(info.name()) {
                Some(value) => Ok(value.shape()),
                None => Err(needs_value(info.name(), "its rank is not declared")),
            };
        };
        use crate::proto::tensor_shape_proto::dimension::Value;
        self.check_rank(shape.dim.len())?;
        let dim = |(i, d): (usize, &crate::proto::tensor_shape_proto::Dimension)| match &d.value {
            Some(Value::DimValue(v)) if *v >= 0 => Dim::Static(*v as usize),
            Some(Value::DimParam(name)) if !name.is_empty() => names.dim(name),
            _ => names.dim(&format!("{}.{i}", info.name())),
        };
        let shape = Shape::from_dims(&shape.dim.iter().enumerate().map(dim).collect::<Vec<_>>(), dtype);
        shape.check_size()?;
        Ok(shape)
    }
}

/// An error that says which input's value is needed and why.
pub(crate) fn needs_value(input: &str, why: &str) -> Error {
    let need = NeedsInputValue { input: input.to_owned() };
    Error::new(ErrorKind::NeedsInputValue, format!("{need}: {why}"))
        .with_hint("import again with that input's value")
        .with_source(need)
}

/// A value the caller gives for an input must have the declared type, rank and fixed sizes.
fn check_given(name: &str, declared: &Shape, value: &ConstData) -> Result<(), Error> {
    let given = value.shape();
    let fits = declared.dtype() == given.dtype()
        && declared.rank() == given.rank()
        && declared.dims().iter().zip(given.dims()).all(|(d, g)| !d.is_static() || d == g);
    if fits {
        return Ok(());
    }
    let message = format!("input \"{name}\" is {declared}, the value given for it {given}");
    Err(Error::new(ErrorKind::Binding, message))
}
