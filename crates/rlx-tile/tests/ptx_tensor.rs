//! What NVRTC makes of programs of sm_100a runs on the emulator of PTX, too (`ptx.rs` has the others): `tcgen05` makes of the same memory what the interpreter makes of it, to the bit.

mod common;
#[path = "common/ptx.rs"]
mod emulated;

use std::path::PathBuf;

use common::convs::ConvCase;
use common::{Case, tensors};
use emulated::{committed, compare, compiled, fault};
use rlx_ir::DType;
use rlx_ir::testing::Gen;
use rlx_tile::render::source;
use rlx_tile::{Arch, Program};

/// Random programs.
const CASES: u64 = 40;

/// Runs PTX and compares all buffers with what the interpreter makes.
fn check(case: &Case, program: &Program, ptx: &str) {
    let after = case.interpret(program).unwrap().0;
    compare(program, ptx, &case.uniforms(), (case.memory().0, after), &case.describe());
}

#[test]
fn nvrtc_for_sm_100a_means_what_is_interpreted() {
    let cases: Vec<(Case, Program)> = (0..CASES)
        .map(|seed| {
            let case = tensors::random(&mut Gen::new(6000 + seed));
            let program = case.program();
            (case, program)
        })
        .collect();
    let texts: Vec<String> = cases.iter().map(|(_, p)| source(p, "kernel").unwrap()).collect();
    let Some(made) = compiled(Arch::Sm100a, &texts) else { return };
    for ((case, program), ptx) in cases.iter().zip(made) {
        check(case, program, &ptx);
    }
}

#[test]
fn nvrtc_of_convolutions_for_sm_100a_means_what_is_interpreted() {
    let cases: Vec<(ConvCase, Program)> = (0..CASES / 2)
        .map(|seed| {
            let case = ConvCase::random_of_tensors(&mut Gen::new(6700 + seed));
            let program = case.program();
            (case, program)
        })
        .collect();
    let texts: Vec<String> = cases.iter().map(|(_, p)| source(p, "kernel").unwrap()).collect();
    let Some(made) = compiled(Arch::Sm100a, &texts) else { return };
    for ((case, program), ptx) in cases.iter().zip(made) {
        let after = case.interpret(program).unwrap().0;
        compare(program, &ptx, &case.uniforms(), (case.memory().0, after), &case.describe());
    }
}

fn small() -> (Case, Program, PathBuf) {
    let case = tensors::small(DType::BF16);
    let program = case.program();
    (case, program, PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/small_sm_100a_bf16.ptx"))
}

#[test]
fn committed_ptx_for_sm_100a_means_what_is_interpreted() {
    let (case, program, path) = small();
    let ptx = committed(Arch::Sm100a, &program, &path);
    check(&case, &program, &ptx);
}

/// The emulator finds what is taken out of the vendor's own text.
#[test]
fn what_is_missing_in_ptx_for_sm_100a_is_found() {
    let (case, program, path) = small();
    let ptx = std::fs::read_to_string(path).unwrap();
    let fault = |name: &str, which: usize, instead: &str| {
        fault(&ptx, (name, Some(which), instead), |changed| check(&case, &program, changed))
    };
    let all = |name: &str| ptx.lines().filter(|line| line.contains(name)).count();
    let known = [
        ("fence.mbarrier_init", 0, "", "without a fence behind mbarrier.init"),
        ("tcgen05.alloc", 0, "", "before it is written"),
        ("tcgen05.dealloc", 0, "", "is not freed"),
        // Allocating is known to others, all loads are known to who frees.
        ("tcgen05.fence::before_thread_sync", 0, "", "does not know to be allocated"),
        ("tcgen05.fence::before_thread_sync", 1, "", "may still be loaded"),
        ("bar.sync", 0, "", "before it is written"),
        ("bar.sync", 1, "", "may still be"),
        ("cp.async.bulk", 0, "", "a deadlock"),
        ("mbarrier.arrive.expect_tx", 0, "", "a deadlock"),
        // The multiplier does not wait until a stage is filled, the producer not until it is no longer read, consumers not until all is multiplied.
        ("mbarrier.try_wait", 0, "mov.pred p, 1;", "under way"),
        ("mbarrier.try_wait", 1, "mov.pred p, 1;", "more arrivals"),
        ("mbarrier.try_wait", 2, "mov.pred p, 1;", "is loaded"),
    ];
    for (name, which, instead, found) in known {
        let e = fault(name, which, instead);
        assert!(e.contains(found), "{name} {which}: {e}");
    }
    let each = [
        ("tcgen05.fence::after_thread_sync", "no tcgen05.fence::after_thread_sync"),
        ("tcgen05.commit", "a deadlock"),
        ("tcgen05.wait::ld", "whose load from tensor memory is under way"),
        ("tcgen05.ld", "differs"),
    ];
    for (name, found) in each {
        for which in 0..all(name) {
            let e = fault(name, which, "");
            assert!(e.contains(found), "{name} {which}: {e}");
        }
    }
    // The first of a step sets sums, the others add.
    for which in 0..all("tcgen05.mma") {
        let e = fault("tcgen05.mma", which, "");
        assert!(e.contains("never set") || e.contains("differs"), "{which}: {e}");
    }
}
