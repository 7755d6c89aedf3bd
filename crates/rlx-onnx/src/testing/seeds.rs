//! Single-node models for every supported op: the start of a mutation run if the ONNX node cases are not available.

use super::{BOOL, FLOAT, INT64, attr, body, graph, int, ints, model, node, untyped, value, weight, with};
use crate::ops::built;
use crate::proto::attribute_proto::AttributeType;
use crate::proto::{AttributeProto, ModelProto, NodeProto, TensorProto};
use crate::{ImportOptions, OnnxFile, import};
use prost::Message;

/// Operands that one or another op takes: `f`loats, indices (`i`), numbers known at import (`k`), truth values (`b`), each
/// with its dimensions.
const OPERANDS: &[&[&str]] = &[
    &["f 2 3"],
    &["f 1 2 4 4"],
    &["f 2 3", "f 2 3"],
    &["f 2 3", "f 3 2"],
    &["f 1 2 4 4", "f 2 2 3 3"],
    &["f 1 2 4 4", "f 2", "f 2"],
    &["f 1 2 4 4", "f 2", "f 2", "f 2", "f 2"],
    &["f 2 3", "k 1"],
    &["f 2 3", "k 2"],
    &["f 1 2 4 4", "k 4"],
    &["f 1 2 4 4", "", "", "k 4"],
    &["f 2 3", "i 2"],
    &["f 2 3", "i 2 3", "f 2 3"],
    &["f 2 3", "k 1", "k 1", "k 1", "k 1"],
    &["b 2 3", "b 2 3"],
    &["b 2 3", "f 2 3", "f 2 3"],
    &["i 2 3", "i 2 3"],
    &["k 2"],
    &["k 1", "k 1", "k 1"],
    &["f 1 2 4 4", "f 1 2 4 4", "f 1 2 4 4"],
    &["f 1 2 4", "f 1 8 4", "f 1 8 2"],
];

/// Attributes that some op cannot do without; others leave them alone.
fn required() -> Vec<AttributeProto> {
    let list = |name: &str, values: &[i64]| AttributeProto {
        ints: values.to_vec(),
        ..attr(name, AttributeType::Ints)
    };
    let text = |name: &str, word: &'static str| AttributeProto {
        s: Some(word.as_bytes().into()),
        ..attr(name, AttributeType::String)
    };
    vec![
        list("kernel_shape", &[2, 2]),
        list("perm", &[1, 0]),
        int("to", 1),
        int("blocksize", 2),
        int("num_groups", 1),
        int("hidden_size", 2),
        int("size", 3),
        int("num_heads", 2),
        text("equation", "ij,jk->ik"),
        text("direction", "forward"),
    ]
}

/// A model of one node on operands as [`OPERANDS`] describes them.
fn single(domain: &str, op: &str, operands: &[&str], attributes: Vec<AttributeProto>) -> ModelProto {
    let (mut inputs, mut constants, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for (i, operand) in operands.iter().enumerate() {
        let mut words = operand.split_whitespace();
        let name = format!("x{i}");
        let kind = words.next().unwrap_or_default();
        let dims: Vec<&str> = words.collect();
        match kind {
            "f" => inputs.push(value(&name, FLOAT, &dims)),
            "i" => inputs.push(value(&name, INT64, &dims)),
            "b" => inputs.push(value(&name, BOOL, &dims)),
            "k" => constants.push(ints(&name, &vec![1; dims[0].parse().unwrap_or(1)])),
            _ => {
                names.push(String::new());
                continue;
            }
        }
        names.push(name);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut node = node(op, &names, &["y"]);
    node.domain = Some(domain.to_owned());
    node.attribute = attributes;
    let mut model = model(&inputs, &[node], &constants, &[untyped("y")]);
    model.opset_import[0].version = Some(23);
    model
}

fn imports(model: &ModelProto) -> bool {
    OnnxFile::from_bytes(model.encode_to_vec())
        .and_then(|file| import(&file, &ImportOptions::default()))
        .is_ok()
}

/// A model for each op, on the first operands that it takes, and some with bodies and functions.
pub fn seeds() -> Vec<ModelProto> {
    let mut all = Vec::new();
    for (domain, op) in built() {
        let tries = OPERANDS.iter().flat_map(|operands| {
            [Vec::new(), required()].map(|attributes| single(domain, op, operands, attributes))
        });
        let mut tries: Vec<ModelProto> = tries.collect();
        let at = tries.iter().position(imports).unwrap_or(0);
        all.push(tries.swap_remove(at));
    }
    all.extend([choice(), looped(3), looped(100), scan(), chain()]);
    all
}

fn looped(times: i64) -> ModelProto {
    let nodes = [node("Identity", &["c"], &["c2"]), node("Add", &["v", "v"], &["v2"])];
    let named = |names: &[&str]| names.iter().map(|n| untyped(n)).collect::<Vec<_>>();
    let inner = graph(&named(&["i", "c", "v"]), &nodes, &[], &named(&["c2", "v2", "v"]));
    let node = with(node("Loop", &["limit", "go", "x"], &["end", "y"]), body("body", inner));
    let limit = TensorProto { dims: Vec::new(), ..ints("limit", &[times]) };
    of(&[node], &[limit])
}

fn scan() -> ModelProto {
    let named = |names: &[&str]| names.iter().map(|n| untyped(n)).collect::<Vec<_>>();
    let inner = graph(&named(&["s", "e"]), &[node("Add", &["s", "e"], &["s2"])], &[], &named(&["s2", "e"]));
    let scan = with(node("Scan", &["first", "x"], &["end", "y"]), body("body", inner));
    of(&[with(scan, int("num_scan_inputs", 1))], &[weight("first", &[], &[0.5])])
}

fn choice() -> ModelProto {
    let branch = |op: &str| graph(&[], &[node(op, &["x"], &["y"])], &[], &[untyped("y")]);
    let node = with(node("If", &["go"], &["y"]), body("then_branch", branch("Neg")));
    of(&[with(node, body("else_branch", branch("Abs")))], &[])
}

/// Shape arithmetic as exporters write it.
fn chain() -> ModelProto {
    let nodes = [
        node("Shape", &["x"], &["shape"]),
        node("Gather", &["shape", "zero"], &["first"]),
        node("Mul", &["first", "two"], &["twice"]),
        node("Concat", &["twice", "open"], &["target"]),
        node("Expand", &["x", "target"], &["wide"]),
        node("Tile", &["wide", "open2"], &["tiled"]),
        node("Slice", &["tiled", "zero", "two", "zero", "one"], &["part"]),
        node("Cast", &["part"], &["cast"]),
        node("Range", &["s0", "s9", "s1"], &["range"]),
        node("Reshape", &["x", "open"], &["y"]),
    ];
    let mut nodes = nodes.to_vec();
    nodes[7] = with(nodes[7].clone(), int("to", 7));
    let scalar = |name: &str, n: i64| TensorProto { dims: Vec::new(), ..ints(name, &[n]) };
    let constants = [
        ints("zero", &[0]),
        ints("one", &[1]),
        ints("two", &[2]),
        ints("open", &[-1]),
        ints("open2", &[1, 2]),
        scalar("s0", 0),
        scalar("s1", 1),
        scalar("s9", 9),
    ];
    of(&nodes, &constants)
}

/// A model of `x` and `go`, with one output `y`.
fn of(nodes: &[NodeProto], constants: &[TensorProto]) -> ModelProto {
    model(&[value("x", FLOAT, &["2"]), value("go", BOOL, &[])], nodes, constants, &[untyped("y")])
}
