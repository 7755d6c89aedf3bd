//! The contract's section "devices" (`device_ext` and the registry), by public names only.

use rlx_contract::{ABSENT, DEVICE};
use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::{DType, Graph, Op, Shape};
use rlx_runtime::*;

fn f32s(dims: &[usize]) -> Shape {
    Shape::new(dims, DType::F32)
}

/// exp and sin, without outputs.
fn no_outputs() -> Graph {
    let mut g = Graph::new("dead");
    let x = g.input("x", f32s(&[4]));
    g.activation(Activation::Exp, x, f32s(&[4]));
    g.activation(Activation::Sin, x, f32s(&[4]));
    g
}

fn with_custom() -> Graph {
    let mut g = no_outputs();
    let x = g.nodes()[0].id;
    let op = Op::Custom { name: "mystery".into(), num_inputs: 1, attrs: Default::default() };
    g.add_node(op, vec![x], f32s(&[4]));
    g
}

#[test]
fn registering_makes_a_device_available() {
    assert!(backend_for(ABSENT).is_none());
    rlx_contract::register();
    assert!(is_available(DEVICE) && available_devices().contains(&DEVICE));
    assert!(registered_devices().contains(&DEVICE));
    assert_eq!(backend_for(DEVICE).unwrap().name(), "oracle");
    assert!(supports_run_slots(DEVICE) && !supports_run_slots(ABSENT));
    assert!(unavailable_reason(ABSENT).unwrap().to_string().contains("\"ane\""));
    drain_device(DEVICE);
}

#[test]
fn an_unavailable_device_supports_nothing() {
    let g = no_outputs();
    assert!(!is_available(ABSENT) && !available_devices().contains(&ABSENT));
    assert!(!supports(ABSENT, &Op::MatMul));
    assert!(!supports_graph(ABSENT, &g));
    assert!(!supports_node(ABSENT, &g.nodes()[1], &g));
    let (at, op) = first_unsupported_op(ABSENT, &g).unwrap();
    assert_eq!((at, op), (0, &g.nodes()[0].op));
    assert!(first_unsupported_op(ABSENT, &Graph::new("empty")).is_none());
    assert!(legalize_graph_for_device(g.clone(), ABSENT).unwrap_err().contains("ANE"));
    assert!(dispatch_report_for_device(&g, ABSENT).unwrap_err().contains("ANE"));
    assert!(legalize_graph_for_device_with_report(g, ABSENT).is_err());
}

#[test]
fn graphs_without_outputs_are_supported() {
    rlx_contract::register();
    let g = no_outputs();
    assert!(supports_graph(DEVICE, &g));
    assert!(first_unsupported_op(DEVICE, &g).is_none());
    assert!(devices_for(&g).contains(&DEVICE));
    assert!(devices_for(&g).iter().all(|&d| is_available(d) && supports_graph(d, &g)));
}

#[test]
fn the_first_unsupported_op_is_named() {
    rlx_contract::register();
    let g = with_custom();
    let (at, op) = first_unsupported_op(DEVICE, &g).unwrap();
    assert_eq!((at, op), (3, &g.nodes()[3].op));
    assert!(!supports_graph(DEVICE, &g) && !devices_for(&g).contains(&DEVICE));
    assert!(!supports(DEVICE, op) && supports(DEVICE, &Op::Binary(BinaryOp::Add)));
    assert!(supports_node(DEVICE, &g.nodes()[1], &g) && !supports_node(DEVICE, &g.nodes()[3], &g));
    let report = dispatch_report_for_device(&g, DEVICE).unwrap();
    assert!(!report.compile_ready);
    assert_eq!(report.still_unsupported, [(g.nodes()[3].id, rlx_ir::OpKind::Custom)]);
    assert!(legalize_graph_for_device(g, DEVICE).unwrap_err().contains("Custom"));
}

#[test]
fn a_report_leaves_the_graph_alone_and_prints_as_a_table() {
    rlx_contract::register();
    let g = no_outputs();
    let before = g.clone();
    let report = dispatch_report_for_device(&g, DEVICE).unwrap();
    assert_eq!(g, before);
    assert_eq!((report.backend_name.as_str(), report.compile_ready), ("oracle", true));
    assert_eq!(report.policy, KernelDispatchPolicy::PreferNative);
    let line = report.summaries.iter().find(|s| s.logical_name == "Activation").unwrap();
    assert_eq!((line.node_count, line.path), (2, DispatchPath::Native));
    assert!(report.to_string().contains("Activation"));
    let (legal, same) = legalize_graph_for_device_with_report(g, DEVICE).unwrap();
    assert_eq!((legal.len(), same), (before.len(), report));
}

#[test]
fn options_apply_to_queries() {
    rlx_contract::register();
    let g = no_outputs();
    let options = CompileOptions::new().kernel_dispatch(KernelDispatchPolicy::ForceNative);
    assert!(supports_graph_with_options(DEVICE, &g, &options));
    assert!(first_unsupported_op_with_options(DEVICE, &g, &options).is_none());
    let report = dispatch_report_for_device_with_options(&g, DEVICE, &options).unwrap();
    assert_eq!(report.policy, KernelDispatchPolicy::ForceNative);
    assert!(legalize_graph_for_device_with_options(g.clone(), DEVICE, &options).is_ok());
    let none = CompileOptions::new().supported_ops(Default::default());
    assert!(!supports_graph_with_options(DEVICE, &g, &none));
    assert_eq!(first_unsupported_op_with_options(DEVICE, &g, &none).unwrap().0, 1);
}

#[test]
fn preference_is_static() {
    assert_eq!(fastest_among(&[Device::Cpu, Device::Metal, Device::Mlx]), Device::Mlx);
    assert_eq!(fastest_among(&[Device::WebGpu, Device::OpenGl, Device::DirectX]), Device::DirectX);
    assert_eq!(fastest_among(&[]), Device::Cpu);
    assert_eq!(fastest_among(Device::all()), Device::Tpu);
    let mut reversed = Device::all().to_vec();
    reversed.reverse();
    assert_eq!(fastest_among(&reversed), Device::Tpu);
    assert_eq!(fastest_device(), fastest_among(&available_devices()));
}

#[test]
fn names_and_apple_devices() {
    assert_eq!(full_name(Device::Cuda), "CUDA");
    assert!(full_name(Device::Cpu).starts_with("CPU"));
    if !cfg!(target_vendor = "apple") {
        assert!(available_apple_devices().is_empty());
    }
}

#[test]
fn pipelines_can_be_had_for_a_device() {
    rlx_contract::register();
    let pipeline = stages::pipeline_for(DEVICE, &CompileOptions::new());
    assert_eq!(pipeline.target().name(), "oracle");
    assert!(stages::try_pipeline_for(ABSENT, &CompileOptions::new()).is_err());
}
