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
//! a step. So does an elementwise producer that joins what is before it, which then writes its result instead of what that is
//! made of.
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
use rlx_ir::{DType, Dim, Node, NodeId, Op, Shape};

use super::{Groups, MAX_MEMBERS, body_of};

/// Operations that take as long as moving a byte to and from a cache: on the CPU, a norm of f32 does 60 of its operations in a
/// nanosecond, and passes move 80 bytes.
const OPERATIONS_PER_BYTE: f64 = 0.75;

impl Groups<'_> {
    /// Makes producers part of the groups that use them, where all of them can and it pays.
    pub(super) fn take_producers(&mut self) {
        for node in self.graph.nodes() {
            if let Some(groups) = self.groups_with_producer(node) {
                self.absorbed[node.id.index()] = true;
                groups.into_iter().for_each(|(group, members)| self.replace(group, members));
            }
        }
    }

    /// The groups that use `producer`, each with it; the number of one that there was.
    fn groups_with_producer(&self, producer: &Node) -> Option<Vec<(Option<usize>, Vec<NodeId>)>> {
        let id = producer.id;
        let users = &self.users[id.index()];
        let free = self.of[id.index()].is_none() && !self.outputs[id.index()] && !self.fixed[id.index()];
        let fuses =
            |&u: &NodeId| self.context.target.fuses_producer(producer, self.graph.node(u), self.graph);
        if users.is_empty() || !free || !users.iter().all(fuses) || self.joins_its_operand(producer) {
            return None;
        }
        let mut readers: BTreeSet<(Option<usize>, NodeId)> = BTreeSet::new();
        for &user in users {
            let group = self.of[user.index()];
            let first = group.map_or(user, |g| self.members[g][0]);
            readers.insert((group, first));
        }
        if !pays(producer, self.graph.shape(producer.inputs[0]).dtype(), readers.len()) {
            return None;
        }
        let with_producer = |(group, first): (Option<usize>, NodeId)| {
            let mut members = group.map_or(vec![first], |g| self.members[g].clone());
            let binds = self.binds_enough(&members, id);
            members.insert(0, id);
            (binds && self.is_claimed(&members, Some(id))).then_some((group, members))
        };
        readers.into_iter().map(with_producer).collect()
    }

    /// Whether an elementwise producer will be in a region with what it reads, which nothing else does.
    fn joins_its_operand(&self, producer: &Node) -> bool {
        let joins = |&id: &NodeId| {
            let node = self.graph.node(id);
            let only = self.users[id.index()] == [producer.id] && !self.outputs[id.index()];
            only && node.shape.dims() == producer.shape.dims() && self.may_join(None, node)
        };
        self.context.options.fusion.elementwise
            && producer.op.is_pointwise()
            && producer.inputs.iter().any(joins)
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
        (whole && self.binds_enough(&both, joint.id) && self.is_claimed(&both, None)).then_some(both)
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

    /// Whether the device has a kernel for a region of these nodes, `producer` being no result of it.
    fn is_claimed(&self, members: &[NodeId], producer: Option<NodeId>) -> bool {
        let mut results = self.results(members);
        results.retain(|&id| Some(id) != producer);
        let (body, inputs) = body_of(self.graph, members, &results);
        let shapes: Vec<Shape> = results.iter().map(|&id| self.graph.shape(id).clone()).collect();
        let region = Node::new(Op::Region { body: Arc::new(Body { graph: body }) }, inputs, shapes);
        self.context.target.claim(&region, self.graph).is_native()
    }
}

/// Whether `readers` regions that compute `producer` each on its own take less time than one that writes it and all that read it.
fn pays(producer: &Node, from: DType, readers: usize) -> bool {
    let bytes = producer.shape.dtype().size_bytes() as f64;
    let wider = from.size_bytes() as f64 - bytes;
    let (readers, again) = (readers as f64, work_per_element(producer) + wider * OPERATIONS_PER_BYTE);
    (readers - 1.0) * again < (readers + 1.0) * bytes * OPERATIONS_PER_BYTE
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
    use rlx_ir::Graph;

    fn norm(dtype: DType) -> Graph {
        let mut graph = Graph::new("norm");
        let shape = Shape::from_dims(&[Dim::Dynamic(rlx_ir::sym::BATCH), Dim::Static(64)], dtype);
        let (x, gamma) = (graph.input("x", shape.clone()), graph.param("gamma", Shape::new(&[64], dtype)));
        graph.push_node(Node::new(Op::RmsNorm { axis: -1, eps: 1e-5 }, vec![x, gamma], vec![shape]));
        graph
    }

    #[test]
    fn a_norm_pays_for_few_readers() {
        let graph = norm(DType::F32);
        let node = graph.nodes().last().unwrap();
        let pay: Vec<bool> = (1..=4).map(|readers| pays(node, DType::F32, readers)).collect();
        assert_eq!(pay, [true, true, true, false], "work {}", work_per_element(node));
    }

    #[test]
    fn of_short_elements_fewer_bytes_are_saved() {
        let graph = norm(DType::F16);
        assert!(pays(graph.nodes().last().unwrap(), DType::F16, 1));
        assert!(!pays(graph.nodes().last().unwrap(), DType::F16, 2));
    }

    #[test]
    fn floats_are_quantised_for_one_reader() {
        let mut graph = Graph::new("quantise");
        let (x, scale) = (Shape::new(&[8, 64], DType::F32), Shape::scalar(DType::F32));
        let (x, scale) = (graph.input("x", x), graph.param("scale", scale));
        let (op, shape) = (Op::Quantize { axis: None, to: DType::U8 }, Shape::new(&[8, 64], DType::U8));
        graph.push_node(Node::new(op, vec![x, scale], vec![shape]));
        let node = graph.nodes().last().unwrap();
        assert!(pays(node, DType::F32, 1));
        assert!(!pays(node, DType::F32, 2), "work {}", work_per_element(node));
    }
}
