//! What regions take in besides the elementwise ops behind their anchors: the op that makes the anchor's rows, and a second matmul
//! of the same rows.
//!
//! **Producers.** A norm before a matmul writes all rows, which the matmul reads back; a quantisation before a matmul of integers
//! does so too. A device that computes some rows of it as the matmul is about to read them ([`crate::Target::fuses_producer`])
//! never has more than those in memory. So it becomes part of the region of each matmul that reads it, and is a step no more:
//!
//! ```text
//! %3 = RmsNorm(%0, %1) : [m, 64] f32                 %3 = Region(%0, %1, %2) {body=graph "RmsNorm+MatMul" {
//! %4 = MatMul(%3, %2) : [m, 96] f32            →        %3 = RmsNorm(%0, %1) : [m, 64] f32
//!                                                       %4 = MatMul(%3, %2) : [m, 96] f32
//!                                                       return %4
//!                                                    }} : [m, 96] f32
//! ```
//!
//! **Cost.** Each of `c` readers computes the producer again, where it was computed once, written once and read `c` times. It is
//! taken if `(c − 1) · (work + wider · balance) < (c + 1) · bytes · balance`, for each element, `wider` being how many bytes more an
//! element has before it than after it: one reader always pays, two pay for a norm of f32, four do not; of a quantisation of f32,
//! which every reader would read in floats, one alone. If anything else reads the producer it has to be in memory anyway, and stays
//! a step. An elementwise producer is taken with all elementwise ops that would be one region with it, or else stays with them: that
//! region writes its result instead of what that is made of.
//!
//! **Gathers.** Keys and values that a gather picks from a table (pages of a cache that sequences share) become part of the attention
//! that reads them, or of the matmul where it is decomposed, with what is between the two: reshapes and transposes, which say where a row is found,
//! and a cast, which the gather would have taken in. A gather takes the one whose slices it alone picks from, if the device has a kernel for both: a resize
//! by the nearest element.
//!
//! **Pairs.** `f(x·W) · (x·V)` is one region of two matmuls if the device has a kernel for it ([`crate::Target::fuses_pair`]): the
//! second result is multiplied by the first one while that is in a cache, so that only their product is stored, and a producer
//! of `x` has one reader instead of two.
//!
//! Legal because a region computes what its nodes did, each element by the same chain of operations. A second matmul's nodes
//! depend on the rows and on fixed values alone, so no path leaves the region and comes back.

use std::collections::BTreeSet;
use std::sync::Arc;

use rlx_ir::op::{BinaryOp, Body};
use rlx_ir::ops::def;
use rlx_ir::{Dim, Node, NodeId, Op, Shape};

use super::{Groups, MAX_MEMBERS, body_of};

/// Operations that take as long as moving a byte to and from a cache: on the CPU, a norm of f32 does 60 of its operations in a
/// nanosecond, and passes move 80 bytes.
const OPERATIONS_PER_BYTE: f64 = 0.75;

impl Groups<'_> {
    /// Makes producers part of the groups that use them, where all of them can and it pays.
    pub(super) fn take_producers(&mut self) {
        for node in self.graph.nodes().iter().filter(|n| !is_moved(n)) {
            let own = self.own_group(node);
            let moved = self.moved(node, own);
            let last = moved.last().map_or(node, |&id| self.graph.node(id));
            let all_own =
                own.is_none_or(|g| self.members[g].iter().all(|m| *m == node.id || moved.contains(m)));
            if !all_own || !self.is_free(node, own) || !self.fuses_producers(&[node.id], last) {
                continue;
            }
            let mut producers = self.with_what_it_joins(node);
            producers.extend(moved);
            if let Some(groups) = self.groups_with_producers(last, &producers) {
                producers.iter().for_each(|id| self.absorbed[id.index()] = true);
                groups.into_iter().for_each(|(group, members)| self.replace(group, members));
            }
        }
    }

    /// The group that a gather began, which may become part of its reader's.
    fn own_group(&self, node: &Node) -> Option<usize> {
        let group = self.of[node.id.index()].filter(|_| matches!(node.op, Op::Gather { .. }))?;
        (self.members[group].first() == Some(&node.id)).then_some(group)
    }

    /// Whether nothing but other steps of a run reads what `node` makes, and it is in no region yet but one that is taken with it.
    fn is_free(&self, node: &Node, own: Option<usize>) -> bool {
        let at = node.id.index();
        let free = self.of[at].is_none() || self.of[at] == own;
        free && !self.outputs[at] && !self.fixed[at] && !self.users[at].is_empty()
    }

    /// Whether all that read `last` can be computed with `producers`, of which it is the last.
    fn fuses_producers(&self, producers: &[NodeId], last: &Node) -> bool {
        let (target, graph) = (self.context.target, self.graph);
        let gathers = producers.iter().any(|&p| matches!(graph.node(p).op, Op::Gather { .. }));
        // What is behind a gather would be part of its step, too.
        let asked = |p: &&Node| !(is_moved(p) || gathers && matches!(p.op, Op::Cast { .. }));
        let computes = || producers.iter().map(|&p| graph.node(p)).filter(asked);
        let fuses = |user: &NodeId| computes().all(|p| target.fuses_producer(p, graph.node(*user), graph));
        self.users[last.id.index()].iter().all(fuses)
    }

    /// The reshapes, transposes and casts through which alone a gather is read, one after the other; casts are in its `own` group, if anywhere.
    fn moved(&self, gather: &Node, own: Option<usize>) -> Vec<NodeId> {
        let (mut found, mut at) = (Vec::new(), gather);
        while matches!(gather.op, Op::Gather { .. }) && found.len() < MAX_MEMBERS {
            let &[user] = &self.users[at.id.index()][..] else { break };
            at = self.graph.node(user);
            if !(is_moved(at) || matches!(at.op, Op::Cast { .. })) || !self.is_free(at, own) {
                break;
            }
            found.push(user);
        }
        found
    }

    /// A producer, and if it is elementwise, what would otherwise be one region with it: elementwise ops of its dimensions that
    /// nothing else reads.
    fn with_what_it_joins(&self, producer: &Node) -> Vec<NodeId> {
        let mut found = vec![producer.id];
        if !self.context.options.fusion.elementwise || !producer.op.is_pointwise() {
            return found;
        }
        let joins = |id: NodeId, found: &[NodeId]| {
            let node = self.graph.node(id);
            let inside = self.users[id.index()].iter().all(|user| found.contains(user));
            inside
                && !self.outputs[id.index()]
                && self.fixed[id.index()] == self.fixed[producer.id.index()]
                && node.shape.dims() == producer.shape.dims()
                && self.may_join(None, node)
        };
        // From the last node to the first, so that all users of a node are there before it.
        let mut next: BTreeSet<NodeId> = producer.inputs.iter().copied().collect();
        while let Some(id) = next.pop_last() {
            if found.len() < MAX_MEMBERS && joins(id, &found) {
                found.push(id);
                next.extend(self.graph.node(id).inputs.iter().copied());
            }
        }
        found
    }

    /// The groups that use `producer`, each with it and the others of `producers`, which it reads; the number of one that there was.
    fn groups_with_producers(
        &self,
        producer: &Node,
        producers: &[NodeId],
    ) -> Option<Vec<(Option<usize>, Vec<NodeId>)>> {
        if !self.fuses_producers(producers, producer) {
            return None;
        }
        let id = producer.id;
        let mut readers: BTreeSet<(Option<usize>, NodeId)> = BTreeSet::new();
        for &user in &self.users[id.index()] {
            let group = self.of[user.index()];
            let first = group.map_or(user, |g| self.members[g][0]);
            readers.insert((group, first));
        }
        if !self.pays(producer, producers, readers.len()) {
            return None;
        }
        let with_producers = |(group, first): (Option<usize>, NodeId)| {
            let mut members = group.map_or(vec![first], |g| self.members[g].clone());
            members.extend(producers.iter().filter(|&&p| p != id));
            let binds = members.len() < MAX_MEMBERS && self.binds_enough(&members, id);
            members.push(id);
            members.sort_unstable();
            (binds && self.is_claimed(&members, producers)).then_some((group, members))
        };
        readers.into_iter().map(with_producers).collect()
    }

    /// Whether `readers` regions that compute the producers each on its own take less time than one that writes what the last one
    /// makes and all that read it.
    fn pays(&self, last: &Node, producers: &[NodeId], readers: usize) -> bool {
        let nodes = || producers.iter().map(|&p| self.graph.node(p));
        let from_outside: BTreeSet<NodeId> =
            nodes().flat_map(|n| &n.inputs).filter(|id| !producers.contains(id)).copied().collect();
        let shapes = from_outside.iter().map(|&id| self.graph.shape(id));
        let before = shapes.filter(|s| s.dims() == last.shape.dims()).map(|s| s.dtype().size_bytes()).sum();
        pays(nodes().map(work_per_element).sum(), (before, last.shape.dtype().size_bytes()), readers)
    }

    fn replace(&mut self, group: Option<usize>, members: Vec<NodeId>) {
        match group {
            Some(group) => self.members[group] = members,
            None => {
                let group = self.members.len();
                members[1..].iter().for_each(|m| self.of[m.index()] = Some(group));
                self.members.push(members);
            }
        }
    }

    /// The region of `anchor` and `members` with `joint`, which multiplies its result by that of another matmul of the same rows, and
    /// with that matmul, if the device computes both together.
    pub(super) fn with_second_matmul(
        &self,
        anchor: &Node,
        joint: &Node,
        members: &[NodeId],
    ) -> Option<Vec<NodeId>> {
        let (Op::Binary(BinaryOp::Mul), &[a, b]) = (&joint.op, joint.inputs.as_slice()) else { return None };
        let here = |id: NodeId| members.contains(&id);
        if !self.context.options.fusion.producers || here(a) == here(b) {
            return None;
        }
        let (other, chain) = self.matmul_behind(if here(a) { b } else { a })?;
        let fits = members.len() + chain.len() < MAX_MEMBERS
            && other.inputs[0] == anchor.inputs[0]
            && other.shape == anchor.shape
            && self.context.target.fuses_pair(anchor, other, self.graph);
        if !fits {
            return None;
        }
        let mut both = [members, &chain, &[joint.id]].concat();
        both.sort_unstable();
        let whole = self.results(&both) == [joint.id];
        (whole && self.binds_enough(&both, joint.id) && self.is_claimed(&both, &[])).then_some(both)
    }

    /// The matmul by fixed weights that `id` is the result of, and the nodes from it to `id`, each used by the next alone: elementwise
    /// ones with fixed operands.
    fn matmul_behind(&self, mut id: NodeId) -> Option<(&Node, Vec<NodeId>)> {
        let mut chain = Vec::new();
        loop {
            let node = self.graph.node(id);
            let used_once = self.users[id.index()].len() == 1 && !self.outputs[id.index()];
            if !used_once || self.of[id.index()].is_some() || chain.len() == MAX_MEMBERS {
                return None;
            }
            chain.push(id);
            if node.op == Op::MatMul {
                return self.fixed[node.inputs[1].index()].then_some((node, chain));
            }
            let mut open = node.inputs.iter().filter(|i| !self.fixed[i.index()]);
            let (Some(&from), None) = (open.next(), open.next()) else { return None };
            if !self.may_join(None, node) || *self.graph.shape(from) != node.shape {
                return None;
            }
            id = from;
        }
    }

    /// Whether the device has a kernel for a region of these nodes, `producers` being no results of it.
    pub(super) fn is_claimed(&self, members: &[NodeId], producers: &[NodeId]) -> bool {
        let mut results = self.results(members);
        results.retain(|id| !producers.contains(id));
        let (body, inputs) = body_of(self.graph, members, &results);
        let shapes: Vec<Shape> = results.iter().map(|&id| self.graph.shape(id).clone()).collect();
        let region = Node::new(Op::Region { body: Arc::new(Body { graph: body }) }, inputs, shapes);
        self.context.target.claim(&region, self.graph).is_native()
    }
}

/// Whether a region has `node` only to say how its input is read.
pub(super) fn is_moved(node: &Node) -> bool {
    matches!(node.op, Op::Reshape { .. } | Op::Transpose { .. })
}

/// Whether computing `work` operations in each of `readers` regions takes less time than computing them once: what they read of an
/// element has `before` bytes, what they make of it `after`.
fn pays(work: f64, (before, after): (usize, usize), readers: usize) -> bool {
    let (before, after, readers) = (before as f64, after as f64, readers as f64);
    let again = work + (before - after) * OPERATIONS_PER_BYTE;
    (readers - 1.0) * again < (readers + 1.0) * after * OPERATIONS_PER_BYTE
}

/// Operations for each element of a result; one row of it stands for all, because dimensions may be open.
fn work_per_element(node: &Node) -> f64 {
    let mut dims = vec![Dim::Static(1); node.shape.rank()];
    if let (Some(to), Some(&Dim::Static(width))) = (dims.last_mut(), node.shape.dims().last()) {
        *to = Dim::Static(width.max(1));
    }
    let row = Shape::from_dims(&dims, node.shape.dtype());
    let inputs = vec![&row; node.inputs.len()];
    let flops = def::cost(&node.op, &inputs, std::slice::from_ref(&row)).flops;
    flops / row.num_elements().unwrap_or(1).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::{DType, Graph};

    fn norm(dtype: DType) -> Graph {
        let mut graph = Graph::new("norm");
        let shape = Shape::from_dims(&[Dim::Dynamic(rlx_ir::sym::BATCH), Dim::Static(64)], dtype);
        let (x, gamma) = (graph.input("x", shape.clone()), graph.param("gamma", Shape::new(&[64], dtype)));
        graph.push_node(Node::new(Op::RmsNorm { axis: -1, eps: 1e-5 }, vec![x, gamma], vec![shape]));
        graph
    }

    #[test]
    fn a_norm_pays_for_few_readers() {
        let work = work_per_element(norm(DType::F32).nodes().last().unwrap());
        let pay: Vec<bool> = (1..=4).map(|readers| pays(work, (4, 4), readers)).collect();
        assert_eq!(pay, [true, true, true, false], "work {work}");
    }

    #[test]
    fn of_short_elements_fewer_bytes_are_saved() {
        let work = work_per_element(norm(DType::F16).nodes().last().unwrap());
        assert!(pays(work, (2, 2), 1));
        assert!(!pays(work, (2, 2), 2));
    }

    #[test]
    fn floats_are_quantised_for_one_reader() {
        let mut graph = Graph::new("quantise");
        let (x, scale) = (Shape::new(&[8, 64], DType::F32), Shape::scalar(DType::F32));
        let (x, scale) = (graph.input("x", x), graph.param("scale", scale));
        let (op, shape) = (Op::Quantize { axis: None, to: DType::U8 }, Shape::new(&[8, 64], DType::U8));
        graph.push_node(Node::new(op, vec![x, scale], vec![shape]));
        let work = work_per_element(graph.nodes().last().unwrap());
        assert!(pays(work, (4, 1), 1));
        assert!(!pays(work, (4, 1), 2), "work {work}");
    }
}
