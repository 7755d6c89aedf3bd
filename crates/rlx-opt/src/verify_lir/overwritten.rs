//! Values that were written over: nothing reads them after that.
//!
//! A buffer that a step wrote in place holds that step's result from then on. Whatever reads the buffer later must be made
//! from that result: by movement ops, which only change the view, or by concatenation.

use rlx_ir::lir::{LirModule, Operand, Step, StepKind};
use rlx_ir::maps::HashSet;
use rlx_ir::{Error, Graph, NodeId, Op, Result};

use super::invalid;

/// A result: a node and which of its results.
type Value = (NodeId, usize);

/// What buffers hold that were written over.
pub(super) struct Overwritten<'a> {
    graph: &'a Graph,
    /// For each buffer, the value that was last written over another.
    holds: Vec<Option<Value>>,
    /// The value that each node only moves; itself for most.
    source: Vec<Value>,
    /// The values that concatenations join, beside the concatenation. Empty where nothing is written over.
    joined: HashSet<(NodeId, Value)>,
}

impl<'a> Overwritten<'a> {
    pub(super) fn new(lir: &'a LirModule) -> Self {
        let graph = &lir.graph;
        let mut found = Overwritten {
            graph,
            holds: vec![None; lir.buffers.len()],
            source: Vec::new(),
            joined: HashSet::default(),
        };
        if lir.steps.iter().any(|step| step.in_place().next().is_some()) {
            found.follow();
        }
        found
    }

    /// Finds the sources of all nodes, and what concatenations join.
    fn follow(&mut self) {
        for node in self.graph.nodes() {
            let first = node.inputs.first().map(|id| self.source[id.index()]);
            let source = match (&node.op, first) {
                (Op::Result { index }, Some((of, _))) => (of, *index),
                (
                    Op::Reshape { .. } | Op::Transpose { .. } | Op::Expand { .. } | Op::Slice { .. },
                    Some(of),
                ) => of,
                _ => (node.id, 0),
            };
            self.source.push(source);
            if matches!(node.op, Op::Concat { .. }) {
                self.joined.extend(node.inputs.iter().map(|id| (node.id, self.source[id.index()])));
            }
        }
    }

    /// A step that reads its inputs and then writes its outputs.
    pub(super) fn step(&mut self, step: &Step, node: &rlx_ir::Node) -> Result<()> {
        match &step.kind {
            StepKind::Op(_) => {
                step.inputs.iter().zip(&node.inputs).try_for_each(|(o, &id)| self.read(o, id))?
            }
            StepKind::Copy => step.inputs.iter().try_for_each(|operand| self.read(operand, step.node))?,
        }
        for (_, j) in step.in_place() {
            self.holds[step.outputs[j].buffer.index()] = Some((step.node, j));
        }
        Ok(())
    }

    /// Whether the buffer still holds what `node` is made from.
    pub(super) fn read(&self, operand: &Operand, node: NodeId) -> Result<()> {
        let Some(value) = self.holds[operand.buffer.index()] else { return Ok(()) };
        if self.source[node.index()] == value || self.joined.contains(&(node, value)) {
            return Ok(());
        }
        Err(self.stale(operand, value))
    }

    #[cold]
    fn stale(&self, operand: &Operand, (node, _): Value) -> Error {
        let by = self.graph.node(node).describe();
        invalid(format!("reads buffer {} after {by} was written over it", operand.buffer.index()))
    }
}
