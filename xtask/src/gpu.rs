//! The suites `gpu` and `gpu-all`: devices with generated kernels on software drivers, on the fake driver, or on the machine's own GPUs.

use crate::exec::{Run, cargo_command};
use crate::outcome::Outcome;
use crate::suites::DEVICE_FEATURES;

/// ONNX's node cases, which are some minutes on all devices together.
const NODES: &[&str] = &["node_suite"];

/// Runs the tests; all of them where `all` asks for it.
pub fn run(run: &Run, all: bool) -> Outcome {
    let mut outcome = Outcome::default();
    if let Err(why) = crate::drivers::ensure() {
        // The tests say themselves which device is absent, and whether that is a failure.
        outcome.notes.push(why);
    }
    // Whose tests, and which of them.
    let parts: [(&[&str], &[&str]); 10] = [
        (&["gpu", "simt", "hardware", "coop"], &[]),
        (&["contract_devices_built"], &[]),
        (&["contract_*"], &["vulkan::"]),
        (&["contract_*"], &["opengl::"]),
        (&["contract_*"], &["cuda::"]),
        (&["contract_*"], &["rocm::"]),
        (&["aot"], &["vulkan::", "opengl::"]),
        (&["cli", "verify"], &["vulkan"]),
        (NODES, &["on_vulkan", "on_opengl"]),
        (NODES, &["on_cuda", "on_rocm"]),
    ];
    let required = std::env::var("RLX_TEST_DEVICES").unwrap_or_default();
    let own = ["cuda", "rocm"].iter().any(|name| required.split(',').any(|device| device == *name));
    for (targets, only) in parts {
        if targets == NODES && !all {
            continue;
        }
        // The whole workspace is named, so that only what these features change is compiled again.
        let mut command =
            cargo_command(&["test", "--workspace", "--no-fail-fast", "--features", DEVICE_FEATURES]);
        targets.iter().for_each(|target| _ = command.args(["--test", target]));
        // One test at a time: software devices use all cores for each.
        command.args(["--", "--nocapture", "--test-threads", "1"]).args(only);
        command.env("RLX_TEST_ALL", if all { "1" } else { "0" });
        // Whoever asks for the machine's own GPUs by name gets those.
        if matches!(only, ["cuda::" | "rocm::" | "on_cuda", ..]) && !own {
            match crate::fake_driver::folder() {
                Ok(folder) => {
                    command.env("RLX_LIBRARY_PATH", folder);
                    command.env("RLX_TEST_DEVICES", format!("{required},cuda,rocm"));
                }
                Err(why) => outcome.add(Outcome::fail(why)),
            }
        }
        let found = run.tests(&mut command);
        outcome.add(match (targets, only) {
            (["contract_*"], [device]) => found.of_contract(device.trim_end_matches(':')),
            _ => found,
        });
    }
    if all {
        outcome.add(on_swiftshader(run));
    }
    outcome
}

/// The tests of wgpu's devices on a second Vulkan driver.
fn on_swiftshader(run: &Run) -> Outcome {
    let description = match crate::drivers::swiftshader() {
        Ok(description) => description,
        Err(why) => return Outcome::skip(why),
    };
    let mut command =
        cargo_command(&["test", "--workspace", "--no-fail-fast", "--features", DEVICE_FEATURES]);
    command.args(["--test", "gpu", "--", "--nocapture", "--test-threads", "1"]);
    command.env("VK_DRIVER_FILES", description).env("RLX_TEST_DEVICES", "vulkan");
    run.tests(&mut command)
}
