//! Ops on elements of less than a byte, as ops on elements of whole bytes between two casts.
//!
//! Every value of a packed type has an equal one in [`DType::in_whole_bytes`], and a cast back wraps around integers as the
//! packed type does. So what only chooses elements, and integer arithmetic that wraps around, is the same there. Casts are the
//! only kernels of packed elements that a device needs, whatever else it computes.
//!
//! ```text
//! %1 = Transpose(%0) : [3, 2] i4    →    Cast to i8, Transpose, Cast to i4
//! ```

use std::sync::Arc;

use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Graph, GraphExt, Node, NodeId};
use crate::ops::types::Body;
use crate::ops::{Activation, BinaryOp, Op, ReduceOp, ScatterOp};
use crate::tensor::Value;

/// What the node computes without packed elements but in casts to and from whole bytes; `None` where that would give other
/// values, or there is nothing to replace.
pub(super) fn in_whole_bytes(
    node: &Node,
    graph: &Graph,
    inputs: &[NodeId],
    out: &mut Graph,
) -> Option<Result<Vec<NodeId>>> {
    let types = || node.inputs.iter().map(|&id| graph.shape(id)).chain(node.results()).map(|s| s.dtype());
    if !types().any(DType::is_packed) {
        return None;
    }
    match &node.op {
        Op::Cast { .. } => None,
        Op::Quantize { axis, to } => Some(quantize(*axis, *to, inputs, out)),
        op if keeps_values(op, types().any(|d| d.is_packed() && d.is_float())) => {
            Some(between_casts(op.clone(), inputs, node, out))
        }
        op => Some(between_casts(with_bodies_in_whole_bytes(op)?, inputs, node, out)),
    }
}

/// Whether the op gives the same values on elements of whole bytes: it chooses among them or compares them or, of integers,
/// computes what wraps around.
fn keeps_values(op: &Op, floats: bool) -> bool {
    let chooses = |f: BinaryOp| matches!(f, BinaryOp::Max | BinaryOp::Min);
    match op {
        Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Expand { .. }
        | Op::Slice { .. }
        | Op::Concat { .. } => true,
        Op::Gather { .. } | Op::GatherElements { .. } | Op::GatherNd { .. } | Op::UpdateSlice { .. } => true,
        Op::Where | Op::Pad { .. } | Op::Compare(_) | Op::Predicate(_) | Op::TopK { .. } => true,
        Op::ArgReduce { .. } | Op::NonZero { .. } | Op::Dequantize { .. } => true,
        Op::MatMulBlocks | Op::DynamicMatMulBlocks => true,
        Op::ScatterElements { reduction, .. } | Op::ScatterNd { reduction } => {
            matches!(reduction, ScatterOp::Set | ScatterOp::Max | ScatterOp::Min) || !floats
        }
        // What no integer is less than is another number in another type, where nothing is reduced.
        Op::Reduce { op: ReduceOp::Sum | ReduceOp::Prod, .. } => !floats,
        Op::Binary(f) => chooses(*f) || !floats,
        Op::Activation(Activation::Neg | Activation::Abs | Activation::Relu) => true,
        Op::Activation(_) => !floats,
        _ => false,
    }
}

/// Whole bytes within the range of a packed integer.
fn clamped(x: NodeId, to: DType, out: &mut Graph) -> Result<NodeId> {
    let (min, max) = to.int_range().unwrap_or((0, 0));
    let wide = to.in_whole_bytes();
    let [min, max] = [min, max].map(|v| out.constant(Value::int(wide, &[], vec![v]).to_const()));
    let x = out.try_add(Op::Binary(BinaryOp::Max), &[x, min])?;
    out.try_add(Op::Binary(BinaryOp::Min), &[x, max])
}

/// A value in whole bytes; what is not packed is itself.
fn widened(x: NodeId, out: &mut Graph) -> Result<NodeId> {
    let dtype = out.try_shape(x)?.dtype();
    if dtype.is_packed() { out.try_cast(x, dtype.in_whole_bytes()) } else { Ok(x) }
}

fn quantize(axis: Option<usize>, to: DType, inputs: &[NodeId], out: &mut Graph) -> Result<Vec<NodeId>> {
    let inputs = inputs.iter().map(|&x| widened(x, out)).collect::<Result<Vec<_>>>()?;
    let wide = out.try_add(Op::Quantize { axis, to: to.in_whole_bytes() }, &inputs)?;
    let y = clamped(wide, to, out)?;
    Ok(vec![out.try_cast(y, to)?])
}

fn between_casts(op: Op, inputs: &[NodeId], node: &Node, out: &mut Graph) -> Result<Vec<NodeId>> {
    let inputs = inputs.iter().map(|&x| widened(x, out)).collect::<Result<Vec<_>>>()?;
    let made = out.try_add(op, &inputs)?;
    let mut results = Vec::with_capacity(node.results().len());
    for (i, shape) in node.results().iter().enumerate() {
        let result = out.result(made, i)?;
        let to = shape.dtype();
        results.push(if to.is_packed() { out.try_cast(result, to)? } else { result });
    }
    Ok(results)
}

/// An op with bodies, whose bodies take and give whole bytes.
fn with_bodies_in_whole_bytes(op: &Op) -> Option<Op> {
    let body = |body: &Arc<Body>| Some(Arc::new(Body { graph: body_in_whole_bytes(&body.graph).ok()? }));
    match op {
        Op::If { then, otherwise, count, chosen } => {
            Some(Op::If { then: body(then)?, otherwise: body(otherwise)?, count: *count, chosen: *chosen })
        }
        Op::Loop { body: of, trips, count, carried, scanned } => Some(Op::Loop {
            body: body(of)?,
            trips: *trips,
            count: *count,
            carried: *carried,
            scanned: *scanned,
        }),
        _ => None,
    }
}

fn body_in_whole_bytes(graph: &Graph) -> Result<Graph> {
    let mut out = graph.successor();
    let mut map: Vec<NodeId> = Vec::with_capacity(graph.len());
    for node in graph.nodes() {
        let dtype = node.shape.dtype();
        map.push(match &node.op {
            Op::Input { name } if dtype.is_packed() => {
                let wide = out.input(name.clone(), node.shape.with_dtype(dtype.in_whole_bytes()));
                out.try_cast(wide, dtype)?
            }
            _ => {
                let mut copy = node.clone();
                copy.inputs = node.inputs.iter().map(|id| map[id.index()]).collect();
                out.push_node(copy)
            }
        });
    }
    let outputs = graph.outputs.iter().map(|id| widened(map[id.index()], &mut out)).collect::<Result<_>>()?;
    out.set_outputs(outputs);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decompose::decompose_nodes;
    use crate::oracle::{Bindings, evaluate};
    use crate::shape::Shape;

    /// Everything but the casts that devices have, decomposed.
    fn checked(graph: &Graph, x: Value) {
        let own = |n: &Node| matches!(n.op, Op::Cast { .. });
        let border = |n: &Node| n.inputs.is_empty();
        let whole =
            decompose_nodes(graph, |n, _| !border(n) && !own(n)).unwrap().expect("it has packed elements");
        for node in whole.nodes() {
            let packed = node.results().iter().any(|s| s.dtype().is_packed());
            assert!(!packed || border(node) || own(node), "{whole}");
        }
        let mut bindings = Bindings::default();
        bindings.set_input("x", x);
        assert_eq!(evaluate(graph, &bindings).unwrap(), evaluate(&whole, &bindings).unwrap(), "{whole}");
    }

    #[test]
    fn packed_integers_are_computed_in_bytes() {
        for dtype in [DType::I4, DType::U4, DType::I2, DType::U2] {
            let mut g = Graph::new("packed");
            let x = g.input("x", Shape::new(&[2, 3], dtype));
            let t = g.try_add(Op::Transpose { perm: vec![1, 0] }, &[x]).unwrap();
            let sum = g.try_add(Op::Binary(BinaryOp::Add), &[t, t]).unwrap();
            let float = g.try_cast(sum, DType::F32).unwrap();
            let back = g.try_cast(float, dtype).unwrap();
            let less = g.try_add(Op::Compare(crate::ops::CmpOp::Lt), &[sum, back]).unwrap();
            g.set_outputs(vec![t, sum, back, less]);
            checked(&g, Value::int(dtype, &[2, 3], vec![-7, 7, 1, 3, -1, 0]).rounded());
        }
    }

    #[test]
    fn quantised_floats_saturate_in_packed_integers() {
        let mut g = Graph::new("packed");
        let x = g.input("x", Shape::new(&[5], DType::F32));
        let scale = g.constant(Value::float(DType::F32, &[], vec![2.0]).to_const());
        for dtype in [DType::I4, DType::U2] {
            let zero = g.constant(Value::int(dtype, &[], vec![1]).to_const());
            let y = g.try_add(Op::Quantize { axis: None, to: dtype }, &[x, scale, zero]).unwrap();
            g.outputs.push(y);
        }
        checked(&g, Value::float(DType::F32, &[5], vec![-300.0, 500.0, 6.9, -3.0, f64::NAN]));
    }
}
