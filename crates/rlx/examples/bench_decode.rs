//! What a token costs a decoder after more and more past ones: with caches that grow by a concatenation, as the file has them, and
//! with caches of a fixed capacity that are updated in place.
//!
//! `cargo run --release -p rlx --example bench_decode -- MODEL.onnx [CAPACITY]`
//!
//! The model takes `input_ids`, `attention_mask` and caches, as Hugging Face's exporters write decoders. For each number of past
//! tokens the median time of 15 tokens is printed, and how many bindings and steps of bindings they needed.

use std::time::Instant;

use rlx::Model;
use rlx_ir::{DType, DimBinding, Result};
use rlx_runtime::caches::{self, Cache};
use rlx_runtime::{CompiledGraph, Device, Session, TensorView};

const PASTS: [usize; 5] = [16, 128, 512, 1024, 2000];
const TOKENS: usize = 15;

/// A compiled decoder.
struct Decoder {
    graph: CompiledGraph,
    caches: Vec<Cache>,
    /// The input that says how many rows of the caches are used, and how many they have; `None` where they grow.
    fixed: Option<(String, usize)>,
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_else(|| {
        eprintln!("usage: bench_decode MODEL.onnx [CAPACITY]");
        std::process::exit(2)
    });
    let capacity: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(2048);
    let imported = Model::open(&path)?.import(&[])?;
    let session = Session::try_new(Device::Cpu)?;
    let bounded = caches::with_capacity(&imported.graph, capacity)?;
    let caches = bounded.caches;
    let mut growing =
        Decoder { graph: session.try_compile(imported.graph.clone())?, caches: caches.clone(), fixed: None };
    let fixed = Some((bounded.length, capacity));
    let mut fixed = Decoder { graph: session.try_compile(bounded.graph)?, caches, fixed };
    println!("{:>6}  {:>29}  {:>29}", "past", "growing: ms, bindings, steps", "fixed: ms, bindings, steps");
    for decoder in [&mut growing, &mut fixed] {
        decoder.graph.try_set_weights(&imported.weights)?;
    }
    for past in PASTS.into_iter().filter(|past| past + TOKENS < capacity) {
        let (a, b) = (growing.measure(past)?, fixed.measure(past)?);
        println!("{past:>6}  {a:>29}  {b:>29}");
    }
    Ok(())
}

impl Decoder {
    /// Fills the caches with `past` rows of one sequence.
    fn fill(&mut self, past: usize) -> Result<()> {
        for cache in &self.caches {
            let info = self.graph.inputs().iter().find(|info| info.name == cache.input);
            let Some(shape) = info.map(|info| info.shape.clone()) else { continue };
            let mut dims = DimBinding::new();
            shape.dims().iter().flat_map(|d| d.extent().symbols()).for_each(|s| _ = dims.set(s, 1));
            let rows = self.fixed.as_ref().map_or(past, |(_, capacity)| *capacity);
            let sizes = shape.bind(&dims).static_dims().unwrap_or_default().into_iter().enumerate();
            let elements = sizes.map(|(i, n)| if i == cache.axis { rows } else { n }).product();
            self.graph.try_bind_handle(&cache.input, &vec![0.01; elements])?;
            if self.fixed.is_none() {
                self.graph.try_set_gpu_handle_feed(&cache.input, cache.output)?;
            }
        }
        Ok(())
    }

    fn measure(&mut self, past: usize) -> Result<String> {
        self.fill(past)?;
        // The first one may bind and plan.
        self.token(past)?;
        let before = self.graph.binding_stats();
        let mut times = Vec::new();
        for token in 1..=TOKENS {
            let start = Instant::now();
            self.token(past + token)?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        let after = self.graph.binding_stats();
        let (bound, steps) = (after.bound - before.bound, after.steps - before.steps);
        Ok(format!("{:.3} {bound:>5} {steps:>7}", times[TOKENS / 2]))
    }

    /// Computes one token after `past` others.
    fn token(&mut self, past: usize) -> Result<()> {
        let keys = self.fixed.as_ref().map_or(past + 1, |(_, capacity)| *capacity);
        let (token, past) = (7i64.to_le_bytes(), (past as i64).to_le_bytes());
        let (ones, mask) = (vec![1i64.to_le_bytes(); keys], [1, keys]);
        let view = |name, dims, bytes| TensorView { name, dtype: DType::I64, dims, bytes };
        let mut views =
            vec![view("input_ids", &[1, 1], &token[..]), view("attention_mask", &mask, ones.as_flattened())];
        if let Some((length, _)) = &self.fixed {
            views.push(view(length.as_str(), &[], &past));
        }
        self.graph.try_run_views(&views)
    }
}
