//! Attentions whose keys and values are in pages of tables, whole and in parts, of random shapes, masks and layouts on the interpreter, against the oracle of the operation.

mod common;

use common::attention::{ARCHS, AttentionCase};
use common::attention_parts::Divided;
use rlx_ir::testing::Gen;
use rlx_tile::Arch;

/// Random attentions of each architecture; with `RLX_TEST_ALL` four times as many.
const CASES: u64 = 100;

fn random_attentions(arch: Arch) {
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    for seed in 0..if all { 4 * CASES } else { CASES } {
        let mut g = Gen::new(11_000 + seed);
        let lengths = |g: &mut Gen| (g.size(1..=8), g.size(1..=70));
        let case = match seed % 4 {
            0 => AttentionCase::windowed(&mut g, arch, lengths),
            1 => AttentionCase::of_lengths(&mut g, arch, lengths),
            _ => AttentionCase::of_lengths(&mut g, arch, |g| (g.size(1..=3), g.size(1..=30))),
        };
        let case = case.in_pages(&mut g);
        let program = case.program();
        let wrong = |e: rlx_ir::Error| -> ! { panic!("seed {seed}: {e}\n{}\n{program}", case.describe()) };
        let (pools, counters) = case.interpret(&program).unwrap_or_else(|e| wrong(e));
        assert_eq!(counters.conflicts, 0, "seed {seed}: bank conflicts\n{}", case.describe());
        case.check(&pools.0[3]);
        let divided = Divided::new(&case, case.tiling.keys as i32 * g.int(1..=2) as i32);
        let (result, _) = divided.interpret().unwrap_or_else(|e| wrong(e));
        case.check(&result);
    }
}

#[test]
fn random_attentions_to_pages_of_sm_75_are_right() {
    random_attentions(Arch::Sm75);
}

#[test]
fn random_attentions_to_pages_of_sm_80_are_right() {
    random_attentions(Arch::Sm80);
}

#[test]
fn random_attentions_to_pages_of_gfx90a_are_right() {
    random_attentions(Arch::Gfx90a);
}

#[test]
fn random_attentions_to_pages_of_gfx1100_are_right() {
    random_attentions(Arch::Gfx1100);
}

#[test]
fn random_attentions_to_pages_of_gfx1200_are_right() {
    random_attentions(Arch::Gfx1200);
}

/// A program touches nothing outside of the table, whatever a list says: the kernel that checks lists fails the run.
#[test]
fn a_page_that_is_not_there_is_not_read() {
    for arch in ARCHS {
        for number in [1 << 20, -(1 << 20)] {
            let mut g = Gen::new(5);
            let case = AttentionCase::random(&mut g, arch).in_pages(&mut g).with_a_missing_page(number);
            let program = case.program();
            case.interpret(&program).unwrap_or_else(|e| panic!("{e}\n{program}"));
        }
    }
}
