//! Gives back the room that decoding leaves in lists.
//!
//! A list that grows has room for four elements from the first one on, and most lists of a model (the operands and results of a
//! node, the nodes of a branch) have one or two: that is half of what a decoded model of many small nodes takes.

use crate::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};

/// Shrinks the lists of a model.
pub(crate) fn model(model: &mut ModelProto) {
    if let Some(main) = &mut model.graph {
        graph(main);
    }
    for function in &mut model.functions {
        nodes(&mut function.node);
    }
}

/// Decoding has bounded how deep graphs are in each other.
fn graph(graph: &mut GraphProto) {
    nodes(&mut graph.node);
    graph.initializer.shrink_to_fit();
    graph.initializer.iter_mut().for_each(|tensor| tensor.dims.shrink_to_fit());
    values(&mut graph.input);
    values(&mut graph.output);
    values(&mut graph.value_info);
}

fn nodes(nodes: &mut Vec<NodeProto>) {
    nodes.shrink_to_fit();
    for node in nodes {
        node.input.shrink_to_fit();
        node.output.shrink_to_fit();
        node.attribute.shrink_to_fit();
        for attribute in &mut node.attribute {
            attribute.ints.shrink_to_fit();
            attribute.g.iter_mut().for_each(|body| graph(body));
            attribute.graphs.iter_mut().for_each(graph);
        }
    }
}

fn values(values: &mut Vec<ValueInfoProto>) {
    use crate::proto::type_proto::Value;
    values.shrink_to_fit();
    for value in values {
        if let Some(Value::TensorType(tensor)) = value.r#type.as_mut().and_then(|ty| ty.value.as_mut())
            && let Some(shape) = &mut tensor.shape
        {
            shape.dim.shrink_to_fit();
        }
    }
}
