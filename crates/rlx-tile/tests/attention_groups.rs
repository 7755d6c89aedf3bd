//! Attention of the group level: random shapes, masks and layouts on the interpreter, against the oracle of the operation and the programs of sm_80.

mod common;

use common::attention::AttentionCase;
use rlx_ir::ops::MaskKind;
use rlx_ir::testing::{AttentionShape, Gen};
use rlx_ir::{DType, text};
use rlx_kernel::schedule::StepDesc;
use rlx_tile::Arch;
use rlx_tile::schedule::{attention_group_tilings, attention_tilings, step, step_tilings};

/// With `RLX_TEST_ALL` four times as many.
const CASES: u64 = 500;

#[test]
fn random_attentions_are_right_and_as_on_sm_80() {
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    for seed in 0..if all { 4 * CASES } else { CASES } {
        let case = AttentionCase::random_of_groups(&mut Gen::new(seed));
        let program = case.program();
        let (pools, counters) = case
            .interpret(&program)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}\n{program}", case.describe()));
        assert_eq!(
            (counters.conflicts, counters.ways),
            (0, 1),
            "seed {seed}: bank conflicts\n{}",
            case.describe()
        );
        case.check(&pools.0[3]);
        let (of_warps, _) = case.interpret(&case.of_warps()).unwrap();
        assert!(of_warps.0[3] == pools.0[3], "seed {seed}: other bits than sm_80\n{}", case.describe());
    }
}

/// All tilings of both levels.
#[test]
fn all_tilings_give_the_same_bits() {
    for (seed, head_dim, mask) in
        [(0, 64, MaskKind::Causal), (1, 128, MaskKind::None), (2, 256, MaskKind::Custom)]
    {
        let (queries, keys, value_dim) = (200, 150, head_dim);
        let shape = AttentionShape { batch: 1, kv_heads: 1, groups: 1, queries, keys, head_dim, value_dim };
        let mut all = attention_group_tilings(head_dim as u32);
        all.extend(attention_tilings(Arch::Sm80, head_dim as u32));
        let results: Vec<Vec<u8>> = (all.iter())
            .map(|&tiling| {
                let arch = if tiling.groups { Arch::Sm90a } else { Arch::Sm80 };
                let mut g = Gen::new(seed);
                let case =
                    AttentionCase::of(&mut g, arch, (DType::BF16, tiling), shape, mask).in_chunks(&mut g);
                let result = case.interpret(&case.program()).unwrap().0.0.swap_remove(3);
                case.check(&result);
                result
            })
            .collect();
        assert!(all.len() >= 3 && results.windows(2).all(|two| two[0] == two[1]), "heads of {head_dim}");
    }
}

/// How many tilings of the group level a step has, and whether the first of its tilings is one.
fn of_groups(q: &str, k: &str, heads: usize, size: usize, rest: &str) -> (usize, bool) {
    let text = format!(
        "graph \"a\" {{ %0 = Input {{name=\"q\"}} : {q} %1 = Input {{name=\"k\"}} : {k} %2 = Input {{name=\"v\"}} : {k} \
         %3 = Attention(%0, %1, %2) {{num_heads={heads}, head_dim={size}, {rest}, scale=none, unseen=Zero}} : {q} return %3 }}"
    );
    let graph = text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let desc = StepDesc::of_node(&graph.nodes()[3], &graph).unwrap();
    let all = step_tilings(Arch::Sm90a, &desc).unwrap();
    for tiling in &all {
        let launch = step(Arch::Sm90a, &desc, Some(tiling)).unwrap();
        let arch = if tiling.groups { Arch::Sm90a } else { Arch::Sm80 };
        assert_eq!((launch.program.arch, launch.tiling), (arch, *tiling));
    }
    (all.iter().filter(|t| t.groups).count(), all[0].groups)
}

/// Which program does a step where nothing was tuned is a matter of its heads, its mask and its rows.
#[test]
fn what_the_group_level_does_not_do_is_a_program_of_sm_80() {
    const ALL: &str = "mask=None, window=none";
    const CAUSAL: &str = "mask=Causal, window=none";
    for (q, k, heads, size, rest, want) in [
        ("[1, 2, 128, 64] f16", "[1, 2, 70, 64] f16", 2, 64, ALL, (3, true)),
        ("[2, 65, 128] bf16", "[2, 70, 128] bf16", 2, 64, CAUSAL, (3, true)),
        ("[1, 1, 128, 128] f16", "[1, 1, 70, 128] f16", 1, 128, CAUSAL, (2, true)),
        ("[1, 2, seq, 64] f16", "[1, 2, seq, 64] f16", 2, 64, CAUSAL, (3, true)),
        // A tile of sm_80 has no more rows than these.
        ("[1, 2, 64, 64] f16", "[1, 2, 70, 64] f16", 2, 64, ALL, (3, false)),
        ("[1, 2, 1, 64] f16", "[1, 2, 70, 64] f16", 2, 64, ALL, (3, false)),
        ("[1, 2, 128, 80] f16", "[1, 2, 70, 80] f16", 2, 80, ALL, (0, false)),
        ("[1, 2, 128, 64] f16", "[1, 2, 128, 64] f16", 2, 64, "mask=Causal, window=40", (0, false)),
    ] {
        assert_eq!(of_groups(q, k, heads, size, rest), want, "{q} {k} {rest}");
    }
}
