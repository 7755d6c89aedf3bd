//! Models in which a tensor that they compute decides a shape that nothing bounds: they run in two stages.

use rlx::{Model, Runner};
use rlx_ir::{ConstData, ErrorKind};
use rlx_onnx::proto::ModelProto;
use rlx_onnx::testing::{
    FLOAT, INT64, body, file, graph, int, ints, model, node, untyped, value, weight, with,
};
use rlx_onnx::{ImportOptions, import, needed_tensor};
use rlx_runtime::{CompileOptions, Device, Session};

fn runner(proto: &ModelProto) -> Runner {
    let model = Model::new("staged", file(proto));
    Runner::new(model, Session::new(Device::Cpu), CompileOptions::default())
}

/// `0 … ⌈Σ eˣ⌉` and twice that, for `x` of any length.
fn counted() -> ModelProto {
    let nodes = [
        node("Exp", &["x"], &["e"]),
        with(node("ReduceSum", &["e"], &["sum"]), int("keepdims", 0)),
        node("Ceil", &["sum"], &["whole"]),
        with(node("Cast", &["whole"], &["count"]), int("to", i64::from(INT64))),
        node("Range", &["zero", "count", "one"], &["y"]),
        node("Add", &["y", "y"], &["z"]),
    ];
    let scalar = |name: &str, n: i64| rlx_onnx::proto::TensorProto { dims: Vec::new(), ..ints(name, &[n]) };
    let x = value("x", FLOAT, &["n"]);
    model(&[x], &nodes, &[scalar("zero", 0), scalar("one", 1)], &[untyped("y"), untyped("z")])
}

fn x(values: &[f32]) -> ConstData {
    ConstData::from_f32(&[values.len()], values).unwrap()
}

fn count_up_to(n: i64) -> Vec<i64> {
    (0..n).collect()
}

#[test]
fn a_length_that_the_model_computes_is_found_out_first() {
    let mut runner = runner(&counted());
    // e⁰ + e⁰ + e¹ = 4.7, e² = 7.4, and the first again.
    for (values, n) in [(&[0.0, 0.0, 1.0][..], 5), (&[2.0], 8), (&[0.0, 0.0, 1.0], 5)] {
        let outputs = runner.run(&[("x", &x(values))]).unwrap();
        assert_eq!(outputs[0].0, "y");
        assert_eq!(outputs[0].1.as_i64().unwrap(), count_up_to(n));
        assert_eq!(outputs[1].1.as_i64().unwrap(), count_up_to(n).iter().map(|i| 2 * i).collect::<Vec<_>>());
    }
    // The same length for another input: nothing is compiled again, and x itself stays an input.
    let before = runner.import(&[("x", &x(&[2.0]))]).unwrap();
    let after = runner.import(&[("x", &x(&[2.05]))]).unwrap();
    assert!(std::sync::Arc::ptr_eq(&before, &after));
    assert_eq!(before.specialised, ["count"]);
}

#[test]
fn threads_share_a_model_that_runs_in_stages() {
    let shared = runner(&counted()).shared();
    std::thread::scope(|scope| {
        for (value, n) in [(2.0, 8), (0.0, 1), (1.0, 3)] {
            let shared = &shared;
            scope.spawn(move || {
                let input = x(&[value]);
                for _ in 0..5 {
                    let outputs = shared.run(&[("x", &input)]).unwrap();
                    assert_eq!(outputs[0].1.as_i64().unwrap(), count_up_to(n));
                }
            });
        }
    });
}

#[test]
fn a_model_of_stages_is_not_compiled_ahead_of_time() {
    let path = std::env::temp_dir().join(format!("rlx-stages-{}.rlx", std::process::id()));
    let error = runner(&counted()).compile_to(&path, &[("x", &x(&[2.0]))], false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("\"count\"") && !path.exists(), "{error}");
}

#[test]
fn branches_of_different_rank_are_chosen_by_the_stage_before() {
    let one = |op: &str| graph(&[], &[node(op, &["x"], &["b"])], &[], &[untyped("b")]);
    let whole =
        graph(&[], &[with(node("ReduceSum", &["x"], &["b"]), int("keepdims", 0))], &[], &[untyped("b")]);
    let choice = with(
        with(node("If", &["large"], &["y"]), body("then_branch", one("Identity"))),
        body("else_branch", whole),
    );
    let nodes = [
        with(node("ReduceMax", &["x"], &["most"]), int("keepdims", 0)),
        node("Greater", &["most", "half"], &["large"]),
        choice,
    ];
    let half = rlx_onnx::proto::TensorProto { dims: Vec::new(), ..weight("half", &[1], &[0.5]) };
    let proto = model(&[value("x", FLOAT, &["n"])], &nodes, &[half], &[untyped("y")]);
    let needs = import(&file(&proto), &ImportOptions::default()).unwrap_err();
    assert_eq!(needed_tensor(&needs), Some("large"), "{needs}");
    let mut runner = runner(&proto);
    for (values, dims, want) in [
        (&[0.25, 0.75][..], &[2][..], &[0.25, 0.75][..]),
        (&[0.25, 0.125], &[], &[0.375]),
        (&[1.0], &[1], &[1.0]),
    ] {
        let outputs = runner.run(&[("x", &x(values))]).unwrap();
        assert_eq!((outputs[0].1.dims(), outputs[0].1.as_f32().unwrap()), (dims, want));
    }
}

#[test]
fn a_value_of_another_type_than_the_tensors_is_rejected() {
    let mut options = ImportOptions::default();
    options.tensor_values.insert("count".to_owned(), ConstData::from_f32(&[], &[3.0]).unwrap());
    let error = import(&file(&counted()), &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Binding, "{error}");
}
