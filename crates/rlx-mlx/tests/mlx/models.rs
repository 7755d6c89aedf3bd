//! The test models against what PyTorch gave: with open dimensions, one executable for every golden, and with fixed ones.

use std::time::Instant;

use rlx_backend::testing::{self, compile_model};
use rlx_ir::DimBinding;
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_testdata::models::model;

use crate::mlx;

fn run(name: &str, fixed: bool) {
    let Some(backend) = mlx() else { return };
    let model = model(name);
    let Some(path) = model.graph_file() else { return };
    let imported = import(&OnnxFile::open(&path).unwrap(), &ImportOptions::default()).unwrap();
    assert!(!model.goldens.is_empty(), "{name} has no golden");
    let start = Instant::now();
    let first = if fixed { model.goldens[0].binding() } else { DimBinding::new() };
    let mut exec =
        compile_model(&imported.graph, |name| imported.weights.get(name).cloned(), &backend, first);
    println!("{name}: ready after {:?}", start.elapsed());
    for golden in if fixed { &model.goldens[..1] } else { &model.goldens[..] } {
        let (inputs, expected) = golden.read();
        // The second run is of the program as MLX compiled it.
        for round in 0..2 {
            let start = Instant::now();
            let worst = testing::golden(&mut *exec, &inputs, &expected, &imported.outputs, &golden.binding());
            let worst = worst.unwrap_or_else(|e| panic!("{name} {}: {e}", golden.name));
            println!("{name} {}, run {round}: error {worst:.1e}, {:?}", golden.name, start.elapsed());
        }
        testing::golden_holds("mlx", name, &golden.name);
    }
}

#[test]
fn digits() {
    run("digits", false);
    run("digits", true);
}

#[test]
fn a_perceptron() {
    run("mlp", false);
}

#[test]
fn an_encoder() {
    run("bert_dynamic", false);
}

#[test]
fn a_decoder() {
    run("gpt2_dynamic", false);
}

#[test]
fn a_convolutional_network() {
    run("resnet18", false);
}
