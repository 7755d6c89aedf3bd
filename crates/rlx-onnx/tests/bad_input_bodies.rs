//! Hostile `If`, `Loop` and `Scan`: a typed error or the correct result; never a panic, never
//! disproportionate time or memory.

use std::time::{Duration, Instant};

use rlx_ir::oracle::{Bindings, evaluate};
use rlx_ir::{Error, ErrorKind, Value};
use rlx_onnx::proto::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use rlx_onnx::testing::{
    BOOL, FLOAT, INT64, attr, body, file, graph, int, ints, model, node, untyped, value, with,
};
use rlx_onnx::{ImportOptions, Imported, import};
use rlx_runtime::{Cancel, Device, Progress, Session};

/// What any of these files may take.
const MOST: Duration = Duration::from_secs(20);

fn number(name: &str, n: i64) -> TensorProto {
    TensorProto { dims: Vec::new(), ..ints(name, &[n]) }
}

fn named(names: &[&str]) -> Vec<ValueInfoProto> {
    names.iter().map(|name| untyped(name)).collect()
}

/// A model of `x` and `go` (a bool), with these constants and one output `y`.
fn of(nodes: &[NodeProto], constants: &[TensorProto]) -> ModelProto {
    model(&[value("x", FLOAT, &["2"]), value("go", BOOL, &[])], nodes, constants, &[untyped("y")])
}

/// `x` run through a loop of `limit` times whose body doubles it; with `stacks`, what it was each time, too.
fn doubling(limit: i64, stacks: bool) -> ModelProto {
    let nodes = [node("Identity", &["c"], &["c2"]), node("Add", &["v", "v"], &["v2"])];
    let outputs: &[&str] = if stacks { &["c2", "v2", "v"] } else { &["c2", "v2"] };
    let doubles = graph(&named(&["i", "c", "v"]), &nodes, &[], &named(outputs));
    let results: &[&str] = if stacks { &["end", "y"] } else { &["y"] };
    of(
        &[with(node("Loop", &["limit", "go", "x"], results), body("body", doubles))],
        &[number("limit", limit)],
    )
}

fn imported(model: &ModelProto) -> Result<Imported, Error> {
    let started = Instant::now();
    let result = import(&file(model), &ImportOptions::default());
    assert!(started.elapsed() < MOST, "importing took {:?}", started.elapsed());
    result
}

#[track_caller]
fn rejected(model: &ModelProto, why: &str) {
    let e = imported(model).expect_err("the model must not import");
    assert!(e.to_string().contains(why), "{e}");
    assert!(!matches!(e.kind(), ErrorKind::Internal), "{e}");
}

/// What the CPU gives, within a time that even endless loops end at; the oracle must agree.
fn run(imported: &Imported, go: bool) -> Result<Vec<f32>, Error> {
    let mut bindings = Bindings::default();
    bindings.set_input("x", Value::float(rlx_ir::DType::F32, &[2], vec![1.0, -3.0]));
    bindings.set_input("go", Value::bools(&[], [go]));
    let mut compiled = Session::new(Device::Cpu).try_compile(imported.graph.clone())?;
    let progress = Progress::from(&Cancel::new().with_deadline(Duration::from_millis(300)));
    let names: Vec<String> = compiled.inputs().iter().map(|i| i.name.clone()).collect();
    let values = names
        .iter()
        .map(|n| (n.as_str(), if n == "x" { vec![1.0, -3.0] } else { vec![f32::from(u8::from(go))] }));
    let values: Vec<(&str, Vec<f32>)> = values.collect();
    let given: Vec<(&str, &[f32])> = values.iter().map(|(n, v)| (*n, v.as_slice())).collect();
    let found = compiled.try_run_with_progress(&given, &progress)?.remove(0);
    let wanted = evaluate(&imported.graph, &bindings)?[0].to_f64();
    assert_eq!(found.iter().map(|&x| f64::from(x)).collect::<Vec<_>>(), wanted);
    Ok(found)
}

#[test]
fn huge_and_negative_numbers_of_times_cost_nothing() {
    // Nothing is stacked: the loop may run forever, until a deadline passes.
    for limit in [i64::MAX, 1 << 40] {
        let endless = imported(&doubling(limit, false)).expect("such loops are legal");
        assert_eq!(run(&endless, false).expect("it never runs"), [1.0, -3.0]);
        assert_eq!(run(&endless, true).expect_err("it never ends").kind(), ErrorKind::Cancelled);
    }
    for limit in [0, -1, i64::MIN] {
        let never = imported(&doubling(limit, false)).expect("such loops are legal");
        assert_eq!(run(&never, true).expect("it never runs"), [1.0, -3.0]);
    }
    // The stacked outputs would not fit in any memory.
    for limit in [i64::MAX, 1 << 60, 1 << 40] {
        let e = imported(&doubling(limit, true)).and_then(|large| run(&large, true)).expect_err("no room");
        assert!(!e.message().is_empty() && e.kind() != ErrorKind::Internal, "{limit}: {e}");
    }
    for limit in [0, -1, i64::MIN] {
        let never = imported(&doubling(limit, true)).expect("such loops are legal");
        assert_eq!(run(&never, true).expect("it never runs"), []);
    }
}

/// `levels` of `op` around one another.
fn nested(levels: usize, wrap: impl Fn(GraphProto) -> NodeProto) -> ModelProto {
    let mut inner = graph(&[], &[node("Neg", &["x"], &["y"])], &[], &named(&["y"]));
    for _ in 0..levels {
        inner = graph(&[], &[wrap(inner)], &[], &named(&["y"]));
    }
    of(&inner.node, &[number("many", 32)])
}

fn choice(then: GraphProto) -> NodeProto {
    let otherwise = graph(&[], &[node("Abs", &["x"], &["y"])], &[], &named(&["y"]));
    with(with(node("If", &["go"], &["y"]), body("then_branch", then)), body("else_branch", otherwise))
}

#[test]
fn bodies_within_bodies_are_bounded() {
    let few = imported(&nested(4, choice)).expect("some levels are fine");
    assert_eq!(run(&few, true).expect("it runs"), [-1.0, 3.0]);
    assert_eq!(run(&few, false).expect("it runs"), [1.0, 3.0]);
    let started = Instant::now();
    let most = imported(&nested(8, choice)).expect("as many levels as there may be");
    assert_eq!(run(&most, true).expect("it runs"), [-1.0, 3.0]);
    assert!(started.elapsed() < MOST, "{:?}", started.elapsed());
    rejected(&nested(9, choice), "nest too deep");
    rejected(&nested(20, choice), "nest too deep");
    // Each of these loops would be unrolled: 32 to the power of their number.
    let again = |inner: GraphProto| {
        let mut inner = inner;
        inner.input = named(&["i", "c"]);
        inner.node.push(node("Identity", &["c"], &["c2"]));
        inner.output = named(&["c2", "y"]);
        with(node("Loop", &["many", ""], &["y"]), body("body", inner))
    };
    for levels in [4, 12] {
        let e = imported(&nested(levels, again)).expect_err("too many nodes");
        assert!(!e.message().is_empty() && e.kind() != ErrorKind::Internal, "{e}");
    }
}

#[test]
fn names_from_outside_are_those_that_are_there() {
    let branch = |name: &str| graph(&[], &[node("Neg", &[name], &["y"])], &[], &named(&["y"]));
    for unknown in ["nothing", "later", "y"] {
        let nodes = [choice(branch(unknown)), node("Abs", &["x"], &["later"])];
        rejected(&of(&nodes, &[]), unknown);
    }
    // A body gives what it does not have.
    let mut empty = branch("x");
    empty.output = named(&["absent"]);
    rejected(&of(&[choice(empty)], &[]), "absent");
    // What a body defines stays in it.
    let leak = node("Neg", &["hidden"], &["z"]);
    let hides = graph(
        &[],
        &[node("Neg", &["x"], &["hidden"]), node("Abs", &["hidden"], &["y"])],
        &[],
        &named(&["y"]),
    );
    rejected(&of(&[choice(hides), leak], &[]), "hidden");
}

#[test]
fn bodies_that_do_not_fit_are_rejected() {
    let lone = of(&[node("If", &["go"], &["y"])], &[]);
    rejected(&lone, "then_branch");
    rejected(&of(&[node("Loop", &["", "go", "x"], &["y"])], &[]), "body");
    let mut untyped_body = of(&[with(node("Loop", &["", "go", "x"], &["y"]), int("body", 3))], &[]);
    rejected(&untyped_body, "body");
    untyped_body.graph = None;
    assert!(rlx_onnx::OnnxFile::from_bytes(prost::Message::encode_to_vec(&untyped_body)).is_err());

    let looped = |inputs: &[&str], nodes: &[NodeProto], outputs: &[&str]| {
        let inner = graph(&named(inputs), nodes, &[], &named(outputs));
        of(&[with(node("Loop", &["", "go", "x"], &["y"]), body("body", inner))], &[])
    };
    let same = [node("Identity", &["c"], &["c2"]), node("Neg", &["v"], &["v2"])];
    imported(&looped(&["i", "c", "v"], &same, &["c2", "v2"])).expect("this one fits");
    let wrong: &[(&[&str], &[&str])] = &[
        (&["i", "c", "v", "w"], &["c2", "v2"]),
        (&["v"], &["c2", "v2"]),
        (&["i", "c", "v"], &["c2"]),
        (&["i", "c", "v"], &[]),
        (&["i", "c", "v"], &["v2", "v2"]),
        (&["i", "c", "v"], &["c2", "i"]),
        (&["i", "i", "i"], &["c2", "v2"]),
    ];
    for (inputs, outputs) in wrong {
        let e = imported(&looped(inputs, &same, outputs)).expect_err("it does not fit");
        assert!(!e.message().is_empty() && e.kind() != ErrorKind::Internal, "{inputs:?} {outputs:?}: {e}");
    }
    // A carried value that grows.
    let grows =
        [node("Identity", &["c"], &["c2"]), with(node("Concat", &["v", "v"], &["v2"]), int("axis", 0))];
    let e = imported(&looped(&["i", "c", "v"], &grows, &["c2", "v2"])).expect_err("it grows");
    assert!(!e.message().is_empty() && e.kind() != ErrorKind::Internal, "{e}");
}

#[test]
fn scans_with_absurd_attributes_are_rejected() {
    let scan = |scanned: i64, extra: &[(&str, &[i64])]| {
        let inner =
            graph(&named(&["s", "e"]), &[node("Add", &["s", "e"], &["s2"])], &[], &named(&["s2", "e"]));
        let mut scan = with(node("Scan", &["first", "x"], &["end", "y"]), body("body", inner));
        scan = with(scan, int("num_scan_inputs", scanned));
        for (name, values) in extra {
            let mut list = attr(name, rlx_onnx::proto::attribute_proto::AttributeType::Ints);
            list.ints = values.to_vec();
            scan = with(scan, list);
        }
        let first = TensorProto { float_data: vec![0.5], data_type: Some(FLOAT), ..number("first", 0) };
        of(&[scan], &[TensorProto { int64_data: Vec::new(), ..first }])
    };
    let fine = imported(&scan(1, &[])).expect("this one fits");
    assert_eq!(run(&fine, true).expect("it runs"), [1.0, -3.0]);
    for scanned in [0, -1, 2, 3, i64::MAX, i64::MIN] {
        let e = imported(&scan(scanned, &[])).expect_err("other operands than there are");
        assert!(!e.message().is_empty() && e.kind() != ErrorKind::Internal, "{scanned}: {e}");
    }
    let wrong: &[(&str, &[i64])] = &[
        ("scan_input_axes", &[1]),
        ("scan_input_axes", &[i64::MIN]),
        ("scan_input_axes", &[0, 0]),
        ("scan_input_axes", &[]),
        ("scan_input_directions", &[0, 0]),
        ("scan_output_axes", &[5]),
        ("scan_output_axes", &[-9]),
        ("scan_output_directions", &[1, 1, 1]),
    ];
    for &extra in wrong {
        let e = imported(&scan(1, &[extra])).expect_err("an absurd attribute");
        assert!(!e.message().is_empty() && e.kind() != ErrorKind::Internal, "{extra:?}: {e}");
    }
    // Tensors of different lengths.
    let inner = graph(&named(&["a", "b"]), &[node("Add", &["a", "b"], &["s"])], &[], &named(&["s"]));
    let both =
        with(with(node("Scan", &["x", "three"], &["y"]), body("body", inner)), int("num_scan_inputs", 2));
    let three =
        TensorProto { float_data: vec![1.0; 3], data_type: Some(FLOAT), dims: vec![3], ..number("three", 0) };
    let uneven = of(&[both], &[TensorProto { int64_data: Vec::new(), ..three }]);
    let e = imported(&uneven).and_then(|uneven| run(&uneven, true)).expect_err("two and three slices");
    assert!(!e.message().is_empty() && e.kind() != ErrorKind::Internal, "{e}");
    // An element type that no body takes.
    let wide = value("x", INT64, &["2"]);
    assert!(
        imported(&ModelProto {
            graph: Some(GraphProto {
                input: vec![wide, value("go", BOOL, &[])],
                ..scan(1, &[]).graph.unwrap()
            }),
            ..scan(1, &[])
        })
        .is_err()
    );
}
