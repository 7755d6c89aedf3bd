//! The command in a program that has a device of its own: `rlx::command` knows it by its name.

mod common;

use std::process::ExitCode;

use common::{FLOAT, Folder, model, node, value};
use rlx_runtime::{Device, backend_for, register_device};
use serde_json::Value as Json;

/// The arguments of the command, in a process that a test started to be one.
const ARGS: &str = "RLX_ACME_ARGS";

/// Not a test by itself: a vendor's command, whose device computes as the CPU does.
#[test]
fn a_vendors_command() {
    let Ok(args) = std::env::var(ARGS) else { return };
    register_device("acme", || backend_for(Device::Cpu).expect("the CPU is built in")).expect("a free name");
    let code = rlx::command(std::iter::once("rlx").chain(args.split(' ')).map(Into::into));
    assert_eq!(code, ExitCode::SUCCESS);
}

/// What the vendor's command prints; `variables` are its environment.
fn acme(folder: &Folder, args: &str, variables: &[(&str, &str)]) -> String {
    let mut command = std::process::Command::new(std::env::current_exe().expect("a test knows its program"));
    command.args(["--exact", "a_vendors_command", "--nocapture"]).current_dir(folder.path());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RLX_")) {
        command.env_remove(name);
    }
    command.env("RLX_CACHE_DIR", folder.path().join("cache")).env(ARGS, args).envs(variables.iter().copied());
    let output = command.output().expect("a test can start itself");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{args}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// The line of JSON that the command prints among those of the test.
fn json(folder: &Folder, args: &str, variables: &[(&str, &str)]) -> Json {
    let text = acme(folder, args, variables);
    let start = text.find(['{', '[']).expect("there is JSON");
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter();
    values.next().expect("one value").expect("valid JSON")
}

#[test]
fn the_command_knows_a_device_by_its_own_name() {
    let folder = Folder::new("named-device");
    let relu = model(
        &[value("x", FLOAT, &["3"])],
        &[node("Relu", &["x"], &["y"])],
        &[],
        &[value("y", FLOAT, &["3"])],
    );
    folder.write("relu.onnx", relu);

    let devices = json(&folder, "devices --json", &[]);
    let found = devices.as_array().unwrap().iter().find(|d| d["device"] == "acme");
    assert_eq!(found.unwrap()["available"], true, "{devices}");
    assert!(acme(&folder, "devices", &[]).contains("acme       acme     available"));

    let run = json(&folder, "run relu.onnx --input x=random --device acme --json", &[]);
    assert_eq!(run["device"], "acme", "{run}");
    let run = json(&folder, "run relu.onnx --input x=random --json", &[("RLX_DEVICE", "acme")]);
    assert_eq!(run["device"], "acme", "{run}");
    acme(&folder, "compile relu.onnx -o relu.rlx --device acme", &[]);
    let facts = json(&folder, "inspect relu.rlx --device acme --json", &[]);
    assert_eq!(facts["artefact"]["device"], "acme", "{facts}");

    // The plain command has no such device, and says which there are.
    let output = folder.rlx(&["run", "relu.onnx", "--input", "x=random", "--device", "acme"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("vulkan") && output.status.code() == Some(2));
}
