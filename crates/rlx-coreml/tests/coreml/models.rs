//! The test models as packages, against what PyTorch gave.

use std::time::Instant;

use rlx_coreml::Package;
use rlx_ir::ConstData;
use rlx_mil_eval::Tensor;
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_testdata::models::{Golden, Model, all, model};

use crate::common::{compiled, everything, given, got, keep, reread};

/// The package of a model for the sizes of a golden.
fn package(model: &Model, golden: &Golden) -> Result<Option<Package>, String> {
    let Some(path) = model.graph_file() else { return Ok(None) };
    let text = |e: rlx_ir::Error| e.to_string();
    let imported = import(&OnnxFile::open(&path).map_err(text)?, &ImportOptions::default()).map_err(text)?;
    let graph = compiled(&imported.graph, &golden.binding()).map_err(text)?;
    let weights = |name: &str| imported.weights.get(name).cloned();
    Package::of(&graph, &imported.outputs, &weights).map(Some).map_err(text)
}

fn find(list: &[(String, ConstData)], name: &str) -> Option<ConstData> {
    list.iter().find(|(n, _)| n == name).map(|(_, data)| data.clone())
}

/// Models that have no package, and what Core ML lacks for them.
const NO_PACKAGE: &[(&str, &str)] = &[
    ("t5_encoder", "floats as i64 may not fit"),
    ("t5_encoder_dynamo", "floats as i64 may not fit"),
    ("t5_encoder_full", "floats as i64 may not fit"),
    ("t5_decoder", "floats as i64 may not fit"),
    ("t5_decoder_dynamo", "floats as i64 may not fit"),
    ("t5_decoder_full", "floats as i64 may not fit"),
    ("t5_cached", "floats as i64 may not fit"),
    ("t5_cached_dynamo", "floats as i64 may not fit"),
    ("t5_cached_full", "floats as i64 may not fit"),
    ("classical_columns", "floats as i64 may not fit"),
    ("model_builder", "MIL has no Shr"),
    ("model_builder_shared", "MIL has no Shr"),
    ("detector", "no kernel"),
];

/// Evaluates the smallest golden of a model; what is wrong.
fn run(model: &Model) -> Result<(), String> {
    let size = |g: &&Golden| g.dims.iter().map(|(_, n)| n).product::<usize>();
    // Core ML has no tensors without elements, so none for an empty cache.
    let whole = model.goldens.iter().filter(|g| g.dims.iter().all(|(_, n)| *n > 0));
    let golden = whole.min_by_key(size).ok_or("no golden")?;
    let Some(package) = package(model, golden)? else { return Ok(()) };
    keep(&package, &model.name);
    let (inputs, expected) = golden.read();
    let start = Instant::now();
    let mut arguments: Vec<(&str, Tensor)> = Vec::new();
    for feature in package.inputs() {
        let data = find(&inputs, &feature.graph_name).ok_or_else(|| feature.graph_name.clone())?;
        arguments.push((feature.name.as_str(), given(feature, &data.value())));
    }
    let outputs = reread(&package).run(&arguments)?;
    let mut worst = 0f64;
    for (feature, output) in package.outputs().iter().zip(&outputs) {
        let Some(want) = find(&expected, &feature.graph_name) else { continue };
        let (want, got) = (want.value().to_f64(), got(feature, output).to_f64());
        worst = worst.max(near(&feature.graph_name, model.step, &want, &got)?);
    }
    let operations: usize = package.operations().values().sum();
    println!("{}: {operations} operations, error {worst:.1e}, {:?}", model.name, start.elapsed());
    println!("@golden ane {} {}", model.name, golden.name);
    Ok(())
}

/// Whether each value is near what it should be; the largest error relative to the largest magnitude.
fn near(name: &str, step: f64, want: &[f64], got: &[f64]) -> Result<f64, String> {
    let largest = want.iter().fold(1e-30f64, |m, v| m.max(v.abs()));
    let mut worst = 0f64;
    for (at, (w, g)) in want.iter().zip(got).enumerate() {
        let error = (w - g).abs();
        if error > 1e-3 * w.abs() + step.max(1e-4) * largest || g.is_nan() != w.is_nan() {
            return Err(format!("{name}[{at}] is {g}, not {w}"));
        }
        worst = worst.max(error / largest);
    }
    if want.len() == got.len() { Ok(worst) } else { Err(format!("{name} has {} elements", got.len())) }
}

#[test]
fn small_models() {
    for name in ["digits", "mlp", "lstm_tagger"] {
        run(&model(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

/// All kept models; with `RLX_COREML_OUT` their packages are written there, for `coremltools`.
#[test]
fn every_model() {
    if !everything() {
        println!("@skip 1 every model as a Core ML package: run with --all");
        return;
    }
    let only = std::env::var("RLX_COREML_MODELS").unwrap_or_default();
    let mut wrong = Vec::new();
    for model in all().iter().filter(|m| only.is_empty() || only.split(',').any(|name| name == m.name)) {
        let result = run(model);
        if let Some((_, why)) = NO_PACKAGE.iter().find(|(name, _)| *name == model.name) {
            let said = result.err().unwrap_or_else(|| "it has a package".to_string());
            if !said.contains(why) {
                wrong.push(format!("{}: {said}, not {why}", model.name));
            }
            continue;
        }
        if let Err(e) = result {
            println!("{}: {e}", model.name);
            wrong.push(format!("{}: {e}", model.name));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
