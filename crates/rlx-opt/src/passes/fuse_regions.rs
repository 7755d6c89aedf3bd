//! Fuses elementwise ops with each other and with the op before them into regions.
//!
//! Matches: an *anchor* (a matmul, a convolution, a reduction: whatever the device says) and the
//! elementwise ops after it that have its dimensions; then, of the ops that are left, maximal groups of
//! elementwise ops with the same dimensions. Quantisation by one scale counts as elementwise ([`Op::is_pointwise`]). Makes: one [`Op::Region`] for each group of two or more, whose
//! body computes the same ops. Operands that broadcast are inputs of the region; scalar constants stand inside, but for
//! those that the anchor itself takes, whose kernel reads them like its other operands.
//!
//! Where a vendor's library computes an anchor, it takes in as many of the ops as the library computes with it ([`Target::takes_epilogue`](crate::Target::takes_epilogue)).
//!
//! A region that ends with bytes goes on where they are floats again to be added to others, the residual of a quantised net, if the
//! device can do that ([`Target::fuses_residual`](crate::Target::fuses_residual)).
//!
//! Interpolations between what two gathers pick are regions before all others, where the device has a kernel for them (`fuse_regions/interpolations.rs`);
//! so are two reductions of the same value (`fuse_regions/reductions.rs`).
//!
//! Then regions take *producers*, the ops before their anchors and before attentions, gathers take the gathers before them, and pairs of matmuls whose results are multiplied become
//! one region (`fuse_regions/producers.rs`). Movement that stands between such an op and a reduction is put in front of it first
//! (`fuse_regions/moved_producers.rs`).
//!
//! Legal because a region computes what its nodes did, and because no path leaves a region and comes back: a
//! value that is used outside is used only by nodes that come after the region's last node. Nodes that are
//! known before a run are never fused with those that are not.
//!
//! ```text
//! %2 = MatMul(%0, %1) : [2, 3] f32                  %2 = Region(%0, %1) {body=graph "MatMul+Relu" {
//! %3 = Activation.Relu(%2) : [2, 3] f32       →        %0 = Input {name="i0"} : [2, 4] f32
//!                                                      %1 = Input {name="i1"} : [4, 3] f32
//!                                                      %2 = MatMul(%0, %1) : [2, 3] f32
//!                                                      %3 = Activation.Relu(%2) : [2, 3] f32
//!                                                      return %3
//!                                                   }} : [2, 3] f32
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use rlx_ir::maps::HashMap;
use rlx_ir::op::{BinaryOp, Body};
use rlx_ir::{Error, ErrorKind, Graph, Node, NodeId, Op, Result};

use crate::facts;
use crate::passes::legalize::needs_no_kernel;
use crate::pipeline::PassContext;
use crate::rewrite::Rewriter;

mod interpolations;
mod moved_producers;
mod producers;
mod reductions;

/// A region has at most this many nodes, so that devices can keep all intermediate values close.
const MAX_MEMBERS: usize = 64;

/// Runs the pass.
///
/// # Errors
/// [`ErrorKind::Internal`] when a region cannot be built; with `assert_fusion_clean`, [`ErrorKind::Unsupported`]
/// naming an elementwise op that was left outside.
pub fn run(graph: &Graph, context: &PassContext<'_>) -> Result<Graph> {
    let moved = if context.options.fusion.producers { moved_producers::run(graph, context)? } else { None };
    let graph = moved.as_ref().unwrap_or(graph);
    let mut groups = Groups::new(graph, context);
    if context.options.fusion.producers {
        groups.take_interpolations();
        groups.take_reductions();
    }
    if context.options.fusion.epilogue {
        graph.nodes().iter().for_each(|node| groups.grow_from_anchor(node));
    }
    if context.options.fusion.producers {
        groups.take_producers();
    }
    if context.options.fusion.elementwise {
        groups.group_elementwise();
    }
    let fused = groups.build()?;
    if context.options.assert_fusion_clean {
        check_clean(&fused, context)?;
    }
    Ok(fused)
}

struct Groups<'g> {
    graph: &'g Graph,
    context: &'g PassContext<'g>,
    users: facts::Users,
    outputs: Vec<bool>,
    fixed: Vec<bool>,
    /// Each node's group.
    of: Vec<Option<usize>>,
    /// The members of each group, ascending.
    members: Vec<Vec<NodeId>>,
    /// Producers that every group that uses them computes itself, so that nothing else has to.
    absorbed: Vec<bool>,
}

impl<'g> Groups<'g> {
    fn new(graph: &'g Graph, context: &'g PassContext<'g>) -> Self {
        Groups {
            graph,
            context,
            users: facts::users(graph),
            outputs: facts::output_flags(graph),
            fixed: facts::fixed_nodes(graph),
            of: vec![None; graph.len()],
            members: Vec::new(),
            absorbed: vec![false; graph.len()],
        }
    }

    /// Whether `node` could be part of the region of `anchor` (an elementwise one when there is none).
    fn may_join(&self, anchor: Option<&Node>, node: &Node) -> bool {
        node.op.is_pointwise()
            && self.of[node.id.index()].is_none()
            && !self.absorbed[node.id.index()]
            && anchor.is_none_or(|a| {
                a.shape.dims() == node.shape.dims() && self.fixed[a.id.index()] == self.fixed[node.id.index()]
            })
            && self.context.target.fuses(anchor, node, self.graph)
    }

    /// Takes in the elementwise consumers of `anchor`, nearest first, as long as they may join.
    fn grow_from_anchor(&mut self, anchor: &Node) {
        let single = anchor.results().len() == 1;
        let taken = self.of[anchor.id.index()].is_some();
        if anchor.op.is_pointwise() || needs_no_kernel(&anchor.op) || !single || taken {
            return;
        }
        // For most nodes, that is all.
        let joins = |&id: &NodeId| self.may_join(Some(anchor), self.graph.node(id));
        if !self.users[anchor.id.index()].first().is_some_and(joins) {
            return;
        }
        let mut members = vec![anchor.id];
        // Taking the nearest first means: what else a node needs of the region is in it already, and anyone who
        // else uses a member comes after all of them.
        let mut next: BTreeSet<NodeId> = self.users[anchor.id.index()].iter().copied().collect();
        while let Some(id) = next.pop_first() {
            let node = self.graph.node(id);
            let fits = members.len() < MAX_MEMBERS && self.binds_enough(&members, id);
            if !fits || !self.may_join(Some(anchor), node) {
                break;
            }
            if let Some(both) = self.with_second_matmul(anchor, node, &members) {
                members = both;
                break;
            }
            members.push(id);
            next.extend(self.users[id.index()].iter().copied());
        }
        let target = self.context.target;
        while members.len() > 1 && !target.takes_epilogue(&members, &self.results(&members), self.graph) {
            members.pop();
        }
        if let Some(residual) = self.residual(anchor, &members) {
            members.extend(residual);
            members.sort_unstable();
        }
        if members.len() > 1 {
            self.add(members);
        }
    }

    /// The nodes that add other bytes to those that the region of `anchor` ends with, `Quantize(Dequantize(bytes) +
    /// Dequantize(others))`, where each is used by the next alone.
    fn residual(&self, anchor: &Node, members: &[NodeId]) -> Option<[NodeId; 4]> {
        let bytes = *members.last()?;
        let is_last = matches!(self.graph.node(bytes).op, Op::Quantize { axis: None, .. });
        // Nothing else leaves the region, so no path from it leads to the other bytes.
        if !is_last
            || self.results(members) != [bytes]
            || !self.context.target.fuses_residual(anchor, self.graph)
        {
            return None;
        }
        let own = self.only_user(bytes)?;
        let sum = self.only_user(own.id)?;
        let result = self.only_user(sum.id)?;
        let &[a, b] = sum.inputs.as_slice() else { return None };
        let other = self.graph.node(if a == own.id { b } else { a });
        let is_float = |node: &Node| matches!(node.op, Op::Dequantize { axis: None, .. });
        let is_residual = sum.op == Op::Binary(BinaryOp::Add)
            && matches!(result.op, Op::Quantize { axis: None, .. })
            && [own, other].into_iter().all(is_float)
            && self.only_user(other.id).is_some_and(|user| user.id == sum.id);
        let parts = [own, other, sum, result];
        let joins = |node: &&Node| {
            let id = node.id.index();
            node.shape.dims() == anchor.shape.dims()
                && self.fixed[id] == self.fixed[anchor.id.index()]
                && self.may_join(None, node)
        };
        let all = [members, &[own.id, other.id, sum.id]].concat();
        let fits = all.len() < MAX_MEMBERS && self.binds_enough(&all, result.id);
        (is_residual && fits && parts.iter().all(joins)).then(|| parts.map(|node| node.id))
    }

    /// The node that alone uses `id`, which is no output.
    fn only_user(&self, id: NodeId) -> Option<&'g Node> {
        let users = &self.users[id.index()];
        let user = *users.first()?;
        (users.iter().all(|&u| u == user) && !self.outputs[id.index()]).then(|| self.graph.node(user))
    }

    fn add(&mut self, members: Vec<NodeId>) {
        let group = self.members.len();
        members.iter().for_each(|m| self.of[m.index()] = Some(group));
        self.members.push(members);
    }

    /// From the last node to the first: a node whose uses all are in one group joins it, else it starts one.
    fn group_elementwise(&mut self) {
        let first = self.members.len();
        for node in self.graph.nodes().iter().rev() {
            if !self.may_join(None, node) {
                continue;
            }
            match self.only_group_using(node).filter(|&g| g >= first && self.fits(g, node)) {
                Some(group) => {
                    self.of[node.id.index()] = Some(group);
                    self.members[group].push(node.id);
                }
                None => self.add(vec![node.id]),
            }
        }
        self.members[first..].iter_mut().for_each(|members| members.reverse());
    }

    fn only_group_using(&self, node: &Node) -> Option<usize> {
        let users = &self.users[node.id.index()];
        let group = self.of[users.first()?.index()]?;
        let inside = users.iter().all(|u| self.of[u.index()] == Some(group));
        (inside && !self.outputs[node.id.index()]).then_some(group)
    }

    /// Whether `node` has the dimensions of elementwise group `group`, whose root is its first member.
    fn fits(&self, group: usize, node: &Node) -> bool {
        let members = &self.members[group];
        let root = self.graph.node(members[0]);
        members.len() < MAX_MEMBERS
            && root.shape.dims() == node.shape.dims()
            && self.fixed[root.id.index()] == self.fixed[node.id.index()]
            && self.binds_enough(members, node.id)
    }

    /// Whether one step may bind all operands of `members` and `more` as one region.
    fn binds_enough(&self, members: &[NodeId], more: NodeId) -> bool {
        let most = self.context.target.pool_spec().max_bindings;
        if most == usize::MAX {
            return true;
        }
        let inside = |id: NodeId| id == more || members.contains(&id);
        let all = || members.iter().copied().chain([more]);
        let scalar = |id: NodeId| facts::constant(self.graph, id).is_some_and(|c| c.num_elements() == 1);
        let operands = |m: NodeId| {
            let node = self.graph.node(m);
            let taken_in = move |&id: &NodeId| node.op.is_pointwise() && scalar(id);
            node.inputs.iter().copied().filter(move |id| !taken_in(id))
        };
        let inputs: BTreeSet<NodeId> = all().flat_map(operands).filter(|&id| !inside(id)).collect();
        let leaves = |m: NodeId| self.outputs[m.index()] || self.users[m.index()].iter().any(|&u| !inside(u));
        inputs.len() + all().filter(|&m| leaves(m)).count() <= most
    }

    /// The graph with each group of several nodes as one region, standing where its last node stood: where its first did, if all of them read the
    /// same (what uses the first may come before the last).
    fn build(&self) -> Result<Graph> {
        let mut r = Rewriter::keeping_distinct(self.graph);
        for node in self.graph.nodes().iter().filter(|n| !self.absorbed[n.id.index()]) {
            match self.of[node.id.index()].map(|g| &self.members[g]).filter(|m| m.len() > 1) {
                None => _ = r.keep(node)?,
                Some(members) if self.place(members) == Some(node.id) => self.region(members, &mut r)?,
                Some(_) => {}
            }
        }
        Ok(r.finish(false))
    }

    fn place(&self, members: &[NodeId]) -> Option<NodeId> {
        let (first, last) = (*members.first()?, *members.last()?);
        let reads = |id: NodeId| &self.graph.node(id).inputs;
        let alike = members.iter().all(|&id| reads(id) == reads(first));
        Some(if alike { first } else { last })
    }

    /// The members whose values are used outside of their group.
    fn results(&self, members: &[NodeId]) -> Vec<NodeId> {
        let used_outside = |m: &&NodeId| {
            let outside = |u: &NodeId| members.binary_search(u).is_err();
            let used = self.outputs[m.index()] || self.users[m.index()].iter().any(outside);
            used && !self.absorbed[m.index()]
        };
        members.iter().filter(used_outside).copied().collect()
    }

    fn region(&self, members: &[NodeId], r: &mut Rewriter<'_>) -> Result<()> {
        let results = self.results(members);
        let (body, inputs) = body_of(self.graph, members, &results);
        let inputs: Vec<NodeId> = inputs.into_iter().map(|id| r.new_id(id)).collect();
        let region = r.emit(Op::Region { body: Arc::new(Body { graph: body }) }, &inputs)?;
        for (index, &old) in results.iter().enumerate() {
            let value = if index == 0 { region } else { r.emit(Op::Result { index }, &[region])? };
            r.replace(old, value);
        }
        r.fused(members);
        Ok(())
    }
}

/// The body that computes `results` by `members`, and the nodes its inputs `i0`, `i1`, … stand for.
fn body_of(graph: &Graph, members: &[NodeId], results: &[NodeId]) -> (Graph, Vec<NodeId>) {
    let names: Vec<&str> = members.iter().map(|&m| short_name(&graph.node(m).op)).collect();
    let mut body = Graph::new(names.join("+"));
    let (mut inside, mut inputs) = (HashMap::default(), Vec::new());
    // Inputs are before all else in the body, in the order of their first use.
    let mut scalars = Vec::new();
    for &m in members {
        for &id in &graph.node(m).inputs {
            if inside.contains_key(&id) || members.binary_search(&id).is_ok() {
                continue;
            }
            let elementwise = graph.node(m).op.is_pointwise();
            match facts::constant(graph, id).filter(|data| elementwise && data.num_elements() == 1) {
                Some(_) => scalars.push(id),
                None => {
                    inside.insert(id, body.input(format!("i{}", inputs.len()), graph.shape(id).clone()));
                    inputs.push(id);
                }
            }
        }
    }
    for id in scalars {
        if let Some(data) = facts::constant(graph, id) {
            // One that the anchor takes, too, is an input already.
            inside.entry(id).or_insert_with(|| body.constant((**data).clone()));
        }
    }
    for &m in members {
        let node = graph.node(m);
        let from = node.inputs.iter().filter_map(|id| inside.get(id).copied()).collect();
        let id = body.push_node(node.with_inputs(from));
        inside.insert(m, id);
    }
    body.set_outputs(results.iter().filter_map(|id| inside.get(id).copied()).collect());
    body.take_symbol_ranges(graph);
    body.forget_unmentioned_ranges();
    body.shrink_to_fit();
    (body, inputs)
}

/// `Add` rather than `Binary`.
fn short_name(op: &Op) -> &'static str {
    use rlx_ir::ops::attr::NamedVariant;
    match op {
        Op::Activation(f) => f.name(),
        Op::Binary(f) => f.name(),
        Op::Compare(f) => f.name(),
        Op::Predicate(f) => f.name(),
        op => op.kind().name(),
    }
}

/// Fails when two elementwise ops that the device would fuse stand side by side, each on its own.
fn check_clean(graph: &Graph, context: &PassContext<'_>) -> Result<()> {
    let (users, outputs, fixed) =
        (facts::users(graph), facts::output_flags(graph), facts::fixed_nodes(graph));
    let fuses = |n: &Node| n.op.is_pointwise() && context.target.fuses(None, n, graph);
    for node in graph.nodes().iter().filter(|n| fuses(n) && !outputs[n.id.index()]) {
        let users = &users[node.id.index()];
        let Some(user) = users.first().filter(|u| users.iter().all(|v| v == *u)) else { continue };
        let user = graph.node(*user);
        let same = user.shape.dims() == node.shape.dims() && fixed[user.id.index()] == fixed[node.id.index()];
        if same && fuses(user) {
            let message = format!("{} was left out of a region with {}", node.describe(), user.describe());
            return Err(graph.locate(node.id, Error::new(ErrorKind::Unsupported, message)));
        }
    }
    Ok(())
}
