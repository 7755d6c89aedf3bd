//! Steps are timed by the device's clock, and a run that is timed computes the same.

use rlx_backend::Backend;
use rlx_backend::testing::timing::{softmaxes, timed};
use rlx_ir::DimBinding;
use rlx_ir::testing::random_bindings;

use crate::common::{compile, devices, set_params};

#[test]
fn steps_are_timed_where_the_device_has_a_clock() {
    for backend in devices() {
        // More steps than a query set has room for, and few that take a while.
        for (length, size) in [(2100, 2), (3, 256)] {
            let graph = softmaxes(length, size);
            let mut exec = compile(&graph, &backend).unwrap();
            let bindings = random_bindings(&graph, &DimBinding::new(), 3);
            set_params(&mut *exec, &bindings).unwrap();
            let Some(steps) = timed(&graph, &bindings, &mut *exec, length) else {
                println!("@skip 1 {} has no clock", backend.machine().unwrap());
                break;
            };
            if cfg!(windows) {
                println!("@skip 1 the length of steps: drivers under Wine note their end before they ran");
            } else if size > 2 {
                assert!(steps.iter().all(|step| step.least.as_nanos() > 1000), "{steps:?}");
            }
        }
    }
}
