//! What does not survive in a short type, whatever a policy asks for, and so stays f32.
//!
//! - *Scales and zero points*: what the parameters of `Quantize` and `Dequantize` are made of. They are small (a maximum
//!   divided by 255, the product of two scales), and a step of theirs moves every element.
//! - *Sums of integers*: an `i32` has no place in 16 bits until its scale has been applied.
//! - *Matmuls of dequantised bytes*, which `multiply-integers` computes in integers.
//! - *Constants outside the type's range*: an epsilon of 10⁻⁸ is 0 in f16, and what is divided by it infinite. (Masks are the
//!   exception: beyond [`MASK`] only the sign counts, and the type's largest number says the same.)
//!
//! - *What a tiny constant guards*: an epsilon is added to a variance, or a norm is raised to it, because they may be as small. In the short type the
//!   square of a small number is 0 already, and what is divided by it would be divided by the epsilon. So the sum and the square in it stay f32, too.
//!
//! - *Angles*: what sines and cosines are computed of, and they themselves. A step of bf16 between 256 and 512 is 2, as much as a third of a turn, and a
//!   decoder's positions times frequencies (RoPE) are as large. Sines are no larger than 1, and what is made of them may be short again.
//!
//! What is made of such values by elementwise ops and movement stays f32, too, up to the next op of another kind:
//! there they have come back into range.

use rlx_ir::op::{Activation, BinaryOp as B};
use rlx_ir::{DType, Graph, Node, NodeId, Op, OpKind};

use crate::facts;
use crate::options::{CompileOptions, Numerics};
use crate::passes::legalize::needs_no_kernel;
use crate::passes::simplify::arithmetic::holds;

/// Constants of at least this magnitude forbid something; how large they are exactly does not count.
const MASK: f64 = 1e9;

/// The smallest normal and the largest number of a short type.
pub(super) fn normal_range(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F16 => (2f64.powi(-14), 65504.0),
        DType::BF16 => (2f64.powi(-126), f64::from(f32::from_bits(0x7f7f_0000))),
        _ => (0.0, f64::INFINITY),
    }
}

/// For each node, whether it has to stay f32 where `short` names the type that it is asked to run in.
pub(super) fn long_nodes(
    graph: &Graph,
    options: &CompileOptions,
    short: &dyn Fn(&Op) -> Option<DType>,
) -> Vec<bool> {
    let scales = scales(graph);
    let guarded = guarded(graph, short);
    let angles = angles(graph);
    // Values that must not be rounded: what is made of them is not, either.
    let mut delicate = vec![false; graph.len()];
    let mut long = vec![false; graph.len()];
    for node in graph.nodes() {
        let at = node.id.index();
        let Some(dtype) = short(&node.op) else {
            delicate[at] = scales[at] || guarded[at] || (hands_on(&node.op) && made_of(node, &delicate));
            continue;
        };
        let fragile =
            scales[at] || guarded[at] || outside(graph, node, dtype) || sum_of_integers(graph, node, dtype);
        delicate[at] = fragile || (hands_on(&node.op) && made_of(node, &delicate));
        long[at] = delicate[at]
            || angles[at]
            || (options.numerics == Numerics::Fast && multiplies_bytes(graph, node));
    }
    long
}

fn made_of(node: &Node, delicate: &[bool]) -> bool {
    node.inputs.iter().any(|id| delicate[id.index()])
}

/// Whether the op hands on the range of its operands.
fn carries(op: &Op) -> bool {
    op.is_elementwise() || needs_no_kernel(op)
}

/// The same, where it does not bring them back into range.
fn hands_on(op: &Op) -> bool {
    carries(op) && !turns(op)
}

/// Whether the op's operand is an angle.
fn turns(op: &Op) -> bool {
    matches!(op, Op::Activation(Activation::Sin | Activation::Cos | Activation::Tan))
}

/// Functions of angles, and what angles are made of by elementwise ops, movement, and products that are summed one by one (a column of frequencies by a
/// row of positions).
fn angles(graph: &Graph) -> Vec<bool> {
    let outer = |node: &Node| {
        let of_one = |&id: &NodeId| graph.shape(id).dims().last().is_some_and(|d| d.as_static() == Some(1));
        node.op == Op::MatMul && node.inputs.first().is_some_and(of_one)
    };
    let mut wanted = vec![false; graph.len()];
    let mut found = vec![false; graph.len()];
    for node in graph.nodes().iter().rev() {
        let at = node.id.index();
        found[at] = turns(&node.op) || wanted[at] && (carries(&node.op) || outer(node));
        if found[at] {
            node.inputs.iter().for_each(|id| wanted[id.index()] = true);
        }
    }
    found
}

/// What scales and zero points are made of, up to the reductions and matmuls that they are computed from.
fn scales(graph: &Graph) -> Vec<bool> {
    let mut found = vec![false; graph.len()];
    for node in graph.nodes().iter().rev() {
        let quantises = matches!(node.op, Op::Quantize { .. } | Op::Dequantize { .. });
        let parameters = match found[node.id.index()] && carries(&node.op) {
            true => &node.inputs[..],
            false if quantises => &node.inputs[1..],
            false => &[],
        };
        parameters.iter().for_each(|id| found[id.index()] = true);
    }
    found
}

/// What tiny constants are added to or compared with, back to the sums it is made of and the squares that are summed.
fn guarded(graph: &Graph, short: &dyn Fn(&Op) -> Option<DType>) -> Vec<bool> {
    let mut found = vec![false; graph.len()];
    let mut squares = vec![false; graph.len()];
    for node in graph.nodes().iter().rev() {
        let guards = matches!(node.op, Op::Binary(B::Add | B::Max))
            && short(&node.op).is_some_and(|dtype| has_tiny_operand(graph, node, normal_range(dtype).0));
        let at = node.id.index();
        match node.op {
            Op::Reduce { .. } if found[at] => squares[node.inputs[0].index()] = true,
            _ if guards || (found[at] && carries(&node.op)) => {
                node.inputs.iter().for_each(|id| found[id.index()] = true);
            }
            _ => {}
        }
    }
    // A square that is summed, but not what is squared.
    let squared = graph.nodes().iter().map(|node| squares[node.id.index()] && node.op.is_elementwise());
    let computed =
        |node: &Node| !node.inputs.is_empty() && (carries(&node.op) || matches!(node.op, Op::Reduce { .. }));
    let sum = |node: &Node| found[node.id.index()] && computed(node);
    graph.nodes().iter().zip(squared).map(|(node, squared)| squared || sum(node)).collect()
}

/// Whether an operand is a constant above 0 that is smaller than this.
fn has_tiny_operand(graph: &Graph, node: &Node, least: f64) -> bool {
    let tiny = |&id: &NodeId| {
        graph.shape(id).dtype() == DType::F32
            && facts::uniform(graph, id).is_some_and(|value| value > 0.0 && value < least)
    };
    node.inputs.iter().any(tiny)
}

/// Whether an operand is a constant that the type has no normal number for.
fn outside(graph: &Graph, node: &Node, dtype: DType) -> bool {
    let (least, most) = normal_range(dtype);
    let beyond = |&id: &NodeId| {
        let value = facts::uniform(graph, id).unwrap_or(0.0).abs();
        graph.shape(id).dtype() == DType::F32
            && value.is_finite()
            && value != 0.0
            && (value < least || (value > most && value < MASK))
    };
    node.op.is_elementwise() && node.inputs.iter().any(beyond)
}

/// Whether the node converts integers that the type cannot hold.
fn sum_of_integers(graph: &Graph, node: &Node, dtype: DType) -> bool {
    let from = |&id: &NodeId| graph.shape(id).dtype();
    let Op::Cast { to } = node.op else { return false };
    to.is_float() && node.inputs.iter().map(from).any(|from| from.is_int() && !holds(dtype, from))
}

/// Whether the node is a matmul of dequantised bytes.
fn multiplies_bytes(graph: &Graph, node: &Node) -> bool {
    matches!(node.op.kind(), OpKind::MatMul | OpKind::Conv)
        && node.inputs[..2].iter().all(|&id| is_dequantised_bytes(graph, id))
}

fn is_dequantised_bytes(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    match node.op {
        Op::Dequantize { .. } => {
            matches!(graph.shape(node.inputs[0]).dtype(), DType::I8 | DType::U8)
        }
        Op::Transpose { .. } | Op::Reshape { .. } => is_dequantised_bytes(graph, node.inputs[0]),
        _ => false,
    }
}
