//! Runs under way, handles that feed themselves, clones, and what everything shares.

use std::sync::Arc;

use rlx_backend::{Backend, RunOptions};
use rlx_ir::op::BinaryOp;
use rlx_ir::{DType, Graph, Shape, Weight};

use crate::common::{all, compile, fakes, with_memory};

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// `y = x + w`
fn counter() -> Graph {
    let shape = Shape::new(&[3], DType::F32);
    let mut graph = Graph::new("counter");
    let (x, w) = (graph.input("x", shape.clone()), graph.param("w", shape.clone()));
    let y = graph.binary(BinaryOp::Add, x, w, shape);
    graph.set_outputs(vec![y]);
    graph
}

fn one() -> Arc<Weight> {
    Arc::new(Weight::owned(DType::F32, &[3], bytes(&[1.0, 2.0, 3.0])).unwrap())
}

#[test]
fn three_runs_are_under_way_and_come_back_in_order() {
    for backend in all() {
        let mut exec = compile(&counter(), &backend).unwrap();
        exec.set_param(0, one()).unwrap();
        assert_eq!(exec.max_in_flight(), 3);
        for i in 0..5 {
            exec.submit(&&[bytes(&[i as f32; 3])][..], &[]).unwrap();
        }
        assert_eq!(exec.in_flight(), 3);
        for i in 2..5 {
            exec.collect().unwrap();
            let i = i as f32;
            assert_eq!(exec.output(0).unwrap(), bytes(&[i + 1.0, i + 2.0, i + 3.0]));
        }
        assert_eq!(exec.in_flight(), 0);
    }
}

#[test]
fn outputs_that_nobody_wants_can_be_read_until_the_next_run() {
    for backend in all() {
        let mut exec = compile(&counter(), &backend).unwrap();
        exec.set_param(0, one()).unwrap();
        let x = [bytes(&[5.0; 3])];
        let nothing = RunOptions { wanted: Some(&[]), ..RunOptions::default() };
        exec.execute(&&x[..], &[], nothing).unwrap();
        assert_eq!(exec.arena().map(<[u8]>::len), Some(0), "nothing came back");
        assert_eq!(exec.output(0).unwrap(), bytes(&[6.0, 7.0, 8.0]));
        exec.run(&&x[..], &[]).unwrap();
        assert_eq!(exec.output(0).unwrap(), bytes(&[6.0, 7.0, 8.0]));
        let unwatched = RunOptions { wait: false, ..nothing };
        for _ in 0..2 {
            exec.execute(&&x[..], &[], unwatched).unwrap();
        }
        exec.collect().unwrap();
        assert!(exec.output(0).unwrap_err().to_string().contains("was not asked for"));
        exec.collect().unwrap();
        assert_eq!(exec.output(0).unwrap(), bytes(&[6.0, 7.0, 8.0]));
    }
}

#[test]
fn a_handle_feeds_itself_through_graphs_and_clones_go_their_own_ways() {
    for backend in all() {
        let mut exec = compile(&counter(), &backend).unwrap();
        exec.set_param(0, one()).unwrap();
        let handles = exec.handles_mut().unwrap();
        handles.set(0, &bytes(&[0.0; 3])).unwrap();
        handles.feed(0, Some(0)).unwrap();
        /// The handle supplies the only input.
        struct ByHandle;
        impl rlx_backend::InputSource for ByHandle {
            fn bytes(&self, _: usize) -> &[u8] {
                &[]
            }
            fn handle(&self, _: usize) -> Option<usize> {
                Some(12)
            }
        }
        for _ in 0..6 {
            exec.run(&ByHandle, &[]).unwrap();
        }
        let mut clone = exec.try_clone().unwrap();
        clone.run(&ByHandle, &[]).unwrap();
        assert_eq!(exec.handles().unwrap().read(0).unwrap(), bytes(&[6.0, 12.0, 18.0]));
        assert_eq!(clone.handles().unwrap().read(0).unwrap(), bytes(&[7.0, 14.0, 21.0]));
    }
}

#[test]
fn what_is_dropped_gives_its_memory_back_and_kernels_are_compiled_once() {
    for backend in fakes() {
        // An account of its own.
        let backend = with_memory(&backend, 1 << 30);
        let exec = compile(&counter(), &backend).unwrap();
        let (kernels, used) = (backend.kernel_count().unwrap(), backend.memory_in_use().unwrap());
        let again = compile(&counter(), &backend).unwrap();
        assert_eq!(backend.kernel_count().unwrap(), kernels);
        assert!(used > 0 && backend.memory_in_use().unwrap() > used);
        drop((exec, again));
        assert_eq!(backend.memory_in_use().unwrap(), 0);
    }
}

#[test]
fn a_large_handle_is_read_in_pieces() {
    for backend in all() {
        let mut exec = compile(&counter(), &backend).unwrap();
        let value: Vec<u8> = (0..(64usize << 20) + 20).map(|i| ((i * 167) >> 8) as u8).collect();
        let handles = exec.handles_mut().expect("handles");
        handles.set(0, &value).unwrap();
        assert!(handles.read(0).unwrap() == value, "{}", backend.name());
    }
}
