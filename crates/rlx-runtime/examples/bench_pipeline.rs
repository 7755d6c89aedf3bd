//! What variants of a BERT-base-shaped model cost: time and memory of a new size, of eight sizes together, of a
//! hit, and of an active extent of an eighth.
//!
//! ```sh
//! cargo run --release -p rlx-runtime --example bench_pipeline
//! ```
//!
//! Weights are seeded (12 layers of 768, 12 heads, 110 million parameters). Heap is counted by the allocator; larger
//! blocks come from the system and show in the resident set, so both are given. The eight sizes are measured in a
//! separate process, next to one with the largest alone.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rlx_runtime::op::{Activation, MaskKind};
use rlx_runtime::{
    CompileOptions, CompiledGraph, DType, Device, Dim, DimBinding, HirModule, HirNodeId, LowerError,
    ModelCompilePipeline, Op, Session, Shape, Weight, WeightStore, sym,
};

/// Counts the bytes that are allocated.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const LAYERS: usize = 12;
const WIDTH: usize = 768;
const HEADS: usize = 12;
const HIDDEN: usize = 3072;
const WORDS: usize = 30_522;
const POSITIONS: usize = 512;
const LARGEST: usize = 128;

type Error = Box<dyn std::error::Error>;

fn open(n: usize) -> Shape {
    Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ), Dim::Static(n)], DType::F32)
}

/// A module under construction, with the parameters that its blocks declare.
struct Builder {
    m: HirModule,
}

impl Builder {
    fn param(&mut self, name: impl Into<String>, dims: &[usize]) -> HirNodeId {
        self.m.param(name, Shape::new(dims, DType::F32))
    }

    fn linear(
        &mut self,
        x: HirNodeId,
        name: String,
        from: usize,
        to: usize,
        f: Option<Activation>,
    ) -> HirNodeId {
        let w = self.param(format!("{name}.weight"), &[from, to]);
        let b = self.param(format!("{name}.bias"), &[to]);
        self.m.linear(x, w, Some(b), f, open(to))
    }

    /// The layer norm of `x + residual`.
    fn normed_sum(&mut self, x: HirNodeId, residual: HirNodeId, name: String) -> HirNodeId {
        let sum = self.m.mir(Op::Binary(rlx_runtime::op::BinaryOp::Add), vec![x, residual], open(WIDTH));
        let gamma = self.param(format!("{name}.gamma"), &[WIDTH]);
        let beta = self.param(format!("{name}.beta"), &[WIDTH]);
        self.m.mir(Op::LayerNorm { axis: -1, eps: 1e-12 }, vec![sum, gamma, beta], open(WIDTH))
    }

    fn layer(&mut self, x: HirNodeId, i: usize) -> HirNodeId {
        let [q, k, v] = ["query", "key", "value"]
            .map(|name| self.linear(x, format!("layer{i}.{name}"), WIDTH, WIDTH, None));
        let kind = MaskKind::None;
        let mixed = self.m.attention(q, k, v, None, HEADS, WIDTH / HEADS, kind, open(WIDTH));
        let mixed = self.linear(mixed, format!("layer{i}.output"), WIDTH, WIDTH, None);
        let x = self.normed_sum(mixed, x, format!("layer{i}.norm1"));
        let hidden = self.linear(x, format!("layer{i}.up"), WIDTH, HIDDEN, Some(Activation::Gelu));
        let y = self.linear(hidden, format!("layer{i}.down"), HIDDEN, WIDTH, None);
        self.normed_sum(y, x, format!("layer{i}.norm2"))
    }
}

fn bert() -> HirModule {
    let mut b = Builder { m: HirModule::new("bert-base") };
    let ids = Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ)], DType::I64);
    let ids = b.m.input("ids", ids);
    let words = b.param("words", &[WORDS, WIDTH]);
    let positions = b.param("positions", &[POSITIONS, WIDTH]);
    let x = b.m.mir(Op::Gather { axis: 0 }, vec![words, ids], open(WIDTH));
    let rows = [Dim::Dynamic(sym::SEQ), Dim::Static(WIDTH)];
    let first = Op::Slice { starts: vec![0.into(), 0.into()], steps: vec![1, 1], to: rows.to_vec() };
    let positions = b.m.mir(first, vec![positions], Shape::from_dims(&rows, DType::F32));
    let mut x = b.normed_sum(x, positions, "embedding.norm".into());
    for i in 0..LAYERS {
        x = b.layer(x, i);
    }
    b.m.set_outputs(vec![x]);
    b.m
}

/// Seeded weights for every parameter: SplitMix64 from the parameter's position, gammas around 1.
fn weights() -> Result<WeightStore, Error> {
    let graph = bert().lower_to_mir()?.into_graph();
    let mut store = WeightStore::new();
    for (i, node) in graph.params().enumerate() {
        let Op::Param { name } = &node.op else { continue };
        let dims = node.shape.static_dims().ok_or("a parameter has open dimensions")?;
        let mut state = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(i as u64 + 1);
        let base = if name.ends_with("gamma") { 1.0 } else { 0.0 };
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            base + ((z >> 40) as f32 / (1 << 24) as f32 - 0.5) * 0.07
        };
        let bytes: Vec<u8> = (0..dims.iter().product()).flat_map(|_| next().to_le_bytes()).collect();
        store.insert(name.clone(), Weight::owned(DType::F32, &dims, bytes)?);
    }
    Ok(store)
}

fn ids(batch: usize, seq: usize) -> Vec<f32> {
    (0..batch * seq).map(|i| ((i * 7919) % WORDS) as f32).collect()
}

fn run(graph: &mut CompiledGraph, ids: &[f32]) -> Result<Duration, Error> {
    let start = Instant::now();
    black_box(graph.try_run_slots(&[ids])?);
    Ok(start.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

/// A line of the process's status, in bytes.
fn status(line: &str) -> Result<usize, Error> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let kib = text.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':')?.strip_suffix(" kB"));
    Ok(kib.ok_or("no such line in the status")?.trim().parse::<usize>()? << 10)
}

fn variant<'p>(
    pipeline: &'p mut ModelCompilePipeline,
    batch: usize,
    seq: usize,
    options: &CompileOptions,
) -> Result<&'p mut CompiledGraph, LowerError> {
    let key = (batch * 1000 + seq) as u64;
    pipeline.get_or_compile(key, &DimBinding::batch_seq(batch, seq), bert, options)
}

/// New sizes, one after the other.
fn new_sizes(
    pipeline: &mut ModelCompilePipeline,
    store: &WeightStore,
    options: &CompileOptions,
) -> Result<(), Error> {
    println!(
        "| batch, sequence | made, ms | first run beyond a later one, ms | heap beyond activations, MB | activations, MB |"
    );
    println!("|---|---|---|---|---|");
    for (batch, seq) in [(1, 64), (1, 17), (2, 32), (1, 100), (4, 16), (1, 16)] {
        let x = ids(batch, seq);
        let (before, start) = (LIVE.load(Ordering::Relaxed), Instant::now());
        let graph = variant(pipeline, batch, seq, options)?;
        let made = start.elapsed();
        let first = run(graph, &x)?;
        let heap = LIVE.load(Ordering::Relaxed).saturating_sub(before);
        let later = (0..5).map(|_| run(graph, &x)).collect::<Result<Vec<_>, _>>()?;
        let (beyond, arena) = (first.saturating_sub(median(later)), graph.memory().arena_bytes);
        // Of the activations, the outputs are the variant's own, and the rest is shared.
        let own = batch * seq * WIDTH * 4;
        println!(
            "| {batch}, {seq} | {:.2} | {:.2} | {:.2} | {:.2} |",
            ms(made),
            ms(beyond),
            heap.saturating_sub(own) as f64 / 1e6,
            arena as f64 / 1e6
        );
        if seq == 17 {
            let graph = bert().lower_to_mir()?.into_graph();
            let exact = options.clone().dim_binding(DimBinding::batch_seq(batch, seq));
            let mut exact = Session::try_new(Device::Cpu)?.try_compile_with(graph, &exact)?;
            exact.try_set_weights(store)?;
            let same = exact.try_run(&[("ids", &x)])?
                == variant(pipeline, batch, seq, options)?.try_run(&[("ids", &x)])?;
            eprintln!("the variant's bits equal an exact compile's: {same}");
        }
    }
    Ok(())
}

/// Runs these sizes, then prints what the process holds.
fn held(sizes: impl Iterator<Item = usize>) -> Result<(), Error> {
    let (mut pipeline, options) = (ModelCompilePipeline::new(Device::Cpu), CompileOptions::try_new()?);
    let store = weights()?;
    pipeline.try_set_weights(&store)?;
    let sizes: Vec<usize> = sizes.collect();
    for &seq in &sizes {
        run(variant(&mut pipeline, 1, seq, &options)?, &ids(1, seq))?;
    }
    for &seq in &sizes {
        run(variant(&mut pipeline, 1, seq, &options)?, &ids(1, seq))?;
    }
    println!("{} {} {}", LIVE.load(Ordering::Relaxed), status("VmRSS")?, status("VmHWM")?);
    Ok(())
}

/// The memory that a separate process reports.
fn held_by(what: &str) -> Result<Vec<usize>, Error> {
    let output = std::process::Command::new(std::env::current_exe()?).arg(what).output()?;
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<usize> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    if numbers.len() == 3 { Ok(numbers) } else { Err(format!("{what}: {text}").into()) }
}

fn eight_sizes() -> Result<(), Error> {
    let (one, eight) = (held_by("one")?, held_by("eight")?);
    println!("| | largest alone, MiB | eight, MiB | ratio | one more costs, MiB |");
    println!("|---|---|---|---|---|");
    for (i, name) in ["heap", "resident", "peak resident"].into_iter().enumerate() {
        let ratio = eight[i] as f64 / one[i] as f64;
        let more = (eight[i] as f64 - one[i] as f64) / 7.0 / (1 << 20) as f64;
        println!("| {name} | {:.1} | {:.1} | {ratio:.3} | {more:.2} |", mib(one[i]), mib(eight[i]));
    }
    Ok(())
}

fn hits(pipeline: &mut ModelCompilePipeline, options: &CompileOptions) -> Result<(), Error> {
    const TIMES: u32 = 200_000;
    let binding = DimBinding::batch_seq(1, LARGEST);
    let start = Instant::now();
    for _ in 0..TIMES {
        let graph = pipeline.get_or_compile(black_box((1000 + LARGEST) as u64), &binding, bert, options)?;
        black_box(graph);
    }
    println!("a hit: {:.0} ns", start.elapsed().as_nanos() as f64 / f64::from(TIMES));
    Ok(())
}

/// Full and active extent alternate, so that both see the same machine.
fn active_extent(pipeline: &mut ModelCompilePipeline, options: &CompileOptions) -> Result<(), Error> {
    let batch = DimBinding::from_pairs(&[(sym::BATCH, 1)]);
    let graph = pipeline.get_or_compile(1, &batch, bert, options)?;
    let x = ids(1, LARGEST);
    let (mut full, mut part) = (Vec::new(), Vec::new());
    for round in 0..12 {
        for (times, extent) in [(&mut full, None), (&mut part, Some((LARGEST / 8, LARGEST)))] {
            graph.try_set_active_extent(extent)?;
            run(graph, &x)?;
            let took = run(graph, &x)?;
            if round > 1 {
                times.push(took);
            }
        }
    }
    let (full, part) = (median(full), median(part));
    let ratio = part.as_secs_f64() / full.as_secs_f64();
    println!(
        "active extent of {} of {LARGEST}: {:.2} of {:.2} ms, {ratio:.3}",
        LARGEST / 8,
        ms(part),
        ms(full)
    );
    Ok(())
}

fn main() -> Result<(), Error> {
    match std::env::args().nth(1).as_deref() {
        Some("one") => return held(std::iter::once(LARGEST)),
        Some("eight") => return held((16..=LARGEST).step_by(16)),
        _ => {}
    }
    let (mut pipeline, options) =
        (ModelCompilePipeline::with_capacity(Device::Cpu, 16), CompileOptions::try_new()?);
    let start = Instant::now();
    let steps = pipeline.build_template(bert, &options)?.lir.steps.len();
    println!("template: {:.1} ms, {steps} steps", ms(start.elapsed()));
    let store = weights()?;
    pipeline.try_set_weights(&store)?;
    let start = Instant::now();
    // The largest comes first, so that the scratch which all share is there when others are measured.
    run(variant(&mut pipeline, 1, LARGEST, &options)?, &ids(1, LARGEST))?;
    println!("first variant with packing: {:.0} ms\n", ms(start.elapsed()));
    new_sizes(&mut pipeline, &store, &options)?;
    println!();
    hits(&mut pipeline, &options)?;
    active_extent(&mut pipeline, &options)?;
    println!();
    eight_sizes()
}
