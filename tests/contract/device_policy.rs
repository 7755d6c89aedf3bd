//! The contract's section "devices" (`device_policy`, `cost`, `device_bench`), by public names only.

use rlx_contract::{ABSENT, DEVICE, with_env};
use rlx_ir::op::Activation;
use rlx_ir::{DType, Graph, Shape};
use rlx_runtime::*;

fn exp() -> Graph {
    let mut g = Graph::new("exp");
    let x = g.input("x", Shape::new(&[4], DType::F32));
    let y = g.activation(Activation::Exp, x, Shape::new(&[4], DType::F32));
    g.set_outputs(vec![y]);
    g
}

#[test]
fn a_policy_allows_denies_and_prefers() {
    rlx_contract::register();
    assert_eq!(DevicePolicy::default(), DevicePolicy::all());
    assert_eq!(DevicePolicy::all().pick_strategy(), DevicePickStrategy::CostModel);
    let all = devices_for_with_policy(&exp(), &DevicePolicy::all());
    assert_eq!(all, devices_for(&exp()));
    assert!(all.contains(&Device::Cpu) && all.contains(&DEVICE));
    let only = |devices: &[Device]| DevicePolicy::only(devices.iter().copied());
    assert_eq!(devices_for_with_policy(&exp(), &only(&[Device::Tpu, Device::Cpu])), [Device::Cpu]);
    assert_eq!(devices_for_with_policy(&exp(), &only(&[])), []);
    let denied = only(&[Device::Cpu, DEVICE]).with_deny([Device::Cpu]);
    assert_eq!(devices_for_with_policy(&exp(), &denied), [DEVICE]);
    let preferred = DevicePolicy::all().with_prefer([Device::Tpu, DEVICE]);
    assert_eq!(devices_for_with_policy(&exp(), &preferred)[0], DEVICE);
    assert_eq!(fastest_device_for_with_policy(&exp(), &preferred), DEVICE);
    let picked = DevicePolicy::all().with_benchmark_pick(7).pick_strategy();
    assert_eq!(picked, DevicePickStrategy::Benchmark { runs: 7 });
}

#[test]
fn the_report_has_every_device_with_what_is_in_its_way() {
    let policy = DevicePolicy::all().with_deny([Device::Gpu]);
    let report = device_report(&exp(), &policy);
    assert_eq!(report.iter().map(|c| c.device).collect::<Vec<_>>(), Device::all());
    for candidate in &report {
        assert_eq!(candidate.label, full_name(candidate.device));
        assert_eq!(candidate.available, is_available(candidate.device));
        assert_eq!(candidate.registered, registered_devices().contains(&candidate.device));
        assert_eq!(candidate.supports_graph, supports_graph(candidate.device, &exp()));
        assert!(candidate.blocker.is_some() || candidate.supports_graph);
        assert!(!candidate.recommended || candidate.blocker.is_none());
    }
    let of = |device| report.iter().find(|c| c.device == device).unwrap();
    assert!(of(Device::Gpu).blocker.as_ref().unwrap().contains("denied"));
    let absent = of(ABSENT);
    let blocker = absent.blocker.as_ref().unwrap();
    assert!(!absent.available && !absent.registered && blocker.contains("\"ane\""), "{blocker}");
    assert!(of(Device::Cpu).blocker.is_none() && of(Device::Cpu).available);
    assert_eq!(report.iter().filter(|c| c.recommended).count(), 1);
}

#[test]
fn a_hint_must_be_usable() {
    let policy = DevicePolicy::all();
    assert_eq!(resolve_device(&exp(), Some(Device::Cpu), &policy), Ok(Device::Cpu));
    let e = resolve_device(&exp(), Some(Device::Cuda), &policy).unwrap_err();
    assert!(e.contains("CUDA") && e.contains("\"cuda\""), "{e}");
    let e = resolve_device(&exp(), Some(Device::Cpu), &policy.clone().with_deny([Device::Cpu])).unwrap_err();
    assert!(e.contains("CPU") && e.contains("denied"), "{e}");
    let picked = resolve_device(&exp(), None, &DevicePolicy::only([Device::Cpu, Device::Tpu]));
    assert_eq!(picked, Ok(Device::Cpu));
    let e = resolve_device(&exp(), None, &DevicePolicy::only([Device::Tpu])).unwrap_err();
    assert!(e.contains("TPU") && e.contains("CPU"), "{e}");
}

#[test]
fn a_chain_resolves_to_its_first_usable_device() {
    let policy = DevicePolicy::all();
    let chain = [Device::Tpu, Device::Cuda, Device::Cpu];
    assert_eq!(resolve_device_chain(&exp(), &chain, &policy), Ok(Device::Cpu));
    let e = try_resolve_device_chain(&exp(), &chain[..2], &policy).unwrap_err();
    assert_eq!(e.attempts.iter().map(|a| a.0).collect::<Vec<_>>(), [Device::Tpu, Device::Cuda]);
    assert!(resolve_device_chain(&exp(), &[], &policy).unwrap_err().contains("empty"));
}

#[test]
fn the_environment_makes_a_policy() {
    let name = "the_environment_makes_a_policy";
    with_env(name, &[], || {
        assert_eq!(DevicePolicy::from_env(), DevicePolicy::default());
        assert_eq!(device_chain_from_env(), []);
    });
    let variables = [
        ("RLX_DEVICES", "CPU, tpu,vk"),
        ("RLX_DENY_DEVICES", "vulkan"),
        ("RLX_PREFER_DEVICES", "nvidia,cpu"),
        ("RLX_BENCHMARK_PICK", "3"),
        ("RLX_DEVICE_CHAIN", "hip, dx12"),
    ];
    with_env(name, &variables, || {
        let policy = DevicePolicy::only([Device::Cpu, Device::Tpu, Device::Vulkan])
            .with_deny([Device::Vulkan])
            .with_prefer([Device::Cuda, Device::Cpu])
            .with_benchmark_pick(3);
        assert_eq!(DevicePolicy::from_env(), policy);
        // Devices that cannot be used are ignored in the lists.
        assert_eq!(devices_for_with_policy(&exp(), &policy), [Device::Cpu]);
        assert_eq!(device_chain_from_env(), [Device::Rocm, Device::DirectX]);
    });
}

#[test]
fn the_fastest_device_can_run_the_graph() {
    let device = fastest_device_for_with_policy(&exp(), &DevicePolicy::only([Device::Cpu, Device::Tpu]));
    assert_eq!(device, Device::Cpu);
    assert!(try_fastest_device_for_with_policy(&exp(), &DevicePolicy::only([Device::Tpu])).is_err());
}
