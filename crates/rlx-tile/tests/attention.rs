//! Attentions of random shapes, masks and layouts on the interpreter, against the oracle of the operation.

mod common;

use common::attention::AttentionCase;
use rlx_ir::testing::Gen;
use rlx_tile::Arch;

/// Random attentions of each architecture; with `RLX_TEST_ALL` four times as many.
const CASES: u64 = 180;

fn random_attentions(arch: Arch) {
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    for seed in 0..if all { 4 * CASES } else { CASES } {
        let case = AttentionCase::random(&mut Gen::new(4000 + seed), arch);
        let program = case.program();
        let (pools, counters) = case
            .interpret(&program)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}\n{program}", case.describe()));
        assert_eq!(counters.conflicts, 0, "seed {seed}: bank conflicts\n{}", case.describe());
        case.check(&pools.0[3]);
    }
}

#[test]
fn random_attentions_of_sm_75_are_right() {
    random_attentions(Arch::Sm75);
}

#[test]
fn random_attentions_of_sm_80_are_right() {
    random_attentions(Arch::Sm80);
}

#[test]
fn random_attentions_of_gfx90a_are_right() {
    random_attentions(Arch::Gfx90a);
}

#[test]
fn random_attentions_of_gfx1100_are_right() {
    random_attentions(Arch::Gfx1100);
}

#[test]
fn random_attentions_of_gfx1200_are_right() {
    random_attentions(Arch::Gfx1200);
}
