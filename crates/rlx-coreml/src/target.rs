//! Core ML as the compiler sees it.

use rlx_backend::whole_graph::GraphTarget;
use rlx_ir::{DType, Graph, Node, Op};
use rlx_opt::Claim;

use crate::claims::{claims, is_unlimited};
use crate::mil::Type;
use crate::ops::MAX_RANK;

/// The device's name in reports.
pub const NAME: &str = "ane";

/// What Core ML claims: what can be translated, node by node, exact for element types, dimensions and attributes.
pub fn target() -> GraphTarget {
    let claim = |node: &Node, graph: &Graph| match claims(node, graph) {
        Ok(()) => Claim::Native,
        Err(why) => Claim::No(why),
    };
    // What integers there can be is known of those that were given, not of what was computed of them.
    let once = |node: &Node| !node.shape.dtype().is_int();
    GraphTarget::new(NAME, claim).with_moves(moves).with_exceptions(exception).with_once(once)
}

/// Element types that programs hold at all.
fn moves(dtype: DType) -> bool {
    Type::holding(dtype).is_some()
}

/// What of a node without a kernel (a value given or moved) a package cannot have.
fn exception(node: &Node) -> Option<String> {
    if let Some(shape) = node.results().iter().find(|shape| !moves(shape.dtype())) {
        return Some(format!("Core ML does not compute with {}", shape.dtype()));
    }
    match &node.op {
        // What else takes it than a loop says so itself.
        Op::Constant { .. } if is_unlimited(node) => None,
        Op::Constant { data } if data.dtype().size_bytes() == 8 && data.dtype().is_int() => {
            let value = data.try_value().ok()?;
            let large = value.ints().ok()?.iter().find(|&&v| i32::try_from(v).is_err())?;
            Some(format!("Core ML computes with 32-bit integers, and {large} is none"))
        }
        Op::Transpose { perm } => too_scattered(perm, node),
        _ => None,
    }
}

/// A transpose that more than five groups of dimensions take part in.
fn too_scattered(perm: &[usize], node: &Node) -> Option<String> {
    let dims = node.shape.dims();
    let moved: Vec<usize> =
        perm.iter().zip(dims).filter(|(_, d)| d.as_static() != Some(1)).map(|(&axis, _)| axis).collect();
    let groups = 1 + moved.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    (groups > MAX_RANK)
        .then(|| format!("{groups} groups of dimensions change places, at most {MAX_RANK} can"))
}
