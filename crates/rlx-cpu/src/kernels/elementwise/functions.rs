//! Functions of one element that a region spells out: two bounds, and leaky rectifiers. Each is one instruction.
//!
//! ```text
//! min(max(x, lo), hi)          →     clip x
//! where(x < 0, α·x, x)         →     leaky_relu x
//! ```

use std::collections::HashMap;

use rlx_ir::op::BinaryOp;
use rlx_ir::{Graph, Node, NodeId, Op};

use crate::kernels::matmul::is_packed;
use crate::kernels::region::{Chain, clipped};
use crate::math::Unary;

/// What was found in a body.
#[derive(Default)]
pub(super) struct Functions {
    /// For the last node of each, what it is a function of.
    of: HashMap<NodeId, (NodeId, Unary)>,
    /// The other nodes of them, which nothing else uses.
    within: Vec<NodeId>,
}

impl Functions {
    /// The functions among the nodes of `body` that are `pointwise`.
    pub(super) fn find(body: &Graph, pointwise: impl Fn(&&Node) -> bool) -> Functions {
        let mut found = Functions::default();
        let mut bounds: HashMap<NodeId, (NodeId, Unary)> = HashMap::new();
        for node in body.nodes().iter().filter(|n| is_packed(n.shape.dtype())) {
            let chain = Chain { body, dims: node.shape.dims(), dtype: node.shape.dtype(), biased: false };
            if let Some((alpha, parts, last)) = chain.leaky_rectifier(node.id) {
                found.of.insert(last, (node.id, Unary::LeakyRelu { alpha }));
                found.within.extend(parts);
            }
            let Some((x, by, bound)) = bounded(body, node).filter(|_| pointwise(&node)) else { continue };
            let alone = chain.only_user(x).is_some() && !body.outputs.contains(&x);
            match bounds.get(&x).filter(|_| alone) {
                Some(&(first, f)) => {
                    if let Some(both) = clipped(Some(f), by, bound) {
                        found.within.push(x);
                        found.of.remove(&x);
                        found.of.insert(node.id, (first, both));
                        bounds.insert(node.id, (first, both));
                    }
                }
                None => {
                    bounds.extend(clipped(None, by, bound).map(|f| (node.id, (x, f))));
                }
            }
        }
        found
    }

    /// What `node` is a function of, if it is one of them.
    pub(super) fn of(&self, node: NodeId) -> Option<(NodeId, Unary)> {
        self.of.get(&node).copied()
    }

    /// Whether `node` is part of one, and needs no instruction.
    pub(super) fn has_within(&self, node: NodeId) -> bool {
        self.within.contains(&node)
    }
}

/// What a node bounds from below or above by one number.
fn bounded(body: &Graph, node: &Node) -> Option<(NodeId, BinaryOp, f32)> {
    let (Op::Binary(by @ (BinaryOp::Max | BinaryOp::Min)), &[a, b]) = (&node.op, node.inputs.as_slice())
    else {
        return None;
    };
    let number = |id: NodeId| match &body.node(id).op {
        Op::Constant { data } => match data.value().to_f64().as_slice() {
            &[x] => Some(x as f32),
            _ => None,
        },
        _ => None,
    };
    let (x, bound) = match (number(a), number(b)) {
        (None, Some(bound)) => (a, bound),
        (Some(bound), None) => (b, bound),
        _ => return None,
    };
    (body.shape(x).dims() == node.shape.dims()).then_some((x, *by, bound))
}
