//! Steps of compiled modules on sm_90a: matmuls of the group level where tensor copies can take the operands, programs of sm_80 elsewhere.

mod common;

use common::compiled::{Compiled, by_tiles};
use rlx_ir::testing::{Gen, random_matmul};
use rlx_ir::{DType, Extent, Value, text};
use rlx_kernel::schedule::StepDesc;
use rlx_tile::Arch;
use rlx_tile::schedule::{
    Division, Tiling, group_tilings, step, step_in_parts, step_tilings, tilings, turn_tilings,
};

const CASES: u64 = 160;

/// Runs a matmul by the tiling that suits it, and says whether that was of the group level.
fn by_groups(compiled: &Compiled) -> bool {
    let mut found = Vec::new();
    let tilings = |desc: &StepDesc| step_tilings(Arch::Sm90a, desc, None);
    compiled
        .executable
        .run_with(&compiled.values, &mut |run| {
            if let Ok(desc) = run.desc()
                && let Ok(all) = tilings(&desc)
            {
                let launch = step(Arch::Sm90a, &desc, None).unwrap();
                assert_eq!(launch.tiling, all[0]);
                // Which architecture's program it is follows from the tiling.
                for tiling in all {
                    let launch = step(Arch::Sm90a, &desc, Some(&tiling)).unwrap();
                    let arch = if tiling.groups { Arch::Sm90a } else { Arch::Sm80 };
                    assert_eq!((launch.program.arch, launch.tiling), (arch, tiling));
                }
                found.push(launch.tiling.groups);
            }
            Ok(false)
        })
        .unwrap();
    assert_eq!(found.len(), 1, "one step is a matmul");
    found[0]
}

#[test]
fn random_matmuls_agree_with_the_oracle_and_have_the_bits_of_sm_80() {
    let mut groups = 0;
    for seed in 0..CASES {
        let mut g = Gen::new(seed);
        let dtype = g.pick(&[DType::F16, DType::BF16]);
        let compiled = Compiled::new(random_matmul(&mut g, dtype), seed, -1.0..1.0);
        let (results, tiled, refused) = compiled.run_by_tiles(Arch::Sm90a, None);
        compiled.check(&results, Arch::Sm90a);
        assert_eq!(tiled, 1, "seed {seed}: {refused:?}\n{}", compiled.graph);
        let (of_warps, ..) = compiled.run_by_tiles(Arch::Sm80, None);
        let bits = |values: &[Value]| values.iter().map(Value::encode).collect::<Vec<_>>();
        assert_eq!(bits(&results), bits(&of_warps), "seed {seed}: other bits than sm_80\n{}", compiled.graph);
        groups += usize::from(by_groups(&compiled));
    }
    assert!(groups >= 8, "{groups} of {CASES} are of the group level");
}

#[test]
fn convolutions_agree_with_the_oracle_and_have_the_bits_of_sm_80() {
    let mut windows = 0;
    for seed in 0..CASES / 4 {
        let compiled = Compiled::random_convolution(&mut Gen::new(seed));
        let mut names = Vec::new();
        let of_groups = |desc: &StepDesc| {
            let all = step_tilings(Arch::Sm90a, desc, Some(1)).ok()?;
            // Every other one by workgroups of several tiles, where there are such tilings.
            let turns = seed % 2 == 1 && all.iter().any(|tiling| tiling.teams > 0);
            all.into_iter().find(|tiling| tiling.groups && (tiling.teams > 0) == turns)
        };
        let results = compiled.executable.run_with(&compiled.values, &mut |run| {
            let Some(tiling) = run.desc().ok().and_then(|desc| of_groups(&desc)) else { return Ok(false) };
            names.push(step(Arch::Sm90a, &run.desc().unwrap(), Some(&tiling)).unwrap().program.name.clone());
            by_tiles(run, Arch::Sm90a, Some(&tiling)).map(|done| done.is_ok())
        });
        let results = results.unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", compiled.graph));
        compiled.check(&results, Arch::Sm90a);
        assert_eq!(names.len(), 1, "seed {seed}\n{}", compiled.graph);
        windows += usize::from(names[0].starts_with("conv."));
        let (of_warps, ..) = compiled.run_by_tiles(Arch::Sm80, None);
        let bits = |values: &[Value]| values.iter().map(Value::encode).collect::<Vec<_>>();
        assert_eq!(bits(&results), bits(&of_warps), "seed {seed}: other bits than sm_80\n{}", compiled.graph);
    }
    assert!(windows >= 20, "{windows} slide windows");
}

fn of(a: &str, b: &str, c: &str) -> Compiled {
    let text = format!(
        "graph \"m\" {{\n  %0 = Input {{name=\"a\"}} : {a}\n  %1 = Input {{name=\"b\"}} : {b}\n  \
         %2 = MatMul(%0, %1) : {c}\n  return %2\n}}"
    );
    Compiled::new(text::parse(&text).unwrap(), 1, -1.0..1.0)
}

#[test]
fn all_tilings_give_the_same_bits() {
    for (a, b, c) in [
        ("[70, 72] f16", "[72, 136] f16", "[70, 136] f16"),
        ("[2, 3, 40, 64] bf16", "[3, 64, 88] bf16", "[2, 3, 40, 88] bf16"),
    ] {
        let compiled = of(a, b, c);
        let (want, ..) = compiled.run_by_tiles(Arch::Sm80, None);
        let few = tilings(Arch::Sm80).into_iter().filter(|t| t.tile.0 < 64);
        for tiling in group_tilings().into_iter().chain(turn_tilings()).chain(few) {
            let (got, tiled, refused) = compiled.run_by_tiles(Arch::Sm90a, Some(&tiling));
            assert_eq!(tiled, 1, "{}: {refused:?}", tiling.name());
            let bits = |values: &[Value]| values.iter().map(Value::encode).collect::<Vec<_>>();
            assert_eq!(bits(&got), bits(&want), "{}", tiling.name());
        }
    }
}

#[test]
fn what_tensor_copies_cannot_take_is_a_program_of_sm_80() {
    for (a, b, c, groups) in [
        ("[64, 64] f16", "[64, 64] f16", "[64, 64] f16", true),
        // Rows of both operands are multiples of 16 bytes apart; those of the result need not be.
        ("[64, 60] f16", "[60, 64] f16", "[64, 64] f16", false),
        ("[64, 64] f16", "[64, 60] f16", "[64, 60] f16", false),
        ("[63, 64] f16", "[64, 64] f16", "[63, 64] f16", true),
        // One row is for a tile of 16.
        ("[1, 64] f16", "[64, 64] f16", "[1, 64] f16", false),
        ("[2, 2, 2, 32, 64] f16", "[2, 2, 2, 64, 64] f16", "[2, 2, 2, 32, 64] f16", true),
    ] {
        assert_eq!(by_groups(&of(a, b, c)), groups, "{a} · {b}");
    }
}

/// The tile that a matmul of known sizes takes: what was fastest on an H100, of what was measured there.
#[test]
fn tiles_fill_a_gpu() {
    for (sizes, want) in [
        ((4096, 4096), (128, 256, true)),
        ((2048, 5120), (128, 256, true)),
        ((512, 4096), (128, 128, true)),
        ((512, 768), (64, 64, true)),
        ((128, 4096), (64, 64, true)),
        ((16, 4096), (64, 64, true)),
        ((1, 4096), (16, 64, false)),
        // Open sizes count as large.
        ((i64::MAX, 4096), (128, 256, true)),
        ((i64::MAX, i64::MAX), (128, 256, true)),
        ((100_352, 64), (128, 64, true)),
        ((4096, 48), (64, 64, true)),
    ] {
        let tiling = suited(sizes.0, sizes.1);
        assert_eq!((tiling.tile.0, tiling.tile.1, tiling.groups), want, "{sizes:?}: {}", tiling.name());
    }
}

/// Tilings of a matmul on a GPU of 132 multiprocessors.
fn on_132(m: i64, k: i64, n: i64) -> Vec<Tiling> {
    let mut all = Vec::new();
    let graph = format!(
        "graph \"m\" {{ %0 = Input {{name=\"a\"}} : [{m}, {k}] f16 %1 = Input {{name=\"b\"}} : [{k}, {n}] f16 \
         %2 = MatMul(%0, %1) : [{m}, {n}] f16 return %2 }}"
    );
    let graph = text::parse(&graph).unwrap();
    let node = graph.nodes().iter().find(|n| matches!(n.op, rlx_ir::Op::MatMul)).unwrap();
    all.extend(step_tilings(Arch::Sm90a, &StepDesc::of_node(node, &graph).unwrap(), Some(132)).unwrap());
    all
}

/// Tiles of 128 × 192 where their rounds are fewer or smaller; workgroups of several tiles behind all others, where there are more tiles than workgroups.
#[test]
fn rounds_of_tiles_are_small() {
    for (m, n, want) in [
        (6304, 768, (128, 192)),
        (4096, 768, (128, 192)),
        (2048, 1536, (128, 192)),
        // Five rounds of 128 × 256 are less than seven of 128 × 192, and four less than six.
        (4096, 4096, (128, 256)),
        (8192, 2048, (128, 256)),
        // One round of each, and there are not so many tiles of 128 × 192.
        (512, 4096, (128, 128)),
        (512, 768, (64, 64)),
    ] {
        let all = on_132(m, 768, n);
        assert_eq!((all[0].tile.0, all[0].tile.1, all[0].teams), (want.0, want.1, 0), "{m} x {n}");
        let first = all.iter().position(|t| t.teams > 0).unwrap_or(all.len());
        assert!(all[first..].iter().all(|t| t.teams > 0), "{m} x {n}");
        let tiles = |t: &Tiling| (m as u32).div_ceil(t.tile.0) * (n as u32).div_ceil(t.tile.1);
        assert!(all[first..].iter().all(|t| tiles(t) > 132), "{m} x {n}");
        assert_eq!(first < all.len(), m * n > 1 << 20, "{m} x {n}: some workgroups have several tiles");
    }
    let names = |all: Vec<Tiling>| all.iter().map(Tiling::name).collect::<std::collections::BTreeSet<_>>();
    let all = on_132(8192, 768, 8192);
    assert_eq!(names(all.clone()).len(), all.len());
}

fn suited(m: i64, n: i64) -> Tiling {
    let few = tilings(Arch::Sm80).into_iter().filter(|t| t.tile.0 < 64);
    let all: Vec<Tiling> = group_tilings().into_iter().chain(few).collect();
    *all.iter().find(|t| t.suits(m, n)).unwrap()
}

/// Parts are programs of sm_80, whatever was tuned for the whole.
#[test]
fn parts_are_programs_of_sm_80() {
    let compiled = of("[16, 2048] f16", "[2048, 128] f16", "[16, 128] f16");
    let division = Division { units: 132, least_depth: 256, least_keys: 256 };
    let tiling = group_tilings()[2];
    compiled
        .executable
        .run_with(&compiled.values, &mut |run| {
            let desc = run.desc().unwrap();
            let parts = step_in_parts(Arch::Sm90a, &desc, Some(&tiling), &division).unwrap();
            assert!(!parts.is_empty() && parts.iter().all(|p| p.parts.code.arch == Arch::Sm80));
            assert!(parts[0].count != Extent::Const(1));
            Ok(false)
        })
        .unwrap();
}
