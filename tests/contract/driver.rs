//! The contract's section "rlx_driver": the devices by name.

use rlx_runtime::Device;

#[test]
fn there_are_twelve_devices_in_the_order_of_the_contract() {
    use Device::*;
    let all = [Cpu, Metal, Mlx, Ane, Cuda, Rocm, Tpu, Gpu, Vulkan, OpenGl, DirectX, WebGpu];
    assert_eq!(Device::all(), all);
}

#[test]
fn names_print_and_parse_back_in_any_case() {
    for &device in Device::all() {
        let name = device.name();
        assert!(device.to_string().starts_with(name), "{device}");
        for text in [name.to_string(), name.to_lowercase(), name.to_uppercase()] {
            assert_eq!(text.parse::<Device>(), Ok(device), "{text}");
        }
    }
    assert!(Device::Cpu.to_string().starts_with("CPU"));
}

#[test]
fn the_usual_spellings_are_known() {
    let known = [
        ("mtl", Device::Metal),
        ("neural-engine", Device::Ane),
        ("coreml", Device::Ane),
        ("nvidia", Device::Cuda),
        ("hip", Device::Rocm),
        ("amd", Device::Rocm),
        ("wgpu", Device::Gpu),
        ("vk", Device::Vulkan),
        ("gl", Device::OpenGl),
        ("dx12", Device::DirectX),
        ("d3d12", Device::DirectX),
    ];
    for (text, device) in known {
        assert_eq!(text.parse::<Device>(), Ok(device), "{text}");
    }
}

#[test]
fn an_unknown_name_is_an_error_that_repeats_it() {
    for text in ["", "quantum", "cpu0"] {
        let error = text.parse::<Device>().expect_err("no such device").to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn every_device_has_a_feature_of_its_own() {
    let mut features: Vec<&str> = Device::all().iter().map(|d| d.feature()).collect();
    features.sort_unstable();
    features.dedup();
    assert_eq!(features.len(), 12);
}
