//! Matmuls by weights in blocks: [`rlx_ir::Op::MatMulBlocks`] as a `Gemm` whose right operand is dequantised where it is loaded.
//!
//! Weights stay integers of 4 or 8 bits in memory. An element is `(w − zero) · scale` by the numbers of its block, rounded to the type
//! that is multiplied, as `Dequantize` rounds it; so all variants have the bits of dequantising first. In tiles, an
//! element is made once for all rows of a tile.

use rlx_ir::{Extent, Node};

use super::cx::Cx;
use super::gemm::{Gemm, GemmVariant, Operands};
use super::{Launch, Scheduled, StepDesc, elementwise, reject};
use crate::ir::{Ty, Value};

/// The matmul that a body around [`rlx_ir::Op::MatMulBlocks`] computes: all dimensions but the last are rows.
///
/// # Errors
/// An element type without arithmetic.
pub(super) fn gemm(step: &StepDesc, anchor: &Node) -> Scheduled<Gemm> {
    let (x, dtype) = (step.graph.shape(anchor.inputs[0]), anchor.shape.dtype());
    let floats = anchor.inputs[2..].iter().all(|&id| elementwise::computes(step.graph.shape(id).dtype()));
    if !elementwise::computes(dtype) || !floats {
        return reject(format!("a matmul of {dtype} by blocks"));
    }
    let (Some((depth, rows)), Some(columns)) = (x.dims().split_last(), anchor.shape.dims().last()) else {
        return reject("a matmul of a number by blocks");
    };
    Ok(Gemm {
        batch: Vec::new(),
        m: rows.iter().map(|d| d.extent()).collect(),
        k: vec![depth.extent()],
        n: vec![columns.extent()],
        dtype,
    })
}

/// Makes the kernel of a body around [`rlx_ir::Op::MatMulBlocks`], in this variant.
///
/// # Errors
/// An element type without arithmetic, or an epilogue of other dimensions.
pub fn schedule(step: &StepDesc, anchor: &Node, variant: GemmVariant) -> Scheduled<Vec<Launch>> {
    let (x, dtype) = (anchor.inputs[0], anchor.shape.dtype());
    let gemm = gemm(step, anchor)?;
    let mut cx = Cx::new(&format!("matmul_blocks.{}", step.name), variant.workgroup(), step);
    cx.result_space()?;
    let block = step.graph.shape(anchor.inputs[1]).dims().last().map_or(Extent::Const(1), |d| d.extent());
    let block = cx.size("block", block);
    let operands = Operands {
        a: &mut |cx, _, m, k| cx.element(x, &[m, k].concat()),
        b: &mut |cx, _, k, n| cx.dequantized(anchor, block, k[0], n[0]),
        finish: &mut |cx, _, m, n, v| {
            let index = [m, n].concat();
            let v = elementwise::narrowed(&mut cx.b, v, dtype);
            cx.bind(anchor.id, &index, v);
            cx.store_results(&index)
        },
    };
    gemm.launch(cx, variant, operands).map(|launch| vec![launch])
}

impl Cx<'_> {
    /// The weight at row `k` and column `n`, of blocks of `block` rows.
    fn dequantized(&mut self, anchor: &Node, block: Value, k: Value, n: Value) -> Scheduled<Value> {
        let [weights, scale] = [anchor.inputs[1], anchor.inputs[2]];
        let ty = Ty::of(self.dtype(scale));
        let (number, within) = self.b.div_rem(k, block);
        let w = self.element(weights, &[n, number, within])?;
        let mut v = self.b.convert(ty, w);
        if let Some(&zero) = anchor.inputs.get(3) {
            let zero = self.element(zero, &[number, n])?;
            let zero = self.b.convert(ty, zero);
            v = self.b.sub(v, zero);
        }
        let scale = self.element(scale, &[number, n])?;
        let v = self.b.mul(v, scale);
        let v = self.b.convert(Ty::of(anchor.shape.dtype()), v);
        Ok(elementwise::narrowed(&mut self.b, v, anchor.shape.dtype()))
    }
}
