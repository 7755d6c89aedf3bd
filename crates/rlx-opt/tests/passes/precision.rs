//! Precision: which ops run short, and where the casts are.

use crate::common::{apply_with, check_with, count, short};
use rlx_ir::op::BinaryOp;
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::{ConstData, DType, OpKind, Shape, Value};
use rlx_opt::passes::apply_precision;
use rlx_opt::{CompileOptions, Precision, PrecisionPolicy};

const TEXT: &str = "x: [2, 4] f32
    w: param [4, 4] f32
    a = MatMul(x, w)
    t = Transpose(a) {perm=[1, 0]}
    b = Activation.Relu(t)
    c = Activation.Exp(b)
    d = MatMul(c, a)
    return d";

fn with(policy: PrecisionPolicy) -> CompileOptions {
    CompileOptions { policy: Some(policy), ..CompileOptions::default() }
}

#[test]
fn f32_changes_nothing() {
    let before = short(TEXT);
    for options in [CompileOptions::default(), with(PrecisionPolicy::AlwaysF32)] {
        assert_eq!(apply_with(apply_precision::run, &before, &options).to_string(), before.to_string());
    }
}

#[test]
fn products_get_casts_around_them() {
    check_with(
        apply_precision::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 4] f32
          %1 = Param {name="w"} : [4, 3] f32
          %2 = MatMul(%0, %1) : [2, 3] f32
          %3 = Activation.Abs(%2) : [2, 3] f32
          return %3
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 4] f32
          %1 = Param {name="w"} : [4, 3] f32
          %2 = Cast(%0) {to=f64} : [2, 4] f64
          %3 = Cast(%1) {to=f64} : [4, 3] f64
          %4 = MatMul(%2, %3) : [2, 3] f64
          %5 = Cast(%4) {to=f32} : [2, 3] f32
          %6 = Activation.Abs(%5) : [2, 3] f32
          return %6
        }"#
        .replace("f64", "f16")
        .as_str(),
        // Multiples of 1/8 within ±1 multiply and add up exactly in f16.
        &with(PrecisionPolicy::AutoMixedConservative),
    );
}

#[test]
fn delicate_ops_stay_long_and_neighbours_stay_short() {
    let before = short(TEXT);
    let after = apply_with(apply_precision::run, &before, &with(PrecisionPolicy::AutoMixed));
    let dtype = |kind| after.nodes().iter().find(|n| n.op.kind() == kind).unwrap().shape.dtype();
    assert_eq!(dtype(OpKind::MatMul), DType::F16);
    assert_eq!(dtype(OpKind::Transpose), DType::F16, "{after}");
    assert!(after.to_string().contains("Activation.Exp(") && after.to_string().contains(": [4, 2] f32"));
    // x, w, the exponential there and back, the output.
    assert_eq!(count(&after, OpKind::Cast), 5, "{after}");
    let bf16 = CompileOptions { precision: Precision::BF16, ..CompileOptions::default() };
    let all = apply_with(apply_precision::run, &before, &bf16);
    assert_eq!(count(&all, OpKind::Cast), 3, "{all}");
}

#[test]
fn constants_beyond_the_range_do_not_become_infinite() {
    // A mask as exporters write it: 0 where something may be seen, the least f32 elsewhere.
    let mut before = rlx_ir::Graph::new("mask");
    let shape = Shape::new(&[3], DType::F32);
    let x = before.input("x", shape.clone());
    let least = before.constant(ConstData::from_f32(&[], &[f32::MIN]).unwrap());
    let y = before.binary(BinaryOp::Mul, x, least, shape);
    before.set_outputs(vec![y]);
    for (precision, most) in [(Precision::F16, 65504.0), (Precision::BF16, 3.389_531_389_251_535_5e38)] {
        let options = CompileOptions::default().precision(precision);
        let after = apply_with(apply_precision::run, &before, &options);
        let mut given = Bindings::default();
        given.set_input("x", Value::float(DType::F32, &[3], vec![0.0, 1.0, 0.5]));
        let found = oracle::evaluate(&after, &given).unwrap()[0].to_f64();
        assert_eq!(found, [0.0, -most, -most / 2.0], "{precision}: {after}");
    }
}
