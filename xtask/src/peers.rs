//! The `peers` suite: `bench/peers` on small models, so that the comparison works when somebody wants its figures.

use std::collections::BTreeSet;
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
const PEERS: [&str; 5] = ["rlx", "onnxruntime", "openvino", "tract", "rten"];

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
    match missing(&folder.join("peers.json")) {
        Ok(missing) if missing.is_empty() => compared,
        Ok(missing) => Outcome::fail(format!("{} was not run by {}", MODELS[0], missing.join(", "))),
        Err(e) => Outcome::fail(e),
    }
}

/// The peers that do not appear with the first model.
fn missing(path: &Path) -> Result<Vec<&'static str>, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let json: Json = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let first = json["results"][0]["peers"].as_object().ok_or("no results")?;
    let present: BTreeSet<&str> = first.keys().map(String::as_str).collect();
    Ok(PEERS.into_iter().filter(|name| !present.contains(name)).collect())
}
