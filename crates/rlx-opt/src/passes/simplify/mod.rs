//! Local rewrites to simpler graphs.
//!
//! Each rule is named, looks at one op and what its inputs are, and builds something simpler through the same
//! [`Simplifier::build`] that called it, so that one walk from inputs to outputs reaches what rules can reach.
//! Movement (transposes, reshapes) sinks below elementwise ops, towards the outputs, where it meets its inverse;
//! what is left of it becomes views.
//!
//! Rules that may change a bit of a result ([`Simplifier::fast`]) run only under [`Numerics::Fast`], and not on values
//! that are rounded to integers or compared (`exact.rs`). `x·0 → 0` is no rule: it is wrong for NaN and infinities.
//!
//! ```text
//! %1 = Transpose(%0) {perm=[1, 0]} : [3, 2] f32
//! %2 = Activation.Relu(%1) : [3, 2] f32               →   %1 = Activation.Relu(%0) : [2, 3] f32
//! %3 = Transpose(%2) {perm=[1, 0]} : [2, 3] f32
//! ```

pub(crate) mod arithmetic;
pub(crate) mod dims;
mod gather_pad;
mod movement;
mod quantised;
mod scalars;
mod sink;

use std::sync::Arc;

use rlx_ir::oracle::Allowance;
use rlx_ir::{ConstData, DType, Dim, Graph, Node, NodeId, Op, Result, Shape, Value};

use crate::exact;
use crate::facts;
use crate::options::Numerics;
use crate::passes::fold_constants;
use crate::pipeline::PassContext;
use crate::rewrite::Rewriter;

/// A rule: what stands for `op` on these inputs, or nothing when it does not match.
pub struct Rule {
    /// What the rule does, for logs.
    pub name: &'static str,
    /// Whether results may differ within rounding error.
    pub fast: bool,
    /// Tries it.
    pub apply: fn(&mut Simplifier<'_>, &Op, &[NodeId]) -> Result<Option<NodeId>>,
}

/// All rules, in the order they are tried.
const RULES: &[&[Rule]] =
    &[arithmetic::RULES, scalars::RULES, movement::RULES, gather_pad::RULES, sink::RULES, quantised::RULES];

/// Rules call rules; deeper than this they stop, and the op is built as it is.
const MAX_DEPTH: usize = 48;

/// Runs the pass.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] when a rule builds something impossible.
pub fn run(graph: &Graph, context: &PassContext<'_>) -> Result<Graph> {
    let mut s = Simplifier::new(graph, context);
    for node in graph.nodes() {
        s.node(node)?;
    }
    Ok(s.finish(context.options.dce))
}

/// Builds a graph in simplified form.
pub struct Simplifier<'g> {
    rewriter: Rewriter<'g>,
    /// Whether bits of what is built now may change.
    fast: bool,
    /// For each old node, whether its bits may.
    loose: Vec<bool>,
    folding: bool,
    /// What folding may still compute.
    allowance: Allowance,
    depth: usize,
    /// For each new node, whether it is known before a run.
    fixed: Vec<bool>,
    /// Room for the inputs of the node that is handled.
    inputs: Vec<NodeId>,
}

impl<'g> Simplifier<'g> {
    /// A simplifier of `graph` that has built nothing yet.
    pub fn new(graph: &'g Graph, context: &PassContext<'_>) -> Self {
        let loose = match context.options.numerics {
            Numerics::Fast => {
                exact::kept_to_the_bit(graph, context.is_body).iter().map(|kept| !kept).collect()
            }
            Numerics::Strict => vec![false; graph.len()],
        };
        Simplifier {
            rewriter: Rewriter::new(graph),
            fast: false,
            loose,
            folding: context.options.constant_folding,
            allowance: fold_constants::allowance(graph),
            depth: 0,
            fixed: Vec::new(),
            inputs: Vec::new(),
        }
    }

    /// Says that what is built from now on stands for `node`, an old one.
    pub fn begin(&mut self, node: &Node) {
        self.fast = self.loose[node.id.index()];
    }

    /// Whether results may change within rounding error.
    pub fn fast(&self) -> bool {
        self.fast
    }

    /// The rewriter it builds with.
    pub fn rewriter(&mut self) -> &mut Rewriter<'g> {
        &mut self.rewriter
    }

    /// The new graph so far.
    pub fn graph(&self) -> &Graph {
        self.rewriter.new_graph()
    }

    /// The op of a new node.
    pub fn op(&self, id: NodeId) -> &Op {
        &self.graph().node(id).op
    }

    /// The dimensions of a new node.
    pub fn dims(&self, id: NodeId) -> &[Dim] {
        self.graph().shape(id).dims()
    }

    /// The element type of a new node.
    pub fn dtype(&self, id: NodeId) -> DType {
        self.graph().shape(id).dtype()
    }

    /// Input `i` of a new node.
    pub fn input(&self, id: NodeId, i: usize) -> NodeId {
        self.graph().node(id).inputs[i]
    }

    /// Whether a new node is known before a run.
    pub fn is_fixed(&mut self, id: NodeId) -> bool {
        let graph = self.rewriter.new_graph();
        for node in graph.nodes().iter().take(id.index() + 1).skip(self.fixed.len()) {
            let of_itself = !matches!(node.op, Op::Input { .. });
            self.fixed.push(of_itself && node.inputs.iter().all(|i| self.fixed[i.index()]));
        }
        self.fixed[id.index()]
    }

    /// Handles an old node: a rule's result stands for it, or it is kept.
    ///
    /// # Errors
    /// What building reports.
    pub fn node(&mut self, node: &Node) -> Result<()> {
        let mut inputs = std::mem::take(&mut self.inputs);
        inputs.clear();
        inputs.extend(node.inputs.iter().map(|&id| self.rewriter.new_id(id)));
        self.begin(node);
        let rewritten = self.rewritten(&node.op, &inputs)?;
        self.inputs = inputs;
        // A rule's result that is known less well than the node was would make later nodes' shapes worse.
        match rewritten.filter(|&id| *self.graph().shape(id) == node.shape) {
            Some(id) => self.rewriter.replace(node.id, id),
            None => _ = self.rewriter.keep(node)?,
        }
        Ok(())
    }

    /// Builds `op` in simplified form.
    ///
    /// # Errors
    /// What the op's shape rule reports.
    pub fn build(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        match self.rewritten(&op, inputs)? {
            Some(id) => Ok(id),
            None => self.rewriter.emit(op, inputs),
        }
    }

    fn rewritten(&mut self, op: &Op, inputs: &[NodeId]) -> Result<Option<NodeId>> {
        if self.depth >= MAX_DEPTH || inputs.is_empty() {
            return Ok(None);
        }
        if self.folding
            && let Some(data) =
                fold_constants::fold(op, inputs, self.rewriter.new_graph(), &mut self.allowance)
        {
            return self.constant(data).map(Some);
        }
        self.depth += 1;
        let found = self.first_rule(op, inputs);
        self.depth -= 1;
        found
    }

    fn first_rule(&mut self, op: &Op, inputs: &[NodeId]) -> Result<Option<NodeId>> {
        let fast = self.fast;
        for rule in RULES.iter().copied().flatten().filter(|rule| fast || !rule.fast) {
            if let Some(id) = (rule.apply)(self, op, inputs)? {
                tracing::trace!(rule = rule.name, "simplified");
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// The new graph; see [`Rewriter::finish`].
    pub fn finish(self, dce: bool) -> Graph {
        self.rewriter.finish(dce)
    }

    /// A constant.
    ///
    /// # Errors
    /// None at present.
    pub fn constant(&mut self, data: ConstData) -> Result<NodeId> {
        self.rewriter.emit(Op::Constant { data: Arc::new(data) }, &[])
    }

    /// A scalar constant.
    ///
    /// # Errors
    /// None at present.
    pub fn scalar(&mut self, dtype: DType, value: f64) -> Result<NodeId> {
        let value = if dtype.is_float() {
            Value::float(dtype, &[], vec![value])
        } else {
            Value::int(dtype, &[], vec![value as i128])
        };
        self.constant(value.rounded().to_const())
    }

    /// `x` with other dimensions.
    ///
    /// # Errors
    /// What the shape rule reports.
    pub fn reshape(&mut self, x: NodeId, to: Vec<Dim>) -> Result<NodeId> {
        self.build(Op::Reshape { to }, &[x])
    }

    /// `x` with its dimensions reordered.
    ///
    /// # Errors
    /// What the shape rule reports.
    pub fn transpose(&mut self, x: NodeId, perm: Vec<usize>) -> Result<NodeId> {
        self.build(Op::Transpose { perm }, &[x])
    }

    /// `x` broadcast to these dimensions; `x` itself if it has them.
    ///
    /// # Errors
    /// What the shape rule reports.
    pub fn expand(&mut self, x: NodeId, to: Vec<Dim>) -> Result<NodeId> {
        self.build(Op::Expand { to }, &[x])
    }

    /// The result's shape of `op` on these inputs.
    ///
    /// # Errors
    /// What the shape rule reports.
    pub fn infer(&self, op: &Op, inputs: &[NodeId]) -> Result<Shape> {
        Ok(self.graph().infer(op, inputs, &[])?.swap_remove(0))
    }

    /// The one value of a constant.
    pub fn uniform(&self, id: NodeId) -> Option<f64> {
        facts::uniform(self.graph(), id)
    }
}
