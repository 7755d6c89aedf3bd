//! How long a device's executable takes to make, and what of it: the kernels made or read, rendered, parsed by wgpu, compiled by the driver.
//!
//! ```sh
//! cargo run -p rlx-wgpu --example bench_startup -- vulkan minilm resnet18
//! ```
//!
//! Each model is compiled as it comes, then again by the kernels that the first executable left; each on a device opened again, so
//! that no pipeline is there already. Mesa keeps what it compiled on disk: `MESA_SHADER_CACHE_DISABLE=true` for its
//! compiler's own time. `RLX_CACHE_DIR` names another folder for what RLX keeps of drivers.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rlx_backend::{Backend, CompileCache};
use rlx_ir::{DimBinding, LirModule, sym};
use rlx_kernel::{KernelTarget, Launches};
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_testdata::models::model;
use rlx_wgpu::{Lowered, WgpuBackend};
use tracing::field::{Field, Visit};

/// Microseconds that kernels took, by what was done: of events with a field of that name.
static TIMES: [(&str, AtomicU64); 3] =
    [("rendered_us", AtomicU64::new(0)), ("parsed_us", AtomicU64::new(0)), ("driver_us", AtomicU64::new(0))];

/// Sums the times that events carry.
struct Sum;

impl Visit for Sum {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if let Some((_, sum)) = TIMES.iter().find(|(name, _)| *name == field.name()) {
            sum.fetch_add(value, Ordering::Relaxed);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

impl tracing::Subscriber for Sum {
    fn enabled(&self, of: &tracing::Metadata<'_>) -> bool {
        of.target().starts_with("rlx_wgpu")
    }

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut Sum);
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// A device opened again, in the same way but for a limit that no model here reaches.
fn again(backend: &WgpuBackend, number: u64) -> WgpuBackend {
    let fresh = backend
        .clone()
        .with_limits(Lowered { max_memory_bytes: Some((1 << 40) + number), ..Lowered::default() });
    fresh.probe().unwrap_or_else(|e| panic!("{e}"));
    TIMES.iter().for_each(|(_, sum)| sum.store(0, Ordering::Relaxed));
    fresh
}

/// What compiling `lir` by `kept` takes, and the sums of [`TIMES`], in milliseconds.
fn compile(
    backend: &WgpuBackend,
    lir: &Arc<LirModule>,
    kept: &CompileCache,
) -> (f64, [f64; 3], CompileCache) {
    let start = Instant::now();
    let exec = backend.compile_cached(Arc::clone(lir), &CompileOptions::default(), kept);
    let exec = exec.unwrap_or_else(|e| panic!("{e}"));
    let took = ms(start);
    let sums = std::array::from_fn(|i| TIMES[i].1.load(Ordering::Relaxed) as f64 / 1e3);
    (took, sums, CompileCache { code: exec.code().unwrap(), ..CompileCache::default() })
}

fn measure(backend: &WgpuBackend, name: &str, number: u64) {
    let case = model(name);
    let path = case.graph_file().unwrap_or_else(|| panic!("{name} is not there"));
    let file = OnnxFile::open(&path).unwrap_or_else(|e| panic!("{e}"));
    let imported = import(&file, &ImportOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let sizes: Vec<(u32, usize)> = case.goldens[0].dims.iter().map(|(n, v)| (sym::named(n), *v)).collect();
    let options = CompileOptions::default().dim_binding(DimBinding::from_pairs(&sizes));
    let pipeline = CompilePipeline::new(backend.target(&options).unwrap(), options);
    let start = Instant::now();
    let lir = Arc::new(pipeline.compile(&imported.graph).unwrap_or_else(|e| panic!("{e}")).lir);
    let optimised = ms(start);
    let target = KernelTarget::webgpu("webgpu");
    let start = Instant::now();
    let launches = Launches::of(&lir, &target, &|_| Ok(0)).unwrap_or_else(|e| panic!("{e}"));
    let made = ms(start);
    let start = Instant::now();
    let bytes = launches.to_bytes().unwrap();
    let written = ms(start);
    let start = Instant::now();
    Launches::from_bytes(&bytes, &lir, &target).unwrap();
    let read = ms(start);
    let (fresh, by, kept) = compile(&again(backend, 2 * number), &lir, &CompileCache::default());
    let (stored, again, _) = compile(&again(backend, 2 * number + 1), &lir, &kept);
    println!(
        "{name}: {} kernels, {} bytes; passes {optimised:.1}, kernels made {made:.1}, written {written:.1}, read {read:.1}",
        launches.kernels.len(),
        kept.code[0].bytes.len()
    );
    for (what, total, [rendered, parsed, driver]) in [("made", fresh, by), ("read", stored, again)] {
        println!(
            "  {what}: {total:.1} in all; on all threads rendered {rendered:.1}, parsed {parsed:.1}, driver {driver:.1}"
        );
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let device = args.next().expect("a device: vulkan, opengl");
    let names: Vec<String> = args.collect();
    tracing::subscriber::set_global_default(Sum).expect("the first subscriber");
    let backend = WgpuBackend::new(device.parse().expect("a device"));
    println!("{}; milliseconds", backend.machine().unwrap_or_else(|e| panic!("{e}")));
    for (number, name) in (0..).zip(&names) {
        measure(&backend, name, number);
    }
}
