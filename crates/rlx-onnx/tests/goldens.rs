//! Whole models on the oracle, compared with PyTorch's outputs: a test of the importer.
//!
//! Every model of `models/` is imported with symbolic dimensions, and compared on its largest golden that the oracle, which is slow
//! by design, can evaluate quickly. Larger ones are covered by the devices' tests.

use rlx_ir::oracle::{Bindings, evaluate};
use rlx_onnx::{ImportOptions, Imported, OnnxFile, import};
use rlx_testdata::models::{Model, Tensors, affordable, wanted};
use std::time::Instant;

/// What the oracle does in a few seconds; see `Golden::oracle_work`.
const MOST_WORK: f64 = 6e8;

#[test]
fn models_on_the_oracle_equal_their_goldens() {
    let (mut passed, mut faults) = (0, Vec::new());
    for model in wanted() {
        let Some(path) = model.graph_file() else { continue };
        let start = Instant::now();
        match check(&model, &path) {
            Ok(true) => passed += 1,
            Ok(false) => println!("@skip 1 {}: imported and verified, too large for the oracle", model.name),
            Err(why) => faults.push(format!("{}: {why}", model.name)),
        }
        println!("{:<20} {:6.2} s", model.name, start.elapsed().as_secs_f64());
    }
    println!("@counts passed={passed} failed={}", faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Whether a golden was compared.
fn check(model: &Model, path: &std::path::Path) -> Result<bool, String> {
    let file = OnnxFile::open(path).map_err(|e| e.to_string())?;
    let imported = import(&file, &ImportOptions::default()).map_err(|e| e.to_string())?;
    if let Some(fault) = rlx_ir::verify(&imported.graph).first() {
        return Err(format!("the graph is not valid: {fault}"));
    }
    let Some(golden) = affordable(&model.goldens, &imported.graph, MOST_WORK) else {
        return Ok(false);
    };
    let (inputs, expected) = golden.read();
    let found = run(&imported, &inputs)?;
    for (name, want) in &expected {
        let i = imported.outputs.iter().position(|n| n == name).ok_or(format!("no output {name}"))?;
        let (found, want) = (&found[i], want.value());
        if found.shape() != want.shape() {
            return Err(format!("{}: {name} is {}, not {}", golden.name, found.shape(), want.shape()));
        }
        close(&found.to_f64(), &want.to_f64(), model.step)
            .map_err(|why| format!("{}: {name}: {why}", golden.name))?;
    }
    Ok(true)
}

fn run(imported: &Imported, inputs: &Tensors) -> Result<Vec<rlx_ir::Value>, String> {
    let mut bindings = Bindings::default();
    for (name, value) in inputs {
        bindings.set_input(name, value.value());
    }
    for (name, weight) in imported.weights.iter() {
        bindings.set_param(name, weight.to_const().map_err(|e| e.to_string())?.value());
    }
    evaluate(&imported.graph, &bindings).map_err(|e| e.to_string())
}

/// Relative 1e-3, and 1e-4 of the golden's largest magnitude, or what quantising on the way may add ([`Model::step`]).
fn close(found: &[f64], want: &[f64], step: f64) -> Result<(), String> {
    let largest = want.iter().fold(0f64, |m, v| m.max(v.abs()));
    let off = |(f, w): (&f64, &f64)| {
        (f - w).abs() > 1e-3 * w.abs() + step.max(1e-4) * largest || f.is_nan() != w.is_nan()
    };
    match found.iter().zip(want).position(off) {
        Some(i) => Err(format!("{} at {i}, not {}", found[i], want[i])),
        None => Ok(()),
    }
}
