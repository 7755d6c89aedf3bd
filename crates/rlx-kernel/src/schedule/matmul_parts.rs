//! A step around a matmul in parts: which operands are multiplied, and what becomes of a sum.
//!
//! [`super::matmul`] and [`super::matmul_blocks`] make whole kernels of such steps. Who multiplies by other means (tiles and matrix instructions, say) needs
//! the sizes, where the operands are and what becomes of their elements ([`MatMulOperand`]), and the rest of the body as a function of one sum: its
//! *epilogue*, made of the body by the same code.

use std::sync::Arc;

use rlx_ir::lir::Operand;
use rlx_ir::ops::linalg::MatMulDims;
use rlx_ir::{DType, Dim, Extent, Graph, Node, Op};

use super::cx::Cx;
use super::joined::{Joined, joined};
use super::matmul_operand::{MatMulOperand, MatMulRead, inputs_of, merged};
use super::{Arg, Launch, Scheduled, StepDesc, UniformArg, Unscheduled, anchor_of, elementwise, reject};
use crate::Kernel;
use crate::ir::{BufferDecl, Ty};

/// A step around one matmul of matrices, with one result.
#[derive(Debug)]
pub struct MatMulParts<'s> {
    step: &'s StepDesc,
    anchor: &'s Node,
    /// What is multiplied.
    operands: Vec<MatMulOperand>,
    /// Dimensions along which matmuls repeat.
    pub batch: Vec<Extent>,
    /// Rows of the result.
    pub m: Extent,
    /// The dimensions that its rows are.
    pub(super) rows: Vec<Extent>,
    /// Columns.
    pub n: Extent,
    /// What is summed over.
    pub k: Extent,
    /// The type of the operands' elements, to which a sum is rounded before anything else is done with it.
    pub dtype: DType,
}

/// What becomes of a sum before it is stored.
#[derive(Debug)]
pub struct Epilogue {
    /// A body of one invocation without stores. Its first four variables are the sum (`f32`), which it changes, the number of the batch, the row
    /// and the column; those behind them are what is read beside the sum (`f32`).
    pub kernel: Kernel,
    /// The operand of each of the body's buffers.
    pub bindings: Vec<Arg>,
    /// The value of each of its uniforms.
    pub uniforms: Vec<UniformArg>,
}

impl<'s> MatMulParts<'s> {
    /// The parts of a step.
    ///
    /// # Errors
    /// A step around something else, several results, operands that are vectors or computed by other than elementwise ops, a result that has dimensions of
    /// its own or is written over anything but what its epilogue reads at the same place.
    pub fn of(step: &'s StepDesc) -> Scheduled<Self> {
        let Some(anchor @ Node { op: Op::MatMul | Op::MatMulBlocks, .. }) = anchor_of(step)? else {
            return reject("no matmul");
        };
        let (graph, &[lhs, rhs, ..]) = (&step.graph, &anchor.inputs[..]) else {
            return reject("a matmul without two operands");
        };
        let ([_], [result]) = (&step.outputs[..], &graph.outputs[..]) else {
            return reject("several results");
        };
        if graph.shape(*result).dims() != anchor.shape.dims() {
            return reject("an epilogue of other dimensions");
        }
        let mut parts = Self::sized(step, anchor)?;
        parts.operands.push(parts.operand_of(lhs)?);
        parts.operands.push(match parts.is_of_blocks() {
            true => parts.blocks(anchor)?,
            false => parts.operand_of(rhs)?,
        });
        let multiplied: Vec<Arg> =
            parts.operands.iter().flat_map(|o| o.reads.iter().map(|read| read.arg)).collect();
        if step.is_written_over_others(&multiplied) {
            return reject("a result that is written over other elements than its epilogue reads");
        }
        let multiplied = if parts.is_of_blocks() { &[lhs][..] } else { &[lhs, rhs] };
        if multiplied.iter().any(|&id| graph.shape(id).dtype() != parts.dtype) {
            return reject("operands of another type than the result's");
        }
        Ok(parts)
    }

    /// The sizes of a step, without operands.
    fn sized(step: &'s StepDesc, anchor: &'s Node) -> Scheduled<Self> {
        let (graph, dtype, operands) = (&step.graph, anchor.shape.dtype(), Vec::new());
        let extents = |dims: &[Dim]| dims.iter().map(|d| d.extent()).collect::<Vec<_>>();
        if anchor.op == Op::MatMulBlocks {
            let depth = graph.shape(anchor.inputs[0]).dims().last();
            let (Some(k), Some((n, rows))) = (depth, anchor.shape.dims().split_last()) else {
                return reject("a matmul of a number by blocks");
            };
            let (batch, rows, k, n) = (Vec::new(), extents(rows), k.extent(), n.extent());
            let m = rows.iter().fold(Extent::Const(1), |m, &rows| m * rows);
            return Ok(MatMulParts { step, anchor, operands, batch, m, rows, n, k, dtype });
        }
        let dims = MatMulDims::of(graph.shape(anchor.inputs[0]), graph.shape(anchor.inputs[1]));
        let dims = dims.map_err(|e| Unscheduled(e.to_string()))?;
        if dims.a_is_vector || dims.b_is_vector {
            return reject("a matmul of a vector");
        }
        let (batch, m, k, n) = (extents(&dims.batch), dims.m.extent(), dims.k.extent(), dims.n.extent());
        Ok(MatMulParts { step, anchor, operands, batch, m, rows: vec![m], n, k, dtype })
    }

    /// Whether the right operand is weights in blocks.
    pub fn is_of_blocks(&self) -> bool {
        self.anchor.op == Op::MatMulBlocks
    }

    /// What is multiplied: the left operand and the right one.
    pub fn operands(&self) -> &[MatMulOperand] {
        &self.operands
    }

    /// Where the result is written.
    ///
    /// # Errors
    /// Rows that are not one dimension in memory.
    pub fn result(&self) -> Scheduled<MatMulRead> {
        let Operand { view, dtype, .. } = &self.step.outputs[0];
        let (lead, count) = (self.batch.len(), view.strides.len());
        let Some(row) = merged(&self.rows, &view.strides[lead..count - 1]) else {
            return reject("rows that are not one dimension in memory");
        };
        Ok(MatMulRead {
            arg: Arg::Output(0),
            dtype: *dtype,
            offset: view.offset,
            batch: view.strides[..lead].to_vec(),
            strides: [row, view.strides[count - 1]],
            block: None,
        })
    }

    pub(super) fn graph(&self) -> &'s Graph {
        &self.step.graph
    }

    pub(super) fn step(&self) -> &'s StepDesc {
        self.step
    }

    /// Where an operand is.
    pub fn operand(&self, arg: Arg) -> &'s Operand {
        match arg {
            Arg::Input(i) => &self.step.inputs[i],
            Arg::Output(i) => &self.step.outputs[i],
        }
    }

    /// The step behind sums over so many parts of the depth, of all dimensions of the result.
    ///
    /// # Errors
    /// A body that is not in order.
    pub fn joined(&self, parts: Extent) -> Scheduled<Joined> {
        joined(self.step, self.anchor, None, parts)
    }

    /// What the epilogue reads, as far as whoever stores tiles can read all of it in tiles of the result; nothing where the epilogue has ops that are not elementwise.
    pub fn beside(&self) -> Vec<MatMulRead> {
        let (result, mut inputs) = (self.step.graph.outputs[0], Vec::new());
        if inputs_of(self.graph(), result, Some(self.anchor.id), &mut inputs).is_err() {
            return Vec::new();
        }
        let reads = inputs.into_iter().map(|input| self.read(input, result));
        of_floats(reads.collect::<Scheduled<_>>())
    }

    /// What becomes of a sum, over buffers and uniforms of which the first are given; none where it is stored as it is. It is given what is read
    /// `beside` the sum: all of [`Self::beside`], or nothing, and reads the rest itself.
    ///
    /// # Errors
    /// A result that is not of f32, f16 or bf16, or an op that has no element-by-element form.
    pub fn epilogue(
        &self,
        buffers: &[(BufferDecl, Arg)],
        uniforms: &[(String, UniformArg)],
        beside: &[MatMulRead],
    ) -> Scheduled<Option<Epilogue>> {
        let result = self.step.graph.outputs[0];
        if result == self.anchor.id {
            return Ok(None);
        }
        let mut cx = Cx::over(&format!("epilogue.{}", self.step.name), self.step, buffers, uniforms);
        if Ty::of(cx.dtype(result)) != Ty::F32 {
            return reject(format!("a result of {}", cx.dtype(result)));
        }
        let [sum, batch, row, column] = [Ty::F32, Ty::I32, Ty::I32, Ty::I32].map(|ty| cx.b.declare_var(ty));
        if !beside.is_empty() {
            let mut made = cx.given_beside(beside);
            let value = cx.b.get(sum);
            made.insert(self.anchor.id, elementwise::narrowed(&mut cx.b, value, self.dtype));
            let value = cx.pointwise(result, &mut made)?;
            cx.b.set(sum, value);
            return Ok(Some(Epilogue::of(cx)));
        }
        let sizes = cx.sizes("batch", &self.batch);
        let flat = cx.b.get(batch);
        let mut index = cx.unflatten(flat, &sizes);
        let row = cx.b.get(row);
        match self.rows[..] {
            [size] => index.push(if size == Extent::Const(1) { cx.b.int(0) } else { row }),
            ref rows => {
                let sizes = cx.sizes("row", rows);
                index.extend(cx.unflatten(row, &sizes));
            }
        }
        // As the body has it: the index along a dimension of one element is 0.
        index.push(if self.n == Extent::Const(1) { cx.b.int(0) } else { cx.b.get(column) });
        let value = cx.b.get(sum);
        let value = elementwise::narrowed(&mut cx.b, value, self.dtype);
        cx.bind(self.anchor.id, &index, value);
        let value = cx.element(result, &index)?;
        cx.b.set(sum, value);
        Ok(Some(Epilogue::of(cx)))
    }
}

impl Epilogue {
    /// The body that was written.
    pub(super) fn of(cx: Cx<'_>) -> Self {
        let Launch { kernel, bindings, uniforms, .. } = cx.finish(Extent::Const(1));
        Epilogue { kernel: Arc::unwrap_or_clone(kernel), bindings, uniforms }
    }
}

/// What is read, where it can be read beside sums: a few tensors of floats of up to 32 bits.
pub(super) fn of_floats(reads: Scheduled<Vec<MatMulRead>>) -> Vec<MatMulRead> {
    let is_float = |read: &MatMulRead| matches!(read.dtype, DType::F32 | DType::F16 | DType::BF16);
    reads.ok().filter(|all| all.len() <= MOST_BESIDE && all.iter().all(is_float)).unwrap_or_default()
}

/// The most tensors that are read beside a sum: each takes registers.
const MOST_BESIDE: usize = 4;
