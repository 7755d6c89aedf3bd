//! A step around a matmul in parts: which operands are multiplied, and what becomes of a sum.
//!
//! [`super::matmul`] makes a whole kernel of such a step. Who multiplies by other means (tiles and matrix instructions, say) needs the sizes, where
//! the operands are, and the rest of the body as a function of one sum: its *epilogue*, made of the body by the same code.

use std::collections::HashMap;
use std::sync::Arc;

use rlx_ir::lir::{BufferId, Operand, View};
use rlx_ir::op::ReduceOp;
use rlx_ir::ops::linalg::MatMulDims;
use rlx_ir::{DType, Dim, Extent, Graph, Node, NodeId, Op, Shape};

use super::cx::Cx;
use super::{Arg, Launch, Scheduled, StepDesc, UniformArg, Unscheduled, anchor_of, elementwise, reject};
use crate::Kernel;
use crate::ir::{BufferDecl, Ty};

/// A step around one matmul of matrices, with one result.
#[derive(Debug)]
pub struct MatMulParts<'s> {
    step: &'s StepDesc,
    anchor: &'s Node,
    /// The inputs that are multiplied.
    pub operands: [Arg; 2],
    /// Dimensions along which matmuls repeat.
    pub batch: Vec<Extent>,
    /// Rows of the result.
    pub m: Extent,
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
    /// and the column.
    pub kernel: Kernel,
    /// The operand of each of the body's buffers.
    pub bindings: Vec<Arg>,
    /// The value of each of its uniforms.
    pub uniforms: Vec<UniformArg>,
}

/// What adds up sums over parts of the depth, and then does what is behind the matmul.
#[derive(Debug)]
pub struct Joined {
    /// A step whose first input are the sums: f32, dense, the number of the part being the outermost dimension. It has the outputs of the original.
    pub step: StepDesc,
    /// The input of the original that each of the others is.
    pub inputs: Vec<usize>,
}

impl<'s> MatMulParts<'s> {
    /// The parts of a step.
    ///
    /// # Errors
    /// A step around something else, several results, operands that are vectors or computed in the step, a result that has dimensions of its own
    /// or is written over anything but what its epilogue reads at the same place.
    pub fn of(step: &'s StepDesc) -> Scheduled<Self> {
        let Some(anchor @ Node { op: Op::MatMul, .. }) = anchor_of(step)? else {
            return reject("no matmul");
        };
        let (graph, &[lhs, rhs]) = (&step.graph, &anchor.inputs[..]) else {
            return reject("a matmul without two operands");
        };
        let dims = MatMulDims::of(graph.shape(lhs), graph.shape(rhs));
        let dims = dims.map_err(|e| Unscheduled(e.to_string()))?;
        if dims.a_is_vector || dims.b_is_vector {
            return reject("a matmul of a vector");
        }
        let ([output], [result]) = (&step.outputs[..], &graph.outputs[..]) else {
            return reject("several results");
        };
        if graph.shape(*result).dims() != anchor.shape.dims() {
            return reject("an epilogue of other dimensions");
        }
        let number = |id| graph.inputs().position(|input| input.id == id).map(Arg::Input);
        let (Some(left), Some(right)) = (number(lhs), number(rhs)) else {
            return reject("an operand that is computed as it is read");
        };
        let over = |(i, input): (usize, &Operand)| {
            let multiplied = [left, right].contains(&Arg::Input(i));
            input.buffer == output.buffer
                && (multiplied || !input.is_same_as(output) || input.dtype != output.dtype)
        };
        if step.inputs.iter().enumerate().any(over) {
            return reject("a result that is written over other elements than its epilogue reads");
        }
        let dtype = anchor.shape.dtype();
        if [lhs, rhs].iter().any(|&id| graph.shape(id).dtype() != dtype) {
            return reject("operands of another type than the result's");
        }
        Ok(MatMulParts {
            step,
            anchor,
            operands: [left, right],
            batch: dims.batch.iter().map(|d| d.extent()).collect(),
            m: dims.m.extent(),
            n: dims.n.extent(),
            k: dims.k.extent(),
            dtype,
        })
    }

    /// Where an operand is.
    pub fn operand(&self, arg: Arg) -> &'s Operand {
        match arg {
            Arg::Input(i) => &self.step.inputs[i],
            Arg::Output(i) => &self.step.outputs[i],
        }
    }

    /// Elements of an operand from batch to batch along each dimension of the batch; 0 where it is repeated.
    pub fn batch_strides(&self, arg: Arg) -> Vec<Extent> {
        let view = &self.operand(arg).view;
        let own = view.dims.len().saturating_sub(2);
        let skip = self.batch.len().saturating_sub(own);
        let along = |at: usize| match at.checked_sub(skip) {
            Some(at_own) => {
                view.strides[at_own] * Dim::from(view.dims[at_own]).extent().broadcast_factor(self.batch[at])
            }
            None => Extent::Const(0),
        };
        (0..self.batch.len()).map(along).collect()
    }

    /// The step behind sums over so many parts of the depth. They are added in their order, and the sum is rounded as that of one matmul is.
    ///
    /// # Errors
    /// A body that is not in order.
    pub fn joined(&self, parts: Extent) -> Scheduled<Joined> {
        let (graph, mut out) = (&self.step.graph, Graph::new(format!("join.{}", self.step.name)));
        let dims = self.anchor.shape.dims();
        let all: Vec<Dim> = std::iter::once(Dim::from(parts)).chain(dims.iter().copied()).collect();
        let sums = out.input("sums", Shape::from_dims(&all, DType::F32));
        let (view, buffer) = (Arc::new(View::dense(&all)), BufferId(u32::MAX));
        let mut joined = vec![Operand { buffer, view, dtype: DType::F32 }];
        let sum = out.reduce(sums, ReduceOp::Sum, vec![0], false, Shape::from_dims(dims, DType::F32));
        let cast = Op::Cast { to: self.dtype };
        let sum = out.push_node(Node::new(cast, vec![sum], vec![self.anchor.shape.clone()]));
        let (mut made, mut inputs) = (HashMap::from([(self.anchor.id, sum)]), Vec::new());
        let numbers: HashMap<NodeId, usize> = graph.inputs().zip(0..).map(|(node, i)| (node.id, i)).collect();
        let others = || graph.nodes().iter().filter(|node| node.id != self.anchor.id);
        for node in others() {
            let number = numbers.get(&node.id);
            let used = graph.outputs.contains(&node.id) || others().any(|by| by.inputs.contains(&node.id));
            if number.is_some() && !used {
                continue;
            }
            let of: Option<Vec<NodeId>> = node.inputs.iter().map(|id| made.get(id).copied()).collect();
            let Some(of) = of else { return reject("a node before its inputs") };
            made.insert(node.id, out.push_node(Node::new(node.op.clone(), of, node.results().to_vec())));
            if let Some(&number) = number {
                inputs.push(number);
                joined.push(self.step.inputs[number].clone());
            }
        }
        let outputs: Option<Vec<NodeId>> = graph.outputs.iter().map(|id| made.get(id).copied()).collect();
        let Some(outputs) = outputs else { return reject("a result that nothing computes") };
        out.set_outputs(outputs);
        let name = out.name.clone();
        let outputs = self.step.outputs.clone();
        Ok(Joined { step: StepDesc { name, graph: out, inputs: joined, outputs, raw: false }, inputs })
    }

    /// What becomes of a sum, over buffers and uniforms of which the first are given; none where it is stored as it is.
    ///
    /// # Errors
    /// A result that is not of f32, f16 or bf16, or an op that has no element-by-element form.
    pub fn epilogue(
        &self,
        buffers: &[(BufferDecl, Arg)],
        uniforms: &[(String, UniformArg)],
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
        let sizes = cx.sizes("batch", &self.batch);
        let flat = cx.b.get(batch);
        let mut index = cx.unflatten(flat, &sizes);
        for (at, size) in [(row, self.m), (column, self.n)] {
            // As the body has it: the index along a dimension of one element is 0.
            index.push(if size == Extent::Const(1) { cx.b.int(0) } else { cx.b.get(at) });
        }
        let value = cx.b.get(sum);
        let value = elementwise::narrowed(&mut cx.b, value, self.dtype);
        cx.bind(self.anchor.id, &index, value);
        let value = cx.element(result, &index)?;
        cx.b.set(sum, value);
        let Launch { kernel, bindings, uniforms, .. } = cx.finish(Extent::Const(1));
        Ok(Some(Epilogue { kernel: Arc::unwrap_or_clone(kernel), bindings, uniforms }))
    }
}
