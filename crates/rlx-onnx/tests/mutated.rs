//! Models with mutated structure (see [`rlx_onnx::testing::Mutator`]): a typed error, or a graph that
//! compiles and runs.
//!
//! `RLX_MUTATE_CASES=100000` sets the number of cases, `RLX_MUTATE_SEED=7` the seed, and `RLX_MUTATE_CASE=7:812` runs one case and
//! writes its file to the temporary folder. `RLX_MUTATE_OP=BeamSearch` takes the models alone that have this op.

mod common;

use common::attempt;
use prost::Message;
use rlx_onnx::proto::tensor_proto::DataType;
use rlx_onnx::proto::{ModelProto, type_proto};
use rlx_onnx::testing::{Choices, Mutator, seeds};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Cases of one ordinary test run.
const CASES: usize = 6_000;
/// Larger models are left out: they take long, and hold nothing that smaller ones do not.
const MOST_BYTES: usize = 20_000;

/// One model for each op, the committed ones of other domains, and the node cases' where they are at hand.
fn models() -> Vec<ModelProto> {
    let mut all = seeds();
    all.extend(files(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/domain_ops"), |path| path));
    if let Some(data) = rlx_testdata::ONNX_CASES.path() {
        all.extend(files(data.join("onnx/backend/test/data/node"), |path| path.join("model.onnx")));
    }
    if let Ok(op) = std::env::var("RLX_MUTATE_OP") {
        let has = |model: &ModelProto| model.graph.iter().flat_map(|g| &g.node).any(|n| n.op_type() == op);
        all.retain(has);
        assert!(!all.is_empty(), "no model has the op {op}");
    }
    all
}

/// The small models of a folder.
fn files(folder: PathBuf, model: impl Fn(PathBuf) -> PathBuf) -> Vec<ModelProto> {
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| model(e.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "onnx"));
    paths.sort();
    let small = |bytes: &Vec<u8>| bytes.len() <= MOST_BYTES;
    let read = paths.iter().filter_map(|path| std::fs::read(path).ok()).filter(small);
    read.filter_map(|bytes| ModelProto::decode(&bytes[..]).ok()).collect()
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
/// Of each op a model, with each operand in turn of another type, and then all of them.
#[test]
fn operands_of_other_types_are_rejected_or_run() {
    const TYPES: [DataType; 6] = [
        DataType::Int32,
        DataType::Bool,
        DataType::Uint8,
        DataType::Double,
        DataType::String,
        DataType::Complex64,
    ];
    common::watch();
    let (mut seen, mut tried, mut faults) = (BTreeSet::new(), 0, Vec::new());
    for model in models() {
        let Some(graph) = &model.graph else { continue };
        let Some(node) = graph.node.first().filter(|_| graph.node.len() == 1) else { continue };
        if !seen.insert((node.domain.clone(), node.op_type.clone(), graph.input.len())) {
            continue;
        }
        let (name, all) = (format!("{} {}", node.domain(), node.op_type()), graph.input.len());
        for (ty, which) in TYPES.iter().flat_map(|ty| (0..=all).map(move |i| (ty, i))) {
            let mut changed = model.clone();
            let operands = changed.graph.iter_mut().flat_map(|g| &mut g.input);
            for (_, operand) in operands.enumerate().filter(|(i, _)| which == all || *i == which) {
                if let Some(type_proto::Value::TensorType(tensor)) =
                    operand.r#type.as_mut().and_then(|t| t.value.as_mut())
                {
                    tensor.elem_type = Some(*ty as i32);
                }
            }
            tried += 1;
            if let Err(why) = attempt(&name, &changed.encode_to_vec()) {
                faults.push(format!("{name}, operand {which} of {all} as {ty:?}: {why}"));
            }
        }
    }
    println!("{tried} models with operands of other types, {} ops", seen.len());
    assert!(tried > 1_000, "{tried}");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
