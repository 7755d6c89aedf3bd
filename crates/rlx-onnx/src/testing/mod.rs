//! Builders of small models for tests: a function for each kind of message, without its optional fields.
//!
//! ```
//! use rlx_onnx::testing::{FLOAT, file, model, node, value};
//! let (x, y) = (value("x", FLOAT, &["batch", "2"]), value("y", FLOAT, &["batch", "2"]));
//! let relu = file(&model(&[x], &[node("Relu", &["x"], &["y"])], &[], &[y]));
//! assert_eq!(relu.opset(""), Some(17));
//! ```
//!
//! For fuzzing, [`mutate`] changes the structure of a model; [`seeds`] has the models to start from.

mod choices;
mod large;
mod mutate;
mod mutate_graph;
mod mutate_tensor;
mod seeds;

pub use choices::Choices;
pub use large::{FAMILIES, Family};
pub use mutate::{Mutator, mutate};
pub use seeds::seeds;

use prost::Message;

use crate::OnnxFile;
use crate::proto::attribute_proto::AttributeType;
use crate::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    TensorProto, TensorShapeProto, TypeProto, ValueInfoProto, tensor_shape_proto, type_proto,
};

/// ONNX's number of f32.
pub const FLOAT: i32 = 1;
/// ONNX's number of i64.
pub const INT64: i32 = 7;
/// ONNX's number of bool.
pub const BOOL: i32 = 9;

/// An input or output; dimensions that are no numbers are names.
pub fn value(name: &str, elem_type: i32, dims: &[&str]) -> ValueInfoProto {
    use tensor_shape_proto::dimension::Value;
    let dim = |text: &&str| tensor_shape_proto::Dimension {
        value: Some(match text.parse() {
            Ok(size) => Value::DimValue(size),
            Err(_) => Value::DimParam((*text).to_owned()),
        }),
        ..Default::default()
    };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor = type_proto::Tensor { elem_type: Some(elem_type), shape: Some(shape) };
    let ty = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() };
    ValueInfoProto { r#type: Some(ty), ..untyped(name) }
}

/// An output of whatever type and shape it has.
pub fn untyped(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: Some(name.to_owned()), ..Default::default() }
}

/// A node called after its first output and its op.
pub fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect();
    NodeProto {
        op_type: Some(op.to_owned()),
        name: Some(format!("/{}/{op}", outputs.first().unwrap_or(&""))),
        input: names(inputs),
        output: names(outputs),
        ..Default::default()
    }
}

/// The node with one more attribute.
pub fn with(mut node: NodeProto, attribute: AttributeProto) -> NodeProto {
    node.attribute.push(attribute);
    node
}

/// An attribute of this type, without a value.
pub fn attr(name: &str, ty: AttributeType) -> AttributeProto {
    AttributeProto { name: Some(name.to_owned()), r#type: Some(ty as i32), ..Default::default() }
}

/// An attribute that is an integer.
pub fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { i: Some(i), ..attr(name, AttributeType::Int) }
}

/// An attribute that is a number.
pub fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { f: Some(f), ..attr(name, AttributeType::Float) }
}

/// An attribute that is a graph: the body of `If`, `Loop` or `Scan`.
pub fn body(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(Box::new(graph)), ..attr(name, AttributeType::Graph) }
}

/// A weight in the model's own file.
pub fn weight(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    TensorProto { float_data: values.to_vec(), ..tensor(name, FLOAT, dims) }
}

/// A vector of integers in the model's own file.
pub fn ints(name: &str, values: &[i64]) -> TensorProto {
    TensorProto { int64_data: values.to_vec(), ..tensor(name, INT64, &[values.len() as i64]) }
}

/// A weight in a file beside the model.
pub fn external(name: &str, dims: &[i64], file: &str) -> TensorProto {
    let entry = |k: &str, v: &str| StringStringEntryProto { key: Some(k.into()), value: Some(v.into()) };
    TensorProto {
        data_location: Some(1),
        external_data: vec![entry("location", file)],
        ..tensor(name, FLOAT, dims)
    }
}

fn tensor(name: &str, data_type: i32, dims: &[i64]) -> TensorProto {
    TensorProto {
        name: Some(name.to_owned()),
        data_type: Some(data_type),
        dims: dims.to_vec(),
        ..Default::default()
    }
}

/// A graph.
pub fn graph(
    inputs: &[ValueInfoProto],
    nodes: &[NodeProto],
    weights: &[TensorProto],
    outputs: &[ValueInfoProto],
) -> GraphProto {
    GraphProto {
        name: Some("test".to_owned()),
        node: nodes.to_vec(),
        initializer: weights.to_vec(),
        input: inputs.to_vec(),
        output: outputs.to_vec(),
        ..Default::default()
    }
}

/// A model of opset 17.
pub fn model(
    inputs: &[ValueInfoProto],
    nodes: &[NodeProto],
    weights: &[TensorProto],
    outputs: &[ValueInfoProto],
) -> ModelProto {
    ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(17) }],
        graph: Some(graph(inputs, nodes, weights, outputs)),
        ..Default::default()
    }
}

/// The model as a file.
///
/// # Panics
/// When the file is rejected, as one that is nested too deeply is.
pub fn file(model: &ModelProto) -> OnnxFile {
    OnnxFile::from_bytes(model.encode_to_vec()).expect("the model decodes")
}
