//! Which steps of a module are equal. Layers repeat each other, so a model has few distinct steps, and what is made of one is made of all that are equal to it.
//!
//! A [`StepDesc`] is all that schedules see of a step, and it is what is compared here, not a list of what they are known to look at. So whatever is made of
//! a step's description alone is the same for equal steps.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use rlx_ir::lir::{BufferId, Operand};

use super::StepDesc;

/// The distinct steps of a module, by number.
#[derive(Debug, Default)]
pub struct EqualSteps {
    steps: Vec<StepDesc>,
    /// Numbers of steps by [`hash_of`].
    by_hash: HashMap<u64, Vec<usize>>,
}

impl EqualSteps {
    /// The number of a step among the distinct ones, which equal steps share, and its description.
    pub fn find(&mut self, step: StepDesc) -> (usize, &StepDesc) {
        let same = self.by_hash.entry(hash_of(&step)).or_default();
        let known = same.iter().copied().find(|&number| self.steps[number] == step);
        let number = known.unwrap_or_else(|| {
            same.push(self.steps.len());
            self.steps.push(step);
            self.steps.len() - 1
        });
        (number, &self.steps[number])
    }
}

/// The same for equal steps. What is left out here is compared all the same.
fn hash_of(step: &StepDesc) -> u64 {
    let mut hasher = DefaultHasher::new();
    step.name.hash(&mut hasher);
    for Operand { buffer, view, dtype } in step.inputs.iter().chain(&step.outputs) {
        (buffer, view, dtype).hash(&mut hasher);
    }
    for node in step.graph.nodes() {
        (node.op.kind(), &node.inputs).hash(&mut hasher);
    }
    hasher.finish()
}

/// Numbers buffers in the order in which operands name them: which of a module's they are is nothing that a schedule may depend on, only which operands share
/// one.
pub(super) fn number_buffers<'o>(operands: impl Iterator<Item = &'o mut Operand>) {
    let mut numbers: Vec<BufferId> = Vec::new();
    for operand in operands {
        let at = numbers.iter().position(|&buffer| buffer == operand.buffer).unwrap_or_else(|| {
            numbers.push(operand.buffer);
            numbers.len() - 1
        });
        operand.buffer = BufferId(at as u32);
    }
}

#[cfg(test)]
mod tests {
    use rlx_ir::lir::View;
    use rlx_ir::op::Activation;
    use rlx_ir::{DType, Dim, Graph, Shape};

    use super::*;

    /// An activation of `x` into `y`, each where these operands say.
    fn step(of: Activation, operands: [(u32, i64); 2]) -> StepDesc {
        let shape = Shape::new(&[4, 8], DType::F32);
        let mut graph = Graph::new("step");
        let x = graph.input("x", shape.clone());
        let y = graph.activation(of, x, shape);
        graph.set_outputs(vec![y]);
        let view = |offset: i64| View { offset: offset.into(), ..View::dense(&[4, 8].map(Dim::Static)) };
        let mut operands = operands.map(|(buffer, offset)| Operand {
            buffer: BufferId(buffer),
            view: view(offset).into(),
            dtype: DType::F32,
        });
        number_buffers(operands.iter_mut());
        let [x, y] = operands;
        StepDesc { name: "step".to_owned(), graph, inputs: vec![x], outputs: vec![y], raw: false }
    }

    #[test]
    fn steps_are_equal_whichever_buffers_they_have_and_in_nothing_else() {
        let mut equal = EqualSteps::default();
        let mut number = |of, operands| equal.find(step(of, operands)).0;
        assert_eq!(number(Activation::Relu, [(3, 0), (7, 0)]), 0);
        assert_eq!(number(Activation::Relu, [(9, 0), (1, 0)]), 0);
        // Another op, another place, one buffer.
        assert_eq!(number(Activation::Neg, [(3, 0), (7, 0)]), 1);
        assert_eq!(number(Activation::Relu, [(3, 0), (7, 32)]), 2);
        assert_eq!(number(Activation::Relu, [(3, 0), (3, 0)]), 3);
        assert_eq!(number(Activation::Relu, [(5, 0), (5, 0)]), 3);
        assert_eq!(number(Activation::Relu, [(5, 0), (6, 0)]), 0);
        let raw = StepDesc { raw: true, ..step(Activation::Relu, [(3, 0), (7, 0)]) };
        assert_eq!(equal.find(raw).0, 4);
    }
}
