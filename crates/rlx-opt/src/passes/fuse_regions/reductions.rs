//! Regions of two reductions of the same value: dynamic quantisation asks for its smallest and its largest element.
//!
//! A device that finds both in one pass ([`crate::Target::reduces_together`]) has them as one region of two results:
//!
//! ```text
//! %1 = Reduce(%0) {op=Min, axes=[0, 1]}              %1 = Region(%0) {body=graph "Min+Max" {
//! %2 = Binary.Min(%1, 0)                                …
//! %3 = Reduce(%0) {op=Max, axes=[0, 1]}        →     }}
//!                                                    %2 = Result(%1) {index=1}
//!                                                    %3 = Binary.Min(%1, 0)
//! ```
//!
//! Legal because neither reads the other: the region stands where the first one stood.

use rlx_ir::{Node, NodeId, Op};

use super::Groups;

impl Groups<'_> {
    /// Makes a group of each such pair, where the device has a kernel for it.
    pub(super) fn take_reductions(&mut self) {
        for first in self.graph.nodes() {
            if let Some(second) = self.reduced_with(first) {
                self.add(vec![first.id, second]);
            }
        }
    }

    /// A later node that the reduction `first` may be computed with.
    fn reduced_with(&self, first: &Node) -> Option<NodeId> {
        let Op::Reduce { axes, keep_dim, .. } = &first.op else { return None };
        let is_used = |id: NodeId| self.outputs[id.index()] || !self.users[id.index()].is_empty();
        let free = |id: NodeId| self.of[id.index()].is_none() && is_used(id);
        let fits = |&id: &NodeId| {
            let node = self.graph.node(id);
            id > first.id
                && matches!(&node.op, Op::Reduce { axes: a, keep_dim: k, .. } if a == axes && k == keep_dim)
                && free(id)
                && self.context.target.reduces_together(first, node)
                && self.binds_enough(&[first.id], id)
        };
        let x = first.inputs.first()?;
        self.users[x.index()].iter().copied().find(fits).filter(|_| free(first.id))
    }
}
