//! The `coreml` suite: every model's package is evaluated from its bytes, and read by coremltools; so are those of ONNX's node cases and of the contract,
//! but for the reading.

use crate::exec::{Run, cargo_command};
use crate::outcome::Outcome;
use crate::{python, root};
use std::fs;
use std::process::Command;

/// What reads the packages, pinned; with the number, the name of their environment.
const PACKAGES: &[&str] = &["coremltools==9.0", "numpy==2.2.6", "protobuf==6.33.0"];
const ENVIRONMENT: &str = "coreml-1";

/// Writes and evaluates the packages, then has them read.
pub fn run(run: &Run) -> Outcome {
    let interpreter = match python::environment(ENVIRONMENT, PACKAGES) {
        Ok(interpreter) => interpreter,
        Err(why) => return python::absent(&why),
    };
    let folder = root().join("target/xtask/coreml");
    let _ = fs::remove_dir_all(&folder);
    if let Err(e) = fs::create_dir_all(&folder) {
        return Outcome::fail(format!("{}: {e}", folder.display()));
    }
    // By itself: naming the workspace would build every member's libraries and programs for the tests of this one.
    let mut make =
        cargo_command(&["test", "--quiet", "-p", "rlx-coreml", "--test", "coreml", "--", "--nocapture"]);
    let mut outcome = run.tests(make.env("RLX_TEST_ALL", "1").env("RLX_COREML_OUT", &folder));
    let mut cases = cargo_command(&["test", "-p", "rlx-onnx", "--test", "node_suite"]);
    cases.args(["--", "--nocapture", "node_cases_pass_as_packages"]);
    outcome.add(run.tests(&mut cases));
    let mut contract =
        cargo_command(&["test", "--no-fail-fast", "-p", "rlx-contract", "--test", "contract_*"]);
    contract.args(["--features", "ane", "--", "--nocapture", "ane::"]).env("RLX_TEST_DEVICES", "ane");
    outcome.add(run.tests(&mut contract).of_contract("ane"));
    let mut check = Command::new(interpreter);
    outcome.add(run.check(check.arg(root().join("tools/coreml/check.py")).arg(&folder)));
    // Weights of every model, twice what the sources are.
    let _ = fs::remove_dir_all(&folder);
    outcome
}
