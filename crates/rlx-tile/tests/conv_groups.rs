//! Convolutions of random shapes by programs of the group level, on the interpreter: right against sums in f64, and with the bits of sm_80's programs.

mod common;

use common::convs::ConvCase;
use rlx_ir::testing::Gen;
use rlx_tile::Arch;
use rlx_tile::schedule::tilings;

/// Of each architecture; with `RLX_TEST_ALL` five times as many.
const CASES: u64 = 100;

fn random_convolutions(of: fn(&mut Gen) -> ConvCase) {
    let cases = if std::env::var_os("RLX_TEST_ALL").is_some() { 5 * CASES } else { CASES };
    for seed in 0..cases {
        let mut case = of(&mut Gen::new(15_000 + seed));
        let (pools, counters) = case
            .interpret(&case.program())
            .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", case.describe()));
        assert_eq!((counters.conflicts, counters.ways), (0, 1), "seed {seed}: bank conflicts");
        case.check(&pools.0[2]);
        // One in five: the interpreter computes each step of a warp by itself.
        if seed % 5 == 0 {
            let all = tilings(Arch::Sm80);
            (case.arch, case.tiling) = (Arch::Sm80, all[all.len() - 1]);
            let (of_warps, _) = case.interpret(&case.program()).unwrap();
            assert!(of_warps.0[2] == pools.0[2], "seed {seed}: other bits than sm_80\n{}", case.describe());
        }
    }
}

#[test]
fn random_convolutions_of_sm_90a_are_right_and_as_on_sm_80() {
    random_convolutions(ConvCase::random_of_groups);
}

#[test]
fn random_convolutions_of_sm_100a_are_right_and_as_on_sm_80() {
    random_convolutions(ConvCase::random_of_tensors);
}
