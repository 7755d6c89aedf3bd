//! What is claimed: nodes are translated for a builder that nobody reads, with some numbers for open dimensions.

use std::collections::HashMap;
use std::sync::Arc;

use rlx_ir::{DType, Graph, Node, NodeId, Op, Shape};

use crate::empty;
use crate::mil::{Builder, Tensor};
use crate::ops::{self, Declared, held};
use crate::ranges::Ranges;
use crate::scope::{Known, Operand, numbers};

/// What of a graph's nodes is claimed: see [`crate::ops`].
///
/// # Errors
/// The reason why a node is not.
pub fn claims(node: &Node, graph: &Graph) -> std::result::Result<(), String> {
    if let Some(&id) =
        node.inputs.iter().skip(usize::from(is_loop(node))).find(|&&id| is_unlimited(graph.node(id)))
    {
        return Err(format!(
            "Core ML computes with 32-bit integers, and {} is none",
            graph.node(id).describe()
        ));
    }
    // What has no elements is not translated.
    let Some(inputs) = empty::operands(node, graph)? else { return Ok(()) };
    let sample = SampleSizes::of(node, graph);
    let declared = |shape: &Shape| sample.declared(shape);
    let results: Vec<Declared> =
        node.results().iter().map(declared).collect::<std::result::Result<_, _>>()?;
    let given: Vec<Declared> =
        inputs.iter().map(|&id| declared(graph.shape(id))).collect::<std::result::Result<_, _>>()?;
    let mut fixed = HashMap::new();
    let mut ranges = Ranges::new(graph);
    let mut operands = Vec::new();
    for (i, (&id, declared)) in inputs.iter().zip(given).enumerate() {
        let tensor = Tensor {
            name: Arc::from(format!("x{i}")),
            ty: ops::holding(declared.dtype)?,
            dims: held(&declared.dims),
            fixed: is_fixed(graph, id, &mut fixed, 24),
        };
        operands.push(Operand { known: Known::Written(tensor), declared, range: ranges.of(id) });
    }
    let result_ranges = (0..results.len()).map(|i| ranges.result(node, i)).collect();
    let op = node.op.bind(&sample.binding);
    ops::write(&mut Builder::new(), &op, operands, results, result_ranges).map(drop)
}

/// Whether the first operand is a limit.
fn is_loop(node: &Node) -> bool {
    matches!(node.op, Op::Loop { .. })
}

/// Whether a node is the constant that stands for no limit of a loop, 2⁶³ − 1: what 32 bits do not hold, and a loop has no need of.
pub fn is_unlimited(node: &Node) -> bool {
    let Op::Constant { data } = &node.op else { return false };
    data.dtype() == DType::I64 && data.num_elements() == 1 && **data.bytes() == i64::MAX.to_le_bytes()
}

/// Numbers for the symbols that a node mentions, to ask for its translation: what is supported does not depend on them.
struct SampleSizes {
    binding: rlx_ir::DimBinding,
}

impl SampleSizes {
    fn of(node: &Node, graph: &Graph) -> SampleSizes {
        let mut symbols = node.symbols();
        node.inputs.iter().for_each(|&id| symbols.extend(graph.node(id).symbols()));
        let mut binding = rlx_ir::DimBinding::new();
        for symbol in symbols {
            let range = graph.symbol_range(symbol);
            let size = range.max.min(8).max(range.min).max(1);
            binding.set(symbol, size as usize);
        }
        SampleSizes { binding }
    }

    /// The value with numbers; a dimension that comes out as 0 for them may be larger for others.
    fn declared(&self, shape: &Shape) -> std::result::Result<Declared, String> {
        let open = !shape.is_static();
        let bound = shape.bind(&self.binding);
        let dims = numbers(&bound).map_err(|e| e.message().to_string())?;
        let dims = dims.into_iter().map(|d| if open { d.max(1) } else { d }).collect();
        Ok(Declared { dtype: shape.dtype(), dims })
    }
}

/// Whether a value is made of parameters and constants alone, in a few steps.
fn is_fixed(graph: &Graph, id: NodeId, known: &mut HashMap<NodeId, bool>, depth: usize) -> bool {
    if let Some(&fixed) = known.get(&id) {
        return fixed;
    }
    let node = graph.node(id);
    let fixed = match &node.op {
        Op::Param { .. } | Op::Constant { .. } => true,
        Op::Input { .. } => false,
        _ => {
            depth > 0
                && !node.inputs.is_empty()
                && node.inputs.iter().all(|&input| is_fixed(graph, input, known, depth - 1))
        }
    };
    known.insert(id, fixed);
    fixed
}
