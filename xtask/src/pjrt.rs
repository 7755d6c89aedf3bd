//! The `pjrt` suite: text of every op's cases and of random graphs, verified by `jaxlib` and executed by XLA on the CPU; and
//! models compiled by `libtpu` for TPUs that are not here.

use crate::exec::{Run, cargo_command};
use crate::outcome::Outcome;
use crate::python::{absent, environment};
use crate::root;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What checks, pinned; with the number, the name of their environment.
const PACKAGES: &[&str] =
    &["jax==0.10.2", "jaxlib==0.10.2", "libtpu==0.0.52", "ml_dtypes==0.6.0", "numpy==2.4.6"];
const ENVIRONMENT: &str = "pjrt-tests-1";

/// Writes the cases, then checks them.
pub fn run(run: &Run) -> Outcome {
    let python = match environment(ENVIRONMENT, PACKAGES) {
        Ok(python) => python,
        Err(why) => return absent(&why),
    };
    let folder = root().join("target/xtask/stablehlo");
    let _ = fs::remove_dir_all(&folder);
    if let Err(e) = fs::create_dir_all(&folder) {
        return Outcome::fail(format!("{}: {e}", folder.display()));
    }
    // The whole workspace is named, so that nothing is compiled twice.
    let mut make = cargo_command(&["test", "--quiet", "--workspace", "--test", "stablehlo"]);
    let made = run.check(make.env("RLX_STABLEHLO_OUT", &folder).env("RLX_TEST_ALL", "1"));
    if made.failed > 0 {
        return made;
    }
    let mut check = Command::new(&python);
    let mut outcome = run.tests(check.arg(root().join("tools/stablehlo_check.py")).arg(&folder));
    // The runtime itself, on a plugin of ours that has XLA run its programs.
    let mut client = cargo_command(&["test", "--workspace", "--test", "plugin", "--", "--nocapture"]);
    outcome.add(run.tests(client.env("RLX_TEST_PJRT_PYTHON", &python).env("RLX_TEST_ALL", "1")));
    let library = python.parent().and_then(Path::parent).map(|environment| environment.join("lib"));
    let library = library.and_then(|lib| fs::read_dir(lib).ok()).into_iter().flatten().flatten();
    let mut plugins = library.map(|version| version.path().join("site-packages/libtpu/libtpu.so"));
    let Some(plugin) = plugins.find(|plugin| plugin.exists()) else {
        outcome.add(Outcome::skip("libtpu is not in its package"));
        return outcome;
    };
    let mut ahead = cargo_command(&["test", "--workspace", "--test", "ahead_of_time", "--", "--nocapture"]);
    // There is no server that says which TPU this machine has.
    ahead.env("RLX_TEST_LIBTPU", plugin).env("TPU_SKIP_MDS_QUERY", "1");
    outcome.add(run.tests(&mut ahead));
    outcome
}
