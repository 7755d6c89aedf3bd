//! Makes one matmul of several that multiply the same rows by different weights.
//!
//! Matches: matmuls with one left operand and fixed matrices of one depth on the right, each used once, with or without
//! a fixed bias for each column: the query, key and value of attention. Makes: one matmul by the matrices side by side, one
//! addition of the biases side by side, and a slice for each of the old results. The concatenation is part of the init
//! program, and slices are views, so a run has one step where it had several: the left operand is read once, and threads
//! and workgroups divide one wide matmul instead of meeting after each narrow one.
//!
//! **When it pays.** A result joins if those that use it read a slice of wider rows in place, as attention and rotary
//! embedding do ([`crate::Target::reads_view`]). Where a copy would be needed, or an elementwise op follows (which would
//! have been computed in the matmul's epilogue, `fuse_regions.rs`), it stays what it is. So do integer matmuls: what they
//! are scaled by differs from one to the next and is part of their epilogues. And only results that come together before
//! the next matmul by weights are merged: the keys and values that all layers of a decoder make of an encoder's result
//! would otherwise be in memory from the first layer to the last.
//!
//! Legal because a column of a matmul does not depend on the others. Where a device cannot promise that for the last bit
//! ([`crate::Target::columns_are_independent`]), the pass does nothing under [`Numerics::Strict`]. A matmul without a bias
//! gets one of −0, which changes no value.
//!
//! ```text
//! %2 = MatMul(%0, %1) : [2, 4] f32           %3 = Concat(%1, %2) {axis=1} : [4, 8] f32
//! %4 = MatMul(%0, %3) : [2, 4] f32     →     %4 = MatMul(%0, %3) : [2, 8] f32
//!                                            %5 = Slice(%4) {starts=[0, 0], steps=[1, 1], to=[2, 4]} : [2, 4] f32
//!                                            %6 = Slice(%4) {starts=[0, 4], steps=[1, 1], to=[2, 4]} : [2, 4] f32
//! ```

use std::collections::{HashMap, HashSet};

use rlx_ir::lir::View;
use rlx_ir::op::BinaryOp;
use rlx_ir::{Dim, Extent, Graph, Node, NodeId, Op, Result, Value};

use crate::facts;
use crate::lower::view;
use crate::options::Numerics;
use crate::passes::legalize::runs_natively;
use crate::pipeline::PassContext;
use crate::rewrite::Rewriter;

/// Runs the pass.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] when a rewritten node is rejected.
pub fn run(graph: &Graph, context: &PassContext<'_>) -> Result<Graph> {
    let groups = Finder::new(graph, context).groups();
    if groups.is_empty() {
        return Ok(graph.clone());
    }
    let first: HashMap<NodeId, &Group> = groups.iter().map(|g| (g.members[0].matmul, g)).collect();
    let mut r = Rewriter::new(graph);
    // What was handled before its turn: members of groups, and the weights of members behind the first.
    let mut done = vec![false; graph.len()];
    for node in graph.nodes() {
        if let Some(group) = first.get(&node.id) {
            merge(group, graph, &mut r, &mut done)?;
        } else if !done[node.id.index()] {
            r.keep(node)?;
        }
    }
    Ok(r.finish(context.options.dce))
}

/// A matmul that may be merged.
#[derive(Debug, Clone, Copy)]
struct Member {
    matmul: NodeId,
    /// Its fixed right operand.
    weights: NodeId,
    columns: usize,
    /// The addition of a fixed bias and that bias, if the matmul's result is used by that alone.
    bias: Option<(NodeId, NodeId)>,
}

impl Member {
    /// The node whose value the others use.
    fn result(&self) -> NodeId {
        self.bias.map_or(self.matmul, |(add, _)| add)
    }
}

/// Matmuls to be merged.
struct Group {
    /// The left operand of all.
    rows: NodeId,
    members: Vec<Member>,
}

struct Finder<'g> {
    graph: &'g Graph,
    context: &'g PassContext<'g>,
    users: facts::Users,
    outputs: Vec<bool>,
    fixed: Vec<bool>,
}

impl<'g> Finder<'g> {
    fn new(graph: &'g Graph, context: &'g PassContext<'g>) -> Self {
        Finder {
            graph,
            context,
            users: facts::users(graph),
            outputs: facts::output_flags(graph),
            fixed: facts::fixed_nodes(graph),
        }
    }

    /// The groups, each in the order of its nodes.
    fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        // By the left operand and a weight matmul that the results lead to.
        let mut of: HashMap<(NodeId, NodeId), usize> = HashMap::new();
        for member in self.graph.nodes().iter().filter_map(|node| self.member(node)) {
            let rows = self.graph.node(member.matmul).inputs[0];
            let ends = self.ends(member.result());
            let found = ends.iter().find_map(|&end| of.get(&(rows, end)).copied());
            let group = found.unwrap_or_else(|| {
                groups.push(Group { rows, members: Vec::new() });
                groups.len() - 1
            });
            ends.into_iter().for_each(|end| _ = of.entry((rows, end)).or_insert(group));
            groups[group].members.push(member);
        }
        for group in &mut groups {
            self.keep_those_that_pay(group);
        }
        groups.retain(|g| g.members.len() > 1);
        groups
    }

    /// The nodes at which what is made of `id` ends: outputs of the graph, and matmuls by weights. Those that are too far
    /// away are not looked for.
    fn ends(&self, id: NodeId) -> Vec<NodeId> {
        const FAR: usize = 64;
        let (mut seen, mut next, mut ends) = (HashSet::from([id]), vec![id], Vec::new());
        while let Some(at) = next.pop().filter(|_| seen.len() < FAR) {
            if self.outputs[at.index()] {
                ends.push(at);
            }
            for &user in &self.users[at.index()] {
                let node = self.graph.node(user);
                if !seen.insert(user) {
                    continue;
                }
                let by_weights = node.inputs.get(1).is_some_and(|w| self.fixed[w.index()]);
                if node.op == Op::MatMul && by_weights { ends.push(user) } else { next.push(user) }
            }
        }
        ends
    }

    /// The node as a member of a group, if it may be one.
    fn member(&self, node: &Node) -> Option<Member> {
        let (Op::MatMul, &[rows, weights]) = (&node.op, node.inputs.as_slice()) else { return None };
        let [_, Dim::Static(columns)] = *self.graph.shape(weights).dims() else { return None };
        let exact = self.context.options.numerics == Numerics::Fast
            || self.context.target.columns_are_independent(node);
        let legal = exact
            && node.shape.dtype().is_float()
            && !self.fixed[rows.index()]
            && self.fixed[weights.index()]
            && self.users[weights.index()].len() == 1
            && !self.outputs[weights.index()]
            && runs_natively(node, self.graph, self.context);
        legal.then(|| Member { matmul: node.id, weights, columns, bias: self.bias(node, columns) })
    }

    /// The addition of a fixed bias to the columns of `matmul`, and that bias.
    fn bias(&self, matmul: &Node, columns: usize) -> Option<(NodeId, NodeId)> {
        let &[user] = &self.users[matmul.id.index()] else { return None };
        let add = self.graph.node(user);
        let (Op::Binary(BinaryOp::Add), &[a, b]) = (&add.op, add.inputs.as_slice()) else { return None };
        let bias = if a == matmul.id { b } else { a };
        let (last, lead) = self.graph.shape(bias).dims().split_last()?;
        let vector = *last == Dim::Static(columns) && lead.iter().all(|&d| d == Dim::Static(1));
        let fits = vector
            && self.fixed[bias.index()]
            && add.shape == matmul.shape
            && !self.outputs[matmul.id.index()]
            && runs_natively(add, self.graph, self.context);
        fits.then_some((user, bias))
    }

    /// Drops the members that gain nothing from being a slice. Who joins changes the strides of all, but not which
    /// dimensions are contiguous, so one round will do.
    fn keep_those_that_pay(&self, group: &mut Group) {
        let total: usize = group.members.iter().map(|m| m.columns).sum();
        let mut before = 0;
        group.members.retain(|member| {
            let dims = self.graph.shape(member.matmul).dims();
            let own = View::dense(dims);
            let mut wide = dims.to_vec();
            wide[dims.len() - 1] = Dim::Static(total);
            let slice =
                View { dims: own.dims.clone(), offset: Extent::Const(before as i64), ..View::dense(&wide) };
            before += member.columns;
            self.is_read_in_place(member.result(), &own, &slice, false)
        });
    }

    /// Whether everything that uses `id` reads it through `slice` as well as through `own`, the view it has now.
    fn is_read_in_place(&self, id: NodeId, own: &View, slice: &View, moved: bool) -> bool {
        !self.outputs[id.index()]
            && self.users[id.index()].iter().all(|&user| {
                let user = self.graph.node(user);
                match &user.op {
                    // A concatenation copies what was moved; other values are written into it where they are made.
                    Op::Concat { .. } => moved,
                    op if op.is_pointwise() => false,
                    op if view::is_movement(op) => {
                        match (view::through(user, own), view::through(user, slice)) {
                            (Some(own), Some(slice)) => self.is_read_in_place(user.id, &own, &slice, true),
                            // Where it is copied now, the copy reads the slice instead.
                            (own, _) => own.is_none(),
                        }
                    }
                    op => { user.inputs.iter().enumerate() }.filter(|&(_, &i)| i == id).all(|(i, _)| {
                        let reads =
                            |view: &View| view.is_dense() || self.context.target.reads_view(op, i, view);
                        reads(slice) || !reads(own)
                    }),
                }
            })
    }
}

/// Emits the merged matmul and a slice for each member.
fn merge(group: &Group, graph: &Graph, r: &mut Rewriter<'_>, done: &mut [bool]) -> Result<()> {
    let biases = group.members.iter().filter_map(|m| m.bias.map(|(_, bias)| bias));
    for id in group.members.iter().map(|m| m.weights).chain(biases) {
        keep_before(id, group.members[0].matmul, graph, r, done)?;
    }
    let weights: Vec<NodeId> = group.members.iter().map(|m| r.new_id(m.weights)).collect();
    let weights = r.emit(Op::Concat { axis: 1 }, &weights)?;
    let rows = r.new_id(group.rows);
    let mut wide = r.emit(Op::MatMul, &[rows, weights])?;
    if group.members.iter().any(|m| m.bias.is_some()) {
        let parts = group.members.iter().map(|m| bias_of(m, graph, r)).collect::<Result<Vec<_>>>()?;
        let bias = r.emit(Op::Concat { axis: 0 }, &parts)?;
        wide = r.emit(Op::Binary(BinaryOp::Add), &[wide, bias])?;
    }
    let mut slices = Vec::with_capacity(group.members.len());
    let mut before = 0;
    for member in &group.members {
        let to = graph.shape(member.matmul).dims().to_vec();
        let mut starts = vec![Extent::Const(0); to.len()];
        starts[to.len() - 1] = Extent::Const(before as i64);
        before += member.columns;
        slices.push(r.emit(Op::Slice { starts, steps: vec![1; to.len()], to }, &[wide])?);
    }
    let mut merged = Vec::new();
    for (member, slice) in group.members.iter().zip(slices) {
        r.replace(member.result(), slice);
        merged.extend([member.matmul, member.result()]);
    }
    merged.dedup();
    merged.iter().for_each(|id| done[id.index()] = true);
    r.fused(&merged);
    Ok(())
}

/// The bias of a member as a vector; −0, which changes nothing that it is added to, where it has none.
fn bias_of(member: &Member, graph: &Graph, r: &mut Rewriter<'_>) -> Result<NodeId> {
    let to = vec![Dim::Static(member.columns)];
    match member.bias {
        Some((_, bias)) => {
            let bias = r.new_id(bias);
            if r.shape(bias).rank() == 1 { Ok(bias) } else { r.emit(Op::Reshape { to }, &[bias]) }
        }
        None => {
            let dtype = graph.shape(member.matmul).dtype();
            let zero = Value::float(dtype, &[], vec![-0.0]).rounded().to_const();
            let zero = r.emit(Op::Constant { data: zero.into() }, &[])?;
            r.emit(Op::Expand { to }, &[zero])
        }
    }
}

/// Keeps a fixed node that may come after node `turn`, and all that it is made of.
fn keep_before(
    id: NodeId,
    turn: NodeId,
    graph: &Graph,
    r: &mut Rewriter<'_>,
    done: &mut [bool],
) -> Result<()> {
    let (mut found, mut next) = (Vec::new(), vec![id]);
    while let Some(id) = next.pop() {
        if id > turn && !std::mem::replace(&mut done[id.index()], true) {
            found.push(id);
            next.extend(graph.node(id).inputs.iter().copied());
        }
    }
    rlx_ir::sort::sort(&mut found);
    found.into_iter().try_for_each(|id| r.keep(graph.node(id)).map(|_| ()))
}
