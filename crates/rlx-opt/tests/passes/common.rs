//! What the tests of passes share: a device that can do everything, and comparing before with after.
#![allow(dead_code, reason = "each test file uses its own part")]

use rlx_ir::lir::View;
use rlx_ir::op::{BinaryOp, DataFormat, PackFormat};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Gen, assert_close, tolerance};
use rlx_ir::{DType, DimBinding, Graph, Node, Op, Result, text, verify_ok};
use rlx_opt::pipeline::PassContext;
use rlx_opt::{Claim, CompileOptions, Gain, Numerics, Target};

/// A device that claims, fuses, reads and packs whatever it is asked about.
#[derive(Default)]
pub struct Anything {
    /// Whether convolutions should have their channels last.
    pub channels_last: bool,
    /// The most rows of a matmul that gains time in a short type, where other ops gain by less memory traffic only; if not all gain time.
    pub gaining_rows: Option<usize>,
}

impl Target for Anything {
    fn name(&self) -> &str {
        "anything"
    }

    fn claim(&self, _: &Node, _: &Graph) -> Claim {
        Claim::Native
    }

    fn fuses(&self, _: Option<&Node>, _: &Node, _: &Graph) -> bool {
        true
    }

    fn fuses_producer(&self, producer: &Node, anchor: &Node, _: &Graph) -> bool {
        let norm = matches!(producer.op, Op::LayerNorm { .. } | Op::RmsNorm { .. });
        let quantised = matches!(producer.op, Op::Quantize { .. }) && anchor.op == Op::MatMulInteger;
        let alone = !anchor.inputs[1..].contains(&producer.id);
        let squared = producer.op == Op::Binary(BinaryOp::Mul) && producer.inputs[0] == producer.inputs[1];
        let summed = squared && matches!(anchor.op, Op::Reduce { .. });
        (norm && anchor.op == Op::MatMul || quantised || summed) && anchor.inputs[0] == producer.id && alone
    }

    fn interpolates(&self, _: &Node) -> bool {
        true
    }

    fn reduces_together(&self, a: &Node, b: &Node) -> bool {
        a.op != b.op
    }

    fn fuses_pair(&self, anchor: &Node, other: &Node, _: &Graph) -> bool {
        anchor.op == Op::MatMul && other.op == Op::MatMul
    }

    fn reads_view(&self, _: &Op, _: usize, _: &View) -> bool {
        true
    }

    fn writes_view(&self, _: &Op, _: &View) -> bool {
        true
    }

    fn pack_format(&self, node: &Node, input: usize, _: &Graph) -> Option<PackFormat> {
        (node.op == Op::MatMul && input == 1).then_some(PackFormat::new("Panels"))
    }

    fn prefers_channels_last(&self, _: DType) -> bool {
        self.channels_last
    }

    fn gain(&self, node: &Node, _: &Graph, _: DType) -> Gain {
        let Some(most) = self.gaining_rows else { return Gain::Time };
        match node.op {
            Op::MatMul if node.shape.dim(0).as_static().is_none_or(|rows| rows > most) => {
                Gain::Nothing("so many rows".into())
            }
            Op::MatMul => Gain::Time,
            _ => Gain::Bytes,
        }
    }

    fn multiplies_windows(&self, conv: &Node, _: &Graph) -> bool {
        matches!(conv.op, Op::Conv { format: DataFormat::ChannelsLast, .. })
    }
}

/// The graph a text means; checked.
pub fn parse(text: &str) -> Graph {
    let graph = text::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    verify_ok(&graph).unwrap_or_else(|e| panic!("{e}\n{text}"));
    graph
}

pub type PassFn = fn(&Graph, &PassContext<'_>) -> Result<Graph>;

/// What `pass` makes of `graph`, without the nodes it left behind.
pub fn apply_with(pass: PassFn, graph: &Graph, options: &CompileOptions) -> Graph {
    let target = Anything { channels_last: true, ..Anything::default() };
    let after = pass(graph, &PassContext { target: &target, options, is_body: false })
        .unwrap_or_else(|e| panic!("{e}\n{graph}"));
    let after = rlx_opt::rewrite::without_dead_nodes(after);
    verify_ok(&after).unwrap_or_else(|e| panic!("{e}\n{after}"));
    after
}

/// [`apply_with`] the default options.
pub fn apply(pass: PassFn, graph: &Graph) -> Graph {
    apply_with(pass, graph, &CompileOptions::default())
}

/// The options under which no bit may change.
pub fn strict() -> CompileOptions {
    CompileOptions { numerics: Numerics::Strict, ..CompileOptions::default() }
}

/// Random values for the inputs and parameters of `graph`, symbols replaced by `dims`.
pub fn bindings(graph: &Graph, dims: &DimBinding, seed: u64) -> Bindings {
    let (mut g, mut bindings) = (Gen::new(seed), Bindings::default());
    for node in graph.nodes() {
        let shape = node.shape.bind(dims);
        let Some(fixed) = shape.static_dims() else { continue };
        let range = if shape.dtype() == DType::Bool { 0.0..2.0 } else { -1.0..1.0 };
        match &node.op {
            Op::Input { name } => _ = bindings.set_input(name.clone(), g.value(shape.dtype(), &fixed, range)),
            Op::Param { name } => _ = bindings.set_param(name.clone(), g.value(shape.dtype(), &fixed, range)),
            _ => {}
        }
    }
    bindings
}

/// Panics unless both graphs give the same outputs on random inputs.
pub fn assert_same_results(before: &Graph, after: &Graph, dims: &DimBinding) {
    for seed in 0..3 {
        let given = bindings(before, dims, seed);
        let context = || format!("seed {seed}, {dims:?}\nbefore: {before}after: {after}");
        let want = oracle::evaluate(before, &given).unwrap_or_else(|e| panic!("{e}\n{}", context()));
        let got = oracle::evaluate(after, &given).unwrap_or_else(|e| panic!("{e}\n{}", context()));
        for (want, got) in want.iter().zip(&got) {
            assert_close(want, got, tolerance(want.dtype), &context());
        }
    }
}

/// Panics unless `pass` turns the text `before` into the text `after`, without changing the results.
pub fn check(pass: PassFn, before: &str, after: &str) {
    check_with(pass, before, after, &CompileOptions::default());
}

/// [`check`] under other options.
pub fn check_with(pass: PassFn, before: &str, after: &str, options: &CompileOptions) {
    let before = parse(before);
    let got = apply_with(pass, &before, options);
    let want = parse(after);
    assert_eq!(got.to_string(), want.to_string(), "\ngot: {got}\nwant: {want}");
    assert_same_results(&before, &got, &DimBinding::batch_seq(2, 3));
}

/// Panics if `pass` changes the text.
pub fn check_unchanged(pass: PassFn, text: &str) {
    let before = parse(text);
    let got = apply(pass, &before);
    assert_eq!(got.to_string(), before.to_string(), "changed to: {got}");
}

/// How many nodes of this kind there are.
pub fn count(graph: &Graph, kind: rlx_ir::OpKind) -> usize {
    graph.nodes().iter().filter(|n| n.op.kind() == kind).count()
}

/// A graph from text without numbers and shapes: `x: [2, 3] f32` is an input, `w: param [3] f32` a parameter,
/// `y = Binary.Mul(x, 0.5)` a node whose shape is inferred, numbers being f32 scalars.
pub fn short(text: &str) -> Graph {
    let (mut graph, mut names) = (Graph::new("g"), std::collections::HashMap::new());
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        if let Some(outputs) = line.strip_prefix("return ") {
            graph.set_outputs(outputs.split(", ").map(|name| names[name]).collect());
        } else if let Some((name, op)) = line.split_once(" = ") {
            let id = short_node(&mut graph, &names, op).unwrap_or_else(|e| panic!("{line}: {e}"));
            names.insert(name.to_string(), id);
        } else if let Some((name, shape)) = line.split_once(": ") {
            let kind = if shape.starts_with("param ") { "Param" } else { "Input" };
            let shape = shape.trim_start_matches("param ");
            let node = format!("%{} = {kind} {{name=\"{name}\"}} : {shape}", graph.len());
            let node = text::parse(&with_node(&graph, &node)).unwrap_or_else(|e| panic!("{line}: {e}"));
            let node = &node.nodes()[graph.len()];
            names.insert(name.to_string(), graph.add_node(node.op.clone(), vec![], node.shape.clone()));
        } else {
            panic!("what is {line}?");
        }
    }
    verify_ok(&graph).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    graph
}

/// The text of `graph` with one node more.
fn with_node(graph: &Graph, node: &str) -> String {
    let text = graph.to_string();
    let end = text.rfind("  return").unwrap();
    format!("{}  {node}\n  return %{}\n}}\n", &text[..end], graph.len())
}

fn short_node(
    graph: &mut Graph,
    names: &std::collections::HashMap<String, rlx_ir::NodeId>,
    op: &str,
) -> Result<rlx_ir::NodeId> {
    let (kind, rest) = op.split_once('(').expect("an op with inputs");
    let (inputs, attrs) = rest.split_once(')').expect("a closing parenthesis");
    let mut ids = Vec::new();
    for input in inputs.split(", ") {
        ids.push(match names.get(input) {
            Some(&id) => id,
            None => {
                let value: f64 = input.parse().unwrap_or_else(|_| panic!("what is {input}?"));
                let value = rlx_ir::Value::float(DType::F32, &[], vec![value]).rounded();
                graph.constant(value.to_const())
            }
        });
    }
    let list: Vec<String> = ids.iter().map(|id| id.to_string()).collect();
    let node = format!("%{} = {kind}({}){attrs} : [] f32", graph.len(), list.join(", "));
    let op = text::parse(&with_node(graph, &node))?.nodes()[graph.len()].op.clone();
    graph.try_add(op, &ids)
}
