//! Sums and means of squares, as norms (`ReduceL2`, `x / ‖x‖`) begin: one step that squares elements as it reads them, instead of one that
//! writes all squares and another that reads them back.
//!
//! ```text
//! %1 = Mul(%0, %0) : [m, 64] f32                      %2 = Region(%0) {body=graph "Mul+Reduce" {
//! %2 = Reduce.Sum(%1) {axes=[1]} : [m] f32     →         …
//!                                                     }} : [m] f32
//! ```
//!
//! Each square is rounded to the element type before it is added, so the bits are those of the two steps.

use rlx_ir::op::{BinaryOp, ReduceOp};
use rlx_ir::{Graph, Node, Op};

use super::StepKernel;
use super::matmul::is_packed;
use super::reduce::Reduce;

/// Whether `squares`, which `anchor` reads, may be computed as it is reduced.
pub(crate) fn fuses(squares: &Node, anchor: &Node) -> bool {
    is_square(squares)
        && is_packed(squares.shape.dtype())
        && anchor.inputs[..] == [squares.id]
        && matches!(anchor.op, Op::Reduce { op: ReduceOp::Sum | ReduceOp::Mean, .. })
}

/// Whether it multiplies an operand by itself.
fn is_square(node: &Node) -> bool {
    matches!((&node.op, &node.inputs[..]), (Op::Binary(BinaryOp::Mul), [a, b]) if a == b)
}

/// The kernel of a region of such a reduction alone, if it is one.
pub(crate) fn kernel(body: &Graph) -> Option<Box<dyn StepKernel>> {
    let ([x, squares, anchor], &[result]) = (body.nodes(), &body.outputs[..]) else { return None };
    let Op::Reduce { op, axes, keep_dim } = &anchor.op else { return None };
    let whole = matches!(x.op, Op::Input { .. }) && squares.inputs[0] == x.id && result == anchor.id;
    let same_dims = x.shape.dims() == squares.shape.dims();
    (whole && same_dims && fuses(squares, anchor)).then(|| {
        let reduce = Reduce::new(*op, axes.clone(), *keep_dim, anchor.shape.dtype());
        Box::new(reduce.of_squares()) as Box<dyn StepKernel>
    })
}
