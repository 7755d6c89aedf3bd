//! What a model file holds, whether or not it can be imported: nothing is imported, and no tensor is read.
//!
//! [`Survey::of`] counts the nodes of every graph in a file (main graph, bodies of control flow, functions) by op, and says of
//! each op that no importer is there for it, all at once and with the place of the first. That an op has an importer does not
//! promise that it takes every attribute.
//!
//! ```
//! use rlx_onnx::{OnnxFile, Survey};
//! # let model = rlx_onnx::proto::ModelProto {
//! #     graph: Some(rlx_onnx::proto::GraphProto {
//! #         node: vec![rlx_onnx::proto::NodeProto { op_type: Some("Frobnicate".into()), ..Default::default() }],
//! #         ..Default::default()
//! #     }),
//! #     opset_import: vec![rlx_onnx::proto::OperatorSetIdProto { version: Some(17), ..Default::default() }],
//! #     ..Default::default()
//! # };
//! # let bytes = prost::Message::encode_to_vec(&model);
//! let survey = Survey::of(&OnnxFile::from_bytes(bytes)?);
//! let missing: Vec<&str> = survey.unsupported().map(|op| op.name.as_str()).collect();
//! assert_eq!(missing, ["Frobnicate"]);
//! # Ok::<(), rlx_ir::Error>(())
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};

use rlx_ir::custom::custom_op;
use rlx_ir::sort::sort_by_key;

use crate::external;
use crate::file::OnnxFile;
use crate::import::{NEWEST_OPSET, OLDEST_OPSET, normal_domain, op_label};
use crate::ops;
use crate::proto::tensor_proto::DataType;
use crate::proto::tensor_shape_proto::dimension::Value as DimValue;
use crate::proto::tensors::each_tensor;
use crate::proto::type_proto::Value as TypeValue;
use crate::proto::{
    GraphProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto, TypeProto, ValueInfoProto,
};

/// A model file's contents.
#[derive(Debug, Clone, PartialEq)]
pub struct Survey {
    /// The graph's name.
    pub graph: String,
    /// The program that wrote it, and its version.
    pub producer: String,
    /// The version of the file format.
    pub ir_version: i64,
    /// The versions of the operator sets; `ai.onnx` is the default domain.
    pub opsets: Vec<(String, i64)>,
    /// Why the default operator set cannot be imported.
    pub opset_fault: Option<String>,
    /// Names and types of inputs that are no initialisers.
    pub inputs: Vec<(String, String)>,
    /// Names and types of outputs.
    pub outputs: Vec<(String, String)>,
    /// The file's own entries.
    pub metadata: Vec<(String, String)>,
    /// Nodes by op, in order of their names.
    pub ops: Vec<OpCount>,
    /// How many functions of its own the model defines.
    pub functions: usize,
    /// Its tensors by type, wherever they are in the file, the largest first.
    pub tensors: Vec<TensorCount>,
    /// The largest initialisers.
    pub largest: Vec<LargeTensor>,
    /// Files beside the model.
    pub external: Vec<ExternalData>,
    /// Bytes of the model file alone.
    pub file_bytes: usize,
}

/// An op of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct OpCount {
    /// Its name, with the domain where that is not the default one.
    pub name: String,
    /// Nodes of it in all graphs of the file.
    pub count: usize,
    /// The first: the node's name, or its output's, behind the bodies that it is in.
    pub first: String,
    /// Why it cannot be imported; `None` where there is an importer.
    pub fault: Option<String>,
}

/// Tensors of a type.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorCount {
    /// The element type.
    pub dtype: String,
    /// How many tensors.
    pub count: usize,
    /// The bytes their shapes take.
    pub bytes: u64,
}

/// One tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct LargeTensor {
    /// Its name.
    pub name: String,
    /// Type and shape.
    pub shape: String,
    /// The bytes its shape takes.
    pub bytes: u64,
}

/// A file beside the model.
#[derive(Debug, Clone, PartialEq)]
pub struct ExternalData {
    /// Its name, as the model gives it.
    pub location: String,
    /// How many tensors have their data in it.
    pub tensors: usize,
    /// Why it cannot be read.
    pub fault: Option<String>,
}

/// Tensors of a model that are listed by name.
const MOST_LARGE: usize = 8;

impl Survey {
    /// That of a file.
    pub fn of(file: &OnnxFile) -> Survey {
        let (model, graph) = (file.model(), file.graph());
        let weights: HashSet<&str> = graph.initializer.iter().map(|t| t.name()).collect();
        let typed = |info: &ValueInfoProto| (info.name().to_owned(), type_text(info.r#type.as_ref(), 0));
        let mut counts = Counts::new(
            model.functions.iter().map(|f| (normal_domain(f.domain()).to_owned(), f.name().to_owned())),
        );
        counts.graph(graph, &model.opset_import, "");
        for function in &model.functions {
            let path = format!("function {} / ", function.name());
            counts.nodes(&function.node, &function.opset_import, &path);
        }
        let version = file.opset("");
        let known = OLDEST_OPSET..=NEWEST_OPSET;
        let opset_fault = version
            .filter(|v| !known.contains(v))
            .map(|v| format!("opset {v}: versions {OLDEST_OPSET} to {NEWEST_OPSET} are supported"));
        let (tensors, largest) = tensors(file);
        Survey {
            graph: graph.name().to_owned(),
            producer: [model.producer_name(), model.producer_version()].join(" ").trim().to_owned(),
            ir_version: model.ir_version(),
            opsets: model
                .opset_import
                .iter()
                .map(|o| (shown_domain(o.domain()).to_owned(), o.version()))
                .collect(),
            opset_fault,
            inputs: graph.input.iter().filter(|i| !weights.contains(i.name())).map(typed).collect(),
            outputs: graph.output.iter().map(typed).collect(),
            metadata: model
                .metadata_props
                .iter()
                .map(|e| (e.key().to_owned(), e.value().to_owned()))
                .collect(),
            ops: counts.ops.into_values().collect(),
            functions: model.functions.len(),
            tensors,
            largest,
            external: external_data(file),
            file_bytes: file.size(),
        }
    }

    /// The ops that cannot be imported.
    pub fn unsupported(&self) -> impl Iterator<Item = &OpCount> {
        self.ops.iter().filter(|op| op.fault.is_some())
    }

    /// How many nodes there are in all graphs.
    pub fn nodes(&self) -> usize {
        self.ops.iter().map(|op| op.count).sum()
    }
}

fn shown_domain(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}

/// Nodes by op while they are counted.
struct Counts {
    functions: HashSet<(String, String)>,
    built: HashSet<(&'static str, &'static str)>,
    ops: BTreeMap<String, OpCount>,
}

impl Counts {
    fn new(functions: impl Iterator<Item = (String, String)>) -> Counts {
        Counts { functions: functions.collect(), built: ops::built().collect(), ops: BTreeMap::new() }
    }

    fn graph(&mut self, graph: &GraphProto, opsets: &[OperatorSetIdProto], path: &str) {
        self.nodes(&graph.node, opsets, path);
    }

    /// The decoder limits how deep bodies nest.
    fn nodes(&mut self, nodes: &[NodeProto], opsets: &[OperatorSetIdProto], path: &str) {
        let versions: HashMap<&str, i64> =
            opsets.iter().map(|o| (normal_domain(o.domain()), o.version())).collect();
        for node in nodes {
            self.node(node, &versions, path);
            for attribute in &node.attribute {
                for body in attribute.g.as_deref().into_iter().chain(&attribute.graphs) {
                    let inner = format!("{path}{} / ", node_name(node));
                    self.graph(body, opsets, &inner);
                }
            }
        }
    }

    fn node(&mut self, node: &NodeProto, versions: &HashMap<&str, i64>, path: &str) {
        let name = op_label(node);
        if let Some(op) = self.ops.get_mut(&name) {
            op.count += 1;
            return;
        }
        let fault = self.fault(node, versions, &name);
        let first = format!("{path}{}", node_name(node));
        self.ops.insert(name.clone(), OpCount { name, count: 1, first, fault });
    }

    fn fault(&self, node: &NodeProto, versions: &HashMap<&str, i64>, label: &str) -> Option<String> {
        let (domain, op) = (normal_domain(node.domain()), node.op_type());
        let is_function = self.functions.contains(&(domain.to_owned(), op.to_owned()));
        let version = versions.get(domain).copied().unwrap_or(1);
        let folds = domain.is_empty() && matches!(op, "Shape" | "Size");
        if is_function || folds || custom_op(label).is_some() || ops::find(domain, op, version).is_some() {
            return None;
        }
        Some(match self.built.iter().any(|&(d, o)| (d, o) == (domain, op)) {
            true => format!("not in opset {version} of {}", shown_domain(domain)),
            false => "not built".to_owned(),
        })
    }
}

/// A node's name, or its first output's.
fn node_name(node: &NodeProto) -> String {
    match (node.name(), node.output.first()) {
        ("", Some(output)) => format!("node of \"{output}\""),
        ("", None) => op_label(node),
        (name, _) => name.to_owned(),
    }
}

fn dtype_text(code: i32) -> String {
    match (crate::dtype(code), DataType::try_from(code)) {
        (Ok(dtype), _) => dtype.name().to_owned(),
        (_, Ok(known)) => known.as_str_name().to_lowercase(),
        _ => format!("type {code}"),
    }
}

/// A declared type; the decoder limits how deep types nest, and so does this.
fn type_text(declared: Option<&TypeProto>, depth: usize) -> String {
    let inner = |t: &Option<Box<TypeProto>>| match depth {
        ..8 => type_text(t.as_deref(), depth + 1),
        _ => "…".to_owned(),
    };
    let tensor = |code: Option<i32>, shape: &Option<TensorShapeProto>| {
        let dtype = dtype_text(code.unwrap_or_default());
        shape.as_ref().map_or_else(|| format!("[…] {dtype}"), |s| format!("{} {dtype}", shape_text(s)))
    };
    match declared.and_then(|t| t.value.as_ref()) {
        Some(TypeValue::TensorType(t)) => tensor(t.elem_type, &t.shape),
        Some(TypeValue::SparseTensorType(t)) => format!("sparse {}", tensor(t.elem_type, &t.shape)),
        Some(TypeValue::SequenceType(s)) => format!("sequence of {}", inner(&s.elem_type)),
        Some(TypeValue::OptionalType(o)) => format!("optional {}", inner(&o.elem_type)),
        Some(TypeValue::MapType(m)) => {
            format!("map from {} to {}", dtype_text(m.key_type.unwrap_or_default()), inner(&m.value_type))
        }
        Some(TypeValue::OpaqueType(o)) => format!("opaque {}", o.name()),
        None => "of no declared type".to_owned(),
    }
}

fn shape_text(shape: &TensorShapeProto) -> String {
    let dims = shape.dim.iter().map(|dim| match &dim.value {
        Some(DimValue::DimValue(n)) => n.to_string(),
        Some(DimValue::DimParam(name)) if !name.is_empty() => name.clone(),
        _ => "?".to_owned(),
    });
    format!("[{}]", dims.collect::<Vec<_>>().join(", "))
}

/// The bytes that a tensor's shape takes; `None` for texts, and for shapes that make no size.
fn shape_bytes(tensor: &TensorProto) -> Option<u64> {
    let bits = match DataType::try_from(tensor.data_type()) {
        Ok(DataType::Complex128) => 128,
        Ok(DataType::Float8e8m0) => 8,
        Ok(DataType::Uint2 | DataType::Int2) => 2,
        _ => crate::dtype(tensor.data_type()).ok()?.bits() as u64,
    };
    let dims = tensor.dims.iter().map(|&d| u64::try_from(d).ok());
    let elements = dims.into_iter().try_fold(1u64, |n, d| n.checked_mul(d?));
    elements?.checked_mul(bits).map(|bits| bits.div_ceil(8))
}

fn tensors(file: &OnnxFile) -> (Vec<TensorCount>, Vec<LargeTensor>) {
    let mut by_type: BTreeMap<String, TensorCount> = BTreeMap::new();
    let mut largest: Vec<LargeTensor> = Vec::new();
    each_tensor(file.model(), &mut |tensor| {
        let dtype = dtype_text(tensor.data_type());
        let bytes = shape_bytes(tensor).unwrap_or(0);
        let new = || TensorCount { dtype: dtype.clone(), count: 0, bytes: 0 };
        let entry = by_type.entry(dtype.clone()).or_insert_with(new);
        (entry.count, entry.bytes) = (entry.count + 1, entry.bytes.saturating_add(bytes));
        let smallest = largest.last().map_or(0, |t| t.bytes);
        if bytes > 0 && !tensor.name().is_empty() && (largest.len() < MOST_LARGE || bytes > smallest) {
            let dims: Vec<String> = tensor.dims.iter().map(i64::to_string).collect();
            let shape = format!("[{}] {dtype}", dims.join(", "));
            largest.push(LargeTensor { name: tensor.name().to_owned(), shape, bytes });
            sort_by_key(&mut largest, |t| std::cmp::Reverse(t.bytes));
            largest.truncate(MOST_LARGE);
        }
    });
    let mut counts: Vec<TensorCount> = by_type.into_values().collect();
    sort_by_key(&mut counts, |t| std::cmp::Reverse(t.bytes));
    (counts, largest)
}

fn external_data(file: &OnnxFile) -> Vec<ExternalData> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    each_tensor(file.model(), &mut |tensor| {
        let location = external::entries(tensor).and_then(external::location);
        location.into_iter().for_each(|location| *counts.entry(location).or_default() += 1);
    });
    let found = counts.into_iter().map(|(location, tensors)| ExternalData {
        location: location.to_owned(),
        tensors,
        fault: file.external_fault(location),
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{AttributeProto, ModelProto, StringStringEntryProto, tensor_proto::DataLocation};
    use prost::Message;

    fn node(op: &str, domain: &str, name: &str) -> NodeProto {
        NodeProto {
            op_type: Some(op.to_owned()),
            domain: Some(domain.to_owned()),
            name: Some(name.to_owned()),
            ..Default::default()
        }
    }

    fn survey(graph: GraphProto, opset: i64) -> Survey {
        let opset_import = vec![OperatorSetIdProto { version: Some(opset), ..Default::default() }];
        let model = ModelProto { graph: Some(graph), opset_import, ..Default::default() };
        Survey::of(&OnnxFile::from_bytes(model.encode_to_vec()).unwrap())
    }

    #[test]
    fn unsupported_ops_are_all_found_wherever_they_are() {
        let body = GraphProto {
            node: vec![node("Frobnicate", "", "inner"), node("Relu", "", "r")],
            ..Default::default()
        };
        let attribute = vec![AttributeProto { g: Some(Box::new(body)), ..Default::default() }];
        let outer = NodeProto { attribute, ..node("If", "", "choice") };
        let nodes = vec![
            outer,
            node("Frobnicate", "", "late"),
            node("Warp", "com.acme", ""),
            node("Shape", "ai.onnx", "s"),
        ];
        let found = survey(GraphProto { node: nodes, ..Default::default() }, 17);
        let missing: Vec<(&str, usize, &str)> =
            found.unsupported().map(|op| (op.name.as_str(), op.count, op.first.as_str())).collect();
        assert_eq!(missing, [("Frobnicate", 2, "choice / inner"), ("com.acme.Warp", 1, "com.acme.Warp")]);
        assert_eq!((found.nodes(), found.opset_fault), (6, None));
        let found = survey(GraphProto::default(), 99);
        assert!(found.opset_fault.unwrap().contains("opset 99"));
    }

    #[test]
    fn tensors_are_counted_without_being_read() {
        let entry = |key: &str, value: &str| StringStringEntryProto {
            key: Some(key.to_owned()),
            value: Some(value.to_owned()),
        };
        let tensor = |name: &str, dims: &[i64], data_type: i32| TensorProto {
            name: Some(name.to_owned()),
            dims: dims.to_vec(),
            data_type: Some(data_type),
            ..Default::default()
        };
        let outside = TensorProto {
            data_location: Some(DataLocation::External as i32),
            external_data: vec![entry("location", "weights.bin")],
            ..tensor("far", &[1 << 40], 1)
        };
        // What overflows or is negative counts for nothing.
        let odd =
            [tensor("odd", &[i64::MAX, i64::MAX], 1), tensor("less", &[-1], 1), tensor("text", &[2], 8)];
        let initializer = odd.into_iter().chain([outside, tensor("w", &[3, 5], 22)]).collect();
        let found = survey(GraphProto { initializer, ..Default::default() }, 17);
        let by_type: Vec<(&str, usize, u64)> =
            found.tensors.iter().map(|t| (t.dtype.as_str(), t.count, t.bytes)).collect();
        assert_eq!(by_type[..2], [("f32", 3, 4 << 40), ("i4", 1, 8)]);
        assert_eq!(found.largest[0].name, "far");
        assert_eq!((found.external[0].location.as_str(), found.external[0].tensors), ("weights.bin", 1));
        assert!(found.external[0].fault.is_some());
    }
}
