//! A device outside of the list: registered under a name of its own, which sessions, chains, variables, reports, errors, artefacts
//! and caches know it by.

use rlx_contract::{OracleBackend, empty_folder, with_env};
use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::{DType, ErrorKind, Graph, Shape, WeightStore};
use rlx_runtime::*;

fn npu() -> DeviceId {
    register_device("npu-x", || Box::new(OracleBackend)).unwrap()
}

fn f32s(n: usize) -> Shape {
    Shape::new(&[n], DType::F32)
}

/// `exp(x + w)`, `w = [0, 1]`.
fn graph() -> Graph {
    let mut g = Graph::new("shifted");
    let (x, w) = (g.input("x", f32s(2)), g.param("w", f32s(2)));
    let y = g.binary(BinaryOp::Add, x, w, f32s(2));
    let y = g.activation(Activation::Exp, y, f32s(2));
    g.set_outputs(vec![y]);
    g
}

/// A graph that the toy has no kernel for.
fn custom() -> Graph {
    let mut g = Graph::new("custom");
    let x = g.input("x", f32s(2));
    let attrs = Default::default();
    let y = g.add_node(Op::Custom { name: "nobody's".into(), num_inputs: 1, attrs }, vec![x], f32s(2));
    g.set_outputs(vec![y]);
    g
}

#[test]
fn it_is_listed_and_the_list_of_devices_stays_closed() {
    let npu = npu();
    assert_eq!(npu.to_string(), "npu-x");
    assert_eq!(npu.known(), None);
    let ids = device_ids();
    assert_eq!(ids[..Device::all().len()], *Device::all());
    assert!(ids[Device::all().len()..].contains(&npu));
    assert_eq!(Device::all().len(), 12);
    assert!(registered_devices().iter().all(|&d| npu != d) && available_devices().iter().all(|&d| npu != d));
    assert!(unavailable_reason(npu).is_none() && backend_of(npu).is_some());
    for name in ["cpu", "nvidia", "NPU", "n p u", ""] {
        assert_eq!(register_device(name, || Box::new(OracleBackend)).unwrap_err().kind(), ErrorKind::Config);
    }
}

#[test]
fn sessions_graphs_and_reports_have_its_name() {
    let session = Session::try_on(npu()).unwrap();
    assert_eq!((session.device_id(), format!("{session:?}").contains("npu-x")), (npu(), true));
    let mut compiled = session.try_compile(graph()).unwrap();
    compiled.set_param("w", &[0.0, 1.0]);
    assert_eq!(compiled.run(&[("x", &[0.0, -1.0])]), [[1.0, 1.0]]);
    assert_eq!(compiled.device_id(), npu());
    assert_eq!(compiled.clone().device_id().name(), "npu-x");
    assert_eq!(compiled.dispatch_report().backend_name, "npu-x");
    let report = dispatch_report_on(&graph(), npu(), &CompileOptions::new()).unwrap();
    assert!(report.to_string().contains("npu-x"), "{report}");
}

#[test]
fn errors_and_profiles_have_its_name() {
    let session = Session::try_on(npu()).unwrap();
    let e = rlx_runtime::Error::from(session.try_compile(custom()).unwrap_err());
    assert_eq!(e.device(), Some("npu-x"), "{e}");
    let mut compiled = session.try_compile(graph()).unwrap();
    let e = compiled.try_start_profiling().unwrap_err();
    assert_eq!(e.device(), Some("npu-x"), "{e}");
    // A backend that times its steps, under another name.
    let cpu = register_device("npu-timed", || backend_for(Device::Cpu).expect("the CPU")).unwrap();
    let mut compiled = Session::try_on(cpu).unwrap().try_compile(graph()).unwrap();
    compiled.set_param("w", &[0.0, 1.0]);
    compiled.try_start_profiling().unwrap();
    compiled.run(&[("x", &[0.0, 0.0])]);
    assert_eq!(compiled.try_profile().unwrap()[0].runs, 1);
    assert_eq!(compiled.dispatch_report().backend_name, "npu-timed");
    let e =
        Session::try_on("npu-timed".parse::<DeviceId>().unwrap()).unwrap().try_with_threads(2).unwrap_err();
    assert!(e.to_string().contains("npu-timed"), "{e}");
}

#[test]
#[should_panic(expected = "npu-x is not among the devices of RLX")]
fn calls_that_have_no_room_for_it_say_so() {
    Session::try_on(npu()).unwrap().device();
}

#[test]
fn it_can_be_in_chains() {
    let absent = register_device("npu-absent", || panic!("the card is not plugged in")).unwrap();
    let mut devices = GraphDevices::new(graph());
    devices.set_param("w", &[0.0, 1.0]);
    let x: &[(&str, &[f32])] = &[("x", &[0.0, -1.0])];
    assert_eq!(devices.run_on(npu(), x).unwrap(), [[1.0, 1.0]]);
    let (device, outputs) = devices.run_try_on(&[absent, npu()], x).unwrap();
    assert_eq!((device, outputs), (npu(), vec![vec![1.0, 1.0]]));
    let attempts = devices.attempts().to_vec();
    assert!(attempts.len() == 1 && attempts[0].0 == absent && attempts[0].1.contains("not plugged in"));
    assert!(devices.last_attempts().is_empty(), "those of the list");
    let e = devices.run_try_on(&[absent], x).unwrap_err();
    assert!(e.to_string().contains("npu-absent: "), "{e}");
    // A parameter that is set later reaches it.
    devices.set_param("w", &[1.0, 2.0]);
    assert_eq!(devices.run_on(npu(), &[("x", &[-1.0, -2.0])]).unwrap(), [[1.0, 1.0]]);
    assert_eq!(devices.compile_on(npu()).unwrap().device_id(), npu());
    assert!(devices.devices().iter().all(|&d| npu() != d), "the automatic choice is among the list");
}

#[test]
fn variables_may_name_it() {
    let test = "variables_may_name_it";
    let x: &[(&str, &[f32])] = &[("x", &[0.0, -1.0])];
    with_env(test, &[("RLX_DEVICE_CHAIN", "npu-x, cpu"), ("RLX_DENY_DEVICES", "npu-z")], || {
        npu();
        register_device("npu-z", || Box::new(OracleBackend)).unwrap();
        let mut devices = GraphDevices::try_from_env(graph()).unwrap();
        devices.set_param("w", &[0.0, 1.0]);
        assert_eq!(devices.run_chain_on(None, x).unwrap().0, npu());
        let denied = devices.run_on("npu-z".parse::<DeviceId>().unwrap(), x).unwrap_err();
        assert!(denied.to_string().contains("npu-z is denied by the policy"), "{denied}");
        let e = devices.run_chain(None, x).unwrap_err();
        assert!(e.to_string().contains("this call cannot give npu-x"), "{e}");
    });
    with_env(test, &[("RLX_DEVICE_CHAIN", "npu-unheard-of")], || {
        assert!(try_device_chain_from_env().unwrap_err().to_string().contains("unknown device"));
    });
}

#[test]
fn artefacts_are_its_own() {
    let folder = empty_folder("own-names");
    std::fs::create_dir_all(&folder).unwrap();
    let session = Session::try_on(npu()).unwrap();
    let mut compiled = session.try_compile(graph()).unwrap();
    compiled.set_param("w", &[0.0, 1.0]);
    let mut weights = WeightStore::new();
    let w = [0.0f32, 1.0].map(f32::to_le_bytes).concat();
    weights.insert("w", Weight::owned(DType::F32, &[2], w).unwrap());
    let path = folder.join("model.rlx");
    session.save(&path, &mut compiled, NewArtefact::new("shifted", &weights)).unwrap();
    let artefact = Artefact::open(&path).unwrap();
    assert_eq!(artefact.target().device, "npu-x");
    assert_eq!(session.load(&artefact).unwrap().run(&[("x", &[0.0, -1.0])]), [[1.0, 1.0]]);
    let e = Session::new(Device::Cpu).load(&artefact).unwrap_err();
    assert!(e.to_string().contains("compiled for another device: \"npu-x\", here it is \"cpu\""), "{e}");
    std::fs::remove_dir_all(folder).unwrap();
}
