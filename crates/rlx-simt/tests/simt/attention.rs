//! Attention, on the fake driver's GPUs: whole where there is a program for it, or a kernel, decomposed elsewhere, and right either way.

use std::sync::Arc;

use rlx_backend::testing::disagreement;
use rlx_backend::{Backend, ExecutableGraph};
use rlx_driver::Device;
use rlx_ir::lir::StepKind;
use rlx_ir::op::Unseen;
use rlx_ir::ops::MaskKind;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{AttentionShape, Case, Gen, random_attention, random_bindings};
use rlx_ir::{DType, DimBinding, Graph, LirModule, Op, OpKind, Value, sym, text};
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_simt::SimtBackend;

use crate::common::{everything, fake, second_gpu, set_params};

/// The fake GPUs with matrix units, one of each architecture, and whether they multiply bf16. (`tiles.rs` asks those without, too.)
const MODELS: [(Device, usize, bool); 5] = [
    (Device::Cuda, 0, true),
    (Device::Cuda, 2, false),
    (Device::Rocm, 0, true),
    (Device::Rocm, 1, true),
    (Device::Rocm, 2, true),
];

fn module(graph: &Graph, backend: &SimtBackend) -> Arc<LirModule> {
    let options = CompileOptions::default();
    let pipeline = CompilePipeline::new(backend.target(&options).unwrap(), options);
    Arc::new(pipeline.compile(graph).unwrap_or_else(|e| panic!("{e}\n{graph}")).lir)
}

/// How many steps are whole attentions.
fn whole(lir: &LirModule) -> usize {
    let is = |kind: &StepKind| matches!(kind, StepKind::Op(op) if op.kind() == OpKind::Attention);
    lir.steps.iter().filter(|step| is(&step.kind)).count()
}

fn compiled(lir: Arc<LirModule>, backend: &SimtBackend, graph: &Graph) -> Box<dyn ExecutableGraph> {
    backend.compile(lir, &CompileOptions::default()).unwrap_or_else(|e| panic!("{e}\n{graph}"))
}

/// Compiles, and runs three times, the second and third as a graph; how many steps were whole attentions, which have no kernels.
fn check(graph: &Graph, bindings: &Bindings, backend: &SimtBackend) -> usize {
    let lir = module(graph, backend);
    let attentions = whole(&lir);
    let mut exec = compiled(lir, backend, graph);
    set_params(&mut *exec, bindings).unwrap();
    for round in 0..3 {
        if let Some(why) = disagreement(graph, bindings, &mut *exec) {
            panic!("{} run {round}: {why}\n{graph}", backend.name());
        }
    }
    attentions
}

/// A random attention with every mask, grouped heads, both layouts, and heads of 1 to 160 elements.
fn random_case(g: &mut Gen, dtype: DType) -> Case {
    random_case_of(g, dtype, 24)
}

/// The same with at most so many queries.
fn random_case_of(g: &mut Gen, dtype: DType, queries: usize) -> Case {
    let head = |g: &mut Gen| if g.chance(0.5) { 8 * g.size(1..=20) } else { g.size(1..=20) };
    let shape = AttentionShape {
        kv_heads: g.size(1..=2),
        groups: g.size(1..=2),
        head_dim: head(g),
        value_dim: head(g),
        batch: g.size(1..=2),
        queries: g.size(1..=queries),
        keys: g.size(1..=40),
    };
    random_attention(g, dtype, &shape)
}

#[test]
fn random_attentions_are_whole_and_agree_with_the_oracle() {
    let _alone = second_gpu();
    for (device, ordinal, brain) in MODELS {
        let backend = fake(device, ordinal);
        for seed in 0..if everything() { 100 } else { 16 } {
            let mut g = Gen::new(seed + 1000 * ordinal as u64);
            let dtype = if brain { g.pick(&[DType::F16, DType::BF16]) } else { DType::F16 };
            let (graph, bindings) = random_case(&mut g, dtype).graph();
            assert_eq!(check(&graph, &bindings, &backend), 1, "{device} {ordinal} seed {seed}\n{graph}");
        }
    }
}

/// How many attentions of a type stay whole on a device, of one of few queries, which has no kernel.
pub fn stays_whole(dtype: DType, backend: &SimtBackend) -> usize {
    whole(&module(&random_case_of(&mut Gen::new(1), dtype, 15).graph().0, backend))
}

/// Whether an attention is whole follows from its type, the architecture and, of types that the units do not multiply, whether there are many queries.
#[test]
fn other_types_have_kernels_where_there_are_many_queries() {
    let _alone = second_gpu();
    let one = |dtype, seed| random_case(&mut Gen::new(seed), dtype);
    let (mut by_kernels, mut ran) = (0, 0);
    for seed in 0..if everything() { 60 } else { 8 } {
        for (device, ordinal, brain) in MODELS {
            for dtype in [DType::F32, DType::BF16] {
                let case = one(dtype, seed);
                let [queries, keys] = [0, 1].map(|i| case.inputs[i].dims[case.inputs[i].dims.len() - 2]);
                let (graph, bindings) = case.graph();
                let by_units = brain && dtype == DType::BF16;
                let whole = check(&graph, &bindings, &fake(device, ordinal));
                assert_eq!(
                    whole,
                    usize::from(by_units || queries >= 16 || queries == keys),
                    "{device} {ordinal} {dtype} {seed}"
                );
                by_kernels += usize::from(!by_units) * whole;
                ran += 1;
            }
        }
    }
    assert!(by_kernels * 6 > ran, "{by_kernels} of {ran}");
}

/// Projections, four heads, attention, a projection and a residual, over open sizes; keys and values have so many elements, 16 a head.
fn block(mask: &str, shared: usize) -> Graph {
    let body = format!(
        "%0 = Input {{name=\"x\"}} : [2, seq, 64] f16 %1 = Param {{name=\"q\"}} : [64, 64] f16 \
         %2 = Param {{name=\"k\"}} : [64, {shared}] f16 %3 = Param {{name=\"v\"}} : [64, {shared}] f16 \
         %4 = Param {{name=\"o\"}} : [64, 64] f16 \
         %5 = MatMul(%0, %1) : [2, seq, 64] f16 %6 = MatMul(%0, %2) : [2, seq, {shared}] f16 \
         %7 = MatMul(%0, %3) : [2, seq, {shared}] f16 \
         %8 = Attention(%5, %6, %7) {{num_heads=4, head_dim=16, mask={mask}, window=none, scale=none, unseen=Zero}} : [2, seq, 64] f16 \
         %9 = MatMul(%8, %4) : [2, seq, 64] f16 %10 = Binary.Add(%9, %0) : [2, seq, 64] f16 return %10"
    );
    text::parse(&format!("graph \"g\" {{ {body} }}")).unwrap_or_else(|e| panic!("{e}\n{body}"))
}

#[test]
fn a_block_over_open_sizes_takes_the_tiles_that_suit_a_run() {
    let _alone = second_gpu();
    for (device, ordinal, _) in MODELS {
        let backend = fake(device, ordinal);
        for (mask, shared) in [("None", 64), ("Causal", 64), ("Causal", 16)] {
            let graph = block(mask, shared);
            for count in [1, 17, 70] {
                let bindings = random_bindings(&graph, &DimBinding::from_pairs(&[(sym::SEQ, count)]), 7);
                assert_eq!(
                    check(&graph, &bindings, &backend),
                    1,
                    "{device} {ordinal} {mask} {shared} {count}"
                );
            }
        }
    }
}

/// What the target says of the step, and to the tuner: all variants give the same bits.
#[test]
fn tilings_are_variants_with_the_same_bits() {
    let _alone = second_gpu();
    let backend = fake(Device::Cuda, 0);
    let (q, mut g) = (vec![1, 2, 70, 24], Gen::new(3));
    let inputs: Vec<Value> = (0..3).map(|_| g.value(DType::F16, &q, -1.0..1.0)).collect();
    let (mask, unseen) = (MaskKind::Causal, Unseen::Zero);
    let op = Op::Attention { num_heads: 2, head_dim: 24, mask, window: None, scale: None, unseen };
    let (graph, bindings) = Case::new(op, inputs).graph();
    let (lir, options) = (module(&graph, &backend), CompileOptions::default());
    let key = backend.tuning_key(&lir, &lir.steps[0], &options).unwrap().expect("it has several tilings");
    assert_eq!(
        key.variants,
        ["tiles.sm_80.64x32x64.4x1.s2", "tiles.sm_80.16x32x64.1x1.s2", "tiles.sm_80.128x32x64.8x1.s2"]
    );
    let told = backend.target(&options).unwrap().schedule(&lir.steps[0], &lir);
    assert_eq!(told.as_ref(), Some(&key.variants[0]));
    let mut results = Vec::new();
    for variant in 0..key.variants.len() {
        let mut tuning = rlx_backend::tuning::Tuning::default();
        tuning.choose(&key, variant);
        let cache = rlx_backend::CompileCache { tuning, ..Default::default() };
        let mut exec = backend.compile_cached(Arc::clone(&lir), &options, &cache).unwrap();
        results.push(rlx_backend::testing::run(&mut *exec, &bindings).unwrap());
    }
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
}

/// On sm_90a, many rows are done by warp groups, whatever the layout of their operands is.
#[test]
fn many_rows_are_done_by_warp_groups() {
    let _alone = second_gpu();
    let (backend, options) = (fake(Device::Cuda, 0), CompileOptions::default());
    let target = backend.target(&options).unwrap();
    let mut groups = 0;
    let cases = if everything() { 60 } else { 12 };
    for seed in 0..cases {
        let mut g = Gen::new(seed);
        let head = |g: &mut Gen| g.pick(&[64, 64, 64, 128]);
        let shape = AttentionShape {
            kv_heads: g.size(1..=2),
            groups: g.size(1..=2),
            head_dim: head(&mut g),
            value_dim: head(&mut g),
            batch: g.size(1..=2),
            queries: g.size(65..=140),
            keys: g.size(1..=140),
        };
        let dtype = g.pick(&[DType::F16, DType::BF16]);
        let (graph, bindings) = random_attention(&mut g, dtype, &shape).graph();
        assert_eq!(check(&graph, &bindings, &backend), 1, "seed {seed}\n{graph}");
        let lir = module(&graph, &backend);
        let schedule = |step| target.schedule(step, &lir).unwrap_or_default();
        groups += usize::from(lir.steps.iter().any(|step| schedule(step).starts_with("tiles.sm_90a.")));
    }
    assert!(groups as u64 >= cases * 3 / 4, "{groups} of {cases} are of the group level");
}
