//! Models with any number of nodes. Each family is long or wide in a different way, so that quadratic
//! algorithms show in one of them.

use super::{FLOAT, INT64, body, float, graph, int, ints, model, node, untyped, value, weight, with};
use crate::proto::{FunctionProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto};

/// A family's name, and its model of about so many nodes (or operands, inputs, outputs).
pub type Family = (&'static str, fn(usize) -> ModelProto);

/// The families.
pub const FAMILIES: &[Family] = &[
    ("chain", chain),
    ("chain of sums", |n| steps(n, |i| node("Add", &[&v(i), "x"], &[&v(i + 1)]))),
    ("chain of transposes", |n| steps(n, |i| node("Transpose", &[&v(i)], &[&v(i + 1)]))),
    ("chain of softmaxes", |n| steps(n, |i| node("Softmax", &[&v(i)], &[&v(i + 1)]))),
    ("concatenation of one", |n| one(joined("Concat", vec!["x"; n]))),
    ("concatenation of many", |n| gathered(n, "Concat")),
    ("sum of many", |n| gathered(n, "Sum")),
    ("tree of sums", tree),
    ("values alive together", alive),
    ("inputs with initialisers", weights),
    ("weights alone", weights_alone),
    ("weights joined", weights_joined),
    ("inputs", inputs),
    ("inputs of limited sizes", limited),
    ("outputs", outputs),
    ("parts", parts),
    ("constants", constants),
    ("reshapes", reshapes),
    ("sums of sizes", sizes),
    ("sizes that are found out", counts),
    ("calls", calls),
    ("choices", choices),
    ("nodes that nothing uses", unused),
];

fn v(i: usize) -> String {
    format!("v{i}")
}

/// The node without its name, as small files have it.
fn bare(mut node: NodeProto) -> NodeProto {
    node.name = None;
    node
}

fn x() -> ValueInfoProto {
    value("x", FLOAT, &["n", "4"])
}

fn one(nodes: Vec<NodeProto>) -> ModelProto {
    let nodes: Vec<NodeProto> = nodes.into_iter().map(bare).collect();
    model(&[x()], &nodes, &[], &[untyped("y")])
}

/// Nodes from `v0` to `vN`, which is the result.
fn steps(count: usize, step: impl Fn(usize) -> NodeProto) -> ModelProto {
    let mut nodes = vec![node("Abs", &["x"], &["v0"])];
    nodes.extend((0..count).map(step));
    nodes.push(node("Neg", &[&v(count)], &["y"]));
    one(nodes)
}

fn chain(count: usize) -> ModelProto {
    let ops = ["Neg", "Exp", "Tanh", "Sigmoid"];
    steps(count, |i| node(ops[i % ops.len()], &[&v(i)], &[&v(i + 1)]))
}

fn joined(op: &str, operands: Vec<&str>) -> Vec<NodeProto> {
    let join = node(op, &operands, &["y"]);
    vec![if op == "Concat" { with(join, int("axis", 0)) } else { join }]
}

/// Distinct values, each of the one before.
fn values(count: usize) -> Vec<NodeProto> {
    let start = node("Abs", &["x"], &["v0"]);
    std::iter::once(start).chain((1..count).map(|i| node("Sin", &[&v(i - 1)], &[&v(i)]))).collect()
}

fn gathered(count: usize, op: &str) -> ModelProto {
    let mut nodes = values(count / 2);
    let names: Vec<String> = (0..count / 2).map(v).collect();
    nodes.extend(joined(op, names.iter().map(String::as_str).collect()));
    one(nodes)
}

fn tree(count: usize) -> ModelProto {
    let leaves = (count / 2).next_power_of_two() / 2;
    let mut nodes = values(leaves);
    let mut level: Vec<String> = (0..leaves).map(v).collect();
    while level.len() > 1 {
        level = level
            .chunks(2)
            .map(|pair| {
                let name = format!("s{}", nodes.len());
                nodes.push(node("Add", &[&pair[0], &pair[1]], &[&name]));
                name
            })
            .collect();
    }
    nodes.push(node("Neg", &[&level[0]], &["y"]));
    one(nodes)
}

/// Products that are used in the reverse order, so that all are alive at once.
fn alive(count: usize) -> ModelProto {
    let count = count / 2;
    let mut nodes = vec![node("Softmax", &["x"], &["v0"])];
    nodes.extend((1..count).map(|i| node("Softmax", &[&v(i - 1)], &[&v(i)])));
    nodes.push(node("Softmax", &[&v(count - 1)], &["s0"]));
    let sum = |i: usize| node("MatMul", &[&format!("s{i}"), &v(count - 1 - i)], &[&format!("s{}", i + 1)]);
    nodes.extend((0..count).map(sum));
    nodes.push(node("Neg", &[&format!("s{count}")], &["y"]));
    let nodes: Vec<NodeProto> = nodes.into_iter().map(bare).collect();
    model(&[value("x", FLOAT, &["4", "4"])], &nodes, &[], &[untyped("y")])
}

fn weights(count: usize) -> ModelProto {
    let count = count / 2;
    let names: Vec<String> = (0..count).map(|i| format!("w{i}")).collect();
    let mut given = vec![x()];
    given.extend(names.iter().map(|name| value(name, FLOAT, &["4"])));
    let tensors: Vec<TensorProto> =
        names.iter().enumerate().map(|(i, name)| weight(name, &[4], &[i as f32; 4])).collect();
    let mut nodes = vec![node("Abs", &["x"], &["v0"])];
    nodes.extend((0..count).map(|i| node("Mul", &[&v(i), &names[i]], &[&v(i + 1)])));
    nodes.push(node("Neg", &[&v(count)], &["y"]));
    let nodes: Vec<NodeProto> = nodes.into_iter().map(bare).collect();
    model(&given, &nodes, &tensors, &[untyped("y")])
}

/// Inputs with separate dimensions.
fn inputs(count: usize) -> ModelProto {
    let count = count / 2;
    let given: Vec<ValueInfoProto> =
        (0..count).map(|i| value(&format!("x{i}"), FLOAT, &[&format!("n{i}")])).collect();
    let results: Vec<ValueInfoProto> = (0..count).map(|i| untyped(&v(i))).collect();
    let nodes: Vec<NodeProto> =
        (0..count).map(|i| bare(node("Neg", &[&format!("x{i}")], &[&v(i)]))).collect();
    model(&given, &nodes, &[], &results)
}

/// Inputs as long as a table at most, as the positions of a sequence are: what is known of each size limits it.
fn limited(count: usize) -> ModelProto {
    let count = count / 5;
    let name = |part: &str, i: usize| format!("{part}{i}");
    let given: Vec<ValueInfoProto> =
        (0..count).map(|i| value(&name("x", i), FLOAT, &[&name("n", i)])).collect();
    let results: Vec<ValueInfoProto> = (0..count).map(|i| untyped(&name("y", i))).collect();
    let table = |i: usize| {
        [
            node("Shape", &[&name("x", i)], &[&name("s", i)]),
            node("Slice", &["table", "zero", &name("s", i)], &[&name("t", i)]),
            node("Add", &[&name("x", i), &name("t", i)], &[&name("a", i)]),
            node("Neg", &[&name("a", i)], &[&name("y", i)]),
        ]
    };
    let nodes: Vec<NodeProto> = (0..count).flat_map(table).map(bare).collect();
    let table = weight("table", &[8], &[1.0; 8]);
    model(&given, &nodes, &[table, ints("zero", &[0])], &results)
}

fn outputs(count: usize) -> ModelProto {
    let nodes: Vec<NodeProto> = values(count).into_iter().map(bare).collect();
    let results: Vec<ValueInfoProto> = (0..count).map(|i| untyped(&v(i))).collect();
    model(&[x()], &nodes, &[], &results)
}

fn parts(count: usize) -> ModelProto {
    let names: Vec<String> = (0..count).map(v).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut nodes = vec![bare(node("Split", &["x"], &names))];
    nodes.push(bare(node("Add", &[names[0], names[count - 1]], &["y"])));
    model(&[value("x", FLOAT, &[&count.to_string(), "4"])], &nodes, &[], &[untyped("y")])
}

fn constants(count: usize) -> ModelProto {
    let mut nodes = vec![node("Abs", &["x"], &["v0"])];
    for i in 0..count / 2 {
        let c = format!("c{i}");
        nodes.push(with(node("Constant", &[], &[&c]), float("value_float", i as f32)));
        nodes.push(node("Max", &[&v(i), &c], &[&v(i + 1)]));
    }
    nodes.push(node("Neg", &[&v(count / 2)], &["y"]));
    one(nodes)
}

/// Targets computed from shapes, as exporters write them.
fn reshapes(count: usize) -> ModelProto {
    let count = count / 6;
    let mut nodes = vec![node("Abs", &["x"], &["v0"])];
    for i in 0..count {
        let name = |part: &str| format!("{part}{i}");
        let (shape, first, target, flat) = (name("a"), name("b"), name("c"), name("d"));
        nodes.extend([
            node("Shape", &[&v(i)], &[&shape]),
            node("Gather", &[&shape, "zero"], &[&first]),
            with(node("Concat", &[&first, "half"], &[&target]), int("axis", 0)),
            node("Reshape", &[&v(i), &target], &[&flat]),
            node("Sin", &[&flat], &[&name("e")]),
            node("Reshape", &[&name("e"), &shape], &[&v(i + 1)]),
        ]);
    }
    nodes.push(node("Neg", &[&v(count)], &["y"]));
    let nodes: Vec<NodeProto> = nodes.into_iter().map(bare).collect();
    model(&[x()], &nodes, &[ints("zero", &[0]), ints("half", &[2, 2])], &[untyped("y")])
}

/// A sum of sizes that grows with every node.
fn sizes(count: usize) -> ModelProto {
    let inputs: Vec<ValueInfoProto> =
        (0..8).map(|i| value(&format!("x{i}"), INT64, &[&format!("n{i}")])).collect();
    let mut nodes: Vec<NodeProto> =
        (0..8).map(|i| node("Shape", &[&format!("x{i}")], &[&format!("d{i}")])).collect();
    nodes.push(node("Add", &["d0", "d1"], &["v0"]));
    nodes.extend((0..count).map(|i| node("Add", &[&v(i), &format!("d{}", i % 8)], &[&v(i + 1)])));
    nodes.push(node("Neg", &[&v(count)], &["y"]));
    let nodes: Vec<NodeProto> = nodes.into_iter().map(bare).collect();
    model(&inputs, &nodes, &[], &[untyped("y")])
}

/// Nodes that find out how many elements they have.
fn counts(count: usize) -> ModelProto {
    let count = count / 4;
    let name = |part: &str, i: usize| format!("{part}{i}");
    let sum = |i: usize| with(node("ReduceSum", &[&name("z", i)], &[&name("s", i)]), int("keepdims", 0));
    let mut nodes = vec![node("Abs", &["x"], &["v0"]), node("NonZero", &["v0"], &["z0"]), sum(0)];
    for i in 1..count.max(2) {
        let before = if i == 1 { name("s", 0) } else { name("t", i - 1) };
        nodes.extend([
            node("Sin", &[&v(i - 1)], &[&v(i)]),
            node("NonZero", &[&v(i)], &[&name("z", i)]),
            sum(i),
            node("Add", &[&before, &name("s", i)], &[&name("t", i)]),
        ]);
    }
    nodes.push(node("Neg", &[&name("t", count.max(2) - 1)], &["y"]));
    one(nodes)
}

fn calls(count: usize) -> ModelProto {
    let own = OperatorSetIdProto { domain: Some("test".to_owned()), version: Some(1) };
    let mut inner = node("Sin", &["a"], &["b"]);
    inner.name = None;
    let function = FunctionProto {
        name: Some("f".to_owned()),
        domain: own.domain.clone(),
        input: vec!["a".to_owned()],
        output: vec!["b".to_owned()],
        node: vec![inner],
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(17) }],
        ..Default::default()
    };
    let mut model = steps(count / 2, |i| {
        let mut call = node("f", &[&v(i)], &[&v(i + 1)]);
        call.domain = own.domain.clone();
        call
    });
    model.opset_import.push(own);
    model.functions.push(function);
    model
}

/// Choices whose branches use what is around them.
fn choices(count: usize) -> ModelProto {
    let count = count / 16;
    let mut nodes = vec![node("Abs", &["x"], &["v0"])];
    for i in 0..count {
        let branch = |op: &str| graph(&[], &[bare(node(op, &[&v(i)], &["r"]))], &[], &[untyped("r")]);
        let choice = with(node("If", &["go"], &[&v(i + 1)]), body("then_branch", branch("Sin")));
        nodes.push(with(choice, body("else_branch", branch("Cos"))));
    }
    nodes.push(node("Neg", &[&v(count)], &["y"]));
    let nodes: Vec<NodeProto> = nodes.into_iter().map(bare).collect();
    model(&[x(), value("go", super::BOOL, &[])], &nodes, &[], &[untyped("y")])
}

fn unused(count: usize) -> ModelProto {
    let mut nodes = values(count);
    nodes.push(node("Neg", &["v0"], &["y"]));
    one(nodes)
}

/// Sums of weights alone, which are computed before the first run.
fn weights_alone(count: usize) -> ModelProto {
    let count = count / 2;
    let names: Vec<String> = (0..count).map(|i| format!("w{i}")).collect();
    let tensors: Vec<TensorProto> =
        names.iter().enumerate().map(|(i, name)| weight(name, &[2], &[i as f32; 2])).collect();
    let mut nodes = vec![node("MatMul", &["x", "square"], &["a"]), node("Sin", &["w0"], &["v0"])];
    nodes.extend((0..count).map(|i| node("Div", &[&v(i), &names[i]], &[&v(i + 1)])));
    nodes.push(node("Add", &["a", &v(count)], &["y"]));
    let nodes: Vec<NodeProto> = nodes.into_iter().map(bare).collect();
    let square = weight("square", &[2, 2], &[1.0; 4]);
    model(&[value("x", FLOAT, &["n", "2"])], &nodes, &[vec![square], tensors].concat(), &[untyped("y")])
}

fn weights_joined(count: usize) -> ModelProto {
    let names: Vec<String> = (0..count).map(|i| format!("w{i}")).collect();
    let tensors: Vec<TensorProto> =
        names.iter().enumerate().map(|(i, name)| weight(name, &[1, 2], &[i as f32; 2])).collect();
    let mut nodes = joined("Concat", names.iter().map(String::as_str).collect());
    nodes[0].output = vec!["w".to_owned()];
    nodes.push(node("Gather", &["w", "x"], &["y"]));
    let nodes: Vec<NodeProto> = nodes.into_iter().map(bare).collect();
    model(&[value("x", INT64, &["n"])], &nodes, &tensors, &[untyped("y")])
}
