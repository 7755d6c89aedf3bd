//! Tensors without elements, such as a decoder's cache before the first token: Core ML has none, so graphs are run without them.
//!
//! What has no elements needs no computing. Of the ops that make elements out of none, a concatenation leaves such operands out, a scatter of nothing
//! is its data, and what has such operands alone (a sum over nothing) is a constant, by its exact semantics.
//!
//! ```text
//! past [1, 0, 8], new [1, 4, 8]    %2 = Concat(past, new) {axis=1}   ──▶   Concat(new) {axis=1}
//! ```

use rlx_ir::oracle::{self, Bindings};
use rlx_ir::tensor::ConstData;
use rlx_ir::{Error, ErrorKind, Graph, Node, NodeId, Op, Result, Shape, Value};

/// A graph without tensors that have no elements, and what became of its border.
pub struct Filled {
    /// The graph.
    pub graph: Graph,
    /// By input of the old one: whether it is still one.
    pub inputs: Vec<bool>,
    /// By output of the old one: whether it is still one. The others have no elements.
    pub outputs: Vec<bool>,
}

fn is_empty(shape: &Shape) -> bool {
    shape.num_elements() == Some(0)
}

/// How a node of a graph is run without tensors that have no elements.
enum Way {
    /// As it is.
    Same,
    /// Not at all: its results have none.
    Nothing,
    /// Without the operands that have none.
    Rest,
    /// It is this operand.
    Operand(usize),
    /// It is a constant.
    Constant,
}

/// How a node is run.
///
/// # Errors
/// Why it cannot be.
fn way(node: &Node, graph: &Graph) -> std::result::Result<Way, String> {
    let empties = node.inputs.iter().filter(|&&id| is_empty(graph.shape(id))).count();
    Ok(match &node.op {
        _ if node.results().iter().all(is_empty) => Way::Nothing,
        _ if empties == 0 => Way::Same,
        _ if empties == node.inputs.len() => Way::Constant,
        Op::Concat { .. } => Way::Rest,
        Op::ScatterNd { .. } | Op::ScatterElements { .. } | Op::UpdateSlice { .. }
            if !is_empty(graph.shape(node.inputs[0])) =>
        {
            Way::Operand(0)
        }
        _ => return Err("Core ML has no tensors without elements, and one is an operand".to_string()),
    })
}

/// The operands that a node is translated with; none where it is not translated at all.
///
/// # Errors
/// Why it cannot be run.
pub fn operands(node: &Node, graph: &Graph) -> std::result::Result<Option<Vec<NodeId>>, String> {
    Ok(match way(node, graph)? {
        Way::Same => Some(node.inputs.clone()),
        Way::Rest => Some(present(node, graph)),
        Way::Nothing | Way::Operand(_) | Way::Constant => None,
    })
}

fn present(node: &Node, graph: &Graph) -> Vec<NodeId> {
    node.inputs.iter().copied().filter(|&id| !is_empty(graph.shape(id))).collect()
}

/// The graph, whose every dimension is a number, without tensors that have no elements.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for an op that makes something of nothing, naming the node.
pub fn filled(graph: &Graph) -> Result<Filled> {
    let mut new = graph.successor();
    let mut places: Vec<Option<NodeId>> = Vec::with_capacity(graph.len());
    let (mut inputs, missing) =
        (Vec::new(), || Error::new(ErrorKind::Internal, "an operand without elements"));
    for node in graph.nodes() {
        let unsupported = |why: String| graph.locate(node.id, Error::new(ErrorKind::Unsupported, why));
        let way = way(node, graph).map_err(unsupported)?;
        if matches!(node.op, Op::Input { .. }) {
            inputs.push(!matches!(way, Way::Nothing));
        }
        let place = |id: &NodeId| places[id.index()].ok_or_else(missing);
        let place = match way {
            Way::Nothing => None,
            Way::Operand(of) => Some(place(&node.inputs[of])?),
            Way::Constant => Some(new.constant(of_nothing(node, graph)?)),
            Way::Same | Way::Rest => {
                let operands = present(node, graph).iter().map(place).collect::<Result<_>>()?;
                Some(new.push_node(node.with_inputs(operands)))
            }
        };
        places.push(place);
    }
    let outputs: Vec<bool> = graph.outputs.iter().map(|id| places[id.index()].is_some()).collect();
    new.set_outputs(graph.outputs.iter().filter_map(|id| places[id.index()]).collect());
    Ok(Filled { graph: new, inputs, outputs })
}

/// What an op makes of operands without elements.
fn of_nothing(node: &Node, graph: &Graph) -> Result<ConstData> {
    let (mut alone, mut bindings) = (Graph::new("nothing"), Bindings::default());
    let mut operands = Vec::new();
    for (i, &id) in node.inputs.iter().enumerate() {
        let (name, shape) = (format!("x{i}"), graph.shape(id).clone());
        let value = Value::try_decode(shape.dtype(), &shape.static_dims().unwrap_or_default(), &[])?;
        bindings.set_input(&name, value);
        operands.push(alone.input(name, shape));
    }
    let result = alone.push_node(node.with_inputs(operands));
    alone.set_outputs(vec![result]);
    let values = oracle::evaluate(&alone, &bindings)?;
    let missing = || Error::new(ErrorKind::Internal, "a graph without its output");
    let value = values.first().ok_or_else(missing)?;
    ConstData::new(value.dtype, &value.dims, value.encode())
}
