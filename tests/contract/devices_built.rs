//! Nothing pretends: for the Cargo features of this build, every device either has a backend that is probed for real, or
//! is absent in every answer. The suite `gpu` runs this with the features of all twelve devices.
//!
//! No backend is registered here: what is asked about is the build.

use std::path::Path;

use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::{DType, Graph, GraphExt, Op, Shape};
use rlx_runtime::*;

/// The devices that have a backend in a build with these features.
fn built() -> Vec<Device> {
    let mut built = vec![Device::Cpu];
    if cfg!(feature = "all-devices") {
        built.extend([Device::Gpu, Device::Ane]);
    }
    if cfg!(feature = "cuda") {
        built.push(Device::Cuda);
    }
    if cfg!(feature = "rocm") {
        built.push(Device::Rocm);
    }
    if cfg!(feature = "mlx") {
        built.push(Device::Mlx);
    }
    if cfg!(feature = "tpu") {
        built.push(Device::Tpu);
    }
    if cfg!(feature = "vulkan") {
        built.push(Device::Vulkan);
    }
    if cfg!(feature = "opengl") {
        built.push(Device::OpenGl);
    }
    if cfg!(feature = "metal") {
        built.push(Device::Metal);
    }
    if cfg!(feature = "directx") {
        built.push(Device::DirectX);
    }
    built
}

fn graph() -> Graph {
    let mut g = Graph::new("exp of a product");
    let (x, w) =
        (g.input("x", Shape::new(&[2, 3], DType::F32)), g.param("w", Shape::new(&[3, 4], DType::F32)));
    let y = g.mm(x, w);
    let y = g.exp(y);
    g.set_outputs(vec![y]);
    g
}

#[test]
fn every_device_has_a_feature_of_its_own_and_all_devices_names_them_all() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(here.join(path)).unwrap();
    let (runtime, contract) = (read("../../crates/rlx-runtime/Cargo.toml"), read("Cargo.toml"));
    assert_eq!(Device::all().len(), 12);
    for device in Device::all() {
        let feature = device.feature();
        assert!(runtime.contains(&format!("\n{feature} = [")), "rlx-runtime has no feature {feature}");
        let forwarded = contract.contains(&format!("\"rlx-runtime/{feature}\""));
        assert!(forwarded || *device == Device::Cpu, "all-devices lacks {feature}");
    }
}

#[test]
fn a_device_without_a_backend_is_absent_in_every_answer() {
    let absent = Device::all().iter().copied().filter(|d| !built().contains(d));
    for device in absent {
        let (name, feature) = (device.name(), format!("\"{}\"", device.feature()));
        let says = |text: String| {
            assert!(text.contains(name) && text.contains(&feature), "{text}");
            assert!(text.contains("no backend in this build"), "{text}");
        };
        assert!(backend_for(device).is_none() && !registered_devices().contains(&device));
        assert!(!is_available(device) && !available_devices().contains(&device));
        assert!(!supports_run_slots(device));
        assert!(!supports(device, &Op::MatMul) && !supports(device, &Op::Binary(BinaryOp::Add)));
        assert!(!supports(device, &Op::Activation(Activation::Exp)));
        let g = graph();
        assert!(!supports_graph(device, &g) && !supports_node(device, &g.nodes()[2], &g));
        assert!(!devices_for(&g).contains(&device));
        assert_eq!(first_unsupported_op(device, &g), Some((0, &g.nodes()[0].op)));
        let e = Session::try_new(device).unwrap_err();
        assert_eq!((e.kind(), e.device()), (ErrorKind::DeviceUnavailable, Some(name)));
        assert!(e.to_string().contains("register_backend"), "{e}");
        says(e.to_string());
        says(unavailable_reason(device).unwrap().to_string());
        says(dispatch_report_for_device(&g, device).unwrap_err());
        says(legalize_graph_for_device(g.clone(), device).unwrap_err());
        says(stages::try_pipeline_for(device, &CompileOptions::new()).unwrap_err().to_string());
        says(cost_model(device).err().unwrap().to_string());
        says(calibrate(device).unwrap_err().to_string());
        says(GraphDevices::new(g).compile(device).unwrap_err());
        drain_device(device);
        let panic = std::panic::catch_unwind(|| Session::new(device)).unwrap_err();
        says(panic.downcast_ref::<String>().unwrap().clone());
    }
}

#[test]
fn a_device_with_a_backend_is_probed_for_real() {
    assert_eq!(registered_devices().len(), built().len());
    let (x, w) = ([0.5, -0.25, 1.0, 2.0, 0.0, -1.0], [0.125; 12]);
    let run = |session: &Session| {
        let mut compiled = session.compile(graph());
        compiled.set_param("w", &w);
        compiled.run(&[("x", &x)]).remove(0)
    };
    let expected = run(&Session::new(Device::Cpu));
    for device in built() {
        let probe = backend_for(device).unwrap().probe();
        assert_eq!(is_available(device), probe.is_ok(), "{device}");
        match Session::try_new(device) {
            Ok(session) => {
                assert!(probe.is_ok() && supports_graph(device, &graph()) && supports(device, &Op::MatMul));
                let found = run(&session);
                let near = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs());
                assert!(near, "{device}: {found:?}, not {expected:?}");
                drain_device(device);
                println!("{device} is there");
            }
            Err(e) => {
                let missing = probe.unwrap_err();
                assert!(device != Device::Cpu, "{e}");
                assert!(!supports_graph(device, &graph()) && !devices_for(&graph()).contains(&device));
                for part in [device.name(), device.feature(), missing.message()] {
                    assert!(e.to_string().contains(part), "{e}");
                }
                // What needs no hardware works without it.
                assert!(dispatch_report_for_device(&graph(), device).unwrap().compile_ready);
                assert!(legalize_graph_for_device(graph(), device).is_ok());
                println!("{device} is not there: {missing}");
            }
        }
    }
}

#[test]
fn example_5_priority_absent_features_and_graphs_without_outputs() {
    assert_eq!(fastest_among(&[Device::Cpu, Device::Metal, Device::Mlx]), Device::Mlx);
    if cfg!(not(feature = "opengl")) {
        assert!(!supports(Device::OpenGl, &Op::MatMul) && !supports_graph(Device::OpenGl, &graph()));
    }
    let mut g = Graph::new("no outputs");
    let x = g.input("x", Shape::new(&[4], DType::F32));
    g.exp(x);
    g.sin(x);
    assert!(supports_graph(Device::Cpu, &g) && first_unsupported_op(Device::Cpu, &g).is_none());
}
