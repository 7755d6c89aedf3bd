//! The dispatch report by op kinds.

use crate::common::short;
use rlx_ir::OpKind;
use rlx_opt::{
    DispatchPath, KernelDispatchConfig, KernelDispatchPolicy, analyze_dispatch, format_dispatch_report,
    format_legalize_error, prepare_graph_for_backend_with_report,
};

const TEXT: &str = "x: [2, 4] f32
    w: param [4, 4] f32
    a = MatMul(x, w)
    s = Softmax(a) {axis=-1}
    return s";

const PARTS: [OpKind; 4] = [OpKind::MatMul, OpKind::Activation, OpKind::Binary, OpKind::Reduce];

fn path(report: &rlx_opt::KernelDispatchReport, kind: OpKind) -> DispatchPath {
    report.summaries.iter().find(|s| s.kind == kind).unwrap().path
}

#[test]
fn what_has_no_kernel_is_decomposed() {
    let graph = short(TEXT);
    let (legal, report) = prepare_graph_for_backend_with_report(graph, "toy", &PARTS, Default::default());
    assert!(report.compile_ready);
    assert_eq!(report.supported_claim_count, 4);
    assert_eq!(path(&report, OpKind::Softmax), DispatchPath::CommonIr);
    assert_eq!(path(&report, OpKind::MatMul), DispatchPath::Native);
    assert!(!legal.to_string().contains("Softmax"), "{legal}");
    assert!(format_dispatch_report(&report).contains("common IR"));
}

#[test]
fn a_decomposition_without_kernels_is_no_help() {
    let report = analyze_dispatch(&short(TEXT), "toy", &[OpKind::MatMul], Default::default());
    assert!(!report.compile_ready);
    assert_eq!(report.still_unsupported.len(), 1);
    let message = format_legalize_error("toy", &report.still_unsupported);
    assert!(message.contains("toy") && message.contains("Softmax (%3)"), "{message}");
}

#[test]
fn kinds_can_be_forced_either_way() {
    let all: Vec<OpKind> = PARTS.into_iter().chain([OpKind::Softmax]).collect();
    let report = |config| analyze_dispatch(&short(TEXT), "toy", &all, config);
    assert_eq!(path(&report(Default::default()), OpKind::Softmax), DispatchPath::Native);
    let common = KernelDispatchConfig { policy: KernelDispatchPolicy::ForceCommon, ..Default::default() };
    assert_eq!(path(&report(common), OpKind::Softmax), DispatchPath::CommonIr);
    let one = KernelDispatchConfig { force_common_kinds: &[OpKind::Softmax], ..Default::default() };
    assert_eq!(path(&report(one), OpKind::Softmax), DispatchPath::CommonIr);
    let native = KernelDispatchConfig { force_native_kinds: &[OpKind::Softmax], ..common };
    assert_eq!(path(&report(native), OpKind::Softmax), DispatchPath::Native);
    let strict = KernelDispatchConfig { force_native_kinds: &[OpKind::Softmax], ..Default::default() };
    let report = analyze_dispatch(&short(TEXT), "toy", &PARTS, strict);
    assert_eq!(path(&report, OpKind::Softmax), DispatchPath::Unsupported);
}
