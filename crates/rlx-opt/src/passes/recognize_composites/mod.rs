//! Finds composites that exporters have taken apart.
//!
//! Matches: layer norm, RMS norm, GELU (erf and tanh), SiLU, sigmoid, softmax, rotary embedding and attention as
//! PyTorch's exporters write them, in any order of commutative operands. Makes: the one op, which devices have
//! kernels for. Only when nothing inside is used from outside, so that nothing is computed twice.
//!
//! Legal within rounding error, so only under [`Numerics::Fast`]. A query that a mask of −∞ forbids everything gives NaN
//! when written out, and 0 behind exporters' own guard (`Where(IsNaN(p), 0, p)`): the attention says which
//! ([`rlx_ir::op::Unseen`]).
//!
//! ```text
//! %1 = Activation.Sigmoid(%0) : [2, 3] f32
//! %2 = Binary.Mul(%0, %1) : [2, 3] f32            →   %1 = Activation.Silu(%0) : [2, 3] f32
//! ```

mod attention;
mod functions;
mod norms;
mod rope;

use rlx_ir::{Graph, Node, NodeId, Op, Result};

use super::simplify::Simplifier;
use crate::facts;
use crate::matcher::{Match, Pattern};
use crate::options::Numerics;
use crate::pipeline::PassContext;

/// Runs the pass.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] when a composite cannot be built.
pub fn run(graph: &Graph, context: &PassContext<'_>) -> Result<Graph> {
    if context.options.numerics != Numerics::Fast || !context.options.fusion.composites {
        return Ok(graph.clone());
    }
    // Attention is made of softmax, which may have to be found first; and rotary embeddings feed it.
    let parts: &[Recognizer] = &[functions::recognize, norms::recognize, rope::recognize];
    let graph = walk(graph, context, parts)?;
    if !graph.nodes().iter().any(|n| matches!(n.op, Op::Softmax { .. })) {
        return Ok(graph);
    }
    walk(&graph, context, &[attention::recognize])
}

/// What stands for a node in the new graph, if the recognizer knows.
type Recognizer = fn(&View<'_>, &Node, &mut Simplifier<'_>) -> Result<Option<NodeId>>;

fn walk(graph: &Graph, context: &PassContext<'_>, recognizers: &[Recognizer]) -> Result<Graph> {
    let view = View { graph, users: facts::users(graph), outputs: facts::output_flags(graph) };
    let mut s = Simplifier::new(graph, context);
    for node in graph.nodes() {
        let mut found = None;
        for recognize in recognizers {
            s.begin(node);
            if let Some(id) = recognize(&view, node, &mut s)?
                && *s.graph().shape(id) == node.shape
            {
                found = Some(id);
                break;
            }
        }
        match found {
            Some(id) => s.rewriter().replace(node.id, id),
            None => s.node(node)?,
        }
    }
    Ok(s.finish(true))
}

/// The old graph, with who uses what.
struct View<'g> {
    graph: &'g Graph,
    users: facts::Users,
    outputs: Vec<bool>,
}

impl View<'_> {
    /// The first pattern that `node` is the root of, nothing inside being used elsewhere.
    fn find(&self, pattern: &Pattern, node: &Node) -> Option<Match> {
        let found = pattern.find(self.graph, node.id)?;
        found.is_closed(node.id, &self.users, &self.outputs).then_some(found)
    }

    fn node(&self, id: NodeId) -> &Node {
        self.graph.node(id)
    }
}
