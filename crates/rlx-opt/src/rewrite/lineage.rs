//! From which nodes of the old graph each node of the new one comes.
//!
//! A new node has the origin of the old node it was made for. Old nodes that nothing stands for any more (what a pattern
//! matched, what a region fused, a convolution whose weights took in a batch norm) leave theirs to the node that used
//! them, so that every node of the model which is still computed is named by a step. Of several, the one that a reader
//! knows the step by comes first: a matmul before the ops around it.
//!
//! What was removed because it computes nothing (an identity) or what another node computes already leaves nothing.

use rlx_ir::sort::sort;
use rlx_ir::{Graph, NodeId, Op, OpKind, OriginId};

/// What a rewriter remembers of its walk.
pub(super) struct Walk<'r> {
    pub(super) old: &'r Graph,
    /// What stands for each old node.
    pub(super) map: &'r [Option<NodeId>],
    /// How many nodes were kept before anything was made.
    pub(super) kept: usize,
    /// The old nodes that new ones were made for, and where the new ones of each end.
    pub(super) made: &'r [(NodeId, usize)],
}

/// An old node that nothing stands for: the one that inherits its origin, its rank, itself.
type Gone = (NodeId, u8, NodeId);

impl Walk<'_> {
    /// Gives the nodes of `graph` that were made their origins. `live` says which of them are used, `heirs` which old
    /// node computes an old node now, as far as that is known.
    pub(super) fn set_origins(&self, heirs: Vec<Option<NodeId>>, graph: &mut Graph, live: &[bool]) {
        let gone = self.gone(heirs, live);
        let mut begin = self.kept;
        for &(old, end) in self.made {
            let first = gone.partition_point(|g| g.0 < old);
            let last = gone.partition_point(|g| g.0 <= old);
            let origin = match &gone[first..last] {
                [] => self.old.node(old).origin,
                inherited => self.merged(old, inherited, graph),
            };
            for index in begin..end {
                graph.set_origin(graph.nodes()[index].id, origin);
            }
            begin = end;
        }
    }

    /// The old nodes that nothing stands for, by the node that inherits from them.
    fn gone(&self, mut heirs: Vec<Option<NodeId>>, live: &[bool]) -> Vec<Gone> {
        let mut gone = Vec::new();
        for node in self.old.nodes().iter().rev() {
            let Some(heir) = heirs[node.id.index()] else { continue };
            let computed = !matches!(node.op, Op::Input { .. } | Op::Param { .. } | Op::Constant { .. });
            if heir != node.id && computed && node.origin != OriginId::NONE {
                gone.push((heir, rank(&node.op), node.id));
            }
            for &input in &node.inputs {
                let stays = self.map[input.index()].is_some_and(|new| live[new.index()]);
                let fused = heirs[input.index()].is_some_and(|heir| heir != input);
                if !stays && !fused {
                    heirs[input.index()] = Some(heir);
                }
            }
        }
        sort(&mut gone);
        gone
    }

    /// The origin of what was made for `old`, which inherits from these.
    fn merged(&self, old: NodeId, inherited: &[Gone], graph: &mut Graph) -> OriginId {
        let mut parts: Vec<(u8, NodeId)> = inherited.iter().map(|&(_, rank, id)| (rank, id)).collect();
        parts.push((rank(&self.old.node(old).op), old));
        sort(&mut parts);
        graph.origins_mut().merge(parts.into_iter().map(|(_, id)| self.old.node(id).origin))
    }
}

/// How well a reader knows a step by this op: 0 is best.
fn rank(op: &Op) -> u8 {
    match op.kind() {
        _ if op.is_pointwise() => 2,
        OpKind::Reshape | OpKind::Transpose | OpKind::Expand | OpKind::Slice | OpKind::Concat => 3,
        OpKind::Result | OpKind::Pack | OpKind::Pad | OpKind::Tile | OpKind::Iota | OpKind::Gather => 3,
        OpKind::Reduce | OpKind::Softmax | OpKind::LogSoftmax | OpKind::BatchNorm => 1,
        _ => 0,
    }
}
