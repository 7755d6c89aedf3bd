//! The `peers` suite: `bench/peers` on small models, so that the comparison works when somebody wants its figures.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value as Json;

use crate::data::python;
use crate::exec::Run;
use crate::outcome::Outcome;
use crate::python::absent;
use crate::root;

/// Models, of which the first is one that every peer can run.
const MODELS: &[&str] = &["mlp", "digits+qdq:batch=4", "bert_dynamic:batch=1,seq=16", "digits:batch=4"];

/// Compares with all peers, in f32 and bf16, by a few short rounds. RLX has to run all models with the peers' outputs, and every
/// peer the first.
pub fn run(run: &Run) -> Outcome {
    let Some(python) = python() else { return absent("no Python (3)") };
    let folder = root().join("target/xtask/peers");
    let mut command = Command::new(python);
    command.arg(root().join("bench/peers")).args(MODELS).current_dir(root());
    command.args(["--precision", "f32,bf16", "--threads", "2", "--rounds", "2", "--seconds", "0.02"]);
    for (option, file) in [("--json", "peers.json"), ("--markdown", "peers.md"), ("--chart", "peers.svg")] {
        command.arg(option).arg(folder.join(file));
    }
    let compared = run.check(&mut command);
    if compared.failed > 0 {
        return compared;
    }
    match failed(&folder.join("peers.json")) {
        Ok(failed) if failed.is_empty() => compared,
        Ok(failed) => Outcome::fail(format!("{} was not run by {}", MODELS[0], failed.join(", "))),
        Err(e) => Outcome::fail(e),
    }
}

/// The peers that could not run the first model.
fn failed(path: &Path) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let json: Json = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let failed = json["results"][0]["failed"].as_object().ok_or("no results")?;
    Ok(failed.iter().map(|(name, why)| format!("{name} ({why})")).collect())
}
