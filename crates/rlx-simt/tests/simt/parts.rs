//! Long sums of small results, divided among workgroups on the fake driver's GPUs: under fast numerics alone, right with what is behind them, the same bits every
//! time, and where the result of the run is small.

use std::sync::Arc;

use rlx_backend::testing::{disagreement, run};
use rlx_backend::{Backend, ExecutableGraph};
use rlx_driver::Device;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{AttentionShape, Gen, random_attention, random_bindings};
use rlx_ir::{DType, DimBinding, Graph, LirModule, Op, sym, text};
use rlx_opt::{CompileOptions, CompilePipeline, Numerics};
use rlx_simt::SimtBackend;

use crate::common::{Fake, everything, fake, second_gpu, set_params};
use crate::written::layer;

/// The fake GPUs with matrix units, one of each architecture.
pub const MODELS: [(Device, usize); 5] =
    [(Device::Cuda, 1), (Device::Cuda, 2), (Device::Rocm, 0), (Device::Rocm, 1), (Device::Rocm, 2)];

/// Whether a step's sums are divided into a known number of parts.
fn in_parts(schedule: &str) -> bool {
    let count = schedule.rsplit_once(".parts").and_then(|(_, count)| count.parse::<u32>().ok());
    count.is_some_and(|count| count > 1)
}

pub fn fast() -> CompileOptions {
    CompileOptions::default().numerics(Numerics::Fast)
}

pub fn strict() -> CompileOptions {
    CompileOptions::default().numerics(Numerics::Strict)
}

/// A module and the schedules of its steps.
pub fn module(
    graph: &Graph,
    backend: &SimtBackend,
    options: &CompileOptions,
) -> (Arc<LirModule>, Vec<String>) {
    let target = backend.target(options).unwrap();
    let pipeline = CompilePipeline::new(Arc::clone(&target), options.clone());
    let lir = pipeline.compile(graph).unwrap_or_else(|e| panic!("{e}\n{graph}")).lir;
    let found = lir.steps.iter().filter_map(|step| target.schedule(step, &lir)).collect();
    (Arc::new(lir), found)
}

fn rows(graph: &Graph, count: usize) -> Bindings {
    random_bindings(graph, &DimBinding::from_pairs(&[(sym::SEQ, count)]), 7)
}

/// Runs three times, the second and third as a graph: near the oracle, and the same bits each time.
pub fn check(graph: &Graph, bindings: &Bindings, exec: &mut dyn ExecutableGraph, what: &str) {
    set_params(exec, bindings).unwrap();
    let mut first = None;
    for round in 0..3 {
        if let Some(why) = disagreement(graph, bindings, exec) {
            panic!("{what} run {round}: {why}\n{graph}");
        }
        let got = run(exec, bindings).unwrap();
        assert!(*first.get_or_insert_with(|| got.clone()) == got, "{what}: other bits in run {round}");
    }
}

#[test]
fn a_long_matmul_of_few_rows_is_divided_under_fast_numerics_alone() {
    let _alone = second_gpu();
    let graph = layer("5", 1200, 72);
    for (device, ordinal) in MODELS {
        let backend = fake(device, ordinal);
        let (lir, whole) = module(&graph, &backend, &strict());
        assert!(
            whole.len() == 1 && whole[0].starts_with("tiles.") && !whole[0].contains("parts"),
            "{whole:?}"
        );
        let mut of_strict = backend.compile(Arc::clone(&lir), &strict()).unwrap();
        check(&graph, &rows(&graph, 5), &mut *of_strict, "strict");

        let (lir, divided) = module(&graph, &backend, &fast());
        assert!(divided.len() == 1 && in_parts(&divided[0]), "{divided:?}");
        let told = |options| backend.target(&options).unwrap().matmul_instructions(DType::F16).unwrap();
        assert!(told(fast()).contains("in parts") && !told(strict()).contains("in parts"));
        let mut exec = backend.compile(Arc::clone(&lir), &fast()).unwrap();
        let before = Fake::get().tile_runs();
        check(&graph, &rows(&graph, 5), &mut *exec, "fast");
        assert_eq!(Fake::get().tile_runs() - before, 6, "one program a run");

        // The parts are in the plan's memory, which callers' module does not list, and weights can still be kept in a file.
        let scratch = exec.memory().arena_bytes - of_strict.memory().arena_bytes;
        assert!((2 * 5 * 72 * 4..16_384).contains(&scratch), "{scratch} bytes of scratch memory");
        assert_eq!(exec.lir().buffers.len(), lir.buffers.len());
        assert!(exec.prepared_weights().is_some());
        let mut clone = exec.try_clone().unwrap();
        check(&graph, &rows(&graph, 5), &mut *clone, "a clone");
    }
}

/// How many calls of the driver the first run of an executable takes: one for each dispatch, and others.
pub fn calls_of_first_run(lir: &Arc<LirModule>, bindings: &Bindings, backend: &SimtBackend) -> u64 {
    let mut exec = backend.compile(Arc::clone(lir), &fast()).unwrap();
    set_params(&mut *exec, bindings).unwrap();
    let before = Fake::get().calls();
    run(&mut *exec, bindings).unwrap();
    Fake::get().calls() - before
}

/// Runs a graph of an open size with these numbers of it, and whether each is divided: near the oracle, and with the bits of strict numerics where it is not.
fn sizes_decide(
    graph: &Graph,
    models: &[(Device, usize)],
    size: impl Fn(usize) -> Bindings,
    sizes: &[(usize, bool)],
) {
    for &(device, ordinal) in models {
        let backend = fake(device, ordinal);
        let (lir, divided) = module(graph, &backend, &fast());
        assert!(divided.iter().any(|name| name.contains(", small results in parts")), "{divided:?}");
        let (lir_strict, _) = module(graph, &backend, &strict());
        let mut exec = backend.compile(Arc::clone(&lir), &fast()).unwrap();
        let mut whole = backend.compile(lir_strict, &strict()).unwrap();
        let mut of_whole = None;
        for &(count, in_parts) in sizes {
            let bindings = size(count);
            check(graph, &bindings, &mut *exec, &format!("{device} {ordinal}: {count}"));
            set_params(&mut *whole, &bindings).unwrap();
            let same = run(&mut *exec, &bindings).unwrap() == run(&mut *whole, &bindings).unwrap();
            // Of large results, all are one chain of sums under both; of small ones, some are rounded to other numbers.
            assert!(same || in_parts, "{device} {ordinal}: {count}");
            let calls = calls_of_first_run(&lir, &bindings, &backend);
            assert_eq!(
                calls - *of_whole.get_or_insert(calls),
                u64::from(in_parts),
                "{device} {ordinal}: {count}"
            );
        }
    }
}

#[test]
fn a_run_of_a_small_result_is_divided_and_one_of_a_large_one_is_not() {
    let _alone = second_gpu();
    let graph = layer("seq", 1100, 72);
    let sizes = [(130, false), (5, true), (16, true), (17, true), (70, true), (5, true)];
    sizes_decide(&graph, &MODELS, |count| rows(&graph, count), &sizes);
}

/// One of the last layers of an image net: few places, many taps and channels, a bias, a residual.
fn late_layer(images: &str) -> Graph {
    let text = format!(
        "graph \"g\" {{ %0 = Input {{name=\"x\"}} : [{images}, 120, 5, 6] f16 \
         %1 = Param {{name=\"w\"}} : [40, 120, 3, 3] f16 %2 = Param {{name=\"b\"}} : [40] f16 \
         %3 = Input {{name=\"y\"}} : [{images}, 40, 5, 6] f16 \
         %4 = Conv(%0, %1, %2) {{strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], groups=1, format=ChannelsFirst}} : [{images}, 40, 5, 6] f16 \
         %5 = Binary.Add(%4, %3) : [{images}, 40, 5, 6] f16 %6 = Activation.Relu(%5) : [{images}, 40, 5, 6] f16 \
         return %6 }}"
    );
    text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn images(graph: &Graph, count: usize) -> Bindings {
    random_bindings(graph, &DimBinding::from_pairs(&[(sym::BATCH, count)]), 7)
}

#[test]
fn a_late_layer_of_an_image_net_is_divided_along_taps_and_channels() {
    let _alone = second_gpu();
    let graph = late_layer("2");
    for (device, ordinal) in MODELS {
        let backend = fake(device, ordinal);
        let (lir, divided) = module(&graph, &backend, &fast());
        // The images are transposed before.
        assert_eq!(divided.iter().filter(|name| in_parts(name)).count(), 1, "{divided:?}");
        let (_, whole) = module(&graph, &backend, &strict());
        assert!(!whole.iter().any(|name| name.contains("parts")), "{whole:?}");
        let mut exec = backend.compile(lir, &fast()).unwrap();
        let before = Fake::get().tile_runs();
        check(&graph, &images(&graph, 2), &mut *exec, &format!("{device} {ordinal}"));
        assert_eq!(Fake::get().tile_runs() - before, 6, "one program a run");
    }
}

#[test]
fn as_many_images_as_are_few_are_divided() {
    let _alone = second_gpu();
    let graph = late_layer("batch");
    let models = [MODELS[0], MODELS[3]];
    sizes_decide(&graph, &models, |count| images(&graph, count), &[(9, false), (1, true), (3, true)]);
}

/// Parts of groups: of channels that are not multiples of 64, so that parts begin within a tap.
#[test]
fn a_late_layer_in_groups_is_divided_where_its_groups_are_deep() {
    let _alone = second_gpu();
    let text = "graph \"g\" { %0 = Input {name=\"x\"} : [1, 240, 5, 5] f16 %1 = Param {name=\"w\"} : [48, 120, 3, 3] f16 \
                %2 = Conv(%0, %1) {strides=[2, 2], pads=[1, 1, 1, 1], dilations=[1, 1], groups=2, format=ChannelsFirst} : [1, 48, 3, 3] f16 \
                %3 = Activation.Relu(%2) : [1, 48, 3, 3] f16 return %3 }";
    let graph = text::parse(text).unwrap();
    for (device, ordinal) in MODELS {
        let backend = fake(device, ordinal);
        let (lir, divided) = module(&graph, &backend, &fast());
        assert!(divided.iter().any(|name| in_parts(name)), "{divided:?}");
        let mut exec = backend.compile(lir, &fast()).unwrap();
        check(&graph, &images(&graph, 1), &mut *exec, &format!("{device} {ordinal}"));
    }
}

#[test]
fn random_layers_agree_with_the_oracle() {
    let _alone = second_gpu();
    for (device, ordinal) in MODELS {
        let backend = fake(device, ordinal);
        for seed in 0..if everything() { 40 } else { 5 } {
            let mut g = Gen::new(seed + 1000 * ordinal as u64);
            let (m, n) = (if g.chance(0.7) { g.size(5..=16) } else { g.size(17..=60) }, g.size(1..=140));
            let k = if g.chance(0.5) { g.size(1024..=1900) } else { 8 * g.size(128..=240) };
            // Known rows, or a few of the open dimension; fewer are no parts.
            let (m, open) = if g.chance(0.3) { ("seq".to_owned(), true) } else { (m.to_string(), false) };
            let graph = layer(&m, k, n);
            let (lir, divided) = module(&graph, &backend, &fast());
            assert!(divided[0].contains("parts"), "{divided:?}");
            let mut exec = backend.compile(lir, &fast()).unwrap();
            let bindings = rows(&graph, if open { g.size(5..=6) } else { 5 });
            check(&graph, &bindings, &mut *exec, &format!("{device} {ordinal} seed {seed}"));
        }
    }
}

/// A residual that no one reads later is written over by the kernel that joins the parts.
#[test]
fn a_divided_matmul_may_write_over_its_residual() {
    let _alone = second_gpu();
    let text = "graph \"g\" { %0 = Input {name=\"x\"} : [5, 1100] f16 %1 = Param {name=\"v\"} : [1100, 72] f16 \
                %2 = Param {name=\"w\"} : [1100, 72] f16 %3 = MatMul(%0, %1) : [5, 72] f16 \
                %4 = Activation.Relu(%3) : [5, 72] f16 %5 = MatMul(%0, %2) : [5, 72] f16 \
                %6 = Binary.Add(%5, %4) : [5, 72] f16 return %6 }";
    let graph = text::parse(text).unwrap();
    for (device, ordinal) in MODELS {
        let backend = fake(device, ordinal);
        let (lir, divided) = module(&graph, &backend, &fast());
        assert!(divided.len() == 2 && divided.iter().all(|name| name.contains(".parts")), "{divided:?}");
        assert_eq!(lir.steps[1].in_place().count(), 1, "{lir}");
        let mut exec = backend.compile(lir, &fast()).unwrap();
        check(&graph, &rows(&graph, 5), &mut *exec, &format!("{device} {ordinal}"));
    }
}

/// Attention of one query over open sizes, with two heads of keys for four of queries.
fn decoder(mask: &str) -> Graph {
    windowed(mask, "none")
}

/// The same of the last keys alone.
fn windowed(mask: &str, window: &str) -> Graph {
    let text = format!(
        "graph \"g\" {{ %0 = Input {{name=\"q\"}} : [batch, 1, 64] f16 %1 = Input {{name=\"k\"}} : [batch, past_seq, 32] f16 \
         %2 = Input {{name=\"v\"}} : [batch, past_seq, 32] f16 \
         %3 = Attention(%0, %1, %2) {{num_heads=4, head_dim=16, mask={mask}, window={window}, scale=none, unseen=Zero}} : [batch, 1, 64] f16 \
         return %3 }}"
    );
    text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn one_query_is_divided_along_its_keys_where_they_are_many() {
    let _alone = second_gpu();
    for ((device, ordinal), mask) in MODELS.into_iter().zip(["None", "Causal", "None", "Causal", "None"]) {
        let (backend, graph) = (fake(device, ordinal), decoder(mask));
        let (lir, divided) = module(&graph, &backend, &fast());
        assert!(divided.len() == 1 && divided[0].ends_with(", small results in parts"), "{divided:?}");
        let (lir_strict, whole) = module(&graph, &backend, &strict());
        assert!(whole.len() == 1 && !whole[0].contains("parts"), "{whole:?}");
        let mut exec = backend.compile(lir, &fast()).unwrap();
        let mut whole = backend.compile(lir_strict, &strict()).unwrap();
        let mut sizes = vec![(1, 700, true), (2, 300, false), (2, 520, true)];
        // There are enough items for all units, so that nothing is divided.
        sizes.extend(everything().then_some((32, 520, false)));
        let mut differs = 0;
        for (batch, keys, in_parts) in sizes {
            let bindings = random_bindings(&graph, &DimBinding::batch_past_seq(batch, keys), 3);
            let what = format!("{device} {ordinal}: {batch} of {keys}");
            check(&graph, &bindings, &mut *exec, &what);
            let same = run(&mut *exec, &bindings).unwrap() == run(&mut *whole, &bindings).unwrap();
            assert!(same || in_parts, "{what}");
            differs += usize::from(!same);
        }
        assert!(differs > 0, "{device} {ordinal}: all are as if nothing were divided");
    }
}

/// Of a window, keys that are in front of it are no part of what is divided.
#[test]
fn a_window_of_many_keys_is_divided() {
    let _alone = second_gpu();
    for (device, ordinal) in MODELS {
        let (backend, graph) = (fake(device, ordinal), windowed("Causal", "600"));
        let (lir, divided) = module(&graph, &backend, &fast());
        assert!(divided.len() == 1 && divided[0].ends_with(", small results in parts"), "{divided:?}");
        let calls = |keys: usize| {
            let bindings = random_bindings(&graph, &DimBinding::batch_past_seq(1, keys), 3);
            let mut exec = backend.compile(Arc::clone(&lir), &fast()).unwrap();
            check(&graph, &bindings, &mut *exec, &format!("{device} {ordinal}: {keys} keys"));
            calls_of_first_run(&lir, &bindings, &backend)
        };
        // A part has at least 256 keys, of which a window of 600 has enough however many are in front of it.
        let whole = calls(300);
        assert_eq!([600, 1500].map(|keys| calls(keys) - whole), [1, 1], "{device} {ordinal}");
        // One that has too few keys is not, whatever the sizes of a run are.
        let (_, whole) = module(&windowed("Causal", "300"), &backend, &fast());
        assert!(whole.len() == 1 && !whole[0].contains("parts"), "{whole:?}");
    }
}

#[test]
fn random_attentions_of_many_keys_agree_with_the_oracle() {
    let _alone = second_gpu();
    for (device, ordinal) in MODELS {
        let backend = fake(device, ordinal);
        for seed in 0..if everything() { 40 } else { 3 } {
            let mut g = Gen::new(seed + 1000 * ordinal as u64);
            let head = |g: &mut Gen| if g.chance(0.5) { 8 * g.size(1..=8) } else { g.size(1..=20) };
            let (head_dim, value_dim) = (head(&mut g), head(&mut g));
            let shape = AttentionShape {
                kv_heads: g.size(1..=2),
                groups: g.size(1..=4),
                batch: g.size(1..=2),
                queries: g.size(1..=3),
                keys: g.size(512..=900),
                head_dim,
                value_dim,
            };
            let (graph, bindings) = random_attention(&mut g, DType::F16, &shape).graph();
            let (lir, divided) = module(&graph, &backend, &fast());
            let short = graph
                .nodes()
                .iter()
                .any(|node| matches!(node.op, Op::Attention { window: Some(window), .. } if window < 512));
            assert!(short || divided.iter().any(|name| name.contains("parts")), "{divided:?}");
            let mut exec = backend.compile(lir, &fast()).unwrap();
            check(&graph, &bindings, &mut *exec, &format!("{device} {ordinal} seed {seed}"));
        }
    }
}
