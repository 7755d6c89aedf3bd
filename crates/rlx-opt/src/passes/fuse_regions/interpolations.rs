//! Regions that interpolate along an axis, as a resize does: between slices that two gathers pick.
//!
//! A gather by itself writes what it picks, twice as much as there is where a resize doubles it, and the elementwise ops behind read both. A
//! device that interpolates as it picks ([`crate::Target::interpolates`]) has all of it as one region:
//!
//! ```text
//! %4 = Gather(%0, %1) {axis=2}                 %8 = Region(%0, %1, %2, %3) {body=graph "Gather+Gather+Sub+Mul+Add" {
//! %5 = Gather(%0, %2) {axis=2}                    …
//! %6 = Sub(%5, %4)                       →     }}
//! %7 = Mul(%6, %3)
//! %8 = Add(%4, %7)
//! ```
//!
//! An interpolation along the next axis belongs to it, as where images are resized along both: a line between two others is then not in memory either.
//!
//! Legal because a region computes what its nodes did, and nothing else reads what they make on the way.

use rlx_ir::op::BinaryOp;
use rlx_ir::{Node, NodeId, Op};

use super::Groups;

impl Groups<'_> {
    /// Makes a group of each interpolation, where the device has a kernel for it.
    pub(super) fn take_interpolations(&mut self) {
        // The last axis of an image comes first.
        for sum in self.graph.nodes().iter().rev() {
            let Some((members, table)) = self.interpolation(sum) else { continue };
            let both = self.interpolation(self.graph.node(table)).map(|(before, _)| {
                let mut both = [before, members.clone()].concat();
                both.sort_unstable();
                both
            });
            let group = both.into_iter().chain([members]).find(|members| self.is_interpolation(members, sum));
            if let Some(members) = group {
                self.add(members);
            }
        }
    }

    /// Whether the members may be a region whose only result is `sum`.
    fn is_interpolation(&self, members: &[NodeId], sum: &Node) -> bool {
        let free = |id: &NodeId| {
            self.of[id.index()].is_none() && self.fixed[id.index()] == self.fixed[sum.id.index()]
        };
        members.iter().all(free)
            && self.results(members) == [sum.id]
            && self.binds_enough(members, sum.id)
            && self.is_claimed(members, &[])
    }

    /// The nodes of the interpolation whose last one is `sum`, ascending, and what they pick from.
    fn interpolation(&self, sum: &Node) -> Option<(Vec<NodeId>, NodeId)> {
        let is = |id: NodeId, op: BinaryOp| self.graph.node(id).op == Op::Binary(op);
        let picks = |id: NodeId| matches!(self.graph.node(id).op, Op::Gather { .. });
        if !is(sum.id, BinaryOp::Add) || !self.context.target.interpolates(sum) {
            return None;
        }
        let operand = |of: NodeId, fits: &dyn Fn(NodeId) -> bool| {
            self.graph.node(of).inputs.iter().copied().find(|&id| fits(id))
        };
        let first = operand(sum.id, &picks)?;
        let part = operand(sum.id, &|id| is(id, BinaryOp::Mul))?;
        let difference = operand(part, &|id| is(id, BinaryOp::Sub))?;
        let second = operand(difference, &|id| id != first && picks(id))?;
        let mut members = vec![first, second, difference, part, sum.id];
        members.sort_unstable();
        Some((members, self.graph.node(first).inputs[0]))
    }
}
