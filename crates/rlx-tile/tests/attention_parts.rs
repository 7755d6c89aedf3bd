//! Attentions whose keys are divided among workgroups, of random shapes, masks and layouts on the interpreters, against the oracle of the operation.

mod common;

use common::attention::AttentionCase;
use common::attention_parts::Divided;
use rlx_ir::testing::Gen;
use rlx_tile::Arch;

/// Random attentions of each architecture; with `RLX_TEST_ALL` four times as many.
const CASES: u64 = 105;

fn random_attentions(arch: Arch) {
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    let mut several = 0;
    for seed in 0..if all { 4 * CASES } else { CASES } {
        let mut g = Gen::new(9000 + seed);
        let case = AttentionCase::of_lengths(&mut g, arch, |g| (g.size(1..=5), g.size(1..=170)));
        let divided = Divided::new(&case, case.tiling.keys as i32 * g.int(1..=2) as i32);
        several += u64::from(divided.sizes.parts[0] > 1);
        let (result, conflicts) =
            divided.interpret().unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", case.describe()));
        assert_eq!(conflicts, 0, "seed {seed}: bank conflicts\n{}", case.describe());
        case.check(&result);
    }
    assert!(several > CASES / 3, "{several} had several parts");
}

#[test]
fn random_divided_attentions_of_sm_75_are_right() {
    random_attentions(Arch::Sm75);
}

#[test]
fn random_divided_attentions_of_sm_80_are_right() {
    random_attentions(Arch::Sm80);
}

#[test]
fn random_divided_attentions_of_gfx90a_are_right() {
    random_attentions(Arch::Gfx90a);
}

#[test]
fn random_divided_attentions_of_gfx1100_are_right() {
    random_attentions(Arch::Gfx1100);
}

#[test]
fn random_divided_attentions_of_gfx1200_are_right() {
    random_attentions(Arch::Gfx1200);
}
