//! The test models against what PyTorch gave: with open dimensions, one executable for every golden, and with fixed ones.

use std::sync::Arc;
use std::time::Instant;

use rlx_backend::{Backend, ExecutableGraph, testing};
use rlx_ir::{DimBinding, sym};
use rlx_mlx::MlxBackend;
use rlx_onnx::{ImportOptions, Imported, OnnxFile, import};
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_testdata::models::{Golden, model};

use crate::mlx;

/// Sizes of a golden as a binding of the model's symbols.
fn binding(golden: &Golden) -> DimBinding {
    let pairs: Vec<(u32, usize)> = golden.dims.iter().map(|(name, n)| (sym::named(name), *n)).collect();
    DimBinding::from_pairs(&pairs)
}

fn compile(imported: &Imported, backend: &MlxBackend, fixed: DimBinding) -> Box<dyn ExecutableGraph> {
    let options = CompileOptions::default().dim_binding(fixed);
    let pipeline = CompilePipeline::new(backend.target(&options).unwrap(), options.clone());
    let compiled = pipeline.compile(&imported.graph).unwrap_or_else(|e| panic!("{e}"));
    assert!(compiled.report.compile_ready, "{}", compiled.report);
    let lir = Arc::new(compiled.lir);
    let mut exec = backend.compile(Arc::clone(&lir), &options).unwrap_or_else(|e| panic!("{e}"));
    for (i, slot) in lir.params.iter().enumerate() {
        let weight = imported.weights.get(&slot.name).unwrap_or_else(|| panic!("no weight {:?}", slot.name));
        exec.set_param(i, Arc::clone(weight)).unwrap();
    }
    exec
}

fn run(name: &str, fixed: bool) {
    let Some(backend) = mlx() else { return };
    let model = model(name);
    let Some(path) = model.graph_file() else { return };
    let imported = import(&OnnxFile::open(&path).unwrap(), &ImportOptions::default()).unwrap();
    assert!(!model.goldens.is_empty(), "{name} has no golden");
    let start = Instant::now();
    let first = if fixed { binding(&model.goldens[0]) } else { DimBinding::new() };
    let mut exec = compile(&imported, &backend, first);
    println!("{name}: ready after {:?}", start.elapsed());
    for golden in if fixed { &model.goldens[..1] } else { &model.goldens[..] } {
        let (inputs, expected) = golden.read();
        // The second run is of the program as MLX compiled it.
        for round in 0..2 {
            let start = Instant::now();
            let worst = testing::golden(&mut *exec, &inputs, &expected, &imported.outputs, &binding(golden));
            let worst = worst.unwrap_or_else(|e| panic!("{name} {}: {e}", golden.name));
            println!("{name} {}, run {round}: error {worst:.1e}, {:?}", golden.name, start.elapsed());
        }
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
