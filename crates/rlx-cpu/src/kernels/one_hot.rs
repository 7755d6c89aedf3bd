//! One-hot codes: the result is filled with one value, and the other one is written where an index says.

use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::elementwise::sized;
use super::indices::Indices;
use super::scalar::is_number;
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::layout::{At, Bound};
use crate::simd::LANES;

/// The most neighbouring indices of a task where the codes lie along another dimension than the innermost.
const BLOCK: usize = 1024;

/// Numbers and truth values of whole bytes are written, whatever they are.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let index = node.inputs.first().map(|&id| graph.shape(id).dtype());
    match index {
        Some(DType::I32 | DType::I64) if is_number(node.shape.dtype()) => Claim::Native,
        _ => Claim::No(format!("there is no kernel for one-hot codes of {}", node.shape.dtype())),
    }
}

/// The kernel of one-hot codes.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    match cx.node().op {
        Op::OneHot { axis, .. } => Ok(Box::new(OneHot { axis, plan: None })),
        ref op => Err(no_kernel(op, "it makes no one-hot codes")),
    }
}

#[derive(Debug, Clone, Copy)]
struct OneHot {
    axis: usize,
    plan: Option<Plan>,
}

/// Bound one-hot codes `[outer, depth, inner]` of indices `[outer, inner]`; all operands are dense.
#[derive(Debug, Clone, Copy)]
struct Plan {
    indices: Bound,
    /// Two values: of no index, and of an index.
    values: At,
    out: At,
    outer: usize,
    depth: usize,
    inner: usize,
    word: usize,
    worth: bool,
}

impl StepKernel for OneHot {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (indices, values, out) = (cx.inputs[0], cx.inputs[1], cx.outputs[0]);
        let (dims, rank) = (indices.dims(), indices.layout.rank());
        let axis = self.axis;
        let fits = axis <= rank
            && out.layout.rank() == rank + 1
            && out.dims()[..axis] == dims[..axis]
            && out.dims()[axis + 1..] == dims[axis..]
            && values.dims() == [2];
        if !fits {
            return Err(mismatch(format!("one-hot codes {:?} of {dims:?}", out.dims())));
        }
        let word = out.dtype.size_bytes();
        let nanos = (out.layout.elements() * word) as f64 * 0.03 + indices.layout.elements() as f64;
        self.plan = Some(Plan {
            indices,
            values: values.at,
            out: out.at,
            outer: dims[..axis].iter().product(),
            depth: out.dims()[axis],
            inner: dims[axis..].iter().product(),
            word,
            worth: nanos > WORTH_NANOS,
        });
        Ok(Needs::time(nanos))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(p) = self.plan else { return Err(unbound()) };
        let indices = Indices::new(cx.ptr(p.indices.at), p.indices.dtype);
        let (values, out) = (cx.shared::<u8>(p.values), cx.shared::<u8>(p.out));
        let block = cx.share(p.worth, p.outer, p.inner, BLOCK, LANES);
        let blocks = p.inner.div_ceil(block);
        cx.parallel(p.worth, p.outer * blocks, &|range, _| {
            // SAFETY: the caller's promise; there are two values, and tasks write elements of their own.
            unsafe {
                sized!(p.word, T => {
                    let values = values.get().cast::<T>();
                    let (off, on, out) = (*values, *values.add(1), out.get().cast::<T>());
                    if p.inner == 1 {
                        std::slice::from_raw_parts_mut(out.add(range.start * p.depth), range.len() * p.depth)
                            .fill(off);
                    }
                    for unit in range {
                        let (row, start) = (unit / blocks, unit % blocks * block);
                        let n = block.min(p.inner - start);
                        let out = out.add(row * p.depth * p.inner + start);
                        if p.inner > 1 {
                            for place in 0..p.depth {
                                std::slice::from_raw_parts_mut(out.add(place * p.inner), n).fill(off);
                            }
                        }
                        for i in 0..n {
                            // An index that is out of range has no place.
                            if let Some(place) = indices.place(row * p.inner + start + i, p.depth) {
                                *out.add(place * p.inner + i) = on;
                            }
                        }
                    }
                })
            }
        });
        Ok(())
    }
}
