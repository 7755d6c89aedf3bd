//! Steps of compiled modules on sm_100a: matmuls and convolutions into tensor memory where tensor copies can take the operands, programs of sm_80 elsewhere.

mod common;

use common::compiled::{Compiled, by_tiles};
use rlx_ir::testing::{Gen, random_matmul};
use rlx_ir::{DType, Value, text};
use rlx_kernel::schedule::StepDesc;
use rlx_tile::Arch;
use rlx_tile::schedule::{Tiling, step, step_tilings};

const CASES: u64 = 160;
/// Multiprocessors of a B200.
const UNITS: Option<u32> = Some(148);

/// Runs the step by the tiling of tensor memory of this number, where there are such tilings, else by the one that suits it: the program's name, and whether it is of tensor memory.
fn run(compiled: &Compiled, number: usize) -> (Vec<Value>, String, bool) {
    let mut done = Vec::new();
    let results = compiled.executable.run_with(&compiled.values, &mut |run| {
        let Ok(desc) = run.desc() else { return Ok(false) };
        let Ok(all) = step_tilings(Arch::Sm100a, &desc, UNITS) else { return Ok(false) };
        let of_tensors: Vec<&Tiling> = all.iter().filter(|tiling| tiling.groups).collect();
        let count = of_tensors.len().max(1);
        let tiling = of_tensors.get(number % count).map_or(all[0], |tiling| **tiling);
        let program = step(Arch::Sm100a, &desc, Some(&tiling)).unwrap().program;
        let arch = if tiling.groups { Arch::Sm100a } else { Arch::Sm80 };
        assert_eq!(program.arch, arch, "which architecture's program it is follows from the tiling");
        done.push((program.name.clone(), tiling.groups));
        by_tiles(run, Arch::Sm100a, Some(&tiling)).map(|done| done.is_ok())
    });
    let results = results.unwrap_or_else(|e| panic!("{e}\n{}", compiled.graph));
    assert_eq!(done.len(), 1, "one step is multiplied\n{}", compiled.graph);
    let (name, tensors) = done.remove(0);
    (results, name, tensors)
}

/// Right against the oracle, with the bits of sm_80.
fn check(compiled: &Compiled, number: usize) -> (String, bool) {
    let (results, name, tensors) = run(compiled, number);
    compiled.check(&results, Arch::Sm100a);
    let (of_warps, ..) = compiled.run_by_tiles(Arch::Sm80, None);
    let bits = |values: &[Value]| values.iter().map(Value::encode).collect::<Vec<_>>();
    assert_eq!(bits(&results), bits(&of_warps), "{name}: other bits than sm_80\n{}", compiled.graph);
    (name, tensors)
}

#[test]
fn random_matmuls_agree_with_the_oracle_and_have_the_bits_of_sm_80() {
    let mut tensors = 0;
    for seed in 0..CASES {
        let mut g = Gen::new(seed);
        let dtype = g.pick(&[DType::F16, DType::BF16]);
        let compiled = Compiled::new(random_matmul(&mut g, dtype), seed, -1.0..1.0);
        tensors += usize::from(check(&compiled, seed as usize).1);
    }
    assert!(tensors >= 20, "{tensors} of {CASES} are multiplied into tensor memory");
}

#[test]
fn convolutions_agree_with_the_oracle_and_have_the_bits_of_sm_80() {
    let mut windows = 0;
    for seed in 0..CASES / 4 {
        let compiled = Compiled::random_convolution(&mut Gen::new(seed));
        let (name, tensors) = check(&compiled, seed as usize);
        assert!(tensors, "{name}");
        windows += usize::from(name.starts_with("conv."));
    }
    assert!(windows >= 20, "{windows} slide windows");
}

/// The tiling that suits a matmul of known sizes.
fn suited(a: &str, b: &str, c: &str) -> Tiling {
    let text = format!(
        "graph \"m\" {{\n  %0 = Input {{name=\"a\"}} : {a}\n  %1 = Input {{name=\"b\"}} : {b}\n  \
         %2 = MatMul(%0, %1) : {c}\n  return %2\n}}"
    );
    let graph = text::parse(&text).unwrap();
    let node = graph.nodes().iter().find(|n| matches!(n.op, rlx_ir::Op::MatMul)).unwrap();
    let desc = StepDesc::of_node(node, &graph).unwrap();
    let all = step_tilings(Arch::Sm100a, &desc, UNITS).unwrap();
    assert!(all.iter().all(|tiling| tiling.teams == 0), "a workgroup has one tile");
    all[0]
}

/// The largest tile of which there are enough for a GPU; few rows, few results and short sums are for programs of sm_80.
#[test]
fn tiles_fill_a_gpu() {
    for (a, b, c, tile) in [
        ("[4096, 512] f16", "[512, 4096] f16", "[4096, 4096] f16", (128, 256, true)),
        ("[2048, 512] bf16", "[512, 1024] bf16", "[2048, 1024] bf16", (128, 128, true)),
        ("[1024, 512] f16", "[512, 1024] f16", "[1024, 1024] f16", (128, 64, true)),
        ("[1, 512] f16", "[512, 1024] f16", "[1, 1024] f16", (16, 64, false)),
        ("[128, 512] f16", "[512, 512] f16", "[128, 512] f16", (64, 64, false)),
        ("[4096, 60] f16", "[60, 4096] f16", "[4096, 4096] f16", (128, 128, false)),
    ] {
        let tiling = suited(a, b, c);
        assert_eq!((tiling.tile.0, tiling.tile.1, tiling.groups), tile, "{a} · {b}: {}", tiling.name());
    }
}
