//! What a matmul multiplies, for who multiplies by other means than these kernels: the inputs that an operand is read from, and its *prologue*, what becomes
//! of their elements before they are multiplied.
//!
//! An operand is an input as it is, elementwise ops of inputs, or weights that are dequantised in blocks. In each, an element is made of one element of every
//! input, found by strides over the operand's own dimensions; an input that is broadcast has strides of 0. So whoever copies tiles reads a tile of each input,
//! and computes an element by a body of one invocation that loads nothing. It rounds where the whole kernel of the step does:
//!
//! ```text
//! %3 = Activation.Silu(%0)       x0 [m, k] strides [k, 1]     m0
//! %4 = Binary.Mul(%3, %1)        x1 [m, 1] strides [1, 0]     m4
//! %5 = MatMul(%4, %2)                                         m0 = round(round(silu(m0)) · m4)
//! ```

use std::collections::HashMap;

use rlx_ir::{DType, Dim, Extent, Graph, Node, NodeId, Op};

use super::cx::Cx;
use super::matmul_parts::MatMulParts;
use super::{Arg, Scheduled, UniformArg, elementwise, reject};
use crate::Kernel;
use crate::ir::{BufferDecl, Ty, Value};

/// An input that an operand, or the result, is read from or written to.
#[derive(Debug, Clone)]
pub struct MatMulRead {
    /// Which.
    pub arg: Arg,
    /// The type of its elements.
    pub dtype: DType,
    /// Where it begins, in elements of its buffer.
    pub offset: Extent,
    /// Elements from batch to batch, along each dimension; 0 where it is repeated.
    pub batch: Vec<Extent>,
    /// Elements from row to row of the operand, and from column to column.
    pub strides: [Extent; 2],
    /// So many neighbours along the depth share an element: the stride along the depth is from one of those to the next.
    pub block: Option<i64>,
}

/// How an operand's elements are made of its inputs'.
#[derive(Debug, Clone, Copy)]
enum Made {
    AsTheyAre,
    /// By the ops up to this node.
    By(NodeId),
    /// `(w − zero) · scale`, of `w`, `scale` and, if any, `zero`.
    OfBlocks,
}

/// An operand of a matmul.
#[derive(Debug, Clone)]
pub struct MatMulOperand {
    /// What it is read from: first an input with an element for each of its own.
    pub reads: Vec<MatMulRead>,
    made: Made,
}

impl MatMulOperand {
    /// Whether it is weights in blocks.
    pub fn is_of_blocks(&self) -> bool {
        matches!(self.made, Made::OfBlocks)
    }

    /// Whether its elements are computed as they are read.
    pub fn is_computed(&self) -> bool {
        !matches!(self.made, Made::AsTheyAre)
    }
}

/// The strides of dimensions as one dimension, where they run through memory as one.
pub(super) fn merged(dims: &[Extent], strides: &[Extent]) -> Option<Extent> {
    let mut merged: Option<(Extent, Extent)> = None;
    for (&size, &stride) in dims.iter().zip(strides).rev().filter(|(size, _)| **size != Extent::Const(1)) {
        merged = match merged {
            None => Some((size, stride)),
            Some((inner, of_inner)) if stride == inner * of_inner => Some((inner * size, of_inner)),
            Some(_) => return None,
        };
    }
    Some(merged.map_or(Extent::Const(0), |(_, stride)| stride))
}

impl<'s> MatMulParts<'s> {
    /// The operand that a node of the body is.
    pub(super) fn operand_of(&self, id: NodeId) -> Scheduled<MatMulOperand> {
        let graph = self.graph();
        let mut inputs = Vec::new();
        inputs_of(graph, id, None, &mut inputs)?;
        let mut reads = inputs.iter().map(|&input| self.read(input, id)).collect::<Scheduled<Vec<_>>>()?;
        let zero = Extent::Const(0);
        let has_all = |read: &MatMulRead| {
            let dims = graph.shape(id).dims().len().min(2);
            read.strides.iter().rev().take(dims).all(|&stride| stride != zero)
        };
        let Some(first) = reads.iter().position(has_all) else {
            return reject("an operand that is computed of broadcast ones");
        };
        // Integers cannot be read beside others; if there are two, the tiles reject it.
        let integer = reads.iter().position(|read| has_all(read) && !read.dtype.is_float());
        let first = integer.unwrap_or(first);
        reads[..=first].rotate_right(1);
        let made = if inputs == [id] { Made::AsTheyAre } else { Made::By(id) };
        Ok(MatMulOperand { reads, made })
    }

    /// The weights of a matmul by blocks, `[columns, blocks, size]`, with scales and zero points `[blocks, columns]`.
    pub(super) fn blocks(&self, anchor: &Node) -> Scheduled<MatMulOperand> {
        let view = |id: NodeId| self.input(id).map(|arg| (arg, self.operand(arg)));
        let (arg, weights) = view(anchor.inputs[1])?;
        let &[_, blocks, size] = &weights.view.dims[..] else { return reject("weights of other dimensions") };
        let &[column, of_blocks, along] = &weights.view.strides[..] else {
            return reject("weights of other dimensions");
        };
        let (Some(depth), Extent::Const(block)) = (merged(&[blocks, size], &[of_blocks, along]), size) else {
            return reject("blocks of weights that are no neighbours");
        };
        let read = |(arg, of): (Arg, &rlx_ir::lir::Operand), strides, block| MatMulRead {
            arg,
            dtype: of.dtype,
            offset: of.view.offset,
            batch: Vec::new(),
            strides,
            block,
        };
        let mut reads = vec![read((arg, weights), [depth, column], None)];
        for &id in &anchor.inputs[2..] {
            let (arg, of) = view(id)?;
            let &[block_stride, column] = &of.view.strides[..] else {
                return reject("scales of other dimensions");
            };
            reads.push(read((arg, of), [block_stride, column], Some(block)));
        }
        if reads[1..].iter().any(|read| Ty::of(read.dtype) != Ty::F32) {
            return reject("scales or zero points that are no floats of up to 32 bits");
        }
        Ok(MatMulOperand { reads, made: Made::OfBlocks })
    }

    fn input(&self, id: NodeId) -> Scheduled<Arg> {
        let number = self.graph().inputs().position(|input| input.id == id).map(Arg::Input);
        number.map_or_else(|| reject("blocks that are computed as they are read"), Ok)
    }

    /// How an input is read for elements of the operand that the node `of` is.
    pub(super) fn read(&self, input: NodeId, of: NodeId) -> Scheduled<MatMulRead> {
        let (arg, graph) = (self.input(input)?, self.graph());
        let (view, dtype) = (&self.operand(arg).view, self.operand(arg).dtype);
        let own = graph.shape(of).dims();
        let along = |at_end: usize, to: Option<Extent>| {
            let dim_of = |dims: &[Dim]| dims.len().checked_sub(at_end).map(|i| dims[i].extent());
            let (Some(of_operand), Some(i)) = (dim_of(own), view.dims.len().checked_sub(at_end)) else {
                return Extent::Const(0);
            };
            let repeats = |from: Extent, to: Extent| {
                if from == to { Extent::Const(1) } else { from.broadcast_factor(to) }
            };
            let to = to.unwrap_or(of_operand);
            view.strides[i] * repeats(view.dims[i], of_operand) * repeats(of_operand, to)
        };
        let count = self.batch.len();
        let batch = (0..count).map(|i| along(count - i + 2, Some(self.batch[i]))).collect();
        let strides = match self.is_of_blocks() {
            false => [along(2, None), along(1, None)],
            // All dimensions but the last are rows.
            true => {
                let lead: Vec<Extent> = (2..=own.len()).rev().map(|at_end| along(at_end, None)).collect();
                let Some(row) = merged(&self.rows, &lead) else {
                    return reject("rows that are not one dimension in memory");
                };
                [row, along(1, None)]
            }
        };
        Ok(MatMulRead { arg, dtype, offset: view.offset, batch, strides, block: None })
    }

    /// What becomes of elements of an operand, over buffers and uniforms of a program; none where they are multiplied as they are. The variables of the
    /// body are an element of the first input (`f32`), which it changes, the number of the batch, the row and the column, and then an element of each of
    /// the others (`f32`).
    ///
    /// # Errors
    /// An op that has no element-by-element form.
    pub fn prologue(
        &self,
        operand: &MatMulOperand,
        buffers: &[(BufferDecl, Arg)],
        uniforms: &[(String, UniformArg)],
    ) -> Scheduled<Option<Kernel>> {
        let mut cx = Cx::over("prologue", self.step(), buffers, uniforms);
        let first = cx.b.declare_var(Ty::F32);
        for _ in 0..3 {
            cx.b.declare_var(Ty::I32);
        }
        let vars = std::iter::once(first).chain(operand.reads[1..].iter().map(|_| cx.b.declare_var(Ty::F32)));
        let vars: Vec<_> = vars.collect();
        let given: Vec<Value> = vars.into_iter().map(|var| cx.b.get(var)).collect();
        let value = match operand.made {
            Made::AsTheyAre => return Ok(None),
            Made::OfBlocks => {
                let from_zero = given.get(2).map_or(given[0], |&zero| cx.b.sub(given[0], zero));
                let value = cx.b.mul(from_zero, given[1]);
                elementwise::narrowed(&mut cx.b, value, self.dtype)
            }
            Made::By(id) => {
                let mut made = cx.made_of(&operand.reads, given);
                cx.pointwise(id, &mut made)?
            }
        };
        cx.b.set(first, value);
        Ok(Some(std::sync::Arc::unwrap_or_clone(cx.finish(Extent::Const(1)).kernel)))
    }
}

/// The inputs that elementwise ops up to `id` read, in the order in which they are met; not what `anchor` reads.
pub(super) fn inputs_of(
    graph: &Graph,
    id: NodeId,
    anchor: Option<NodeId>,
    found: &mut Vec<NodeId>,
) -> Scheduled<()> {
    let node = graph.node(id);
    match &node.op {
        _ if Some(id) == anchor => {}
        Op::Input { .. } if !found.contains(&id) => found.push(id),
        Op::Input { .. } | Op::Constant { .. } => {}
        op if op.is_elementwise() => {
            for &input in &node.inputs {
                inputs_of(graph, input, anchor, found)?;
            }
        }
        op => return reject(format!("an operand that is computed as it is read, by {}", op.kind())),
    }
    Ok(())
}

impl Cx<'_> {
    /// The inputs that were read, with their elements as floats.
    pub(super) fn made_of(
        &mut self,
        reads: &[MatMulRead],
        values: impl IntoIterator<Item = Value>,
    ) -> HashMap<NodeId, Value> {
        let mut made = HashMap::new();
        for (read, value) in reads.iter().zip(values) {
            let Arg::Input(number) = read.arg else { continue };
            let Some(node) = self.graph().inputs().nth(number) else { continue };
            made.insert(node.id, self.b.convert(Ty::of(read.dtype), value));
        }
        made
    }

    /// The inputs that are read beside a sum, whose elements are the next variables.
    pub(super) fn given_beside(&mut self, reads: &[MatMulRead]) -> HashMap<NodeId, Value> {
        let vars: Vec<_> = reads.iter().map(|_| self.b.declare_var(Ty::F32)).collect();
        let values: Vec<Value> = vars.into_iter().map(|var| self.b.get(var)).collect();
        self.made_of(reads, values)
    }

    /// The element of an elementwise node whose inputs' elements at its place are there.
    pub(super) fn pointwise(&mut self, id: NodeId, made: &mut HashMap<NodeId, Value>) -> Scheduled<Value> {
        if let Some(&value) = made.get(&id) {
            return Ok(value);
        }
        let node = self.graph().node(id);
        let value = match &node.op {
            Op::Constant { data } => self.constant(data)?,
            op => {
                let args = node.inputs.iter().map(|&input| self.pointwise(input, made));
                let args = args.collect::<Scheduled<Vec<Value>>>()?;
                let from = self.dtype(*node.inputs.last().unwrap_or(&id));
                elementwise::apply(&mut self.b, op, &args, from, node.shape.dtype())?
            }
        };
        made.insert(id, value);
        Ok(value)
    }
}
