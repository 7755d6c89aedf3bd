//! Matmuls of random shapes whose operands are computed as they are copied, against sums in f64.

mod common;

use common::prologue::PrologueCase;
use rlx_ir::testing::Gen;
use rlx_tile::Arch;
use rlx_tile::schedule::tilings;

/// Random matmuls of each architecture.
const CASES: u64 = 200;

fn random_prologues(arch: Arch) {
    for seed in 0..CASES {
        let case = PrologueCase::random(&mut Gen::new(10_000 + seed), arch);
        let program = case.program();
        let (pools, counters) = case
            .interpret(&program)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}\n{program}", case.describe()));
        assert_eq!(counters.conflicts, 0, "seed {seed}: bank conflicts\n{}", case.describe());
        case.case.check(&pools.0[2]);
    }
}

#[test]
fn prologues_of_sm_75_are_right() {
    random_prologues(Arch::Sm75);
}

#[test]
fn prologues_of_sm_80_are_right() {
    random_prologues(Arch::Sm80);
}

#[test]
fn prologues_of_gfx90a_are_right() {
    random_prologues(Arch::Gfx90a);
}

#[test]
fn prologues_of_gfx1100_are_right() {
    random_prologues(Arch::Gfx1100);
}

#[test]
fn prologues_of_gfx1200_are_right() {
    random_prologues(Arch::Gfx1200);
}

#[test]
fn prologues_of_apple7_are_right() {
    random_prologues(Arch::Apple7);
}

#[test]
fn all_tilings_give_the_same_bits() {
    for arch in [Arch::Sm75, Arch::Sm80, Arch::Gfx90a, Arch::Gfx1100, Arch::Gfx1200] {
        for seed in 0..3 {
            let of = |number: usize| {
                let case = PrologueCase::random(&mut Gen::new(11_000 + seed), arch).tiled(number);
                case.interpret(&case.program()).unwrap().0.0.swap_remove(2)
            };
            let first = of(0);
            for number in 1..tilings(arch).len() {
                assert!(of(number) == first, "{} seed {seed}, tiling {number}", arch.name());
            }
        }
    }
}
