//! Steps are timed by the device's clock, and a run that is timed computes the same.

use rlx_backend::Backend;
use rlx_ir::testing::random_bindings;
use rlx_ir::{DType, DimBinding, Graph, Op, Shape};

use crate::common::{compile, devices, disagreement, set_params};

/// Softmaxes, one after the other: as many steps.
fn chain(length: usize, size: usize) -> Graph {
    let mut graph = Graph::new("chain");
    let mut x = graph.input("x", Shape::new(&[size, size], DType::F32));
    for _ in 0..length {
        x = graph.try_add(Op::Softmax { axis: -1 }, &[x]).unwrap();
    }
    graph.set_outputs(vec![x]);
    graph
}

#[test]
fn steps_are_timed_where_the_device_has_a_clock() {
    for backend in devices() {
        // More steps than a query set has room for, and few that take a while.
        for (length, size) in [(2100, 2), (3, 256)] {
            let graph = chain(length, size);
            let mut exec = compile(&graph, &backend).unwrap();
            let bindings = random_bindings(&graph, &DimBinding::new(), 3);
            set_params(&mut *exec, &bindings).unwrap();
            let Some(profiler) = exec.profiler() else {
                println!("@skip 1 {} has no clock", backend.machine().unwrap());
                break;
            };
            profiler.start();
            for _ in 0..2 {
                assert_eq!(disagreement(&graph, &bindings, &mut *exec), None);
            }
            let profiler = exec.profiler().unwrap();
            let steps = profiler.steps().to_vec();
            assert_eq!(steps.len(), length);
            assert!(steps.iter().all(|step| step.runs == 2 && step.least <= step.mean()), "{steps:?}");
            assert!(
                steps.windows(2).all(|pair| pair[0].began <= pair[1].began),
                "steps run one after the other"
            );
            if cfg!(windows) {
                println!("@skip 1 the length of steps: drivers under Wine note their end before they ran");
            } else if size > 2 {
                assert!(steps.iter().all(|step| step.least.as_nanos() > 1000), "{steps:?}");
            }
            profiler.stop();
            assert!(exec.profiler().unwrap().steps().is_empty());
            assert_eq!(disagreement(&graph, &bindings, &mut *exec), None);
        }
    }
}
