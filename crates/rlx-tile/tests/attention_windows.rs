//! Attentions whose queries see the last keys up to their own place, whole and divided along their keys, of random shapes and layouts on the interpreters,
//! against the oracle of the operation.

mod common;

use common::attention::{ARCHS, AttentionCase};
use common::attention_parts::Divided;
use rlx_ir::DType;
use rlx_ir::ops::MaskKind;
use rlx_ir::testing::{AttentionShape, Gen};
use rlx_kernel::interp::Counters;
use rlx_tile::Arch;
use rlx_tile::schedule::{Mask, attention_tilings};

/// Random attentions of each architecture, half of them divided; with `RLX_TEST_ALL` four times as many.
const CASES: u64 = 120;

fn random_windows(arch: Arch) {
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    let (mut several, mut skipped) = (0, 0);
    for seed in 0..if all { 4 * CASES } else { CASES } {
        let mut g = Gen::new(14_000 + seed);
        let divided = seed % 2 == 1;
        let case = AttentionCase::windowed(&mut g, arch, |g| {
            let queries = if divided { g.size(1..=8) } else { g.size(1..=60) };
            (queries, if g.chance(0.6) { g.size(64..=200) } else { g.size(1..=60) })
        });
        let (result, conflicts) = if divided {
            let divided = Divided::new(&case, case.tiling.keys as i32 * g.int(1..=2) as i32);
            several += u64::from(divided.sizes.parts[0] > 1);
            divided.interpret()
        } else {
            let program = case.program();
            skipped += u64::from(skips(&case));
            case.interpret(&program).map(|(mut pools, counters)| (pools.0.swap_remove(3), counters.conflicts))
        }
        .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}\n{}", case.describe(), case.program()));
        assert_eq!(conflicts, 0, "seed {seed}: bank conflicts\n{}", case.describe());
        case.check(&result);
    }
    assert!(several > CASES / 6 && skipped > CASES / 20, "{several} in parts, {skipped} began later");
}

/// Whether even the first query sees nothing of the first block of keys.
fn skips(case: &AttentionCase) -> bool {
    let Mask::Window(window) = case.what.mask else { return false };
    case.sizes.keys - case.sizes.queries + 1 - window as i32 >= case.tiling.keys as i32
}

#[test]
fn random_windows_of_sm_75_are_right() {
    random_windows(Arch::Sm75);
}

#[test]
fn random_windows_of_sm_80_are_right() {
    random_windows(Arch::Sm80);
}

#[test]
fn random_windows_of_gfx90a_are_right() {
    random_windows(Arch::Gfx90a);
}

#[test]
fn random_windows_of_gfx1100_are_right() {
    random_windows(Arch::Gfx1100);
}

#[test]
fn random_windows_of_gfx1200_are_right() {
    random_windows(Arch::Gfx1200);
}

const SHAPE: AttentionShape =
    AttentionShape { batch: 1, kv_heads: 1, groups: 1, queries: 256, keys: 256, head_dim: 24, value_dim: 24 };

/// A causal attention of a shape, whose queries see the last so many keys up to their own, where that is said.
fn case(arch: Arch, shape: AttentionShape, tiling: usize, window: Option<usize>) -> AttentionCase {
    let tiling = attention_tilings(arch, 24)[tiling];
    let (g, of) = (&mut Gen::new(3), (DType::F16, tiling));
    let mut case = AttentionCase::of(g, arch, of, shape, MaskKind::Causal);
    // What is copied through registers has a barrier before the first block of keys.
    case.what.vectors = [1; 4];
    window.into_iter().for_each(|window| case.see(window));
    case
}

/// How many blocks of keys the workgroups went through.
fn blocks(case: &AttentionCase, counters: &Counters) -> u64 {
    let of_block = if case.tiling.stages == 1 { 2 } else { 1 };
    (counters.barriers - counters.groups) / of_block
}

/// Blocks of keys in front of all windows of a block of queries are not visited, in a part either.
#[test]
fn blocks_that_no_query_sees_are_skipped() {
    // Four blocks of 64 queries by four of 64 keys.
    for (window, want) in [(None, 10), (Some(1), 4), (Some(65), 7), (Some(66), 9), (Some(256), 10)] {
        let case = case(Arch::Sm80, SHAPE, 1, window);
        let counters = case.interpret(&case.program()).unwrap().1;
        assert_eq!(blocks(&case, &counters), want, "{window:?}");
    }
    // Four parts of a block, of which eight queries at the end see the last one.
    for (window, want) in [(None, 4), (Some(32), 1), (Some(100), 2)] {
        let last = attention_tilings(Arch::Sm80, 24).len() - 1;
        let case = case(Arch::Sm80, AttentionShape { queries: 8, ..SHAPE }, last, window);
        let divided = Divided::new(&case, 64);
        let counters = divided.sums(&divided.program()).unwrap().1;
        assert_eq!(blocks(&case, &counters), want, "{window:?} in parts");
        case.check(&divided.interpret().unwrap().0);
    }
}

/// A part ends at the last key that its rows see, and those that see nothing of it join as nothing.
#[test]
fn causal_parts_end_at_the_last_key_that_is_seen() {
    for arch in ARCHS {
        let last = attention_tilings(arch, 24).len() - 1;
        // Two parts of a block of keys, and 32 queries more: two tiles of 16 see nothing, half of the others nothing of the second part.
        let block = attention_tilings(arch, 24)[last].keys as usize;
        let shape = AttentionShape { queries: 2 * block + 32, keys: 2 * block, ..SHAPE };
        let case = case(arch, shape, last, None);
        assert_eq!(case.tiling.queries, 16, "{}", arch.name());
        let divided = Divided::new(&case, block as i32);
        let counters = divided.sums(&divided.program()).unwrap().1;
        let (tiles, want) = (shape.queries as u64 / 16, block as u64 * 3 / 16);
        assert_eq!((counters.groups, blocks(&case, &counters)), (2 * tiles, want), "{}", arch.name());
        case.check(&divided.interpret().unwrap().0);
    }
}

/// Tilings of an architecture give the same bits, although their blocks of queries begin at other keys.
#[test]
fn tilings_of_windows_give_the_same_bits() {
    for arch in ARCHS {
        let shape = AttentionShape { queries: 90, keys: 150, groups: 2, ..SHAPE };
        for window in [1, 20, 70].map(Some) {
            let results = (0..attention_tilings(arch, 24).len()).map(|tiling| {
                let case = case(arch, shape, tiling, window);
                let result = case.interpret(&case.program()).unwrap().0.0.swap_remove(3);
                case.check(&result);
                result
            });
            let results: Vec<Vec<u8>> = results.collect();
            assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{} {window:?}", arch.name());
        }
    }
}
