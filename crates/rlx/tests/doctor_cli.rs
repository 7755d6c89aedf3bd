//! `rlx doctor`: its report, and when it reports a fault.

mod common;

use common::Folder;
use serde_json::Value as Json;

/// The exit code and the report, with these variables set.
fn doctor(folder: &Folder, set: &[(&str, &str)]) -> (i32, Json) {
    let output = folder.command(&["doctor", "--json"]).envs(set.iter().copied()).output().unwrap();
    let report = serde_json::from_slice(&output.stdout).expect("one JSON value");
    (output.status.code().expect("it ends by itself"), report)
}

#[test]
fn a_machine_that_works_is_well() {
    let folder = Folder::new("doctor");
    let (code, report) = doctor(&folder, &[("RLX_NUM_THREADS", "2"), ("RLX_TEST_ALL", "0")]);
    assert_eq!((code, &report["ok"], &report["faults"]), (0, &Json::from(true), &Json::Array(vec![])));
    let machine = &report["machine"];
    assert_eq!(machine["threads"], 2);
    assert!(machine["cores"].as_u64() > Some(0) && machine["cpu_fault"].is_null());
    assert_eq!(machine["instruction_sets"][0], "portable");
    let devices = report["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 12);
    for d in devices {
        let (available, reason) = (d["available"].as_bool().unwrap(), d["reason"].as_str());
        assert_eq!(available, reason.is_none(), "{d}");
        assert!(available || d["hint"].is_string(), "{d} does not say how to get it");
    }
    assert!(devices[0]["available"] == true && devices[0]["about"].is_string());
    let threads = report["environment"].as_array().unwrap().iter().find(|v| v["name"] == "RLX_NUM_THREADS");
    assert_eq!(threads.unwrap()["value"], "2");
    assert_eq!(report["caches"]["exists"], false);
    assert_eq!(folder.names().len(), 0, "it leaves nothing behind");
}

#[test]
fn variables_that_cannot_be_honoured_are_faults() {
    let folder = Folder::new("doctor-faults");
    let cases = [
        ("RLX_CPU_ISA", "abacus", "names no instruction set"),
        ("RLX_NUM_THREADS", "many", "many"),
        ("RLX_DEVICE", "tpu", "no backend"),
        ("RLX_DEVICE", "quantum", "known devices"),
        ("RLX_DEVICE_CHAIN", "cpu,quantum", "known devices"),
        ("RLX_BENCHMARK_PICK", "0", "use 1 or more"),
        ("RLX_KERNEL_DISPATCH", "perhaps", "none of native"),
        ("RLX_TUNE", "perhaps", "none of off, cached, measure"),
        ("RLX_CACHE_LIMIT", "much", "much"),
        ("RLX_CACHE_DIR", "/dev/null/rlx", "nothing can be written there"),
        ("RLX_DEVIC", "cpu", "no variable of this name"),
    ];
    for (name, value, why) in cases {
        let (code, report) = doctor(&folder, &[(name, value)]);
        let faults = report["faults"].to_string();
        assert_eq!((code, &report["ok"]), (1, &Json::from(false)), "{name}={value}: {faults}");
        assert!(faults.contains(name) && faults.contains(why), "{name}={value}: {faults}");
    }
    let (_, report) = doctor(&folder, &[("RLX_DEVIC", "cpu")]);
    let hint = report["environment"].as_array().unwrap().iter().find(|v| v["name"] == "RLX_DEVIC");
    assert_eq!(hint.unwrap()["hint"], "did you mean RLX_DEVICE?");
}

#[test]
fn people_read_the_same_and_stale_entries_are_counted() {
    let folder = Folder::new("doctor-text");
    std::fs::create_dir_all(folder.path().join("cache/aot")).unwrap();
    folder.write("cache/aot/old-000000000000.00.rlx", "not an artefact");
    let output = folder.rlx(&["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    for part in ["machine", "features off", "cpu ", "works: ", "help: ", "writable", "1 stale", "all is well"]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}
