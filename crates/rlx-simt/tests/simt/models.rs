//! The test models against what PyTorch gave: with open dimensions, one executable for every golden, and with fixed ones.

use std::time::Instant;

use rlx_backend::Backend;
use rlx_backend::testing::{self, compile_model};
use rlx_ir::DimBinding;
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_testdata::models::{Golden, model};

use crate::common::{DEVICES, all, everything, fake_with_blas};

/// Runs a model's goldens of at most `most` positions.
fn run(name: &str, most: usize, fixed: bool) {
    let model = model(name);
    let Some(path) = model.graph_file() else { return };
    let imported = import(&OnnxFile::open(&path).unwrap(), &ImportOptions::default()).unwrap();
    let size = |g: &&Golden| g.dims.iter().map(|(_, n)| n).product::<usize>() <= most;
    let goldens: Vec<&Golden> = model.goldens.iter().filter(size).collect();
    assert!(!goldens.is_empty(), "{name}: no golden of at most {most} positions");
    for backend in all().into_iter().chain(DEVICES.map(|device| fake_with_blas(device, 0))) {
        let start = Instant::now();
        let device = backend.name().to_owned();
        let mut exec = compile_model(
            &imported.graph,
            |name| imported.weights.get(name).cloned(),
            &backend,
            if fixed { goldens[0].binding() } else { DimBinding::new() },
        );
        println!("{device} {name}: {} steps, ready after {:?}", exec.lir().steps.len(), start.elapsed());
        for golden in if fixed { &goldens[..1] } else { &goldens[..] } {
            let (inputs, expected) = golden.read();
            // The second run is a graph's.
            for round in 0..2 {
                let start = Instant::now();
                let worst =
                    testing::golden(&mut *exec, &inputs, &expected, &imported.outputs, &golden.binding());
                let worst = worst.unwrap_or_else(|e| panic!("{device} {name} {}: {e}", golden.name));
                println!(
                    "{device} {name} {}, run {round}: error {worst:.1e}, {:?}",
                    golden.name,
                    start.elapsed()
                );
            }
            testing::golden_holds(&device, name, &golden.name);
        }
    }
}

#[test]
fn digits() {
    run("digits", usize::MAX, false);
    run("digits", usize::MAX, true);
}

#[test]
fn a_perceptron() {
    run("mlp", usize::MAX, false);
}

#[test]
fn transformers() {
    if !everything() {
        println!("@skip 1 BERT and GPT-2 on the fake driver: run with --all");
        return;
    }
    run("bert_dynamic", 48, false);
    run("gpt2_dynamic", 48, false);
}
