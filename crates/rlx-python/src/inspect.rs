//! What a model consists of, as `rlx.inspect` returns it.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rlx::Runner;
use rlx_ir::cost::graph_cost;
use rlx_ir::{ConstData, Op, Progress, Result};
use rlx_runtime::{TensorInfo, dispatch_report_on};

use crate::spec::TensorSpec;

/// What is known of a model.
pub struct Facts {
    model: String,
    device: &'static str,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    ops: BTreeMap<&'static str, usize>,
    /// `None` while dimensions are open.
    flops: Option<f64>,
    parameters: usize,
    parameter_bytes: usize,
    /// Of each op: how many nodes, and how they are computed.
    dispatch: Vec<(String, usize, String)>,
    /// The ops that the device has no kernel for.
    unsupported: Vec<String>,
    graph: String,
}

impl Facts {
    /// Of the model as it is imported for these inputs.
    pub fn of(runner: &mut Runner, given: &[(&str, &ConstData)], progress: &Progress) -> Result<Self> {
        let imported = runner.import_with_progress(given, progress)?;
        let (graph, device) = (&imported.graph, runner.session().device_id());
        let report = dispatch_report_on(graph, device, runner.options())?;
        let mut ops = BTreeMap::new();
        for node in graph.nodes() {
            if !matches!(node.op, Op::Input { .. } | Op::Param { .. } | Op::Constant { .. }) {
                *ops.entry(node.op.kind().name()).or_default() += 1;
            }
        }
        let info = |name: &str, id| {
            let shape = graph.shape(id).clone();
            TensorSpec::of(&TensorInfo { name: name.to_owned(), dtype: shape.dtype(), shape })
        };
        let outputs = imported.outputs.iter().zip(&graph.outputs).map(|(name, &id)| info(name, id));
        let path = |s: &rlx_runtime::KindDispatchSummary| {
            (s.logical_name.to_string(), s.node_count, s.path.to_string())
        };
        Ok(Facts {
            model: runner.name().to_owned(),
            device: device.feature(),
            inputs: runner.inputs()?.iter().map(TensorSpec::of).collect(),
            outputs: outputs.collect(),
            ops,
            flops: graph.nodes().iter().all(|n| n.shape.is_static()).then(|| graph_cost(graph).flops),
            parameters: graph.params().filter_map(|n| n.shape.num_elements()).sum(),
            parameter_bytes: imported.weights.total_bytes(),
            dispatch: report.summaries.iter().map(path).collect(),
            unsupported: report.still_unsupported.iter().map(|(_, kind)| kind.name().to_owned()).collect(),
            graph: graph.to_string(),
        })
    }

    pub fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("model", &self.model)?;
        dict.set_item("device", self.device)?;
        dict.set_item("inputs", PyList::new(py, self.inputs.iter().cloned())?)?;
        dict.set_item("outputs", PyList::new(py, self.outputs.iter().cloned())?)?;
        let ops = PyDict::new(py);
        self.ops.iter().try_for_each(|(op, n)| ops.set_item(op, n))?;
        dict.set_item("ops", ops)?;
        dict.set_item("flops", self.flops)?;
        dict.set_item("parameters", self.parameters)?;
        dict.set_item("parameter_bytes", self.parameter_bytes)?;
        let dispatch = PyList::empty(py);
        for (op, nodes, path) in &self.dispatch {
            let entry = PyDict::new(py);
            entry.set_item("op", op)?;
            entry.set_item("nodes", nodes)?;
            entry.set_item("path", path)?;
            dispatch.append(entry)?;
        }
        dict.set_item("dispatch", dispatch)?;
        dict.set_item("unsupported", &self.unsupported)?;
        dict.set_item("graph", &self.graph)?;
        Ok(dict)
    }
}
