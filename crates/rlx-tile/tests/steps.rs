//! Steps of compiled modules as tile programs: random matmuls with what is before and behind them, through the compiler and its fusion, on the
//! interpreters, against the oracle.

mod common;

use common::compiled::{ARCHS, Compiled, dtypes};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{Gen, random_matmul};
use rlx_ir::{DType, Op, Value, text};
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_opt::{CompileOptions, Precision};
use rlx_testdata::models::model;
use rlx_tile::Arch;
use rlx_tile::schedule::tilings;

const CASES: u64 = 120;

#[test]
fn random_matmuls_with_epilogues_agree_with_the_oracle() {
    for arch in ARCHS {
        let mut refusals = Vec::new();
        for seed in 0..CASES {
            let mut g = Gen::new(seed);
            let dtype = g.pick(dtypes(arch));
            let compiled = Compiled::new(random_matmul(&mut g, dtype), seed, -1.0..1.0);
            let (results, tiled, refused) = compiled.run_by_tiles(arch, None);
            compiled.check(&results, arch);
            if tiled != 1 {
                refusals.push(format!("seed {seed}: {refused:?}\n{}", compiled.graph));
            }
        }
        assert!(refusals.is_empty(), "{}: {}", arch.name(), refusals.join("\n"));
    }
}

#[test]
fn all_tilings_of_an_architecture_give_the_same_bits() {
    for arch in ARCHS {
        for seed in 0..4 {
            let compiled = Compiled::new(random_matmul(&mut Gen::new(seed), DType::F16), seed, -1.0..1.0);
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

#[test]
fn what_is_no_matmul_of_half_precision_is_refused_with_the_reason() {
    let cases = [
        ("[4, 8] f32", "[8, 4] f32", "[4, 4] f32", "no matrix instruction of f32"),
        ("[8] f16", "[8, 4] f16", "[4] f16", "a matmul of a vector"),
        ("[4, 8] bf16", "[8, 4] bf16", "[4, 4] bf16", "sm_75 has no matrix instruction of bf16"),
    ];
    for (a, b, c, why) in cases {
        let text = format!(
            "graph \"m\" {{\n  %0 = Input {{name=\"a\"}} : {a}\n  %1 = Input {{name=\"b\"}} : {b}\n  \
             %2 = MatMul(%0, %1) : {c}\n  return %2\n}}"
        );
        let compiled = Compiled::new(text::parse(&text).unwrap(), 1, -1.0..1.0);
        let (results, tiled, refused) = compiled.run_by_tiles(Arch::Sm75, None);
        compiled.check(&results, Arch::Sm75);
        assert_eq!(tiled, 0);
        assert!(refused.iter().any(|r| r.contains(why)), "{refused:?}, not {why:?}");
    }
}

/// Far enough for f16 from what PyTorch gave in f32, relative to the largest value.
const NEAR: f64 = 5e-3;

/// How many steps of a model in f16 are tile programs; the results are near the golden's.
fn tiled_steps(name: &str, arch: Arch) -> Option<usize> {
    let model = model(name);
    let imported = import(&OnnxFile::open(&model.graph_file()?).unwrap(), &ImportOptions::default()).unwrap();
    let positions = |dims: &[(String, usize)]| dims.iter().map(|(_, n)| n).product::<usize>();
    let golden = model.goldens.iter().min_by_key(|golden| positions(&golden.dims)).unwrap();
    let (inputs, expected) = golden.read();
    let mut values = Bindings::default();
    for (name, value) in inputs {
        values.set_input(name, value.value());
    }
    for node in imported.graph.params() {
        let Op::Param { name } = &node.op else { unreachable!("parameters are parameters") };
        let weight = imported.weights.get(name).unwrap();
        values.set_param(name.clone(), weight.to_const().unwrap().value());
    }
    let options = CompileOptions { precision: Precision::F16, ..CompileOptions::default() };
    let compiled = Compiled::of(imported.graph.clone(), values, options);
    let (results, tiled, refused) = compiled.run_by_tiles(arch, None);
    println!("{name} on {}: {tiled} steps, {refused:?}", arch.name());
    for (output, got) in imported.outputs.iter().zip(&results) {
        let Some((_, want)) = expected.iter().find(|(name, _)| name == output) else { continue };
        let (want, got) = (want.value().to_f64(), got.to_f64());
        let largest = want.iter().fold(0f64, |most, x| most.max(x.abs()));
        let worst = want.iter().zip(&got).fold(0f64, |worst, (w, g)| worst.max((w - g).abs() / largest));
        println!("{name} {output}: error {worst:.1e}");
        assert!(want.len() == got.len() && worst < NEAR, "{name} {output}: {worst}");
    }
    Some(tiled)
}

#[test]
fn models_in_f16_are_near_their_goldens() {
    for (name, steps) in [("mlp", 2), ("bert_dynamic", 10), ("gpt2_dynamic", 11)] {
        for arch in [Arch::Sm80, Arch::Gfx90a] {
            let Some(tiled) = tiled_steps(name, arch) else {
                println!("@skip 1 {name} is not here");
                continue;
            };
            assert_eq!(tiled, steps, "{name} on {}", arch.name());
        }
    }
}
