//! The memory that GPUs plan for models, without a GPU: on one arena (CUDA, ROCm) and on pools of which no dispatch reads one that it writes
//! (Vulkan, OpenGL, WebGPU), with the steps that write over an operand and the kernels that are compiled.
//!
//! ```sh
//! cargo run --release -p rlx-kernel --example bench_arena -- bert_dynamic gpt2_dynamic
//! ```
//!
//! Sizes are those of a model's last golden; without names, all models that are there.

use std::sync::Arc;

use rlx_ir::Result;
use rlx_kernel::{KernelTarget, Launches, TypeSupport};
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_opt::plan::plan_memory;
use rlx_opt::{CompileOptions, CompilePipeline, PoolSpec};
use rlx_testdata::models::{self, Model};

/// Steps in place, kernels, and the arena in KB.
fn planned(model: &Model, target: &KernelTarget) -> Result<(usize, usize, f64)> {
    let path = model.graph_file().expect("the model's file");
    let graph = import(&OnnxFile::open(&path)?, &ImportOptions::default())?.graph;
    let dims = model.goldens.last().expect("a model has goldens").binding();
    let options = CompileOptions::default().dim_binding(dims.clone());
    let module = CompilePipeline::new(Arc::new(target.clone()), options).compile(&graph)?.lir;
    let in_place = module.steps.iter().filter(|step| step.in_place().next().is_some()).count();
    let kernels = Launches::of(&module, target, &|_| Ok(0))?.kernels.len();
    Ok((in_place, kernels, plan_memory(&module, &dims, target.pool)?.arena_bytes as f64 / 1e3))
}

fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let arena = KernelTarget::full("arena");
    let types = TypeSupport::WGSL_INT16;
    let pools =
        KernelTarget { types, pool: PoolSpec { exclusive_usage: true, ..arena.pool }, ..arena.clone() };
    println!("| model | steps in place | kernels | arena KB | pools KB |\n|---|---|---|---|---|");
    let wanted = |model: &Model| names.is_empty() || names.contains(&model.name);
    for model in models::all().iter().filter(|m| wanted(m) && m.graph_file().is_some()) {
        match planned(model, &arena).and_then(|one| Ok((one, planned(model, &pools)?))) {
            Ok(((steps, kernels, one), (.., several))) => {
                println!("| {} | {steps} | {kernels} | {one:.1} | {several:.1} |", model.name);
            }
            Err(e) => println!("| {} | {e} | | | |", model.name),
        }
    }
}
