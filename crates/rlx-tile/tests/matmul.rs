//! Matmuls of random shapes on the interpreter, against sums in f64.

mod common;

use common::{Case, Map};
use rlx_ir::testing::Gen;
use rlx_tile::Arch;

/// Random matmuls of each architecture.
const CASES: u64 = 320;

fn random_matmuls(arch: Arch) {
    for seed in 0..CASES {
        let mut g = Gen::new(seed);
        let case = Case::random(&mut g, arch);
        let case = if seed % 8 == 7 { case.with_epilogue(&mut g, Map::BiasGelu) } else { case };
        let program = case.program();
        let (pools, counters) = case
            .interpret(&program)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}\n{program}", case.describe()));
        assert_eq!(counters.conflicts, 0, "seed {seed}: bank conflicts\n{}", case.describe());
        case.check(&pools.0[2]);
    }
}

#[test]
fn random_matmuls_of_sm_75_are_right() {
    random_matmuls(Arch::Sm75);
}

#[test]
fn random_matmuls_of_sm_80_are_right() {
    random_matmuls(Arch::Sm80);
}

#[test]
fn random_matmuls_of_gfx90a_are_right() {
    random_matmuls(Arch::Gfx90a);
}

#[test]
fn random_matmuls_of_gfx1100_are_right() {
    random_matmuls(Arch::Gfx1100);
}

#[test]
fn random_matmuls_of_gfx1200_are_right() {
    random_matmuls(Arch::Gfx1200);
}

#[test]
fn random_matmuls_of_apple7_are_right() {
    random_matmuls(Arch::Apple7);
}
