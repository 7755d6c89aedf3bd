//! Matmuls by weights in blocks: [`rlx_ir::Op::MatMulBlocks`] as a `Gemm` whose right operand is dequantised where it is loaded.
//!
//! Weights stay integers of 4 or 8 bits in memory. An element is `(w − zero) · scale` by the numbers of its block, rounded to the type
//! that is multiplied, as `Dequantize` rounds it; so all variants have the bits of dequantising first. In tiles, an
//! element is made once for all rows of a tile; elsewhere the numbers of a block are loaded once for all of its elements.

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
    // Of depths that are no multiple of it the last block is only in part there.
    let (depth, block) = (depth.extent(), block_size(step, anchor));
    let k = match (depth, block) {
        (Extent::Const(d), Extent::Const(b)) if b > 0 && d % b == 0 => vec![Extent::Const(d / b), block],
        _ => vec![depth],
    };
    Ok(Gemm {
        batch: Vec::new(),
        m: rows.iter().map(|d| d.extent()).collect(),
        k,
        n: vec![columns.extent()],
        dtype,
        rows_are_inner: false,
        neighbours: None,
    })
}

/// How many weights share a scale.
fn block_size(step: &StepDesc, anchor: &Node) -> Extent {
    step.graph.shape(anchor.inputs[1]).dims().last().map_or(Extent::Const(1), |d| d.extent())
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
    let block = cx.window_size("block", block_size(step, anchor));
    let operands = Operands {
        a: &mut |cx, _, m, k| {
            let k = match *k {
                [number, within] => {
                    let begin = cx.b.mul(number, block);
                    cx.b.add(begin, within)
                }
                _ => k[0],
            };
            cx.element(x, &[m, &[k]].concat())
        },
        b: &mut |cx, _, k, n| {
            let (number, within) = match *k {
                [number, within] => (number, within),
                _ => cx.b.div_rem(k[0], block),
            };
            cx.dequantized(anchor, [number, within], n[0])
        },
        share: Some(&mut |cx, number, n| {
            anchor.inputs[2..].iter().try_for_each(|&id| cx.element(id, &[number, n[0]]).map(|_| ()))
        }),
        wide: None,
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
    /// The weight at row `within` of block `number`, and column `n`.
    fn dequantized(&mut self, anchor: &Node, [number, within]: [Value; 2], n: Value) -> Scheduled<Value> {
        let [weights, scale] = [anchor.inputs[1], anchor.inputs[2]];
        let ty = Ty::of(self.dtype(scale));
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
