//! The node cases as Core ML packages: each is written, and evaluated from its bytes by code that knows nothing of what wrote them (`rlx-mil-eval`).

#[path = "../../../rlx-coreml/tests/coreml/common.rs"]
#[allow(dead_code, reason = "a part of what the packages' own tests share")]
mod common;

use crate::Inputs;
use common::{compiled, given, got, reread};
use rlx_coreml::Package;
use rlx_ir::oracle::bind_shapes;
use rlx_ir::{Error, ErrorKind, Op, Result, Value};
use rlx_mil_eval::Tensor;
use rlx_onnx::Imported;

/// The outputs that a model's package gives.
pub fn run(imported: &Imported, inputs: &Inputs) -> Result<Vec<Value>> {
    let nodes: Vec<_> = imported.graph.inputs().collect();
    let shapes = nodes.iter().filter_map(|&node| match &node.op {
        Op::Input { name } => inputs.get(name).map(|value| (node, value.dims())),
        _ => None,
    });
    let graph = compiled(&imported.graph, &bind_shapes(shapes)?)?;
    let weights = |name: &str| imported.weights.get(name).cloned();
    let package = Package::of(&graph, &imported.outputs, &weights)?;
    let mut arguments: Vec<(&str, Tensor)> = Vec::new();
    for feature in package.inputs() {
        let missing = || Error::new(ErrorKind::Binding, format!("{:?} was not given", feature.graph_name));
        let value = inputs.get(&feature.graph_name).ok_or_else(missing)?.value();
        arguments.push((&feature.name, given(feature, &value)));
    }
    let outputs = reread(&package).run(&arguments).map_err(|why| Error::new(ErrorKind::Device, why))?;
    Ok(package.outputs().iter().zip(&outputs).map(|(feature, tensor)| got(feature, tensor)).collect())
}
