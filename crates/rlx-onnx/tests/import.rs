//! The importer beyond single ops: symbolic shapes, specialisation on values, functions, branches, weights
//! used in place, origins, and errors that say what is missing and where.

use rlx_ir::custom::{CustomOp, register_custom_op};
use rlx_ir::op::{Arity, CustomAttrs};
use rlx_ir::oracle::{Bindings, evaluate};
use rlx_ir::progress::{Cancel, Progress};
use rlx_ir::{ConstData, DType, Dim, Error, ErrorKind, Op, Shape, Value, sym};
use rlx_onnx::proto::attribute_proto::AttributeType;
use rlx_onnx::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto,
};
use rlx_onnx::testing::{self, BOOL, FLOAT, INT64, attr, body, file, float, int, ints, node, value, with};
use rlx_onnx::{ImportOptions, Imported, import, import_with_progress, needed_input};

/// A model with one output, of whatever type it has.
fn model(
    inputs: &[ValueInfoProto],
    nodes: &[NodeProto],
    constants: &[TensorProto],
    output: &str,
) -> ModelProto {
    testing::model(inputs, nodes, constants, &[testing::untyped(output)])
}

fn imported(model: &ModelProto) -> Imported {
    import(&file(model), &ImportOptions::default()).expect("the model imports")
}

fn error(model: &ModelProto) -> rlx_ir::Error {
    import(&file(model), &ImportOptions::default()).expect_err("the model must not import")
}

fn run(imported: &Imported, inputs: &[(&str, Value)]) -> Vec<f64> {
    let mut bindings = Bindings::default();
    for (name, value) in inputs {
        bindings.set_input(*name, value.clone());
    }
    evaluate(&imported.graph, &bindings).expect("the graph runs")[0].to_f64()
}

fn floats(dims: &[usize], values: &[f64]) -> Value {
    Value::float(rlx_ir::DType::F32, dims, values.to_vec())
}

/// `[batch, seq, 768]` to `[batch, seq, 12, 64]` as exporters write it.
fn split_heads() -> ModelProto {
    let nodes = [
        node("Shape", &["x"], &["shape"]),
        with(node("Gather", &["shape", "zero"], &["b"]), int("axis", 0)),
        with(node("Gather", &["shape", "one"], &["s"]), int("axis", 0)),
        with(node("Concat", &["b", "s", "heads"], &["target"]), int("axis", 0)),
        node("Reshape", &["x", "target"], &["y"]),
    ];
    let constants = [ints("zero", &[0]), ints("one", &[1]), ints("heads", &[12, -1])];
    model(&[value("x", FLOAT, &["batch", "seq", "768"])], &nodes, &constants, "y")
}

#[test]
fn shape_arithmetic_leaves_no_nodes() {
    let imported = imported(&split_heads());
    let ops: Vec<&Op> = imported.graph.nodes().iter().map(|n| &n.op).collect();
    assert!(matches!(ops[..], [Op::Input { .. }, Op::Reshape { .. }]), "{ops:?}");
    let y = imported.graph.shape(imported.graph.outputs[0]);
    let (b, s) = (Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ));
    assert_eq!(y.dims(), [b, s, Dim::Static(12), Dim::Static(64)]);
    assert_eq!(imported.outputs, ["y"]);
}

#[test]
fn einsum_of_matrices_is_a_matmul() {
    let numbers = |n: usize| (0..n).map(|i| (i * i % 7) as f64 - 3.0).collect::<Vec<f64>>();
    let einsum = |equation: &str, x: &[&str], y: &[&str]| {
        let bytes = equation.as_bytes().to_vec();
        let equation = AttributeProto { s: Some(bytes.into()), ..attr("equation", AttributeType::String) };
        let model = model(
            &[value("x", FLOAT, x), value("y", FLOAT, y)],
            &[with(node("Einsum", &["x", "y"], &["z"]), equation)],
            &[],
            "z",
        );
        let imported = imported(&model);
        let sizes = |dims: &[&str]| dims.iter().map(|d| d.parse().unwrap_or(2)).collect::<Vec<usize>>();
        let operand = |dims: &[&str]| floats(&sizes(dims), &numbers(sizes(dims).iter().product()));
        let z = run(&imported, &[("x", operand(x)), ("y", operand(y))]);
        let matmul = imported.graph.nodes().iter().any(|n| n.op == Op::MatMul);
        (matmul, z)
    };
    assert!(einsum("bhij,bhjk->bhik", &["b", "3", "4", "5"], &["b", "3", "5", "6"]).0);
    assert!(einsum("bhij,bhkj->bhik", &["b", "3", "4", "5"], &["b", "3", "6", "5"]).0);
    // Σ x[b, j, i] · y[b, k, j].
    let (is, both) = einsum("bji,bkj->bik", &["b", "5", "4"], &["b", "6", "5"]);
    let (x, y) = (numbers(2 * 5 * 4), numbers(2 * 6 * 5));
    let sum = |b: usize, i: usize, k: usize| {
        (0..5).map(|j| x[(b * 5 + j) * 4 + i] * y[(b * 6 + k) * 5 + j]).sum::<f64>()
    };
    let wanted: Vec<f64> = (0..2 * 4 * 6).map(|at| sum(at / 24, at / 6 % 4, at % 6)).collect();
    assert!(is && both == wanted, "{both:?}");
    // More to sum over, nothing, or a batch that is not in front.
    for (equation, x, y) in [
        ("bij,bij->b", ["b", "4", "5"], ["b", "4", "5"]),
        ("bi,bj->bij", ["b", "4", ""], ["b", "5", ""]),
        ("ibj,bjk->ibk", ["4", "b", "5"], ["b", "5", "6"]),
    ] {
        let given = |dims: [&'static str; 3]| dims.into_iter().filter(|d| !d.is_empty()).collect::<Vec<_>>();
        assert!(!einsum(equation, &given(x), &given(y)).0, "{equation}");
    }
}

#[test]
fn a_slice_before_the_end_of_a_window_result_needs_no_clamp() {
    // Every second element, then all but the last: a run has at least one before that.
    let nodes = [
        node("Slice", &["x", "from", "far", "axis", "two"], &["h"]),
        node("Slice", &["h", "from", "last", "axis"], &["y"]),
    ];
    let constants = [
        ints("from", &[0]),
        ints("far", &[i64::MAX]),
        ints("axis", &[0]),
        ints("two", &[2]),
        ints("last", &[-1]),
    ];
    let imported = imported(&model(&[value("x", FLOAT, &["n"])], &nodes, &constants, "y"));
    let y = imported.graph.shape(imported.graph.outputs[0]);
    assert_eq!(y.dim(0).to_string(), "-1 + floordiv(1 + n, 2)");
    assert_eq!(imported.graph.symbol_range(sym::named("n")).min, 1);
    assert_eq!(run(&imported, &[("x", floats(&[5], &[1.0, 2.0, 3.0, 4.0, 5.0]))]), [1.0, 3.0]);
}

#[test]
fn named_dimensions_take_given_sizes() {
    let mut options = ImportOptions::default();
    options.dims.insert("batch".to_owned(), 2);
    options.dims.insert("unknown".to_owned(), 9);
    let imported = import(&file(&split_heads()), &options).unwrap();
    let y = imported.graph.shape(imported.graph.outputs[0]);
    assert_eq!(y.dims()[..2], [Dim::Static(2), Dim::Dynamic(sym::SEQ)]);
}

#[test]
fn dimensions_as_data_are_read_at_run_time() {
    let nodes = [
        node("Shape", &["x"], &["shape"]),
        with(node("Cast", &["shape"], &["sizes"]), int("to", i64::from(FLOAT))),
        node("Mul", &["sizes", "sizes"], &["y"]),
    ];
    let imported = imported(&model(&[value("x", FLOAT, &["batch", "seq"])], &nodes, &[], "y"));
    assert!(rlx_ir::verify(&imported.graph).is_empty());
    assert_eq!(run(&imported, &[("x", floats(&[2, 5], &[0.0; 10]))]), [4.0, 25.0]);
}

#[test]
fn a_shape_that_hangs_on_an_input_names_it_and_takes_its_value() {
    let inputs = [value("x", FLOAT, &["6"]), value("target", INT64, &["2"])];
    let nodes = [node("Identity", &["target"], &["t"]), node("Reshape", &["x", "t"], &["y"])];
    let model = model(&inputs, &nodes, &[], "y");
    let needs = error(&model);
    assert_eq!((needs.kind(), needed_input(&needs)), (ErrorKind::NeedsInputValue, Some("target")));

    let mut options = ImportOptions::default();
    let target = ConstData::from_i64(&[2], &[3, 2]).unwrap();
    options.input_values.insert("target".to_owned(), target);
    let imported = import(&file(&model), &options).unwrap();
    assert_eq!(imported.specialised, ["target"]);
    assert_eq!(imported.graph.inputs().count(), 2, "what the model declares stays an input");
    assert_eq!(imported.graph.shape(imported.graph.outputs[0]).dims(), [Dim::Static(3), Dim::Static(2)]);

    let wrong = ConstData::from_i64(&[3], &[3, 2, 1]).unwrap();
    options.input_values.insert("target".to_owned(), wrong);
    assert_eq!(import(&file(&model), &options).unwrap_err().kind(), ErrorKind::Binding);
}

/// `scale·x + bias`, the scale an attribute of the function, the bias an optional operand.
fn scaled(body: Vec<NodeProto>) -> ModelProto {
    let calls = [
        NodeProto {
            domain: Some("test".to_owned()),
            ..with(node("Scaled", &["x"], &["a"]), float("scale", 3.0))
        },
        NodeProto { domain: Some("test".to_owned()), ..node("Scaled", &["a", "x"], &["y"]) },
    ];
    let mut model = model(&[value("x", FLOAT, &["2"])], &calls, &[], "y");
    let function = FunctionProto {
        name: Some("Scaled".to_owned()),
        domain: Some("test".to_owned()),
        input: vec!["v".to_owned(), "bias".to_owned()],
        output: vec!["out".to_owned()],
        attribute_proto: vec![float("scale", 2.0)],
        node: body,
        opset_import: model.opset_import.clone(),
        ..Default::default()
    };
    model.functions.push(function);
    model
}

#[test]
fn functions_are_inlined_with_attributes_and_operands_left_out() {
    let reference = AttributeProto {
        ref_attr_name: Some("scale".to_owned()),
        ..attr("value_float", AttributeType::Float)
    };
    // Clip takes its lower bound from the operand that the first call leaves out.
    let body = vec![
        with(node("Constant", &[], &["s"]), reference),
        node("Mul", &["v", "s"], &["scaled"]),
        node("Clip", &["scaled", "bias"], &["out"]),
    ];
    let model = scaled(body);
    let mut mine = model.clone();
    // A scalar bound, as Clip asks for.
    mine.graph.as_mut().unwrap().input.push(value("least", FLOAT, &[]));
    mine.graph.as_mut().unwrap().node[1].input[1] = "least".to_owned();
    let imported = imported(&mine);
    let least = Value::float(rlx_ir::DType::F32, &[], vec![0.0]);
    let y = run(&imported, &[("x", floats(&[2], &[1.0, -2.0])), ("least", least)]);
    assert_eq!(y, [6.0, 0.0]);
    let origins: Vec<_> =
        imported.graph.nodes().iter().filter_map(|n| imported.graph.origins().describe(n.origin)).collect();
    assert!(origins.iter().any(|o| o == "test.Scaled//scaled/Mul"), "{origins:?}");
}

#[test]
fn functions_that_call_themselves_are_rejected() {
    let body = vec![NodeProto { domain: Some("test".to_owned()), ..node("Scaled", &["v"], &["out"]) }];
    let e = error(&scaled(body));
    assert_eq!(e.kind(), ErrorKind::Malformed);
    assert!(e.to_string().contains("calls itself"), "{e}");
}

#[test]
fn functions_that_grow_without_bound_are_rejected() {
    // Each of 30 functions calls the next one twice: a thousand million nodes from a small file.
    let mut model = scaled(vec![node("Identity", &["v"], &["out"])]);
    let template = model.functions[0].clone();
    model.functions = (0..30)
        .map(|i| {
            let call = |input: &str, output: &str| NodeProto {
                domain: Some("test".to_owned()),
                ..node(&format!("F{}", i + 1), &[input], &[output])
            };
            let node =
                if i < 29 { vec![call("v", "mid"), call("mid", "out")] } else { template.node.clone() };
            let name = if i == 0 { "Scaled".to_owned() } else { format!("F{i}") };
            FunctionProto { name: Some(name), node, ..template.clone() }
        })
        .collect();
    let e = error(&model);
    assert!(e.to_string().contains("functions inlined"), "{e}");
}

fn branch(op: &str) -> GraphProto {
    testing::graph(&[], &[node(op, &["x"], &["result"])], &[], &[testing::untyped("result")])
}

fn choice(condition: &str, constants: &[TensorProto]) -> ModelProto {
    let then = body("then_branch", branch("Neg"));
    let otherwise = body("else_branch", branch("Abs"));
    let choose = with(with(node("If", &[condition], &["y"]), then), otherwise);
    let inputs = [value("x", FLOAT, &["2"]), value("given", BOOL, &[])];
    let computed = [node("ReduceMax", &["x"], &["m"]), node("Greater", &["m", "m"], &["data"]), choose];
    model(&inputs, &computed, constants, "y")
}

#[test]
fn known_conditions_take_their_branch() {
    let condition = |truth: u8| TensorProto {
        name: Some("c".to_owned()),
        data_type: Some(BOOL),
        raw_data: Some(vec![truth].into()),
        ..Default::default()
    };
    let x = floats(&[2], &[1.0, -2.0]);
    let given = Value::bools(&[], [true]);
    for (truth, expected) in [(1, [-1.0, 2.0]), (0, [1.0, 2.0])] {
        let imported = imported(&choice("c", &[condition(truth)]));
        assert_eq!(run(&imported, &[("x", x.clone()), ("given", given.clone())]), expected);
    }
    // A condition from outside, or one that is computed, chooses when the graph runs.
    for (truth, expected) in [(true, [-1.0, 2.0]), (false, [1.0, 2.0])] {
        let imported = imported(&choice("given", &[]));
        let given = Value::bools(&[], [truth]);
        assert_eq!(run(&imported, &[("x", x.clone()), ("given", given)]), expected);
    }
    let computed = imported(&choice("data", &[]));
    assert_eq!(run(&computed, &[("x", x), ("given", given)]), [1.0, 2.0]);
    // Branches that give other shapes must be chosen before.
    let mut unlike = choice("given", &[]);
    let choose = &mut unlike.graph.as_mut().unwrap().node[2];
    choose.attribute[1].g.as_mut().unwrap().node[0].op_type = Some("Size".to_owned());
    assert_eq!(needed_input(&error(&unlike)), Some("given"));
}

#[test]
fn weights_stay_where_the_file_has_them() {
    let weight = TensorProto {
        name: Some("w".to_owned()),
        data_type: Some(FLOAT),
        dims: vec![2],
        raw_data: Some([1f32, -1.0].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>().into()),
        ..Default::default()
    };
    let unused = TensorProto { name: Some("unused".to_owned()), ..weight.clone() };
    let nodes = [node("Add", &["x", "w"], &["y"])];
    let model = model(&[value("x", FLOAT, &["2"])], &nodes, &[weight, unused], "y");
    let file = file(&model);
    let raw = file.graph().initializer[0].raw_data.clone().unwrap();
    let imported = import(&file, &ImportOptions::default()).unwrap();
    assert_eq!(imported.weights.len(), 1, "what no node uses is left out");
    let stored = imported.weights.get("w").unwrap();
    assert_eq!(stored.bytes().unwrap().as_ptr(), raw.as_ptr());
    assert_eq!(imported.graph.params().count(), 1);
}

#[test]
fn unsupported_ops_are_named_with_domain_and_types() {
    let unknown = model(&[value("x", FLOAT, &["2"])], &[node("NoSuchOp", &["x"], &["y"])], &[], "y");
    let e = error(&unknown);
    assert_eq!(e.kind(), ErrorKind::Unsupported);
    let text = e.to_string();
    for part in ["NoSuchOp", "/y", "ai.onnx", "opset 17", "[2] f32"] {
        assert!(text.contains(part), "{part} in: {text}");
    }
    let mut newer = unknown.clone();
    newer.opset_import[0].version = Some(99);
    assert!(error(&newer).to_string().contains("opset 99"));
}

#[test]
fn broken_structure_is_an_error() {
    let x = [value("x", FLOAT, &["2"])];
    let undefined = model(&x, &[node("Neg", &["nothing"], &["y"])], &[], "y");
    let twice = model(&x, &[node("Neg", &["x"], &["y"]), node("Abs", &["x"], &["y"])], &[], "y");
    let no_output = model(&x, &[node("Neg", &["x"], &["z"])], &[], "y");
    let later = model(&x, &[node("Neg", &["b"], &["y"]), node("Abs", &["x"], &["b"])], &[], "y");
    for broken in [undefined, twice, no_output, later] {
        assert_eq!(error(&broken).kind(), ErrorKind::Malformed);
    }
    let typed = model(&x, &[with(node("LeakyRelu", &["x"], &["y"]), int("alpha", 1))], &[], "y");
    assert!(error(&typed).to_string().contains("attribute alpha is INT, not FLOAT"));
}

/// `x · factor`, with one more result that counts the elements.
struct Scale;

impl CustomOp for Scale {
    fn name(&self) -> &str {
        "com.example.Scale"
    }

    fn arity(&self) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, attrs: &CustomAttrs, inputs: &[&Shape]) -> Result<Vec<Shape>, Error> {
        attrs.float("factor")?;
        Ok(vec![inputs[0].clone(), Shape::scalar(DType::I64)])
    }

    fn reference(&self, attrs: &CustomAttrs, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>, Error> {
        let (x, factor) = (inputs[0], attrs.float("factor")?);
        let scaled: Vec<f64> = x.floats()?.iter().map(|x| x * factor).collect();
        let count = Value::int(DType::I64, &[], vec![scaled.len() as i128]);
        Ok(vec![Value::float(x.dtype, &x.dims, scaled), count])
    }
}

#[test]
fn ops_of_contributed_domains_are_the_programs_own() {
    let scale =
        |op: &str| NodeProto { domain: Some("com.example".to_owned()), ..node(op, &["x"], &["y", "n"]) };
    let of = |scale: NodeProto| {
        model(&[value("x", FLOAT, &["batch", "2"])], &[scale, node("Relu", &["y"], &["out"])], &[], "out")
    };
    // No one knows it yet.
    let imported = |m: &ModelProto| import(&file(m), &ImportOptions::default());
    let known = of(with(scale("Scale"), float("factor", 0.5)));
    let e = imported(&known).unwrap_err();
    assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains("com.example.Scale"), "{e}");
    register_custom_op(Scale).unwrap();
    let graph = imported(&known).unwrap().graph;
    assert!(matches!(&graph.nodes()[1].op, Op::Custom { name, .. } if name == "com.example.Scale"));
    assert_eq!(graph.shape(graph.outputs[0]).to_string(), "[batch, 2] f32");
    let mut bindings = Bindings::default();
    bindings.set_input("x", Value::float(DType::F32, &[2, 2], vec![2.0, -4.0, 6.0, 1.0]));
    assert_eq!(evaluate(&graph, &bindings).unwrap()[0].to_f64(), [1.0, 0.0, 3.0, 0.5]);
    // What its own rule rejects names the node; another op of the domain is still unknown.
    let e = imported(&of(scale("Scale"))).unwrap_err();
    assert!(e.to_string().contains("\"factor\" is missing") && e.origin() == Some("/y/Scale"), "{e}");
    assert!(imported(&of(scale("Other"))).unwrap_err().to_string().contains("com.example.Other"));
}

#[test]
fn sizes_that_explode_are_rejected_at_their_node() {
    let names: Vec<String> = (0..8).map(|i| format!("s{i}")).collect();
    let inputs: Vec<ValueInfoProto> = names.iter().map(|name| value(name, FLOAT, &[name])).collect();
    let mut nodes: Vec<NodeProto> = names.iter().map(|n| node("Shape", &[n], &[&format!("{n}d")])).collect();
    let sizes: Vec<String> = names.iter().map(|n| format!("{n}d")).collect();
    nodes.push(node("Add", &["s0d", "s1d"], &["a1"]));
    nodes.extend((2..8).map(|i| node("Add", &[&format!("a{}", i - 1), &sizes[i]], &[&format!("a{i}")])));
    nodes.push(node("Identity", &["a7"], &["v0"]));
    nodes.extend(
        (0..9).map(|i| node("Mul", &[&format!("v{i}"), &format!("v{i}")], &[&format!("v{}", i + 1)])),
    );
    nodes.push(node("Reshape", &["s0", "v9"], &["y"]));
    let e = error(&model(&inputs, &nodes, &[], "y"));
    assert_eq!((e.kind(), e.origin()), (ErrorKind::Dimension, Some("/v2/Mul")), "{e}");
    assert!(e.to_string().contains("--dim NAME=VALUE"), "{e}");
}

#[test]
fn an_import_stops_within_functions() {
    let opset = rlx_onnx::proto::OperatorSetIdProto { domain: None, version: Some(17) };
    let own = rlx_onnx::proto::OperatorSetIdProto { domain: Some("own".to_owned()), version: Some(1) };
    let function = FunctionProto {
        name: Some("f".to_owned()),
        domain: own.domain.clone(),
        input: vec!["v0".to_owned()],
        output: vec!["v2".to_owned()],
        node: (0..2).map(|i| node("Exp", &[&format!("v{i}")], &[&format!("v{}", i + 1)])).collect(),
        opset_import: vec![opset],
        ..Default::default()
    };
    let call = NodeProto { domain: own.domain.clone(), ..node("f", &["x"], &["y"]) };
    let mut model = model(&[value("x", FLOAT, &["2"])], &[call], &[], "y");
    model.opset_import.push(own);
    model.functions.push(function);
    // The callback speaks after the node's own question whether to go on.
    let cancel = Cancel::new();
    let stop = cancel.clone();
    let progress = Progress::from(&cancel).reporting(move |_| stop.cancel());
    let e = import_with_progress(&file(&model), &ImportOptions::default(), &progress).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Cancelled, "{e}");
}
