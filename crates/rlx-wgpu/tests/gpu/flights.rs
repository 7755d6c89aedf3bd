//! Runs under way: up to three at one time, each with its own outputs; and bindings that are kept.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use rlx_backend::ExecutableGraph;
use rlx_backend::testing::faults::{gather, gather_inputs};
use rlx_ir::op::Activation;
use rlx_ir::{DType, Dim, ErrorKind, Graph, Op, Shape, Weight, sym};
use rlx_wgpu::Lowered;

use crate::common::{MAIN, compile, device, devices};
use crate::handles::{Kept, N, counter};

/// Rows through a softmax; how many rows is open.
fn rows() -> Graph {
    let mut g = Graph::new("rows");
    let x = g.input("x", Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Static(33)], DType::F32));
    let add = |g: &mut Graph, op: Op, inputs: &[_]| g.try_add(op, inputs).expect("a valid op");
    let y = add(&mut g, Op::Softmax { axis: -1 }, &[x]);
    let y = add(&mut g, Op::Activation(Activation::Gelu), &[y]);
    g.set_outputs(vec![y]);
    g
}

fn input(rows: i64, seed: i64) -> Vec<Vec<u8>> {
    let value = |i: i64| ((i * 7 + seed * 13) % 41) as f32 * 0.1 - 2.0;
    vec![(0..rows * 33).flat_map(|i| value(i).to_le_bytes()).collect()]
}

fn alone(exec: &mut dyn ExecutableGraph, rows: i64, seed: i64) -> Vec<u8> {
    exec.run(&&input(rows, seed)[..], &[rows]).unwrap();
    exec.output(0).unwrap().to_vec()
}

#[test]
fn three_runs_are_under_way_and_each_has_its_own_outputs() {
    for backend in devices() {
        let mut exec = compile(&rows(), &backend).unwrap();
        let want: Vec<_> = (0..7).map(|seed| alone(&mut *exec, 5, seed)).collect();
        assert_eq!(exec.max_in_flight(), 3);
        let mut found = Vec::new();
        for seed in 0..7 {
            if exec.in_flight() == 3 {
                exec.collect().unwrap();
                found.push(exec.output(0).unwrap().to_vec());
            }
            exec.submit(&&input(5, seed)[..], &[5]).unwrap();
        }
        assert_eq!((exec.in_flight(), found.len()), (3, 4));
        while exec.in_flight() > 0 {
            exec.collect().unwrap();
            found.push(exec.output(0).unwrap().to_vec());
        }
        assert!(found == want, "each run has the bits that it has alone");
        // More runs than may be under way, of several sizes: the last one's outputs are there.
        for seed in 0..7 {
            exec.submit(&&input(seed % 3 + 1, seed)[..], &[seed % 3 + 1]).unwrap();
        }
        let last = exec.output(0).unwrap().to_vec();
        assert_eq!(exec.in_flight(), 0, "reading an output waits for the runs");
        assert!(last == alone(&mut *exec, 1, 6));
    }
}

#[test]
fn handles_pass_from_each_run_to_the_next_without_waiting() {
    for backend in devices() {
        let mut exec = compile(&counter(), &backend).unwrap();
        let one = Weight::owned(DType::F32, &[1], 1f32.to_le_bytes().to_vec()).unwrap();
        exec.set_param(0, Arc::new(one)).unwrap();
        let handles = exec.handles_mut().expect("handles");
        handles.set(0, &vec![0; 4 * N]).unwrap();
        handles.feed(0, Some(0)).unwrap();
        (0..10).for_each(|_| exec.submit(&Kept, &[]).unwrap());
        assert_eq!(exec.handles().unwrap().read(0).unwrap(), 10f32.to_le_bytes().repeat(N));
        assert_eq!(exec.output(1).unwrap(), 9f32.to_le_bytes());
    }
}

/// Wakes the thread that waits for a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The value of a future, and how often it was polled.
pub fn awaited<F: Future>(future: F) -> (F::Output, usize) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, mut polls) = (pin!(future), 0);
    loop {
        polls += 1;
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return (value, polls),
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn runs_are_awaited_without_asking_again_and_again() {
    for backend in devices() {
        awaited(backend.open()).0.unwrap();
        let mut exec = compile(&rows(), &backend).unwrap();
        let want: Vec<_> = (0..3).map(|seed| alone(&mut *exec, 300, seed)).collect();
        let mut polls = 0;
        for seed in 0..3 {
            exec.submit(&&input(300, seed)[..], &[300]).unwrap();
        }
        for want in want {
            polls += awaited(poll_fn(|context| exec.poll_collect(context))).1;
            exec.collect().unwrap();
            assert!(exec.output(0).unwrap() == want, "the bits of a run that is waited for");
        }
        assert!(polls <= 9, "a task is woken when there is something to see: {polls}");
        // A run that reports a fault is over too. (One on a device that is gone: `faults.rs`.)
        let mut exec = compile(&gather(), &backend).unwrap();
        exec.submit(&&gather_inputs(1000)[..], &[]).unwrap();
        awaited(poll_fn(|context| exec.poll_collect(context)));
        assert_eq!(exec.collect().unwrap_err().kind(), ErrorKind::Value);
        assert!(
            exec.poll_collect(&mut Context::from_waker(Waker::noop())).is_ready(),
            "nothing is under way"
        );
    }
}

#[test]
fn a_fault_of_a_run_under_way_is_reported_once_and_the_next_run_is_right() {
    for backend in devices() {
        let mut exec = compile(&gather(), &backend).unwrap();
        for last in [0, 9, 1] {
            exec.submit(&&gather_inputs(last)[..], &[]).unwrap();
        }
        let error = exec.drain().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value);
        assert!(error.to_string().contains("index 9") && error.node().is_some(), "{error}");
        assert!(exec.output(0).is_err(), "outputs of runs of which one failed");
        exec.drain().unwrap();
        exec.run(&&gather_inputs(-4)[..], &[]).unwrap();
        assert_eq!(exec.output(0).unwrap().len(), 24);
    }
}

#[test]
fn sizes_that_change_back_and_forth_are_bound_once() {
    // Limits of its own, so that no one else's bytes are counted.
    let limits = Lowered { max_memory_bytes: Some(1 << 28), ..Lowered::default() };
    let Some(backend) = device(MAIN).map(|backend| backend.with_limits(limits)) else { return };
    let mut exec = compile(&rows(), &backend).unwrap();
    let sizes = [7, 2, 5];
    let want = sizes.map(|rows| alone(&mut *exec, rows, 1));
    let (stats, before) = (exec.binding_stats(), backend.transfers().unwrap());
    assert_eq!((stats.kept, stats.bound), (3, 3));
    let mut given = 0;
    for at in [0, 1, 2, 1, 0, 2, 2, 0] {
        assert!(alone(&mut *exec, sizes[at], 1) == want[at]);
        given += sizes[at] as u64 * 33 * 4;
    }
    assert_eq!(exec.binding_stats(), stats, "nothing was planned or bound again");
    let after = backend.transfers().unwrap();
    assert_eq!(after.to_device - before.to_device, given, "inputs alone are uploaded");
}
