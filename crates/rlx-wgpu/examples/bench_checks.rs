//! What wgpu's checks cost: models by own kernels, which are compiled without them, and by the same kernels read back without their seal, which are not.
//!
//! ```sh
//! cargo run --release -p rlx-wgpu --example bench_checks -- vulkan bert_dynamic minilm resnet18 gpt2_cached
//! ```
//!
//! The runs of both are interleaved. Each model's first golden gives its sizes; `RUNS=20` says how many runs.

use std::sync::Arc;
use std::time::Instant;

use rlx_backend::{Backend, CompileCache, ExecutableGraph};
use rlx_driver::Device;
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_testdata::models::model;
use rlx_wgpu::WgpuBackend;

fn milliseconds(exec: &mut dyn ExecutableGraph, inputs: &[Vec<u8>]) -> f64 {
    let start = Instant::now();
    exec.run(&inputs, &[]).unwrap_or_else(|e| panic!("{e}"));
    exec.output(0).unwrap_or_else(|e| panic!("{e}"));
    start.elapsed().as_secs_f64() * 1e3
}

fn bench(backend: &WgpuBackend, name: &str, runs: usize) {
    let model = model(name);
    let Some(path) = model.graph_file() else { return };
    let imported = import(&OnnxFile::open(&path).unwrap(), &ImportOptions::default()).unwrap();
    // The last golden of the caches' models is one token.
    let golden = if name.ends_with("cached") { &model.goldens[2] } else { &model.goldens[0] };
    let options = CompileOptions::default().dim_binding(golden.binding());
    let pipeline = CompilePipeline::new(backend.target(&options).unwrap(), options.clone());
    let lir = Arc::new(pipeline.compile(&imported.graph).unwrap().lir);
    let own = backend.compile(Arc::clone(&lir), &options).unwrap();
    let mut code = own.code().unwrap();
    code.retain(|part| part.name != "seal");
    let kept = CompileCache { code, ..CompileCache::default() };
    let stored = backend.compile_cached(Arc::clone(&lir), &options, &kept).unwrap();
    let given = golden.read().0;
    let bytes = |name: &str| given.iter().find(|(n, _)| n == name).map(|(_, data)| data.bytes().to_vec());
    let inputs: Vec<Vec<u8>> = lir.inputs.iter().map(|slot| bytes(&slot.name).unwrap()).collect();
    let mut both = [own, stored];
    for exec in &mut both {
        for (i, slot) in lir.params.iter().enumerate() {
            exec.set_param(i, Arc::clone(imported.weights.get(&slot.name).unwrap())).unwrap();
        }
        milliseconds(&mut **exec, &inputs);
    }
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        times
            .iter_mut()
            .zip(&mut both)
            .for_each(|(times, exec)| times.push(milliseconds(&mut **exec, &inputs)));
    }
    let [own, stored] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        (times[0], times[times.len() / 2])
    });
    println!(
        "{name:16} {:9.2} ms smallest {:9.2} median; with checks {:9.2} {:9.2}; ratio {:.2} {:.2}",
        own.0,
        own.1,
        stored.0,
        stored.1,
        stored.0 / own.0,
        stored.1 / own.1
    );
}

fn main() {
    let mut args = std::env::args().skip(1);
    let device = match args.next().as_deref() {
        Some("opengl") => Device::OpenGl,
        Some("gpu") => Device::Gpu,
        _ => Device::Vulkan,
    };
    let runs = std::env::var("RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let backend = WgpuBackend::new(device);
    println!("{}", backend.machine().unwrap_or_else(|e| panic!("{e}")));
    args.for_each(|name| bench(&backend, &name, runs));
}
