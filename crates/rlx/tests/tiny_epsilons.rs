//! Files with epsilons that 16 bits have no number for, under every precision: what is divided by them stays right.

use rlx::{Model, Runner};
use rlx_ir::ConstData;
use rlx_onnx::proto::ModelProto;
use rlx_onnx::testing::{FLOAT, file, float, int, ints, model, node, untyped, value, weight, with};
use rlx_runtime::{CompileOptions, Device, Precision, Session};

/// A row as small as differences in a net can be, one of zeros, one of equal numbers, and an ordinary one.
const X: [f32; 16] = [1e-4, -1e-4, 3e-4, -3e-4, 0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0, 1.0, -2.0, 0.5, 3.0];

fn run(proto: &ModelProto, precision: Precision) -> Vec<f32> {
    let options = CompileOptions::default().precision(precision);
    let mut runner = Runner::new(Model::new("eps", file(proto)), Session::new(Device::Cpu), options);
    let x = ConstData::from_f32(&[4, 4], &X).unwrap();
    runner.run(&[("x", &x)]).unwrap()[0].1.as_f32().unwrap().to_vec()
}

/// Compares the precisions with f32.
fn check(name: &str, proto: &ModelProto) {
    let want = run(proto, Precision::F32);
    assert!(want.iter().all(|y| y.is_finite()) && want.iter().any(|y| y.abs() > 0.5), "{name}: {want:?}");
    for (precision, tolerance) in [(Precision::F16, 4e-3), (Precision::BF16, 4e-2)] {
        let got = run(proto, precision);
        let right = got.iter().zip(&want).all(|(a, b)| (a - b).abs() <= tolerance * b.abs().max(1.0));
        assert!(right, "{name}, {precision:?}: {got:?}, not {want:?}");
    }
}

#[test]
fn rows_divided_by_their_norm_are_right_in_16_bits() {
    // As PyTorch's `normalize` is exported: a norm that is at least an epsilon, a scalar or a vector of one.
    for dims in [&[][..], &[1], &[1, 1]] {
        let nodes = [
            with(node("ReduceL2", &["x", "last"], &["norm"]), int("keepdims", 1)),
            node("Max", &["norm", "eps"], &["most"]),
            node("Div", &["x", "most"], &["y"]),
        ];
        let weights = [weight("eps", dims, &[1e-12]), ints("last", &[1])];
        let proto = model(&[value("x", FLOAT, &["n", "4"])], &nodes, &weights, &[untyped("y")]);
        let proto = rlx_onnx::proto::ModelProto { opset_import: opset(18), ..proto };
        check(&format!("normalize by {dims:?}"), &proto);
    }
}

#[test]
fn variances_with_an_epsilon_written_out_are_right_in_16_bits() {
    for dims in [&[][..], &[1]] {
        let nodes = [
            with(node("ReduceMean", &["x", "last"], &["mean"]), int("keepdims", 1)),
            node("Sub", &["x", "mean"], &["d"]),
            node("Mul", &["d", "d"], &["square"]),
            with(node("ReduceMean", &["square", "last"], &["variance"]), int("keepdims", 1)),
            node("Add", &["variance", "eps"], &["sum"]),
            node("Sqrt", &["sum"], &["deviation"]),
            node("Div", &["d", "deviation"], &["y"]),
        ];
        let weights = [weight("eps", dims, &[1e-12]), ints("last", &[1])];
        let proto = model(&[value("x", FLOAT, &["n", "4"])], &nodes, &weights, &[untyped("y")]);
        check(
            &format!("layer norm of {dims:?}"),
            &rlx_onnx::proto::ModelProto { opset_import: opset(18), ..proto },
        );
    }
}

#[test]
fn layer_norms_with_a_tiny_epsilon_are_right_in_16_bits() {
    let norm = with(
        with(node("LayerNormalization", &["x", "scale"], &["y"]), float("epsilon", 1e-12)),
        int("axis", -1),
    );
    let scale = weight("scale", &[4], &[1.0; 4]);
    let proto = model(&[value("x", FLOAT, &["n", "4"])], &[norm], &[scale], &[untyped("y")]);
    check("LayerNormalization", &proto);
}

fn opset(version: i64) -> Vec<rlx_onnx::proto::OperatorSetIdProto> {
    vec![rlx_onnx::proto::OperatorSetIdProto { version: Some(version), ..Default::default() }]
}
