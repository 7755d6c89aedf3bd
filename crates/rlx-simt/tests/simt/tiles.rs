//! Matmuls of f16 and bf16 on matrix units, on the fake driver's GPUs of every architecture: right, with what is fused into them, by tile programs
//! where there are units, by kernels elsewhere, the same bits for all tilings and numerics, and every fault of a call typed.

use std::sync::Arc;

use rlx_backend::testing::{disagreement, run};
use rlx_backend::tuning::Tuning;
use rlx_backend::{Backend, CompileCache, ExecutableGraph};
use rlx_driver::Device;
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Gen, random_bindings, random_matmul};
use rlx_ir::{DType, DimBinding, ErrorKind, Graph, LirModule, Value, sym, text};
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_opt::{CompileOptions, CompilePipeline, Numerics, Precision};
use rlx_simt::{Lowered, SimtBackend};
use rlx_testdata::models::model;

use crate::attention::stays_whole;
use crate::common::{Fake, everything, fake, second_gpu, set_params};

/// The fake GPUs, the architecture of their matrix units, and whether these multiply bf16.
pub const MODELS: [(Device, usize, Option<&str>, bool); 12] = [
    (Device::Cuda, 0, Some("sm_90a"), true),
    (Device::Cuda, 1, Some("sm_80"), true),
    (Device::Cuda, 2, Some("sm_75"), false),
    (Device::Cuda, 3, None, false),
    (Device::Cuda, 4, Some("sm_80"), true),
    (Device::Cuda, 5, Some("sm_100a"), true),
    (Device::Rocm, 0, Some("gfx90a"), true),
    (Device::Rocm, 1, Some("gfx1100"), true),
    (Device::Rocm, 2, Some("gfx1200"), true),
    (Device::Rocm, 3, None, false),
    (Device::Rocm, 4, Some("gfx90a"), true),
    (Device::Rocm, 5, Some("gfx1100"), true),
];

fn parsed(body: &str) -> Graph {
    text::parse(&format!("graph \"g\" {{ {body} }}")).unwrap_or_else(|e| panic!("{e}\n{body}"))
}

pub fn module(graph: &Graph, backend: &SimtBackend, options: &CompileOptions) -> Arc<LirModule> {
    let pipeline = CompilePipeline::new(backend.target(options).unwrap(), options.clone());
    Arc::new(pipeline.compile(graph).unwrap_or_else(|e| panic!("{e}\n{graph}")).lir)
}

/// The schedules of a module's steps, as the target tells them.
pub fn schedules(lir: &LirModule, backend: &SimtBackend, options: &CompileOptions) -> Vec<String> {
    let target = backend.target(options).unwrap();
    lir.steps.iter().filter_map(|step| target.schedule(step, lir)).collect()
}

pub fn tiled(schedules: &[String]) -> u64 {
    schedules.iter().filter(|schedule| schedule.starts_with("tiles.")).count() as u64
}

/// Compiles, and runs three times, the second and third as a graph; as many steps are tile programs as the target says, which is given.
pub fn check(graph: &Graph, bindings: &Bindings, backend: &SimtBackend) -> u64 {
    let options = CompileOptions::default();
    let lir = module(graph, backend, &options);
    let steps = tiled(&schedules(&lir, backend, &options));
    let mut exec = backend.compile(lir, &options).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    set_params(&mut *exec, bindings).unwrap();
    let before = Fake::get().tile_runs();
    for round in 0..3 {
        if let Some(why) = disagreement(graph, bindings, &mut *exec) {
            panic!("{} run {round}: {why}\n{graph}", backend.name());
        }
    }
    assert_eq!(Fake::get().tile_runs() - before, 3 * steps, "{}\n{graph}", backend.name());
    steps
}

/// A layer: a matmul by a weight, a bias, an activation, a residual.
fn layer(dtype: DType) -> Graph {
    wide(dtype, 40)
}

/// Such a layer of `n` columns.
fn wide(dtype: DType, n: usize) -> Graph {
    parsed(&format!(
        "%0 = Input {{name=\"x\"}} : [seq, 72] {dtype} %1 = Param {{name=\"w\"}} : [72, {n}] {dtype} \
         %2 = Param {{name=\"b\"}} : [{n}] {dtype} %3 = Input {{name=\"y\"}} : [seq, {n}] {dtype} \
         %4 = MatMul(%0, %1) : [seq, {n}] {dtype} %5 = Binary.Add(%4, %2) : [seq, {n}] {dtype} \
         %6 = Activation.Gelu(%5) : [seq, {n}] {dtype} %7 = Binary.Add(%6, %3) : [seq, {n}] {dtype} return %7"
    ))
}

fn rows(graph: &Graph, count: usize) -> Bindings {
    random_bindings(graph, &DimBinding::from_pairs(&[(sym::SEQ, count)]), 7)
}

#[test]
fn a_layer_is_one_tile_program_where_there_are_units_for_its_type() {
    let _alone = second_gpu();
    for (device, ordinal, units, brain) in MODELS {
        let backend = fake(device, ordinal);
        let machine = backend.machine().unwrap();
        assert_eq!(machine.contains("matrix units"), units.is_some(), "{machine}");
        for (dtype, on_units) in [(DType::F16, units.is_some()), (DType::BF16, brain), (DType::F32, false)] {
            let (graph, options) = (layer(dtype), CompileOptions::default());
            let found = schedules(&module(&graph, &backend, &options), &backend, &options);
            assert_eq!(found.len(), 1, "{device} {ordinal}: {found:?}");
            assert_eq!(tiled(&found), u64::from(on_units), "{device} {ordinal} {dtype}: {found:?}");
            if on_units {
                assert!(found[0].contains(units.unwrap()), "{found:?}");
            }
            assert_eq!(stays_whole(dtype, &backend), usize::from(on_units), "{device} {ordinal} {dtype}");
            let told = backend.target(&options).unwrap().matmul_instructions(dtype);
            assert_eq!(told.is_some_and(|told| told.contains(units.unwrap_or("none"))), on_units);
            for count in [1, 33] {
                assert_eq!(check(&graph, &rows(&graph, count), &backend), u64::from(on_units));
            }
        }
    }
}

/// Blackwell has no `wgmma`: what its workstations run are programs of sm_80, compiled for their own number (the driver takes machine code of no other
/// generation); they need nothing that `sm_120a` has besides.
#[test]
fn blackwell_runs_programs_of_sm_80_compiled_for_its_own_number() {
    let _alone = second_gpu();
    let backend = fake(Device::Cuda, 4);
    let machine = backend.machine().unwrap();
    assert!(machine.contains("(sm_120, matrix units of sm_80,"), "{machine}");
    let (graph, options) = (wide(DType::F16, 256), CompileOptions::default());
    let lir = module(&graph, &backend, &options);
    let key = backend.tuning_key(&lir, &lir.steps[0], &options).unwrap().expect("it has several tilings");
    assert!(key.variants.iter().all(|v| v.starts_with("tiles.sm_80.") && !v.contains(".g")), "{key:?}");
    assert_eq!(check(&graph, &rows(&graph, 150), &backend), 1);
}

/// Data centres' Blackwell multiplies into tensor memory what is large enough, and the rest by programs of sm_80, all compiled for `sm_100a`.
#[test]
fn blackwell_of_data_centres_multiplies_into_tensor_memory() {
    let _alone = second_gpu();
    let backend = fake(Device::Cuda, 5);
    let machine = backend.machine().unwrap();
    assert!(machine.contains("(sm_100a, matrix units of sm_100a,"), "{machine}");
    let (graph, options) = (wide(DType::F16, 256), CompileOptions::default());
    let lir = module(&graph, &backend, &options);
    let strict = CompileOptions::default().numerics(Numerics::Strict);
    let key = backend.tuning_key(&lir, &lir.steps[0], &strict).unwrap().expect("it has several tilings");
    let (tensors, others): (Vec<&String>, Vec<_>) =
        key.variants.iter().partition(|v| v.starts_with("tiles.sm_100a."));
    assert_eq!(tensors.len(), 4, "{key:?}");
    assert!(!others.is_empty() && others.iter().all(|v| v.starts_with("tiles.sm_80.")), "{key:?}");
    assert_eq!(check(&graph, &rows(&graph, 150), &backend), 1);
    // Enough tiles of 128 rows to keep a GPU busy are taken without tuning.
    let large = parsed(
        "%0 = Input {name=\"x\"} : [1800, 136] f16 %1 = Param {name=\"w\"} : [136, 520] f16 %2 = MatMul(%0, %1) : [1800, 520] f16 return %2",
    );
    let lir = module(&large, &backend, &options);
    let schedules = schedules(&lir, &backend, &options);
    assert!(schedules.iter().any(|s| s.starts_with("tiles.sm_100a.128x64x64.")), "{schedules:?}");
}

/// Hopper has more tilings of a large matmul than a tuner measures: it leaves out those of the longest predicted times.
#[test]
fn the_tilings_of_the_longest_predicted_times_are_left_out() {
    let _alone = second_gpu();
    let hopper = MODELS.into_iter().find(|model| model.2 == Some("sm_90a")).expect("it is among the models");
    let backend = fake(hopper.0, hopper.1);
    let graph = parsed(
        "%0 = Input {name=\"x\"} : [1024, 256] f16 %1 = Param {name=\"w\"} : [256, 1024] f16 %2 = MatMul(%0, %1) : [1024, 1024] f16 return %2",
    );
    let lir = module(&graph, &backend, &CompileOptions::default());
    let key = backend
        .tuning_key(&lir, &lir.steps[0], &CompileOptions::default())
        .unwrap()
        .expect("it has several tilings");
    assert!(key.variants.len() > 16, "{key:?}");
    let kept = key.candidates(16);
    assert_eq!((kept.len(), kept[0]), (16, 0));
    let longest = kept[1..].iter().map(|&variant| key.predicted[variant]).max();
    let left = (1..key.variants.len()).filter(|variant| !kept.contains(variant));
    let least_left = left.clone().map(|variant| key.predicted[variant]).min();
    assert!(left.clone().next().is_some() && longest <= least_left, "{key:?}");
    assert!(left.clone().any(|variant| key.variants[variant].contains(".16x64x64.")), "{key:?}");
}

#[test]
fn random_matmuls_with_what_is_around_them_agree_with_the_oracle() {
    let _alone = second_gpu();
    for (device, ordinal, units, brain) in MODELS {
        let Some(arch) = units else { continue };
        let backend = fake(device, ordinal);
        let cases = if everything() { 100 } else { 12 };
        for seed in 0..cases {
            let mut g = Gen::new(seed + 1000 * ordinal as u64);
            let dtype = if brain { g.pick(&[DType::F16, DType::BF16]) } else { DType::F16 };
            let graph = random_matmul(&mut g, dtype);
            let bindings = random_bindings(&graph, &DimBinding::new(), seed);
            oracle::bind_dims(&graph, &bindings).unwrap();
            assert_eq!(check(&graph, &bindings, &backend), 1, "{arch} seed {seed}\n{graph}");
        }
    }
}

#[test]
fn a_run_of_few_rows_takes_small_tiles() {
    let _alone = second_gpu();
    let (graph, options) = (wide(DType::F16, 200), CompileOptions::default());
    for (device, ordinal, units, _) in MODELS {
        if units.is_none() {
            continue;
        }
        let backend = fake(device, ordinal);
        let mut exec = backend.compile(module(&graph, &backend, &options), &options).unwrap();
        let (one, mut first) = (rows(&graph, 1), Vec::new());
        // Sizes come again: what was bound to them is kept.
        // The group level takes larger tiles where there are enough of them for a GPU.
        let [few, many] = match units {
            Some("sm_90a") => [64, 64],
            Some("sm_100a") => [16, 64],
            _ => [16, 128],
        };
        for (count, tile) in [(1, 16), (64, 64), (130, many), (20, few), (130, many), (1, 16)] {
            // One row, many times: neither the other rows nor the tiling changes a bit of it.
            let mut bindings = one.clone();
            for name in ["x", "y"] {
                let value = one.input(name).unwrap();
                let many = value.encode().repeat(count);
                bindings.set_input(name, Value::decode(value.dtype, &[count, value.dims[1]], &many));
            }
            set_params(&mut *exec, &bindings).unwrap();
            let got = run(&mut *exec, &bindings).unwrap().remove(0);
            assert_eq!(Fake::get().tile_rows(), tile, "{device} {ordinal}: {count} rows");
            if first.is_empty() {
                first.clone_from(&got);
            }
            assert!(got == first.repeat(count), "{device} {ordinal}: {count} rows");
        }
    }
}

pub fn outputs(exec: &mut dyn ExecutableGraph, bindings: &Bindings) -> Vec<Vec<u8>> {
    set_params(exec, bindings).unwrap();
    run(exec, bindings).unwrap()
}

#[test]
fn all_tilings_and_numerics_give_the_same_bits() {
    let _alone = second_gpu();
    let graph = wide(DType::F16, 264);
    let bindings = rows(&graph, 70);
    for (device, ordinal, units, _) in MODELS {
        if units.is_none() {
            continue;
        }
        let (backend, strict) = (fake(device, ordinal), CompileOptions::default().numerics(Numerics::Strict));
        let fast = CompileOptions::default().numerics(Numerics::Fast);
        let lir = module(&graph, &backend, &strict);
        let first = outputs(&mut *backend.compile(Arc::clone(&lir), &strict).unwrap(), &bindings);
        let of_fast = backend.compile(module(&graph, &backend, &fast), &fast);
        assert!(outputs(&mut *of_fast.unwrap(), &bindings) == first, "{device} {ordinal}: numerics");
        let key = backend.tuning_key(&lir, &lir.steps[0], &strict).unwrap().expect("it has several tilings");
        assert_eq!(key.variants[0], schedules(&lir, &backend, &strict)[0]);
        // More workgroup memory than a kernel may declare.
        let large = key.variants.iter().filter(|name| name.contains(".128x256x32.")).count();
        let has_more = units.is_some_and(|units| matches!(units, "sm_80" | "sm_90a" | "sm_100a"));
        assert_eq!(large == 1, has_more, "{device} {ordinal}: {key:?}");
        // Six tiles of 64 × 128 for four units: teams have more than a turn.
        let turns = key.variants.iter().any(|name| name.ends_with(".64x128x64.g2.s8.t2"));
        assert_eq!(turns, units == Some("sm_90a"), "{device} {ordinal}: {key:?}");
        for variant in 1..key.variants.len() {
            let mut tuning = Tuning::default();
            tuning.choose(&key, variant);
            let cache = CompileCache { tuning, ..CompileCache::default() };
            let mut exec = backend.compile_cached(Arc::clone(&lir), &strict, &cache).unwrap();
            assert!(outputs(&mut *exec, &bindings) == first, "{device} {ordinal}: {}", key.variants[variant]);
        }
    }
}

#[test]
fn limits_choose_another_tiling() {
    let _alone = second_gpu();
    let graph = wide(DType::F16, 200);
    let (bindings, options) = (rows(&graph, 40), CompileOptions::default());
    for (device, ordinal, units, _) in MODELS {
        if units.is_none() {
            continue;
        }
        let own = fake(device, ordinal);
        let lowered = own.clone().with_limits(Lowered { max_workgroup: Some(64), ..Lowered::default() });
        let of = |backend: &SimtBackend| schedules(&module(&graph, backend, &options), backend, &options);
        assert_ne!(of(&own), of(&lowered));
        for backend in [own, lowered] {
            assert_eq!(check(&graph, &bindings, &backend), 1, "{device} {ordinal}");
        }
    }
}

/// Compiles, runs three times (the second and third as a graph) and reads the output.
fn work(graph: &Graph, bindings: &Bindings, backend: &SimtBackend) -> rlx_ir::Result<Vec<Vec<u8>>> {
    let options = CompileOptions::default();
    let lir = CompilePipeline::new(backend.target(&options)?, options.clone()).compile(graph)?.lir;
    let mut exec = backend.compile(Arc::new(lir), &options)?;
    set_params(&mut *exec, bindings)?;
    run(&mut *exec, bindings)?;
    run(&mut *exec, bindings)?;
    run(&mut *exec, bindings)
}

#[test]
fn each_call_fails_in_turn() {
    let _alone = second_gpu();
    let (fake_driver, graph) = (Fake::get(), layer(DType::F16));
    let bindings = rows(&graph, 20);
    for (device, ordinal, code, kind) in [
        (Device::Cuda, 0, 1, ErrorKind::Device),
        (Device::Rocm, 0, 2, ErrorKind::OutOfMemory),
        (Device::Rocm, 1, 700, ErrorKind::Device),
    ] {
        let backend = fake(device, ordinal);
        let want = work(&graph, &bindings, &backend).unwrap();
        let before = fake_driver.calls();
        assert!(work(&graph, &bindings, &backend).unwrap() == want);
        let (calls, mut reported) = (fake_driver.calls() - before, 0);
        for call in 1..=calls {
            fake_driver.fail(call, code);
            match work(&graph, &bindings, &backend) {
                Ok(found) => assert!(found == want, "{device}, call {call}"),
                Err(e) => {
                    reported += 1;
                    assert_eq!((e.kind(), e.device().is_some()), (kind, true), "{device}, call {call}: {e}");
                }
            }
            fake_driver.fail(0, 0);
            assert!(work(&graph, &bindings, &backend).unwrap() == want, "{device}, after call {call}");
        }
        assert!(2 * reported > calls, "{device}: {reported} of {calls} faults were reported");
    }
}

/// Far enough for f16 from what PyTorch gave in f32, relative to the largest value.
const NEAR: f64 = 5e-3;

/// Runs a model's smallest golden in f16, and says how many of its steps are tile programs.
pub fn tiled_steps(name: &str, backend: &SimtBackend) -> Option<u64> {
    let model = model(name);
    let imported = import(&OnnxFile::open(&model.graph_file()?).unwrap(), &ImportOptions::default()).unwrap();
    let positions = |dims: &[(String, usize)]| dims.iter().map(|(_, n)| n).product::<usize>();
    let golden = model.goldens.iter().min_by_key(|golden| positions(&golden.dims)).unwrap();
    let (inputs, expected) = golden.read();
    let options = CompileOptions { precision: Precision::F16, ..CompileOptions::default() };
    let lir = module(&imported.graph, backend, &options);
    let names = schedules(&lir, backend, &options);
    let steps = tiled(&names);
    // Where a run has few rows, kernels do these.
    let others = names.iter().filter(|name| name.contains("few rows")).count() as u64;
    let mut exec = backend.compile(Arc::clone(&lir), &options).unwrap();
    for (i, slot) in lir.params.iter().enumerate() {
        exec.set_param(i, Arc::clone(imported.weights.get(&slot.name).unwrap())).unwrap();
    }
    let mut values = Bindings::default();
    for (name, value) in inputs {
        values.set_input(name, value.value());
    }
    let before = Fake::get().tile_runs();
    let results = run(&mut *exec, &values).unwrap();
    assert!(Fake::get().tile_runs() - before + others >= steps, "{name}");
    let types = lir.outputs.iter().map(|slot| slot.operand.dtype);
    for ((output, dtype), got) in imported.outputs.iter().zip(types).zip(&results) {
        let Some((_, want)) = expected.iter().find(|(name, _)| name == output) else { continue };
        let want = want.value();
        let got = Value::decode(dtype, &want.dims, got).to_f64();
        let largest = want.to_f64().iter().fold(0f64, |most, x| most.max(x.abs()));
        let apart = want.to_f64().iter().zip(&got).map(|(w, g)| (w - g).abs() / largest).fold(0f64, f64::max);
        println!("{} {name} {output}: {steps} tile programs, error {apart:.1e}", backend.name());
        assert!(got.len() == want.to_f64().len() && apart < NEAR, "{name} {output}: {apart}");
    }
    Some(steps)
}

#[test]
fn models_in_f16_run_on_matrix_units_and_are_near_their_goldens() {
    let _alone = second_gpu();
    // A layer of BERT has six matmuls, and five programs, as attention is whole: that one, and a single matmul for queries, keys and values. One of
    // GPT-2 has four, and five.
    for (name, steps) in [("mlp", 2), ("bert_dynamic", 10), ("gpt2_dynamic", 11)] {
        for (device, ordinal) in [(Device::Cuda, 0), (Device::Rocm, 0), (Device::Rocm, 1)] {
            match tiled_steps(name, &fake(device, ordinal)) {
                Some(tiled) => assert_eq!(tiled, steps, "{name} on {device} {ordinal}"),
                None => println!("@skip 1 {name} is not here"),
            }
        }
    }
}
