//! Model files changed where they say something: bytes changed at random mostly break the encoding, and test the decoder
//! alone.

use prost::Message;
use rlx_ir::testing::Gen;
use rlx_onnx::built;
use rlx_onnx::proto::tensor_shape_proto::dimension::Value as DimValue;
use rlx_onnx::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, type_proto};

/// Numbers at which something else begins.
const NUMBERS: [i64; 20] = [
    0,
    1,
    -1,
    2,
    3,
    4,
    -2,
    7,
    16,
    255,
    1000,
    65_536,
    (1 << 31) - 1,
    1 << 31,
    1 << 40,
    -(1 << 31),
    i64::MAX,
    i64::MAX - 1,
    i64::MIN,
    -3,
];

/// The model file `data` with a few changes that follow from `seed`; `None` where it is none.
pub fn mutate(data: &[u8], seed: u32) -> Option<Vec<u8>> {
    let mut model = ModelProto::decode(data).ok()?;
    let mut g = Gen::new(u64::from(seed));
    model.graph.as_ref()?;
    for _ in 0..g.size(1..=3) {
        if g.chance(0.03)
            && let Some(opset) = model.opset_import.first_mut()
        {
            opset.version = Some(g.int(1..=26));
            continue;
        }
        change_graph(model.graph.as_mut()?, &mut g);
    }
    Some(model.encode_to_vec())
}

fn place<T>(items: &[T], g: &mut Gen) -> Option<usize> {
    (!items.is_empty()).then(|| g.size(0..=items.len() - 1))
}

fn number(g: &mut Gen) -> i64 {
    if g.chance(0.6) { g.int(-2..=6) } else { g.pick(&NUMBERS) }
}

fn change_graph(graph: &mut GraphProto, g: &mut Gen) {
    match g.size(0..=9) {
        0 => change_input(graph, g),
        1 | 2 => {
            if let Some(at) = place(&graph.initializer, g) {
                change_tensor(&mut graph.initializer[at], g);
            }
        }
        3 => change_outputs(graph, g),
        4 => {
            if let Some(at) = place(&graph.node, g) {
                let mut copy = graph.node[at].clone();
                for output in &mut copy.output {
                    output.push('_');
                }
                graph.node.insert(at + 1, copy);
            }
        }
        _ => {
            let (Some(at), Some(other)) = (place(&graph.node, g), place(&graph.node, g)) else { return };
            let other = graph.node[other].clone();
            let names: Vec<String> = graph
                .input
                .iter()
                .map(|i| i.name().to_owned())
                .chain(graph.initializer.iter().map(|t| t.name().to_owned()))
                .chain(graph.node.iter().flat_map(|n| n.output.clone()))
                .collect();
            change_node(&mut graph.node[at], &other, &names, g);
        }
    }
}

/// Another element type, another dimension, a dimension more or less.
fn change_input(graph: &mut GraphProto, g: &mut Gen) {
    let Some(at) = place(&graph.input, g) else { return };
    let value = graph.input[at].r#type.as_mut().and_then(|t| t.value.as_mut());
    let Some(type_proto::Value::TensorType(tensor)) = value else { return };
    if g.chance(0.2) {
        tensor.elem_type = Some(g.int(0..=26) as i32);
        return;
    }
    let Some(shape) = tensor.shape.as_mut() else { return };
    let at = place(&shape.dim, g);
    match (g.size(0..=7), at) {
        (0, _) => shape.dim.push(Default::default()),
        (1, Some(at)) => _ = shape.dim.remove(at),
        (2 | 3, Some(at)) => {
            shape.dim[at].value =
                Some(DimValue::DimParam(g.pick(&["a", "b", "batch", "2*a", "a+1"]).to_owned()));
        }
        (_, Some(at)) => shape.dim[at].value = Some(DimValue::DimValue(number(g))),
        _ => {}
    }
}

/// An output is what any node gives, or is not declared.
fn change_outputs(graph: &mut GraphProto, g: &mut Gen) {
    let (Some(at), Some(node)) = (place(&graph.output, g), place(&graph.node, g)) else { return };
    if let Some(name) = graph.node[node].output.first() {
        graph.output[at].name = Some(name.clone());
        graph.output[at].r#type = None;
    }
}

/// Another type, other dimensions, other elements.
fn change_tensor(tensor: &mut TensorProto, g: &mut Gen) {
    let at = place(&tensor.dims, g);
    match (g.size(0..=7), at) {
        (0, _) => tensor.data_type = Some(g.int(0..=26) as i32),
        (1, _) => tensor.dims.push(number(g)),
        (2, Some(at)) => _ = tensor.dims.remove(at),
        (3, Some(at)) => tensor.dims[at] = number(g),
        _ => change_elements(tensor, g),
    }
}

fn change_elements(tensor: &mut TensorProto, g: &mut Gen) {
    let value = number(g);
    if let Some(raw) = &tensor.raw_data {
        let mut bytes = raw.to_vec();
        let width = if tensor.data_type == Some(7) { 8 } else { 4 };
        if let Some(at) = place(&bytes, g) {
            let at = at / width * width;
            let new = match tensor.data_type {
                Some(1) => (value as f32).to_le_bytes().to_vec(),
                _ => value.to_le_bytes()[..width].to_vec(),
            };
            bytes.iter_mut().skip(at).zip(new).for_each(|(old, new)| *old = new);
        }
        tensor.raw_data = Some(bytes.into());
    }
    if let Some(at) = place(&tensor.int64_data, g) {
        tensor.int64_data[at] = value;
    }
    if let Some(at) = place(&tensor.float_data, g) {
        tensor.float_data[at] = value as f32;
    }
    if let Some(at) = place(&tensor.int32_data, g) {
        tensor.int32_data[at] = value as i32;
    }
}

/// Another op, other operands, other attributes; `other` is another node, `names` are the graph's values.
fn change_node(node: &mut NodeProto, other: &NodeProto, names: &[String], g: &mut Gen) {
    let (input, attribute) = (place(&node.input, g), place(&node.attribute, g));
    match (g.size(0..=12), input, attribute) {
        (0, ..) => {
            let ops: Vec<(&str, &str)> = built().collect();
            let (domain, op) = g.pick(&ops);
            (node.domain, node.op_type) = (Some(domain.to_owned()), Some(op.to_owned()));
        }
        (1, ..) => node.op_type.clone_from(&other.op_type),
        (2, ..) => node.attribute.clone_from(&other.attribute),
        (3, Some(at), _) => _ = node.input.remove(at),
        (4 | 5, Some(at), _) => {
            if let Some(name) = place(names, g) {
                node.input[at].clone_from(&names[name]);
            }
        }
        (6, ..) => node.input.extend(place(names, g).map(|name| names[name].clone())),
        (7, Some(at), _) => node.input[at].clear(),
        (8, _, Some(at)) => _ = node.attribute.remove(at),
        (_, _, Some(at)) => change_attribute(&mut node.attribute[at], g),
        _ => {}
    }
}

fn change_attribute(attribute: &mut AttributeProto, g: &mut Gen) {
    if let Some(body) = attribute.g.as_mut() {
        return change_graph(body, g);
    }
    if let Some(tensor) = attribute.t.as_mut() {
        return change_tensor(tensor, g);
    }
    attribute.i = attribute.i.map(|_| number(g));
    attribute.f = attribute.f.map(|_| number(g) as f32);
    match (g.size(0..=3), place(&attribute.ints, g)) {
        (0, Some(at)) => _ = attribute.ints.remove(at),
        (1, Some(_)) => attribute.ints.push(number(g)),
        (_, Some(at)) => attribute.ints[at] = number(g),
        _ => {}
    }
}
