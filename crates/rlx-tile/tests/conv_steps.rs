//! Steps of compiled modules around convolutions as tile programs: random convolutions with what is behind them, through the compiler, which puts their
//! channels last and packs their weights, on the interpreters, against the oracle.

mod common;

use common::compiled::{ARCHS, Compiled, dtypes};
use rlx_ir::oracle;
use rlx_ir::testing::{Gen, random_bindings, random_conv};
use rlx_ir::{DType, DimBinding, Value};
use rlx_opt::CompileOptions;
use rlx_tile::Arch;
use rlx_tile::schedule::tilings;

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
