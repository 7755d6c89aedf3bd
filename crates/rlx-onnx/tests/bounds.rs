//! Files of at most 1 MB that demand disproportionate time or memory: each imports and compiles, or is rejected, within two
//! seconds, and within 64 MB plus ten times its size of memory.

mod common;

use common::attempt;
use prost::Message;
use rlx_onnx::proto::{
    AttributeProto, FunctionProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto,
};
use rlx_onnx::testing::{
    FLOAT, INT64, attr, body, float, graph, int, ints, model, node, untyped, value, with,
};

/// What a file of this size may have.
const LARGEST: usize = 1 << 20;

#[track_caller]
fn bounded(name: &str, model: &ModelProto) {
    let bytes = model.encode_to_vec();
    assert!(bytes.len() <= LARGEST, "{name} has {} bytes", bytes.len());
    if let Err(why) = attempt(name, &bytes) {
        panic!("{name}, {} bytes: {why}", bytes.len());
    }
}

fn list(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        ints: values.to_vec(),
        ..attr(name, rlx_onnx::proto::attribute_proto::AttributeType::Ints)
    }
}

fn text(name: &str, word: &str) -> AttributeProto {
    let ty = rlx_onnx::proto::attribute_proto::AttributeType::String;
    AttributeProto { s: Some(word.as_bytes().to_vec().into()), ..attr(name, ty) }
}

fn scalar(name: &str, n: i64) -> TensorProto {
    TensorProto { dims: Vec::new(), ..ints(name, &[n]) }
}

/// A model of `x` and these nodes, whose last result is `y`.
fn of(nodes: &[NodeProto], constants: &[TensorProto]) -> ModelProto {
    model(&[value("x", FLOAT, &["1", "2", "4", "4"])], nodes, constants, &[untyped("y")])
}

#[test]
fn huge_sizes_are_rejected_or_left_to_the_run() {
    common::watch();
    for size in [1 << 20, 1 << 31, 1 << 40, (1 << 62) + 1, i64::MAX] {
        let shape =
            [ints("shape", &[size, 2, 4, 4]), ints("repeats", &[1, size, 1, size]), scalar("size", size)];
        let one = |op: &str, inputs: &[&str]| of(&[node(op, inputs, &["y"])], &shape);
        bounded("ConstantOfShape", &one("ConstantOfShape", &["shape"]));
        bounded("Expand", &one("Expand", &["x", "shape"]));
        bounded("Tile", &one("Tile", &["x", "repeats"]));
        bounded("HannWindow", &one("HannWindow", &["size"]));
        let range = of(
            &[node("Range", &["zero", "size", "one"], &["y"])],
            &[scalar("zero", 0), scalar("one", 1), scalar("size", size)],
        );
        bounded("Range", &range);
        bounded("OneHot", &{
            let values =
                TensorProto { float_data: vec![0.0, 1.0], ..rlx_onnx::testing::weight("values", &[2], &[]) };
            of(&[node("OneHot", &["size", "size", "values"], &["y"])], &[scalar("size", size), values])
        });
        let pads = [0, 0, size, size, 0, 0, size, size];
        bounded("Pad", &of(&[node("Pad", &["x", "pads"], &["y"])], &[ints("pads", &pads)]));
        let pool = with(node("MaxPool", &["x"], &["y"]), list("kernel_shape", &[size, size]));
        bounded("MaxPool", &of(std::slice::from_ref(&pool), &[]));
        bounded("MaxPool with pads", &of(&[with(pool, list("pads", &[size; 4]))], &[]));
        let lp = with(node("LpPool", &["x"], &["y"]), list("kernel_shape", &[size, 1]));
        bounded("LpPool", &of(&[with(lp, list("pads", &[size, 0, size, 0]))], &[]));
        let sizes = ints("sizes", &[1, 2, size, 4]);
        for mode in ["nearest", "linear", "cubic"] {
            let resize = with(node("Resize", &["x", "", "", "sizes"], &["y"]), text("mode", mode));
            bounded("Resize", &of(&[with(resize, int("antialias", 1))], std::slice::from_ref(&sizes)));
        }
        let square = &size.to_string();
        let wide = model(
            &[value("x", FLOAT, &[square, square])],
            &[node("Neg", &["x"], &["y"])],
            &[],
            &[untyped("y")],
        );
        bounded("a declared size", &wide);
    }
}

#[test]
fn many_small_costs_do_not_add_up() {
    common::watch();
    let name = |i: usize| format!("v{i}");
    // Each takes 4096 elements to compute, or to keep.
    let chain = |op: &str, count: usize, wide: &[i64]| {
        let mut nodes = vec![node("ConstantOfShape", &["shape"], &["v0"])];
        for i in 0..count {
            nodes.push(node(op, &[&name(i), &name(i)], &[&name(i + 1)]));
        }
        nodes.push(node("Add", &[&name(count), &name(count)], &["y"]));
        of(&nodes, &[ints("shape", wide)])
    };
    bounded("many sums of constants", &chain("Add", 8_000, &[4096]));
    bounded("many products of constants", &chain("MatMul", 8_000, &[64, 64]));
    let windows = |i: usize| node("HannWindow", &["size"], &[&name(i)]);
    let mut nodes: Vec<NodeProto> = (0..10_000).map(windows).collect();
    nodes.push(node("Add", &["v0", "v1"], &["y"]));
    bounded("many windows", &of(&nodes, &[scalar("size", 1 << 20)]));
    let shapes = |i: usize| node("Shape", &["x"], &[&name(i)]);
    let mut nodes: Vec<NodeProto> = (0..10_000).map(shapes).collect();
    nodes.push(node("Neg", &["x"], &["y"]));
    let dims = vec!["1"; 4096];
    bounded("many dimensions", &model(&[value("x", FLOAT, &dims)], &nodes, &[], &[untyped("y")]));
}

/// Functions that call the next one so many times each.
fn calls(levels: usize, times: usize, label: &str) -> ModelProto {
    let domain = Some("test".to_owned());
    let opset = OperatorSetIdProto { domain: None, version: Some(17) };
    let own = OperatorSetIdProto { domain: domain.clone(), version: Some(1) };
    let function = |level: usize| {
        let op = if level + 1 == levels { "Neg".to_owned() } else { format!("{label}{}", level + 1) };
        let call = |i: usize| {
            let mut call = node(&op, &[&format!("v{i}")], &[&format!("v{}", i + 1)]);
            call.domain = if level + 1 == levels { None } else { domain.clone() };
            call
        };
        FunctionProto {
            name: Some(format!("{label}{level}")),
            domain: domain.clone(),
            input: vec!["v0".to_owned()],
            output: vec![format!("v{times}")],
            node: (0..times).map(call).collect(),
            opset_import: vec![opset.clone(), own.clone()],
            ..Default::default()
        }
    };
    let mut first = node(&format!("{label}0"), &["x"], &["y"]);
    first.domain = domain.clone();
    let mut model = of(&[first], &[]);
    model.opset_import.push(own.clone());
    model.functions = (0..levels).map(function).collect();
    model
}

#[test]
fn functions_and_bodies_do_not_multiply() {
    common::watch();
    bounded("calls of calls", &calls(40, 2, "f"));
    bounded("deep calls", &calls(60, 1, "f"));
    bounded("many calls", &calls(3, 60, "f"));
    bounded("a long name", &calls(2, 150, &"f".repeat(3_000)));
    bounded("a very long name", &calls(4, 8, &"f".repeat(15_000)));
    let named = |names: &[&str]| names.iter().map(|n| untyped(n)).collect::<Vec<ValueInfoProto>>();
    // A loop in a loop in a loop, each unrolled.
    let mut inner = graph(&[], &[node("Neg", &["x"], &["y"])], &[], &named(&["y"]));
    for _ in 0..20 {
        inner.input = named(&["i", "c"]);
        inner.node.push(node("Identity", &["c"], &["c2"]));
        inner.output = named(&["c2", "y"]);
        let looped = with(node("Loop", &["many", ""], &["y"]), body("body", inner));
        inner = graph(&[], &[looped], &[], &named(&["y"]));
    }
    bounded("loops in loops", &of(&inner.node, &[scalar("many", 32)]));
}

#[test]
fn odd_structures_are_rejected() {
    common::watch();
    let cycle = [node("Neg", &["b"], &["a"]), node("Neg", &["a"], &["b"]), node("Neg", &["b"], &["y"])];
    bounded("a cycle", &of(&cycle, &[]));
    let twice = [node("Neg", &["x"], &["y"]), node("Abs", &["x"], &["y"])];
    bounded("a name twice", &of(&twice, &[]));
    let long = "n".repeat(300_000);
    bounded("a long name", &of(&[node("Neg", &["x"], &[&long]), node("Neg", &[&long], &["y"])], &[]));
    let equation = format!("{}->{}", "ab,".repeat(60_000), "c".repeat(1_000));
    bounded(
        "a long equation",
        &of(&[with(node("Einsum", &["x"], &["y"]), text("equation", &equation))], &[]),
    );
    let rank = vec!["1"; 100_000];
    bounded(
        "a high rank",
        &model(&[value("x", FLOAT, &rank)], &[node("Neg", &["x"], &["y"])], &[], &[untyped("y")]),
    );
    let axes: Vec<i64> = (0..50_000).collect();
    let unsqueeze = of(&[node("Unsqueeze", &["x", "axes"], &["y"])], &[ints("axes", &axes)]);
    bounded("many new dimensions", &unsqueeze);
    let many = vec!["x"; 2_000];
    bounded("many operands", &of(&[with(node("Concat", &many, &["y"]), int("axis", 0))], &[]));
    let outputs: Vec<String> = (0..5_000).map(|i| format!("v{i}")).collect();
    let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
    bounded("many results", &of(&[node("Split", &["x"], &outputs), node("Neg", &["x"], &["y"])], &[]));
    let floats = with(node("Constant", &[], &["c"]), float("value_float", f32::NAN));
    bounded("a constant that is no number", &of(&[floats, node("Add", &["x", "c"], &["y"])], &[]));
    let inputs: Vec<ValueInfoProto> = (0..5_000).map(|i| value(&format!("x{i}"), INT64, &["n"])).collect();
    bounded("many inputs", &model(&inputs, &[node("Neg", &["x0"], &["y"])], &[], &[untyped("y")]));
}

#[test]
fn empty_messages_take_no_memory() {
    common::watch();
    // Two bytes each in the file, hundreds in memory.
    let nodes = vec![NodeProto::default(); 300_000];
    bounded("empty nodes", &of(&nodes, &[]));
    let attributes =
        NodeProto { attribute: vec![AttributeProto::default(); 300_000], ..node("Neg", &["x"], &["y"]) };
    bounded("empty attributes", &of(&[attributes], &[]));
    let mut empty = of(&[node("Neg", &["x"], &["y"])], &[]);
    empty.functions = vec![FunctionProto::default(); 300_000];
    bounded("empty functions", &empty);
    let constants = vec![TensorProto::default(); 300_000];
    bounded("empty tensors", &of(&[node("Neg", &["x"], &["y"])], &constants));
    let names = vec![String::new(); 200_000];
    let empty_names = NodeProto { input: names.clone(), output: names, ..node("Neg", &[], &["y"]) };
    bounded("empty names", &of(&[empty_names], &[]));
}
