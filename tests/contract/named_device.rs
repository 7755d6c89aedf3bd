//! A device from outside under a name of its own: sessions, chains, the environment, artefacts, calibrations.

use rlx_contract::{empty_folder, with_cache, with_env};
use rlx_runtime::backend::Backend;
use rlx_runtime::*;

/// A device that computes as the CPU does.
fn acme() -> Device {
    let make: fn() -> Box<dyn Backend> = || backend_for(Device::Cpu).expect("the CPU is built in");
    register_device("acme", make).expect("a name that is free")
}

/// `x + w` of two elements.
fn sum() -> Graph {
    let mut g = Graph::new("sum");
    let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    let y = g.add(x, w);
    g.set_outputs(vec![y]);
    g
}

const X: &[(&str, &[f32])] = &[("x", &[3.0, 4.0])];

#[test]
fn names_are_checked() {
    let make: fn() -> Box<dyn Backend> = || unreachable!("it is never asked for");
    for name in ["", "Acme", "acme one", "acme_1", "-", "vulkan", "coreml"] {
        let error = register_device(name, make).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{name}: {error}");
        assert!(std::error::Error::source(&error).is_some_and(|e| e.is::<DeviceNameError>()));
    }
    assert!("zenith".parse::<Device>().is_err());
    let zenith = Device::declare("zenith").unwrap();
    assert!(!is_available(zenith));
    let error = Session::try_new(zenith).unwrap_err();
    assert_eq!((error.kind(), error.device()), (ErrorKind::DeviceUnavailable, Some("zenith")));
    assert!(error.to_string().contains("register_device"), "{error}");
}

#[test]
fn a_session_runs_on_it_and_errors_name_it() {
    let acme = acme();
    assert_eq!((acme.to_string().as_str(), full_name(acme)), ("acme", "acme"));
    assert_eq!("ACME".parse(), Ok(acme));
    assert!(registered_devices().contains(&acme) && available_devices().contains(&acme));
    assert!(supports_graph(acme, &sum()) && devices_for(&sum()).contains(&acme));
    let mut compiled = Session::new(acme).compile(sum());
    assert_eq!(compiled.device(), acme);
    compiled.set_param("w", &[1.0, 2.0]);
    assert_eq!(compiled.run(X), [[4.0, 6.0]]);
    assert_eq!(fastest_among(&[Device::Cpu, acme]), acme);
    assert_eq!(fastest_among(&[acme, Device::Vulkan]), Device::Vulkan);
}

#[test]
fn chains_and_policies_take_it() {
    let acme = acme();
    let mut devices = GraphDevices::new(sum());
    devices.set_param("w", &[1.0, 2.0]);
    assert!(devices.devices().contains(&acme));
    assert_eq!(devices.run_try(&[Device::Tpu, acme, Device::Cpu], X).unwrap(), (acme, vec![vec![4.0, 6.0]]));
    let report = device_report(&sum(), &DevicePolicy::only([acme]));
    assert!(report.iter().any(|c| c.device == acme && c.recommended && c.label == "acme"), "{report:?}");
}

#[test]
fn the_environment_names_it() {
    with_env("the_environment_names_it", &[("RLX_DEVICE", "acme")], || {
        let acme = acme();
        assert_eq!(resolve_device(&sum(), None, &DevicePolicy::all()), Ok(acme));
    });
    with_env(
        "the_environment_names_it",
        &[("RLX_DEVICE_CHAIN", "tpu,acme"), ("RLX_DENY_DEVICES", "cpu")],
        || {
            let acme = acme();
            let mut devices = GraphDevices::from_env(sum());
            devices.set_param("w", &[1.0, 2.0]);
            assert_eq!(devices.run_chain(None, X).unwrap().0, acme);
        },
    );
    with_env("the_environment_names_it", &[("RLX_DEVICE", "nobody")], || {
        let acme = acme();
        let error = resolve_device(&sum(), None, &DevicePolicy::all()).unwrap_err();
        assert!(error.contains("nobody") && error.contains(acme.name()), "{error}");
    });
}

#[test]
fn files_are_kept_by_its_name() {
    with_cache("files_are_kept_by_its_name", || {
        let acme = acme();
        let folder = empty_folder("acme");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("sum.rlx");
        let mut weights = WeightStore::new();
        let bytes = [1f32, 2.0].map(f32::to_le_bytes).concat();
        weights.insert("w", Weight::owned(DType::F32, &[2], bytes).unwrap());
        let session = Session::new(acme);
        let mut compiled = session.compile(sum());
        compiled.try_set_weights(&weights).unwrap();
        session.save(&path, &mut compiled, NewArtefact::new("sum", &weights)).unwrap();
        let artefact = Artefact::open(&path).unwrap();
        assert_eq!(artefact.target().device, "acme");
        assert_eq!(session.load(&artefact).unwrap().run(X), [[4.0, 6.0]]);
        let error = Session::new(Device::Cpu).load(&artefact).unwrap_err();
        assert!(error.to_string().contains("acme"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();

        let calibration = calibration_path(acme).unwrap();
        assert!(calibration.file_name().unwrap().to_string_lossy().starts_with("acme-"), "{calibration:?}");
        calibrate(acme).unwrap();
        assert!(std::fs::read_to_string(calibration).unwrap().contains("acme, "));
        assert!(try_estimate_graph_cost(&sum(), &*cost_model(acme).unwrap()).unwrap() > 0.0);
    });
}
