//! Whatever safe code hands to the backend — modules, inputs, parameters, handles — is an error or runs.

use rlx_backend::testing;

use crate::common::{all, devices};

#[test]
fn damaged_modules_are_errors_or_run() {
    for backend in devices() {
        let found = testing::damaged_modules(&backend, 0..if all() { 40 } else { 8 }, 30);
        println!("{found:?}");
        assert!(found.ran > 0 && found.rejected["invalid graph"] > 100, "{found:?}");
        assert!(!found.rejected.contains_key("internal"), "{found:?}");
        assert!(!found.rejected.contains_key("device"), "{found:?}");
    }
}

#[test]
fn inputs_and_handles_of_another_size_are_binding_errors() {
    devices().for_each(|backend| testing::rejects_inputs_of_another_size(&backend));
}

#[test]
fn parameters_of_another_size_or_type_are_binding_errors() {
    devices().for_each(|backend| testing::rejects_parameters_of_another_size(&backend));
}
