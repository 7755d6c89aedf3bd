//! Models with mutated structure (see [`rlx_onnx::testing::Mutator`]): a typed error, or a graph that
//! compiles and runs.
//!
//! `RLX_MUTATE_CASES=100000` sets the number of cases, `RLX_MUTATE_SEED=7` the seed, and `RLX_MUTATE_CASE=7:812` runs one case and
//! writes its file to the temporary folder.

mod common;

use common::attempt;
use prost::Message;
use rlx_onnx::proto::ModelProto;
use rlx_onnx::testing::{Choices, Mutator, seeds};
use std::collections::BTreeMap;

/// Cases of one ordinary test run.
const CASES: usize = 6_000;
/// Larger models are left out: they take long, and hold nothing that smaller ones do not.
const MOST_BYTES: usize = 20_000;

/// The node cases' models where they are at hand, and one for each op.
fn models() -> Vec<ModelProto> {
    let mut all = seeds();
    let Some(data) = rlx_testdata::ONNX_CASES.path() else { return all };
    let folder = data.join("onnx/backend/test/data/node");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    paths.sort();
    for path in paths {
        let bytes = std::fs::read(path.join("model.onnx")).unwrap_or_default();
        if bytes.len() <= MOST_BYTES {
            all.extend(ModelProto::decode(&bytes[..]));
        }
    }
    all
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

#[test]
fn mutated_models_are_rejected_or_run() {
    let models = models();
    let mutator = Mutator::with_stock(&models);
    let one = std::env::var("RLX_MUTATE_CASE").ok().and_then(|v| {
        let (seed, case) = v.split_once(':')?;
        Some((seed.parse::<usize>().ok()?, case.parse::<usize>().ok()?))
    });
    let (seed, first, count) = match one {
        Some((seed, case)) => (seed, case, 1),
        None => (number("RLX_MUTATE_SEED", 1), 0, number("RLX_MUTATE_CASES", CASES)),
    };
    common::watch();
    let (mut reached, mut faults) =
        (BTreeMap::<String, usize>::new(), BTreeMap::<String, Vec<String>>::new());
    for case in first..first + count {
        let mut choices = Choices::seeded((seed as u64) << 32 | case as u64);
        let mut model = models[choices.below(models.len())].clone();
        mutator.mutate(&mut model, &mut choices);
        let bytes = model.encode_to_vec();
        if one.is_some() {
            let path = std::env::temp_dir().join(format!("mutated-{seed}-{case}.onnx"));
            std::fs::write(&path, &bytes).expect("the folder of temporary files can be written to");
            println!("{}", path.display());
        }
        match attempt(&format!("{seed}:{case}"), &bytes) {
            Ok(came) => *reached.entry(format!("{came:?}")).or_default() += 1,
            Err(why) => {
                let place: String =
                    why.chars().filter(|c| !c.is_ascii_digit() || why.starts_with("panicked")).collect();
                faults
                    .entry(place.chars().take(90).collect())
                    .or_default()
                    .push(format!("{seed}:{case}: {why}"));
            }
        }
    }
    let failed: usize = faults.values().map(Vec::len).sum();
    println!("{count} mutated models: {reached:?}");
    println!("@counts passed={} failed={failed}", count - failed);
    let list = faults.values().map(|f| format!("{} times: {}", f.len(), f[0])).collect::<Vec<_>>().join("\n");
    assert!(faults.is_empty(), "{list}");
    if one.is_none() {
        let ran = reached.get("Ran").copied().unwrap_or(0);
        assert!(ran * 20 > count, "the changes must be mixed: {ran} of {count} ran");
    }
}
