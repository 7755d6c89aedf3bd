//! Computes what is constant.
//!
//! Matches: a node all of whose inputs are constants, and a parameter whose value the options fix. Makes: a
//! constant, computed by the op's own reference semantics. Legal because the value cannot depend on a run. A parameter
//! that is fixed is gone from the compiled graph, so that setting it is an error and not without effect.
//! Results larger than 64 KiB are folded only when they are not larger than what they are made of, so that
//! broadcasting a scalar does not blow up the artefact; large tensors are left to the init program, and so is what goes
//! beyond a pass's [`Allowance`].
//!
//! ```text
//! %0 = Constant {data=dense([2] f32, 1.0, 2.0)} : [2] f32
//! %1 = Activation.Neg(%0) : [2] f32                             →   %0 = Constant {data=dense([2] f32, -1.0, -2.0)} : [2] f32
//! ```

use std::sync::Arc;

use rlx_ir::oracle::{self, Allowance};
use rlx_ir::sort::sort;
use rlx_ir::{ConstData, Error, ErrorKind, Graph, Node, NodeId, Op, Result, Shape, Value, nearest};

use crate::facts;
use crate::pipeline::PassContext;
use crate::rewrite::Rewriter;

/// Results up to this size are always folded.
const SMALL_BYTES: usize = 64 << 10;

/// More is not computed at compile time: the init program does it faster.
const MAX_INPUT_BYTES: usize = 4 << 20;

/// What one pass over `graph` may compute.
pub fn allowance(graph: &Graph) -> Allowance {
    let bytes = graph.nodes().iter().map(|node| match &node.op {
        Op::Constant { data } => data.bytes().len(),
        _ => 0,
    });
    Allowance::for_bytes(bytes.fold(0, usize::saturating_add))
}

/// Runs the pass.
///
/// # Errors
/// [`ErrorKind::Binding`] for a fixed parameter that the graph does not have, or that does not fit its declaration.
pub fn run(graph: &Graph, context: &PassContext<'_>) -> Result<Graph> {
    check_names(graph, context)?;
    let mut r = Rewriter::new(graph);
    let (mut allowance, mut inputs) = (allowance(graph), Vec::new());
    for node in graph.nodes() {
        let folded = match &node.op {
            Op::Param { name } => match context.options.param_bindings.get(name) {
                Some(data) => Some(bound(node, data)?),
                None => None,
            },
            op if context.options.constant_folding => {
                inputs.clear();
                inputs.extend(node.inputs.iter().map(|&id| r.new_id(id)));
                fold(op, &inputs, r.new_graph(), &mut allowance)
            }
            _ => None,
        };
        match folded.filter(|data| data.shape() == node.shape) {
            Some(data) => {
                let constant = r.emit(Op::Constant { data: Arc::new(data) }, &[])?;
                r.replace(node.id, constant);
            }
            None => _ = r.keep(node)?,
        }
    }
    Ok(r.finish(context.options.dce))
}

/// Whether the graph has every parameter that the options fix.
fn check_names(graph: &Graph, context: &PassContext<'_>) -> Result<()> {
    if context.options.param_bindings.is_empty() {
        return Ok(());
    }
    let name = |node: &Node| if let Op::Param { name } = &node.op { Some(name.clone()) } else { None };
    let known: Vec<String> = graph.params().filter_map(name).collect();
    let mut unknown: Vec<&String> =
        context.options.param_bindings.keys().filter(|name| !known.contains(name)).collect();
    sort(&mut unknown);
    let Some(name) = unknown.first() else { return Ok(()) };
    let message = format!("the options fix parameter {name:?}, which the graph does not have");
    let error = Error::new(ErrorKind::Binding, message);
    Err(match nearest(name, known.iter().map(String::as_str)) {
        Some(close) => error.with_hint(format!("did you mean {close:?}?")),
        None => error,
    })
}

fn bound(node: &Node, data: &ConstData) -> Result<ConstData> {
    if data.shape() == node.shape {
        return Ok(data.clone());
    }
    let message =
        format!("{} is declared as {}, but is bound to {}", node.describe(), node.shape, data.shape());
    Err(Error::new(ErrorKind::Binding, message).with_node(node.describe()))
}

/// The value of `op` on these inputs of `graph`, if they are constants and the value is worth keeping.
///
/// What the reference semantics reject (an index out of range) is left for the run to report.
pub fn fold(op: &Op, inputs: &[NodeId], graph: &Graph, allowance: &mut Allowance) -> Option<ConstData> {
    // Dequantised weights stay what they are: matmuls take the integers, and floats would be four times their size.
    let stays = matches!(op, Op::Custom { .. } | Op::Pack { .. } | Op::Result { .. } | Op::Dequantize { .. });
    let foldable = !stays && op.bodies().is_empty();
    if !foldable || inputs.is_empty() || inputs.iter().any(|&id| facts::constant(graph, id).is_none()) {
        return None;
    }
    if op.is_symbolic() {
        return None;
    }
    let data: Vec<&Arc<ConstData>> =
        inputs.iter().map(|&id| facts::constant(graph, id)).collect::<Option<_>>()?;
    let results = graph.infer(op, inputs, &[]).ok()?;
    let [result] = results.as_slice() else { return None };
    let given: usize = data.iter().map(|d| d.bytes().len()).sum();
    let size = Shape::size_bytes(result)?;
    let shapes: Vec<&Shape> = inputs.iter().map(|&id| graph.shape(id)).collect();
    let large = given > MAX_INPUT_BYTES || (size > SMALL_BYTES && size > given);
    if large || !allowance.admits(op, &shapes, &results) {
        return None;
    }
    // Without memory for its exact values, an op is left for the run.
    let values: Vec<Value> = data.iter().map(|d| d.try_value().ok()).collect::<Option<_>>()?;
    let values: Vec<&Value> = values.iter().collect();
    let value = oracle::evaluate_op(op, &values, &results).ok()?.pop()?;
    value.try_to_const().ok()
}
