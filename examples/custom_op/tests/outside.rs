//! The op by kernel and by reference, against the oracle.

use rlx_ir::oracle::{self, Bindings};
use rlx_runtime::{
    DType, Device, DispatchPath, Op, OpKind, Session, Shape, Value, dispatch_report_for_device, trace,
    try_trace,
};

/// Registration is once for the process, so one test does it all.
#[test]
fn an_op_from_outside_is_like_any_other() {
    custom_op::register().unwrap();
    assert!(custom_op::register().unwrap_err().to_string().contains("taken"));
    let numbers: Vec<f32> = (0..60).map(|i| (i as f32 * 0.7).sin()).collect();
    for (dtype, path, name) in [
        (DType::F32, DispatchPath::Native, "Custom"),
        (DType::F64, DispatchPath::CommonIr, "Custom (reference)"),
    ] {
        let graph = custom_op::typed_graph(&[3, 4, 5], dtype);
        let report = dispatch_report_for_device(&graph, Device::Cpu).unwrap();
        let line = report.summaries.iter().find(|s| s.kind == OpKind::Custom).unwrap();
        assert_eq!((line.path, line.logical_name), (path, name));
        let mut bindings = Bindings::default();
        bindings.set_input("x", Value::float(dtype, &[3, 4, 5], numbers.iter().map(|&x| x.into()).collect()));
        let want = oracle::evaluate(&graph, &bindings).unwrap()[0].to_f64();
        let got = Session::new(Device::Cpu).compile(graph).run(&[("x", &numbers)]);
        assert_eq!(got[0].iter().map(|&y| f64::from(y)).collect::<Vec<_>>(), want);
        assert!(want.contains(&0.0) && want.contains(&1.0));
    }
    // Its own rule rejects what does not fit, with the line where it was written.
    let rejected =
        try_trace("scalar", |t| vec![t.op(custom_op::op(), &[&t.input("x", Shape::scalar(DType::F32))])]);
    let error = rejected.unwrap_err();
    assert!(
        error.to_string().contains("not [] f32") && error.origin().unwrap().contains("outside.rs"),
        "{error}"
    );
    // Beside ops of the language, in one graph.
    let mixed = trace("mixed", |t| {
        let x = t.input("x", Shape::new(&[4], DType::F32));
        vec![t.op(custom_op::op(), &[&x.sigmoid()]) * 2.0]
    });
    assert!(matches!(mixed.nodes()[2].op, Op::Custom { .. }));
    let out = Session::new(Device::Cpu).compile(mixed).run(&[("x", &[-9.0, 9.0, 0.0, -9.0])]);
    assert_eq!(out, [[0.0, 2.0, 2.0, 0.0]]);
}
