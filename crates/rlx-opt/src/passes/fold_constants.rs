//! Computes what is constant.
//!
//! Matches: a node all of whose inputs are constants, and a parameter whose value the options fix. Makes: a
//! constant, computed by the op's own reference semantics. Legal because the value cannot depend on a run.
//! Results larger than 64 KiB are folded only when they are not larger than what they are made of, so that
//! broadcasting a scalar does not blow up the artefact; large tensors are left to the init program.
//!
//! ```text
//! %0 = Constant {data=dense([2] f32, 1.0, 2.0)} : [2] f32
//! %1 = Activation.Neg(%0) : [2] f32                             →   %0 = Constant {data=dense([2] f32, -1.0, -2.0)} : [2] f32
//! ```

use std::sync::Arc;

use rlx_ir::{ConstData, Error, ErrorKind, Graph, Node, NodeId, Op, Result, Shape, Value, oracle};

use crate::facts;
use crate::pipeline::PassContext;
use crate::rewrite::Rewriter;

/// Results up to this size are always folded.
const SMALL_BYTES: usize = 64 << 10;

/// More is not computed at compile time: the init program does it faster.
const MAX_INPUT_BYTES: usize = 4 << 20;

/// The oracle is slow: products that take longer are left to the init program, too.
const MAX_FLOPS: f64 = 1e7;

/// Runs the pass.
///
/// # Errors
/// [`ErrorKind::Binding`] for a fixed parameter that does not fit its declaration.
pub fn run(graph: &Graph, context: &PassContext<'_>) -> Result<Graph> {
    let mut r = Rewriter::new(graph);
    for node in graph.nodes() {
        let folded = match &node.op {
            Op::Param { name } => match context.options.param_bindings.get(name) {
                Some(data) => {
                    // The parameter stays: it is part of the interface.
                    r.keep(node)?;
                    Some(bound(node, data)?)
                }
                None => None,
            },
            op if context.options.constant_folding => {
                let inputs: Vec<NodeId> = node.inputs.iter().map(|&id| r.new_id(id)).collect();
                fold(op, &inputs, r.new_graph())
            }
            _ => None,
        };
        match folded.filter(|data| data.shape() == node.shape) {
            Some(data) => {
                r.set_origin(node.origin);
                let constant = r.emit(Op::Constant { data: Arc::new(data) }, &[])?;
                r.replace(node.id, constant);
            }
            None => _ = r.keep(node)?,
        }
    }
    Ok(r.finish(context.options.dce))
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
/// What the reference semantics refuse (an index out of range) is left for the run to report.
pub fn fold(op: &Op, inputs: &[NodeId], graph: &Graph) -> Option<ConstData> {
    // Dequantised weights stay what they are: products take the integers, and floats would be four times their size.
    let stays = matches!(op, Op::Custom { .. } | Op::Pack { .. } | Op::Result { .. } | Op::Dequantize { .. });
    let foldable = !stays && op.bodies().is_empty();
    if !foldable || inputs.is_empty() || inputs.iter().any(|&id| facts::constant(graph, id).is_none()) {
        return None;
    }
    if !op.extents().iter().all(|e| e.as_const().is_some()) {
        return None;
    }
    let data: Vec<&Arc<ConstData>> =
        inputs.iter().map(|&id| facts::constant(graph, id)).collect::<Option<_>>()?;
    let results = graph.infer(op, inputs, &[]).ok()?;
    let [result] = results.as_slice() else { return None };
    let given: usize = data.iter().map(|d| d.bytes().len()).sum();
    let size = Shape::size_bytes(result)?;
    let shapes: Vec<&Shape> = inputs.iter().map(|&id| graph.shape(id)).collect();
    let slow = op.def().flops(op, &shapes, &results) > MAX_FLOPS;
    if slow || given > MAX_INPUT_BYTES || (size > SMALL_BYTES && size > given) {
        return None;
    }
    let values: Vec<Value> = data.iter().map(|d| d.value()).collect();
    let values: Vec<&Value> = values.iter().collect();
    let value = oracle::evaluate_op(op, &values, &results).ok()?.pop()?;
    Some(value.to_const())
}
