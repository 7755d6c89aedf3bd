//! A graph as an ML Program.
//!
//! ```
//! use rlx_coreml::Package;
//! use rlx_ir::{DType, Graph, GraphExt, Shape, Weight, WeightStore};
//! let mut graph = Graph::new("affine");
//! let x = graph.input("x", Shape::new(&[1, 2], DType::F32));
//! let w = graph.param("w", Shape::new(&[2, 2], DType::F32));
//! let y = graph.mm(x, w);
//! graph.set_outputs(vec![y]);
//! let mut weights = WeightStore::new();
//! let bytes: Vec<u8> = [1f32, 2.0, 3.0, 4.0].iter().flat_map(|v| v.to_le_bytes()).collect();
//! weights.insert("w", Weight::owned(DType::F32, &[2, 2], bytes)?);
//! let package = Package::of(&graph, &["y".to_string()], &|name| weights.get(name).cloned())?;
//! assert_eq!(package.outputs()[0].name, "y");
//! # Ok::<(), rlx_ir::Error>(())
//! ```

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use prost::Message;
use rlx_ir::{
    ConstData, DType, Error, ErrorKind, Graph, Node, NodeId, Op, Result, Shape, Value, Weight, oracle,
};

use crate::mil::{Blob, Builder, Elements, Stored, Tensor, Type, identifier, named};
use crate::ops::{self, Ctx, Declared, held, translate};
use crate::proto::{self, mil_spec};
use crate::ranges::Ranges;

/// The set of operations: iOS 17, macOS 14. It is the first with gathers that check their indices, and runs on every system since.
pub const OPSET: &str = "CoreML7";
/// The version of the package's format that has it.
pub const SPECIFICATION: i32 = 8;

/// A tensor at a package's border.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// Its name in the package.
    pub name: String,
    /// Its name in the graph.
    pub graph_name: String,
    /// Its element type and dimensions in the graph.
    pub shape: Shape,
    /// The dimensions that it has in the package: a scalar has one of 1, more than five dimensions are one.
    pub dims: Vec<usize>,
    /// The element type that it has in the package: `f32`, `f16` or `i32`, which integers and bools are.
    pub dtype: DType,
}

/// An ML Program and its weights, in memory.
#[derive(Debug, Clone)]
pub struct Package {
    model: proto::Model,
    weights: Blob,
    inputs: Vec<Feature>,
    outputs: Vec<Feature>,
}

/// Gives the weight of a parameter.
pub type Weights<'a> = dyn Fn(&str) -> Option<Arc<Weight>> + 'a;

impl Package {
    /// The program of a graph whose every dimension is a number and whose ops Core ML has, with its weights in it. Outputs are named as
    /// `outputs` says, else `output_0` and so on.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for an op, an element type or a dimension that a package cannot have, naming the node;
    /// [`ErrorKind::Binding`] for a parameter without a weight.
    pub fn of(graph: &Graph, outputs: &[String], weights: &Weights<'_>) -> Result<Package> {
        Translation::new(graph, outputs, weights)?.run()
    }

    /// What the package takes, in the order of the graph's inputs.
    pub fn inputs(&self) -> &[Feature] {
        &self.inputs
    }

    /// What it gives, in the order of the graph's outputs.
    pub fn outputs(&self) -> &[Feature] {
        &self.outputs
    }

    /// The file `model.mlmodel`.
    pub fn model_bytes(&self) -> Vec<u8> {
        self.model.encode_to_vec()
    }

    /// The file `weights/weight.bin`; `None` where no constant is large.
    pub fn weight_bytes(&self) -> Option<Vec<u8>> {
        (!self.weights.is_empty()).then(|| self.weights.clone().finish())
    }

    /// How often each operation occurs.
    pub fn operations(&self) -> std::collections::BTreeMap<String, usize> {
        let mut counts = std::collections::BTreeMap::new();
        let Some(proto::model::Type::MlProgram(program)) = &self.model.r#type else { return counts };
        for block in program.functions.values().flat_map(|f| f.block_specializations.values()) {
            for operation in &block.operations {
                *counts.entry(operation.r#type.clone()).or_default() += 1;
            }
        }
        counts
    }
}

/// The type that a value of the graph has at the border.
fn border(ty: Type) -> (Type, DType) {
    match ty {
        Type::F32 => (Type::F32, DType::F32),
        Type::F16 => (Type::F16, DType::F16),
        _ => (Type::I32, DType::I32),
    }
}

/// A value of the graph: an operation's result, or a tensor that is known and not written yet.
#[derive(Clone)]
enum Known {
    Written(Tensor),
    Fixed(Arc<ConstData>),
}

struct Translation<'a> {
    graph: &'a Graph,
    weights: &'a Weights<'a>,
    output_names: &'a [String],
    builder: Builder,
    /// By node: its results.
    values: Vec<Vec<Known>>,
    names: BTreeSet<String>,
}

impl<'a> Translation<'a> {
    fn new(graph: &'a Graph, output_names: &'a [String], weights: &'a Weights<'a>) -> Result<Self> {
        if let Some(node) = graph.nodes().iter().find(|n| n.results().iter().any(|s| !s.is_static())) {
            let message = format!("a package has numbers for all dimensions, and {} is open", node.shape);
            let error = Error::new(ErrorKind::Unsupported, message);
            return Err(graph.locate(node.id, error.with_hint("bind every symbol (--dim NAME=N)")));
        }
        let values = vec![Vec::new(); graph.len()];
        Ok(Translation {
            graph,
            weights,
            output_names,
            builder: Builder::new(),
            values,
            names: BTreeSet::new(),
        })
    }

    fn run(mut self) -> Result<Package> {
        let inputs = self.inputs()?;
        let live = oracle::live_nodes(self.graph, &self.graph.outputs)?;
        for node in self.graph.nodes().iter().filter(|node| live[node.id.index()]) {
            let label = self.graph.label(node.id);
            self.builder.name_after(&label);
            let results = self.node(node).map_err(|e| self.graph.locate(node.id, e))?;
            self.values[node.id.index()] = results;
        }
        let outputs = self.outputs()?;
        Ok(self.package(inputs, outputs))
    }

    /// A name of the border that no other one has.
    fn name(&mut self, wanted: &str) -> String {
        let stem = match identifier(wanted) {
            stem if stem.is_empty() => "value".to_string(),
            stem => stem,
        };
        let numbered = (2..).map(|n| format!("{stem}_{n}"));
        let free = std::iter::once(stem.clone()).chain(numbered).find(|name| !self.names.contains(name));
        let name = free.unwrap_or(stem);
        self.names.insert(name.clone());
        name
    }

    fn feature(&mut self, graph_name: &str, shape: &Shape) -> Result<Feature> {
        let dims = numbers(shape)?;
        let ty = ops::holding(shape.dtype()).map_err(|why| Error::new(ErrorKind::Unsupported, why))?;
        if dims.contains(&0) {
            return Err(Error::new(ErrorKind::Unsupported, "Core ML has no tensors without elements"));
        }
        let name = self.name(graph_name);
        let dtype = border(ty).1;
        Ok(Feature {
            name,
            graph_name: graph_name.to_string(),
            shape: shape.clone(),
            dims: held(&dims),
            dtype,
        })
    }

    fn inputs(&mut self) -> Result<Vec<Feature>> {
        let mut features = Vec::new();
        for node in self.graph.inputs() {
            let Op::Input { name } = &node.op else { continue };
            let feature = self.feature(name, &node.shape).map_err(|e| self.graph.locate(node.id, e))?;
            let held =
                ops::holding(node.shape.dtype()).map_err(|why| Error::new(ErrorKind::Unsupported, why))?;
            let given = Tensor {
                name: Arc::from(feature.name.as_str()),
                ty: border(held).0,
                dims: feature.dims.clone(),
                fixed: false,
            };
            self.builder.name_after(name);
            let value = match held {
                Type::Bool => {
                    let zero = self.builder.number(Type::I32, 0.0);
                    let inputs = [("x", (&given).into()), ("y", (&zero).into())];
                    self.builder.op("not_equal", &inputs, Type::Bool, &given.dims)
                }
                _ => given,
            };
            self.values[node.id.index()] = vec![Known::Written(value)];
            features.push(feature);
        }
        Ok(features)
    }

    fn node(&mut self, node: &Node) -> Result<Vec<Known>> {
        match &node.op {
            Op::Input { .. } => Ok(std::mem::take(&mut self.values[node.id.index()])),
            Op::Constant { data } => Ok(vec![Known::Fixed(Arc::clone(data))]),
            Op::Param { name } => {
                let weight = (self.weights)(name).ok_or_else(|| {
                    Error::new(ErrorKind::Binding, format!("parameter {name:?} has no weight"))
                        .with_hint("a package has its weights in it: give all of them")
                })?;
                Ok(vec![Known::Fixed(Arc::new(weight.to_const()?))])
            }
            Op::Result { index } => {
                let all = &self.values[node.inputs[0].index()];
                let value = all.get(*index).cloned();
                value.map(|v| vec![v]).ok_or_else(|| Error::new(ErrorKind::InvalidGraph, "no such result"))
            }
            _ => match self.folded(node)? {
                Some(known) => Ok(known),
                None => self.written(node),
            },
        }
    }

    /// What a node gives that depends on weights alone: computed here, by its exact semantics, because operations like convolutions take
    /// weights that are constants of the program. What is larger than what it is made of stays an operation.
    fn folded(&self, node: &Node) -> Result<Option<Vec<Known>>> {
        let fixed = |id: &NodeId| match self.values[id.index()].first() {
            Some(Known::Fixed(data)) => Some(Arc::clone(data)),
            _ => None,
        };
        let Some(given) = node.inputs.iter().map(fixed).collect::<Option<Vec<_>>>() else { return Ok(None) };
        let elements = |shape: &Shape| shape.num_elements().unwrap_or(usize::MAX);
        let size: usize = given.iter().map(|data| data.num_elements()).sum();
        let grows = node.results().iter().map(elements).any(|n| n > size.max(4096));
        if given.is_empty() || grows || !node.op.bodies().is_empty() {
            return Ok(None);
        }
        let values = given.iter().map(|data| data.try_value()).collect::<Result<Vec<Value>>>()?;
        let values: Vec<&Value> = values.iter().collect();
        let results = oracle::evaluate_op(&node.op, &values, node.results())?;
        let known = |value: &Value| Ok(Known::Fixed(Arc::new(value.try_to_const()?)));
        results.iter().map(known).collect::<Result<Vec<_>>>().map(Some)
    }

    fn written(&mut self, node: &Node) -> Result<Vec<Known>> {
        let mut ins = Vec::with_capacity(node.inputs.len());
        for id in &node.inputs {
            ins.push(self.tensor(*id, 0)?);
        }
        let declared = |shape: &Shape| Ok(Declared { dtype: shape.dtype(), dims: numbers(shape)? });
        let given =
            node.inputs.iter().map(|&id| declared(self.graph.shape(id))).collect::<Result<Vec<_>>>()?;
        let results = node.results().iter().map(declared).collect::<Result<Vec<_>>>()?;
        let mut known = Ranges::new(self.graph);
        let mut ranges: Vec<_> = node.inputs.iter().map(|&id| known.of(id)).collect();
        ranges.extend((0..results.len()).map(|i| known.result(node, i)));
        let mut ctx = Ctx { b: &mut self.builder, ins, given, results, ranges };
        let written = translate(&node.op, &mut ctx);
        let written = written.map_err(|why| {
            let message = format!("Core ML has no kernel for {} : {}: {why}", node.op.kind(), node.shape);
            Error::new(ErrorKind::Unsupported, message)
        })?;
        Ok(written.into_iter().map(Known::Written).collect())
    }

    /// A result of a node as an operand; what is known and was not written yet is written.
    fn tensor(&mut self, id: NodeId, index: usize) -> Result<Tensor> {
        let known = self.values[id.index()].get(index).cloned();
        match known {
            Some(Known::Written(tensor)) => Ok(tensor),
            Some(Known::Fixed(data)) => {
                let label = self.graph.label(id);
                self.builder.name_after(&label);
                let tensor = constant(&mut self.builder, &data)?;
                self.values[id.index()][index] = Known::Written(tensor.clone());
                Ok(tensor)
            }
            None => Err(Error::new(ErrorKind::Internal, format!("{id} was not translated"))),
        }
    }

    /// Every output is an operation of its own, so that it has its name, whatever else the value is.
    fn outputs(&mut self) -> Result<Vec<Feature>> {
        let mut features = Vec::new();
        for (at, &id) in self.graph.outputs.iter().enumerate() {
            let wanted = self.output_names.get(at).cloned().unwrap_or_else(|| format!("output_{at}"));
            let shape = self.graph.shape(id).clone();
            let feature = self.feature(&wanted, &shape).map_err(|e| self.graph.locate(id, e))?;
            let value = self.tensor(id, 0)?;
            let ty = border(value.ty).0;
            if value.ty == ty {
                self.builder.named_op("identity", &[("x", (&value).into())], &feature.name, ty, &value.dims);
            } else {
                let dtype = self.builder.text(ty.name());
                let inputs = [("x", (&value).into()), ("dtype", (&dtype).into())];
                self.builder.named_op("cast", &inputs, &feature.name, ty, &value.dims);
            }
            features.push(feature);
        }
        Ok(features)
    }

    fn package(self, inputs: Vec<Feature>, outputs: Vec<Feature>) -> Package {
        let (operations, weights) = self.builder.finish();
        let taken = inputs.iter().map(|f| named(&f.tensor())).collect();
        let block = mil_spec::Block {
            outputs: outputs.iter().map(|f| f.name.clone()).collect(),
            operations,
            ..mil_spec::Block::default()
        };
        let function = mil_spec::Function {
            inputs: taken,
            opset: OPSET.to_string(),
            block_specializations: [(OPSET.to_string(), block)].into(),
            ..mil_spec::Function::default()
        };
        let program = mil_spec::Program {
            version: 1,
            functions: [("main".to_string(), function)].into(),
            ..mil_spec::Program::default()
        };
        let metadata = proto::Metadata {
            short_description: self.graph.name.clone(),
            user_defined: [("rlx.version".to_string(), env!("CARGO_PKG_VERSION").to_string())].into(),
            ..proto::Metadata::default()
        };
        let description = proto::ModelDescription {
            metadata: Some(metadata),
            input: inputs.iter().map(Feature::description).collect(),
            output: outputs.iter().map(Feature::description).collect(),
        };
        let model = proto::Model {
            specification_version: SPECIFICATION,
            description: Some(description),
            is_updatable: false,
            r#type: Some(proto::model::Type::MlProgram(program)),
        };
        Package { model, weights, inputs, outputs }
    }
}

impl Feature {
    fn ty(&self) -> Type {
        match self.dtype {
            DType::F32 => Type::F32,
            DType::F16 => Type::F16,
            _ => Type::I32,
        }
    }

    fn tensor(&self) -> Tensor {
        Tensor { name: Arc::from(self.name.as_str()), ty: self.ty(), dims: self.dims.clone(), fixed: false }
    }

    fn description(&self) -> proto::FeatureDescription {
        use proto::array_feature_type::ArrayDataType;
        let data_type = match self.ty() {
            Type::F32 => ArrayDataType::Float32,
            Type::F16 => ArrayDataType::Float16,
            _ => ArrayDataType::Int32,
        };
        let array = proto::ArrayFeatureType {
            shape: self.dims.iter().map(|&d| d as i64).collect(),
            data_type: data_type as i32,
        };
        proto::FeatureDescription {
            name: self.name.clone(),
            short_description: format!("{} {}", self.graph_name, self.shape),
            r#type: Some(proto::FeatureType {
                is_optional: false,
                r#type: Some(proto::feature_type::Type::MultiArrayType(array)),
            }),
        }
    }
}

fn numbers(shape: &Shape) -> Result<Vec<usize>> {
    let dims = shape.dims().iter().map(|d| d.as_static()).collect::<Option<Vec<_>>>();
    dims.ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, format!("{shape} has a dimension that is no number"))
    })
}

/// A tensor that is known, as a constant; small integers are stored as they are and widened by the program.
fn constant(b: &mut Builder, data: &ConstData) -> Result<Tensor> {
    let unsupported = |why: String| Error::new(ErrorKind::Unsupported, why);
    ops::holding(data.dtype()).map_err(unsupported)?;
    if data.num_elements() == 0 {
        return Err(unsupported("Core ML has no tensors without elements".to_string()));
    }
    let dims = held(data.dims());
    let bytes = data.bytes();
    Ok(match data.dtype() {
        DType::F32 if data.num_elements() > 10 => b.weight(Stored::F32, &dims, bytes),
        DType::F16 if data.num_elements() > 10 => b.weight(Stored::F16, &dims, bytes),
        DType::I8 | DType::U8 if data.num_elements() > 10 => {
            let stored = if data.dtype() == DType::I8 { Stored::I8 } else { Stored::U8 };
            let stored = b.weight(stored, &dims, bytes);
            ops::cast(b, &stored, Type::I32)
        }
        DType::F32 => {
            let values =
                bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
            b.constant(Elements::Floats(values), &dims)
        }
        DType::F16 => {
            let values = bytes.chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]])).collect();
            b.constant(Elements::Halves(values), &dims)
        }
        DType::Bool => b.constant(Elements::Bools(bytes.iter().map(|&v| v != 0).collect()), &dims),
        dtype => {
            let value = data.try_value()?;
            let narrow = |&v: &i128| {
                i32::try_from(v).map_err(|_| {
                    unsupported(format!(
                        "Core ML computes with 32-bit integers, and {v} of a constant of {dtype} is none"
                    ))
                })
            };
            let values = value.ints()?.iter().map(narrow).collect::<Result<Vec<i32>>>()?;
            b.constant(Elements::Ints(values), &dims)
        }
    })
}

/// What of a graph's nodes is claimed: see [`crate::ops`].
///
/// # Errors
/// The reason why a node is not.
pub fn claims(node: &Node, graph: &Graph) -> std::result::Result<(), String> {
    let sample = SampleSizes::of(node, graph);
    let declared = |shape: &Shape| sample.declared(shape);
    let results: Vec<Declared> =
        node.results().iter().map(declared).collect::<std::result::Result<_, _>>()?;
    let given: Vec<Declared> =
        node.inputs.iter().map(|&id| declared(graph.shape(id))).collect::<std::result::Result<_, _>>()?;
    let mut fixed = HashMap::new();
    let mut ins = Vec::new();
    for (i, (&id, value)) in node.inputs.iter().zip(&given).enumerate() {
        ins.push(Tensor {
            name: Arc::from(format!("x{i}")),
            ty: ops::holding(value.dtype)?,
            dims: held(&value.dims),
            fixed: is_fixed(graph, id, &mut fixed, 24),
        });
    }
    let mut known = Ranges::new(graph);
    let mut ranges: Vec<_> = node.inputs.iter().map(|&id| known.of(id)).collect();
    ranges.extend((0..results.len()).map(|i| known.result(node, i)));
    let op = node.op.bind(&sample.binding);
    let mut ctx = Ctx { b: &mut Builder::new(), ins, given, results, ranges };
    translate(&op, &mut ctx).map(drop)
}

/// Numbers for the symbols that a node mentions, to ask for its translation: what is supported does not depend on them.
struct SampleSizes {
    binding: rlx_ir::DimBinding,
}

impl SampleSizes {
    fn of(node: &Node, graph: &Graph) -> SampleSizes {
        let mut symbols = node.symbols();
        node.inputs.iter().for_each(|&id| symbols.extend(graph.node(id).symbols()));
        let mut binding = rlx_ir::DimBinding::new();
        for symbol in symbols {
            let range = graph.symbol_range(symbol);
            let size = range.max.min(8).max(range.min).max(1);
            binding.set(symbol, size as usize);
        }
        SampleSizes { binding }
    }

    /// The value with numbers; a dimension that comes out as 0 for them may be larger for others.
    fn declared(&self, shape: &Shape) -> std::result::Result<Declared, String> {
        let open = !shape.is_static();
        let bound = shape.bind(&self.binding);
        let dims = numbers(&bound).map_err(|e| e.message().to_string())?;
        let dims = dims.into_iter().map(|d| if open { d.max(1) } else { d }).collect();
        Ok(Declared { dtype: shape.dtype(), dims })
    }
}

/// Whether a value is made of parameters and constants alone, in a few steps.
fn is_fixed(graph: &Graph, id: NodeId, known: &mut HashMap<NodeId, bool>, depth: usize) -> bool {
    if let Some(&fixed) = known.get(&id) {
        return fixed;
    }
    let node = graph.node(id);
    let fixed = match &node.op {
        Op::Param { .. } | Op::Constant { .. } => true,
        Op::Input { .. } => false,
        _ => {
            depth > 0
                && !node.inputs.is_empty()
                && node.inputs.iter().all(|&input| is_fixed(graph, input, known, depth - 1))
        }
    };
    known.insert(id, fixed);
    fixed
}
