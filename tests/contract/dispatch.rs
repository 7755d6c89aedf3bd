//! The contract of the dispatch report: `KernelDispatchReport`, its policies, and `rlx_opt`'s functions over kinds.

use rlx_contract::with_env;
use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::{DType, Graph, OpKind, Shape};
use rlx_opt::{
    KernelDispatchConfig, analyze_dispatch, format_dispatch_report, format_legalize_error,
    prepare_graph_for_backend_with_report,
};
use rlx_runtime::{
    CompileOptions, Device, DispatchPath, KernelDispatchPolicy, KernelDispatchReport, KindDispatchSummary,
    Session, dispatch_report_for_device_with_options, supports_graph_with_options,
};

/// softmax(x) + tanh(x).
fn graph() -> Graph {
    let shape = Shape::new(&[2, 3], DType::F32);
    let mut g = Graph::new("g");
    let x = g.input("x", shape.clone());
    let a = g.softmax(x, -1, shape.clone());
    let b = g.activation(Activation::Tanh, x, shape.clone());
    let y = g.binary(BinaryOp::Add, a, b, shape);
    g.set_outputs(vec![y]);
    g
}

/// What softmax decomposes into, and what else the graph has.
const KERNELS: [OpKind; 3] = [OpKind::Activation, OpKind::Binary, OpKind::Reduce];

fn path(report: &KernelDispatchReport, kind: OpKind) -> Option<DispatchPath> {
    report.summaries.iter().find(|s: &&KindDispatchSummary| s.kind == kind).map(|s| s.path)
}

#[test]
fn kinds_with_a_kernel_are_native_and_composites_decompose() {
    let report = analyze_dispatch(&graph(), "toy", &KERNELS, KernelDispatchConfig::default());
    assert_eq!((report.backend_name.as_str(), report.policy), ("toy", KernelDispatchPolicy::PreferNative));
    assert_eq!(report.supported_claim_count, 3);
    assert_eq!(path(&report, OpKind::Softmax), Some(DispatchPath::CommonIr));
    assert_eq!(path(&report, OpKind::Activation), Some(DispatchPath::Native));
    assert_eq!(report.common_lowered_kinds, [OpKind::Softmax]);
    assert!(report.compile_ready && report.still_unsupported.is_empty());
    let of = |kind| report.summaries.iter().find(|s| s.kind == kind).unwrap();
    assert_eq!((of(OpKind::Softmax).node_count, of(OpKind::Softmax).logical_name), (1, "Softmax"));
}

#[test]
fn what_nothing_computes_is_named_by_node_and_kind() {
    let g = graph();
    let report = analyze_dispatch(&g, "toy", &[OpKind::Binary], KernelDispatchConfig::default());
    assert!(!report.compile_ready);
    let kinds: Vec<OpKind> = report.still_unsupported.iter().map(|(_, kind)| *kind).collect();
    assert!(kinds.contains(&OpKind::Activation), "{kinds:?}");
    for (id, kind) in &report.still_unsupported {
        assert_eq!(g.node(*id).op.kind(), *kind);
    }
    let text = format_legalize_error("toy", &report.still_unsupported);
    assert!(text.contains("toy") && text.contains("Activation"), "{text}");
    let table = format_dispatch_report(&report);
    assert_eq!(table, report.to_string());
    assert!(table.contains("unsupported") && table.contains("Softmax"), "{table}");
}

#[test]
fn forced_kinds_win_over_the_policy() {
    let common = KernelDispatchConfig { force_common_kinds: &[OpKind::Softmax], ..Default::default() };
    let all = [OpKind::Softmax, OpKind::Activation, OpKind::Binary, OpKind::Reduce];
    let report = analyze_dispatch(&graph(), "toy", &all, common);
    assert_eq!(path(&report, OpKind::Softmax), Some(DispatchPath::CommonIr));
    let native = KernelDispatchConfig { force_native_kinds: &[OpKind::Softmax], ..Default::default() };
    let report = analyze_dispatch(&graph(), "toy", &KERNELS, native);
    assert_eq!(path(&report, OpKind::Softmax), Some(DispatchPath::Unsupported));
}

#[test]
fn a_prepared_graph_has_kernels_for_all_its_nodes() {
    let (legal, report) =
        prepare_graph_for_backend_with_report(graph(), "toy", &KERNELS, KernelDispatchConfig::default());
    assert!(report.compile_ready);
    let computed = |kind: OpKind| !matches!(kind, OpKind::Input | OpKind::Constant | OpKind::Param);
    for node in legal.nodes().iter().filter(|n| computed(n.op.kind())) {
        assert_ne!(node.op.kind(), OpKind::Softmax, "{legal}");
    }
    let want = rlx_ir::oracle::Bindings::default();
    let x = rlx_ir::Value::float(DType::F32, &[2, 3], vec![0.5, -1.0, 2.0, 0.0, 0.25, 1.5]);
    let mut bindings = want;
    bindings.set_input("x", x);
    let evaluate = |g: &Graph| rlx_ir::oracle::evaluate(g, &bindings).unwrap();
    rlx_ir::testing::assert_close(
        &evaluate(&graph())[0],
        &evaluate(&legal)[0],
        rlx_ir::testing::tolerance(DType::F32),
        "decomposed",
    );
}

#[test]
fn policies_apply_on_a_device() {
    let with = |policy| CompileOptions::default().kernel_dispatch(policy);
    let report =
        |policy| dispatch_report_for_device_with_options(&graph(), Device::Cpu, &with(policy)).unwrap();
    let native = report(KernelDispatchPolicy::PreferNative);
    assert_eq!(path(&native, OpKind::Softmax), Some(DispatchPath::Native));
    let common = report(KernelDispatchPolicy::ForceCommon);
    assert_eq!(path(&common, OpKind::Softmax), Some(DispatchPath::CommonIr));
    assert_eq!(common.policy, KernelDispatchPolicy::ForceCommon);
    assert!(supports_graph_with_options(Device::Cpu, &graph(), &with(KernelDispatchPolicy::ForceNative)));
    // The answers agree with what compiling does.
    let mut compiled =
        Session::new(Device::Cpu).compile_with(graph(), &with(KernelDispatchPolicy::ForceCommon));
    assert_eq!(path(compiled.dispatch_report(), OpKind::Softmax), Some(DispatchPath::CommonIr));
    let y = compiled.run(&[("x", &[0.0; 6])]).remove(0);
    assert!(y.iter().all(|v| (v - 1.0 / 3.0).abs() < 1e-6), "{y:?}");
}

#[test]
fn the_environment_sets_the_policy_and_nonsense_is_an_error() {
    let test = "the_environment_sets_the_policy_and_nonsense_is_an_error";
    with_env(test, &[("RLX_KERNEL_DISPATCH", "common")], || {
        assert_eq!(CompileOptions::new().kernel_dispatch, KernelDispatchPolicy::ForceCommon);
    });
    with_env(test, &[("RLX_KERNEL_DISPATCH", "perhaps")], || {
        let error = CompileOptions::try_new().expect_err("not a policy").to_string();
        assert!(error.contains("RLX_KERNEL_DISPATCH") && error.contains("perhaps"), "{error}");
        assert!(Session::new(Device::Cpu).try_compile(graph()).is_err());
    });
}
