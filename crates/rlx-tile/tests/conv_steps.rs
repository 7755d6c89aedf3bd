//! Steps of compiled modules around convolutions as tile programs: random convolutions with what is behind them, through the compiler, which puts their
//! channels last and packs their weights, on the interpreters, against the oracle.

mod common;

use std::sync::Arc;

use common::compiled::{ARCHS, Compiled, dtypes, target};
use rlx_ir::oracle;
use rlx_ir::testing::{Gen, random_bindings, random_conv};
use rlx_ir::{DType, DimBinding, Value, text};
use rlx_kernel::schedule::StepDesc;
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_tile::schedule::{step, tilings};
use rlx_tile::{Arch, Program};

/// Random convolutions of each architecture; with `RLX_TEST_ALL` five times as many.
const CASES: u64 = 100;

fn compiled(graph: rlx_ir::Graph, seed: u64) -> Compiled {
    let values = random_bindings(&graph, &DimBinding::new(), seed);
    oracle::bind_dims(&graph, &values).unwrap();
    Compiled::of(graph, values, CompileOptions::default())
}

fn random_convolutions(arch: Arch) {
    let cases = if std::env::var_os("RLX_TEST_ALL").is_some() { 5 * CASES } else { CASES };
    let mut refusals = Vec::new();
    for seed in 0..cases {
        let mut g = Gen::new(7000 + seed);
        let dtype = g.pick(dtypes(arch));
        let compiled = compiled(random_conv(&mut g, dtype), seed);
        let (results, tiled, refused) = compiled.run_by_tiles(arch, None);
        compiled.check(&results, arch);
        if tiled != 1 {
            refusals.push(format!("seed {seed}: {refused:?}\n{}", compiled.graph));
        }
    }
    assert!(refusals.is_empty(), "{}: {}", arch.name(), refusals.join("\n"));
}

#[test]
fn random_convolutions_agree_with_the_oracle_on_sm_75() {
    random_convolutions(Arch::Sm75);
}

#[test]
fn random_convolutions_agree_with_the_oracle_on_sm_80() {
    random_convolutions(Arch::Sm80);
}

#[test]
fn random_convolutions_agree_with_the_oracle_on_gfx90a() {
    random_convolutions(Arch::Gfx90a);
}

#[test]
fn random_convolutions_agree_with_the_oracle_on_gfx1100() {
    random_convolutions(Arch::Gfx1100);
}

#[test]
fn random_convolutions_agree_with_the_oracle_on_gfx1200() {
    random_convolutions(Arch::Gfx1200);
}

/// The program of a convolution of these operands on sm_80, or why there is none. Weights that begin with `w` are parameters.
fn program(x: &str, w: &str, slide: &str, groups: usize, y: &str) -> Result<Arc<Program>, String> {
    let weights = if w.starts_with('w') { "Param {name=\"w\"}" } else { "Input {name=\"w\"}" };
    let w = w.trim_start_matches('w');
    let graph = format!(
        "graph \"g\" {{\n  %0 = Input {{name=\"x\"}} : {x}\n  %1 = {weights} : {w}\n  \
         %2 = Conv(%0, %1) {{{slide}, dilations=[1, 1], groups={groups}, format=ChannelsLast}} : {y}\n  return %2\n}}"
    );
    let (target, options) = (target(), CompileOptions::default());
    let graph = text::parse(&graph).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    let lir = CompilePipeline::new(Arc::new(target), options).compile(&graph).unwrap().lir;
    assert_eq!(lir.steps.len(), 1, "{graph}");
    let desc = StepDesc::of(&lir.steps[0], &lir).unwrap();
    step(Arch::Sm80, &desc, None).map(|launch| launch.program).map_err(|why| why.to_string())
}

const THREE: &str = "strides=[1, 1], pads=[1, 1, 1, 1]";

#[test]
fn what_is_accessed_at_once_follows_from_channels_and_filters() {
    let vectors = |x: &str, w: &str, groups: usize, y: &str| {
        let found = program(x, w, THREE, groups, y).unwrap();
        assert!(found.views[0].window.is_some());
        [0, 1, 2].map(|i| found.views[i].vector)
    };
    assert_eq!(vectors("[2, 9, 9, 16] f16", "w[24, 16, 3, 3] f16", 1, "[2, 9, 9, 24] f16"), [8, 8, 8]);
    assert_eq!(vectors("[2, 9, 9, 12] bf16", "w[18, 12, 3, 3] bf16", 1, "[2, 9, 9, 18] bf16"), [4, 4, 2]);
    assert_eq!(vectors("[2, 9, 9, 3] f16", "w[64, 3, 3, 3] f16", 1, "[2, 9, 9, 64] f16"), [1, 1, 8]);
    // Groups begin where channels of a group end.
    assert_eq!(vectors("[2, 9, 9, 24] f16", "w[24, 12, 3, 3] f16", 2, "[2, 9, 9, 24] f16"), [4, 4, 4]);
}

#[test]
fn a_window_of_one_tap_that_moves_by_one_is_a_matmul() {
    let of = |stride: usize, y: &str| {
        let slide = format!("strides=[{stride}, {stride}], pads=[0, 0, 0, 0]");
        program("[2, 9, 9, 16] f16", "w[24, 16, 1, 1] f16", &slide, 1, y).unwrap()
    };
    let (still, moving) = (of(1, "[2, 9, 9, 24] f16"), of(2, "[2, 5, 5, 24] f16"));
    assert!(still.views[0].window.is_none() && still.name.starts_with("matmul."), "{still}");
    assert!(moving.views[0].window.is_some() && moving.name.starts_with("conv."), "{moving}");
    assert_eq!((still.views[0].vector, moving.views[0].vector), (8, 8));
}

#[test]
fn what_is_no_such_convolution_is_refused_with_the_reason() {
    let refused = |x: &str, w: &str, groups: usize, y: &str| {
        program(x, w, THREE, groups, y).expect_err("there is no program")
    };
    let depthwise = refused("[2, 9, 9, 16] f16", "w[16, 1, 3, 3] f16", 16, "[2, 9, 9, 16] f16");
    assert!(depthwise.contains("fewer than 8 channels"), "{depthwise}");
    let computed = refused("[2, 9, 9, 16] f16", "[24, 16, 3, 3] f16", 1, "[2, 9, 9, 24] f16");
    assert!(computed.contains("not packed"), "{computed}");
    let wide = refused("[2, 9, 9, 16] f32", "w[24, 16, 3, 3] f32", 1, "[2, 9, 9, 24] f32");
    assert!(wide.contains("no matrix instruction of f32"), "{wide}");
}

#[test]
fn one_filter_has_what_broadcasts_behind_it() {
    let graph = "graph \"g\" {\n  %0 = Input {name=\"x\"} : [2, 2, 2, 8] f16\n  %1 = Param {name=\"w\"} : [1, 8, 1, 1] f16\n  \
         %2 = Conv(%0, %1) {strides=[1, 1], pads=[0, 1, 0, 0], dilations=[1, 1], groups=1, format=ChannelsLast} : [2, 2, 3, 1] f16\n  \
         %3 = Input {name=\"y\"} : [2, 1, 1, 1] f16\n  %4 = Binary.Mul(%2, %3) : [2, 2, 3, 1] f16\n  return %4\n}";
    let compiled = compiled(text::parse(graph).unwrap(), 0);
    for arch in ARCHS {
        let (results, tiled, refused) = compiled.run_by_tiles(arch, None);
        compiled.check(&results, arch);
        assert_eq!(tiled, 1, "{}: {refused:?}", arch.name());
    }
}

#[test]
fn all_tilings_of_an_architecture_give_the_same_bits() {
    for arch in ARCHS {
        for seed in 0..4 {
            let compiled = compiled(random_conv(&mut Gen::new(7100 + seed), DType::F16), seed);
            let (want, tiled, _) = compiled.run_by_tiles(arch, None);
            assert_eq!(tiled, 1);
            for tiling in tilings(arch) {
                let (got, tiled, refused) = compiled.run_by_tiles(arch, Some(&tiling));
                assert_eq!(tiled, 1, "{} {}: {refused:?}", arch.name(), tiling.name());
                let bits = |values: &[Value]| values.iter().map(Value::encode).collect::<Vec<_>>();
                assert_eq!(bits(&got), bits(&want), "{} {}", arch.name(), tiling.name());
            }
        }
    }
}
