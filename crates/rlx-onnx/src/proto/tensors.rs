//! Every tensor of a model, wherever it is stored.
//!
//! Initialisers, sparse initialisers and attributes of nodes, also in the bodies of control flow, in functions and
//! in the training part of a model. The decoder limits the nesting depth.

use super::{AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto};

/// Calls `visit` with each of them.
pub(crate) fn each_tensor<'m>(model: &'m ModelProto, visit: &mut dyn FnMut(&'m TensorProto)) {
    model.graph.iter().for_each(|graph| of_graph(graph, visit));
    for function in &model.functions {
        function.node.iter().for_each(|node| of_node(node, visit));
        function.attribute_proto.iter().for_each(|attribute| of_attribute(attribute, visit));
    }
    for training in &model.training_info {
        training.initialization.iter().chain(&training.algorithm).for_each(|graph| of_graph(graph, visit));
    }
}

fn of_graph<'m>(graph: &'m GraphProto, visit: &mut dyn FnMut(&'m TensorProto)) {
    graph.initializer.iter().for_each(&mut *visit);
    graph.sparse_initializer.iter().for_each(|sparse| of_sparse(sparse, visit));
    graph.node.iter().for_each(|node| of_node(node, visit));
}

fn of_node<'m>(node: &'m NodeProto, visit: &mut dyn FnMut(&'m TensorProto)) {
    node.attribute.iter().for_each(|attribute| of_attribute(attribute, visit));
}

fn of_attribute<'m>(attribute: &'m AttributeProto, visit: &mut dyn FnMut(&'m TensorProto)) {
    attribute.t.as_deref().into_iter().chain(&attribute.tensors).for_each(&mut *visit);
    let sparse = attribute.sparse_tensor.as_deref().into_iter().chain(&attribute.sparse_tensors);
    sparse.for_each(|sparse| of_sparse(sparse, visit));
    attribute.g.as_deref().into_iter().chain(&attribute.graphs).for_each(|graph| of_graph(graph, visit));
}

fn of_sparse<'m>(sparse: &'m SparseTensorProto, visit: &mut dyn FnMut(&'m TensorProto)) {
    sparse.values.iter().chain(&sparse.indices).for_each(visit);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{FunctionProto, TrainingInfoProto};

    #[test]
    fn tensors_are_found_wherever_they_stand() {
        let tensor = |name: &str| TensorProto { name: Some(name.to_owned()), ..Default::default() };
        let sparse = |name: &str| SparseTensorProto {
            values: Some(tensor(&format!("{name} values"))),
            indices: Some(tensor(&format!("{name} indices"))),
            ..Default::default()
        };
        let holds = |name: &str| AttributeProto {
            t: Some(Box::new(tensor(&format!("{name} t")))),
            tensors: vec![tensor(&format!("{name} tensors"))],
            sparse_tensor: Some(Box::new(sparse(&format!("{name} sparse")))),
            sparse_tensors: vec![sparse(&format!("{name} sparse list"))],
            ..Default::default()
        };
        let node = |attribute: AttributeProto| NodeProto { attribute: vec![attribute], ..Default::default() };
        let graph = |name: &str| GraphProto {
            initializer: vec![tensor(&format!("{name} initializer"))],
            sparse_initializer: vec![sparse(&format!("{name} sparse initializer"))],
            node: vec![node(holds(name))],
            ..Default::default()
        };
        let bodies = AttributeProto {
            g: Some(Box::new(GraphProto {
                node: vec![node(AttributeProto { graphs: vec![graph("deep")], ..Default::default() })],
                ..graph("body")
            })),
            graphs: vec![graph("one of several")],
            ..Default::default()
        };
        let function = FunctionProto {
            node: vec![node(holds("function"))],
            attribute_proto: vec![holds("default")],
            ..Default::default()
        };
        let training = TrainingInfoProto {
            initialization: Some(graph("start")),
            algorithm: Some(graph("step")),
            ..Default::default()
        };
        let main = GraphProto { node: vec![node(holds("main")), node(bodies)], ..graph("main graph") };
        let model = ModelProto {
            graph: Some(main),
            functions: vec![function],
            training_info: vec![training],
            ..Default::default()
        };
        let mut found = Vec::new();
        each_tensor(&model, &mut |tensor| found.push(tensor.name().to_owned()));
        // `graph` makes 9, `holds` 6; the body's nodes were replaced.
        let made = 5 * 9 + 3 + 2 * 6;
        assert_eq!(found.len(), made, "{found:#?}");
        found.sort();
        found.dedup();
        assert_eq!(found.len(), made, "{found:#?}");
    }
}
