//! Steps are timed by the device's events, and a run that is timed computes the same.

use rlx_backend::testing::timing::{softmaxes, timed};
use rlx_ir::DimBinding;
use rlx_ir::testing::random_bindings;

use crate::common::{all, compile, disagreement, set_params};

#[test]
fn steps_are_timed_by_events() {
    let (length, graph) = (5, softmaxes(5, 64));
    let bindings = random_bindings(&graph, &DimBinding::new(), 3);
    for backend in all() {
        let mut exec = compile(&graph, &backend).unwrap();
        set_params(&mut *exec, &bindings).unwrap();
        // From the second run on, what is not timed is a captured graph.
        for _ in 0..3 {
            assert_eq!(disagreement(&graph, &bindings, &mut *exec), None);
        }
        let steps = timed(&graph, &bindings, &mut *exec, length).expect("both drivers have events");
        assert!(steps.iter().all(|step| step.least.as_nanos() > 500), "{steps:?}");
    }
}
