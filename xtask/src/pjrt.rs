//! The `pjrt` suite: text of every op's cases and of random graphs, verified by `jaxlib` and executed by XLA on the CPU; the device
//! on a plugin of ours that runs programs the same way, and by StableHLO's reference interpreter; and models compiled by `libtpu` for TPUs that are not here.

use crate::exec::{Run, cargo_command};
use crate::outcome::Outcome;
use crate::python::{absent, environment};
use crate::root;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What checks, pinned; with the number, the name of their environment.
const PACKAGES: &[&str] =
    &["jax==0.10.2", "jaxlib==0.10.2", "libtpu==0.0.52", "ml_dtypes==0.6.0", "numpy==2.4.6"];
const ENVIRONMENT: &str = "pjrt-tests-1";

/// Tests of the packages that say something of this device, in one build.
fn tests(targets: &[&str], only: &str) -> Command {
    let mut command = cargo_command(&["test", "--no-fail-fast"]);
    command.args(["-p", "rlx-pjrt", "-p", "rlx-onnx", "-p", "rlx-contract"]);
    command.args(["--features", "rlx-runtime/tpu,rlx-contract/tpu"]);
    targets.iter().for_each(|target| {
        command.args(["--test", target]);
    });
    command.args(["--", "--nocapture", only]).env("RLX_TEST_ALL", "1");
    command
}

/// Writes the cases and checks them, runs the device on a plugin of ours, and compiles for TPUs.
pub fn run(run: &Run) -> Outcome {
    let python = match environment(ENVIRONMENT, PACKAGES) {
        Ok(python) => python,
        Err(why) => return absent(&why),
    };
    let mut outcome = text(run, &python);
    outcome.add(on_the_plugin(run, &python));
    outcome.add(by_the_interpreter(run, &python));
    outcome.add(ahead_of_time(run, &python));
    outcome
}

/// Text of every op's cases and of random graphs: verified, and executed by XLA.
fn text(run: &Run, python: &Path) -> Outcome {
    let folder = root().join("target/xtask/stablehlo");
    let _ = fs::remove_dir_all(&folder);
    if let Err(e) = fs::create_dir_all(&folder) {
        return Outcome::fail(format!("{}: {e}", folder.display()));
    }
    let made = run.check(tests(&["stablehlo"], "").env("RLX_STABLEHLO_OUT", &folder));
    if made.failed > 0 {
        return made;
    }
    run.tests(Command::new(python).arg(root().join("tools/stablehlo_check.py")).arg(&folder))
}

/// The device on a plugin that has XLA run its programs on the CPU: its own tests, ONNX's node cases, and the contract.
fn on_the_plugin(run: &Run, python: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    for (targets, only) in [
        (&["plugin"][..], ""),
        (&["node_suite"], "on_tpu"),
        (&["contract_*"], "tpu::"),
        (&["contract_devices_built"], ""),
    ] {
        let mut command = tests(targets, only);
        command.env("RLX_TEST_PJRT_PYTHON", python).env("RLX_PJRT_PLUGIN", plugin());
        let found = run.tests(command.env("RLX_TEST_DEVICES", "tpu"));
        outcome.add(if only == "tpu::" { found.of_contract("tpu") } else { found });
    }
    outcome
}

/// The device's own tests with small goldens, and ONNX's node cases, on that plugin with StableHLO's reference interpreter in place of XLA.
fn by_the_interpreter(run: &Run, python: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    for (target, only) in [("plugin", ""), ("node_suite", "on_tpu")] {
        let mut command = tests(&[target], only);
        command.env("RLX_TEST_PJRT_PYTHON", python).env("RLX_PJRT_PLUGIN", plugin());
        // It is slow: larger models and more graphs are XLA's.
        command
            .env("RLX_TEST_PJRT_ENGINE", "interpreter")
            .env("RLX_TEST_DEVICES", "tpu")
            .env_remove("RLX_TEST_ALL");
        outcome.add(run.tests(&mut command));
    }
    outcome
}

/// The plugin, where Cargo builds it.
fn plugin() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("debug/deps/librlx_fake_pjrt.so")
}

/// Models compiled by `libtpu` for TPUs that are not here.
fn ahead_of_time(run: &Run, python: &Path) -> Outcome {
    let library = python.parent().and_then(Path::parent).map(|environment| environment.join("lib"));
    let library = library.and_then(|lib| fs::read_dir(lib).ok()).into_iter().flatten().flatten();
    let mut plugins = library.map(|version| version.path().join("site-packages/libtpu/libtpu.so"));
    let Some(plugin) = plugins.find(|plugin| plugin.exists()) else {
        return Outcome::skip("libtpu is not in its package");
    };
    let mut ahead = tests(&["ahead_of_time"], "");
    // There is no server that says which TPU this machine has.
    run.tests(ahead.env("RLX_TEST_LIBTPU", plugin).env("TPU_SKIP_MDS_QUERY", "1"))
}
