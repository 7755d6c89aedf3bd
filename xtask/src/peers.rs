//! The `peers` suite: `bench/peers` on small models and `bench/gpu.py` by tiny sizes on the CPU, so that the comparisons work when somebody wants
//! their figures.

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

/// The groups of `bench/gpu.py`, but that through Vulkan.
const GROUPS: usize = 6;

/// What `bench/gpu.py` needs and `bench/peers` only for some models.
const TORCH: &str = "import environment; environment.install_torch()";

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
        Ok(failed) if failed.is_empty() => {}
        Ok(failed) => return Outcome::fail(format!("{} was not run by {}", MODELS[0], failed.join(", "))),
        Err(e) => return Outcome::fail(e),
    }
    let mut outcome = compared;
    outcome.add(gpu(run, &folder));
    outcome
}

/// `bench/gpu.py` on the CPU, in the environment that `bench/peers` made: its decoders are PyTorch's, and every row is timed by RLX and by a peer.
fn gpu(run: &Run, folder: &Path) -> Outcome {
    let python = root().join("target/peers/environment/bin/python");
    let mut outcome =
        run.check(Command::new(&python).args(["-c", TORCH]).current_dir(root().join("bench/peers")));
    let mut checked = Command::new(&python);
    outcome.add(run.check(checked.arg(root().join("bench/devices/check.py")).current_dir(root())));
    let json = folder.join("gpu.json");
    let mut timed = Command::new(&python);
    timed.arg(root().join("bench/gpu.py")).args(["--device", "cpu", "--rounds", "2"]).current_dir(root());
    timed.arg("--json").arg(&json).arg("--markdown").arg(folder.join("gpu.md"));
    outcome.add(run.check(&mut timed));
    if outcome.failed == 0
        && let Err(missing) = all_timed(&json)
    {
        return Outcome::fail(missing);
    }
    outcome
}

/// Whether every group has rows, and each has a time of RLX's and of a peer's.
fn all_timed(path: &Path) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let json: Json = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let groups = json["groups"].as_array().filter(|groups| groups.len() == GROUPS).ok_or("not all groups")?;
    for group in groups {
        let rows = group["ms"].as_object().filter(|rows| !rows.is_empty());
        let rows = rows.ok_or_else(|| format!("{} has no rows: {}", group["group"], group["absent"]))?;
        for (row, times) in rows {
            let columns: Vec<&String> =
                times.as_object().into_iter().flatten().map(|(name, _)| name).collect();
            let own = columns.iter().filter(|name| name.starts_with("RLX")).count();
            if own == 0
                || own == columns.len()
                || group["goals"].as_array().is_none_or(|g| g.len() != rows.len())
            {
                return Err(format!("{}, {row}: only {columns:?}; {}", group["group"], group["absent"]));
            }
        }
    }
    Ok(())
}

/// The peers that could not run the first model.
fn failed(path: &Path) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let json: Json = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let failed = json["results"][0]["failed"].as_object().ok_or("no results")?;
    Ok(failed.iter().map(|(name, why)| format!("{name} ({why})")).collect())
}
