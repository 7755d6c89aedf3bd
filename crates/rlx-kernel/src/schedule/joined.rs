//! What is behind sums that were divided: they are added up, and then all that the step does behind its matmul or convolution.
//!
//! Who divides a long sum among workgroups ([`MatMulParts`](super::MatMulParts), [`ConvParts`](super::ConvParts)) leaves an f32 for each result and part.
//! The step that joins them is an ordinary one, a sum along the parts with the original's body behind it, so it has the schedule of a sum, and rounds where
//! the whole kernel does:
//!
//! ```text
//! %4 = MatMul(%0, %1) : [3, 72] f16          %0 = Input {name="sums"} : [7, 3, 72] f32
//! %5 = Binary.Add(%4, %2)            ──▶     %1 = Reduce(%0) {op=Sum, axes=[0]}
//!                                            %2 = Cast(%1) {to=f16}
//!                                            %4 = Binary.Add(%2, %3)
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use rlx_ir::lir::{BufferId, Operand, View};
use rlx_ir::op::{BinaryOp, ReduceOp};
use rlx_ir::{DType, Dim, Extent, Graph, Node, NodeId, Op, Shape};

use super::{Scheduled, StepDesc, reject};

/// What adds up sums over parts of the depth, and then does what is behind the matmul.
#[derive(Debug)]
pub struct Joined {
    /// A step whose first input are the sums: f32, dense, the number of the part being the outermost dimension. It has the outputs of the original.
    pub step: StepDesc,
    /// The input of the original that each of the others is.
    pub inputs: Vec<usize>,
}

/// The step behind sums of `anchor` over so many parts of the depth. They are added in their order, then the bias, if there is one, and that is rounded to
/// the anchor's type.
///
/// # Errors
/// A body that is not in order.
pub(super) fn joined(
    step: &StepDesc,
    anchor: &Node,
    bias: Option<NodeId>,
    parts: Extent,
) -> Scheduled<Joined> {
    let dims = anchor.shape.dims();
    let all: Vec<Dim> = std::iter::once(Dim::from(parts)).chain(dims.iter().copied()).collect();
    let mut out = Graph::new(format!("join.{}", step.name));
    let sums = out.input("sums", Shape::from_dims(&all, DType::F32));
    let (view, buffer) = (Arc::new(View::dense(&all)), BufferId(u32::MAX));
    let operands = vec![Operand { buffer, view, dtype: DType::F32 }];
    let mut body = Body { step, out, made: HashMap::new(), operands, originals: Vec::new() };

    let shape = Shape::from_dims(dims, DType::F32);
    let mut sum = body.out.reduce(sums, ReduceOp::Sum, vec![0], false, shape.clone());
    if let Some(bias) = bias {
        // Nothing that makes the bias depends on the anchor.
        body.copy(&needed(&step.graph, anchor, &[bias]))?;
        let bias = body.made(bias)?;
        let of_bias = Shape::from_dims(body.out.shape(bias).dims(), DType::F32);
        let bias = body.cast(bias, of_bias);
        sum = body.out.binary(BinaryOp::Add, sum, bias, shape);
    }
    let sum = body.cast(sum, anchor.shape.clone());
    body.made.insert(anchor.id, sum);
    body.copy(&needed(&step.graph, anchor, &step.graph.outputs))?;
    body.finish()
}

/// Which nodes these need besides the anchor and what that alone needs.
fn needed(graph: &Graph, anchor: &Node, ids: &[NodeId]) -> Vec<bool> {
    let mut needed = vec![false; graph.nodes().len()];
    ids.iter().for_each(|id| needed[id.index()] = true);
    for node in graph.nodes().iter().rev().filter(|node| node.id != anchor.id) {
        if needed[node.id.index()] {
            node.inputs.iter().for_each(|id| needed[id.index()] = true);
        }
    }
    needed[anchor.id.index()] = false;
    needed
}

/// A body under way, with the operands that its inputs are.
struct Body<'s> {
    step: &'s StepDesc,
    out: Graph,
    /// What each node of the original is here.
    made: HashMap<NodeId, NodeId>,
    operands: Vec<Operand>,
    /// The inputs of the original that the operands behind the sums are.
    originals: Vec<usize>,
}

impl Body<'_> {
    fn made(&self, id: NodeId) -> Scheduled<NodeId> {
        self.made.get(&id).map_or_else(|| reject("a node before its inputs"), |&made| Ok(made))
    }

    fn cast(&mut self, id: NodeId, to: Shape) -> NodeId {
        match self.out.shape(id).dtype() == to.dtype() {
            true => id,
            false => self.out.push_node(Node::new(Op::Cast { to: to.dtype() }, vec![id], vec![to])),
        }
    }

    /// The same nodes here, but for those that are here already.
    fn copy(&mut self, needed: &[bool]) -> Scheduled<()> {
        let graph = &self.step.graph;
        let numbers: HashMap<NodeId, usize> = graph.inputs().zip(0..).map(|(node, i)| (node.id, i)).collect();
        for node in graph.nodes().iter().filter(|node| needed[node.id.index()]) {
            if self.made.contains_key(&node.id) {
                continue;
            }
            let of = node.inputs.iter().map(|&id| self.made(id)).collect::<Scheduled<Vec<NodeId>>>()?;
            let made = self.out.push_node(Node::new(node.op.clone(), of, node.results().to_vec()));
            self.made.insert(node.id, made);
            if let Some(&number) = numbers.get(&node.id) {
                self.originals.push(number);
                self.operands.push(self.step.inputs[number].clone());
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Scheduled<Joined> {
        let outputs =
            self.step.graph.outputs.iter().map(|&id| self.made(id)).collect::<Scheduled<Vec<_>>>()?;
        self.out.set_outputs(outputs);
        let (name, outputs) = (self.out.name.clone(), self.step.outputs.clone());
        let step = StepDesc { name, graph: self.out, inputs: self.operands, outputs, raw: false };
        Ok(Joined { step, inputs: self.originals })
    }
}
