//! The contract's section "GraphDevices", by public names only.

use rlx_contract::{ABSENT, DEVICE, with_env};
use rlx_ir::op::BinaryOp;
use rlx_ir::{DType, Graph, Op, Shape};
use rlx_runtime::*;

fn pair() -> Shape {
    Shape::new(&[2], DType::F32)
}

/// x + w
fn add() -> Graph {
    let mut g = Graph::new("add");
    let (x, w) = (g.input("x", pair()), g.param("w", pair()));
    let y = g.binary(BinaryOp::Add, x, w, pair());
    g.set_outputs(vec![y]);
    g
}

/// A graph that only a backend with a kernel for "mystery" could run.
fn mystery() -> Graph {
    let mut g = Graph::new("mystery");
    let x = g.input("x", pair());
    let op = Op::Custom { name: "mystery".into(), num_inputs: 1, attrs: Default::default() };
    let y = g.add_node(op, vec![x], pair());
    g.set_outputs(vec![y]);
    g
}

fn added(policy: DevicePolicy) -> GraphDevices {
    let mut devices = GraphDevices::with_policy(add(), policy);
    devices.set_param("w", &[1.0, 2.0]);
    devices
}

fn panics(f: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err()
}

const X: &[(&str, &[f32])] = &[("x", &[3.0, 4.0])];

#[test]
fn example_2_parameters_before_compile_and_an_identity() {
    let mut devices = GraphDevices::new(add());
    devices.set_param("w", &[1.0, 2.0]);
    assert_eq!(devices.run(Device::Cpu, X), Ok(vec![vec![4.0, 6.0]]));

    let mut identity = Graph::new("identity");
    let x = identity.input("x", pair());
    identity.set_outputs(vec![x]);
    assert_eq!(GraphDevices::new(identity).run(Device::Cpu, X), Ok(vec![vec![3.0, 4.0]]));
}

#[test]
fn example_3_a_chain_goes_past_what_is_not_there() {
    let mut devices = added(DevicePolicy::all());
    let (device, outputs) = devices.run_try(&[Device::Cuda, Device::Cpu], X).unwrap();
    assert_eq!((device, outputs), (Device::Cpu, vec![vec![4.0, 6.0]]));
    let [(tried, why)] = devices.last_attempts() else { panic!("{:?}", devices.last_attempts()) };
    assert_eq!(*tried, Device::Cuda);
    assert!(why.contains("CUDA") && why.contains("\"cuda\""), "{why}");
    let (device, _) = devices.run_try(&[Device::Cpu, Device::Cuda], X).unwrap();
    assert!(device == Device::Cpu && devices.last_attempts().is_empty());
}

#[test]
fn an_empty_chain_is_one_attempt_of_the_cpu() {
    let mut devices = added(DevicePolicy::all());
    let e = devices.run_try(&[], X).unwrap_err();
    assert_eq!(e.attempts.len(), 1);
    assert!(e.attempts[0].0 == Device::Cpu && e.attempts[0].1.contains("empty"), "{e}");
    assert_eq!(devices.last_attempts(), e.attempts);
}

#[test]
fn a_chain_that_fails_names_every_device_and_reason() {
    let mut devices = GraphDevices::with_policy(add(), DevicePolicy::all().with_deny([Device::Cpu]));
    devices.set_param("w", &[1.0, 2.0]);
    let e = devices.run_try(&[Device::Cuda, Device::Cpu, Device::Tpu], X).unwrap_err();
    assert_eq!(e.attempts.iter().map(|a| a.0).collect::<Vec<_>>(), [Device::Cuda, Device::Cpu, Device::Tpu]);
    for part in ["CUDA", "CPU", "TPU", "denied", "no backend in this build"] {
        assert!(e.to_string().contains(part), "{e}");
    }
    assert_eq!(devices.last_attempts(), e.attempts);
    fn is_error(_: &(dyn std::error::Error + Send + Sync)) {}
    is_error(&e);
}

#[test]
fn what_it_was_made_of_can_be_read() {
    let policy = DevicePolicy::only([Device::Cpu]);
    let devices = GraphDevices::with_policy(add(), policy.clone());
    assert_eq!((devices.policy(), devices.graph()), (&policy, &add()));
    assert_eq!(devices.devices(), [Device::Cpu]);
    assert_eq!(devices.fastest(), Device::Cpu);
    assert_eq!(graph_param_names(&add()), ["w"]);
    let report = devices.report();
    assert_eq!(report.len(), Device::all().len());
    let recommended: Vec<Device> = report.iter().filter(|c| c.recommended).map(|c| c.device).collect();
    assert_eq!(recommended, [Device::Cpu]);
    assert!(report.iter().all(|c| c.blocker.is_none() == (c.device == Device::Cpu)));
}

#[test]
fn compiling_is_lazy_and_cached() {
    let mut devices = added(DevicePolicy::all());
    assert!(devices.compile(Device::Cpu).unwrap().bind_handle("x", &[5.0, 6.0]));
    // The handle is still there: it is the same executable.
    assert_eq!(devices.compile(Device::Cpu).unwrap().run(&[]), [[6.0, 8.0]]);
    devices.invalidate_cache();
    let e = devices.run(Device::Cpu, &[]).unwrap_err();
    assert!(e.contains("\"x\" was not given"), "{e}");
    // The parameter survived.
    assert_eq!(devices.run(Device::Cpu, X), Ok(vec![vec![4.0, 6.0]]));
}

#[test]
fn a_device_that_cannot_be_used_is_named_with_the_reason() {
    let mut devices = added(DevicePolicy::all());
    for result in [devices.compile(ABSENT).map(drop), devices.run(ABSENT, X).map(drop)] {
        let e = result.unwrap_err();
        assert!(e.contains("ANE") && e.contains("\"ane\"") && e.contains("no backend in this build"), "{e}");
    }
    devices.set_policy(DevicePolicy::all().with_deny([Device::Cpu]));
    let e = devices.compile(Device::Cpu).unwrap_err();
    assert!(e.contains("CPU") && e.contains("policy"), "{e}");
    let e = GraphDevices::new(mystery()).compile(Device::Cpu).unwrap_err();
    assert!(e.contains("CPU") && e.contains("Custom"), "{e}");
    assert!(devices.resolve(Some(Device::Cpu)).unwrap_err().contains("policy"));
    assert!(devices.resolve(Some(ABSENT)).unwrap_err().contains("\"ane\""));
}

#[test]
fn without_any_device_every_call_says_why() {
    let mut devices = GraphDevices::with_policy(add(), DevicePolicy::only([ABSENT]));
    assert!(devices.devices().is_empty());
    let says = |e: String| assert!(e.contains("ANE") && e.contains("no backend in this build"), "{e}");
    says(devices.resolve(None).unwrap_err());
    says(devices.compile_fastest().map(drop).unwrap_err());
    says(devices.run_fastest(X).unwrap_err());
    says(devices.resolve_chain(None).unwrap_err());
    says(devices.run_chain(None, X).unwrap_err().to_string());
    says(devices.warm_all().unwrap_err());
    says(devices.benchmark(X, 1).unwrap_err());
    assert!(devices.try_fastest().is_err());
    assert!(panics(|| _ = devices.fastest()));
}

#[test]
fn parameters_reach_every_device_before_and_after_compiling() {
    rlx_contract::register();
    let mut devices = added(DevicePolicy::only([Device::Cpu, DEVICE]));
    assert_eq!(devices.warm_all().map(|d| d.len()), Ok(2));
    for device in [Device::Cpu, DEVICE] {
        assert_eq!(devices.run(device, X), Ok(vec![vec![4.0, 6.0]]));
    }
    devices.set_param("w", &[10.0, 20.0]);
    for device in [Device::Cpu, DEVICE] {
        assert_eq!(devices.run(device, X), Ok(vec![vec![13.0, 24.0]]));
    }
    let bytes: Vec<u8> = [100.0f32, 200.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    devices.set_param_typed("w", &bytes, DType::F32);
    // What the caller changed on one executable alone holds until the common parameters are sent again.
    devices.compile(DEVICE).unwrap().set_param("w", &[0.0, 0.0]);
    assert_eq!(devices.run(DEVICE, X), Ok(vec![vec![3.0, 4.0]]));
    devices.sync_params_to_all();
    assert_eq!(devices.run(DEVICE, X), Ok(vec![vec![103.0, 204.0]]));
    devices.invalidate_cache();
    for device in [Device::Cpu, DEVICE] {
        assert_eq!(devices.run(device, X), Ok(vec![vec![103.0, 204.0]]));
    }
}

#[test]
fn a_wrong_parameter_is_an_error_at_once() {
    let mut devices = GraphDevices::new(add());
    let e = devices.try_set_param("W", &[1.0, 2.0]).unwrap_err().to_string();
    assert!(e.contains("\"W\"") && e.contains("\"w\""), "{e}");
    let e = devices.try_set_param("w", &[1.0]).unwrap_err().to_string();
    assert!(e.contains("\"w\"") && e.contains("2 elements"), "{e}");
    assert!(devices.try_set_param_typed("w", &[0; 8], DType::I32).is_err());
    assert!(devices.try_set_param_typed("w", &[0; 7], DType::F32).is_err());
    assert!(panics(|| devices.set_param("v", &[])));
}

#[test]
fn a_parameter_never_set_is_named() {
    let mut devices = GraphDevices::new(add());
    assert!(devices.run(Device::Cpu, X).unwrap_err().contains("\"w\" was never set"));
    assert!(devices.run_try(&[Device::Cpu], X).unwrap_err().to_string().contains("\"w\" was never set"));
}

#[test]
fn every_form_of_compiling_and_running_agrees() {
    let mut devices = added(DevicePolicy::only([Device::Cpu]));
    let four = Ok(vec![vec![4.0, 6.0]]);
    assert_eq!(devices.compile_fastest().unwrap().run(X), [[4.0, 6.0]]);
    assert_eq!(devices.compile_resolved(None).unwrap().run(X), [[4.0, 6.0]]);
    assert_eq!(devices.compile_chain(None).unwrap().run(X), [[4.0, 6.0]]);
    assert_eq!(devices.compile_resolved_with_inputs(Some(Device::Cpu), X).unwrap().run(X), [[4.0, 6.0]]);
    assert_eq!(devices.run_resolved(Some(Device::Cpu), X), four);
    assert_eq!(devices.run_fastest(X), four);
    assert_eq!(devices.run_resolved_with_inputs(None, X), four);
    assert_eq!(devices.run_chain(None, X), Ok((Device::Cpu, vec![vec![4.0, 6.0]])));
    assert_eq!(devices.run_chain(Some(Device::Cpu), X).map(|r| r.0), Ok(Device::Cpu));
    assert_eq!(devices.resolve_with_inputs(None, X), Ok(Device::Cpu));
}

#[test]
fn a_new_policy_changes_devices_and_strategy() {
    rlx_contract::register();
    let mut devices = added(DevicePolicy::only([Device::Cpu]));
    devices.set_policy(DevicePolicy::only([DEVICE]).with_benchmark_pick(2));
    assert_eq!(devices.devices(), [DEVICE]);
    assert_eq!(devices.policy().pick_strategy(), DevicePickStrategy::Benchmark { runs: 2 });
    assert_eq!(devices.run_fastest(X), Ok(vec![vec![4.0, 6.0]]));
    assert!(devices.run(Device::Cpu, X).unwrap_err().contains("policy"));
}

#[test]
fn a_preference_decides() {
    rlx_contract::register();
    let policy = DevicePolicy::only([Device::Cpu, DEVICE]);
    for first in [Device::Cpu, DEVICE] {
        let devices = added(policy.clone().with_prefer([Device::Tpu, first]));
        assert_eq!((devices.fastest(), devices.resolve(None)), (first, Ok(first)));
        assert_eq!(devices.devices()[0], first);
    }
}

#[test]
fn a_benchmark_measures_every_device_and_leaves_out_those_that_fail() {
    rlx_contract::register();
    let mut devices = added(DevicePolicy::only([Device::Cpu, DEVICE]));
    let results = devices.benchmark(X, 3).unwrap();
    assert_eq!(results.len(), 2);
    assert!(results[0].median_exec_ns <= results[1].median_exec_ns);
    assert!(results.iter().all(|r| r.compile_ns > 0 && r.median_exec_ns > 0));
    assert!(results.iter().all(|r| r.label == full_name(r.device)));
    assert_eq!(benchmark_devices(&mut devices, X, 1).map(|r| r.len()), Ok(2));
    assert_eq!(warm_all(&mut devices).map(|d| d.len()), Ok(2));
    assert!(devices.benchmark(X, 0).unwrap_err().contains("0 runs"));
    let e = devices.benchmark(&[("z", &[1.0])], 1).unwrap_err();
    assert!(e.contains("\"z\"") && e.contains("CPU") && e.contains(DEVICE.name()), "{e}");
}

#[test]
fn the_environment_decides_where_there_is_no_hint() {
    let name = "the_environment_decides_where_there_is_no_hint";
    with_env(name, &[("RLX_DEVICE", "webgpu")], || {
        rlx_contract::register();
        let devices = added(DevicePolicy::all());
        assert_eq!(devices.resolve(None), Ok(DEVICE));
        assert_eq!(devices.resolve(Some(Device::Cpu)), Ok(Device::Cpu));
        let chosen = added(DevicePolicy::all().with_prefer([Device::Cpu])).run_resolved(None, X);
        assert_eq!(chosen, Ok(vec![vec![4.0, 6.0]]));
        assert_eq!(resolve_device(&add(), None, &DevicePolicy::all()), Ok(DEVICE));
    });
    with_env(name, &[("RLX_DEVICE", "tpu")], || {
        let mut devices = added(DevicePolicy::all());
        let e = devices.resolve(None).unwrap_err();
        assert!(e.contains("RLX_DEVICE") && e.contains("TPU") && e.contains("\"tpu\""), "{e}");
        assert_eq!(devices.run_chain(None, X).unwrap_err().attempts[0].0, Device::Tpu);
        assert_eq!(devices.run_resolved(Some(Device::Cpu), X), Ok(vec![vec![4.0, 6.0]]));
    });
    with_env(name, &[("RLX_DEVICE", "")], || {
        assert!(added(DevicePolicy::only([Device::Cpu])).resolve(None).is_ok());
    });
}

#[test]
fn the_environment_gives_the_chain() {
    let name = "the_environment_gives_the_chain";
    with_env(name, &[("RLX_DEVICE_CHAIN", "tpu, cuda, cpu")], || {
        let mut devices = added(DevicePolicy::all());
        assert_eq!(devices.run_chain(None, X), Ok((Device::Cpu, vec![vec![4.0, 6.0]])));
        let tried: Vec<Device> = devices.last_attempts().iter().map(|a| a.0).collect();
        assert_eq!(tried, [Device::Tpu, Device::Cuda]);
        assert_eq!(devices.resolve_chain(None), Ok(Device::Cpu));
        assert_eq!(devices.compile_chain(None).unwrap().device(), Device::Cpu);
        assert_eq!(devices.last_attempts().len(), 2);
        // A hint uses that device only.
        let e = devices.run_chain(Some(Device::Tpu), X).unwrap_err();
        assert!(e.attempts.len() == 1 && e.attempts[0].0 == Device::Tpu);
        assert!(devices.resolve_chain(Some(Device::Tpu)).is_err());
    });
    with_env(name, &[("RLX_DEVICE_CHAIN", "tpu,cuda")], || {
        let e = added(DevicePolicy::all()).run_chain(None, X).unwrap_err();
        assert_eq!(e.attempts.len(), 2);
    });
}

#[test]
fn a_variable_that_does_not_parse_is_an_error_everywhere() {
    let name = "a_variable_that_does_not_parse_is_an_error_everywhere";
    with_env(name, &[("RLX_DEVICE", "quantum")], || {
        let mut devices = added(DevicePolicy::all());
        let says = |e: String| assert!(e.contains("RLX_DEVICE") && e.contains("quantum"), "{e}");
        says(devices.resolve(None).unwrap_err());
        says(devices.resolve(Some(Device::Cpu)).unwrap_err());
        says(devices.run_resolved(None, X).unwrap_err());
        says(devices.compile_resolved(None).map(drop).unwrap_err());
        says(devices.resolve_with_inputs(None, X).unwrap_err());
        says(devices.run_chain(None, X).unwrap_err().to_string());
        says(resolve_device(&add(), Some(Device::Cpu), &DevicePolicy::all()).unwrap_err());
    });
    with_env(name, &[("RLX_DEVICE_CHAIN", "cpu;tpu")], || {
        let mut devices = added(DevicePolicy::all());
        let says = |e: String| assert!(e.contains("RLX_DEVICE_CHAIN") && e.contains("cpu;tpu"), "{e}");
        says(devices.resolve_chain(None).unwrap_err());
        says(devices.run_chain(Some(Device::Cpu), X).unwrap_err().to_string());
        says(devices.compile_chain(None).map(drop).unwrap_err());
        says(try_device_chain_from_env().unwrap_err().to_string());
        assert!(panics(|| _ = device_chain_from_env()));
    });
    for (variable, value) in [
        ("RLX_DEVICES", "cpu,quantum"),
        ("RLX_DENY_DEVICES", "cpu,"),
        ("RLX_PREFER_DEVICES", "gpu vulkan"),
        ("RLX_BENCHMARK_PICK", "0"),
        ("RLX_BENCHMARK_PICK", "many"),
    ] {
        with_env(name, &[(variable, value)], || {
            let e = GraphDevices::try_from_env(add()).unwrap_err().to_string();
            assert!(e.contains(variable), "{e}");
            assert!(panics(|| drop(GraphDevices::from_env(add()))));
            assert!(DevicePolicy::try_from_env().is_err());
            // A policy that was not read from the environment does not mind.
            assert!(added(DevicePolicy::only([Device::Cpu])).resolve(None).is_ok());
        });
    }
}
