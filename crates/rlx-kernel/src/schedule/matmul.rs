//! Matmuls: [`rlx_ir::Op::MatMul`] as a `Gemm` of its operands (see [`super::gemm`]).

use rlx_ir::ops::linalg::MatMulDims;
use rlx_ir::{Dim, Node, NodeId};

use super::cx::Cx;
use super::gemm::{Gemm, GemmVariant, Operands};
use super::{Launch, Scheduled, StepDesc, elementwise, reject};
use crate::ir::Value;

impl Cx<'_> {
    fn matrix_element(
        &mut self,
        id: NodeId,
        to: &[Dim],
        batch: &[Value],
        row: &[Value],
        column: &[Value],
    ) -> Scheduled<Value> {
        let dims = self.graph().shape(id).dims().to_vec();
        let mut index = self.broadcast_dims(&dims[..dims.len().saturating_sub(2)], to, batch);
        index.extend_from_slice(row);
        index.extend_from_slice(column);
        self.element(id, &index)
    }
}

/// The matmul that a body around [`rlx_ir::Op::MatMul`] computes.
///
/// # Errors
/// An element type without arithmetic.
pub(super) fn gemm(step: &StepDesc, anchor: &Node) -> Scheduled<Gemm> {
    let (lhs, rhs, dtype) = (anchor.inputs[0], anchor.inputs[1], anchor.shape.dtype());
    if !elementwise::computes(dtype) {
        return reject(format!("a matmul of {dtype}"));
    }
    let dims = MatMulDims::of(step.graph.shape(lhs), step.graph.shape(rhs));
    let dims = dims.map_err(|e| super::Unscheduled(e.to_string()))?;
    // A vector has no row (or column) dimension: its index is empty.
    let one = |vector: bool, d: Dim| if vector { vec![] } else { vec![d.extent()] };
    Ok(Gemm {
        batch: dims.batch.iter().map(|d| d.extent()).collect(),
        m: one(dims.a_is_vector, dims.m),
        k: vec![dims.k.extent()],
        n: one(dims.b_is_vector, dims.n),
        dtype,
        rows_are_inner: false,
    })
}

/// Makes the kernel of a body around [`rlx_ir::Op::MatMul`], in this variant.
///
/// # Errors
/// An element type without arithmetic, or an epilogue of other dimensions.
pub fn schedule(step: &StepDesc, anchor: &Node, variant: GemmVariant) -> Scheduled<Vec<Launch>> {
    let (lhs, rhs, dtype) = (anchor.inputs[0], anchor.inputs[1], anchor.shape.dtype());
    let gemm = gemm(step, anchor)?;
    let cx = Cx::new(&format!("matmul.{}", step.name), variant.workgroup(), step);
    cx.result_space()?;
    let lead = &anchor.shape.dims()[..gemm.batch.len()];
    let operands = Operands {
        a: &mut |cx, batch, m, k| cx.matrix_element(lhs, lead, batch, m, k),
        b: &mut |cx, batch, k, n| cx.matrix_element(rhs, lead, batch, k, n),
        share: None,
        finish: &mut |cx, batch, m, n, v| {
            let index = [batch, m, n].concat();
            let v = elementwise::narrowed(&mut cx.b, v, dtype);
            cx.bind(anchor.id, &index, v);
            cx.store_results(&index)
        },
    };
    gemm.launch(cx, variant, operands).map(|launch| vec![launch])
}
