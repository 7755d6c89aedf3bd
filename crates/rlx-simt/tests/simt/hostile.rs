//! Whatever safe code hands to the backend (modules, inputs, parameters, handles) is an error or runs.

use rlx_backend::testing;

use crate::common::{DEVICES, everything, fake, fakes, second_gpu};

#[test]
fn damaged_modules_are_errors_or_run() {
    let _alone = second_gpu();
    for backend in DEVICES.map(|device| fake(device, 2)) {
        let found = testing::damaged_modules(&backend, 0..if everything() { 40 } else { 8 }, 30);
        println!("{found:?}");
        assert!(found.ran > 0 && found.rejected["invalid graph"] > 100, "{found:?}");
        assert!(!found.rejected.contains_key("internal"), "{found:?}");
        // A result whose elements lie on each other is written in no certain order, which the interpreter does not accept. No
        // kernel leaves its memory.
        let race =
            |fault: &String| fault.contains("both write element") || fault.contains("which invocation");
        assert!(found.faults.iter().all(race), "{found:?}");
    }
}

#[test]
fn what_is_given_in_another_size_is_rejected() {
    for backend in fakes() {
        testing::rejects_inputs_of_another_size(&backend);
        testing::rejects_parameters_of_another_size(&backend);
    }
}
