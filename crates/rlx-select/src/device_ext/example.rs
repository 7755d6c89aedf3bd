//! A small graph around an op, used to ask a backend about an op alone, since backends answer for
//! nodes.
//!
//! Candidate input shapes are tried until the op's shape rule accepts one, f32 first.

use rlx_ir::op::{DataFormat, MaskKind};
use rlx_ir::ops::def;
use rlx_ir::ops::nn::recurrent::Operands;
use rlx_ir::{DType, Dim, Extent, Graph, NodeId, Op, Shape};
/// The element types tried for one input, f32 first.
const TYPES: [DType; 6] = [DType::F32, DType::I64, DType::Bool, DType::I32, DType::U8, DType::I8];

/// A graph with one node of `op` whose inputs are of natural shapes and types; `None` when none were found.
pub(super) fn graph_of(op: &Op) -> Option<(Graph, NodeId)> {
    let (inputs, results) = signature(op)?;
    let mut graph = Graph::new("example");
    let inputs = inputs.into_iter().enumerate().map(|(i, s)| graph.input(format!("x{i}"), s)).collect();
    let id = graph.push_node(rlx_ir::Node::new(op.clone(), inputs, results));
    Some((graph, id))
}

type Signature = (Vec<Shape>, Vec<Shape>);

fn signature(op: &Op) -> Option<Signature> {
    let accept = |inputs: Vec<Shape>| {
        let declared = vec![Shape::new(&[4], DType::F32)];
        let refs: Vec<&Shape> = inputs.iter().collect();
        def::infer(op, &refs, &declared).ok().map(|results| (inputs, results.into_vec()))
    };
    special(op).and_then(&accept).or_else(|| search(op, &accept))
}

fn f32s(dims: &[usize]) -> Shape {
    Shape::new(dims, DType::F32)
}

/// Dimensions of a convolution's input and kernel: eight places, four channels for each group.
fn conv_operands(spatial: usize, groups: usize, format: DataFormat) -> [Vec<usize>; 2] {
    let mut x = vec![8; spatial];
    match format {
        DataFormat::ChannelsFirst => x.insert(0, 4 * groups),
        _ => x.push(4 * groups),
    }
    x.insert(0, 1);
    [x, [vec![4 * groups, 4], vec![1; spatial]].concat()]
}

/// Operands of bytes, and a zero point for each.
fn bytes_with_zeros(operands: [Vec<usize>; 2]) -> Vec<Shape> {
    let types = [DType::U8, DType::I8];
    let [a, b] = [0, 1].map(|i| Shape::new(&operands[i], types[i]));
    let [a_zero, b_zero] = types.map(Shape::scalar);
    vec![a, b, a_zero, b_zero]
}

/// Ops whose inputs must match their attributes in ways that a search does not find.
fn special(op: &Op) -> Option<Vec<Shape>> {
    match op {
        Op::Region { body } => Some(body.graph.inputs().map(|n| n.shape.clone()).collect()),
        Op::If { then, otherwise, .. } => {
            let taken = then.graph.inputs().chain(otherwise.graph.inputs()).map(|n| n.shape.clone());
            Some([Shape::scalar(DType::Bool)].into_iter().chain(taken).collect())
        }
        Op::Loop { body, trips, carried, scanned, .. } => {
            // Scanned tensors have a dimension more than what the body takes of them.
            let slices = 2 + carried..2 + carried + scanned;
            let whole = |(i, n): (usize, &rlx_ir::Node)| {
                let stacked = slices.contains(&i).then_some(*trips);
                n.shape.with_dims(stacked.into_iter().chain(n.shape.dims().iter().copied()).collect())
            };
            Some(body.graph.inputs().enumerate().map(whole).collect())
        }
        Op::Custom { num_inputs, .. } => Some(vec![f32s(&[4]); *num_inputs]),
        Op::UpdateSlice { axis } => {
            let x = f32s(&vec![4; axis + 1]);
            Some(vec![x.clone(), x, Shape::scalar(DType::I64)])
        }
        // The source has as many elements as the target.
        Op::Reshape { to } => {
            let dims: Vec<Dim> = to.clone();
            Some(vec![Shape::from_dims(&dims, DType::F32)])
        }
        Op::Conv { strides, groups, format, .. } => {
            Some(conv_operands(strides.len(), *groups, *format).map(|dims| f32s(&dims)).to_vec())
        }
        Op::MatMulInteger => Some(bytes_with_zeros([vec![4, 4], vec![4, 4]])),
        Op::ConvInteger { strides, groups, format, .. } => {
            Some(bytes_with_zeros(conv_operands(strides.len(), *groups, *format)))
        }
        Op::ConvTranspose { strides, groups, .. } => {
            let x = [vec![1, 4 * groups], vec![8; strides.len()]].concat();
            let w = [vec![4 * groups, 4], vec![1; strides.len()]].concat();
            Some(vec![f32s(&x), f32s(&w)])
        }
        Op::Slice { starts, steps, to } => {
            // As long as the last index that is read.
            let reads = |((start, &step), to): ((&Extent, &i64), &Dim)| {
                let (start, n) = (start.as_const().unwrap_or(0), to.as_static().unwrap_or(4) as i64);
                let last = start.saturating_add(step.max(0).saturating_mul(n - 1));
                usize::try_from(last.saturating_add(1)).unwrap_or(1).max(1)
            };
            let dims: Vec<usize> = starts.iter().zip(steps).zip(to).map(reads).collect();
            Some(vec![f32s(&dims)])
        }
        Op::RoiAlign { .. } => Some(vec![f32s(&[1, 4, 8, 8]), f32s(&[2, 4]), Shape::new(&[2], DType::I64)]),
        Op::TreeEnsemble { outcomes, .. } => {
            let links = Shape::new(&[4, if outcomes.is_some() { 3 } else { 4 }], DType::I32);
            let roots = Shape::new(&[4], DType::I32);
            Some(vec![f32s(&[4, 4]), f32s(&[4]), links, roots, f32s(&[4, 4])])
        }
        Op::RoiMaxPool { .. } => Some(vec![f32s(&[1, 4, 8, 8]), f32s(&[2, 5])]),
        Op::GridSample { .. } => Some(vec![f32s(&[1, 4, 8, 8]), f32s(&[1, 4]), f32s(&[1, 4])]),
        Op::MatMulBlocks | Op::DynamicMatMulBlocks => {
            Some(vec![f32s(&[4, 8]), Shape::new(&[4, 2, 4], DType::U8), f32s(&[2, 4])])
        }
        Op::OneHot { .. } => Some(vec![Shape::new(&[4], DType::I64), f32s(&[2])]),
        Op::GroupNorm { groups, .. } => {
            let channels = groups.saturating_mul(2);
            Some(vec![f32s(&[1, channels, 4]), f32s(&[channels]), f32s(&[channels])])
        }
        Op::Recurrent { cell, peepholes, lengths, .. } => {
            let at = Operands::new(*cell, *peepholes, *lengths);
            let shape = |i: usize| match i {
                0 => f32s(&[4, 4, 4 * cell.gates()]),
                1 => f32s(&[4, 4 * cell.gates_of_state()]),
                _ if Some(i) == at.candidate_bias => f32s(&[4]),
                _ if Some(i) == at.peepholes => f32s(&[12]),
                _ if Some(i) == at.lengths => Shape::new(&[4], DType::I32),
                _ => f32s(&[4, 4]),
            };
            Some((0..at.count).map(shape).collect())
        }
        Op::Attention { num_heads, head_dim, mask, .. } => {
            let q = f32s(&[1, *num_heads, 4, *head_dim]);
            let custom = matches!(mask, MaskKind::Custom).then(|| f32s(&[1, 1, 4, 4]));
            Some([q.clone(), q.clone(), q].into_iter().chain(custom).collect())
        }
        Op::Rope { head_dim, n_rot, .. } => {
            let table = f32s(&[4, n_rot / 2]);
            Some(vec![f32s(&[1, 2, 4, *head_dim]), table.clone(), table])
        }
        Op::Pool { kernel, dilations, .. } => {
            let size = |(&k, &d): (&usize, &usize)| k.saturating_mul(d).saturating_add(8);
            let spatial = kernel.iter().zip(dilations).map(size);
            // Large enough in both channel orders.
            let mut x = vec![1, 64];
            x.extend(spatial.map(|n| n.max(64)));
            Some(vec![f32s(&x)])
        }
        _ => None,
    }
}

/// Tries numbers of inputs, ranks and types: all inputs `[4; rank]`, then the first of a higher rank.
fn search(op: &Op, accept: &impl Fn(Vec<Shape>) -> Option<Signature>) -> Option<Signature> {
    let arity = op.def().arity(op);
    let counts = (0..=6).filter(|&n| arity.accepts(n)).take(2);
    for count in counts {
        for rank in [2, 1, 3, 4, 5, 0] {
            for other_rank in [rank, 1, 2, 0] {
                if let Some(found) = search_types(count, rank, other_rank, accept) {
                    return Some(found);
                }
            }
        }
    }
    None
}

fn search_types(
    count: usize,
    rank: usize,
    other_rank: usize,
    accept: &impl Fn(Vec<Shape>) -> Option<Signature>,
) -> Option<Signature> {
    // Every assignment of types to the first three inputs; inputs after them take the second's.
    let free = count.min(3);
    for code in 0..TYPES.len().pow(free as u32) {
        let type_of =
            |i: usize| TYPES[code / TYPES.len().pow(i.min(free.saturating_sub(1)) as u32) % TYPES.len()];
        let shape = |i: usize| Shape::new(&vec![4; if i == 0 { rank } else { other_rank }], type_of(i));
        if let Some(found) = accept((0..count).map(shape).collect()) {
            return Some(found);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::OpKind;
    use rlx_ir::testing::Gen;

    #[test]
    fn every_op_of_the_table_has_an_example_for_most_of_its_attributes() {
        let found = |kind: OpKind| {
            let case = |&seed: &u64| graph_of(&kind.def().generate(kind, &mut Gen::new(seed)).op).is_some();
            (0..40).filter(case).count()
        };
        let rare: Vec<_> = OpKind::ALL.iter().map(|&k| (k, found(k))).filter(|&(_, n)| n < 30).collect();
        assert!(rare.is_empty(), "of 40 cases, examples for {rare:?}");
    }
}
