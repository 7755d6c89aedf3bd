//! Every family of kernels over random shapes on the machine's own GPUs, against the oracle: each op's cases and random graphs, and what has tile programs, parts,
//! lookups, or the vendor's library, of which a fake driver only interprets what the compiler was given.
//!
//! It is a program of its own: NVIDIA's libraries and the fake driver have parts of LLVM in common, of which a process can have one. `RLX_TEST_DEVICES=cuda,rocm` says
//! which GPUs must be there; `RLX_TEST_ALL=1` takes more cases.
#![cfg(target_os = "linux")]

mod written;

use std::sync::Arc;

use rlx_backend::testing::{OpCases, disagreement, random_graphs, set_params};
use rlx_backend::tuning::Tuning;
use rlx_backend::{Backend, CompileCache, ExecutableGraph};
use rlx_driver::Device;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{
    AttentionShape, Gen, random_attention, random_bindings, random_conv, random_matmul,
    random_paged_attention,
};
use rlx_ir::{DType, DimBinding, Graph, LirModule, sym};
use rlx_opt::{CompileOptions, CompilePipeline, Numerics};
use rlx_simt::SimtBackend;
use written::{BIAS, GELU, blocks, chain, gated, layer, parsed, random_epilogue};

/// How many ops have cases that run.
const COVERED: usize = 45;
const SHORT: [DType; 2] = [DType::F16, DType::BF16];
const BOTH: [Numerics; 2] = [Numerics::Strict, Numerics::Fast];

/// The GPUs of the machine; one that is absent is a named skip, or a failure where it was asked for.
fn own() -> Vec<SimtBackend> {
    let required = std::env::var("RLX_TEST_DEVICES").unwrap_or_default();
    let found = [Device::Cuda, Device::Rocm].into_iter().filter_map(|device| {
        let backend = SimtBackend::new(device);
        let missing = match backend.probe() {
            Ok(()) => return Some(backend),
            Err(missing) => missing,
        };
        let named = required.split(',').any(|name| name.parse() == Ok(device));
        assert!(!named, "RLX_TEST_DEVICES names {device}: {missing}");
        println!("@skip 1 a GPU for {device}: {missing}");
        None
    });
    found.collect()
}

/// How many cases of a family there are.
fn cases() -> u64 {
    if std::env::var("RLX_TEST_ALL").is_ok_and(|v| v == "1") { 200 } else { 40 }
}

/// Runs three times, the second and third as a graph, and says how the steps are done.
fn agree(graph: &Graph, bindings: &Bindings, backend: &SimtBackend, numerics: Numerics) -> Vec<String> {
    let options = CompileOptions::default().numerics(numerics);
    let target = backend.target(&options).unwrap();
    let lir = lowered(graph, backend, &options);
    let steps = lir.steps.iter().filter_map(|step| target.schedule(step, &lir)).collect();
    let cache = CompileCache::default();
    agree_by(graph, bindings, (backend, &lir, &options, &cache), &format!("{numerics:?}, {steps:?}"));
    steps
}

/// A graph's steps for a GPU.
fn lowered(graph: &Graph, backend: &SimtBackend, options: &CompileOptions) -> Arc<LirModule> {
    let target = backend.target(options).unwrap();
    let lir = CompilePipeline::new(target, options.clone()).compile(graph);
    Arc::new(lir.unwrap_or_else(|e| panic!("{e}\n{graph}")).lir)
}

/// Runs what was lowered three times, the second and third as a graph.
fn agree_by(
    graph: &Graph,
    bindings: &Bindings,
    (backend, lir, options, cache): (&SimtBackend, &Arc<LirModule>, &CompileOptions, &CompileCache),
    how: &str,
) {
    let exec = backend.compile_cached(Arc::clone(lir), options, cache);
    let mut exec: Box<dyn ExecutableGraph> = exec.unwrap_or_else(|e| panic!("{e}\n{graph}"));
    set_params(&mut *exec, bindings).unwrap();
    for round in 0..3 {
        if let Some(why) = disagreement(graph, bindings, &mut *exec) {
            panic!("{} by {how}, run {round}: {why}\n{graph}", backend.name());
        }
    }
}

/// Draws cases of a family; how many of them have a step that is done so.
fn family(done: &str, draw: impl Fn(&mut Gen) -> (Graph, Bindings, Numerics)) {
    for backend in own() {
        let mut found = 0;
        for seed in 0..cases() {
            let (graph, bindings, numerics) = draw(&mut Gen::new(seed));
            let steps = agree(&graph, &bindings, &backend, numerics);
            found += u64::from(steps.iter().any(|step| step.contains(done)));
        }
        println!("{}: {found} of {} are {done}", backend.name(), cases());
    }
}

fn rows(graph: &Graph, count: usize) -> Bindings {
    random_bindings(graph, &DimBinding::from_pairs(&[(sym::SEQ, count)]), 7)
}

fn closed(g: &mut Gen, graph: Graph) -> (Graph, Bindings, Numerics) {
    let bindings = random_bindings(&graph, &DimBinding::new(), 7);
    (graph, bindings, g.pick(&BOTH))
}

#[test]
fn ops_and_graphs() {
    for backend in own() {
        let cases = OpCases::on(&backend, if cases() > 40 { 20 } else { 2 });
        println!("{}: {}", backend.name(), cases.assert(COVERED));
        assert_eq!(random_graphs(&backend, cases_of_graphs(), 2), 0);
    }
}

fn cases_of_graphs() -> usize {
    if cases() > 40 { 200 } else { 30 }
}

#[test]
fn matmuls() {
    family("tiles.", |g| {
        let dtype = g.pick(&SHORT);
        let graph = random_matmul(g, dtype);
        closed(g, graph)
    });
}

/// Layers as large as those that warp groups multiply, with what models have behind them.
#[test]
fn layers() {
    family("tiles.", |g| {
        let [m, n, k] = [300, 64, 40].map(|most| g.size(1..=most));
        let (n, k) = (8 * n, 8 * k);
        let dtype = g.pick(&SHORT);
        let nodes = [
            format!(r#"%0 = Input {{name="x"}} : [{m}, {k}] {dtype}"#),
            format!(r#"%1 = Param {{name="w"}} : [{k}, {n}] {dtype}"#),
            format!(r#"%2 = Param {{name="b"}} : [{n}] {dtype}"#),
            format!(r#"%3 = Input {{name="r"}} : [{m}, {n}] {dtype}"#),
            format!("%4 = MatMul(%0, %1) : [{m}, {n}] {dtype}"),
        ];
        let all = [
            BIAS,
            GELU,
            "Activation.Gelu(@)",
            "Activation.Relu(@)",
            "Binary.Mul(@, %3)",
            "Binary.Add(%3, @)",
        ];
        let ops: Vec<&str> = (0..g.size(0..=3)).map(|_| g.pick(&all)).collect();
        let (lines, last) = chain(&nodes, &ops, &format!("[{m}, {n}] {dtype}"));
        let graph = parsed(&format!("{} return %{last}", lines.join("\n")));
        closed(g, graph)
    });
}

#[test]
fn convolutions() {
    family("tiles.", |g| {
        let dtype = g.pick(&SHORT);
        let graph = random_conv(g, dtype);
        closed(g, graph)
    });
}

/// Convolutions as image nets have them: many channels, windows of one or nine, a bias, a residual, a ReLU.
#[test]
fn convolutions_of_many_channels() {
    family("tiles.", |g| {
        let (channels, filters) = (8 * g.size(1..=24), 8 * g.size(1..=40));
        let (images, size, stride, taps) = (g.size(1..=3), g.size(3..=18), g.size(1..=2), g.pick(&[1, 3]));
        let (pad, places) = (taps / 2, (size - 1) / stride + 1);
        let (dtype, y) = (g.pick(&SHORT), format!("[{images}, {filters}, {places}, {places}]"));
        let nodes = [
            format!(r#"%0 = Input {{name="x"}} : [{images}, {channels}, {size}, {size}] {dtype}"#),
            format!(r#"%1 = Param {{name="w"}} : [{filters}, {channels}, {taps}, {taps}] {dtype}"#),
            format!(r#"%2 = Param {{name="b"}} : [{filters}] {dtype}"#),
            format!(r#"%3 = Input {{name="r"}} : {y} {dtype}"#),
            format!(
                "%4 = Conv(%0, %1, %2) {{strides=[{stride}, {stride}], pads=[{pad}, {pad}, {pad}, {pad}], \
                 dilations=[1, 1], groups=1, format=ChannelsFirst}} : {y} {dtype}"
            ),
        ];
        let residual = g.chance(0.5).then_some("Binary.Add(%3, @)");
        let ops: Vec<&str> = residual.into_iter().chain(["Activation.Relu(@)"]).collect();
        let (lines, last) = chain(&nodes, &ops, &format!("{y} {dtype}"));
        let graph = parsed(&format!("{} return %{last}", lines.join("\n")));
        closed(g, graph)
    });
}

fn shape_of(g: &mut Gen, (queries, keys): (usize, std::ops::RangeInclusive<usize>)) -> AttentionShape {
    let head = |g: &mut Gen| if g.chance(0.5) { 8 * g.size(1..=20) } else { g.size(1..=20) };
    AttentionShape {
        kv_heads: g.size(1..=2),
        groups: g.size(1..=4),
        head_dim: head(g),
        value_dim: head(g),
        batch: g.size(1..=2),
        queries: g.size(1..=queries),
        keys: g.size(keys),
    }
}

/// Masks, causal ones, windows of the last keys, grouped heads.
#[test]
fn attention() {
    family("tiles.", |g| {
        let (dtype, shape) = (g.pick(&SHORT), shape_of(g, (90, 1..=150)));
        let (graph, bindings) = random_attention(g, dtype, &shape).graph();
        (graph, bindings, Numerics::Strict)
    });
}

/// Few queries of many keys.
#[test]
fn attention_in_parts() {
    family(".parts", |g| {
        let (dtype, shape) = (g.pick(&SHORT), shape_of(g, (3, 512..=900)));
        let (graph, bindings) = random_attention(g, dtype, &shape).graph();
        (graph, bindings, Numerics::Fast)
    });
}

/// Keys and values that are looked up in pages of a table.
#[test]
fn attention_to_pages() {
    family("tiles.", |g| {
        let (dtype, numerics) = (g.pick(&SHORT), g.pick(&BOTH));
        let shape = shape_of(g, (20, 1..=if numerics == Numerics::Fast { 600 } else { 60 }));
        let page = g.pick(&[1, 3, 8, 16]);
        let (graph, bindings) = random_paged_attention(g, dtype, &shape, page);
        (graph, bindings, numerics)
    });
}

/// Weights in blocks, which are unpacked as they are copied.
#[test]
fn weights_in_blocks() {
    family("tiles.", |g| {
        let (dtype, block) = g.pick(&[("u4", 32), ("u4", 96), ("i8", 16), ("u8", 64), ("i4", 128)]);
        let graph = blocks("seq", 8 * g.size(1..=20), block * g.size(1..=1200 / block), block, dtype);
        let bindings = rows(&graph, g.pick(&[1, 5, 17, 70]));
        (graph, bindings, g.pick(&BOTH))
    });
}

/// Operands that are computed as they are copied.
#[test]
fn computed_operands() {
    family("tiles.", |g| {
        let rows = g.pick(&["2", "5", "70", "200"]);
        let graph = gated(rows, 8 * g.size(1..=150), g.size(1..=90));
        closed(g, graph)
    });
}

/// Long sums of small results, known and open.
#[test]
fn sums_in_parts() {
    family("parts", |g| {
        let (n, k) =
            (g.size(1..=140), if g.chance(0.5) { g.size(1024..=1900) } else { 8 * g.size(128..=240) });
        let count = g.size(2..=60);
        let graph = layer(if g.chance(0.5) { "seq" } else { "9" }, k, n);
        let bindings = rows(&graph, count);
        (graph, bindings, Numerics::Fast)
    });
}

/// Tiles that do not come out even on the GPU, whose last rows are divided: each variant that does so.
#[test]
fn waves() {
    let options = CompileOptions::default().numerics(Numerics::Fast);
    for backend in own() {
        let mut found = 0;
        // Hundreds of tiles: each case is much for the oracle.
        for seed in 0..cases() / 10 {
            let mut g = Gen::new(seed);
            let (rows, k, n) = (g.int(1200..=1400), 64 * g.size(3..=4), 8 * g.size(120..=170));
            let graph = layer(&rows.to_string(), k, n);
            let bindings = random_bindings(&graph, &DimBinding::new(), seed);
            let lir = lowered(&graph, &backend, &options);
            let Some(key) = backend.tuning_key(&lir, &lir.steps[0], &options).unwrap() else { continue };
            let in_waves = |name: &&String| name.split('@').next().is_some_and(|name| name.contains(".rows"));
            for name in key.variants.iter().filter(in_waves) {
                let mut tuning = Tuning::default();
                tuning.choose(&key, key.variants.iter().position(|other| other == name).unwrap());
                let cache = CompileCache { tuning, ..CompileCache::default() };
                agree_by(&graph, &bindings, (&backend, &lir, &options, &cache), name);
                found += 1;
            }
        }
        println!("{}: {found} variants are in waves", backend.name());
    }
}

/// The vendor's library, with what it computes behind a matmul.
#[test]
fn library_epilogues() {
    family("+", |g| {
        let graph = random_epilogue(g);
        let (graph, bindings, _) = closed(g, graph);
        (graph, bindings, Numerics::Fast)
    });
}
