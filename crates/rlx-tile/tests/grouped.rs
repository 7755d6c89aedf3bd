//! Rows in groups, of random sizes and choices, on the interpreters: the lists that a kernel makes and the program that looks rows up in them, against the
//! oracle of the operation.

mod common;

use common::compiled::ARCHS;
use common::grouped::GroupedCase;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Value};
use rlx_tile::Arch;

/// Random cases of each architecture; with `RLX_TEST_ALL` four times as many.
const CASES: u64 = 110;

fn random_cases(arch: Arch) {
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    for seed in 0..if all { 4 * CASES } else { CASES } {
        let mut g = Gen::new(31_000 + seed);
        let case = GroupedCase::random(&mut g, arch);
        let tilings = case.tilings();
        let tiling = if seed % 2 == 0 { tilings[0] } else { g.pick(&tilings) };
        let launch = case.launch(Some(&tiling));
        // What no compiler of the machine's sees here is at least written.
        rlx_tile::render::source(&launch.program, "k").unwrap();
        let (pools, counters) = case
            .interpret(&launch)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}\n{}", case.describe(), launch.program));
        assert_eq!(counters.conflicts, 0, "seed {seed}: bank conflicts\n{}", case.describe());
        case.check(&pools);
    }
}

#[test]
fn random_rows_in_groups_of_sm_75_are_right() {
    random_cases(Arch::Sm75);
}

#[test]
fn random_rows_in_groups_of_sm_80_are_right() {
    random_cases(Arch::Sm80);
}

#[test]
fn random_rows_in_groups_of_gfx90a_are_right() {
    random_cases(Arch::Gfx90a);
}

#[test]
fn random_rows_in_groups_of_gfx1100_are_right() {
    random_cases(Arch::Gfx1100);
}

#[test]
fn random_rows_in_groups_of_gfx1200_are_right() {
    random_cases(Arch::Gfx1200);
}

/// The architectures with a group level do them by programs of sm_80.
#[test]
fn architectures_of_groups_have_the_program_of_sm_80() {
    let of = |arch| GroupedCase::random(&mut Gen::new(7), arch).launch(None);
    let want = of(Arch::Sm80);
    for arch in [Arch::Sm90a, Arch::Sm100a] {
        assert_eq!(of(arch).program, want.program);
    }
}

/// A row's bits depend on its own elements and its matrix: neither on the tiling nor on what other rows there are.
#[test]
fn bits_depend_on_the_row_and_its_matrix_alone() {
    for arch in ARCHS {
        let mut g = Gen::new(3);
        let (rows, k, n, groups) = (40, 48, 40, 3);
        let chosen: Vec<i128> = (0..rows).map(|_| i128::from(g.int(0..=groups - 1))).collect();
        let x = g.value(DType::F16, &[rows as usize, k], -1.0..1.0);
        let w = g.value(DType::F16, &[groups as usize, k, n], -1.0..1.0);
        let some = |from: usize, to: usize| {
            let floats = x.to_f64()[from * k..to * k].to_vec();
            let x = Value::float(DType::F16, &[to - from, k], floats);
            let chosen = Value::int(DType::I32, &[to - from], chosen[from..to].to_vec());
            GroupedCase::with(arch, [x, w.clone(), chosen], false)
        };
        let all = some(0, rows as usize);
        let want = all.rows(&all.interpret(&all.launch(None)).unwrap().0);
        for tiling in all.tilings() {
            let got = all.interpret(&all.launch(Some(&tiling))).unwrap().0;
            assert_eq!(all.rows(&got), want, "{} {}", arch.name(), tiling.name());
        }
        for (from, to) in [(0, 1), (7, 8), (5, 22), (39, 40)] {
            let case = some(from, to);
            let got = case.interpret(&case.launch(None)).unwrap().0;
            assert_eq!(case.rows(&got), want[from..to], "{} {from}..{to}", arch.name());
        }
    }
}

/// Each matrix that some row has chosen is read once where rows are few: bytes read do not grow with the groups, and hardly with rows.
#[test]
fn few_rows_read_each_matrix_once() {
    let bytes = |chosen: &[i128], groups: usize| {
        let (k, n) = (64, 64);
        let mut g = Gen::new(9);
        let x = g.value(DType::BF16, &[chosen.len(), k], -1.0..1.0);
        let w = g.value(DType::BF16, &[groups, k, n], -1.0..1.0);
        let chosen = Value::int(DType::I64, &[chosen.len()], chosen.to_vec());
        let case = GroupedCase::with(Arch::Sm80, [x, w, chosen], false);
        let launch = case.launch(None);
        assert_eq!(launch.tiling.tile.0, 16);
        let (pools, counters) = case.interpret(&launch).unwrap();
        case.check(&pools);
        // A sector of 32 bytes each.
        32 * counters.sectors
    };
    let matrix = 2 * 64 * 64;
    let one = bytes(&[3], 8);
    assert!(one < matrix + matrix / 4, "{one} bytes for a matrix of {matrix}");
    assert_eq!(bytes(&[3], 64), one);
    let eight = bytes(&[5; 8], 8);
    assert!(eight < 2 * matrix, "{eight} bytes for eight rows of one group");
    let apart = bytes(&[0, 1, 2, 3, 4, 5, 6, 7], 8);
    assert!(apart <= 8 * one, "{apart} bytes for eight groups");
}

/// What a run reports of a choice that is out of range; where there is nothing to multiply none is looked at.
#[test]
fn a_choice_out_of_range_is_reported() {
    let case = |k: usize, number: i128| {
        let mut g = Gen::new(4);
        let (x, w) = (g.value(DType::F16, &[3, k], -1.0..1.0), g.value(DType::F16, &[4, k, 5], -1.0..1.0));
        GroupedCase::with(Arch::Sm80, [x, w, Value::int(DType::I32, &[3], vec![0, number, 1])], false)
    };
    for number in [4, -5, i128::from(i32::MAX), i128::from(i32::MIN)] {
        let of = case(6, number);
        assert!(of.interpret(&of.launch(None)).is_err(), "{number}");
        let nothing = case(0, number);
        nothing.check(&nothing.interpret(&nothing.launch(None)).unwrap().0);
    }
}
