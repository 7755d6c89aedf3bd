//! Whatever safe code hands to the backend (modules, inputs, parameters, handles) is an error or runs.

use rlx_backend::testing::{self, Damage};
use rlx_ir::testing::{Gen, random_bindings, random_matmul};
use rlx_ir::{DType, DimBinding};

use crate::common::{DEVICES, Fake, everything, fake, fakes, second_gpu};

/// No code of a damaged module leaves its memory. A result whose elements lie on each other is written in no certain order, which the
/// interpreters do not accept.
fn is_harmless(found: &Damage) {
    println!("{found:?}");
    assert!(found.ran > 0 && found.rejected["invalid graph"] > 100, "{found:?}");
    assert!(!found.rejected.contains_key("internal"), "{found:?}");
    let races = ["both write element", "which invocation", "is stored twice"];
    let race = |fault: &String| races.iter().any(|race| fault.contains(race));
    assert!(found.faults.iter().all(race), "{found:?}");
}

#[test]
fn damaged_modules_are_errors_or_run() {
    let _alone = second_gpu();
    for backend in DEVICES.map(|device| fake(device, 2)) {
        let found = testing::damaged_modules(&backend, 0..if everything() { 40 } else { 8 }, 30);
        is_harmless(&found);
    }
}

#[test]
fn damaged_matmuls_on_matrix_units_are_errors_or_run() {
    let _alone = second_gpu();
    for backend in DEVICES.map(|device| fake(device, 2)) {
        let before = Fake::get().tile_runs();
        let matmul = |seed| {
            let graph = random_matmul(&mut Gen::new(seed), DType::F16);
            let bindings = random_bindings(&graph, &DimBinding::new(), seed);
            (graph, bindings)
        };
        let count = if everything() { 40 } else { 10 };
        is_harmless(&testing::damaged_modules_of(&backend, 0..count, 30, matmul));
        assert!(Fake::get().tile_runs() - before > count, "damaged modules ran by tile programs, too");
    }
}

#[test]
fn what_is_given_in_another_size_is_rejected() {
    for backend in fakes() {
        testing::rejects_inputs_of_another_size(&backend);
        testing::rejects_parameters_of_another_size(&backend);
    }
}
