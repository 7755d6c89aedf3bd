//! The CPU as the compiler sees it.

use rlx_ir::lir::View;
use rlx_ir::op::PackFormat;
use rlx_ir::{Extent, Graph, Node, Op};
use rlx_opt::{Claim, Target};

use crate::kernels::{self, matmul, region};

/// Answers the compiler's questions about CPU kernels; see [`Target`].
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuTarget;

/// Whether neighbours along the last dimension are neighbours in memory.
fn last_is_contiguous(view: &View) -> bool {
    let one = Extent::Const(1);
    match (view.dims.last(), view.strides.last()) {
        (Some(&dim), Some(&stride)) => stride == one || dim == one,
        _ => true,
    }
}

fn reads(op: &Op, input: usize, view: &View) -> bool {
    match op {
        Op::MatMul if input == 0 => last_is_contiguous(view),
        Op::MatMul | Op::Pack { .. } => true,
        _ => op.is_elementwise(),
    }
}

impl Target for CpuTarget {
    fn name(&self) -> &str {
        "cpu"
    }

    fn claim(&self, node: &Node, graph: &Graph) -> Claim {
        kernels::claim(node, graph)
    }

    fn fuses(&self, anchor: Option<&Node>, op: &Node, graph: &Graph) -> bool {
        let fits = match anchor {
            None => true,
            Some(a) => {
                region::can_anchor(a.op.kind())
                    && a.shape.dims() == op.shape.dims()
                    && kernels::claim(a, graph).is_native()
            }
        };
        fits && op.op.is_elementwise() && kernels::claim(op, graph).is_native()
    }

    fn reads_view(&self, op: &Op, input: usize, view: &View) -> bool {
        let Op::Region { body } = op else { return reads(op, input, view) };
        // Elementwise ops read any view; the anchor as it does alone.
        let Some(anchor) = region::anchor_of(&body.graph) else { return true };
        let Some(inputs) = region::anchor_inputs(&body.graph, anchor) else { return false };
        inputs.iter().enumerate().filter(|&(_, &i)| i == input).all(|(own, _)| reads(&anchor.op, own, view))
    }

    fn writes_view(&self, op: &Op, view: &View) -> bool {
        match op {
            Op::MatMul => last_is_contiguous(view),
            Op::Region { body } => region::anchor_of(&body.graph).is_none() || last_is_contiguous(view),
            _ => op.is_elementwise(),
        }
    }

    fn pack_format(&self, node: &Node, input: usize, graph: &Graph) -> Option<PackFormat> {
        match &node.op {
            Op::MatMul => matmul::pack_format(node, input, graph),
            Op::Region { body } => {
                let anchor = region::anchor_of(&body.graph)?;
                let own = region::anchor_inputs(&body.graph, anchor)?.iter().position(|&i| i == input)?;
                matches!(anchor.op, Op::MatMul).then(|| matmul::pack_format(anchor, own, &body.graph))?
            }
            _ => None,
        }
    }

    fn prefers_channels_last(&self) -> bool {
        true
    }
}
