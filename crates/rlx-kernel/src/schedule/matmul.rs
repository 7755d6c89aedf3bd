//! Matmuls: [`rlx_ir::Op::MatMul`] as a `Gemm` of its operands (see [`super::gemm`]).
//!
//! An operand may have rows that a gather picks, which are computed as they are loaded: keys and values in pages of a table. Such a row has
//! a page and a place in it, and where the sum goes along these rows, it goes along pages and, within each, along places. So what page it is
//! is looked up once for all of its rows; the order of the sum is the same.
//!
//! ```text
//! table [pages, 16, 64]   list [2, 5]   Reshape(Gather(table, list)) : [2, 80, 64]
//! weights [2, 4, 80] · values [2, 80, 64]      k = [5, 16]:  for page { at = list[item, page]; for row { … table[at, row, n] } }
//! ```

use rlx_ir::ops::linalg::MatMulDims;
use rlx_ir::{Dim, Extent, Graph, Node, NodeId, Op};

use super::body::dim_groups;
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

/// The dimensions, page and place in it, of which `axis` of an operand is made, where a gather picks its pages.
fn paged(graph: &Graph, mut id: NodeId, mut axis: usize) -> Option<Vec<Extent>> {
    let mut pages = None;
    loop {
        let node = graph.node(id);
        match &node.op {
            Op::Gather { .. } => return pages,
            Op::Transpose { perm } => axis = *perm.get(axis)?,
            Op::Reshape { .. } => {
                let dims =
                    |id: NodeId| graph.shape(id).dims().iter().map(|d| d.extent()).collect::<Vec<Extent>>();
                let from = dims(node.inputs[0]);
                let (_, of_from) =
                    dim_groups(&dims(id), &from).into_iter().find(|(to, _)| *to == (axis..axis + 1))?;
                if of_from.len() > 1 && pages.replace(from[of_from.clone()].to_vec()).is_some() {
                    return None;
                }
                axis = of_from.start;
            }
            Op::Cast { .. } => {}
            _ => return None,
        }
        id = *node.inputs.first()?;
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
    let axis = |id: NodeId, from_end: usize| step.graph.shape(id).rank().checked_sub(from_end);
    let of_left = || paged(&step.graph, lhs, axis(lhs, 1)?);
    let of_right = || paged(&step.graph, rhs, axis(rhs, if dims.b_is_vector { 1 } else { 2 })?);
    Ok(Gemm {
        batch: dims.batch.iter().map(|d| d.extent()).collect(),
        m: one(dims.a_is_vector, dims.m),
        k: of_right().or_else(of_left).unwrap_or_else(|| vec![dims.k.extent()]),
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
    let mut cx = Cx::new(&format!("matmul.{}", step.name), variant.workgroup(), step);
    cx.result_space()?;
    // The first size counts for nothing in a number.
    let inner = gemm.k.iter().enumerate().skip(1).map(|(i, &e)| cx.window_size(&format!("k{i}"), e));
    let mut sizes: Vec<Value> = inner.collect();
    if !sizes.is_empty() {
        sizes.insert(0, cx.b.int(0));
    }
    let along = |cx: &mut Cx<'_>, k: &[Value]| match k {
        [_, _, ..] => vec![cx.joined_index(k, &gemm.k, &sizes)],
        _ => k.to_vec(),
    };
    let lead = &anchor.shape.dims()[..gemm.batch.len()];
    let operands = Operands {
        a: &mut |cx, batch, m, k| {
            let k = along(cx, k);
            cx.matrix_element(lhs, lead, batch, m, &k)
        },
        b: &mut |cx, batch, k, n| {
            let k = along(cx, k);
            cx.matrix_element(rhs, lead, batch, &k, n)
        },
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
