//! What tests of the command share: a folder of their own, the command run in it, and small ONNX models made on the spot.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use prost::Message;
use rlx_onnx::proto::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, tensor_shape_proto, type_proto,
};

/// ONNX's numbers of element types.
pub const FLOAT: i32 = 1;
pub const INT64: i32 = 7;

/// A folder of the test's own, gone when the test is done.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rlx-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The names of the files in it, in order.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("the folder is there");
        let mut names: Vec<String> =
            entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(name), bytes).expect("a temporary file");
    }

    /// The command with these arguments, in this folder and with no environment of the user's that it heeds.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rlx"));
        command.args(args).current_dir(&self.0);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RLX_")) {
            command.env_remove(name);
        }
        command.env("RLX_CACHE_DIR", self.0.join("cache"));
        command
    }

    pub fn rlx(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the command starts")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left in the temporary folder harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

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
    ValueInfoProto { name: Some(name.to_owned()), r#type: Some(ty), ..Default::default() }
}

pub fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect();
    NodeProto {
        op_type: Some(op.to_owned()),
        name: Some(format!("/{}/{op}", outputs[0])),
        input: names(inputs),
        output: names(outputs),
        ..Default::default()
    }
}

/// A weight in the model's own file.
pub fn weight(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    TensorProto {
        name: Some(name.to_owned()),
        data_type: Some(FLOAT),
        dims: dims.to_vec(),
        float_data: values.to_vec(),
        ..Default::default()
    }
}

/// A weight in a file beside the model.
pub fn external(name: &str, dims: &[i64], file: &str) -> TensorProto {
    let entry = |k: &str, v: &str| StringStringEntryProto { key: Some(k.into()), value: Some(v.into()) };
    TensorProto {
        name: Some(name.to_owned()),
        data_type: Some(FLOAT),
        dims: dims.to_vec(),
        data_location: Some(1),
        external_data: vec![entry("location", file)],
        ..Default::default()
    }
}

/// The bytes of a model file.
pub fn model(
    inputs: &[ValueInfoProto],
    nodes: &[NodeProto],
    weights: &[TensorProto],
    outputs: &[ValueInfoProto],
) -> Vec<u8> {
    let graph = GraphProto {
        name: Some("test".to_owned()),
        node: nodes.to_vec(),
        initializer: weights.to_vec(),
        input: inputs.to_vec(),
        output: outputs.to_vec(),
        ..Default::default()
    };
    let opset = OperatorSetIdProto { domain: None, version: Some(17) };
    ModelProto { ir_version: Some(8), opset_import: vec![opset], graph: Some(graph), ..Default::default() }
        .encode_to_vec()
}
