//! Some places along one axis of a step's result, for an oracle that cannot compute all of them in reasonable time.
//!
//! ```text
//! relu(x [512, 4096] · w [4096, 4096] + bias [4096])      columns 0, 1365, 2730 and 4095:  relu(x · w[:, …] [4096, 4] + bias[…] [4])
//! ```
//!
//! Columns of matrices and channels of convolutions come first: a sample of them has every row and every position, so that a variant which computes some rows in
//! another way than the others (in waves, say) is seen whole.

use rlx_ir::lir::{Step, StepKind};
use rlx_ir::{Dim, Graph, NodeId, Op, Shape};

/// The fewest places worth calling a sample.
const FEWEST: usize = 4;

/// What the sample needs of a node of a step's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Nothing.
    Nothing,
    /// The places, along this axis.
    Places(usize),
    /// All of it.
    Whole,
}

/// Places along an axis of a step's one result, and what they need.
#[derive(Debug)]
pub(super) struct Sample {
    /// The axis of the result.
    pub axis: usize,
    /// The places, ascending.
    pub places: Vec<usize>,
    /// What computes them, of operands of which only [`Sample::axes`] are taken.
    pub graph: Graph,
    /// By input: the axis along which only the places are taken.
    pub axes: Vec<Option<usize>>,
}

impl Sample {
    /// As large a sample of a step's result as so much arithmetic allows.
    ///
    /// `None` where that is less than four places, or no axis is one whose places need only places of the operands.
    pub(super) fn of(step: &Step, shapes: &[Shape], flops: f64, most_flops: f64) -> Option<Sample> {
        let graph = body(step, shapes)?;
        let &[result] = &graph.outputs[..] else { return None };
        let dims = graph.shape(result).static_dims()?;
        (0..dims.len()).rev().find_map(|axis| {
            let count = (most_flops / flops * dims[axis] as f64) as usize;
            let needs = needs(&graph, result, axis).filter(|_| (FEWEST..dims[axis]).contains(&count))?;
            let graph = sampled(&graph, &needs, count)?;
            let axes = graph.inputs().map(|node| match needs[node.id.index()] {
                Needs::Places(axis) => Some(axis),
                Needs::Nothing | Needs::Whole => None,
            });
            let places = (0..count).map(|i| i * (dims[axis] - 1) / (count - 1)).collect();
            Some(Sample { axis, places, axes: axes.collect(), graph })
        })
    }
}

/// What a step computes, as a graph whose inputs are its operands.
fn body(step: &Step, shapes: &[Shape]) -> Option<Graph> {
    match &step.kind {
        StepKind::Copy => None,
        StepKind::Op(Op::Region { body }) => Some(body.graph.clone()),
        StepKind::Op(op) => {
            let mut graph = Graph::new("step");
            let named = |(i, shape): (usize, &Shape)| graph.input(format!("x{i}"), shape.clone());
            let inputs: Vec<NodeId> = shapes.iter().enumerate().map(named).collect();
            let result = graph.try_add(op.clone(), &inputs).ok()?;
            graph.set_outputs(vec![result]);
            Some(graph)
        }
    }
}

/// What places along an axis of the result need of each node.
fn needs(graph: &Graph, result: NodeId, axis: usize) -> Option<Vec<Needs>> {
    let mut all = vec![Needs::Nothing; graph.nodes().len()];
    all[result.index()] = Needs::Places(axis);
    for node in graph.nodes().iter().rev() {
        for (i, input) in node.inputs.iter().enumerate() {
            let needed = match all[node.id.index()] {
                Needs::Nothing => continue,
                Needs::Whole => Needs::Whole,
                Needs::Places(axis) => of_input(&node.op, i, graph.shape(*input), &node.shape, axis)?,
            };
            let known = &mut all[input.index()];
            if *known != Needs::Nothing && *known != needed {
                return None;
            }
            *known = needed;
        }
    }
    Some(all)
}

/// What places along an axis of a node need of an input.
fn of_input(op: &Op, input: usize, shape: &Shape, result: &Shape, axis: usize) -> Option<Needs> {
    let behind = result.rank() - axis;
    let along = |behind: usize| shape.rank().checked_sub(behind).map(Needs::Places);
    match op {
        op if op.is_elementwise() => match along(behind) {
            Some(Needs::Places(at)) if shape.dims()[at] == result.dims()[axis] => along(behind),
            // The same for all places.
            Some(Needs::Places(at)) if shape.dims()[at] != Dim::Static(1) => None,
            _ => Some(Needs::Whole),
        },
        // Columns are the right operand's, rows the left one's.
        Op::MatMul if shape.rank() >= 2 && behind <= 2 => {
            if (behind == 1) == (input == 1) {
                along(behind)
            } else {
                Some(Needs::Whole)
            }
        }
        Op::MatMulBlocks if behind == 1 => match input {
            0 => Some(Needs::Whole),
            1 => Some(Needs::Places(0)),
            _ => Some(Needs::Places(1)),
        },
        Op::Conv { groups: 1, format, .. } => {
            let needed = if input == 0 { Needs::Whole } else { Needs::Places(0) };
            (axis == format.channel_axis(result.rank())).then_some(needed)
        }
        _ => None,
    }
}

/// The body with so many places.
fn sampled(body: &Graph, needs: &[Needs], count: usize) -> Option<Graph> {
    let mut graph = Graph::new(body.name.clone());
    let mut ids: Vec<NodeId> = Vec::with_capacity(needs.len());
    for node in body.nodes() {
        let inputs: Vec<NodeId> = node.inputs.iter().map(|id| ids[id.index()]).collect();
        ids.push(match (&node.op, needs[node.id.index()]) {
            (Op::Input { name }, Needs::Places(axis)) => {
                let mut dims = node.shape.dims().to_vec();
                dims[axis] = Dim::Static(count);
                graph.input(name.clone(), node.shape.with_dims(dims))
            }
            (Op::Constant { .. }, Needs::Places(_)) => return None,
            (Op::Input { .. } | Op::Constant { .. }, _) => {
                graph.add_node(node.op.clone(), inputs, node.shape.clone())
            }
            (op, _) => graph.try_add(op.clone(), &inputs).ok()?,
        });
    }
    graph.set_outputs(body.outputs.iter().map(|id| ids[id.index()]).collect());
    Some(graph)
}

#[cfg(test)]
mod tests {
    use rlx_ir::text;

    use super::*;

    /// By input, the axis of which places are taken for the result's along an axis.
    fn axes(body: &str, axis: usize) -> Option<Vec<Option<usize>>> {
        let graph = text::parse(&format!("graph \"g\" {{ {body} }}")).unwrap();
        let needs = needs(&graph, graph.outputs[0], axis)?;
        let axis_of = |node: &rlx_ir::Node| match needs[node.id.index()] {
            Needs::Places(axis) => Some(axis),
            Needs::Nothing | Needs::Whole => None,
        };
        let some = sampled(&graph, &needs, 4)?;
        assert_eq!(some.shape(some.outputs[0]).dims()[axis], Dim::Static(4), "{some}");
        Some(graph.inputs().map(axis_of).collect())
    }

    #[test]
    fn places_need_places_of_operands() {
        let conv = "%0 = Input {name=\"x\"} : [2, 3, 6, 7] f32 %1 = Input {name=\"w\"} : [20, 3, 3, 3] f32
            %2 = Input {name=\"b\"} : [20, 1, 1] f32 %3 = Input {name=\"s\"} : [] f32
            %4 = Conv(%0, %1) {strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], groups=1, format=ChannelsFirst} : [2, 20, 6, 7] f32
            %5 = Binary.Add(%4, %2) : [2, 20, 6, 7] f32 %6 = Binary.Mul(%5, %3) : [2, 20, 6, 7] f32 return %6";
        assert_eq!(axes(conv, 1), Some(vec![None, Some(0), Some(0), None]));
        assert!([0, 2, 3].iter().all(|&axis| axes(conv, axis).is_none()));

        let blocks = "%0 = Input {name=\"x\"} : [5, 64] f32 %1 = Input {name=\"w\"} : [40, 2, 32] u8
            %2 = Input {name=\"scale\"} : [2, 40] f32 %3 = MatMulBlocks(%0, %1, %2) : [5, 40] f32 return %3";
        assert_eq!(axes(blocks, 1), Some(vec![None, Some(0), Some(1)]));

        let matmul = "%0 = Input {name=\"x\"} : [8, 5] f32 %1 = Input {name=\"w\"} : [3, 5, 40] f32
            %2 = MatMul(%0, %1) : [3, 8, 40] f32 return %2";
        assert_eq!(axes(matmul, 2), Some(vec![None, Some(2)]));
        assert_eq!(axes(matmul, 1), Some(vec![Some(0), None]));
        assert_eq!(axes(matmul, 0), None);
    }

    #[test]
    fn what_is_needed_whole_and_in_places_has_no_sample() {
        let square = "%0 = Input {name=\"x\"} : [8, 8] f32 %1 = MatMul(%0, %0) : [8, 8] f32 return %1";
        let rows = "%0 = Input {name=\"x\"} : [8, 8] f32 %1 = Softmax(%0) {axis=-1} : [8, 8] f32 return %1";
        assert_eq!([axes(square, 0), axes(square, 1), axes(rows, 0)], [None, None, None]);
    }
}
