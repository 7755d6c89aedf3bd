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

use std::collections::BTreeSet;
use std::sync::Arc;

use prost::Message;
use rlx_ir::{DType, Error, ErrorKind, Graph, Op, Result, Shape};

use crate::mil::{Blob, Builder, Tensor, Type, identifier, named};
use crate::ops::{self, held};
use crate::proto::{self, mil_spec};
use crate::scope::{Known, Scope, Weights, numbers};

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

    /// How often each operation occurs, those of control flow's blocks included.
    pub fn operations(&self) -> std::collections::BTreeMap<String, usize> {
        let mut counts = std::collections::BTreeMap::new();
        let Some(proto::model::Type::MlProgram(program)) = &self.model.r#type else { return counts };
        let mut blocks: Vec<&mil_spec::Block> =
            program.functions.values().flat_map(|f| f.block_specializations.values()).collect();
        while let Some(block) = blocks.pop() {
            for operation in &block.operations {
                *counts.entry(operation.r#type.clone()).or_default() += 1;
                blocks.extend(&operation.blocks);
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

struct Translation<'a> {
    graph: &'a Graph,
    output_names: &'a [String],
    builder: Builder,
    scope: Scope<'a>,
    names: BTreeSet<String>,
}

impl<'a> Translation<'a> {
    fn new(graph: &'a Graph, output_names: &'a [String], weights: &'a Weights<'a>) -> Result<Self> {
        if let Some(node) = graph.nodes().iter().find(|n| n.results().iter().any(|s| !s.is_static())) {
            let message = format!("a package has numbers for all dimensions, and {} is open", node.shape);
            let error = Error::new(ErrorKind::Unsupported, message);
            return Err(graph.locate(node.id, error.with_hint("bind every symbol (--dim NAME=N)")));
        }
        let (builder, scope) = (Builder::new(), Scope::of(graph, weights));
        Ok(Translation { graph, output_names, builder, scope, names: BTreeSet::new() })
    }

    fn run(mut self) -> Result<Package> {
        let inputs = self.inputs()?;
        self.scope.write(&mut self.builder)?;
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
            self.scope.give(node.id, Known::Written(value));
            features.push(feature);
        }
        Ok(features)
    }

    /// Every output is an operation of its own, so that it has its name, whatever else the value is.
    fn outputs(&mut self) -> Result<Vec<Feature>> {
        let mut features = Vec::new();
        for (at, &id) in self.graph.outputs.iter().enumerate() {
            let wanted = self.output_names.get(at).cloned().unwrap_or_else(|| format!("output_{at}"));
            let shape = self.graph.shape(id).clone();
            let feature = self.feature(&wanted, &shape).map_err(|e| self.graph.locate(id, e))?;
            let value = self.scope.tensor(&mut self.builder, id, 0)?;
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
