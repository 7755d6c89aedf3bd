//! Rows that are too long for the workgroup, or the invocation, that a schedule gives each of them: it would go over them for long while others have nothing
//! to do. They are not claimed, and so come in parts ([`rlx_ir::ops::parts`]) or, softmax and norms, as the reductions and elementwise ops that they are.

use rlx_ir::ops::parts::PART;
use rlx_ir::{Graph, Node, Op, decompose};

use super::{rows, sorting};

/// The most elements of a row that has a workgroup.
const WORKGROUPS: usize = 4 * PART;

/// The most elements of a column, of which a workgroup has many and each a few invocations.
const COLUMNS: usize = PART;

/// The most elements of a row of softmax or a norm, which is read once more for each statistic where workgroup memory ends.
const ROWS: usize = 4 * WORKGROUPS;

/// Why a node is not computed as it is: its rows are too long.
pub fn too_long(node: &Node, graph: &Graph) -> Option<String> {
    let x = graph.shape(*node.inputs.first()?);
    let reduced = |last: Option<&usize>| {
        let in_memory = last.is_none_or(|axis| axis + 1 == x.rank());
        if in_memory { WORKGROUPS } else { COLUMNS }
    };
    let (axes, most) = match &node.op {
        Op::Reduce { axes, .. } => (axes.clone(), reduced(axes.last())),
        Op::ArgReduce { axis, .. } => (vec![*axis], reduced(Some(axis))),
        Op::Cumulative { axis, .. } => (vec![*axis], WORKGROUPS),
        Op::TopK { axis, .. } => (vec![*axis], sorting::LONGEST),
        Op::Softmax { .. } | Op::LogSoftmax { .. } | Op::LayerNorm { .. } | Op::RmsNorm { .. } => {
            (rows::axes_of(node, x).ok()?, ROWS)
        }
        _ => return None,
    };
    let elements = axes.iter().try_fold(1usize, |n, &axis| n.checked_mul(x.dim(axis).as_static()?))?;
    // What cannot be cut is computed as it is, however long that takes.
    let is_cut = elements > most && decompose::can_decompose(graph, node);
    is_cut.then(|| format!("rows of {elements} elements: {most} are done by one workgroup"))
}
