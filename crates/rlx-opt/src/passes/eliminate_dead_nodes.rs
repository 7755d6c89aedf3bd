//! Removes nodes that no output needs.
//!
//! Matches: any node but inputs and parameters (they are the interface) that is neither an output nor used.
//! Legal because nodes have no effects.
//!
//! ```text
//! %1 = Activation.Exp(%0) : [2] f32      →   (gone)
//! return %0                                  return %0
//! ```

use rlx_ir::{Graph, Result};

use crate::pipeline::PassContext;
use crate::rewrite::without_dead_nodes;

/// Runs the pass.
///
/// # Errors
/// None at present.
pub fn run(graph: &Graph, context: &PassContext<'_>) -> Result<Graph> {
    let graph = graph.clone();
    Ok(if context.options.dce { without_dead_nodes(graph) } else { graph })
}
