//! The test models on Vulkan and OpenGL, against what PyTorch gave: with open dimensions, one executable for
//! every golden, and with fixed ones.

use std::time::Instant;

use rlx_backend::testing::{self, compile_model};
use rlx_backend::{Backend, ExecutableGraph};
use rlx_driver::Device;
use rlx_ir::DimBinding;
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_testdata::models::{Golden, model};
use rlx_wgpu::WgpuBackend;

use crate::common::{MAIN, all, device};

/// Runs a golden; gives the largest error relative to the output's largest magnitude.
fn check(exec: &mut dyn ExecutableGraph, golden: &Golden, outputs: &[String]) -> Result<f64, String> {
    let (inputs, expected) = golden.read();
    let compared = testing::golden(exec, &inputs, &expected, outputs, &golden.binding());
    compared.map_err(|what| format!("{}: {what}", golden.name))
}

/// Runs the first golden of a model with open dimensions, on a device under lower limits.
pub fn first_golden(backend: &WgpuBackend, name: &str) {
    let model = model(name);
    let path = model.graph_file().expect("it is kept with its weights");
    let imported = import(&OnnxFile::open(&path).unwrap(), &ImportOptions::default()).unwrap();
    let weight = |name: &str| imported.weights.get(name).cloned();
    let mut exec = compile_model(&imported.graph, weight, backend, DimBinding::new());
    let found = check(&mut *exec, &model.goldens[0], &imported.outputs);
    found.unwrap_or_else(|e| panic!("{} {name}: {e}", backend.name()));
}

/// Runs a model's goldens of at most `most` positions with open dimensions, and the first with fixed ones.
fn run(on: Device, name: &str, most: usize, fixed: bool) {
    let Some(backend) = device(on) else { return };
    let model = model(name);
    let Some(path) = model.graph_file() else { return };
    let start = Instant::now();
    let file = OnnxFile::open(&path).unwrap();
    let imported = import(&file, &ImportOptions::default()).unwrap();
    let size = |g: &&Golden| g.dims.iter().map(|(_, n)| n).product::<usize>() <= most;
    let goldens: Vec<&Golden> = model.goldens.iter().filter(size).collect();
    assert!(!goldens.is_empty(), "{name}: no golden of at most {most} positions");
    let mut open = compile_model(
        &imported.graph,
        |name| imported.weights.get(name).cloned(),
        &backend,
        DimBinding::new(),
    );
    println!("{on} {name}: {} steps, ready after {:?}", open.lir().steps.len(), start.elapsed());
    for golden in &goldens {
        let start = Instant::now();
        let worst =
            check(&mut *open, golden, &imported.outputs).unwrap_or_else(|e| panic!("{on} {name}: {e}"));
        println!("{on} {name} {}: error {worst:.1e}, {:?}", golden.name, start.elapsed());
        testing::golden_holds(on.feature(), name, &golden.name);
    }
    if fixed {
        let mut exec = compile_model(
            &imported.graph,
            |name| imported.weights.get(name).cloned(),
            &backend,
            goldens[0].binding(),
        );
        let found = check(&mut *exec, goldens[0], &imported.outputs);
        found.unwrap_or_else(|e| panic!("{on} {name}, fixed dimensions: {e}"));
    }
}

#[test]
fn small_models_on_the_main_device() {
    run(MAIN, "digits", usize::MAX, true);
    run(MAIN, "mlp", usize::MAX, true);
}

#[test]
fn small_models_on_opengl() {
    run(Device::OpenGl, "digits", usize::MAX, false);
    run(Device::OpenGl, "mlp", usize::MAX, false);
}

#[test]
fn bert_on_the_main_device() {
    run(MAIN, "bert_dynamic", if all() { usize::MAX } else { 48 }, true);
}

#[test]
fn bert_on_opengl() {
    run(Device::OpenGl, "bert_dynamic", 48, false);
}

#[test]
fn gpt2_on_the_main_device() {
    run(MAIN, "gpt2_dynamic", 48, true);
}

#[test]
fn resnet_on_the_main_device() {
    run(MAIN, "resnet18", if all() { 3 * 224 * 224 } else { 64 * 64 }, true);
}

#[test]
fn minilm_on_the_main_device() {
    run(MAIN, "minilm", 48, all());
}

#[test]
fn other_exports_on_the_main_device() {
    if !all() {
        println!("@skip 1 other exporters' files and Llama on Vulkan: run with --all");
        return;
    }
    // Its only golden is of the full size.
    run(MAIN, "resnet18_fused", 224 * 224, false);
    for name in ["resnet18_dynamo", "bert_dynamo_sdpa", "bert_opset23", "gpt2_opset23", "llama_dynamic"] {
        run(MAIN, name, 64 * 64, false);
    }
}

#[test]
fn other_models_on_opengl() {
    if !all() {
        println!("@skip 1 GPT-2, ResNet-18 and MiniLM on OpenGL: run with --all");
        return;
    }
    for name in ["gpt2_dynamic", "resnet18", "minilm"] {
        run(Device::OpenGl, name, 64 * 64, false);
    }
}
